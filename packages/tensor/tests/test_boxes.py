"""Arrays that are read in part are computed in part; nothing else about them changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from opgraft.ir.ops import Ops
from opgraft_tensor import Tensor, graph
from opgraft_tensor import draft as drafts
from opgraft_tensor.boxes import boxed
from opgraft_tensor.facts import Prices
from opgraft_tensor.graph import Storage, buffer_node, shape
from opgraft_tensor.normalise import canonical
from planning import check

STORE = Prices(dram=0.01, core=0.01, launch=0.0, parting=0.0)
"""Memory costs nothing: what is read twice is stored."""


def stored(*size: int, seed: int = 0) -> graph.UOp:
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    return buffer_node(Storage(size, Tensor(values).dtype, "CPU", values))


def product(rows: int, inner: int, columns: int) -> graph.UOp:
    """A node that is worth storing."""
    a = graph.expand(graph.reshape(stored(rows, inner), (rows, inner, 1)), (rows, inner, columns))
    b = stored(inner, columns, seed=1)
    b = graph.expand(graph.reshape(b, (1, inner, columns)), (rows, inner, columns))
    return graph.reduce_axis(graph.elementwise(Ops.MUL, a, b), Ops.ADD, (1,))


def double(x: graph.UOp) -> graph.UOp:
    return graph.elementwise(Ops.ADD, x, x)


def test_only_what_all_readers_span_is_computed() -> None:
    whole = product(24, 16, 20)
    first = graph.slice_(whole, ((2, 10, 1), (0, 20, 1)))
    second = graph.flip(graph.slice_(whole, ((5, 12, 1), (3, 8, 2))), (0,))
    outputs = [double(first), graph.reduce_axis(second, Ops.MAX, (1,))]
    made = check(outputs, STORE)
    sizes = [shape(v) for k in made.kernels for v in k.stored]
    assert (24, 20) not in sizes
    assert (15, 20) in sizes  # rows 2 to 16


def test_a_padded_value_that_is_cut_is_computed_without_its_border() -> None:
    padded = graph.pad(product(12, 16, 12), ((2, 2), (2, 2)))
    twice = graph.materialize(
        graph.scan_axis(graph.slice_(padded, ((4, 8, 1), (4, 8, 1))), Ops.ADD, 0)
    )
    made = check([double(twice), graph.flip(twice, (1,))], STORE)
    assert all(shape(v) == (8, 8) for k in made.kernels for v in k.stored)


@pytest.mark.parametrize("rows", [23, 24])
def test_what_is_read_nearly_whole_stays_whole(rows: int) -> None:
    whole = product(24, 16, 20)
    outputs = [
        double(graph.slice_(whole, ((0, rows, 1), (0, 20, 1)))),
        graph.reduce_axis(graph.slice_(whole, ((0, rows, 1), (0, 20, 1))), Ops.MAX, (1,)),
    ]
    made = check(outputs, STORE)
    roots = [v for k in made.kernels for v in k.stored]
    assert boxed(made.graph, made.walk, roots) is None


def test_outputs_are_never_cut() -> None:
    whole = product(24, 16, 20)
    made = check([whole, double(graph.slice_(whole, ((2, 4, 1), (0, 20, 1))))], STORE)
    assert (24, 20) in [shape(v) for k in made.kernels for v in k.stored]


def test_it_is_never_worse_in_bytes_or_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random views of products, with all their border cases."""
    cut = 0
    for seed in range(8):
        pick = random.Random(seed)
        whole = product(12, 8, 10)
        parts = []
        for _ in range(pick.randint(1, 3)):
            begin, step = pick.randint(0, 4), pick.choice((1, 1, 2, -1))
            count = pick.randint(1, 6 if abs(step) == 1 else 4)
            first = begin if step > 0 else begin + count - 1
            part = graph.slice_(whole, ((first, count, step), (pick.randint(0, 3), 7, 1)))
            if pick.random() < 0.4:
                part = graph.pad(part, ((pick.randint(0, 2), 1), (0, pick.randint(0, 2))))
            if pick.random() < 0.5:
                part = graph.reduce_axis(
                    part, pick.choice((Ops.ADD, Ops.MAX)), (pick.randrange(2),)
                )
            parts.append(double(part))
        for prices in (STORE, Prices()):
            made = check(parts, prices)
            with monkeypatch.context() as without:
                without.setattr(drafts, "boxed", lambda *_: None)
                plain = drafts.draft(canonical(parts, lambda _: False).outputs, prices)
            assert made.bytes <= plain.bytes
            assert len(made.kernels) <= len(plain.kernels)
            cut += made.bytes < plain.bytes
    assert cut >= 3
