"""Array nodes: shapes, checked constructors, and what construction makes of the trivial."""

from __future__ import annotations

import numpy as np
import pytest

from opgraft.dtype import dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.graph import shape
from opgraft_tensor.storage import Storage, buffer_node, keep, kept
from oracle import evaluate_numpy


def buffer(*size: int, dtype=dtypes.float32) -> UOp:
    return buffer_node(Storage(size, dtype, "CPU"))


def filled(values: np.ndarray) -> UOp:
    return buffer_node(Storage(values.shape, dtypes.float64, "CPU", values))


def test_two_storages_are_two_nodes_and_one_storage_is_one() -> None:
    storage = Storage((3,), dtypes.int8, "CPU")
    assert buffer_node(storage) is buffer_node(storage)
    assert buffer_node(storage) is not buffer_node(Storage((3,), dtypes.int8, "CPU"))


def test_views_that_change_nothing_are_not_built() -> None:
    x = buffer(2, 3)
    assert graph.reshape(x, (2, 3)) is x
    assert graph.permute(x, (0, 1)) is x
    assert graph.expand(x, (2, 3)) is x
    assert graph.pad(x, ((0, 0), (0, 0))) is x
    assert graph.slice_(x, ((0, 2, 1), (0, 3, 1))) is x
    assert graph.cast(x, dtypes.float32) is x


def test_views_of_views_of_one_kind_are_one_view() -> None:
    x = buffer(4, 6)
    assert graph.reshape(graph.reshape(x, (24,)), (2, 12)).src == (x,)
    assert graph.reshape(graph.reshape(x, (24,)), (4, 6)) is x
    assert graph.permute(graph.permute(x, (1, 0)), (1, 0)) is x
    assert graph.flip(graph.flip(x, (0, 1)), (0, 1)) is x
    assert graph.pad(graph.pad(x, ((1, 0), (0, 2))), ((0, 3), (1, 0))).arg == ((1, 3), (1, 2))
    twice = graph.slice_(graph.slice_(x, ((1, 3, 1), (5, 3, -2))), ((0, 2, 2), (2, 2, -1)))
    assert twice.arg == ((1, 2, 2), (1, 2, 2))
    assert twice.src == (x,)


def test_moving_axes_of_extent_one_is_a_reshape() -> None:
    assert graph.permute(buffer(1, 5, 1), (1, 0, 2)).op is Ops.RESHAPE


def test_views_of_constants_are_constants() -> None:
    seven = graph.full((2, 3), dtypes.float32, 7.0)
    for view in (
        graph.reshape(seven, (6,)),
        graph.permute(seven, (1, 0)),
        graph.slice_(seven, ((0, 1, 1), (0, 2, 1))),
        graph.elementwise(Ops.ADD, seven, graph.full((), dtypes.float32, 1.0)),
        graph.cast(seven, dtypes.int8),
    ):
        assert graph.constant_of(view) is not None
    zeros = graph.full((2,), dtypes.float32, 0.0)
    assert graph.constant_of(graph.pad(zeros, ((1, 1),))) is not None
    # a negative zero is not what padding puts around
    minus = graph.full((2,), dtypes.float32, -0.0)
    assert graph.constant_of(graph.pad(minus, ((1, 1),))) is None


def test_a_product_with_one_is_not_built_but_a_sum_with_zero_is() -> None:
    x = buffer(3)
    assert graph.elementwise(Ops.MUL, x, graph.full((), dtypes.float32, 1)) is x
    assert graph.elementwise(Ops.ADD, x, graph.full((), dtypes.float32, 0)) is not x


def test_reductions_drop_extents_of_one_and_give_identities_of_nothing() -> None:
    x = buffer(3, 1, 4)
    reduced = graph.reduce_axis(x, Ops.ADD, (0, 1))
    assert reduced.arg == (Ops.ADD, (0,))
    assert shape(reduced) == (4,)
    assert graph.reduce_axis(x, Ops.ADD, (1,)).op is Ops.RESHAPE
    empty = buffer(0, 2)
    assert graph.constant_of(graph.reduce_axis(empty, Ops.MUL, (0,))).arg == 1.0
    with pytest.raises(ValueError, match=r"maximum of shape \(0, 2\)"):
        graph.reduce_axis(empty, Ops.MAX, (0,))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda x: graph.reshape(x, (4, 2)), r"\(2, 3\).*\(4, 2\)"),
        (lambda x: graph.permute(x, (0, 0)), r"\(2, 3\)"),
        (lambda x: graph.expand(x, (2, 4)), r"\(2, 3\).*\(2, 4\)"),
        (lambda x: graph.pad(x, ((-1, 0), (0, 0))), "pad"),
        (lambda x: graph.slice_(x, ((0, 3, 1), (0, 3, 1))), "leaves shape"),
        (lambda x: graph.slice_(x, ((1, 3, -1), (0, 3, 1))), "leaves shape"),
        (lambda x: graph.reduce_axis(x, Ops.ADD, (2,)), "axes"),
        (lambda x: graph.scan_axis(x, Ops.ADD, 2), "axis 2"),
        (lambda x: graph.elementwise(Ops.ADD, x, buffer(3, 2)), r"\(2, 3\) and \(3, 2\)"),
        (lambda x: graph.write(x, ((0, 1, 1), (0, 3, 1)), buffer(3)), "write"),
        (lambda x: graph.scatter(x, buffer(2), buffer(2, 3)), "scatter"),
    ],
)
def test_errors_name_the_shapes(build, words) -> None:
    with pytest.raises(ValueError, match=words):
        build(buffer(2, 3))


def test_operands_of_two_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float32, int32"):
        graph.elementwise(Ops.ADD, buffer(2), buffer(2, dtype=dtypes.int32))


def test_shapes_of_rebuilt_nodes_are_found_without_recursion() -> None:
    x = buffer(3)
    one = graph.full((3,), dtypes.float32, 1.5)
    for _ in range(5_000):
        x = graph.elementwise(Ops.ADD, x, one)
    y = buffer(3)
    rebuilt = x.substitute({n: y for n in x.toposort() if n.op is Ops.BUFFER})
    del x
    assert shape(rebuilt) == (3,)


def test_windows_and_their_adjoint_read() -> None:
    line = filled(np.arange(7.0))
    view = graph.window(line, 0, 3, 2, 1)
    assert evaluate_numpy(view).tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    back = graph.unwindow(view, 0, 2, 1, 7)
    assert evaluate_numpy(graph.reduce_axis(back, Ops.ADD, (1,))).tolist() == [
        0, 1, 4, 3, 8, 5, 6,
    ]  # fmt: skip


def test_a_kept_value_is_found_until_its_memory_goes_on() -> None:
    x = graph.elementwise(Ops.ADD, buffer(3), buffer(3))
    storage = Storage((3,), dtypes.float32, "CPU")
    assert keep(x, storage) is kept(x)
    storage.give_to(Storage((3,), dtypes.float32, "CPU"))
    assert kept(x) is None
