"""The table of views says where each element comes from; indices keep one normal form."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraft.dtype import dtypes
from opgraft.ir.uop import UOp
from opgraft_tensor import graph
from opgraft_tensor.index import Atom, AtomKind, Indices, Lin
from opgraft_tensor.storage import Storage, buffer_node
from opgraft_tensor.views import region_index, source_index
from oracle import evaluate_numpy
from tested import sampled


def value_of(x: Lin, ranges: dict[Atom, int]) -> int:
    """An index computed term by term."""
    total = x.constant
    for atom, m in x.terms:
        if atom.kind is AtomKind.QUOTIENT:
            part = value_of(atom.inside, ranges) // atom.divisor
        elif atom.kind is AtomKind.REMAINDER:
            part = value_of(atom.inside, ranges) % atom.divisor
        else:
            part = ranges[atom]
        total += m * part
    return total


def buffer(*size: int) -> UOp:
    values = np.arange(1, 1 + int(np.prod(size)), dtype=np.float32).reshape(size)
    return buffer_node(Storage(size, dtypes.float32, "CPU", values))


def agrees(view: UOp) -> None:
    """Every element of a chain of views is read from where NumPy's comes from."""
    table = Indices()
    ranges = [table.range(n, AtomKind.OUTER) for n in graph.shape(view)]
    index = tuple(table.of(r) for r in ranges)
    n, gates = view, []
    while n.src:
        index, more = source_index(table, n, index)
        gates += more
        n = n.src[0]
    values = n.arg.host
    expected = evaluate_numpy(view)
    for place in itertools.product(*[range(k) for k in graph.shape(view)]):
        now = dict(zip(ranges, place))
        if all(low <= value_of(x, now) < high for x, low, high in gates):
            at = tuple(value_of(x, now) for x in index)
            assert all(0 <= a < k for a, k in zip(at, values.shape)), "a gate is missing"
            found = values[at]
        else:
            found = 0.0
        assert found == expected[place]


VIEWS = {
    "reshape": lambda: graph.reshape(buffer(4, 6), (2, 3, 4)),
    "reshape with ones": lambda: graph.reshape(buffer(1, 4, 1, 6), (4, 1, 2, 3, 1)),
    "permute": lambda: graph.permute(buffer(2, 3, 4), (2, 0, 1)),
    "expand": lambda: graph.expand(buffer(2, 1, 3), (2, 4, 3)),
    "pad": lambda: graph.pad(buffer(2, 3), ((1, 0), (0, 2))),
    "pad of one": lambda: graph.pad(buffer(1, 3), ((1, 1), (0, 0))),
    "slice": lambda: graph.slice_(buffer(5, 7), ((4, 3, -2), (1, 3, 2))),
    "window": lambda: graph.window(buffer(2, 9), 1, 3, 2, 2),
    "unwindow": lambda: graph.unwindow(graph.window(buffer(2, 9), 1, 3, 2, 2), 1, 2, 2, 9),
    "unwindow, stride over size": lambda: graph.unwindow(buffer(3, 2), 0, 3, 1, 9),
    "pad then reshape": lambda: graph.reshape(graph.pad(buffer(3, 4), ((1, 2), (1, 0))), (5, 6)),
    "pad, reshape, slice": lambda: graph.slice_(
        graph.reshape(graph.pad(buffer(10), ((3, 2),)), (3, 5)), ((0, 3, 1), (4, 3, -1))
    ),
    "transposed reshape": lambda: graph.reshape(graph.permute(buffer(4, 6), (1, 0)), (3, 8)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_reads_where_numpy_reads(name: str) -> None:
    agrees(VIEWS[name]())


@pytest.mark.parametrize("seed", sampled(range(60), 3))
def test_chains_of_random_views(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = buffer(*[int(n) for n in rng.integers(1, 5, rng.integers(1, 4))])
    for _ in range(5):
        x = random_view(rng, x)
    agrees(x)


def random_view(rng: Any, x: UOp) -> UOp:
    """Some view of x, small."""
    size = graph.shape(x)
    kind = rng.integers(0, 7)
    if kind == 0:
        return graph.permute(x, tuple(int(a) for a in rng.permutation(len(size))))
    if kind == 1 and np.prod(size) < 200:
        return graph.pad(x, tuple((int(a), int(b)) for a, b in rng.integers(0, 2, (len(size), 2))))
    if kind == 2:
        region = []
        for n in size:
            count = int(rng.integers(1, n + 1))
            begin = int(rng.integers(0, n - count + 1))
            step = -1 if rng.random() < 0.4 else 1
            region.append((begin + count - 1 if step < 0 else begin, count, step))
        return graph.slice_(x, tuple(region))
    if kind == 3:
        total = int(np.prod(size))
        divisors = [d for d in range(1, total + 1) if total % d == 0]
        first = int(rng.choice(divisors))
        return graph.reshape(x, (first, total // first))
    if kind == 4 and np.prod(size) < 100:
        axis = int(rng.integers(0, len(size)))
        if size[axis] >= 2:
            return graph.window(x, axis, 2, int(rng.integers(1, 3)))
    if kind == 5 and len(size) < 4:
        return graph.reshape(x, (*size, 1))
    if kind == 6 and 1 in size and np.prod(size) < 100:
        return graph.expand(x, tuple(3 if n == 1 else n for n in size))
    return x


@pytest.mark.parametrize("region", [((2, 3, 1),), ((8, 4, -2),), ((9, 10, -1),), ((1, 3, 4),)])
def test_a_region_is_inverted(region: tuple[tuple[int, int, int]]) -> None:
    table = Indices()
    r = table.range(12, AtomKind.OUTER)
    index, gates = region_index(table, region, (table.of(r),))
    begin, count, step = region[0]
    places = {begin + step * k: k for k in range(count)}
    for i in range(12):
        inside = all(low <= value_of(x, {r: i}) < high for x, low, high in gates)
        assert inside == (i in places)
        if inside:
            assert value_of(index[0], {r: i}) == places[i]


# ---- the normal form


def test_a_reshape_back_and_forth_is_nothing() -> None:
    table = Indices()
    index = tuple(table.of(table.range(n, AtomKind.OUTER)) for n in (6, 35))
    flat = table.ravel(index, (6, 35))
    there = table.unravel(flat, (10, 21))
    assert table.ravel(there, (10, 21)) is flat
    assert table.unravel(flat, (6, 35)) == index


def test_flips_cancel() -> None:
    table = Indices()
    i = table.of(table.range(24, AtomKind.OUTER))
    flipped = table.shift(table.mul(i, -1), 23)
    assert table.shift(table.mul(flipped, -1), 23) is i


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=3),
    st.lists(st.integers(-40, 40), min_size=3, max_size=3),
    st.integers(-60, 60),
    st.lists(st.tuples(st.sampled_from("dmas"), st.integers(1, 30)), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_arithmetic_means_floor_division(
    extents: list[int], scales: list[int], constant: int, steps: list[Any], random: Any
) -> None:
    """Each step of a chain of +, *, // and % has the value it should, within its bounds."""
    table = Indices()
    ranges = [table.range(n, AtomKind.OUTER) for n in extents]
    x = table.const(constant)
    for r, m in zip(ranges, scales):
        x = table.add(x, table.of(r), m)
    for trial in range(8):
        place = {r: random.randrange(r.extent) for r in ranges}
        now, expected = x, value_of(x, place)
        for kind, by in steps:
            if kind == "d":
                now, expected = table.div(now, by), expected // by
            elif kind == "m":
                now, expected = table.mod(now, by), expected % by
            elif kind == "a":
                now, expected = table.add(now, x, by), expected + by * value_of(x, place)
            else:
                now, expected = table.shift(now, by), expected + by
            assert value_of(now, place) == expected, trial
            assert now.low <= expected <= now.high
