"""Operations on vectors in GNU C, as gcc and clang have them.

A lane count that is no power of two lives in the next one; the lanes beyond the end repeat
values of lanes within, so they can't trap, and never reach memory.

HREDUCE folds pairwise halves: lane i with lane i + n/2, and again, until one is left. (Of an odd
number the last lane waits for the next round.) The sign of a zero maximum is free.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final

from opgraft.dtype import DType
from opgraft.errors import LoweringError
from opgraft.ir.bounds import may_be_nan
from opgraft.ir.expansions import ANY_ZERO, NUMBERS, PROVEN, SIGNED, expand
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.render.cstyle import OPERATORS, at_most, is_minus_one
from opgraft.render.gnu_memory import GnuMemory, lane_of
from opgraft.render.gnu_types import padded
from opgraft.render.intrinsics import greater_or_lesser
from opgraft.render.writer import Writer, stand_in

_MASK_OPERATORS = {
    Ops.ADD: "|",
    Ops.OR: "|",
    Ops.MAX: "|",
    Ops.MUL: "&",
    Ops.AND: "&",
    Ops.MIN: "&",
    Ops.XOR: "^",
}


_SMALLEST: Final = 16
"""Bytes of the smallest vectors that machines have."""


class GnuVectors(GnuMemory):
    """The vector half of a renderer for gcc and clang."""

    vector_literal: ClassVar[str] = "(({type}){{{lanes}}})"

    # ---- leaves

    def vector_leaf(self, w: Writer, u: UOp) -> str:
        scalar = u.dtype.scalar
        if u.op is Ops.IOTA:
            return self._stack(w, u, [self.literal(scalar, i) for i in range(u.dtype.count)])
        if scalar.is_bool:
            return self.mask(w, u, self.mask_bits(w, u))
        return self.broadcast(w, u.dtype, self.literal(scalar, u.const_value))

    def broadcast(self, w: Writer, dtype: DType, text: str) -> str:
        """A scalar in every lane. Minus zero keeps every value as it is, -0.0 too."""
        if dtype.bits < 32:
            text = f"({self.scalar_type(dtype.scalar)}){text}"
        return f"({text}-({self.vector_type(w, dtype)}){{}})"

    def _stack(self, w: Writer, u: UOp, lanes: list[str]) -> str:
        """A vector of given lanes."""
        lanes = lanes + lanes[:1] * (padded(len(lanes)) - len(lanes))
        kind, parts = self.value_type(w, u), self.value_parts(w, u)
        size = len(lanes) // parts
        texts = [
            self.vector_literal.format(type=kind, lanes=",".join(lanes[p * size : (p + 1) * size]))
            for p in range(parts)
        ]
        if parts == 1:
            return texts[0]
        name = w.name("v")
        for p, text in enumerate(texts):
            w.line(f"{kind} {name}_{p}={text};")
        return f"{name}_@"

    # ---- values

    def vector_value(self, w: Writer, u: UOp) -> str:
        op, dtype = u.op, u.dtype
        if op is Ops.EXTRACT:
            return self._extract(w, u.src[0], u.arg)
        if op is Ops.HREDUCE:
            return self._horizontal(w, u)
        if op is Ops.BROADCAST:
            if dtype.is_bool:
                return self.mask(w, u, self.mask_bits(w, u))
            return self.broadcast(w, dtype, w.ref(u.src[0]))
        if op is Ops.STACK:
            if (shuffled := self._shuffle(w, u)) is not None:
                return shuffled
            sign = "-" if dtype.is_bool else ""
            return self._stack(w, u, [sign + w.ref(s) for s in u.src])
        if op is Ops.CAST:
            return self._vector_cast(w, u)
        if op is Ops.BITCAST:
            return f"(({self.value_type(w, u)}){w.ref(u.src[0])})"
        expansion = expand(u)
        if expansion is not None:
            return self.expanded(w, u, expansion)
        if op is Ops.WHERE:
            return self._select(w, u)
        if op in GroupOp.COMPARISON:
            return self._compare(w, u, u.src[0], u.src[1], OPERATORS[op])
        if dtype.is_bool:
            return self._mask_operation(w, u)
        if (op, dtype.scalar) in self.functions:
            return self.by_function(w, u)
        a = w.ref(u.src[0])
        if op is Ops.MULACC and not dtype.is_float:
            return f"({a}*{w.ref(u.src[1])}+{w.ref(u.src[2])})"
        if op is Ops.MUL and is_minus_one(u.src[1]):
            return f"(-{a})"
        if op is Ops.MAX or op is Ops.MIN:
            a, b = w.atom(u.src[0]), w.atom(u.src[1])
            kind = self.mask_type(w, dtype.bits, dtype.count)
            condition = f"({kind})({a}{'>' if op is Ops.MAX else '<'}{b})"
            parts = self.parts(dtype.bits, dtype.count)
            return self._blend(w, dtype, self.declare_parts(w, kind, condition, parts), a, b)
        if op not in OPERATORS:
            raise LoweringError(f"{type(self).__name__} cannot render {op} of {dtype}")
        return f"({a}{OPERATORS[op]}{w.ref(u.src[1])})"

    def _extract(self, w: Writer, vector: UOp, lane: int) -> str:
        bits = self.mask_bits(w, vector) if vector.dtype.is_bool else vector.dtype.bits
        text = lane_of(w.atom(vector), self.part_lanes(bits, vector.dtype.count), lane)
        return f"({text}!=0)" if vector.dtype.is_bool else text

    def _shuffle(self, w: Writer, u: UOp) -> str | None:
        """A STACK of lanes of one or two vectors of the same type, each in one register; a
        constant in the other lanes is one of them."""
        lanes = [s for s in u.src if s.op is Ops.EXTRACT]
        rest = list(dict.fromkeys(s for s in u.src if s.op is not Ops.EXTRACT))
        sources = list(dict.fromkeys(s.src[0] for s in lanes))
        if not lanes or u.dtype.is_bool or len(sources) + len(rest) > 2:
            return None
        kinds = {self.value_type(w, s) for s in sources}
        count = sources[0].dtype.count
        if any(s.op is not Ops.CONST for s in rest) or kinds != {self.value_type(w, u)}:
            return None
        if self.value_parts(w, sources[0]) > 1 or count != padded(count):
            return None
        names = [w.atom(s) for s in sources]
        names += [w.atom(UOp.const(u.dtype, s.const_value)) for s in rest]
        by = _moved(u)
        if by and rest:
            # a part of the two side by side, which is one instruction, where a choice is two
            names = names if by > 0 else names[::-1]
            order = [k + by % count for k in range(count)]
        else:
            place = {s: k * count for k, s in enumerate(sources)}
            order = [
                place[s.src[0]] + s.arg if s.op is Ops.EXTRACT else count + k
                for k, s in enumerate(u.src)
            ]
        return f"__builtin_shufflevector({names[0]},{names[-1]},{','.join(map(str, order))})"

    def _blend(self, w: Writer, dtype: DType, mask: str, yes: str, no: str) -> str:
        kind, result = self.mask_type(w, dtype.bits, dtype.count), self.vector_type(w, dtype)
        return f"(({result})(({mask}&({kind}){yes})|(~{mask}&({kind}){no})))"

    def _select(self, w: Writer, u: UOp) -> str:
        condition, yes, no = u.src
        if condition.op is Ops.CMPLT and u.dtype.is_float and u.dtype.bits >= 32:
            greatest = condition.src == (no, yes)
            if greatest or condition.src == (yes, no):
                return self._extreme(w, u.dtype, greatest, w.ref(yes), w.ref(no))
        if condition.op is Ops.BROADCAST and not u.dtype.is_bool:
            # one scalar decides for all lanes
            return f"({w.atom(condition.src[0])}?{w.ref(yes)}:{w.ref(no)})"
        if u.dtype.is_bool:
            bits = self.mask_bits(w, u)
            mask = self.atom_mask(w, condition, bits)
            return f"(({mask}&{self.mask(w, yes, bits)})|(~{mask}&{self.mask(w, no, bits)}))"
        bits = u.dtype.bits
        mask = self.atom_mask(w, condition, bits)
        kind, result = self.mask_type(w, bits, u.dtype.count), self.vector_type(w, u.dtype)
        if _is_zero(no):
            return f"(({result})({mask}&({kind}){w.ref(yes)}))"
        if _is_zero(yes):
            return f"(({result})(~{mask}&({kind}){w.ref(no)}))"
        return self._blend(w, u.dtype, mask, w.ref(yes), w.ref(no))

    def _extreme(self, w: Writer, dtype: DType, greatest: bool, yes: str, no: str) -> str:
        """The greater (the lesser) of two vectors, the second where either is nan: what compilers
        make of a comparison and a selection is two instructions, not one."""
        kind = self.vector_type(w, dtype)
        mask = self.mask_type(w, dtype.bits, dtype.count)
        name = f"{'greater' if greatest else 'lesser'}_{kind}"
        w.helper(name, greater_or_lesser(name, kind, mask, greatest))
        return f"{name}({yes},{no})"

    def _compare(self, w: Writer, u: UOp, left: UOp, right: UOp, symbol: str) -> str:
        bits, count = self.mask_bits(w, u), u.dtype.count
        if left.dtype.is_bool:
            a, b = self.mask(w, left, bits), self.mask(w, right, bits)
            if u.op is Ops.CMPLT:
                return f"(~{a}&{b})"
            return f"({a}^{b})" if u.op is Ops.CMPNE else f"(~({a}^{b}))"
        own = left.dtype.bits
        kind = self.mask_type(w, own, count)
        text = f"(({kind})({w.ref(left)}{symbol}{w.ref(right)}))"
        return self._mask_as(w, text, own, bits, count)

    def _mask_as(self, w: Writer, text: str, own: int, bits: int, count: int) -> str:
        if own == bits:
            return text
        return self.convert(w, text, SIGNED[own], SIGNED[bits], count)

    def _mask_operation(self, w: Writer, u: UOp) -> str:
        pair = at_most(u)
        if pair is not None and not pair[0].dtype.is_bool:
            return self._compare(w, u, *pair, "<=")
        bits = self.mask_bits(w, u)
        a = self.mask(w, u.src[0], bits)
        if u.op is Ops.XOR and u.src[1].is_const and u.src[1].const_value:
            return f"(~{a})"
        symbol = _MASK_OPERATORS.get(u.op)
        if symbol is None:
            raise LoweringError(f"{type(self).__name__} cannot render {u.op} of {u.dtype}")
        return f"({a}{symbol}{self.mask(w, u.src[1], bits)})"

    def _vector_cast(self, w: Writer, u: UOp) -> str:
        source, target, count = u.src[0].dtype, u.dtype, u.dtype.count
        if source.is_bool:
            # the bits of one in the lanes where the mask is set
            kind = self.mask_type(w, target.bits, count)
            mask = self.mask(w, u.src[0], target.bits)
            one = self.broadcast(w, target, self.literal(target.scalar, 1))
            return f"(({self.vector_type(w, target)})({mask}&({kind}){one}))"
        if target.is_bool:
            kind = self.mask_type(w, source.bits, count)
            text = f"(({kind})({w.ref(u.src[0])}!=({self.vector_type(w, source)}){{}}))"
            return self._mask_as(w, text, source.bits, self.mask_bits(w, u), count)
        if source.is_float and target.is_int and u.tag != PROVEN:
            expansion = expand(u)
            assert expansion is not None
            return self.expanded(w, u, expansion)
        if (half := self.half_cast(w, u)) is not None:
            return half
        return self.convert(w, w.ref(u.src[0]), source.scalar, target.scalar, count)

    def by_function(self, w: Writer, u: UOp) -> str:
        """An operation that only a call gives, lane by lane: compilers make one instruction."""
        kind = self.vector_type(w, u.dtype)
        call = self.functions[u.op, u.dtype.scalar]
        name = f"{u.op.name.lower()}_{kind}"
        names = "abc"[: len(u.src)]
        takes = ",".join(f"{kind} {n}" for n in names)
        gives = ",".join(f"{n}[l]" for n in names)
        lanes = self.part_lanes(u.dtype.bits, u.dtype.count)
        w.helper(
            name,
            f"static inline __attribute__((always_inline)) {kind} {name}({takes})"
            f"{{{kind} r;for(int l=0;l<{lanes};l++)r[l]={call}({gives});return r;}}",
        )
        return f"{name}({','.join(w.ref(s) for s in u.src)})"

    # ---- lanes combined

    def _horizontal(self, w: Writer, u: UOp) -> str:
        value = u.src[0]
        tag = ANY_ZERO if u.arg in (Ops.MAX, Ops.MIN) else None
        scalar = value.dtype.scalar
        if value.dtype.count != padded(value.dtype.count):
            return self._lane_tree(w, value, u.arg, tag)
        nan, search = None, tag and scalar.is_float and may_be_nan(value)
        while (count := value.dtype.count) > 1:
            if search and not nan and self.value_parts(w, value) == 1:
                # one test for all lanes, and then they are numbers
                nan = self.any_nan(w, w.atom(value), value.dtype)
                tag = NUMBERS if nan else tag
            if not scalar.is_bool and count * scalar.itemsize <= _SMALLEST:
                text = self._within(w, value, u.arg, tag)
                break
            low, high = self._halves(w, value)
            value = self._combine(w, UOp(u.arg, scalar.vec(count // 2), (low, high), None, tag))
        else:
            text = w.ref(value)
        return f"({nan}?{self.literal(scalar, math.nan)}:{text})" if nan else text

    def any_nan(self, w: Writer, text: str, dtype: DType) -> str | None:
        """A test whether a lane of a vector in one register is nan; None where none is quick."""
        return None

    def _within(self, w: Writer, value: UOp, op: Ops, tag: str | None) -> str:
        """The lanes of one small register: compilers do badly with types that are smaller still,
        so lanes come down within it, and those beyond hold whatever."""
        dtype, count = value.dtype, value.dtype.count
        kind = self.vector_type(w, dtype)
        half = count // 2
        while half:
            order = ",".join(str((i + half) % count) for i in range(count))
            name = w.name("h")
            text = w.atom(value)
            w.line(f"{kind} {name}=__builtin_shufflevector({text},{text},{order});")
            down = stand_in(name, dtype)
            w.bind(down, name)
            value = self._combine(w, UOp(op, dtype, (value, down), None, tag))
            half //= 2
        return lane_of(w.atom(value), count, 0)

    def _combine(self, w: Writer, u: UOp) -> UOp:
        self.prepare(w, u)
        w.define(u, False)
        return u

    def _lane_tree(self, w: Writer, value: UOp, op: Ops, tag: str | None) -> str:
        """The same, by scalars."""
        scalar, count = value.dtype.scalar, value.dtype.count
        lanes = [UOp(Ops.EXTRACT, scalar, (value,), k) for k in range(count)]
        while len(lanes) > 1:
            half = len(lanes) // 2
            pairs = zip(lanes[:half], lanes[half : 2 * half], strict=True)
            combined = [UOp(op, scalar, pair, None, tag) for pair in pairs]
            lanes = combined + lanes[2 * half :]
        return w.graph(lanes[0])

    def _halves(self, w: Writer, value: UOp) -> tuple[UOp, UOp]:
        """Both halves of a vector, bound under stand-in nodes."""
        scalar, half = value.dtype.scalar, value.dtype.count // 2
        bits = self.mask_bits(w, value) if scalar.is_bool else scalar.bits
        text, lanes = w.atom(value), self.part_lanes(bits, value.dtype.count)
        made = []
        for first in (0, half):
            fresh = w.name("h")
            some = stand_in(fresh, scalar.vec(half))
            if scalar.is_bool:
                w.masks[some] = bits
            if half == 1:
                lane = lane_of(text, lanes, first)
                bound = f"({lane}!=0)" if scalar.is_bool else lane
            else:
                bound = self._lanes_from(w, some, text, lanes, first, fresh)
            w.bind(some, bound)
            made.append(some)
        return made[0], made[1]

    def _lanes_from(self, w: Writer, u: UOp, text: str, lanes: int, first: int, fresh: str) -> str:
        """Lanes first .. first + count (a power of two) of a vector in parts of `lanes` lanes."""
        kind, parts = self.value_type(w, u), self.value_parts(w, u)
        own = u.dtype.count // parts
        names = []
        for p in range(parts):
            start = first + p * own
            source = text.replace("@", str(start // lanes))
            name = fresh if parts == 1 else f"{fresh}_{p}"
            names.append(name)
            if own == lanes and start % lanes == 0:
                w.line(f"{kind} {name}={source};")
                continue
            order = ",".join(str((start + i) % lanes) for i in range(own))
            w.line(f"{kind} {name}=__builtin_shufflevector({source},{source},{order});")
        return names[0] if parts == 1 else f"{fresh}_@"


def _is_zero(u: UOp) -> bool:
    value = u.const_value
    return value is not None and value == 0 and not str(value).startswith("-")


def _moved(u: UOp) -> int:
    """By how many lanes a STACK has those of one vector moved towards the first, with something
    else in the lanes that become free, and only there; 0: it has not."""
    count = u.dtype.count
    by = {s.arg - k for k, s in enumerate(u.src) if s.op is Ops.EXTRACT}
    if len(by) != 1:
        return 0
    (step,) = by
    free = {k for k in range(count) if not 0 <= k + step < count}
    return step if free == {k for k, s in enumerate(u.src) if s.op is not Ops.EXTRACT} else 0
