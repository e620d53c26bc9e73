"""Vectors of kernel languages as text: parts, masks, halves. Backends' tests run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir import Ops, UOp
from opgraft.ir.linear import LinearProgram
from opgraft.render.cstyle import CStyleRenderer
from opgraft.render.vectors import VectorRenderer
from opgraft.render.writer import Writer
from opgraft.target import Target

from .kernels import listed


class Dialect(VectorRenderer):
    """Of a language with types such as float4."""

    types: ClassVar[Mapping[DType, str]] = {
        **CStyleRenderer.types,
        dtypes.int8: "char",
        dtypes.uint8: "uchar",
        dtypes.uint32: "uint",
    }

    def begin(self, w: Writer) -> str:
        for slot, param in enumerate(w.program.params):
            w.bind(param, f"d{slot}")
        return "kernel{"


class Narrow(Dialect):
    """Its vectors have four lanes at most."""

    widest: ClassVar[int] = 4


def param(slot: int, dtype: DType) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, 64))


def load(slot: int, dtype: DType, lanes: int, *gate: UOp) -> UOp:
    at = UOp.const(dtypes.int32, 0)
    return UOp(Ops.LOAD, dtype.vec(lanes), (param(slot, dtype), at, *gate))


def body(value: UOp, style: type[VectorRenderer] = Dialect) -> list[str]:
    """The statements that store a value."""
    out = UOp(Ops.PARAM, value.dtype.scalar, (), (0, 64))
    store = UOp(Ops.STORE, dtypes.void, (out, UOp.const(dtypes.int32, 0), value))
    params = {n for n in store.toposort() if n.op is Ops.PARAM}
    made = LinearProgram(
        "k", tuple(listed(store)), tuple(sorted(params, key=lambda n: n.arg[0])), written=(0,)
    )
    text = style(Target("dialect")).render(made)
    return [line.strip() for line in text.splitlines()[1:-1]]


def test_consecutive_elements_are_one_load_and_one_store() -> None:
    x = load(1, dtypes.float32, 4)
    assert body(x * x) == [
        "float4 v0=vload4(0,d1+0);",
        "vstore4((v0*v0),0,d0+0);",
    ]


def test_more_lanes_than_a_type_has_are_several_variables() -> None:
    x = load(1, dtypes.float32, 8)
    assert body(x * x, Narrow) == [
        "float4 v0_0=vload4(0,d1+0+0*4);",
        "float4 v0_1=vload4(0,d1+0+1*4);",
        "vstore4((v0_0*v0_0),0,d0+0+0*4);",
        "vstore4((v0_1*v0_1),0,d0+0+1*4);",
    ]


def test_signed_integers_wrap_by_way_of_unsigned_ones() -> None:
    x = load(1, dtypes.int32, 4)
    assert body(x * x)[-1] == "vstore4(as_int4(as_uint4(v0)*as_uint4(v0)),0,d0+0);"
    unsigned = load(1, dtypes.uint32, 4)
    assert body(unsigned * unsigned)[-1] == "vstore4((v0*v0),0,d0+0);"


def test_a_comparison_is_a_mask_that_a_selection_takes_in_its_own_width() -> None:
    x, y = load(1, dtypes.float32, 4), load(2, dtypes.float32, 4)
    less = UOp(Ops.CMPLT, dtypes.bool.vec(4), (x, y))
    picked = body(UOp(Ops.WHERE, x.dtype, (less, x, y)))
    assert picked[-1] == "vstore4(select(v1,v0,convert_int4(convert_char4(v0<v1))),0,d0+0);"
    assert body(less)[-1] == ("vstore4(as_uchar4(convert_char4(v0<v1)&((char4)(1))),0,d0+0);")


def test_a_number_of_lanes_without_a_type_goes_lane_by_lane() -> None:
    lines = body(load(1, dtypes.float32, 3))
    assert "float4 v0=((float4)(0));" in lines
    assert [line for line in lines if line.startswith("v0.s2=")] == ["v0.s2=d1[0+2];"]
    assert [line for line in lines if line.startswith("d0[")] == [
        "d0[0+0]=v1.s0;",
        "d0[0+1]=v1.s1;",
        "d0[0+2]=v1.s2;",
    ]


def test_lanes_are_combined_by_halves() -> None:
    total = UOp(Ops.HREDUCE, dtypes.float32, (load(1, dtypes.float32, 8),), Ops.ADD)
    lines = body(total, Narrow)
    added = [line.partition("=")[2] for line in lines if "+h" in line or ".lo" in line]
    assert added == ["(h0+h1);", "(v1.lo+v1.hi);", "(v2.lo+v2.hi);"], lines


def test_what_vectors_cannot_do_is_refused() -> None:
    truth = load(1, dtypes.bool, 4)
    with pytest.raises(LoweringError, match="Dialect cannot render"):
        body(UOp(Ops.SHL, dtypes.bool.vec(4), (truth, truth)))
