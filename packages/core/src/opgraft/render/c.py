"""GNU C for the CPU: no headers, vector types, one kernel per source.

The kernel is called as

    void NAME(void **buffers, const long long *variables, long long begin, long long end)

with the buffers in the order of their slots, the variables in the order of their names (a float
as the bits of a float64), and the part begin .. end of the parallel range; 0 .. 1 if it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.elementary import expansion, light_sine
from opgraft.ir.expansions import sum_of_products
from opgraft.ir.half_floats import narrow, widen
from opgraft.ir.ops import Ops, Space
from opgraft.ir.uop import UOp
from opgraft.render.cstyle import CStyleRenderer
from opgraft.render.dots import dot_product
from opgraft.render.fused import fused_multiply_add, multiply_add
from opgraft.render.gnu import GnuVectors
from opgraft.render.intrinsics import (
    F16C_TYPES,
    HOLD,
    INLINE,
    any_set,
    float16_to_float32,
    float32_to_float16,
    lanewise,
)
from opgraft.render.writer import Writer, stand_in


class CRenderer(GnuVectors):
    """C for gcc, clang and zig; compile with -fwrapv -ffp-contract=off -fno-math-errno."""

    suffix: ClassVar[str] = ".c"
    types: ClassVar[Mapping[DType, str]] = {
        **CStyleRenderer.types,
        dtypes.bool: "_Bool",
        dtypes.float16: "unsigned short",  # held as bits: decompositions compute in float32
    }
    infinity: ClassVar[Mapping[DType, str]] = {
        dtypes.float32: "__builtin_inff()",
        dtypes.float64: "__builtin_inf()",
    }
    nan: ClassVar[Mapping[DType, str]] = {
        dtypes.float32: '__builtin_nanf("")',
        dtypes.float64: '__builtin_nan("")',
    }
    functions: ClassVar[Mapping[tuple[Ops, DType], str]] = {
        (Ops.SQRT, dtypes.float32): "__builtin_sqrtf",
        (Ops.SQRT, dtypes.float64): "__builtin_sqrt",
        (Ops.TRUNC, dtypes.float32): "__builtin_truncf",
        (Ops.TRUNC, dtypes.float64): "__builtin_trunc",
        (Ops.MULACC, dtypes.float32): "__builtin_fmaf",
        (Ops.MULACC, dtypes.float64): "__builtin_fma",
    }
    signed_wraps: ClassVar[bool] = True

    def begin(self, w: Writer) -> str:
        program = w.program
        if program.launch[0]:
            raise LoweringError(f"{program.name}: the CPU has no launches of groups and threads")
        for slot, param in enumerate(program.params):
            const = "" if slot in program.written else "const "
            kind = f"{const}{self.memory_type(w, param.dtype)}"
            w.line(f"{kind}*d{slot}=buffers[{slot}];")
            w.bind(param, f"d{slot}")
        for place, variable in enumerate(program.variables):
            w.bind(variable, self._variable(w, variable, place))
        return (
            f"void {self.entry(program.name)}(void**buffers,const long long*variables,"
            "long long begin,long long end){"
        )

    def _variable(self, w: Writer, u: UOp, place: int) -> str:
        kind = self.scalar_type(u.dtype)
        text = f"variables[{place}]"
        if u.dtype.is_float:
            text = f"((union{{long long a;double b;}}){{{text}}}.b)"
        return w.declare(kind, f"({kind}){text}", "n")

    # ---- what needs the compilers' own words

    def by_function(self, w: Writer, u: UOp) -> str:
        kind = self.vector_type(w, u.dtype)
        element = kind.partition("x")[0]
        lanes = self.part_lanes(u.dtype.bits, u.dtype.count)
        call = self.functions[u.op, u.dtype.scalar]
        if u.op is Ops.MULACC:
            name = f"fma_{kind}"
            form = fused_multiply_add if u.dtype.scalar in self.target.fma else multiply_add
            w.helper(name, form(name, kind, element, lanes, call))
        else:
            operation = u.op.name.lower()
            name = f"{operation}_{kind}"
            w.helper(name, lanewise(name, kind, element, lanes, operation, call))
        return f"{name}({','.join(w.ref(s) for s in u.src)})"

    def value(self, w: Writer, u: UOp) -> str:
        if u.op is Ops.SIN and u.dtype.bits >= 32:
            return f"{self._sine(w, u.dtype)}({w.ref(u.src[0])})"
        return super().value(w, u)

    def dot(self, w: Writer, u: UOp) -> str:
        lanes = 1 if u.dtype.count == 1 else self.part_lanes(32, u.dtype.count)
        word = dtypes.int32.vec(lanes)
        kind = self.part_type(w, dtypes.int32, lanes) if lanes > 1 else self.scalar_type(word)
        name = f"{u.arg.name}_{kind}"
        if name not in w.helpers:
            if lanes > 1:
                self.part_type(w, dtypes.int16, 2 * lanes)
            inner = Writer(self, w.program)
            inner.typedefs, inner.helpers = w.typedefs, w.helpers
            a, b, c = (stand_in(letter, word) for letter in "abc")
            for letter, node in zip("abc", (a, b, c), strict=True):
                inner.bind(node, letter)
            result = inner.graph(sum_of_products(UOp(Ops.DOT, word, (a, b, c), u.arg)))
            plain = "\n".join([*inner.lines, f" return {result};}}"])
            w.helper(name, dot_product(name, kind, lanes, u.arg, plain))
        return f"{name}({','.join(w.ref(s) for s in u.src)})"

    def function_of(
        self, w: Writer, head: str, name: str, dtype: DType, build: Callable[[UOp], UOp]
    ) -> str:
        """The text of a function whose value is a graph over one argument."""
        inner = Writer(self, w.program)
        inner.typedefs, inner.helpers = w.typedefs, w.helpers
        argument = stand_in(name, dtype)
        inner.bind(argument, name)
        result = inner.graph(build(argument))
        return "\n".join([head, *inner.lines, f" return {result};}}"])

    def _sine(self, w: Writer, dtype: DType) -> str:
        """A function that leaves the rare large arguments to another one, lane by lane."""
        scalar = dtype.scalar
        lanes = self.part_lanes(dtype.bits, dtype.count)
        kind = self.vector_type(w, dtype) if dtype.count > 1 else self.scalar_type(scalar)
        element = self.scalar_type(scalar)
        far = f"sin_far_{element}"
        if far not in w.helpers:
            head = f"static __attribute__((noinline,cold)) {element} {far}({element} x){{"
            body = self.function_of(w, head, "x", scalar, lambda x: expansion(Ops.SIN, x))
            w.helper(far, body)
        name = f"sin_{kind}"
        if name in w.helpers:
            return name
        inner = Writer(self, w.program)
        inner.typedefs, inner.helpers = w.typedefs, w.helpers
        argument = stand_in("x", scalar.vec(lanes if dtype.count > 1 else 1))
        inner.bind(argument, "x")
        value, large = light_sine(argument)
        result, mask = inner.graph(value), inner.graph(large)
        lines = [f"{INLINE} {kind} {name}({kind} x){{", *inner.lines]
        if dtype.count == 1:
            lines.append(f" return {mask}?{far}(x):{result};}}")
        else:
            mask_kind, found = self.mask_type(w, scalar.bits, lanes), f"sin_far_{kind}"
            w.helper(
                found,
                f"static __attribute__((noinline,cold)) {kind} {found}({kind} x,{kind} s,"
                f"{mask_kind} m){{for(int l=0;l<{lanes};l++)if(m[l])s[l]={far}(x[l]);return s;}}",
            )
            test = self._any(w, "m", lanes * scalar.bits // 8)
            lines += [
                f" {kind} s={result};{mask_kind} m={mask};",
                f" return __builtin_expect({test},0)?{found}(x,s,m):s;}}",
            ]
        w.helper(name, "\n".join(lines))
        return name

    def any_nan(self, w: Writer, text: str, dtype: DType) -> str | None:
        mask = f"(({self.mask_type(w, dtype.bits, dtype.count)})({text}!={text}))"
        return self._any(w, mask, dtype.count * dtype.itemsize)

    def _any(self, w: Writer, mask: str, size: int) -> str:
        """Whether a mask of `size` bytes has a lane set."""
        lanes = max(1, size // 8)
        kind = self.part_type(w, dtypes.int64, lanes)
        if lanes == 1:
            return f"(({kind}){mask})[0]!=0"
        name = f"any_{size}"
        if size == 64:
            half = self._any(w, "h", 32)
            low, high = (",".join(str(first + i) for i in range(4)) for first in (0, 4))
            w.helper(
                name,
                f"{INLINE} int {name}({kind} m){{i64x4 h=__builtin_shufflevector(m,m,{low})"
                f"|__builtin_shufflevector(m,m,{high});return {half};}}",
            )
        else:
            floats = self.part_type(w, dtypes.float32, size // 4)
            w.helper(name, any_set(name, kind, floats, size))
        return f"{name}(({kind}){mask})"

    def half_cast(self, w: Writer, u: UOp) -> str | None:
        """float16 by the processor's instruction where the compiler may use it."""
        source, target, count = u.src[0].dtype.scalar, u.dtype.scalar, u.dtype.count
        widens = source is dtypes.float16 and target is dtypes.float32
        if not widens and not (source is dtypes.float32 and target is dtypes.float16):
            return super().half_cast(w, u)
        lanes = 1 if count == 1 else min(self.part_lanes(32, count), self.part_lanes(16, count))
        name = self._half_function(w, widens, lanes)
        text = w.ref(u.src[0])
        if count == 1:
            return f"{name}({text})"
        if self.part_lanes(32, count) == self.part_lanes(16, count):
            return f"{name}({text})"
        result = self.part_type(w, target, lanes)
        pieces = self.split(w, text, source, count, lanes)
        made = [w.declare(result, f"{name}({piece})") for piece in pieces]
        return self.join(w, made, target, lanes, count)

    def _half_function(self, w: Writer, widens: bool, lanes: int) -> str:
        """A helper that converts so many lanes; its name."""
        scalars = (dtypes.uint16, dtypes.float32) if widens else (dtypes.float32, dtypes.uint16)
        kinds = [self.part_type(w, s, lanes) if lanes > 1 else self.scalar_type(s) for s in scalars]
        name = f"float16_{'to' if widens else 'from'}_{lanes}"
        if name in w.helpers:
            return name
        for key, text in F16C_TYPES.items():
            w.typedef(key, text)
        letter = "h" if widens else "x"
        convert = widen if widens else narrow
        head = f"{INLINE} {kinds[1]} {name}({kinds[0]} {letter}){{"
        body = self.function_of(
            w, head, letter, scalars[0].vec(lanes), lambda x: convert(x, dtypes.float16)
        )
        form = float16_to_float32 if widens else float32_to_float16
        w.helper(name, form(name, lanes, body))
        return name

    def plan(self, w: Writer, instructions: tuple[UOp, ...]) -> None:
        super().plan(w, instructions)
        w.shared = shared_vectors(instructions)

    def declare_value(self, w: Writer, u: UOp, text: str) -> str:
        name = super().declare_value(w, u, text)
        if u in w.shared and self.value_parts(w, u) == 1:
            w.line(f"{w.helper('hold', HOLD)}({name});")
        return name

    def parallel_bounds(self, w: Writer, u: UOp) -> tuple[str, str]:
        kind = self.scalar_type(u.dtype)
        return f"({kind})begin", f"({kind})end"

    def special(self, w: Writer, u: UOp) -> str:
        if u.arg[0] == "begin":
            return "begin"
        return super().special(w, u)


_FEW: Final = 4
"""Uses of a vector up to which a compiler may read it anew for each (gcc does, for znver3 and
haswell): of more it keeps a register for it."""


def shared_vectors(instructions: tuple[UOp, ...]) -> set[UOp]:
    """The LOADs of vectors from memory that a few accumulating steps share."""
    used: dict[UOp, int] = {}
    for u in instructions:
        if u.op is Ops.MULACC and u.dtype.count > 1:
            for source in u.src[:2]:
                used[source] = used.get(source, 0) + 1
    return {
        u
        for u, count in used.items()
        if 1 < count <= _FEW
        and u.op is Ops.LOAD
        and not (u.src[0].op is Ops.LOCAL and u.src[0].arg[2] is Space.REGISTER)
    }
