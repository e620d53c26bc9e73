"""Random kernels with everything that a kernel may have run as the oracle says."""

from __future__ import annotations

from collections import Counter

import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.memory import expected, fill
from kernel_forms.random_kernels import AnyKernel, Made, compare
from opgraft import Device, UOp, dtypes
from opgraft.errors import LoweringError
from opgraft.ir import Ops, Space
from opgraft.lower.pipeline import lower
from opgraft.target import Target
from tested import COMPILED, DEVICES, sampled


def features(sink: UOp) -> set[str]:
    """What of the less usual things a kernel has."""
    nodes = sink.toposort()
    stored = {n.src[0] for n in nodes if n.op is Ops.STORE}
    found = {n.op.name for n in nodes if n.op in (Ops.SCAN, Ops.LOCAL, Ops.REDUCE, Ops.VAR)}
    for n in nodes:
        if n.op is Ops.RANGE and n.src[0].op is Ops.VAR:
            found.add("loop of variable extent")
        if n.op in (Ops.STORE, Ops.LOAD) and len(n.src) == 4:
            found.add(f"gated {n.op.name}")
        if n.op is Ops.AFTER:
            found.add(f"{n.src[0].op.name} read again")
        if n.op is Ops.CAST and n.src[0].op is Ops.LOAD and n.dtype.is_index:
            found.add("gather")
        if n.op is Ops.LOAD and n.src[0] in stored and n.src[0].op is Ops.PARAM:
            found.add("in place")
    if len(sink.src) > 1:
        found.add("several outputs")
    return found


SEEDS = range(40)


def test_these_kernels_have_everything() -> None:
    found: Counter[str] = Counter()
    for seed in SEEDS:
        found.update(features(AnyKernel(seed).make().sink))
    assert set(found) == {
        "SCAN", "LOCAL", "REDUCE", "VAR", "loop of variable extent", "gated STORE", "gated LOAD",
        "LOCAL read again", "PARAM read again", "gather", "in place", "several outputs",
    }  # fmt: skip
    assert min(found.values()) >= 3


@pytest.mark.parametrize("first", sampled(range(0, 24, 8), 3))
def test_a_kernel_with_everything_runs_as_the_oracle_says(first: int) -> None:
    devices = [Device[name] for name in DEVICES]
    for seed in SEEDS[first : first + 8]:
        # compilers are slow: a part of them there
        some = [d for d in devices if d.name != COMPILED or seed % 4 == 0 or len(devices) == 1]
        assert not compare(AnyKernel(seed).make(), some, seed), f"seed {seed}"


# ---- what they have found


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("size", [2, 4])
def test_a_condition_on_a_variable_alone_decides_about_a_loop_of_stores(
    name: str, size: int
) -> None:
    """gcc 12 vectorises such a loop at -O2, and stores nothing."""
    i, own = kernels.loop(24, "i"), kernels.loop(8, "l")
    out, a = kernels.param(0, 24, dtypes.int32), kernels.param(1, 8, dtypes.int32)
    row = UOp(Ops.LOCAL, dtypes.int32, (), ("row", 8, Space.PRIVATE))
    filled = row.after(row.store(own, a.load(own) + 2).end(own))
    n = UOp.variable("n", 0, 5)
    value = filled.load((i * -1 + 3) % 8) * 17
    sink = kernels.kernel("decided", out.store(i, value, n < 3).end(i))
    assert not compare(Made(sink, {"n": size}), [Device[name]], 3)


def test_who_reads_an_array_after_it_was_changed_reads_nothing_old() -> None:
    """Its reader came first, and brought the change along: the array was changed twice."""
    i, j = kernels.loop(9, "i"), kernels.loop(8, "j")
    x, out = kernels.param(0, 72), kernels.param(1, 9)
    store = x.store(j * 9 + i, x.load(j * 9 + i) * 2.0 + 1.0)
    value = x.after(store.end(j)).load(((i * -1 + 1) % 8) * 9 + i)
    sink = kernels.kernel("once", store.end(i, j), out.store(i, value, i < 1).end(i))
    assert not compare(Made(sink), [Device["INTERP"]], 3)


def whole_and_rows(read_rows: bool) -> UOp:
    """Rows in place, then their sum, and with `read_rows` an element of each beside it."""
    i, j, k = kernels.loop(3, "i"), kernels.loop(8, "j"), kernels.over(24, "k")
    x, out = kernels.param(0, 24), kernels.param(1, 3)
    store = x.store(i * 8 + j, x.load(i * 8 + j) * 2.0)
    value = x.after(store.end(i, j)).load(k).reduce(Ops.ADD, k)
    if read_rows:
        value = value + x.after(store.end(j)).load(i * 8)
    return kernels.kernel("whole", store.end(i, j), out.store(i, value).end(i))


def test_what_would_be_updated_in_place_twice_is_refused_with_a_remedy() -> None:
    sink = whole_and_rows(read_rows=False)
    memory = fill(sink)
    assert expected(sink, memory)[1] == [2 * sum(memory[0])] * 3
    target = Target("plain", vector_bytes=0, parallel=None)
    assert lower(sink, target).instructions
    with pytest.raises(LoweringError, match="stored in place is read again"):
        lower(whole_and_rows(read_rows=True), target)


def test_a_scan_wants_one_order_of_loops_and_what_is_read_again_another() -> None:
    """The sums of the scan are carried side by side, so that both have the second order."""
    made = AnyKernel(334).make()
    plain = Target("plain", vector_bytes=0)  # as lanes, the loop were gone
    memory = made.memory(334)
    assert interpret(lower(made.sink, plain), memory) == made.expected(memory)
