"""Instances of a rule's pattern: nodes that it matches, in every dtype that it accepts."""

from __future__ import annotations

import random
from typing import Any, Final

from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp, UPat
from opgraft.ir import pattern as patterns
from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.uop import head_of, node

from .generator import Pool

FLOATS: Final = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
# What a source of an op may be, given the dtype of the result.
_COMPARED: Final = (*GroupOp.COMPARISON,)


class NoInstance(Exception):
    """The pattern could not be filled this time; another draw may succeed."""


class Filler:
    """Draws instances of patterns. `among`: the dtypes to choose from, the favoured first."""

    def __init__(self, rng: random.Random, among: tuple[DType, ...], depth: int = 3) -> None:
        self.rng, self.among, self.depth = rng, among, depth

    def draw(self, pattern: UPat) -> UOp:
        """A node that may match the pattern: ask the matcher. Raises NoInstance."""
        self.pool = Pool(self.rng, self.among, self.rng.choice((1, 1, 2, 2, 3)))
        self.bound: dict[str, UOp] = {}
        self.parts: list[UOp] = []
        return self._fill(pattern, None)

    def _fill(self, pattern: UPat, dtype: DType | None) -> UOp:
        name = pattern.name
        if name is not None and name in self.bound:
            found = self.bound[name]
            if dtype is not None and found.dtype is not dtype:
                raise NoInstance
            return found
        if pattern.alternatives:
            options = list(pattern.alternatives)
            self.rng.shuffle(options)
            made = self._first(options, dtype)
        elif pattern.constant:
            made = self._constant(pattern, dtype)
        elif pattern.ops is None and not pattern.src:
            made = self._anything(pattern, dtype)
        else:
            made = self._operation(pattern, dtype)
        self.parts.append(made)
        if name is not None:
            self.bound[name] = made
        return made

    def _first(self, options: list[UPat], dtype: DType | None) -> UOp:
        kept = dict(self.bound)
        for option in options:
            try:
                return self._fill(option, dtype)
            except NoInstance:
                self.bound = dict(kept)
        raise NoInstance

    def _dtype(self, pattern: UPat, dtype: DType | None, usable: Any = None) -> DType:
        """A dtype that the pattern accepts: the wanted one, or a drawn one."""
        if dtype is not None:
            options = [dtype]
        else:
            options = [*self.among, dtypes.bool]
            if self.rng.random() < 0.8:
                options = list(self.among)
            options += [d for d in FLOATS if self._only_float(pattern)]
        if pattern.dtypes is not None:
            options = [d for d in options if d in pattern.dtypes]
        if usable is not None:
            options = [d for d in options if usable(d)]
        if not options:
            raise NoInstance
        return self.rng.choice(options)

    @staticmethod
    def _only_float(pattern: UPat) -> bool:
        return pattern.dtypes is not None and dtypes.int32 not in pattern.dtypes

    def _constant(self, pattern: UPat, dtype: DType | None) -> UOp:
        value = pattern.value
        if value is patterns.ANY:
            return self.pool.constant(self._dtype(pattern, dtype))
        if isinstance(value, bool):
            chosen = self._dtype(pattern, dtype or dtypes.bool)
        else:
            chosen = self._dtype(pattern, dtype, lambda d: d.is_float or type(value) is int)
        return UOp.const(chosen, value)

    def _anything(self, pattern: UPat, dtype: DType | None) -> UOp:
        chosen = self._dtype(pattern, dtype)
        # equal operands, and constants next to others, are where rules go wrong
        same = [n for n in self.parts if n.dtype is chosen]
        if same and self.rng.random() < 0.2:
            made = self.rng.choice(same)
            if made.is_const and chosen.is_int and self.rng.random() < 0.7:
                made = made.const_like(made.const_value + self.rng.choice((1, -1)))
            return made
        if self.rng.random() < 0.08:
            made = self.pool.constant(chosen)
        else:
            made = self.pool.expression(chosen, self.rng.choice((0, 0, 1, 1, 2, self.depth)))
        if pattern.predicate is not None and not pattern.predicate(made):
            raise NoInstance
        return made

    def _operation(self, pattern: UPat, dtype: DType | None) -> UOp:
        op = self.rng.choice(pattern.ops) if pattern.ops else self.rng.choice((Ops.ADD, Ops.MUL))
        special = {
            Ops.LOAD: self._load,
            Ops.STORE: self._store,
            Ops.REDUCE: self._reduce,
            Ops.BROADCAST: self._broadcast,
            Ops.EXTRACT: self._extract,
        }.get(op)
        if special is not None:
            return special(pattern, dtype)
        if op in _COMPARED and dtype is not None and not dtype.is_bool:
            raise NoInstance
        result = dtypes.bool if op in _COMPARED else self._dtype(pattern, dtype, _usable(op))
        if op in _COMPARED and pattern.dtypes is not None and result not in pattern.dtypes:
            raise NoInstance
        wanted = self._source_dtypes(op, result)
        src = self._sources(pattern, op, wanted)
        return node(head_of(op, result), tuple(src))

    def _source_dtypes(self, op: Ops, result: DType) -> list[DType | None]:
        if op in (Ops.CAST, *_COMPARED):
            return [None] * (1 if op is Ops.CAST else 2)
        if op is Ops.BITCAST:
            same = [d for d in (*self.among, *FLOATS) if d.bits == result.bits and d.bits > 1]
            return [self.rng.choice(same)] if same else [None]
        if op is Ops.WHERE:
            return [dtypes.bool, result, result]
        count = 1 if op in GroupOp.UNARY else 3 if op in GroupOp.TERNARY else 2
        return [result] * count

    def _sources(self, pattern: UPat, op: Ops, wanted: list[DType | None]) -> list[UOp]:
        parts: list[UPat] = list(pattern.src)
        if pattern.form == "repeated":
            parts = parts * len(wanted)
        if pattern.form == "anything" or (pattern.rest and len(parts) < len(wanted)):
            parts += [UPat()] * (len(wanted) - len(parts))
        if len(parts) != len(wanted):
            raise NoInstance
        order = list(range(len(parts)))
        if pattern.form == "any order" and self.rng.random() < 0.5:
            parts.reverse()
        # constants first: ranges and other constants are then derived from them
        order.sort(key=lambda i: (not parts[i].constant, self.rng.random()))
        if op in _COMPARED:
            # the more particular side decides the dtype of both
            order.sort(key=lambda i: parts[i].ops is None or parts[i].constant)
        made: list[UOp | None] = [None] * len(parts)
        for i in order:
            dtype = wanted[i]
            if dtype is None and op is Ops.CAST:
                dtype = None
            elif dtype is None:
                known = [m for m in made if m is not None]
                dtype = known[0].dtype if known else self._agreed(parts)
            made[i] = self._fill(parts[i], dtype)
        return [m for m in made if m is not None]

    def _agreed(self, parts: list[UPat]) -> DType | None:
        """A dtype that all of these accept, if one of them is bound or says so."""
        for part in parts:
            if part.name is not None and part.name in self.bound:
                return self.bound[part.name].dtype
        options: list[DType] = [*self.among, dtypes.bool, *FLOATS]
        for part in parts:
            if part.dtypes is not None:
                options = [d for d in options if d in part.dtypes]
            if part.constant and isinstance(part.value, bool):
                options = [d for d in options if d.is_bool]
            elif part.constant and isinstance(part.value, float):
                options = [d for d in options if d.is_float]
        if any(part.ops is not None and not part.constant for part in parts):
            return None
        favoured = [d for d in options if d in self.among] or options
        return self.rng.choice(favoured) if favoured else None

    # ---- memory and loops

    def _stored(self) -> list[DType]:
        """What a buffer may hold."""
        return [d for d in self.among if not d.is_index] or [dtypes.int32, dtypes.float32]

    def _index(self) -> UOp:
        return self.pool.expression(dtypes.index, self.rng.choice((1, 2, 3, 3)))

    def _gate(self) -> UOp:
        """A condition on the variables that an index is made of."""
        made = self._clause()
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            made = made & self._clause() if self.rng.random() < 0.85 else made | self._clause()
        return made

    def _clause(self) -> UOp:
        kind = self.rng.random()
        if kind < 0.1:
            return self.pool.leaf(dtypes.bool)
        left = self.pool.expression(dtypes.index, self.rng.choice((0, 0, 0, 1, 2)))
        bound = UOp.const(dtypes.index, self.pool.number())
        if kind < 0.55:
            made = left < bound
        elif kind < 0.85:
            made = bound < left
        else:
            made = left.eq(bound) if kind < 0.95 else left.ne(bound)
        return ~made if self.rng.random() < 0.15 else made

    def _part(self, pattern: UPat | None, dtype: DType | None, otherwise: Any) -> UOp:
        """What the pattern asks for; where it asks for nothing in particular, `otherwise`."""
        if pattern is not None:
            named = pattern.name is not None and pattern.name in self.bound
            if named or pattern.constant or pattern.ops is not None or pattern.alternatives:
                return self._fill(pattern, dtype)
        made: UOp = otherwise()
        if pattern is not None and pattern.name is not None:
            self.bound[pattern.name] = made
        return made

    def _load(self, pattern: UPat, dtype: DType | None) -> UOp:
        value = dtype or self.rng.choice(self._stored())
        parts = list(pattern.src) or [UPat(), UPat()]
        buffer = self._part(
            parts[0], value, lambda: UOp(Ops.PARAM, value, (), (self.rng.randrange(2), 64))
        )
        index = self._part(parts[1], dtypes.index, self._index)
        if len(parts) < 4:
            return buffer.load(index)
        gate = self._part(parts[2], dtypes.bool, self._gate)
        other = self._part(parts[3], value, lambda: self.pool.expression(value, 1))
        return buffer.load(index, gate, other)

    def _store(self, pattern: UPat, dtype: DType | None) -> UOp:
        value = self.rng.choice(self._stored())
        parts = list(pattern.src)
        buffer = self._part(
            parts[0], value, lambda: UOp(Ops.PARAM, value, (), (self.rng.randrange(2), 64))
        )
        index = self._part(parts[1], dtypes.index, self._index)
        what = self._part(parts[2], value, lambda: self.pool.expression(value, 1))
        gate = self._part(parts[3], dtypes.bool, self._gate) if len(parts) > 3 else None
        return buffer.store(index, what, gate)

    def _reduce(self, pattern: UPat, dtype: DType | None) -> UOp:
        rng = self.rng
        op = pattern.arg if isinstance(pattern.arg, Ops) else rng.choice((*GroupOp.REDUCING,))
        chosen = self._dtype(pattern, dtype, _usable(op))
        if chosen.is_index and op in (Ops.MAX, Ops.MIN):
            raise NoInstance  # of no indices at all there is no least one
        ranges = [
            UOp.range(rng.choice((1, 2, 3)), f"r{i}", AxisKind.REDUCE)
            for i in range(rng.choice((1, 1, 2)))
        ]
        if rng.random() < 0.2:
            size = UOp.variable("n", rng.choice((-1, 0, 1)), 3)
            ranges[0] = UOp.range(size, "r0", AxisKind.REDUCE)
        if rng.random() < 0.7:
            self.pool.leaves.setdefault(dtypes.index, []).extend(ranges)
            self.pool.most += len(ranges)
        value = self._fill(pattern.src[0] if pattern.src else UPat.var(), chosen)
        return value.reduce(op, *ranges)

    def _broadcast(self, pattern: UPat, dtype: DType | None) -> UOp:
        if dtype is not None and dtype.count == 1:
            raise NoInstance
        inner = self._fill(pattern.src[0] if pattern.src else UPat.var(), dtype and dtype.scalar)
        return inner.broadcast(2 if dtype is None else dtype.count)

    def _extract(self, pattern: UPat, dtype: DType | None) -> UOp:
        vector = self._fill(pattern.src[0], dtype and dtype.vec(2))
        return UOp(Ops.EXTRACT, vector.dtype.scalar, (vector,), self.rng.randrange(2))


def _usable(op: Ops) -> Any:
    """Which result dtypes an op has (see ir/spec.py)."""
    if op in (*GroupOp.ELEMENTARY, Ops.FDIV, Ops.SQRT, Ops.TRUNC):
        return lambda d: d.is_float
    if op in (Ops.IDIV, Ops.CDIV, Ops.CMOD, Ops.SHL, Ops.SHR):
        return lambda d: d.is_int
    if op is Ops.MOD:
        return lambda d: d.is_int or d.is_float
    if op in (Ops.AND, Ops.OR, Ops.XOR):
        return lambda d: d.is_int or d.is_bool
    if op is Ops.THREEFRY:
        return lambda d: d is dtypes.uint64
    if op is Ops.MULACC:
        return lambda d: d.is_float or d.is_int
    if op is Ops.BITCAST:
        return lambda d: not d.is_index and not d.is_bool
    return None


def looped(root: UOp, rng: random.Random) -> UOp:
    """The instance with indices of loops, converted, for some of its variables of integers: so
    that its parts depend on loops of different depths."""
    changes: dict[UOp, UOp] = {}
    for n in root.toposort():
        if n.op is Ops.VAR and n.dtype.is_int and n.dtype.count == 1 and rng.random() < 0.7:
            low, high = n.arg[1], n.arg[2]
            size = min(high - low + 1, rng.choice((3, 8, 20)))
            changes[n] = UOp.range(size, 100 + len(changes)).cast(n.dtype) + low
    return root.substitute(changes) if changes else root


def widened(root: UOp) -> UOp:
    """The instance on vectors of two lanes, of leaves that are the same in both."""
    done: dict[UOp, UOp] = {}
    for n in root.toposort():
        if n.dtype.count != 1 or n.dtype.kind == "void":
            done[n] = n
        elif n.op in GroupOp.ALU:
            src = tuple([done[s] for s in n.src])
            done[n] = UOp(n.op, n.dtype.vec(2), src, n.arg, n.tag)
        else:
            done[n] = n.broadcast(2)
    return done[root]
