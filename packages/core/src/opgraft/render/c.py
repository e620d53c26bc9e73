"""GNU C for the CPU: no headers, vector types, one kernel per source.

The kernel is called as

    void NAME(void **buffers, const long long *variables, long long begin, long long end)

with the buffers in the order of their slots, the variables in the order of their names (a float
as the bits of a float64), and the part begin .. end of the parallel range; 0 .. 1 if it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.render.cstyle import CStyleRenderer
from opgraft.render.gnu import GnuVectors
from opgraft.render.writer import Writer


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

    def parallel_bounds(self, w: Writer, u: UOp) -> tuple[str, str]:
        kind = self.scalar_type(u.dtype)
        return f"({kind})begin", f"({kind})end"

    def special(self, w: Writer, u: UOp) -> str:
        if u.arg[0] == "begin":
            return "begin"
        return super().special(w, u)
