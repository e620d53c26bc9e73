"""64-bit integers on a target that computes in 32 bits only: pairs of uint32, low word first.

Before: a linear program with int64 and uint64 values. After: the same program in uint32; buffers
of 64-bit elements are buffers of twice as many words. Why last: registers are plain by now, so
sums carry from word to word like everything else, and out-of-range shifts, divisions by zero and
conversions that saturate have been dealt with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.expansions import lanes_of
from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.lower.decompose import words
from opgraft.lower.decompose.words import Pair
from opgraft.target import Target

_WIDE: Final = (dtypes.int64, dtypes.uint64)
_LEAVES: Final = frozenset({Ops.CONST, Ops.VAR, Ops.PARAM, Ops.IOTA, Ops.SPECIAL})


def split_wide_integers(program: LinearProgram, target: Target) -> LinearProgram:
    """The program without 64-bit integers, where the target lacks them; else the program."""
    if all(d in target.compute for d in _WIDE):
        return program
    return _Splitter().run(program)


def is_wide(dtype: DType) -> bool:
    """Whether a value takes two words."""
    return dtype.scalar in _WIDE


class _Splitter:
    def __init__(self) -> None:
        self.pairs: dict[UOp, Pair] = {}
        self.new: dict[UOp, UOp] = {}
        self.out: list[UOp] = []

    def run(self, program: LinearProgram) -> LinearProgram:
        for n in program.instructions:
            self._instruction(n)
        parallel = program.parallel
        return replace(
            program,
            instructions=tuple(self.out),
            params=tuple(self.single(p) for p in program.params),
            variables=tuple(self.single(v) for v in program.variables),
            parallel=None if parallel is None else self.new.get(parallel, parallel),
        )

    # ---- operands

    def single(self, u: UOp) -> UOp:
        """A value of one word, a buffer or an effect, as it is written now."""
        found = self.new.get(u)
        if found is not None:
            return found
        if u.op is Ops.PARAM and is_wide(u.dtype):
            slot, size = u.arg
            return UOp(Ops.PARAM, dtypes.uint32, (), (slot, 2 * size))
        if u.op is Ops.VAR and is_wide(u.dtype):
            if u.arg[1] < dtypes.int32.min or u.arg[2] > dtypes.int32.max:
                raise LoweringError(f"variable {u.arg[0]} needs 64 bits, which the target lacks")
            return UOp(Ops.VAR, dtypes.int32, (), u.arg)
        if u.op in _LEAVES:
            return u
        if u.is_const:
            return u
        raise LoweringError(f"{u.op} is used where it was not computed before")

    def pair(self, u: UOp) -> Pair:
        """A 64-bit value in two words."""
        found = self.pairs.get(u)
        if found is not None:
            return found
        word = lanes_of(dtypes.uint32, u)
        if u.is_const:
            bits = int(u.const_value) & ((1 << 64) - 1)
            return UOp.const(word, bits & 0xFFFFFFFF), UOp.const(word, bits >> 32)
        if u.op is Ops.VAR:
            return words.from_narrow(self.single(u))
        if u.op is Ops.IOTA:
            lanes = UOp(Ops.IOTA, word)
            return lanes, UOp.const(word, 0)
        raise LoweringError(f"{u.op} is used where it was not computed before")

    def index(self, u: UOp) -> UOp:
        """An index, in 32 bits."""
        if not is_wide(u.dtype):
            return self.single(u)
        return self.pair(u)[0].bitcast(lanes_of(dtypes.int32, u))

    # ---- instructions

    def _instruction(self, n: UOp) -> None:
        if n.op is Ops.RANGE and is_wide(n.dtype):
            raise LoweringError(f"loop {n.arg[0]} needs 64 bits, which the target lacks")
        if n.op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC, Ops.PREFETCH):
            self._memory(n)
        elif n.op is Ops.LOCAL and is_wide(n.dtype):
            name, size, space = n.arg
            word = lanes_of(dtypes.uint32, n)
            self._keep(n, UOp(Ops.LOCAL, word, (), (name, 2 * size, space), n.tag))
        elif is_wide(n.dtype):
            self._keep_pair(n, self._wide_value(n))
        elif any(is_wide(s.dtype) for s in n.src):
            self._keep(n, self._narrow_value(n))
        else:
            self._keep(n, n.with_src(tuple(self.single(s) for s in n.src)))

    def _keep(self, n: UOp, made: UOp) -> None:
        self._emit(n, (made,))
        self.new[n] = made

    def _keep_pair(self, n: UOp, made: Pair) -> None:
        self._emit(n, made)
        self.pairs[n] = made

    def _emit(self, n: UOp, roots: tuple[UOp, ...]) -> None:
        """What was made for one instruction, down to what its sources were made into."""
        known: set[UOp] = set()
        for s in n.src:
            known.update(self.pairs.get(s, ()))
            if s in self.new:
                known.add(self.new[s])
        for made in toposort(roots, lambda u: u not in known):
            if made not in known and made.op not in _LEAVES:
                self.out.append(made)

    # ---- memory

    def _memory(self, n: UOp) -> None:
        """A 64-bit element is the words at twice the index, and after it."""
        buffer, index = self.single(n.src[0]), self.index(n.src[1])
        if n.op is Ops.PREFETCH:
            gate = tuple(self.single(s) for s in n.src[2:])
            place = index * 2 if is_wide(n.src[0].dtype) else index
            self._keep(n, n.with_src((buffer, place, *gate)))
            return
        value = n if n.op is Ops.LOAD else n.src[2]
        if not is_wide(value.dtype):
            rest = tuple(self.single(s) for s in n.src[2:])
            self._keep(n, UOp(n.op, n.dtype, (buffer, index, *rest), n.arg, n.tag))
            return
        if n.op is Ops.ATOMIC:
            raise LoweringError("an atomic of 64 bits can't be had without 64-bit integers")
        count = value.dtype.count
        if index.op is Ops.CONST:
            low = UOp.const(index.dtype, 2 * index.arg)
            high = UOp.const(index.dtype, 2 * index.arg + 1)
        else:
            low, high = index * 2, index * 2 + 1
        if count > 1 and index.dtype.count == 1 and n.src[0].dtype.count == 1:
            # consecutive elements: their low words stand two apart
            steps = UOp(Ops.IOTA, index.dtype.vec(count)) * 2
            low, high = low.broadcast(count) + steps, high.broadcast(count) + steps
        if n.op is Ops.LOAD:
            self._keep_pair(n, self._load(n, buffer, low, high))
            return
        halves = self.pair(n.src[2])
        gate = self._gate(n.src[3:4], count)
        for place, half in zip((low, high), halves, strict=True):
            self._emit(n, (UOp(Ops.STORE, n.dtype, (buffer, place, half, *gate)),))

    def _load(self, n: UOp, buffer: UOp, low: UOp, high: UOp) -> Pair:
        word = lanes_of(dtypes.uint32, n)
        if len(n.src) == 2:
            return (UOp(Ops.LOAD, word, (buffer, low)), UOp(Ops.LOAD, word, (buffer, high)))
        (gate,) = self._gate(n.src[2:3], n.dtype.count)
        first, second = self.pair(n.src[3])
        return (
            UOp(Ops.LOAD, word, (buffer, low, gate, first)),
            UOp(Ops.LOAD, word, (buffer, high, gate, second)),
        )

    def _gate(self, gates: tuple[UOp, ...], count: int) -> tuple[UOp, ...]:
        made = tuple(self.single(g) for g in gates)
        return tuple(g.broadcast(count) if g.dtype.count == 1 else g for g in made)

    # ---- values

    def _wide_value(self, n: UOp) -> Pair:
        op = n.op
        if op is Ops.CAST:
            return self._to_wide(n)
        if op is Ops.BITCAST:
            if is_wide(n.src[0].dtype):
                return self.pair(n.src[0])
            raise LoweringError("the bits of a float64 can't be had without 64-bit integers")
        if op is Ops.WHERE:
            condition = self.single(n.src[0])
            yes, no = self.pair(n.src[1]), self.pair(n.src[2])
            return words.select(condition, yes, no)
        if op in (Ops.BROADCAST, Ops.STACK, Ops.EXTRACT, Ops.HREDUCE):
            return self._lanes(n)
        signed = n.dtype.scalar is dtypes.int64
        if op is Ops.SHL or op is Ops.SHR:
            count = self.pair(n.src[1])[0]
            return words.shift(op, self.pair(n.src[0]), count, signed)
        operands = [self.pair(s) for s in n.src]
        if op is Ops.MULACC:
            return words.add(words.multiply(operands[0], operands[1]), operands[2])
        if op is Ops.CDIV or op is Ops.CMOD:
            return words.divide(operands[0], operands[1], signed)[op is Ops.CMOD]
        return words.binary(op, operands[0], operands[1], signed)

    def _lanes(self, n: UOp) -> Pair:
        if n.op is Ops.HREDUCE:
            return self._horizontal(n)
        halves = zip(*(self.pair(s) for s in n.src), strict=True)
        word = lanes_of(dtypes.uint32, n)
        low, high = (UOp(n.op, word, tuple(side), n.arg) for side in halves)
        return low, high

    def _horizontal(self, n: UOp) -> Pair:
        """Pairwise halves, as everywhere."""
        vector, count = self.pair(n.src[0]), n.src[0].dtype.count
        lanes = [(vector[0].extract(k), vector[1].extract(k)) for k in range(count)]
        signed = n.dtype.scalar is dtypes.int64
        while len(lanes) > 1:
            half = len(lanes) // 2
            pairs = zip(lanes[:half], lanes[half : 2 * half], strict=True)
            combined = [words.binary(n.arg, a, b, signed) for a, b in pairs]
            lanes = combined + lanes[2 * half :]
        return lanes[0]

    def _to_wide(self, n: UOp) -> Pair:
        source = n.src[0]
        if is_wide(source.dtype):
            return self.pair(source)
        if source.dtype.is_float:
            return words.from_float(self.single(source), n.dtype.scalar is dtypes.int64)
        return words.from_narrow(self.single(source))

    def _narrow_value(self, n: UOp) -> UOp:
        """A value of one word or a float, made of 64-bit ones."""
        signed = n.src[0].dtype.scalar is dtypes.int64
        if n.op in GroupOp.COMPARISON:
            return words.compare(n.op, self.pair(n.src[0]), self.pair(n.src[1]), signed)
        if n.op is not Ops.CAST:
            raise LoweringError(f"{n.op} of {n.src[0].dtype} can't be had without 64-bit integers")
        low, high = self.pair(n.src[0])
        if n.dtype.is_bool:
            return (low | high).ne(0)
        if n.dtype.is_int:
            return low.cast(n.dtype)
        return words.to_float((low, high), n.dtype, signed)
