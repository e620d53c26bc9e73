"""OpenCL C 1.2: kernels, launch indices, group memory, atomics, floats of 16 bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from opgraft.api import (
    DType,
    MatrixLayout,
    MatrixUnit,
    Ops,
    Space,
    Target,
    UOp,
    VectorRenderer,
    Writer,
    dtypes,
)

_FLOATS: Final = {dtypes.float16: "half", dtypes.float32: "float", dtypes.float64: "double"}
_ATOMIC_ADD: Final = """void {name}(volatile {space} {word}*p,{kind} x){{
 union{{{word} bits;{kind} value;}}was,now;{word} seen={swap}(p,0,0);
 do{{was.bits=seen;now.value=was.value+x;seen={swap}(p,was.bits,now.bits);}}
 while(seen!=was.bits);}}"""
_CONVERTED: Final = {dtypes.float16, dtypes.float32}
_WIDEN: Final = "float{n} {name}(ushort{n} h){{return vload_half{n}(0,(const half*)&h);}}"
_NARROW: Final = (
    "ushort{n} {name}(float{n} x){{ushort{n} h;vstore_half{n}_rte(x,0,(half*)&h);return h;}}"
)


class ClRenderer(VectorRenderer):
    """For any OpenCL device; 16-bit floats are held as bits."""

    suffix: ClassVar[str] = ".cl"
    types: ClassVar[Mapping[DType, str]] = {
        **VectorRenderer.types,
        dtypes.int8: "char",
        dtypes.uint8: "uchar",
        dtypes.uint16: "ushort",
        dtypes.uint32: "uint",
        dtypes.int64: "long",
        dtypes.uint64: "ulong",
        dtypes.float16: "ushort",
        dtypes.bfloat16: "ushort",
        dtypes.index: "long",
    }
    stored: ClassVar[Mapping[DType, str]] = {dtypes.bool: "uchar"}
    infinity: ClassVar[Mapping[DType, str]] = {d: f"(({k})INFINITY)" for d, k in _FLOATS.items()}
    nan: ClassVar[Mapping[DType, str]] = {d: f"(({k})NAN)" for d, k in _FLOATS.items()}
    functions: ClassVar[Mapping[tuple[Ops, DType], str]] = {
        (op, dtype): name
        for op, name in ((Ops.SQRT, "sqrt"), (Ops.TRUNC, "trunc"), (Ops.MULACC, "fma"))
        for dtype in _FLOATS
    }
    bitcast_form: ClassVar[str] = "as_{target}(({source})({value}))"
    spaces: ClassVar[Mapping[Space, str]] = {Space.PRIVATE: "", Space.GROUP: "__local "}
    head = "__kernel"

    # ---- a kernel

    def plan(self, w: Writer, instructions: tuple[UOp, ...]) -> None:
        names = dict(self.target.extra).get("extensions", ())
        lines = [f"#pragma OPENCL EXTENSION {name} : enable" for name in names]
        w.typedef("", "\n".join(["#pragma OPENCL FP_CONTRACT OFF", *lines]))

    def begin(self, w: Writer) -> str:
        program, takes = w.program, []
        for slot, param in enumerate(program.params):
            const = "" if slot in program.written else "const "
            kind = f"__global {const}{self.memory_type(w, param.dtype)}"
            takes += [f"{kind}*b{slot}", f"ulong o{slot}"]
            w.line(f"{kind}*d{slot}=({kind}*)((__global {const}char*)b{slot}+o{slot});")
            w.bind(param, f"d{slot}")
        for place, variable in enumerate(program.variables):
            takes.append(f"{self.memory_type(w, variable.dtype)} n{place}")
            w.bind(variable, self.from_memory(variable.dtype, f"n{place}"))
        threads = (*program.launch[1], 1, 1, 1)[:3]
        size = f"__attribute__((reqd_work_group_size({threads[0]},{threads[1]},{threads[2]})))"
        return f"{self.head} {size} void {self.entry(program.name)}({','.join(takes)}){{"

    def special(self, w: Writer, u: UOp) -> str:
        name, dimension = u.arg[0][:-1], u.arg[0][-1]
        return f"((int)get_{'group' if name == 'group' else 'local'}_id({dimension}))"

    def barrier(self, w: Writer, u: UOp) -> str:
        return "barrier(CLK_LOCAL_MEM_FENCE|CLK_GLOBAL_MEM_FENCE);"

    def atomic(self, w: Writer, u: UOp) -> str:
        buffer, dtype = u.src[0], u.src[2].dtype
        prefix = "atomic" if dtype.bits == 32 else "atom"
        function, place = f"{prefix}_{u.arg.name.lower()}", f"&{self.element(w, buffer, u.src[1])}"
        if dtype.is_float:
            space = "__global" if buffer.op is Ops.PARAM else "__local"
            kind, word = self.scalar_type(dtype), "uint" if dtype.bits == 32 else "ulong"
            function, place = f"add_{kind}{space}", f"(volatile {space} {word}*){place}"
            facts = {"name": function, "space": space, "kind": kind, "word": word}
            w.helper(function, _ATOMIC_ADD.format(**facts, swap=f"{prefix}_cmpxchg"))
        return f"{function}({place},{w.ref(u.src[2])});"

    # ---- values

    def value(self, w: Writer, u: UOp) -> str:
        exact = dict(self.target.extra).get("exact_division", True)
        if exact or u.op not in (Ops.FDIV, Ops.SQRT) or u.dtype.scalar is not dtypes.float32:
            return super().value(w, u)
        # float64 has so many more digits that rounding its quotient or root again is exact
        wide = dtypes.float64.vec(u.dtype.count)
        return w.graph(UOp(u.op, wide, tuple(s.cast(wide) for s in u.src)).cast(u.dtype))

    def half_cast(self, w: Writer, u: UOp) -> str | None:
        """float16 by way of memory, where OpenCL converts it even if it cannot compute in it.

        Compilers make one instruction of it where there is one.
        """
        source, target = u.src[0].dtype.scalar, u.dtype.scalar
        if self.types[dtypes.float16] == "half" or {source, target} != _CONVERTED:
            return super().half_cast(w, u)
        size = "" if u.dtype.count == 1 else str(self.width(u.dtype.count))
        name = f"half_to_float{size}" if target is dtypes.float32 else f"float_to_half{size}"
        w.helper(name, (_WIDEN if target is dtypes.float32 else _NARROW).format(name=name, n=size))
        return f"{name}({w.ref(u.src[0])})"

    # ---- literals

    def literal(self, dtype: DType, value: object) -> str:
        text = super().literal(dtype, value)
        return text.replace("ull", "UL").replace("ll", "L") if dtype.bits == 64 else text


class HalfRenderer(ClRenderer):
    """For devices that compute in half."""

    types: ClassVar[Mapping[DType, str]] = {**ClRenderer.types, dtypes.float16: "half"}

    def float_literal(self, dtype: DType, value: float) -> str:
        if dtype is dtypes.float16 and math.isfinite(value):
            return f"((half){value!r}f)"  # a half is a float, exactly
        return super().float_literal(dtype, value)


class SubgroupRenderer(HalfRenderer):
    """For Intel's devices with matrix units: groups are of subgroups of the size these want."""

    def __init__(self, target: Target) -> None:
        lanes = dict(target.extra)["subgroup_matrix"]
        units = tuple(_matrix_unit(lanes, name, dtype) for name, dtype in _MULTIPLIED.items())
        super().__init__(replace(target, lanes=lanes, matrix_units=units))
        self.head = f"__kernel __attribute__((intel_reqd_sub_group_size({lanes})))"

    def matrix(self, w: Writer, u: UOp) -> str:
        a, b, c = u.src
        # a word for each row of a; half of a word where a subgroup has 16 columns
        row = dtypes.int16 if self.target.lanes == 16 else dtypes.int32
        return f"{u.arg.name}({self.words(w, a, row)},{self.words(w, b, dtypes.int32)},{w.ref(c)})"


def _matrix_unit(lanes: int, short: str, dtype: DType) -> MatrixUnit:
    """8 rows; a column of b and of the sums, 32 bytes deep, for each work-item of a subgroup."""
    depth, sums = 32 // dtype.itemsize, dtypes.float32 if dtype.is_float else dtypes.int32
    a = MatrixLayout((("k", lanes, depth // lanes),), (("k", depth // lanes, 1), ("m", 8, 1)))
    b = MatrixLayout((("n", lanes, 1),), (("k", depth, 1),))
    c = MatrixLayout((("n", lanes, 1),), (("m", 8, 1),))
    name = f"intel_sub_group_{short}_{short}_matrix_mad_k{depth}"
    return MatrixUnit(name, (8, lanes, depth), (dtype, dtype, sums), lanes, a, b, c)


_MULTIPLIED: Final = {
    "f16": dtypes.float16,
    "bf16": dtypes.bfloat16,
    "i8": dtypes.int8,
    "u8": dtypes.uint8,
}


def renderer(target: Target) -> ClRenderer:
    """The renderer for what a target can do."""
    return (HalfRenderer if dtypes.float16 in target.compute else ClRenderer)(target)
