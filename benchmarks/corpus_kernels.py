"""The programs whose kernels make the corpus: what tensor plans for the device NULL.

Nothing runs, and NULL's target is the same on every machine, so the kernels are too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from opgraft import Device, journal, settings
from opgraft.ir.uop import UOp
from opgraft_tensor import Tensor, manual_seed, nn

Program = Callable[[], "Tensor | Callable[[], object]"]
"""Prepares inputs, and gives an array that is wanted, or a step that is to be run."""


def array(*size: int, dtype: str = "float32") -> Tensor:
    """An input: memory that nothing is known of."""
    return Tensor.empty(*size, dtype=dtype).realize()


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * 0.125
    if causal:
        length = int(scores.shape[-1])
        scores = Tensor.ones(length, length).tril().equal(0.0).where(-1e9, scores)
    return scores.softmax(-1) @ v


# ---- the workloads of the benchmarks, and shapes beside them

_LONG: Final = 10_000_000


def fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a * b + c) * 0.5 - a / (1 + b * b)


WORKLOADS: Final[dict[str, Program]] = {
    "fused": lambda: fused(array(_LONG), array(_LONG), array(_LONG)),
    "sum_all": lambda: array(_LONG).sum(),
    "max_all": lambda: array(_LONG).max(),
    "sum_row": lambda: array(4096, 4096).sum(1),
    "sum_col": lambda: array(4096, 4096).sum(0),
    "max_row": lambda: array(4096, 4096).max(1),
    "max_col": lambda: array(4096, 4096).max(0),
    "softmax": lambda: array(4096, 1024).softmax(-1),
    "layernorm": lambda: array(4096, 1024).layernorm(eps=1e-5) * array(1024) + array(1024),
    "matmul_512": lambda: array(512, 512) @ array(512, 512),
    "matmul_2048": lambda: array(2048, 2048) @ array(2048, 2048),
    "matmul_f64": lambda: array(1024, 1024, dtype="float64") @ array(1024, 1024, dtype="float64"),
    "matmul_f16": lambda: array(256, 256, dtype="float16") @ array(256, 256, dtype="float16"),
    "matmul_odd": lambda: array(1000, 777) @ array(777, 1301),
    "matmul_transposed": lambda: array(512, 512) @ array(512, 512).transpose(0, 1),
    "matmul_int8": lambda: (
        array(512, 512, dtype="int8").cast("int32") @ array(512, 512, dtype="int8").cast("int32")
    ),
    "conv": lambda: array(8, 64, 56, 56).conv2d(array(64, 64, 3, 3), padding=1),
    "attention": lambda: attention(*[array(4, 8, 512, 64) for _ in range(3)]),
    "attention_causal": lambda: attention(*[array(2, 4, 128, 32) for _ in range(3)], causal=True),
    "gather": lambda: array(50000, 256)[array(8192, dtype="int32")],
    "cumsum": lambda: array(_LONG).cumsum(0),
    "transpose": lambda: array(4096, 4096).transpose(0, 1).contiguous(),
    "exp": lambda: array(_LONG).exp(),
    "log": lambda: array(_LONG).log(),
    "sin": lambda: array(_LONG).sin(),
    "uniform": lambda: Tensor.rand(256, 64),
}


# ---- arrays taken apart and put together: what their kernels compute is indices


def windows(x: Tensor, size: int) -> Tensor:
    """(n, h, w, c) as squares of pixels: (n * h/size * w/size, size * size, c)."""
    n, h, w, c = (int(extent) for extent in x.shape)
    parts = x.reshape(n, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5)
    return parts.reshape(-1, size * size, c)


def together(x: Tensor, h: int, w: int, size: int) -> Tensor:
    """What `windows` took apart."""
    c = int(x.shape[-1])
    parts = x.reshape(-1, h // size, w // size, size, size, c).permute(0, 1, 3, 2, 4, 5)
    return parts.reshape(-1, h, w, c)


def pixel_shuffle(x: Tensor, by: int) -> Tensor:
    n, c, h, w = (int(extent) for extent in x.shape)
    parts = x.reshape(n, c // by**2, by, by, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // by**2, h * by, w * by)


def pixel_unshuffle(x: Tensor, by: int) -> Tensor:
    n, c, h, w = (int(extent) for extent in x.shape)
    parts = x.reshape(n, c, h // by, by, w // by, by).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(n, c * by**2, h // by, w // by)


def columns(x: Tensor, size: int) -> Tensor:
    """The windows of each channel as columns of a matrix."""
    n, c, h, w = (int(extent) for extent in x.shape)
    h, w = h - size + 1, w - size + 1
    shifted = [x[:, :, i : i + h, j : j + w] for i in range(size) for j in range(size)]
    return shifted[0].stack(*shifted[1:], axis=2).reshape(n, c * size * size, h * w)


VIEWS: Final[dict[str, Program]] = {
    "rolled": lambda: array(3, 108, 191).roll((37, 11), (1, 2)).contiguous(),
    "rolled_flat": lambda: array(300, 470).roll(1234).contiguous(),
    "flipped_frames": lambda: array(28, 30).flip(0).reshape(35, 24).transpose(0, 1).contiguous(),
    "reshaped_transpose": lambda: array(350, 480).transpose(0, 1).reshape(300, 560).sum(1),
    "patches": lambda: windows(array(8, 60, 90, 3), 6) @ array(3, 16),
    "windows_rolled": lambda: windows(array(2, 56, 56, 96).roll((-3, -3), (1, 2)), 7).contiguous(),
    "windows_back": lambda: (
        together(array(128, 49, 96), 56, 56, 7).roll((3, 3), (1, 2)).contiguous()
    ),
    "pixel_shuffle": lambda: pixel_shuffle(array(2, 27, 64, 65), 3).contiguous(),
    "pixel_unshuffle": lambda: pixel_unshuffle(array(2, 3, 192, 195), 3).contiguous(),
    "upsampled": lambda: array(3, 65, 67).repeat_interleave(3, 1).repeat_interleave(3, 2) * 2.0,
    "tiled": lambda: array(30, 47).repeat(3, 5).contiguous(),
    "interleaved": lambda: array(44100).stack(array(44100), array(44100), axis=1).flatten() * 1.0,
    "columns": lambda: array(16, 72) @ columns(array(2, 8, 28, 28), 3)[0],
}


# ---- a step of training of networks, forwards, backwards and the optimizer's


def labels(count: int) -> Tensor:
    return array(count, dtype="int32")


def parameters(*layers: nn.Module) -> list[Tensor]:
    """The parameters of all layers, their initial values made."""
    return [p.realize() for layer in layers for p in layer.parameters()]


def training(loss: Callable[[], Tensor], optimizer: nn.Optimizer) -> Callable[[], object]:
    def step() -> None:
        made = loss()
        made.backward()
        optimizer.step()
        made.realize()

    return step


def mlp() -> Callable[[], object]:
    """The workload of this name."""
    weights = [array(*s) for s in ((784, 128), (128,), (128, 10), (10,))]
    for weight in weights:
        weight.requires_grad_()
    w1, b1, w2, b2 = weights
    x, y = array(128, 784), labels(128)
    return training(
        lambda: nn.cross_entropy((x @ w1 + b1).relu() @ w2 + b2, y), nn.SGD(weights, lr=0.1)
    )


def digits() -> Callable[[], object]:
    """The network of examples/digits.py."""
    layers = [nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 10)]
    dropout, x, y = nn.Dropout(0.3), array(64, 1, 8, 8), labels(64)
    first, second, third = layers

    def loss() -> Tensor:
        hidden = dropout(first(x.flatten(1)).relu())
        return nn.cross_entropy(third(dropout(second(hidden).relu())), y)

    return training(loss, nn.AdamW(parameters(*layers), lr=3e-3))


def convolutional() -> Callable[[], object]:
    """Two convolutions, each with a pooling, the first with a normalisation; a linear layer."""
    first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
    norm, last = nn.BatchNorm(8), nn.Linear(16 * 4, 10)
    images, y = array(32, 1, 8, 8), labels(32)

    def loss() -> Tensor:
        x = norm(first(images)).relu().max_pool2d(2)
        return nn.cross_entropy(last(second(x).relu().avg_pool2d(2).flatten(1)), y)

    return training(loss, nn.SGD(parameters(first, norm, second, last), lr=0.1))


def transformer() -> Callable[[], object]:
    """One block: an embedding, causal attention in four heads, a hidden layer; next tokens."""
    batch, length, width, heads, tokens = 4, 32, 64, 4, 96
    embedding, head = nn.Embedding(tokens, width), nn.Linear(width, tokens)
    before, after = nn.LayerNorm(width), nn.LayerNorm(width)
    queries, keys, values, joined = [nn.Linear(width, width) for _ in range(4)]
    up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    layers = (embedding, head, before, after, queries, keys, values, joined, up, down)
    given, wanted = array(batch, length, dtype="int32"), labels(batch * length)

    def split(x: Tensor) -> Tensor:
        return x.reshape(batch, length, heads, width // heads).transpose(1, 2)

    def loss() -> Tensor:
        x = embedding(given)
        y = before(x)
        mixed = attention(split(queries(y)), split(keys(y)), split(values(y)), causal=True)
        x = x + joined(mixed.transpose(1, 2).reshape(batch, length, width))
        x = x + down(up(after(x)).gelu())
        return nn.cross_entropy(head(x).reshape(batch * length, tokens), wanted)

    return training(loss, nn.SGD(parameters(*layers), lr=1e-3))


NETWORKS: Final[dict[str, Program]] = {
    "mlp": mlp,
    "digits": digits,
    "convolutional": convolutional,
    "transformer": transformer,
}


# ---- what is planned for them

PLANNED: Final = {
    "DEVICE": "NULL",
    "NULL_CC": "",
    "CACHE": "off",
    "PLUGINS": "",
    "FLOAT": "strict",
    "OPTIMIZER": "greedy",
    "EGRAPH": None,
}
"""The settings to plan with."""


def kernels_of(program: Program) -> list[UOp]:
    """The kernels that a program runs, each once, in order."""
    found: dict[UOp, None] = {}

    def hear(event: journal.Event) -> None:
        if event.kind == "kernel":
            found[event.details["sink"]] = None

    manual_seed(0)
    Device["NULL"].kernels.clear()  # else those that an earlier program shares are not made
    made = program()
    with journal.listening(hear):
        if isinstance(made, Tensor):
            made.realize()
        else:
            made()
    return list(found)


def kernels() -> Iterator[tuple[str, UOp]]:
    """All kernels of the corpus with their names, those that programs share under the first's."""
    with settings.using(**PLANNED):
        known: dict[UOp, None] = {}
        groups = (("workloads", WORKLOADS), ("views", VIEWS), ("networks", NETWORKS))
        for folder, programs in groups:
            for name, program in programs.items():
                found = [sink for sink in kernels_of(program) if sink not in known]
                known.update(dict.fromkeys(found))
                for number, sink in enumerate(found):
                    place = "" if len(found) == 1 else f"_{number:02d}"
                    yield f"{folder}/{name}{place}", sink
