"""The handle: what it shows, what it computes and when, how Python and NumPy see it."""

from __future__ import annotations

import gc
import operator
import weakref

import numpy as np
import pytest

from checks import value
from opgraft.errors import DeviceError
from opgraft.ir.intern import live_nodes
from opgraft_tensor import Tensor, nn, realize_all
from opgraft_tensor.storage import kept
from tested import COMPILED


def test_repr_shows_shape_dtype_and_device_and_computes_nothing() -> None:
    made = Tensor([[1.0, 2.0]], device="INTERP") * 2
    assert repr(made) == "Tensor(shape=(1, 2), dtype=float32, device='INTERP')"
    assert kept(made.uop) is None
    assert "requires_grad=True" in repr(Tensor([1.0], requires_grad=True))


def test_facts() -> None:
    x = Tensor(np.zeros((2, 3), np.int16))
    assert (x.ndim, x.size, x.nbytes, len(x)) == (2, 6, 12, 2)


def test_values_as_python() -> None:
    assert Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert Tensor(2.5).item() == 2.5
    assert Tensor([[True]]).item() is True
    assert Tensor(3).tolist() == 3
    with pytest.raises(ValueError, match=r"\(2,\)"):
        Tensor([1, 2]).item()
    assert float(Tensor(2.5)) == 2.5
    assert int(Tensor(2.5)) == 2
    assert operator.index(Tensor(3)) == 3
    with pytest.raises(TypeError, match="float32"):
        operator.index(Tensor(3.0))
    assert bool(Tensor([1.0]))
    with pytest.raises(ValueError, match=r"any\(\) or all\(\)"):
        bool(Tensor([1, 2]))
    with pytest.raises(TypeError, match="no length"):
        len(Tensor(1))
    assert [t.item() for t in Tensor([1, 2])] == [1, 2]
    assert 2 in Tensor([1, 2])


def test_numpy_sees_an_array_and_leaves_operators_to_the_tensor() -> None:
    made = np.ones(2, np.float32) + Tensor([1.0, 2.0])
    assert isinstance(made, Tensor)
    assert made.tolist() == [2, 3]
    assert np.asarray(Tensor([1, 2])).tolist() == [1, 2]
    with pytest.raises(ValueError, match="copy"):
        Tensor([1]).__array__(copy=False)
    assert isinstance(np.float64(2) * Tensor([1.0]), Tensor)


def test_hash_is_identity_though_equality_is_elementwise() -> None:
    x, y = Tensor([1]), Tensor([1])
    assert len({x: 1, y: 2}) == 2
    assert (x == y).tolist() == [True]


def test_an_unknown_device_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(DeviceError, match="CPU"):
        Tensor([1], device="WARP")


def test_devices_do_not_mix_but_values_move() -> None:
    a, b = Tensor([1.0], device="INTERP"), Tensor([2.0], device="INTERP:1")
    with pytest.raises(ValueError, match="INTERP and INTERP:1"):
        a + b
    moved = b.to("INTERP") * 3
    assert moved.device == "INTERP"
    assert (a + moved).tolist() == [7.0]
    assert (b * 2).to("interp:0").tolist() == [4.0]
    assert b.to("INTERP:1").uop is b.uop


def test_what_needs_no_memory_is_computed_on_each_device_for_itself() -> None:
    tensors = [
        made
        for device in ("INTERP", COMPILED)
        for made in (Tensor.arange(3, device=device) * 2, Tensor.ones(3, device=device))
    ]
    found = [(t.tolist(), t.memory().device) for t in tensors]
    assert found == [
        ([0, 2, 4], "INTERP"), ([1, 1, 1], "INTERP"), ([0, 2, 4], COMPILED), ([1, 1, 1], COMPILED),
    ]  # fmt: skip


def test_several_tensors_are_computed_together() -> None:
    x = Tensor([1.0, 2.0, 3.0], device="INTERP")
    y, z = x * 2, (x * 2).sum()
    realize_all([y, z])
    assert kept(y.uop) is not None or y.uop.op.name == "BUFFER"
    assert (y.tolist(), z.item()) == ([2, 4, 6], 12)


def test_empty_tensors_need_no_kernel() -> None:
    x = Tensor(np.zeros((0, 3), np.float32), device="INTERP")
    assert (x + 1).numpy().shape == (0, 3)
    assert x.sum(0).tolist() == [0, 0, 0]
    assert x.cat(Tensor([[1.0, 2.0, 3.0]], device="INTERP")).tolist() == [[1, 2, 3]]
    with pytest.raises(ValueError, match="maximum"):
        x.max()


def test_graphs_and_tensors_die_without_the_garbage_collector() -> None:
    """tinygrad/tinygrad#4100, #15245 (G06)."""
    gc.collect()
    gc.disable()
    try:
        x = Tensor([1.0, 2.0], device="INTERP", requires_grad=True)
        loss = (x.softmax(0).log() * x.tanh()).sum()
        loss.backward()
        assert x.grad is not None
        watched = [weakref.ref(x), weakref.ref(loss.uop), weakref.ref(x.grad.uop)]
        del x, loss
        assert [w() for w in watched] == [None] * 3
    finally:
        gc.enable()


def test_memory_goes_with_its_last_tensor() -> None:
    """pytorch/pytorch#155778 (G06)."""
    gc.disable()
    try:
        x = Tensor(np.ones(1000, np.float32), device="INTERP")
        y = (x + 1).realize()
        watched = [weakref.ref(t.memory()) for t in (x, y)]
        watched += [weakref.ref(t.memory().buffer) for t in (x, y)]
        del x, y
        assert [w() for w in watched] == [None] * 4
    finally:
        gc.enable()


def test_training_leaves_nothing_behind() -> None:
    """tinygrad/tinygrad#10198, #10804 (G06)."""
    model = nn.Sequential(nn.Linear(3, 2, device="INTERP"), nn.BatchNorm(2, device="INTERP"))
    optimizer = nn.SGD(model.parameters())

    def step() -> None:
        x = Tensor(np.ones((4, 3), np.float32), device="INTERP")
        model(x).square().sum().backward()
        optimizer.step()

    for _ in range(2):
        step()
    gc.collect()
    gc.disable()
    step()  # makes once what the collection has thrown away
    try:
        nodes, tracked = live_nodes(), len(gc.get_objects())
        for _ in range(10):
            step()
        assert live_nodes() == nodes
        assert len(gc.get_objects()) < tracked + 50
    finally:
        gc.enable()


def test_a_value_read_twice_is_computed_once() -> None:
    x = Tensor([1.0, 2.0], device="INTERP") + 1
    x.numpy()
    node = x.uop
    x.numpy()
    assert x.uop is node
    assert value(x).tolist() == [2, 3]


def test_an_integer_beyond_64_bits_is_refused() -> None:
    for data in (2**70, -(2**63) - 1, [2**70]):
        with pytest.raises(OverflowError):
            Tensor(data)
    assert Tensor(-(2**63)).item() == -(2**63)
