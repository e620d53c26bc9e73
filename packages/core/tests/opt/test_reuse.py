"""A buffer takes the place of the one that it is made from, where nobody sees the difference."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.memory import expected, fill
from opgraft import dtypes
from opgraft.catalog import Device
from opgraft.ir import AxisKind, Ops, Space, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.opt.actions import Action, Refused, Split, Unroll
from opgraft.opt.reuse import Reuse, reuse_buffers
from opgraft.runtime import compile_kernel


def buffers(sink: UOp) -> list[object]:
    return [n.arg[0] for n in sink.toposort() if n.op is Ops.LOCAL]


def same(before: UOp, after: UOp) -> None:
    memory = fill(before)
    assert expected(after, memory) == expected(before, memory)


def local(name: str, size: int) -> UOp:
    return UOp(Ops.LOCAL, dtypes.float32, (), (name, size, Space.PRIVATE))


def row(
    turned: bool = False, read_twice: bool = False, longer: bool = False, shared: bool = False
) -> UOp:
    """Rows less their maximum, by way of two buffers; with what forbids that they are one."""
    i, e, s, j = (kernels.loop(n, x) for n, x in ((3, "i"), (6, "e"), (6, "s"), (6, "j")))
    m = kernels.over(6, "m")
    a, out = kernels.param(1, 18), kernels.param(0, 18)
    first, second = local("first", 6), local("second", 7 if longer else 6)
    raw = first.after(first.store(e, a.load(i * 6 + e) * 2.0).end(e))
    most = raw.load(m).reduce(Ops.MAX, m)
    place = s * -1 + 5 if turned else s
    less = second.after(second.store(s, raw.load(place) + most * -1.0).end(s))
    value = less.load(j) + raw.load(j) if read_twice else less.load(j)
    if shared:  # what is read of the first buffer is used beside the second one, too
        value = value + most
    return kernels.kernel("row", out.store(i * 6 + j, value).end(i, j))


def test_a_buffer_made_element_by_element_lies_where_its_source_lay() -> None:
    sink = row()
    made = Reuse("second", "first").apply(sink)
    assert buffers(made) == ["first"]
    same(sink, made)
    assert reuse_buffers(sink) is made
    assert eval(repr(Reuse("second", "first")), {"Reuse": Reuse}) == Reuse("second", "first")


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        (row(turned=True), "made of other elements"),
        (row(read_twice=True), "read elsewhere"),
        (row(shared=True), "read elsewhere"),
        (row(longer=True), "not alike"),
        (kernels.matmul(), "is no buffer"),
    ],
)
def test_buffers_stay_apart_where_old_data_would_be_missed(sink: UOp, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        Reuse("second", "first").apply(sink)
    assert reuse_buffers(sink) is sink


def test_what_is_loaded_again_after_it_was_stored_is_loaded_again() -> None:
    """Both reductions of the buffer become plain loads; those before and after are not one."""
    i, e, s, j = (kernels.loop(n, x) for n, x in ((3, "i"), (8, "e"), (8, "s"), (3, "j")))
    m, z = kernels.over(8, "m"), kernels.over(8, "z")
    a, out = kernels.param(1, 24), kernels.param(0, 9)
    first, second = local("first", 8), local("second", 8)
    raw = first.after(first.store(e, a.load(i * 8 + e)).end(e))
    made = second.after(second.store(s, raw.load(s) + raw.load(m).reduce(Ops.ADD, m)).end(s))
    sink = kernels.kernel(
        "again",
        out.store(i * 3 + j, made.load(z).reduce(Ops.MAX, z) + j.cast(dtypes.float32)).end(i, j),
    )
    steps: tuple[Action, ...] = (
        Reuse("second", "first"),
        Split("m", 4, AxisKind.VECTOR),
        Unroll("m.o"),
        Split("s", 4, AxisKind.VECTOR),
        Unroll("s.o"),
        Split("z", 4, AxisKind.VECTOR),
        Unroll("z.o"),
    )
    values = np.arange(24, dtype=np.float32) % 7
    wanted = (values.reshape(3, 8) + values.reshape(3, 8).sum(1, keepdims=True)).max(1)
    for device in (Device["INTERP"], Device["CPU"]):
        executable = compile_kernel(device, sink.replace(arg=KernelInfo("again", schedule=steps)))
        buffers = [device.buffer(36), device.buffer(96)]
        buffers[1].copy_in(values)
        executable.run(buffers, (), wait=True)
        found = np.empty((3, 3), np.float32)
        buffers[0].copy_out(found)
        np.testing.assert_array_equal(found, wanted[:, None] + np.arange(3))
