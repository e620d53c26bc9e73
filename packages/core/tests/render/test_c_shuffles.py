"""Lanes that change places: a part of two vectors side by side where they are moved along."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from opgraft.dtype import dtypes
from opgraft.ir import Ops, UOp
from opgraft.ir.linear import LinearProgram
from opgraft.render.c import CRenderer
from opgraft.target import Target

from .kernels import listed

LANES = 8
OTHER = 7.0
MOVED: list[list[int | None]] = [
    [k + by if 0 <= k + by < LANES else None for k in range(LANES)] for by in (-7, -4, -1, 1, 2, 6)
]
CHOSEN: list[list[int | None]] = [
    [0, None, 2, None, 4, 5, 6, 7],  # in their own places
    [1, None, 3, 4, 5, 6, 7, None],  # moved, but one is left out
    [None, None, 1, 2, 3, 4, 5, 6],  # one more than became free
    [None, 0, 1, 2, 3, 4, 5, 7],  # not all as far
    [3, 3, 3, 3, 3, 3, 3, 3],
]
"""Where each lane comes from; None: the constant."""


def program() -> LinearProgram:
    """Every pattern of x's lanes, one after the other."""
    total = len(MOVED + CHOSEN) * LANES
    out, x = (UOp(Ops.PARAM, dtypes.float32, (), (k, n)) for k, n in ((0, total), (1, LANES)))
    value = UOp(Ops.LOAD, dtypes.float32.vec(LANES), (x, UOp.const(dtypes.int32, 0)))
    other = UOp.const(dtypes.float32, OTHER)
    stores = []
    for k, lanes in enumerate(MOVED + CHOSEN):
        picked = tuple(other if i is None else value.extract(i) for i in lanes)
        made = UOp(Ops.STACK, value.dtype, picked)
        stores.append(UOp(Ops.STORE, dtypes.void, (out, UOp.const(dtypes.int32, k * LANES), made)))
    nodes = dict.fromkeys(n for store in stores for n in listed(store))
    return LinearProgram("k", tuple(nodes), (out, x), written=(0,))


def test_lanes_come_from_where_they_are_said_to(run_program: Callable[..., None]) -> None:
    x = np.arange(LANES, dtype=np.float32) + 100
    got = np.zeros(len(MOVED + CHOSEN) * LANES, np.float32)
    run_program(program(), [got, x], target=Target("cpu", vector_bytes=32))
    wanted = [OTHER if i is None else x[i] for lanes in MOVED + CHOSEN for i in lanes]
    assert got.tolist() == wanted


def test_lanes_moved_along_are_a_part_of_two_vectors() -> None:
    """Compilers know that as one exchange; a choice of lanes they make of two."""
    text = CRenderer(Target("cpu", vector_bytes=32)).render(program())
    orders = [
        [int(i) for i in order.split(",")]
        for order in re.findall(r"shufflevector\(\w+,\w+,([\d,]+)\)", text)
    ]
    in_a_row = [order == list(range(order[0], order[0] + LANES)) for order in orders]
    assert in_a_row == [True] * len(MOVED) + [False] * len(CHOSEN)
