"""What a dialect of the C family says in its tables, and what the family makes of it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir import Ops, UOp
from opgraft.render.c import CRenderer
from opgraft.render.cstyle import CStyleRenderer
from opgraft.render.gnu import GnuVectors
from opgraft.render.writer import Writer
from opgraft.target import Target

from .kernels import call, elementwise

TARGET = Target("any")


class Checked(CRenderer):
    """C whose signed overflow is undefined, as in most dialects."""

    signed_wraps: ClassVar[bool] = False


class Overloaded(GnuVectors):
    """A dialect with constructors, as Metal and C++."""

    vector_literal: ClassVar[str] = "{type}({lanes})"

    def begin(self, w: Writer) -> str:
        for slot, param in enumerate(w.program.params):
            w.bind(param, f"d{slot}")
        return "kernel void f(){"


class Cast(Overloaded):
    """A dialect as OpenCL C."""

    vector_literal: ClassVar[str] = "({type})({lanes})"
    types: ClassVar[Mapping[DType, str]] = {**CStyleRenderer.types, dtypes.int64: "long"}


def two_lanes(x: UOp) -> UOp:
    three, seven = UOp.const(dtypes.float32, 3.0), UOp.const(dtypes.float32, 7.0)
    return x + UOp(Ops.STACK, dtypes.float32.vec(2), (three, seven))


@pytest.mark.parametrize(
    ("style", "form"),
    [
        (CRenderer, "((f32x2){3.0f,7.0f})"),
        (Overloaded, "f32x2(3.0f,7.0f)"),
        (Cast, "(f32x2)(3.0f,7.0f)"),
    ],
)
def test_a_vector_is_written_in_the_form_of_its_language(
    style: type[GnuVectors], form: str
) -> None:
    # apache/tvm#9731: the form of one language is a comma expression in another
    text = style(TARGET).render(elementwise(two_lanes, [dtypes.float32], 2, 2))
    assert form in text


def test_the_lanes_of_a_literal_are_its_values(
    run_elementwise: Callable[..., np.ndarray],
) -> None:
    got = run_elementwise(two_lanes, [(dtypes.float32, np.zeros(2, "float32"))], 2)
    assert got.tolist() == [3.0, 7.0]


def test_overflow_is_computed_unsigned_where_the_dialect_leaves_it_open(
    compile_c: Callable[[str], ctypes.CDLL],
) -> None:
    def mixed(a: UOp, b: UOp) -> UOp:
        return (a * b + a) ^ (a << 3) ^ -b

    for dtype in (dtypes.int32, dtypes.int16, dtypes.uint16, dtypes.int64):
        program = elementwise(mixed, [dtype, dtype], 4, 1, f"k_{dtype}")
        text = Checked(TARGET).render(program)
        assert "(unsigned" in text
        top = int(dtype.max)
        a = np.array([top, top // 2, int(dtype.min), 3], dtype.name)
        b = np.array([top, 77, int(dtype.min), 9], dtype.name)
        out = np.zeros(4, dtype.name)
        call(getattr(compile_c(text), CRenderer(TARGET).entry(program.name)), [out, a, b])
        with np.errstate(all="ignore"):
            want = (a * b + a) ^ (a << 3).astype(dtype.name) ^ -b
        assert out.tolist() == want.astype(dtype.name).tolist()


def test_no_overflow_no_detour() -> None:
    """cost: index arithmetic whose bounds fit is written as it is."""

    def small(a: UOp) -> UOp:
        return (a & 1023) * 8 + 3

    text = Checked(TARGET).render(elementwise(small, [dtypes.int32], 4, 1))
    assert "unsigned" not in text


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_constants_are_read_back_exactly(
    run_elementwise: Callable[..., np.ndarray], dtype: DType
) -> None:
    tiny = 2.0 ** (-149 if dtype is dtypes.float32 else -1074)
    numbers = [0.1, -0.0, tiny, 1 / 3, 16777217.0, 3.4e38, -1e-40, math.inf, -math.inf, 2.0**-126]
    for number in numbers:

        def constant(x: UOp, number: float = number) -> UOp:
            return (x < 0.0).where(x, x.const_like(number))

        got = run_elementwise(constant, [(dtype, np.zeros(1, dtype.name))], 1)[0]
        want = dtype.const(number)
        assert got == want
        assert math.copysign(1, got) == math.copysign(1, want)


def test_the_least_integers_are_constants(run_elementwise: Callable[..., np.ndarray]) -> None:
    for dtype in dtypes.signed_ints:

        def least(x: UOp) -> UOp:
            return x ^ int(x.dtype.min)

        got = run_elementwise(least, [(dtype, np.zeros(1, dtype.name))], 1)
        assert got.tolist() == [int(dtype.min)]


def test_c_is_written_without_headers_and_the_same_every_time() -> None:
    program = elementwise(two_lanes, [dtypes.float32], 8, 2)
    text = CRenderer(TARGET).render(program)
    assert "#include" not in text
    assert text == CRenderer(TARGET).render(program)


def test_what_a_dialect_lacks_is_named() -> None:
    class Plain(CStyleRenderer):
        def begin(self, w: Writer) -> str:
            for slot, param in enumerate(w.program.params):
                w.bind(param, f"d{slot}")
            return "void f(){"

    with pytest.raises(LoweringError, match="Plain has no vectors"):
        Plain(TARGET).render(elementwise(two_lanes, [dtypes.float32], 2, 2))
    with pytest.raises(LoweringError, match=r"cannot render Ops\.EXP2"):
        CRenderer(TARGET).render(elementwise(lambda x: x.exp2(), [dtypes.float32], 2, 1))
