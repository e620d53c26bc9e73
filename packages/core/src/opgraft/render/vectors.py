"""Vectors of kernel languages: built-in types with operators, of 2, 4, 8 ... lanes.

More lanes than the widest type has are several variables: a text stands for all parts of a value,
the number of the part written as `@` where they differ. Another count of lanes lives in the next
greater type, where the lanes beyond the end hold copies. A vector of bool is a mask: a vector of
int8, 0 or -1. Compilers see through the conversions from and to what comparisons give and
selections take.
"""

from __future__ import annotations

from typing import ClassVar

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.elementary import expansion, light_sine
from opgraft.ir.expansions import SIGNED, UNSIGNED
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.render.cstyle import OPERATORS, CStyleRenderer
from opgraft.render.writer import Writer, stand_in

_MASKS = {
    Ops.ADD: "({a}|{b})",
    Ops.OR: "({a}|{b})",
    Ops.MAX: "({a}|{b})",
    Ops.MUL: "({a}&{b})",
    Ops.AND: "({a}&{b})",
    Ops.MIN: "({a}&{b})",
    Ops.XOR: "({a}^{b})",
    Ops.CMPNE: "({a}^{b})",
    Ops.CMPEQ: "(~({a}^{b}))",
    Ops.CMPLT: "(~{a}&{b})",
}
_ONES = {
    dtypes.float16: 0x3C00,
    dtypes.bfloat16: 0x3F80,
    dtypes.float32: 0x3F800000,
    dtypes.float64: 0x3FF0000000000000,
}
"""The bits of 1."""
_OVERFLOWS = frozenset({Ops.ADD, Ops.MUL, Ops.SHL, Ops.MULACC})


def padded(count: int) -> int:
    """The lanes that hold `count` lanes."""
    return 1 << (count - 1).bit_length()


def part(text: str, number: int) -> str:
    """What a text means for one part."""
    return text.replace("@", str(number))


class VectorRenderer(CStyleRenderer):
    """The vector half of a renderer; the attributes are the dialect's."""

    vector_literal: ClassVar[str] = "(({type})({lanes}))"
    widest: ClassVar[int] = 16
    """The most lanes of a type."""
    lane_form: ClassVar[str] = "{name}.s{lane:x}"
    convert_form: ClassVar[str] = "convert_{type}({value})"
    """A conversion by the language's rules: integers wrap, floats round to nearest even."""
    reinterpret_form: ClassVar[str] = "as_{type}({value})"
    select_form: ClassVar[str] = "select({no},{yes},{mask})"
    """The mask has the width of the values."""
    half_forms: ClassVar[tuple[str, str]] = ("{name}.lo", "{name}.hi")
    """The lower and the upper half of the lanes."""
    any_form: ClassVar[str] = "any({mask})"
    """Whether a lane of a mask of int8 is set."""
    load_form: ClassVar[str] = "vload{lanes}(0,{address})"
    """Consecutive elements; the address is a multiple of the element's size and no more."""
    store_form: ClassVar[str] = "vstore{lanes}({value},0,{address})"

    # ---- types, and variables in parts

    def width(self, count: int) -> int:
        """The lanes of one part of a vector of `count` lanes."""
        return min(padded(count), self.widest)

    def parts(self, count: int) -> int:
        """How many variables hold such a vector."""
        return padded(count) // self.width(count)

    def kind(self, scalar: DType, count: int) -> str:
        """The type of one part; a bool is a mask."""
        name = self.scalar_type(dtypes.int8 if scalar.is_bool else scalar)
        return f"{name}{self.width(count)}" if count > 1 else name

    def lane(self, name: str, count: int, number: int) -> str:
        """One lane of a variable."""
        place, at = divmod(number, self.width(count))
        return self.lane_form.format(name=part(name, place), lane=at)

    def convert(self, scalar: DType, count: int, text: str) -> str:
        """A vector by the language's conversion."""
        return self.convert_form.format(type=self.kind(scalar, count), value=text)

    def reinterpret(self, scalar: DType, count: int, text: str) -> str:
        """The bits of a vector as another type."""
        return self.reinterpret_form.format(type=self.kind(scalar, count), value=text)

    def words(self, w: Writer, u: UOp, scalar: DType) -> str:
        """The bits of a value as a vector of other scalars, as many as they fill."""
        count = u.dtype.bits * u.dtype.count // scalar.bits
        before, after = self.parts(u.dtype.count), self.parts(count)
        if before == after:
            return self.reinterpret(scalar, count, w.ref(u))
        if after > 1:
            raise LoweringError(f"{type(self).__name__} has no words of {scalar} in {u.dtype}")
        name = w.atom(u)
        parts = [self.reinterpret(scalar, count // before, part(name, p)) for p in range(before)]
        return self.vector_literal.format(type=self.kind(scalar, count), lanes=",".join(parts))

    def vector_type(self, w: Writer, dtype: DType) -> str:
        return self.kind(dtype.scalar, dtype.count)

    def declare_value(self, w: Writer, u: UOp, text: str) -> str:
        return self._variable(w, self.value_type(w, u), text, u.dtype.count)

    def _variable(self, w: Writer, kind: str, text: str, count: int) -> str:
        if self.parts(count) == 1:
            return w.declare(kind, text)
        name = w.name("v")
        for p in range(self.parts(count)):
            w.line(f"{kind} {name}_{p}={part(text, p)};")
        return f"{name}_@"

    def declare_register(self, w: Writer, u: UOp, name: str) -> str:
        if self.parts(u.dtype.count) == 1:
            return super().declare_register(w, u, name)
        names = [f"{name}_{k}" for k in range(u.arg[1])] if u.arg[1] > 1 else [name]
        parts = range(self.parts(u.dtype.count))
        w.line(f"{self.value_type(w, u)} {','.join(f'{n}_{p}' for n in names for p in parts)};")
        return name

    def register_name(self, w: Writer, u: UOp, name: str) -> str:
        return f"{name}_@" if self.parts(u.dtype.count) > 1 else name

    def store_register(self, w: Writer, u: UOp, name: str, value: UOp) -> None:
        text = w.ref(value)
        for p in range(self.parts(u.dtype.count)):
            w.line(f"{part(name, p)}={part(text, p)};")

    def declare_local(self, w: Writer, u: UOp, name: str, size: int) -> None:
        super().declare_local(w, u, name, size * self.parts(u.dtype.count))

    def element(self, w: Writer, buffer: UOp, index: UOp) -> str:
        parts = self.parts(buffer.dtype.count)
        if parts == 1:
            return super().element(w, buffer, index)
        return f"{w.ref(buffer)}[{w.ref(index)}*{parts}+@]"

    def write(self, w: Writer, buffer: UOp, text: str) -> None:
        for p in range(self.parts(buffer.dtype.count)):
            w.line(part(text, p))

    def from_memory(self, dtype: DType, text: str) -> str:
        return text if dtype.count > 1 else super().from_memory(dtype, text)

    # ---- values

    def value(self, w: Writer, u: UOp) -> str:
        if u.op is not Ops.SIN:
            return super().value(w, u)
        if u.dtype.bits < 32:
            single = dtypes.float32.vec(u.dtype.count)
            return w.graph(UOp(Ops.SIN, single, (u.src[0].cast(single),)).cast(u.dtype))
        return f"{self._sine(w, u.dtype)}({w.ref(u.src[0])})"

    def _sine(self, w: Writer, dtype: DType) -> str:
        """The name of a function that leaves the rare large arguments to another one, in a loop:
        compilers may write a function out wherever it is called."""
        scalar, lanes = dtype.scalar, 1 if dtype.count == 1 else self.width(dtype.count)
        element, inner = self.scalar_type(scalar), Writer(self, w.program)
        inner.typedefs, inner.helpers = w.typedefs, w.helpers
        far = f"sin_far_{element}"
        if far not in w.helpers:
            x = stand_in("x", scalar)
            inner.bind(x, "x")
            result = inner.graph(expansion(Ops.SIN, x))
            head, tail = f"{element} {far}({element} x){{", f" return {result};}}"
            w.helper(far, "\n".join([head, *inner.lines, tail]))
            inner = Writer(self, w.program)
            inner.typedefs, inner.helpers = w.typedefs, w.helpers
        kind = element if lanes == 1 else self.kind(scalar, lanes)
        name = f"sin_{kind}"
        if name in w.helpers:
            return name
        x = stand_in("x", scalar.vec(lanes))
        inner.bind(x, "x")
        value, large = light_sine(x)
        near, mask = inner.graph(value), inner.graph(large)
        lines = [f"{kind} {name}({kind} x){{", *inner.lines]
        if lanes == 1:
            lines.append(f" return {mask}?{far}(x):{near};}}")
        else:
            flags = self.scalar_type(dtypes.int8)
            parts = [("m", mask), ("a", "x"), ("b", near)]
            stores = [self.store_form.format(lanes=lanes, value=v, address=n) for n, v in parts]
            lines += [
                f" if(!{self.any_form.format(mask=mask)})return {near};",
                f" {flags} m[{lanes}];{element} a[{lanes}],b[{lanes}];{';'.join(stores)};",
                f" for(int l=0;l<{lanes};l++)if(m[l])b[l]={far}(a[l]);",
                f" return {self.load_form.format(lanes=lanes, address='b')};}}",
            ]
        return w.helper(name, "\n".join(lines))

    def vector_leaf(self, w: Writer, u: UOp) -> str:
        scalar = u.dtype.scalar
        if u.op is Ops.IOTA:
            lanes = [self.literal(scalar, k) for k in range(padded(u.dtype.count))]
            return self._stack(w, u.dtype, lanes)
        return self._broadcast(u.dtype, self.literal(scalar, u.const_value))

    def _broadcast(self, dtype: DType, text: str) -> str:
        sign = "-" if dtype.is_bool else ""
        return f"(({self.kind(dtype.scalar, dtype.count)})({sign}{text}))"

    def _stack(self, w: Writer, dtype: DType, lanes: list[str]) -> str:
        kind, size = self.vector_type(w, dtype), self.width(dtype.count)
        lanes = lanes + lanes[:1] * (padded(len(lanes)) - len(lanes))
        groups = [lanes[p : p + size] for p in range(0, len(lanes), size)]
        texts = [self.vector_literal.format(type=kind, lanes=",".join(g)) for g in groups]
        if len(texts) == 1:
            return texts[0]
        name = w.name("v")
        for p, text in enumerate(texts):
            w.line(f"{kind} {name}_{p}={text};")
        return f"{name}_@"

    def vector_value(self, w: Writer, u: UOp) -> str:
        op, dtype = u.op, u.dtype
        if op is Ops.EXTRACT:
            text = self.lane(w.atom(u.src[0]), u.src[0].dtype.count, u.arg)
            return f"({text}!=0)" if dtype.is_bool else text
        if op is Ops.HREDUCE:
            return self._horizontal(w, u)
        if op is Ops.BROADCAST:
            return self._broadcast(dtype, w.ref(u.src[0]))
        if op is Ops.STACK:
            sign = "-" if dtype.is_bool else ""
            return self._stack(w, dtype, [sign + w.ref(s) for s in u.src])
        if op is Ops.BITCAST:
            return self.words(w, u.src[0], dtype.scalar)
        if (plainer := self.expansion(w, u)) is not None:
            return plainer
        if op is Ops.CAST:
            return self._convert(w, u)
        if op is Ops.WHERE:
            return self._select(w, u)
        if u.src[0].dtype.is_bool:
            if op not in _MASKS:
                raise LoweringError(f"{type(self).__name__} cannot render {op} of {dtype}")
            return _MASKS[op].format(a=w.ref(u.src[0]), b=w.ref(u.src[1]))
        texts = [w.ref(s) for s in u.src]
        if op in GroupOp.COMPARISON:
            return self._mask(dtype, f"{texts[0]}{OPERATORS[op]}{texts[1]}")
        if (op, dtype.scalar) in self.functions:
            return f"{self.functions[op, dtype.scalar]}({','.join(texts)})"
        if op in _OVERFLOWS and dtype.is_int and dtype.is_signed:
            # signed overflow is left open, unsigned wraps
            unsigned = UNSIGNED[dtype.bits]
            texts = [self.reinterpret(unsigned, dtype.count, text) for text in texts]
            return self.reinterpret(dtype.scalar, dtype.count, self._operation(u, texts))
        return f"({self._operation(u, texts)})"

    def _operation(self, u: UOp, texts: list[str]) -> str:
        op = u.op
        if op is Ops.MULACC:
            return "{}*{}+{}".format(*texts)
        if op is Ops.MAX or op is Ops.MIN:  # of integers
            return f"{op.name.lower()}({texts[0]},{texts[1]})"
        if op not in OPERATORS:
            raise LoweringError(f"{type(self).__name__} cannot render {op} of {u.dtype}")
        return f"{texts[0]}{OPERATORS[op]}{texts[1]}"

    def _mask(self, dtype: DType, comparison: str) -> str:
        return self.convert(dtypes.int8, dtype.count, comparison)

    def _select(self, w: Writer, u: UOp) -> str:
        condition, yes, no = u.src
        if condition.op is Ops.BROADCAST:
            return f"({w.atom(condition.src[0])}?{w.ref(yes)}:{w.ref(no)})"
        mask, size = w.ref(condition), 8 if u.dtype.is_bool else u.dtype.bits
        if size != 8:
            mask = self.convert(SIGNED[size], u.dtype.count, mask)
        return self.select_form.format(no=w.ref(no), yes=w.ref(yes), mask=mask)

    def _convert(self, w: Writer, u: UOp) -> str:
        source, target, count = u.src[0].dtype, u.dtype, u.dtype.count
        text = w.ref(u.src[0])
        if source.is_bool:
            signed = SIGNED[target.bits]
            # the bits of one in the lanes where the mask is set
            mask = text if target.bits == 8 else self.convert(signed, count, text)
            bits = self.literal(signed, _ONES.get(target.scalar, 1))
            one = self._broadcast(signed.vec(count), bits)
            return self.reinterpret(target.scalar, count, f"{mask}&{one}")
        if target.is_bool:
            return self._mask(target, f"{text}!={self._broadcast(source, '0')}")
        if (half := self.half_cast(w, u)) is not None:
            return half
        return self.convert(target.scalar, count, text)

    # ---- lanes combined

    def _horizontal(self, w: Writer, u: UOp) -> str:
        """Lane i with lane i + n/2, and again, until one is left; of an odd number of lanes the
        last waits for the next round."""
        value = u.src[0]
        name, count, scalar = w.atom(value), value.dtype.count, value.dtype.scalar
        if count != padded(count):
            lanes = [UOp(Ops.EXTRACT, scalar, (value,), k) for k in range(count)]
            while len(lanes) > 1:
                half = len(lanes) // 2
                pairs = zip(lanes[:half], lanes[half : 2 * half], strict=True)
                lanes = [UOp(u.arg, scalar, p) for p in pairs] + lanes[2 * half :]
            return w.graph(lanes[0])
        while count > 1:
            count //= 2
            halves = [self._half(w, scalar, name, count, upper) for upper in (False, True)]
            combined = UOp(u.arg, scalar.vec(count), tuple(halves))
            w.define(combined, False)
            name = w.ref(combined)
        return name

    def _half(self, w: Writer, scalar: DType, name: str, count: int, upper: bool) -> UOp:
        """A node that stands for one half of a variable, which has `count` lanes."""
        fresh = w.name("h")
        node = stand_in(fresh, scalar.vec(count))
        if count >= self.widest:
            kind, parts = self.kind(scalar, count), self.parts(count)
            shift = parts if upper else 0
            names = [fresh if parts == 1 else f"{fresh}_{p}" for p in range(parts)]
            for p, made in enumerate(names):
                w.line(f"{kind} {made}={part(name, p + shift)};")
            text = fresh if parts == 1 else f"{fresh}_@"
        else:
            text = self.half_forms[upper].format(name=name)
        w.bind(node, f"({text}!=0)" if scalar.is_bool and count == 1 else text)
        return node

    # ---- memory

    def vector_load(self, w: Writer, u: UOp) -> str:
        buffer, index, count = u.src[0], u.src[1], u.dtype.count
        gate = u.src[2] if len(u.src) == 4 else None
        if _by_lane(gate, count):
            start = self._broadcast(u.dtype, "0") if gate is None else w.ref(u.src[3])
            name = self._variable(w, self.vector_type(w, u.dtype), start, count)
            sign = "-" if u.dtype.is_bool else ""
            for k, place, test in self._lanes(w, buffer, index, gate, count):
                value = self.from_memory(u.dtype.scalar, place)
                w.line(f"{test}{self.lane(name, count, k)}={sign}{value};")
            for k in range(count, padded(count)):
                w.line(f"{self.lane(name, count, k)}={self.lane(name, count, 0)};")
            return name
        address = self._address(w, buffer, index, count)
        text = self.load_form.format(lanes=self.width(count), address=address)
        if u.dtype.is_bool:
            text = self._mask(u.dtype, f"{text}!={self._broadcast(dtypes.uint8.vec(count), '0')}")
        return text if gate is None else f"({w.atom(gate)}?{text}:{w.ref(u.src[3])})"

    def vector_store(self, w: Writer, u: UOp) -> None:
        buffer, index, value = u.src[:3]
        count, gate = value.dtype.count, u.src[3] if len(u.src) == 4 else None
        if _by_lane(gate, count):
            name = w.atom(value)
            if "@" not in name and not name.isidentifier():
                name = self._variable(w, self.vector_type(w, value.dtype), name, count)
            for k, place, test in self._lanes(w, buffer, index, gate, count):
                text = self.lane(name, count, k)
                w.line(f"{test}{place}={f'({text}!=0)' if value.dtype.is_bool else text};")
            return
        text = w.ref(value)
        if value.dtype.is_bool:
            one = self._broadcast(dtypes.int8.vec(count), "1")
            text = self.reinterpret(dtypes.uint8, count, f"{text}&{one}")
        address = self._address(w, buffer, index, count)
        line = self.store_form.format(lanes=self.width(count), value=text, address=address)
        line = self.gated(w, u, f"{line};")
        for p in range(self.parts(count)):
            w.line(part(line, p))

    def _address(self, w: Writer, buffer: UOp, index: UOp, count: int) -> str:
        step = f"+@*{self.widest}" if self.parts(count) > 1 else ""
        return f"{w.ref(buffer)}+{w.ref(index)}{step}"

    def _lanes(
        self, w: Writer, buffer: UOp, index: UOp, gate: UOp | None, count: int
    ) -> list[tuple[int, str, str]]:
        """For each lane its number, its place in memory, and the test that must hold first."""
        base, first, test = w.atom(buffer), w.atom(index), "" if gate is None else w.atom(gate)
        found = []
        for k in range(count):
            holds = self.lane(test, count, k) if gate is not None and gate.dtype.count > 1 else test
            found.append((k, f"{base}[{first}+{k}]", f"if({holds})" if test else ""))
        return found


def _by_lane(gate: UOp | None, count: int) -> bool:
    """Whether lanes go one by one: a gate for each, or a count without a type of its own."""
    return (gate is not None and gate.dtype.count > 1) or count != padded(count)
