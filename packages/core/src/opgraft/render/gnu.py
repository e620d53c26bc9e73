"""Vectors in GNU C, as gcc and clang have them: one type, all operators, any power of two.

- Memory is read and written through a type that is aligned as one element and may alias: no
  address needs to be a multiple of the vector's size.
- A vector of bool is a mask: all bits of a lane set, or none. The width of its lanes follows
  what it was compared from, so that a select needs no conversion; memory holds bytes 0 and 1.
- A lane count that is no power of two lives in the next one; the lanes beyond the end repeat
  values of lanes within, so they can't trap, and never reach memory.
- HREDUCE folds pairwise halves: lane i with lane i + n/2, and again, until one is left (with an
  odd number of lanes the last one joins lane 0 first).
"""

from __future__ import annotations

from typing import ClassVar

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.expansions import PROVEN, SIGNED, expand
from opgraft.ir.ops import GroupOp, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.render.cstyle import OPERATORS, CStyleRenderer, at_most
from opgraft.render.writer import Writer, vector_name

DEFAULT_MASK = 32


def padded(count: int) -> int:
    """The lanes of the vector type that holds `count` lanes."""
    return 1 << (count - 1).bit_length()


class GnuVectors(CStyleRenderer):
    """The vector half of a renderer for gcc and clang."""

    vector_literal: ClassVar[str] = "({type}){{{lanes}}}"

    # ---- types

    def vector_type(self, w: Writer, dtype: DType) -> str:
        if dtype.is_bool:
            raise LoweringError("a mask has no type without its width")
        return self._type(w, dtype.scalar, dtype.count)

    def _type(self, w: Writer, scalar: DType, count: int) -> str:
        element = self.scalar_type(scalar)
        if scalar.is_float and scalar.bits == 16:
            scalar = dtypes.uint16  # held as bits
        lanes = padded(count)
        name = vector_name(scalar.vec(lanes))
        size = lanes * scalar.itemsize
        return w.typedef(name, f"typedef {element} {name} __attribute__((vector_size({size})));")

    def _unaligned(self, w: Writer, scalar: DType, count: int) -> str:
        if scalar.is_bool:
            scalar = dtypes.uint8
        name = self._type(w, scalar, count) + "u"
        size = padded(count) * scalar.itemsize
        return w.typedef(
            name,
            f"typedef {self.scalar_type(scalar)} {name} __attribute__"
            f"((vector_size({size}),aligned({scalar.itemsize}),may_alias));",
        )

    def _mask_type(self, w: Writer, bits: int, count: int) -> str:
        return self._type(w, SIGNED[bits], count)

    def value_type(self, w: Writer, u: UOp) -> str:
        if u.dtype.count == 1:
            return self.scalar_type(u.dtype)
        if u.dtype.is_bool:
            return self._mask_type(w, self.mask_bits(w, u), u.dtype.count)
        return self.vector_type(w, u.dtype)

    # ---- masks

    def plan(self, w: Writer, instructions: tuple[UOp, ...]) -> None:
        """Fixes the lane width of every vector of bool, registers included."""
        for _ in range(2):  # a register's width is known once its stores have been seen
            for u in instructions:
                if u.dtype.is_bool and u.dtype.count > 1 and u.op is not Ops.LOCAL:
                    w.masks[u] = self._natural_bits(w, u)
                elif u.op is Ops.STORE and u.src[0].op is Ops.LOCAL:
                    buffer, value = u.src[0], u.src[2]
                    if value.dtype.is_bool and value.dtype.count > 1:
                        bits = self._natural_bits(w, value)
                        w.masks[buffer] = max(w.masks.get(buffer, 0), bits)

    def prepare(self, w: Writer, u: UOp) -> None:
        if u.dtype.is_bool and u.dtype.count > 1:
            w.masks[u] = self._natural_bits(w, u)

    def _natural_bits(self, w: Writer, u: UOp) -> int:
        """The width that costs least; 0 where any will do."""
        op = u.op
        if op in GroupOp.COMPARISON and not u.src[0].dtype.is_bool:
            return u.src[0].dtype.bits
        if op is Ops.CAST:
            return u.src[0].dtype.bits
        if op is Ops.LOAD:
            buffer = u.src[0]
            return w.masks.get(buffer, 0) if buffer.dtype.count > 1 else 8
        if op is Ops.BROADCAST or op is Ops.STACK:
            return 0
        return max((w.masks.get(s, 0) for s in u.src if s.dtype.count > 1), default=0)

    def mask_bits(self, w: Writer, u: UOp) -> int:
        """The lane width of a vector of bool."""
        return w.masks.get(u, 0) or DEFAULT_MASK

    def mask(self, w: Writer, u: UOp, bits: int) -> str:
        """A vector of bool as a mask with lanes of this width."""
        kind = self._mask_type(w, bits, u.dtype.count)
        if u.is_const:
            return f"({-1 if u.const_value else 0}-({kind}){{}})"
        if u.op is Ops.BROADCAST:
            return f"(({self.scalar_type(SIGNED[bits])})-{w.atom(u.src[0])}-({kind}){{}})"
        text = w.ref(u)
        if self.mask_bits(w, u) == bits:
            return text
        found = w.bound.get((u, bits))
        if found is None:
            found = w.declare(kind, f"__builtin_convertvector({text},{kind})")
            w.bind((u, bits), found)
        return found

    # ---- leaves

    def vector_leaf(self, w: Writer, u: UOp) -> str:
        if u.op is Ops.IOTA:
            lanes = [u.dtype.scalar.const(i) for i in range(u.dtype.count)]
            lanes += [u.dtype.scalar.const(0)] * (padded(u.dtype.count) - u.dtype.count)
            return self._literal(w, u.dtype, [self.literal(u.dtype.scalar, v) for v in lanes])
        if u.dtype.is_bool:
            return self.mask(w, u, self.mask_bits(w, u))
        return self._broadcast(w, u.dtype, self.literal(u.dtype.scalar, u.const_value))

    def _literal(self, w: Writer, dtype: DType, lanes: list[str]) -> str:
        return self.vector_literal.format(type=self.vector_type(w, dtype), lanes=",".join(lanes))

    def _broadcast(self, w: Writer, dtype: DType, text: str) -> str:
        """A scalar in every lane. Minus zero keeps every value as it is, -0.0 too."""
        scalar = dtype.scalar
        if scalar.bits < 32:
            text = f"({self.scalar_type(scalar)}){text}"
        return f"({text}-({self.vector_type(w, dtype)}){{}})"

    # ---- values

    def vector_value(self, w: Writer, u: UOp) -> str:
        op, dtype = u.op, u.dtype
        if op is Ops.EXTRACT:
            text = f"{w.atom(u.src[0])}[{u.arg}]"
            return f"({text}!=0)" if dtype.is_bool else text
        if op is Ops.HREDUCE:
            return self._horizontal(w, u)
        if op is Ops.BROADCAST:
            if dtype.is_bool:
                return self.mask(w, u, self.mask_bits(w, u))
            return self._broadcast(w, dtype, w.ref(u.src[0]))
        if op is Ops.STACK:
            lanes = [w.ref(s) for s in u.src]
            if dtype.is_bool:
                lanes = [f"-{lane}" for lane in lanes]
            lanes += lanes[:1] * (padded(dtype.count) - dtype.count)
            return self.vector_literal.format(type=self.value_type(w, u), lanes=",".join(lanes))
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
            return self._compare(w, u, *u.src, OPERATORS[op])
        if dtype.is_bool:
            return self._mask_operation(w, u)
        if (op, dtype.scalar) in self.functions:
            return self._by_function(w, u)
        if op is Ops.MULACC and not dtype.is_float:
            a, b, c = (w.ref(s) for s in u.src)
            return f"({a}*{b}+{c})"
        a = w.ref(u.src[0])
        if op is Ops.MUL and u.src[1].is_const and u.src[1].const_value == -1:
            return f"(-{a})"
        if op is Ops.MAX or op is Ops.MIN:
            a, b = w.atom(u.src[0]), w.atom(u.src[1])
            return self._pick(w, dtype, f"{a}{'>' if op is Ops.MAX else '<'}{b}", a, b)
        if op not in OPERATORS:
            raise LoweringError(f"{type(self).__name__} cannot render {op} of {dtype}")
        return f"({a}{OPERATORS[op]}{w.ref(u.src[1])})"

    def _pick(self, w: Writer, dtype: DType, condition: str, yes: str, no: str) -> str:
        """A select by a comparison of lanes as wide as the result's."""
        kind = self._mask_type(w, dtype.bits, dtype.count)
        mask = w.declare(kind, f"({kind})({condition})")
        return self._blend(w, dtype, mask, yes, no)

    def _blend(self, w: Writer, dtype: DType, mask: str, yes: str, no: str) -> str:
        kind, result = self._mask_type(w, dtype.bits, dtype.count), self.vector_type(w, dtype)
        return f"(({result})(({mask}&({kind}){yes})|(~{mask}&({kind}){no})))"

    def _select(self, w: Writer, u: UOp) -> str:
        condition, yes, no = u.src
        if condition.op is Ops.BROADCAST and not u.dtype.is_bool:
            # one scalar decides for all lanes
            return f"({w.ref(condition.src[0])}?{w.ref(yes)}:{w.ref(no)})"
        if u.dtype.is_bool:
            bits = self.mask_bits(w, u)
            mask = self._atom_mask(w, condition, bits)
            return f"(({mask}&{self.mask(w, yes, bits)})|(~{mask}&{self.mask(w, no, bits)}))"
        bits = u.dtype.bits
        mask = self._atom_mask(w, condition, bits)
        kind, result = self._mask_type(w, bits, u.dtype.count), self.vector_type(w, u.dtype)
        if _is_zero(no):
            return f"(({result})({mask}&({kind}){w.ref(yes)}))"
        if _is_zero(yes):
            return f"(({result})(~{mask}&({kind}){w.ref(no)}))"
        return self._blend(w, u.dtype, mask, w.ref(yes), w.ref(no))

    def _atom_mask(self, w: Writer, u: UOp, bits: int) -> str:
        text = self.mask(w, u, bits)
        if text.isidentifier():
            return text
        return w.bind((u, bits), w.declare(self._mask_type(w, bits, u.dtype.count), text))

    def _compare(self, w: Writer, u: UOp, left: UOp, right: UOp, symbol: str) -> str:
        bits = self.mask_bits(w, u)
        if left.dtype.is_bool:
            a, b = self.mask(w, left, bits), self.mask(w, right, bits)
            if u.op is Ops.CMPLT:
                return f"(~{a}&{b})"
            return f"({a}^{b})" if u.op is Ops.CMPNE else f"(~({a}^{b}))"
        kind = self._mask_type(w, left.dtype.bits, left.dtype.count)
        text = f"(({kind})({w.ref(left)}{symbol}{w.ref(right)}))"
        if bits == left.dtype.bits:
            return text
        return f"__builtin_convertvector({text},{self._mask_type(w, bits, left.dtype.count)})"

    def _mask_operation(self, w: Writer, u: UOp) -> str:
        pair = at_most(u)
        if pair is not None and not pair[0].dtype.is_bool:
            return self._compare(w, u, *pair, "<=")
        bits = self.mask_bits(w, u)
        a = self.mask(w, u.src[0], bits)
        if u.op is Ops.XOR and u.src[1].is_const and u.src[1].const_value:
            return f"(~{a})"
        symbol = {
            Ops.ADD: "|",
            Ops.OR: "|",
            Ops.MAX: "|",
            Ops.MUL: "&",
            Ops.AND: "&",
            Ops.MIN: "&",
            Ops.XOR: "^",
        }.get(u.op)
        if symbol is None:
            raise LoweringError(f"{type(self).__name__} cannot render {u.op} of {u.dtype}")
        return f"({a}{symbol}{self.mask(w, u.src[1], bits)})"

    def _vector_cast(self, w: Writer, u: UOp) -> str:
        source, target = u.src[0].dtype, u.dtype
        if source.is_bool:
            # the bits of one in the lanes where the mask is set
            kind = self._mask_type(w, target.bits, target.count)
            mask = self.mask(w, u.src[0], target.bits)
            one = self._broadcast(w, target, self.literal(target.scalar, 1))
            return f"(({self.vector_type(w, target)})({mask}&({kind}){one}))"
        value = w.ref(u.src[0])
        if target.is_bool:
            bits = self.mask_bits(w, u)
            kind = self._mask_type(w, source.bits, source.count)
            text = f"(({kind})({value}!=({self.vector_type(w, source)}){{}}))"
            if bits == source.bits:
                return text
            return f"__builtin_convertvector({text},{self._mask_type(w, bits, source.count)})"
        if source.is_float and target.is_int and u.tag != PROVEN:
            expansion = expand(u)
            assert expansion is not None
            return self.expanded(w, u, expansion)
        kind = self.vector_type(w, target)
        if source.is_int and target.is_int and source.bits == target.bits:
            return f"(({kind}){value})"
        return f"__builtin_convertvector({value},{kind})"

    def _by_function(self, w: Writer, u: UOp) -> str:
        """An operation that only a call gives, lane by lane: compilers make one instruction."""
        kind = self.vector_type(w, u.dtype)
        call = self.functions[u.op, u.dtype.scalar]
        name = f"{u.op.name.lower()}_{kind}"
        names = "abc"[: len(u.src)]
        takes = ",".join(f"{kind} {n}" for n in names)
        gives = ",".join(f"{n}[l]" for n in names)
        lanes = padded(u.dtype.count)
        w.helper(
            name,
            f"static inline __attribute__((always_inline)) {kind} {name}({takes})"
            f"{{{kind} r;for(int l=0;l<{lanes};l++)r[l]={call}({gives});return r;}}",
        )
        return f"{name}({','.join(w.ref(s) for s in u.src)})"

    def _horizontal(self, w: Writer, u: UOp) -> str:
        """The lanes combined: pairwise halves."""
        source = u.src[0]
        count, scalar = source.dtype.count, source.dtype.scalar
        value = source
        while count > 1:
            if count % 2:
                raise LoweringError(f"{w.program.name}: HREDUCE of {count} lanes")
            half = count // 2
            low, high = self._half(w, value, 0, half), self._half(w, value, half, half)
            if half == 1:
                combined = UOp(u.arg, scalar, (low, high), None, u.tag)
            else:
                combined = UOp(u.arg, scalar.vec(half), (low, high), None, u.tag)
            self.prepare(w, combined)
            w.define(combined, False)
            value, count = combined, half
        return w.ref(value)

    def _half(self, w: Writer, value: UOp, first: int, count: int) -> UOp:
        """Some lanes of a vector, bound under a stand-in node."""
        text = w.atom(value)
        scalar = value.dtype.scalar
        fresh = w.name("h")
        stand_in = UOp(Ops.VAR, scalar.vec(count), (), (fresh, scalar.min, scalar.max))
        if count == 1:
            w.bind(stand_in, f"({text}[{first}]!=0)" if scalar.is_bool else f"{text}[{first}]")
            return stand_in
        if scalar.is_bool:
            w.masks[stand_in] = self.mask_bits(w, value)
        lanes = ",".join(str(first + i) for i in range(count))
        name = w.declare(
            self.value_type(w, stand_in), f"__builtin_shufflevector({text},{text},{lanes})", "h"
        )
        w.bind(stand_in, name)
        return stand_in

    # ---- memory

    def stored_value(self, w: Writer, register: UOp, value: UOp) -> str:
        if value.dtype.is_bool and value.dtype.count > 1:
            return self.mask(w, value, self.mask_bits(w, register))
        return w.ref(value)

    def vector_load(self, w: Writer, u: UOp) -> str:
        buffer, index = u.src[0], u.src[1]
        count, scalar = u.dtype.count, u.dtype.scalar
        base, where = w.atom(buffer), w.atom(index)
        if index.dtype.count > 1 or (len(u.src) == 4 and u.src[2].dtype.count > 1):
            return self._lanes_load(w, u, base, where)
        if count != padded(count):
            return self._lanes_load(w, u, base, where)
        text = f"*(const {self._unaligned(w, scalar, count)}*)({base}+{where})"
        text = self._loaded(w, u, text)
        if len(u.src) == 2:
            return text
        gate, other = w.ref(u.src[2]), self._alternative(w, u)
        if not u.dtype.is_bool:
            # both sides of ?: must be of one type, and the unaligned one is another
            text = f"({self._type(w, scalar, count)}){text}"
        return f"({gate}?{text}:{other})"

    def _loaded(self, w: Writer, u: UOp, text: str) -> str:
        """A vector of bytes 0 and 1 as a mask; other dtypes as they are."""
        if not u.dtype.is_bool:
            return text
        kind = self._mask_type(w, 8, u.dtype.count)
        return f"(({kind})({text}!=({self._type(w, dtypes.uint8, u.dtype.count)}){{}}))"

    def _alternative(self, w: Writer, u: UOp) -> str:
        return self.mask(w, u.src[3], 8) if u.dtype.is_bool else w.ref(u.src[3])

    def _lanes_load(self, w: Writer, u: UOp, base: str, where: str) -> str:
        """Lane by lane: a gather, a gate per lane, or an odd number of lanes."""
        count = u.dtype.count
        index = u.src[1]
        kind = self._mask_type(w, 8, count) if u.dtype.is_bool else self.vector_type(w, u.dtype)
        lane = f"{base}[{where}[l]]" if index.dtype.count > 1 else f"{base}[{where}+l]"
        if u.dtype.is_bool:
            lane = f"-({lane}!=0)"
        fresh = w.name("v")
        loop = f"for(int l=0;l<{count};l++)"
        if len(u.src) == 2:
            w.line(f"{kind} {fresh};{loop}{fresh}[l]={lane};")
        else:
            gate = w.atom(u.src[2])
            test = f"{gate}[l]" if u.src[2].dtype.count > 1 else gate
            w.line(f"{kind} {fresh}={self._alternative(w, u)};{loop}if({test}){fresh}[l]={lane};")
        if padded(count) != count:
            w.line(f"for(int l={count};l<{padded(count)};l++){fresh}[l]={fresh}[0];")
        return fresh

    def vector_store(self, w: Writer, u: UOp) -> None:
        buffer, index, value = u.src[:3]
        count, scalar = value.dtype.count, value.dtype.scalar
        base, where = w.atom(buffer), w.atom(index)
        if scalar.is_bool:
            kind = self._type(w, dtypes.uint8, count)
            text = f"(({kind})({self.mask(w, value, 8)}&1))"
        else:
            text = w.ref(value)
        gate = u.src[3] if len(u.src) == 4 else None
        lanes = index.dtype.count > 1 or (gate is not None and gate.dtype.count > 1)
        if not lanes and count == padded(count):
            line = f"*({self._unaligned(w, scalar, count)}*)({base}+{where})={text};"
            w.line(line if gate is None else f"if({w.ref(gate)}){line}")
            return
        if not text.isidentifier():
            kind = (
                self._type(w, dtypes.uint8, count)
                if scalar.is_bool
                else self.vector_type(w, value.dtype)
            )
            text = w.declare(kind, text)
        target = f"{base}[{where}[l]]" if index.dtype.count > 1 else f"{base}[{where}+l]"
        test = ""
        if gate is not None:
            name = w.atom(gate)
            test = f"if({name}[l])" if gate.dtype.count > 1 else f"if({name})"
        w.line(f"for(int l=0;l<{count};l++){test}{target}={text}[l];")

    def declare_local(self, w: Writer, u: UOp, name: str, size: int) -> None:
        space = self.spaces[u.arg[2]]
        aligned = " __attribute__((aligned(64)))" if u.arg[2] is Space.PRIVATE else ""
        w.line(f"{space}{self.memory_type(w, u.dtype)} {name}[{size}]{aligned};")
        w.bind(u, name)


def _is_zero(u: UOp) -> bool:
    value = u.const_value
    return value is not None and value == 0 and not str(value).startswith("-")
