"""Sums weighted by exponentials of differences to a maximum, taken in blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernel_forms import kernels
from opgraft import DType, dtypes
from opgraft.catalog import Device
from opgraft.ir import Ops, Space, UOp
from opgraft.opt.actions import Action, Refused
from opgraft.opt.axes import Kernel
from opgraft.opt.distribute import Distribute
from opgraft.opt.partial import Partial, in_parts, is_exponential
from opgraft.opt.tile import Outermost
from opgraft.runtime import compile_kernel
from opgraft.settings import using
from opgraft.target import Target

QUERIES, KEYS, WIDTH = 5, 24, 6


def attention(
    base: float = 1.5,
    power: Any = UOp.exp2,
    divided: bool = True,
    weighs: DType = dtypes.float32,
) -> UOp:
    """Rows of softmax(q @ k.T) @ v, its scores, weights and shares each in a buffer; all from the
    weights on in the dtype `weighs`."""
    q, d, t = kernels.loop(QUERIES, "q"), kernels.loop(WIDTH, "d"), kernels.over(WIDTH, "t")
    s, e, f = (kernels.loop(KEYS, x) for x in "sef")
    m, n, r = (kernels.over(KEYS, x) for x in "mnr")
    one, two, three = (kernels.param(p, x * WIDTH) for p, x in ((1, QUERIES), (2, KEYS), (3, KEYS)))

    def buffer(name: str, dtype: DType = weighs) -> UOp:
        return UOp(Ops.LOCAL, dtype, (), (name, KEYS, Space.PRIVATE))

    dot = (one.load(q * WIDTH + t) * two.load(s * WIDTH + t)).reduce(Ops.ADD, t)
    scores = buffer("scores", dtypes.float32)
    scores = scores.after(scores.store(s, dot).end(s))
    top = (scores.load(m) * 0.5).reduce(Ops.MAX, m)
    weights = buffer("weights")
    weight = power((scores.load(e) * 0.5 + top * -1.0) * base).cast(weighs)
    weights = weights.after(weights.store(e, weight).end(e))
    last = weights
    if divided:
        shares = buffer("shares")
        total = weights.load(n).reduce(Ops.ADD, n)
        value = weights.load(f) * UOp(Ops.FDIV, weighs, (UOp.const(weighs, 1), total))
        last = shares.after(shares.store(f, value).end(f))
    total = (last.load(r) * three.load(r * WIDTH + d).cast(weighs)).reduce(Ops.ADD, r)
    out = kernels.param(0, QUERIES * WIDTH)
    return kernels.kernel(
        "attention", out.store(q * WIDTH + d, total.cast(dtypes.float32)).end(q, d)
    )


def run(sink: UOp, schedule: tuple[Action, ...], *arrays: np.ndarray[Any, Any]) -> Any:
    device = Device["CPU"]
    executable = compile_kernel(device, sink.replace(arg=replace(sink.arg, schedule=schedule)))
    out = np.full((QUERIES, WIDTH), np.nan, np.float32)
    buffers = [device.buffer(a.nbytes) for a in (out, *arrays)]
    for buffer, values in zip(buffers[1:], arrays, strict=True):
        buffer.copy_in(values)
    executable.run(buffers, (), wait=True)
    buffers[0].copy_out(out)
    return out


def inputs(seed: int = 1) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(seed)
    shapes = ((QUERIES, WIDTH), (KEYS, WIDTH), (KEYS, WIDTH))
    return [draw.uniform(-2, 2, shape).astype(np.float32) for shape in shapes]


SCHEDULES: dict[str, tuple[Action, ...]] = {
    "blocks": (Partial("m", 6),),
    "two blocks": (Partial("m", 12),),
    "rows of blocks": (Partial("m", 8), Distribute("q"), Outermost(("m.b",))),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("divided", [False, True])
def test_attention_in_blocks_is_attention(schedule: tuple[Action, ...], divided: bool) -> None:
    arrays = inputs()
    sink = attention(divided=divided)
    found = run(sink, schedule, *arrays)
    np.testing.assert_allclose(found, run(sink, (), *arrays), rtol=2e-5, atol=1e-6)
    scores = arrays[0].astype(np.float64) @ arrays[1].T * 0.5
    weights = np.exp2((scores - scores.max(1, keepdims=True)) * 1.5)
    if divided:
        weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(found, weights @ arrays[2], rtol=2e-5, atol=1e-5)


def test_infinite_scores_and_nan_mean_what_they_mean_in_whole_rows() -> None:
    """A block without any score that counts, a row without any, plus infinity, and nan."""
    q, k, v = inputs(2)
    q[:] = 1.0
    k[:, 1:] = 0.0
    q[:, 1:] = 1.0
    k[:8, 0] = -np.inf
    sink = attention()
    for change in (None, -np.inf, np.inf, np.nan):
        if change is not None and change < 0:
            k[:, 0] = change
        elif change is not None:
            k[:, 0], k[11, 0] = 1.0, change
        wanted = run(sink, (), q, k, v)
        found = run(sink, SCHEDULES["blocks"], q, k, v)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
        assert np.isfinite(found).all() == (change is None)


@pytest.mark.parametrize("divided", [False, True])
def test_weights_may_be_of_another_dtype_than_scores(divided: bool) -> None:
    arrays = inputs()
    sink = attention(divided=divided, weighs=dtypes.float64)
    with using(SPEC=True):
        found = run(sink, SCHEDULES["rows of blocks"], *arrays)
    np.testing.assert_allclose(found, run(sink, (), *arrays), rtol=2e-5, atol=1e-6)


def test_no_buffer_of_a_whole_row_is_left() -> None:
    made = Partial("m", 6).apply(attention())
    sizes = [n.arg[1] for n in made.toposort() if n.op is Ops.LOCAL]
    assert sizes
    assert max(sizes) == KEYS // 6 * WIDTH  # what is kept of each block


def test_only_exponentials_of_differences_are_taken_in_blocks() -> None:
    x = UOp(Ops.PARAM, dtypes.float32, (), (9, 1)).load(UOp.const(dtypes.index, 0))
    assert is_exponential((x * 0.7).exp2(), x)
    assert not is_exponential((x * -0.7).exp2(), x)
    assert not is_exponential((x * 0.7).exp2() * 2.0, x)
    assert not is_exponential(x * x, x)
    assert not is_exponential((x * 0.7).exp2() + 0.125, x)
    with pytest.raises(Refused, match="exponentials"):
        Partial("m", 6).apply(attention(power=lambda x: x * x))
    with pytest.raises(Refused, match="even blocks"):
        Partial("m", 7).apply(attention())
    with pytest.raises(Refused, match="no single maximum"):
        Partial("t", 3).apply(attention())
    assert eval(repr(Partial("m", 6)), {"Partial": Partial}) == Partial("m", 6)


def test_only_rows_beyond_the_cache_are_taken_in_blocks() -> None:
    target = Target("test", vector_bytes=32, cores=1)
    assert in_parts(attention(), target) is attention()
    made = in_parts(attention(), replace(target, cache_bytes=(512, 2048, 4096)))
    assert any(str(r.arg[0]) == "m.b" for r in Kernel(made).ranges)
