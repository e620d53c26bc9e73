"""Gradients: against central differences in float64, at kinks by rule, and through structure."""

from __future__ import annotations

import numpy as np
import pytest

from checks import check_gradient, same, value
from opgraft_tensor import Tensor, einsum, grad
from opgraft_tensor.algebra import multiply_add

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=(3, 4))
P = RNG.uniform(0.5, 2.0, (3, 4))  # positive
U = RNG.uniform(-0.8, 0.8, (3, 4))  # within (-1, 1)
CUBE = RNG.normal(size=(2, 3, 4))


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (lambda a, b: a + b, (X, Y)), (lambda a, b: a - b, (X, Y[:1])),
        (lambda a, b: a * b, (X, Y[:, :1])), (lambda a, b: a / b, (X, P)),
        (lambda a, b: a % b, (X, P)), (lambda a: 3 - a, (X,)), (lambda a: 2 / a, (P,)),
        (lambda a: a**3, (X,)), (lambda a: a**-2, (P,)), (lambda a: a**0.5, (P,)),
        (lambda a: a**2.5, (P,)), (lambda a: 2**a, (X,)), (lambda a, b: a**b, (P, Y)),
        (lambda a: abs(a), (X,)), (lambda a, b: a.maximum(b), (X, Y)),
        (lambda a, b: a.minimum(b), (X, Y)), (lambda a: a.clip(-0.5, 0.5), (X,)),
        (lambda a, b: a.logaddexp(b), (X, Y)), (lambda a: a.square(), (X,)),
        (lambda a: a.reciprocal(), (P,)),
        (lambda a, b: a._new(multiply_add(a.uop, b.uop, a.uop)), (X, Y)),
    ],
)  # fmt: skip
def test_arithmetic(function, arrays) -> None:
    check_gradient(function, *arrays)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("exp", X), ("exp2", X), ("expm1", X), ("log", P), ("log2", P), ("log10", P), ("log1p", P),
        ("sqrt", P), ("rsqrt", P), ("sin", X), ("cos", X), ("tan", U), ("tanh", X), ("sigmoid", X),
        ("erf", X), ("gelu", X), ("silu", X), ("relu", X), ("softplus", X), ("leaky_relu", X),
        ("sinh", X), ("cosh", X),
    ],
)  # fmt: skip
def test_functions(name, array) -> None:
    check_gradient(lambda a: getattr(a, name)(), array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc", "sign"])
def test_steps_have_no_slope(name) -> None:
    (found,) = grad(getattr(Tensor(X), name)().sum(), Tensor(X))
    assert (value(found) == 0).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a.reshape(4, 3), lambda a: a.T, lambda a: a.expand(2, 3, 4), lambda a: a.flip(0),
        lambda a: a.pad(((1, 0), (0, 2)), 5), lambda a: a.shrink(((1, 3), (0, 2))),
        lambda a: a[1:, ::2], lambda a: a[::-2, ::-3], lambda a: a[:, 1::2], lambda a: a[0],
        lambda a: a[[0, 2, 0]], lambda a: a[:, [1, 1, 3]], lambda a: a[[0, 1], [2, 2]],
        lambda a: a.take([5, 5, 0]), lambda a: a.take_along_axis(Tensor([[1, 1, 0]] * 3), 1),
        lambda a: a.cat(a * 2, axis=1), lambda a: a.stack(a), lambda a: a.repeat(2, 2),
        lambda a: a.roll(1, 1), lambda a: a.tril(), lambda a: a[:, :3].diagonal(),
        lambda a: a.contiguous(), lambda a: a.cast("float32").cast("float64"),
    ],
)  # fmt: skip
def test_movement_and_selection(function) -> None:
    narrow = "float32" in str(function.__code__.co_consts)
    check_gradient(function, X, step=1e-3 if narrow else 1e-6, rtol=1e-3 if narrow else 1e-6)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "var", "std", "logsumexp"])
def test_reductions(name, axis) -> None:
    check_gradient(lambda a: getattr(a, name)(axis), X, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "layernorm", "cumsum", "cumprod", "cummax", "cummin"]
)
def test_along_an_axis(name, axis) -> None:
    check_gradient(lambda a: getattr(a, name)(axis), X, rtol=1e-5, atol=1e-6)


def test_products_with_zeros() -> None:
    x = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 1.0]])
    check_gradient(lambda a: a.prod(1), x)
    check_gradient(lambda a: a.cumprod(1), x)


def test_matrix_products() -> None:
    check_gradient(lambda a, b: a @ b, X, RNG.normal(size=(4, 2)))
    check_gradient(lambda a, b: a @ b, RNG.normal(size=(2, 2, 3)), X)
    check_gradient(lambda a, b: a @ b, X, Y[0])
    check_gradient(lambda a, b: einsum("ij,kj->ki", a, b), X, Y)
    check_gradient(lambda a: einsum("ii->i", a[:, :3]), X)


def test_convolutions_and_pools() -> None:
    x, w, b = RNG.normal(size=(2, 4, 6, 5)), RNG.normal(size=(4, 2, 3, 2)), RNG.normal(size=4)
    check_gradient(
        lambda a, k, c: a.conv2d(k, c, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        x, w, b, rtol=1e-5, atol=1e-6,
    )  # fmt: skip
    check_gradient(lambda a: a.max_pool2d(2), RNG.normal(size=(1, 2, 4, 4)))
    check_gradient(lambda a: a.max_pool2d(3, 1, 1), RNG.normal(size=(1, 1, 4, 4)))
    check_gradient(lambda a: a.avg_pool2d(3, 2, 1), RNG.normal(size=(1, 1, 5, 5)))


def test_selection_by_a_condition() -> None:
    check_gradient(lambda a, b: (Tensor(X) > 0).where(a, b), X, Y)
    check_gradient(lambda a, b: (Tensor(X) > 0).where(a, b), X[:1], Y[:, :1])


def test_second_derivatives() -> None:
    x = Tensor(X)
    for function in (
        lambda a: (a * a * a).sum(),
        lambda a: a.tanh().sum(),
        lambda a: a.softmax(1).square().sum(),
        lambda a: a.logsumexp(1).sum(),
        lambda a: a.reshape(1, 1, 3, 4).conv2d(a[:2, :2].reshape(1, 1, 2, 2)).square().sum(),
    ):
        check_gradient(lambda a, f=function: grad(f(a), a)[0], X, rtol=1e-5, atol=1e-6)
    (first,) = grad((x**4).sum(), x)
    (second,) = grad(first.sum(), x)
    np.testing.assert_allclose(value(second), 12 * X**2, rtol=1e-12)


# ---- kinks, ties, branches


def test_the_branch_not_taken_sends_no_nan() -> None:
    """jax-ml/jax#1052, tinygrad/tinygrad#12409 (D08)."""
    x = Tensor([4.0, 0.0, -1.0], requires_grad=True)
    total = (x > 0).where(x.sqrt(), 0).sum()
    total.backward()
    assert value(total) == 2
    same(x.grad, np.array([0.25, 0, 0], np.float32))


@pytest.mark.parametrize(
    ("function", "at"),
    [
        (lambda x: x.log(), 0.0), (lambda x: 1 / x, 0.0), (lambda x: x**-2, 0.0),
        (lambda x: x**0.5, 0.0), (lambda x: x.rsqrt(), 0.0), (lambda x: x.exp(), 1000.0),
        (lambda x: x**1.5, -1.0), (lambda x: x.log1p(), -1.0), (lambda x: x.log2(), -1.0),
        (lambda x: 3.0 / x, 0.0), (lambda x: x.expm1(), 1000.0), (lambda x: x.exp2(), 1e4),
    ],
)  # fmt: skip
def test_no_function_does(function, at) -> None:
    x = Tensor([2.0, at])
    safe = Tensor([True, False])
    (found,) = grad(safe.where(function(x), 0.0).sum(), x)
    out = value(found)
    assert out[1] == 0
    assert np.isfinite(out[0])


@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), (1, 2)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_the_gradient_of_an_extreme_goes_to_the_first_of_equals(name, axis) -> None:
    """As argmax and argmin find it, the first nan if there is one; and as PyTorch pools."""
    numbers = np.random.default_rng(5).integers(0, 3, (3, 4, 5)).astype(np.float32)
    numbers[1, 2, 3] = np.nan
    x = Tensor(numbers)
    axes = (0, 1, 2) if axis is None else (axis,) if isinstance(axis, int) else axis
    rest = tuple(i for i in range(3) if i not in axes)
    lines = numbers.transpose(rest + axes)
    flat = lines.reshape(-1, int(np.prod([numbers.shape[i] for i in axes])))
    weights = np.arange(1, len(flat) + 1, dtype=np.float32)
    wanted = np.zeros_like(flat)
    wanted[np.arange(len(flat)), getattr(flat, f"arg{name}")(1)] = weights
    wanted = wanted.reshape(lines.shape).transpose(np.argsort(rest + axes))
    made = getattr(x, name)(axis=axis)
    upstream = Tensor(weights.reshape(made.shape))
    same(grad(made, x, upstream)[0], wanted)


def test_the_gradient_of_pooling_goes_to_the_first_maximum_of_each_window() -> None:
    x = Tensor(np.array([[[[2, 2, 1, 0], [2, 0, 1, 1], [0, 0, 3, 1], [0, 0, 1, 3]]]], np.float32))
    same(
        grad(x.max_pool2d(2).sum(), x)[0],
        np.array([[[[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]]], np.float32),
    )
    # windows that overlap: an element gets the gradient of each whose first maximum it is
    same(
        grad(x.max_pool2d(2, stride=1).sum(), x)[0],
        np.array([[[[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 4, 0], [0, 0, 0, 0]]]], np.float32),
    )


def test_equal_operands_share_evenly() -> None:
    x = Tensor([1.0, 3.0, 3.0])
    same(grad(x.maximum(3).sum(), x)[0], np.array([0, 0.5, 0.5], np.float32))
    zero = Tensor([0.0])
    same(grad(zero.relu().sum(), zero)[0], np.array([0], np.float32))
    same(grad(abs(zero).sum(), zero)[0], np.array([0], np.float32))


def test_stable_far_out() -> None:
    x = Tensor([-200.0, 200.0, 0.0])
    for name, wanted in (("sigmoid", [0, 0, 0.25]), ("tanh", [0, 0, 1]), ("softplus", [0, 1, 0.5]),
                         ("gelu", [0, 1, 0.5]), ("silu", [0, 1, 0.5])):  # fmt: skip
        np.testing.assert_allclose(
            value(grad(getattr(x, name)().sum(), x)[0]), wanted, atol=1e-6, err_msg=name
        )


def test_the_gradient_of_a_running_sum() -> None:
    """tinygrad/tinygrad#14138, pytorch/pytorch#44350 (D06)."""
    x = Tensor(np.ones(777, np.float32))
    found = value(grad(x.cumsum().sum(), x)[0])
    assert (found == 777 - np.arange(777)).all()


# ---- leaves


def test_backward_fills_leaves_and_adds_up() -> None:
    x, y = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0])
    (x * y).sum().backward()
    same(x.grad, np.array([3, 4], np.float32))
    (x * x).sum().backward()
    same(x.grad, np.array([5, 8], np.float32))
    assert y.grad is None
    x.grad = None
    (x * y).backward(Tensor([1.0, 10.0]))
    same(x.grad, np.array([3, 40], np.float32))


def test_equal_constants_are_different_leaves() -> None:
    a, b = Tensor.zeros(2).requires_grad_(), Tensor.zeros(2).requires_grad_()
    (a * 2 + b * 3).sum().backward()
    same(a.grad, np.full(2, 2, np.float32))
    same(b.grad, np.full(2, 3, np.float32))


def test_detach_ends_the_way() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x.detach()).sum().backward()
    same(x.grad, np.array([1, 2], np.float32))
    assert not x.detach().requires_grad
    assert (x * 2).requires_grad


def test_a_leaf_ends_the_way_to_what_it_was_made_of() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    middle = (x * 3).requires_grad_()
    middle.sum().backward()
    same(middle.grad, np.ones(2, np.float32))
    assert x.grad is None


def test_backward_after_the_value_was_read() -> None:
    x = Tensor([1.0, 2.0], device="INTERP", requires_grad=True)
    loss = (x * x).sum()
    assert loss.item() == 5
    loss.backward()
    assert x.grad.tolist() == [2, 4]


def test_gradients_by_anything_that_is_not_a_leaf() -> None:
    x = Tensor(X)
    middle = x.sin()
    outer = (middle * middle).sum()
    same(grad(outer, middle)[0], 2 * np.sin(X), rtol=1e-14)
    first, second = grad([outer, x.sum()], [middle, x])
    same(first, 2 * np.sin(X), rtol=1e-14)
    same(second, 1 + 2 * np.sin(X) * np.cos(X), rtol=1e-11)
    same(grad(outer, Tensor(Y))[0], np.zeros_like(Y))
    same(outer.gradient(middle)[0], 2 * np.sin(X), rtol=1e-14)


def test_what_has_no_gradient_is_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        Tensor([1], requires_grad=True)
    with pytest.raises(TypeError, match="int64"):
        Tensor([1]).sum().backward()
    with pytest.raises(ValueError, match=r"backward of shape \(2,\)"):
        Tensor([1.0, 2.0], requires_grad=True).backward()
    with pytest.raises(RuntimeError, match="requires_grad"):
        Tensor([1.0]).sum().backward()
    with pytest.raises(ValueError, match="gradient of shape"):
        Tensor([1.0, 2.0], requires_grad=True).backward(Tensor([1.0]))


def test_a_constant_is_no_variable_unless_it_is_a_leaf() -> None:
    x = Tensor(2.0)
    with pytest.raises(ValueError, match="requires_grad=True"):
        grad(x * x, x)
    leaf = Tensor(2.0, requires_grad=True)
    same(grad(leaf * leaf * x, leaf)[0], np.float32(8))


def test_half_precision_gradients_have_their_dtype() -> None:
    x = Tensor(np.ones(3000, np.float16), requires_grad=True)
    y = Tensor(np.ones(1, np.float16), requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.dtype.name == "float16"
    assert value(y.grad).tolist() == [3000]


def test_a_chain_of_5000_operations() -> None:
    """egraphs-good/egg#50, tinygrad/tinygrad#8457 (C03)."""
    x = Tensor([0.5], requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0001 + 0.0
    y.sum().backward()
    assert value(x.grad)[0] == pytest.approx(1.0001**5000, rel=1e-3)
