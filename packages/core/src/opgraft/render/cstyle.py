"""The C family: one table-driven renderer that each dialect completes.

`CStyleRenderer` holds what C and the kernel languages made of it have in common: scalar types,
literals, operators, loops, loads and stores with gates, locals. A dialect subclasses it, fills
the tables, writes the kernel's head, and says how its vectors are written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.evaluate import value_to_bits
from opgraft.ir.expansions import PROVEN, UNSIGNED, expand, lanes_of, sum_of_products
from opgraft.ir.half_floats import narrow, widen
from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import GroupOp, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.render.renderer import Renderer
from opgraft.render.writer import Writer

OPERATORS: Final[Mapping[Ops, str]] = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.FDIV: "/",
    Ops.CDIV: "/",
    Ops.CMOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.CMPEQ: "==",
}
# the same ops on bool
_BOOLEAN: Final[Mapping[Ops, str]] = {
    Ops.ADD: "|",
    Ops.MUL: "&",
    Ops.MAX: "|",
    Ops.MIN: "&",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.CMPEQ: "==",
}
_OVERFLOWS: Final = frozenset({Ops.ADD, Ops.MUL, Ops.SHL})


class CStyleRenderer(Renderer):
    """Renders linear programs for a C dialect; see the methods marked "dialect"."""

    types: ClassVar[Mapping[DType, str]] = {
        dtypes.bool: "bool",
        dtypes.int8: "signed char",
        dtypes.uint8: "unsigned char",
        dtypes.int16: "short",
        dtypes.uint16: "unsigned short",
        dtypes.int32: "int",
        dtypes.uint32: "unsigned int",
        dtypes.int64: "long long",
        dtypes.uint64: "unsigned long long",
        dtypes.float16: "half",
        dtypes.bfloat16: "unsigned short",
        dtypes.float32: "float",
        dtypes.float64: "double",
        dtypes.index: "long long",
    }
    """How each scalar is written where values are computed."""
    stored: ClassVar[Mapping[DType, str]] = {dtypes.bool: "unsigned char"}
    """How it is written in memory, where that differs."""
    infinity: ClassVar[Mapping[DType, str]] = {
        dtypes.float32: "INFINITY",
        dtypes.float64: "INFINITY",
    }
    nan: ClassVar[Mapping[DType, str]] = {dtypes.float32: "NAN", dtypes.float64: "((double)NAN)"}
    functions: ClassVar[Mapping[tuple[Ops, DType], str]] = {}
    """Calls for SQRT, TRUNC, MULACC by dtype."""
    bitcast_form: ClassVar[str] = "(union{{{source} a;{target} b;}}){{{value}}}.b"
    vector_literal: ClassVar[str] = "({type}){{{lanes}}}"
    """How a vector is made of its lanes. C: braces; others: ({type})({lanes}); those made of C++:
    {type}({lanes}). A form of one language is something else, silently, in another."""
    signed_wraps: ClassVar[bool] = False
    """Whether signed overflow wraps. If not, it is computed in the unsigned type."""
    spaces: ClassVar[Mapping[Space, str]] = {Space.PRIVATE: "", Space.GROUP: ""}
    """What stands before the declaration of a LOCAL in each space. One of Space.GROUP is declared
    at the head of the kernel, wherever it stands: that is where dialects want it."""

    # ---- a kernel

    def render(self, program: LinearProgram) -> str:
        before, kernel = self.sections(program)
        return "\n".join([*before, kernel])

    def sections(self, program: LinearProgram) -> tuple[list[str], str]:
        """The types and helpers that the kernel needs, in order, and the kernel.

        Kernels with their sections joined (each type and helper once) make one source.
        """
        writer = Writer(self, program)
        self.plan(writer, program.instructions)
        head = self.begin(writer)
        writer.instructions(program.instructions)
        kernel = "\n".join([head, *writer.lines, *self.end(writer), "}\n"])
        return [*writer.typedefs.values(), *writer.helpers.values()], kernel

    def plan(self, w: Writer, instructions: tuple[UOp, ...]) -> None:
        """Dialect: a look at the whole program before it is written."""

    def prepare(self, w: Writer, u: UOp) -> None:
        """Dialect: a look at a node that is computed though it is not in the program."""

    def begin(self, w: Writer) -> str:
        """Dialect: the head of the kernel; binds PARAMs and VARs. The text to put before."""
        raise NotImplementedError

    def end(self, w: Writer) -> list[str]:
        """Dialect: what is left to say at the end of the kernel."""
        return []

    def parallel_bounds(self, w: Writer, u: UOp) -> tuple[str, str]:
        """Dialect: the part of the parallel range that this call runs."""
        raise NotImplementedError

    def barrier(self, w: Writer, u: UOp) -> str:
        """Dialect: the statement that all threads of a group reach together."""
        raise LoweringError(f"{type(self).__name__} has no barriers")

    def special(self, w: Writer, u: UOp) -> str:
        """Dialect: the expression of an index that the launch hands to each thread.

        `u.arg` is (name, size), the name one of "group0" .. "group2", "thread0" .. "thread2" (on a
        target without launches: "begin"). It is written in the place of each use.
        """
        raise LoweringError(f"{type(self).__name__} has no launch indices")

    def atomic(self, w: Writer, u: UOp) -> str:
        """Dialect: the statement that changes an element of memory by `u.arg` and a value.

        Its sources are (buffer, index, value[, gate]); the gate is written by the caller.
        """
        raise LoweringError(f"{type(self).__name__} has no atomics")

    def prefetch(self, w: Writer, u: UOp) -> str:
        """Dialect: the statement that brings an element of memory nearer.

        Its sources are (buffer, index[, gate]); the gate is written by the caller.
        """
        raise LoweringError(f"{type(self).__name__} fetches nothing ahead")

    def matrix(self, w: Writer, u: UOp) -> str:
        """Dialect: the value of a MATRIX, by the intrinsic that its unit's name stands for.

        Its sources are vectors of what the thread holds, (a, b, c); it is as c.
        """
        raise LoweringError(f"{type(self).__name__} has no matrix unit {u.arg.name}")

    def dot(self, w: Writer, u: UOp) -> str:
        """Dialect: the value of a DOT, by the intrinsic that its unit's name stands for; plain
        arithmetic where there is none."""
        for source in u.src:
            w.atom(source)
        return w.graph(sum_of_products(u))

    def gated(self, w: Writer, u: UOp, statement: str) -> str:
        """A statement under the gate of the STORE, ATOMIC or PREFETCH `u`, if it has one."""
        gate = u.src[2:] if u.op is Ops.PREFETCH else u.src[3:]
        return f"if({w.ref(gate[0])}){statement}" if gate else statement

    def declare_local(self, w: Writer, u: UOp, name: str, size: int) -> None:
        """A buffer inside the kernel, in memory."""
        space = self.spaces[u.arg[2]]
        w.line(f"{space}{self.memory_type(w, u.dtype)} {name}[{size}];")
        w.bind(u, name)

    def declare_register(self, w: Writer, u: UOp, name: str) -> str:
        """A register, or one variable for each of its elements; the name to bind."""
        size = u.arg[1]
        names = [name] if size == 1 else [f"{name}_{k}" for k in range(size)]
        w.line(f"{self.value_type(w, u)} {','.join(names)};")
        return name

    def register_name(self, w: Writer, u: UOp, name: str) -> str:
        """How a register is read."""
        return name

    def store_register(self, w: Writer, u: UOp, name: str, value: UOp) -> None:
        """The statement that writes a register."""
        w.line(f"{name}={w.ref(value)};")

    def declare_value(self, w: Writer, u: UOp, text: str) -> str:
        """A variable for a value; how it is read."""
        return w.declare(self.value_type(w, u), text)

    # ---- types and literals

    def scalar_type(self, dtype: DType) -> str:
        """A scalar as values are computed in it."""
        found = self.types.get(dtype)
        if found is None:
            raise LoweringError(f"{type(self).__name__} has no type for {dtype}")
        return found

    def memory_type(self, w: Writer, dtype: DType) -> str:
        """A scalar (or, of a LOCAL, a vector) as memory holds it."""
        if dtype.count > 1:
            return self.vector_type(w, dtype)
        return self.stored.get(dtype) or self.scalar_type(dtype)

    def vector_type(self, w: Writer, dtype: DType) -> str:
        """Dialect: the name of a vector type."""
        raise LoweringError(f"{type(self).__name__} has no vectors: {dtype}")

    def value_type(self, w: Writer, u: UOp) -> str:
        """The type of the variable that holds the value of `u`."""
        return self.vector_type(w, u.dtype) if u.dtype.count > 1 else self.scalar_type(u.dtype)

    def literal(self, dtype: DType, value: Any) -> str:
        """A scalar constant. Floats are written in decimal, exactly enough to be read back."""
        if dtype.is_float:
            return self.float_literal(dtype, float(value))
        if dtype.is_bool:
            return "1" if value else "0"
        number = int(value)
        if dtype.bits < 64 and not dtype.is_index:
            if dtype is dtypes.uint32:
                return f"{number}u"
            return f"({number})" if 0 > number > -(1 << 31) else self._least(number, "")
        if dtype.kind == "uint":
            return f"{number}ull"
        return f"({number}ll)" if 0 > number > -(1 << 63) else self._least(number, "ll")

    @staticmethod
    def _least(number: int, suffix: str) -> str:
        """The least integer has no literal of its own in C: -2147483648 is a minus and a long."""
        return f"{number}{suffix}" if number >= 0 else f"({number + 1}{suffix}-1)"

    def float_literal(self, dtype: DType, value: float) -> str:
        """A float constant; infinities and nan by the dialect's words for them."""
        if self._held_as_bits(dtype):
            return str(value_to_bits(value, dtype))
        if math.isnan(value):
            return self.nan[dtype]
        if math.isinf(value):
            return self.infinity[dtype] if value > 0 else f"(-{self.infinity[dtype]})"
        text = repr(value) + ("f" if dtype is dtypes.float32 else "")
        return f"({text})" if text.startswith("-") else text

    def leaf(self, w: Writer, u: UOp) -> str:
        """What needs no statement: constants, launch indices."""
        if u.op is Ops.CONST:
            return self.literal(u.dtype, u.arg)
        if u.op is Ops.SPECIAL:
            return self.special(w, u)
        if u.dtype.count > 1:
            return self.vector_leaf(w, u)
        raise LoweringError(f"{w.program.name}: {u.op} {u.arg} is not among what the kernel takes")

    def vector_leaf(self, w: Writer, u: UOp) -> str:
        """Dialect: IOTA, and a vector with one constant in every lane."""
        raise LoweringError(f"{type(self).__name__} has no vectors: {u.dtype}")

    # ---- values

    def value(self, w: Writer, u: UOp) -> str:
        """The expression of one operation; its sources are written by name."""
        op = u.op
        if op is Ops.LOAD:
            return self.load(w, u)
        if op is Ops.MATRIX:
            return self.matrix(w, u)
        if op is Ops.DOT:
            return self.dot(w, u)
        if op not in GroupOp.ALU or u.dtype.count > 1 or u.src[0].dtype.count > 1:
            return self.vector_value(w, u)
        if op is Ops.CAST:
            return self.cast(w, u)
        if op is Ops.BITCAST:
            return self.bitcast(w, u)
        if (plainer := self.expansion(w, u)) is not None:
            return plainer
        dtype = u.dtype
        if (op, dtype) in self.functions:
            return f"{self.functions[op, dtype]}({','.join(w.ref(s) for s in u.src)})"
        if op is Ops.WHERE:
            condition, yes, no = (w.ref(s) for s in u.src)
            return f"({condition}?{yes}:{no})"
        if op is Ops.MULACC and not dtype.is_float:
            a, b, c = (w.ref(s) for s in u.src)
            return self.wrapped(u, f"{a}*{b}+{c}", a, "*", b, "+", c)
        if len(u.src) != 2 or (op not in OPERATORS and op not in (Ops.MAX, Ops.MIN)):
            raise LoweringError(f"{type(self).__name__} cannot render {op} of {dtype}")
        return self.binary(w, u)

    def expansion(self, w: Writer, u: UOp) -> str | None:
        """An operation whose plain form would not mean the same for all operands, by way of
        plainer ones; None where the plain form is right."""
        plainer = expand(u)
        return None if plainer is None else self.expanded(w, u, plainer)

    def expanded(self, w: Writer, u: UOp, expansion: UOp) -> str:
        """An operation by way of plainer ones, which may use its sources several times."""
        for source in u.src:
            w.atom(source)
        return w.graph(expansion)

    def binary(self, w: Writer, u: UOp) -> str:
        """An operation on two scalars."""
        op, dtype = u.op, u.dtype
        if u.src[0].dtype.is_bool:
            if (pair := at_most(u)) is not None:
                return f"({w.ref(pair[0])}<={w.ref(pair[1])})"
            symbol = _BOOLEAN[op]
            if op is Ops.XOR and u.src[1].op is Ops.CONST and u.src[1].arg:
                return f"(!{w.ref(u.src[0])})"
            return f"({w.ref(u.src[0])}{symbol}{w.ref(u.src[1])})"
        if op is Ops.MAX or op is Ops.MIN:
            a, b = w.atom(u.src[0]), w.atom(u.src[1])
            return f"({a}{'>' if op is Ops.MAX else '<'}{b}?{a}:{b})"
        a, b = w.ref(u.src[0]), w.ref(u.src[1])
        if op is Ops.MUL and is_minus_one(u.src[1]):
            return self.wrapped(u, f"-{a}", "-", a)
        text = f"{a}{OPERATORS[op]}{b}"
        if op is Ops.CDIV and dtype.bits < 32:
            return f"(({self.scalar_type(dtype)})({text}))"
        if op in _OVERFLOWS:
            return self.wrapped(u, text, a, OPERATORS[op], b)
        return f"({text})"

    def wrapped(self, u: UOp, text: str, *parts: str) -> str:
        """An expression brought back into its dtype, if it is an integer's.

        `parts` are its operands and operators. Where the dialect leaves signed overflow open, an
        expression that can overflow is computed from unsigned operands.
        """
        dtype = u.dtype
        if not dtype.is_int or dtype.is_index:
            return f"({text})"
        kind = self.scalar_type(dtype)
        if not self.signed_wraps and _can_overflow(u):
            unsigned = self.scalar_type(UNSIGNED[max(dtype.bits, 32)])
            whole = "".join(p if p in "+*-<<" else f"({unsigned}){p}" for p in parts)
            return f"(({kind})({whole}))"
        return f"(({kind})({text}))" if dtype.bits < 32 else f"({text})"

    def cast(self, w: Writer, u: UOp) -> str:
        """A conversion of a scalar."""
        source, target = u.src[0].dtype, u.dtype
        if target.is_bool:
            return f"({w.ref(u.src[0])}!=0)"
        if source.is_float and target.is_int and u.tag != PROVEN:
            expansion = expand(u)
            assert expansion is not None
            return self.expanded(w, u, expansion)
        if (half := self.half_cast(w, u)) is not None:
            return half
        return f"(({self.scalar_type(target)}){w.ref(u.src[0])})"

    def half_cast(self, w: Writer, u: UOp) -> str | None:
        """Between float32 and a 16-bit float that the dialect holds as bits; None for others."""
        source, target = u.src[0].dtype, u.dtype
        if self._held_as_bits(source):
            if target.scalar is not dtypes.float32:
                raise LoweringError(f"{source} is converted to float32 only: decompose {target}")
            return self.expanded(w, u, widen(u.src[0].bitcast(lanes_of(dtypes.uint16, u)), source))
        if self._held_as_bits(target):
            if source.scalar is not dtypes.float32:
                raise LoweringError(f"{target} is made from float32 only: decompose {source}")
            return self.expanded(w, u, narrow(u.src[0], target))
        return None

    def _held_as_bits(self, dtype: DType) -> bool:
        bits = self.types[dtypes.uint16]
        return dtype.is_float and dtype.bits == 16 and self.types[dtype.scalar] == bits

    def bitcast(self, w: Writer, u: UOp) -> str:
        """The bits of a scalar read as another type."""
        source, target = self.scalar_type(u.src[0].dtype), self.scalar_type(u.dtype)
        value = w.ref(u.src[0])
        if source == target:
            return value
        return f"({self.bitcast_form.format(source=source, target=target, value=value)})"

    def vector_value(self, w: Writer, u: UOp) -> str:
        """Dialect: an operation whose value or sources are vectors."""
        raise LoweringError(f"{type(self).__name__} has no vectors: {u.op} of {u.dtype}")

    # ---- memory

    def load(self, w: Writer, u: UOp) -> str:
        """An element of a buffer; where its gate is false, memory is not touched."""
        buffer, index = u.src[0], u.src[1]
        register = w.register(buffer, index)
        if register is not None:
            return register
        if u.dtype.count > 1 and buffer.dtype.count == 1:
            return self.vector_load(w, u)
        text = self.from_memory(u.dtype, self.element(w, buffer, index))
        if len(u.src) == 2:
            return text
        return f"({w.ref(u.src[2])}?{text}:{w.ref(u.src[3])})"

    def store(self, w: Writer, u: UOp) -> None:
        """The statement that writes an element, if its gate holds."""
        buffer, index, value = u.src[:3]
        register = w.register(buffer, index)
        if register is not None:
            self.store_register(w, buffer, register, value)
            return
        if value.dtype.count > 1 and buffer.dtype.count == 1:
            self.vector_store(w, u)
            return
        text = f"{self.element(w, buffer, index)}={w.ref(value)};"
        self.write(w, buffer, self.gated(w, u, text))

    def element(self, w: Writer, buffer: UOp, index: UOp) -> str:
        """An element of a buffer as it stands in memory."""
        return f"{w.ref(buffer)}[{w.ref(index)}]"

    def write(self, w: Writer, buffer: UOp, text: str) -> None:
        """The statement that writes an element."""
        w.line(text)

    def from_memory(self, dtype: DType, text: str) -> str:
        """An element read from memory, as values are computed."""
        return f"({text}!=0)" if dtype.is_bool else text

    def vector_load(self, w: Writer, u: UOp) -> str:
        """Dialect: consecutive elements, or a gather where the index is a vector."""
        raise LoweringError(f"{type(self).__name__} has no vectors: {u.op} of {u.dtype}")

    def vector_store(self, w: Writer, u: UOp) -> None:
        """Dialect: consecutive elements, or a scatter where the index is a vector."""
        raise LoweringError(f"{type(self).__name__} has no vectors: {u.op}")


def at_most(u: UOp) -> tuple[UOp, UOp] | None:
    """a and b of `a < b or a == b`, which C writes as one comparison."""
    if u.op is not Ops.OR:
        return None
    less, equal = u.src
    if less.op is Ops.CMPLT and equal.op is Ops.CMPEQ and less.src == equal.src:
        return less.src[0], less.src[1]
    return None


def is_minus_one(u: UOp) -> bool:
    """Whether a product with this constant is a negation; of unsigned integers the greatest."""
    value = u.const_value
    return value is not None and (value == -1 or (u.dtype.kind == "uint" and value == u.dtype.max))


def _can_overflow(u: UOp) -> bool:
    """Whether bounds leave room for an overflow of the C type that `u` is computed in."""
    dtype = u.dtype
    if dtype.bits < 32:
        # in int, which holds everything but the products of 16-bit unsigned integers
        return u.op in (Ops.MUL, Ops.MULACC, Ops.SHL) and dtype.bits == 16
    if not dtype.is_signed:
        return False
    if u.op not in (Ops.ADD, Ops.MUL):
        return True
    a, b = u.src
    if u.op is Ops.ADD:
        ends = [a.vmin + b.vmin, a.vmax + b.vmax]
    else:
        ends = [x * y for x in (a.vmin, a.vmax) for y in (b.vmin, b.vmax)]
    return bool(min(ends) < dtype.min or max(ends) > dtype.max)
