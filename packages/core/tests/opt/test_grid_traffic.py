"""On thread groups neighbours read neighbours, what is shared is read once into group memory, and
no limit is exceeded: by counts of what two invented devices move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from kernel_forms import kernels
from kernel_forms.kernels import kernel, loop, over, param
from kernel_forms.memory import parameters
from opgraft.devices.interp.executor import Executor
from opgraft.devices.interp.traffic import LaunchTraffic
from opgraft.devices.invented import LANES32, LANES64
from opgraft.ir import Ops, UOp
from opgraft.ir.launch import over_limits
from opgraft.lower.pipeline import lower
from opgraft.target import Target

Arrays = dict[int, np.ndarray]


@pytest.fixture(params=[LANES32, LANES64], ids=lambda t: t.name)
def target(request: pytest.FixtureRequest) -> Target:
    return request.param  # type: ignore[no-any-return]


def permuted() -> UOp:
    """(16, 24, 40) to (40, 16, 24)."""
    a, b, c = loop(40, "a"), loop(16, "b"), loop(24, "c")
    value = param(1, 15360).load((b * 24 + c) * 40 + a)
    return kernel("permuted", param(0, 15360).store((a * 16 + b) * 24 + c, value).end(a, b, c))


def turned_and_added() -> UOp:
    i, j = loop(45, "i"), loop(70, "j")
    value = param(1, 3150).load(j * 45 + i) + param(2, 3150).load(i * 70 + j)
    return kernel("turned", param(0, 3150).store(i * 70 + j, value).end(i, j))


def middle_sum() -> UOp:
    """(6, 90, 40) summed along its middle."""
    i, j, k = loop(6, "i"), loop(40, "j"), over(90, "k")
    value = param(1, 21600).load((i * 90 + k) * 40 + j).reduce(Ops.ADD, k)
    return kernel("middle", param(0, 240).store(i * 40 + j, value).end(i, j))


def batch() -> UOp:
    """Three products of 40 x 36 by 36 x 48, the right factor turned."""
    b, i, j, k = loop(3, "b"), loop(40, "i"), loop(48, "j"), over(36, "k")
    left = param(1, 3 * 40 * 36).load((b * 40 + i) * 36 + k)
    right = param(2, 3 * 48 * 36).load((b * 48 + j) * 36 + k)
    total = (left * right).reduce(Ops.ADD, k)
    return kernel("batch", param(0, 5760).store((b * 40 + i) * 48 + j, total).end(b, i, j))


def less_its_maximum(x: np.ndarray) -> np.ndarray:
    """As `kernels.normalised_rows` has it."""
    row = x - x.max(1, keepdims=True)
    return np.asarray(row / (row.sum(1, keepdims=True) - 1), np.float32)


@dataclass(frozen=True)
class Case:
    sink: UOp
    reference: Callable[[Arrays], np.ndarray]
    most: float = 1.0
    """Transactions of buffers, in those of a device that moves neighbours alone. Rows that begin
    in the middle of a line take one more each."""
    group: float = 1.0
    """... and turns of group memory."""
    reads: dict[int, float] = field(default_factory=dict)
    """How often each element of a slot is read at most."""


CASES = {
    "rows": Case(kernels.rows(30, 64), lambda a: a[1].reshape(30, 64) + a[2]),
    "row_sum": Case(kernels.row_sum(33, 96), lambda a: a[1].reshape(33, 96).sum(1)),
    "normalised": Case(
        kernels.normalised_rows(8, 128), lambda a: less_its_maximum(a[1].reshape(8, 128))
    ),
    "column_sum": Case(kernels.column_max(96, 64), lambda a: a[1].reshape(96, 64).max(0)),
    "narrow_columns": Case(kernels.column_max(300, 16), lambda a: a[1].reshape(300, 16).max(0)),
    "middle_sum": Case(middle_sum(), lambda a: a[1].reshape(6, 90, 40).sum(1), 1.5),
    # threads have parts of a row each, of eight elements at most
    "running": Case(
        kernels.cumulative(2, 500),
        lambda a: a[1].reshape(2, 500).cumsum(1) * 2,
        8.0,
        reads={1: 2.0},
    ),
    "transposed": Case(
        kernels.transposed(96, 64), lambda a: a[1].reshape(96, 64).T, reads={1: 1.0}
    ),
    "transposed_odd": Case(
        kernels.transposed(45, 70), lambda a: a[1].reshape(45, 70).T, 1.8, 1.1, {1: 1.0}
    ),
    "permuted": Case(
        permuted(),
        lambda a: a[1].reshape(16, 24, 40).transpose(2, 0, 1),
        1.5,
        reads={1: 1.0},
    ),
    "turned_and_added": Case(
        turned_and_added(),
        lambda a: a[1].reshape(70, 45).T + a[2].reshape(45, 70),
        1.8,
        1.1,
        {1: 1.0, 2: 1.0},
    ),
    "product": Case(
        kernels.matmul(64, 64, 64),
        lambda a: a[1].reshape(64, 64) @ a[2].reshape(64, 64),
        1.2,
        2.0,
        {1: 4.0, 2: 4.0},
    ),
    "product_odd": Case(
        kernels.matmul(70, 50, 45),
        lambda a: a[1].reshape(70, 45) @ a[2].reshape(45, 50),
        2.2,
        2.0,
        {1: 4.0, 2: 5.0},
    ),
    "batch": Case(
        batch(),
        lambda a: a[1].reshape(3, 40, 36) @ a[2].reshape(3, 48, 36).transpose(0, 2, 1),
        2.2,
        2.0,
        {1: 4.0, 2: 4.0},
    ),
}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", CASES)
def test_what_is_moved(name: str, target: Target) -> None:
    case = CASES[name]
    program = lower(case.sink, target)
    assert not over_limits(program, target)
    pick = np.random.default_rng(0)
    arrays = {
        slot: pick.integers(-4, 5, p.arg[1]).astype(np.float32)
        for slot, p in parameters(case.sink).items()
    }
    traffic = LaunchTraffic(program.name, target.lanes, target.line_bytes)
    wanted = case.reference(arrays).reshape(-1)
    Executor(program).run([arrays[p.arg[0]] for p in program.params], traffic=traffic)
    assert np.array_equal(arrays[0], wanted)
    for grouped, most in ((False, case.most), (True, case.group)):
        rows = [r for r in traffic.rows.values() if r.grouped == grouped]
        assert sum(r.transactions for r in rows) <= most * sum(r.least for r in rows), traffic
    for slot, often in case.reads.items():
        assert traffic.rows[f"slot {slot}", "reads"].elements <= often * arrays[slot].size
