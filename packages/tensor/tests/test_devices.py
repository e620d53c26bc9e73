"""Whole programs on the devices: planned, lowered, compiled and run, they mean what NumPy says."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from checks import agree, run, value
from opgraft import journal, using
from opgraft_tensor import Tensor, einsum, grad, nn
from opgraft_tensor.devices import open_device
from opgraft_tensor.facts import Prices
from opgraft_tensor.plan import kernel_count
from opgraft_tensor.realize import settle
from tested import COMPILED, DEVICES

RNG = np.random.default_rng(9)
GRID = RNG.normal(size=(6, 9)).astype(np.float32)
IMAGE = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
KERNEL = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
WHOLE = RNG.integers(-100, 100, (4, 7))

Program = Callable[[str], list[Tensor]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


@program
def elementwise_of_floats(device):
    x = Tensor(GRID, device=device)
    return [x.exp(), x.tanh() + x.erf(), (x * 3) // 0.7, (x * 5) % -1.5, x.round(), abs(x) ** 1.5]


@program
def elementwise_of_integers(device):
    x = Tensor(WHOLE.astype(np.int16), device=device)
    return [x // 7, x % -5, x * x, x << 3, x >> 2, x**3, (x > 5) & (x < 50), x.cast("uint8")]


@program
def casts(device):
    x = Tensor(GRID * 100, device=device)
    return [x.cast(d).cast("float32") for d in ("int8", "uint16", "float16", "bfloat16", "bool")]


@program
def softmax_and_layernorm(device):
    x = Tensor(GRID, device=device)
    return [x.softmax(1), x.log_softmax(0), x.layernorm(), x.logsumexp(1)]


@program
def reductions(device):
    x, n = Tensor(GRID, device=device), Tensor(WHOLE, device=device)
    return [x.sum(), x.mean(0), x.var(1), x.max(1), x.argmax(0), n.prod(0), n.min(), (n > 0).sum(1)]


@program
def half_precision(device):
    x = Tensor(GRID.astype(np.float16), device=device)
    return [x.sum(0), x @ x.T, x.softmax(-1), x * 3 + 1]


@program
def scans(device):
    x = Tensor(GRID, device=device)
    return [x.cumsum(1), x.cumsum(0) * 2 + 1, x.cummax(1), x.cumprod(1)]


@program
def views(device):
    x = Tensor(GRID, device=device)
    return [
        x.T[::-1, 1::2].pad(((1, 0), (0, 2)), 5),
        x.reshape(9, 6).flip(0).reshape(2, 27) + 1,
        x.cat(x * 2, axis=1).roll(3, 1),
        x.repeat(2, 2)[3:, ::-3],
        x[:, :6].tril(1),
    ]


@program
def gathers(device):
    x = Tensor(GRID, device=device)
    index = Tensor([3, -1, 0], device=device)
    return [x[index], x[:, index * 1], x[index, [1, 2, 3]], x.take_along_axis(x.argmax(1, True), 1)]


@program
def products(device):
    x = Tensor(GRID, device=device)
    y = x.reshape(2, 3, 9)
    return [
        x @ x.T + 1,
        y @ y.mT,
        einsum("bij,bkj->ki", y, y),
        Tensor(WHOLE, device=device) @ WHOLE.T,
    ]


@program
def convolutions(device):
    x, w = Tensor(IMAGE, device=device), Tensor(KERNEL, device=device)
    out = x.conv2d(w, padding=1, stride=(1, 2)).relu()
    return [out, x.max_pool2d(2), x.avg_pool2d(3, 1, 1)]


@program
def attention(device):
    q, k, v = [Tensor(RNG_ATTENTION[i], device=device) for i in range(3)]
    return [(q @ k.mT / 2).softmax(-1) @ v]


RNG_ATTENTION = RNG.normal(size=(3, 2, 5, 4)).astype(np.float32)


@program
def gradients_of_a_network(device):
    x, w = Tensor(IMAGE, device=device), Tensor(KERNEL, device=device)
    v = Tensor(RNG_DENSE, device=device)
    hidden = x.conv2d(w, padding=1).relu().max_pool2d(2).flatten(1)
    loss = nn.cross_entropy(hidden @ v, Tensor([1, 0], device=device))
    return [loss, *grad(loss, [x, w, v])]


RNG_DENSE = RNG.normal(size=(36, 3)).astype(np.float32)


@program
def gradients_of_scans_and_gathers(device):
    x = Tensor(GRID, device=device)
    y = x[[0, 0, 2]].cumsum(1).square().sum() + x.max(1).sum() + (x > 0).where(x.sqrt(), 0).sum()
    return [y, *grad(y, x)]


@program
def assignments(device):
    x = Tensor(GRID, device=device)
    before = x * 2
    x[1:] = x[:-1]
    x[[0, 0], 2:4] = Tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    x[:, 0] += 10
    return [before, x, x.sum(0)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_mean_what_numpy_says(name, device) -> None:
    results = PROGRAMS[name](device)
    wanted = [value(t) for t in results]
    for tensor, found, exact in zip(results, run(*results), wanted):
        assert found.shape == exact.shape
        assert found.dtype == exact.dtype
        if exact.dtype.kind == "f":
            half = tensor.dtype.name == "float16"
            agree(found, exact, rtol=2e-3 if half else 2e-5, atol=2e-3 if half else 2e-5)
        else:
            np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("device", DEVICES)
def test_floats_keep_their_laws_when_compiled(device) -> None:
    """The cases B01 to B05 as run-time data (see test_elementwise.py for the sources)."""
    x = Tensor([2.5, np.inf, -np.inf, np.nan, -3.0, 0.0, -0.0, 1e8], device=device)
    y = Tensor([0.0, np.nan, 1.0, -0.0, 7.0, -0.0, 0.0, 0.25], device=device)
    results = [
        x * 0, x - x, x / x, x + 0.0, 0.0 - x, -x, x.maximum(y), y.maximum(x), x.minimum(y),
        x.max(), y.min(), (x + 0.25) - x, (x * x).sqrt(), x % 3, x.cast("int32").cast("float32"),
        y.cast("uint8").cast("float32"), x.argmax().cast("float32"),
    ]  # fmt: skip
    wanted = [value(t) for t in results]
    for found, exact in zip(run(*results), wanted):
        agree(found, exact)


def samples(dtype: str, device: str) -> Tensor:
    rng = np.random.default_rng(12)
    if dtype.startswith(("float", "bfloat")):
        values = rng.normal(size=21) * 10
        values[:7] = [0, -0.0, np.inf, -np.inf, np.nan, 1, 70000]
        return Tensor(values, device=device).cast(dtype).contiguous()
    info = np.iinfo(dtype)
    whole = rng.integers(info.min, info.max, 21, dtype=dtype, endpoint=True)
    whole[:5] = [0, 1, info.max, info.min, info.max - 1]
    return Tensor(whole, device=device)


DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "bfloat16", "float32", "float64"]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "device"),
    [*[(d, DEVICES[0]) for d in DTYPES], *[(d, COMPILED) for d in ("int8", "uint64", "bfloat16")]],
)
def test_every_dtype(dtype, device) -> None:
    a = samples(dtype, device)
    b = a.flip()
    results = [
        a + b,
        a - b,
        a * b,
        a // b,
        a % b,
        a < b,
        a.maximum(b),
        a.sum(),
        a.max(),
        a.argmin(),
    ]
    results += [a.cast(d) for d in ("bool", *DTYPES)]
    for found, exact in zip(run(*results), [value(t) for t in results]):
        assert found.dtype == exact.dtype
        if exact.dtype.kind == "f":
            agree(found.astype(float), exact.astype(float), rtol=1e-6)
        else:
            np.testing.assert_array_equal(found, exact)


def test_threads_may_work_at_once() -> None:
    """exo-explore/exo#389, pydata/numexpr#569 (G05)."""
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for step in range(6):
                x = Tensor(np.full(100 + step, number, np.float32), device="CPU")
                found = (x * 2 + step).sum().item()
                if found != (100 + step) * (2 * number + step):
                    wrong.append((number, step, found))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_equal_graphs_run_one_kernel_and_constants_none() -> None:
    events: list[journal.Event] = []
    with journal.listening(events.append):
        chain = Tensor(1.0, device="INTERP")
        for _ in range(50):
            chain = chain * 2 - 1
        assert chain.item() == 1
        assert not [e for e in events if e.kind == "launch"]
        for data in ([1.0, 2.0], [3.0, 4.0]):
            (Tensor(data, device="INTERP") * 7 + 1).realize()
    assert len([e for e in events if e.kind == "launch"]) == 2
    assert len([e for e in events if e.kind == "kernel"]) <= 1


def large(*size: int) -> Tensor:
    return Tensor(np.zeros(size, np.float32), device="CPU")


def batchnorm_with_relu() -> list[Tensor]:
    layer = nn.BatchNorm(64)
    return [layer(large(32, 64, 16, 16)).relu(), layer.running_mean, layer.running_var]


def attention_of_heads() -> list[Tensor]:
    q, k, v = [large(4, 8, 512, 64) for _ in range(3)]
    return [(q @ k.mT * 0.125).softmax(-1) @ v]


def adam() -> list[Tensor]:
    p = large(256, 256).requires_grad_()
    p.grad = large(256, 256)
    optimizer = nn.Adam([p])
    return [*optimizer._update(0, p, p.grad, optimizer._rates()), p]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [large(4096, 1024).softmax(-1)],
        lambda: [large(4096, 1024).layernorm() * large(1024) + large(1024)],
        attention_of_heads,
        batchnorm_with_relu,
        lambda: [large(1000, 1000).cumsum(1) * 2 + 1],
        adam,
        lambda: [(large(512, 512) @ large(512, 512) + large(512)).relu()],
        lambda: [large(8, 16, 56, 56).conv2d(large(32, 16, 3, 3), large(32), padding=1).relu()],
        lambda: [nn.cross_entropy(large(128, 10), Tensor([0] * 128, device="CPU"))],
    ],
    ids=["softmax", "layernorm", "attention", "batchnorm", "cumsum", "adam", "matmul", "conv",
         "cross entropy"],
)  # fmt: skip
def test_one_kernel_each(make) -> None:
    """As facts/kernels.md section 4 counts them, from the user's own operations, on the CPU."""
    prices = Prices.of(open_device("CPU").target)
    with using(DEVICE="CPU"):
        assert kernel_count(settle([t.uop for t in make()]), prices)[0] == 1


def test_doubling_24_times_is_one_kernel_of_bounded_length() -> None:
    """tinygrad/tinygrad#8167: exponential work in a graph of shared nodes."""
    x = Tensor(np.arange(4, dtype=np.int64), device="INTERP")
    for _ in range(24):
        x = x + x
    assert x.tolist() == [n << 24 for n in range(4)]
