"""The cases of `shapes.py`: shapes and dtypes that nobody tunes for, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Input = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Case:
    """What is timed: a function of a library and of arrays."""

    group: str
    name: str
    inputs: tuple[Input, ...]
    run: Callable[..., Any]
    tolerance: float = 1e-4

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The values of the inputs, the same in every process."""
        numbers = np.random.default_rng(len(self.name))
        made: list[np.ndarray[Any, Any]] = []
        for shape, dtype in self.inputs:
            if dtype == "bool":
                made.append(numbers.random(shape) < 0.5)
            elif "int" in dtype:
                high = 100 if dtype == "int8" else 5000
                made.append(numbers.integers(-high if dtype == "int8" else 0, high, shape, dtype))
            else:
                wide = np.float64 if dtype == "float64" else np.float32
                made.append((numbers.random(shape, dtype=wide) * 2 - 1).astype(wide))
        return made


F = "float32"
COARSE = {"float16": 4e-3, "bfloat16": 3e-2}


def cases() -> list[Case]:
    """All of them, in order."""
    return [*_rows(), *_views(), *_dtypes(), *_reductions(), *_scans(), *_math(), *_products()]


def _rows() -> Iterator[Case]:
    """Rows of 3 to 5000: reductions along them, softmax and layernorm of them."""
    for columns in (3, 17, 64, 100, 333, 1000, 5000):
        rows = max(100, 2_000_000 // columns)
        one = (((rows, columns), F),)
        scaled = (*one, ((columns,), F), ((columns,), F))
        size = f"{rows}x{columns}"
        yield Case("rows", f"sum(1) {size}", one, lambda o, x: o.sum(x, 1))
        yield Case("rows", f"max(1) {size}", one, lambda o, x: o.max(x, 1))
        yield Case("rows", f"softmax {size}", one, lambda o, x: o.softmax(x))
        yield Case("rows", f"layernorm {size}", scaled, lambda o, *xs: o.layernorm(*xs), 1e-3)
        yield Case("rows", f"sum(0) {size}", one, lambda o, x: o.sum(x, 0), 1e-3)


def _views() -> Iterator[Case]:
    """Strided, permuted, padded and broadcast inputs."""
    big = ((2048, 2048), F)
    pair, odd = (big, big), ((1999, 2003), F)
    yield Case("views", "a[::2]*b[1::2]", pair, lambda o, a, b: a[::2] * b[1::2])
    yield Case("views", "a[:,::2]+b[:,1::2]", pair, lambda o, a, b: a[:, ::2] + b[:, 1::2])
    yield Case("views", "a+b.T", pair, lambda o, a, b: a + o.transposed(b))
    yield Case("views", "copy of a.T", (big,), lambda o, a: o.copy(o.transposed(a)))
    yield Case("views", "copy of a.T 1999x2003", (odd,), lambda o, a: o.copy(o.transposed(a)))
    yield Case(
        "views", "copy of a.T int8", (((2048, 2048), "int8"),), lambda o, a: o.copy(o.transposed(a))
    )
    yield Case(
        "views",
        "copy of a.T float64",
        (((1500, 1500), "float64"),),
        lambda o, a: o.copy(o.transposed(a)),
    )
    cube = (((64, 128, 300), F),)
    yield Case("views", "permute 2,0,1", cube, lambda o, a: o.copy(o.permute(a, 2, 0, 1)))
    yield Case("views", "permute 1,0,2", cube, lambda o, a: o.copy(o.permute(a, 1, 0, 2)))
    heads = (((4, 512, 8, 64), F),)
    yield Case("views", "heads 0,2,1,3", heads, lambda o, a: o.copy(o.permute(a, 0, 2, 1, 3)))
    outer = (((2000, 1), F), ((1, 3001), F))
    yield Case("views", "column+row", outer, lambda o, a, b: a + b)
    bias = (((2000, 1001), F), ((1001,), F))
    yield Case("views", "a*row 1001", bias, lambda o, a, b: a * b)
    image = (((8, 16, 100, 100), F), ((1, 16, 1, 1), F))
    yield Case("views", "image*channel", image, lambda o, a, b: a * b)
    yield Case("views", "pad 1", (odd,), lambda o, a: o.pad(a, (1, 1), (1, 1)))
    yield Case("views", "pad 3 + 1", (odd,), lambda o, a: o.pad(a, (3, 0), (0, 3)) + 1.0)
    yield Case("views", "a[1:]-a[:-1]", (odd,), lambda o, a: a[1:] - a[:-1])
    yield Case("views", "a[:,1:]-a[:,:-1]", (odd,), lambda o, a: a[:, 1:] - a[:, :-1])
    yield Case("views", "cat columns", pair, lambda o, a, b: o.cat(1, a, b))
    table = (((50_000, 100), F), ((8192,), "int32"))
    yield Case("views", "take rows of 100", table, lambda o, t, i: o.take(t, i))


def _dtypes() -> Iterator[Case]:
    """float16, bfloat16, float64, int8, bool."""
    for dtype in ("float16", "bfloat16", "float64"):
        shape = (1000, 2001)
        one, two = ((shape, dtype),), ((shape, dtype), (shape, dtype))
        near = COARSE.get(dtype, 1e-9)
        yield Case("dtypes", f"a*b+a {dtype}", two, lambda o, a, b: a * b + a, near)
        yield Case("dtypes", f"sum(1) {dtype}", one, lambda o, a: o.sum(a, 1), 4 * near)
        yield Case("dtypes", f"max(0) {dtype}", one, lambda o, a: o.max(a, 0), near)
        yield Case("dtypes", f"softmax {dtype}", one, lambda o, a: o.softmax(a), near)
        yield Case("dtypes", f"exp {dtype}", one, lambda o, a: o.exp(a), near)
    small = (((3000, 1001), "int8"), ((3000, 1001), "int8"))
    yield Case("dtypes", "a+b int8", small, lambda o, a, b: a + b)
    yield Case("dtypes", "a*b-a int8", small, lambda o, a, b: a * b - a)
    yield Case("dtypes", "a<b int8", small, lambda o, a, b: a < b)
    yield Case("dtypes", "sum int8", small[:1], lambda o, a: o.sum(a))
    yield Case("dtypes", "sum(1) int8", small[:1], lambda o, a: o.sum(a, 1))
    yield Case("dtypes", "max(1) int8", small[:1], lambda o, a: o.max(a, 1))
    truth = (((3000, 1001), "bool"), ((3000, 1001), "bool"))
    yield Case("dtypes", "a&b bool", truth, lambda o, a, b: a & b)
    yield Case("dtypes", "sum(1) bool", truth[:1], lambda o, a: o.sum(a, 1))
    yield Case("dtypes", "any(0) bool", truth[:1], lambda o, a: o.any(a, 0))
    chosen = (((1500, 1001), "bool"), ((1500, 1001), F), ((1500, 1001), F))
    yield Case("dtypes", "where bool", chosen, lambda o, c, a, b: o.where(c, a, b))
    whole = (((1000, 2001), "int32"), ((1000, 2001), "int32"))
    yield Case("dtypes", "a*b+a int32", whole, lambda o, a, b: a * b + a)


def _reductions() -> Iterator[Case]:
    """Over several axes, of odd sizes, of everything."""
    cube = (((50, 64, 700), F),)
    for axes in ((0,), (1,), (0, 1), (0, 2), (1, 2)):
        text = ",".join(map(str, axes))
        yield Case(
            "reduce", f"sum({text}) 50x64x700", cube, lambda o, a, axes=axes: o.sum(a, *axes), 1e-3
        )
    image = (((16, 32, 60, 60), F),)
    yield Case("reduce", "mean(0,2,3) image", image, lambda o, a: o.mean(a, 0, 2, 3), 1e-3)
    yield Case("reduce", "max(2,3) image", image, lambda o, a: o.max(a, 2, 3))
    for count in (3_000_001, 10_000_000):
        one = (((count,), F),)
        yield Case("reduce", f"sum {count}", one, lambda o, a: o.sum(a), 1e-2)
        yield Case("reduce", f"max {count}", one, lambda o, a: o.max(a))
    two = (((1_000_003,), F), ((1_000_003,), F))
    yield Case("reduce", "mean((a-b)^2)", two, lambda o, a, b: o.mean((a - b) * (a - b)))
    yield Case("reduce", "sum(a*b)", two, lambda o, a, b: o.sum(a * b), 1e-2)


def _scans() -> Iterator[Case]:
    for shape, axis in (
        ((3_000_001,), 0),
        ((1000, 2001), 1),
        ((1000, 2001), 0),
        ((100_000, 17), 1),
    ):
        one = ((shape, F),)
        name = f"cumsum({axis}) {'x'.join(map(str, shape))}"
        yield Case("scans", name, one, lambda o, a, axis=axis: o.cumsum(a, axis), 2e-2)


def _math() -> Iterator[Case]:
    one = (((3_000_001,), F),)
    yield Case("math", "exp", one, lambda o, a: o.exp(a))
    yield Case("math", "log(|a|+1)", one, lambda o, a: o.log(abs(a) + 1.0))
    yield Case("math", "sin", one, lambda o, a: o.sin(a))
    yield Case("math", "tanh", one, lambda o, a: o.tanh(a))


def _products() -> Iterator[Case]:
    """Products, convolutions and attention of odd shapes."""

    def product(o: Any, a: Any, b: Any) -> Any:
        return o.matmul(a, b)

    shapes = (((1000, 777), (777, 1301)), ((512, 17), (17, 512)), ((1000, 1000), (1000, 17)))
    for left, right in shapes:
        name = f"matmul {left[0]}x{left[1]}x{right[1]}"
        yield Case("products", name, ((left, F), (right, F)), product, 1e-3)
    square = (((700, 700), F), ((700, 700), F))
    yield Case("products", "a.T@b 700", square, lambda o, a, b: o.transposed(a) @ b, 1e-3)
    yield Case("products", "a@b.T 700", square, lambda o, a, b: a @ o.transposed(b), 1e-3)
    yield Case("products", "64 of 32x32", (((64, 32, 32), F), ((64, 32, 32), F)), product)
    yield Case("products", "64 of 100x60x80", (((64, 100, 60), F), ((64, 60, 80), F)), product)
    yield Case("products", "matvec 2000x3000", (((2000, 3000), F), ((3000, 1), F)), product, 1e-3)
    yield Case("products", "vecmat 3000x2000", (((1, 3000), F), ((3000, 2000), F)), product, 1e-3)
    double = (((500, 500), "float64"), ((500, 500), "float64"))
    yield Case("products", "matmul 500 float64", double, product, 1e-9)
    for dtype in ("float16", "bfloat16"):
        half = (((300, 300), dtype), ((300, 300), dtype))
        yield Case("products", f"matmul 300 {dtype}", half, product, 10 * COARSE[dtype])
    small = (((300, 400), "int8"), ((400, 296), "int8"))
    yield Case("products", "matmul int8 to int32", small, lambda o, a, b: o.integer_matmul(a, b))
    image = ((4, 32, 56, 56), F)
    for name, weight, options in (
        ("stride 2", (64, 32, 3, 3), {"stride": 2, "padding": 1}),
        ("dilation 2", (32, 32, 3, 3), {"dilation": 2, "padding": 2}),
        ("groups 4", (64, 8, 3, 3), {"groups": 4, "padding": 1}),
        ("depthwise", (32, 1, 3, 3), {"groups": 32, "padding": 1}),
        ("1x1", (64, 32, 1, 1), {}),
    ):
        inputs = (image, (weight, F))

        def conv(o: Any, x: Any, w: Any, options: dict[str, int] = options) -> Any:
            return o.conv2d(x, w, **options)

        yield Case("products", f"conv {name}", inputs, conv, 1e-3)
    heads = ((2, 8, 300, 64), F)
    yield Case(
        "products",
        "attention causal",
        (heads, heads, heads),
        lambda o, q, k, v: o.attention(q, k, v, True),
    )
    query = ((2, 8, 1, 64), F)
    yield Case(
        "products",
        "attention 1 query",
        (query, heads, heads),
        lambda o, q, k, v: o.attention(q, k, v),
    )
