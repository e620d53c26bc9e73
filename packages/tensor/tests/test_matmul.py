"""Matrix products and einsum against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from checks import same, value
from opgraft import dtypes, journal
from opgraft.ir.matrix import DotUnit
from opgraft.ir.ops import Ops
from opgraft.lower.pipeline import lower
from opgraft.target import Target
from opgraft_tensor import Tensor, einsum

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((1, 1), (1, 1)),
        ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((2, 0), (0, 3)),
    ],
)  # fmt: skip
def test_shapes_and_values_equal_numpy(left, right) -> None:
    a, b = RNG.normal(size=left), RNG.normal(size=right)
    same(Tensor(a) @ Tensor(b), a @ b, rtol=1e-12, atol=1e-13)
    same(Tensor(a).dot(b), a @ b, rtol=1e-12, atol=1e-13)


def test_dtypes() -> None:
    a, b = RNG.integers(-9, 9, (2, 3)), RNG.integers(-9, 9, (3, 2))
    same(Tensor(a) @ Tensor(b), a @ b)
    same(Tensor(a.astype(np.int8)) @ Tensor(b.astype(np.int8)), a.astype("i1") @ b.astype("i1"))
    same(Tensor(a > 0) @ Tensor(b > 0), (a > 0) @ (b > 0))
    assert (Tensor(a) @ Tensor(b.astype(np.float32))).dtype.name == "float32"
    same(np.ones((2, 2)) @ Tensor([1.0, 2.0]), np.array([3.0, 3.0]))


def test_half_precision_sums_in_float32() -> None:
    ones = Tensor(np.ones((1, 5000), np.float16))
    assert value(ones @ ones.T).tolist() == [[5000]]


def test_outer() -> None:
    same(Tensor([1, 2]).outer(Tensor([3, 4, 5])), np.outer([1, 2], [3, 4, 5]))
    with pytest.raises(ValueError, match="vectors"):
        Tensor([[1]]).outer(Tensor([1]))


@pytest.mark.parametrize(("left", "right"), [((2, 3), (2, 3)), ((3,), (4,)), ((), (3,))])
def test_shapes_that_do_not_fit_are_both_named(left, right) -> None:
    with pytest.raises(ValueError, match="matmul") as caught:
        Tensor(np.ones(left)) @ Tensor(np.ones(right))
    assert str(left) in str(caught.value)
    assert str(right) in str(caught.value)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ba,ca", [(2, 3), (4, 3)]),
        ("ii", [(3, 3)]), ("ii->i", [(3, 3)]), ("iij->ji", [(3, 3, 2)]), ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]), ("i,i", [(3,), (3,)]), ("i,j->ij", [(2,), (3,)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]), ("...ij,jk->...ik", [(5, 6, 2, 3), (3, 4)]),
        ("...i", [(2, 3)]), ("i...->...", [(2, 3, 4)]), ("...,...", [(2, 3), (3,)]),
        ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("abc->cab", [(2, 3, 4)]), ("ijk,ilk->jl", [(2, 3, 4), (2, 5, 4)]), (",i->i", [(), (3,)]),
        ("a...b->b...", [(2, 3, 4)]), ("ij,j->i", [(2, 1), (3,)]),
    ],
)  # fmt: skip
def test_einsum_equals_numpy(equation, shapes) -> None:
    arrays = [RNG.normal(size=s) for s in shapes]
    same(einsum(equation, *map(Tensor, arrays)), np.asarray(np.einsum(equation, *arrays)),
         rtol=1e-11, atol=1e-12)  # fmt: skip


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ij,jk", [(2, 3)]), ("ij->k", [(2, 3)]), ("ij", [(2,)]), ("i1", [(2, 3)]),
     ("ij,jk->ik", [(2, 3), (4, 5)]), ("ij->ii", [(2, 2)]), ("ii", [(2, 3)])],
)  # fmt: skip
def test_wrong_equations_are_named(equation, shapes) -> None:
    with pytest.raises(ValueError, match="einsum"):
        einsum(equation, *[Tensor(np.ones(s)) for s in shapes])


def test_a_quantised_product_is_one_kernel_by_dot_instructions() -> None:
    """Scaled, rounded, clipped and made bytes again where the sums are."""
    pick = np.random.default_rng(0)
    a, b = (pick.integers(-128, 128, s).astype(np.int8) for s in ((24, 40), (40, 32)))
    scale = (pick.random(32) * 1e-2).astype(np.float32)

    def quantised(x: Tensor, y: Tensor, by: Tensor) -> Tensor:
        total = (x.cast("int32") @ y.cast("int32")).cast("float32") * by
        return total.round().maximum(-128).minimum(127).cast("int8")

    heard: list[journal.Event] = []
    with journal.listening(heard.append):
        got = quantised(Tensor(a), Tensor(b), Tensor(scale)).numpy()
    (kernel,) = [event for event in heard if event.kind == "kernel"]
    unit = DotUnit("pairs16", (dtypes.int16, dtypes.int16, dtypes.int32))
    program = lower(kernel.details["sink"], Target("test", vector_bytes=32, dot_units=(unit,)))
    assert any(n.op is Ops.DOT for n in program.instructions)
    total = (a.astype(np.int64) @ b).astype(np.float32) * scale
    assert np.array_equal(got, np.clip(np.round(total), -128, 127).astype(np.int8))
