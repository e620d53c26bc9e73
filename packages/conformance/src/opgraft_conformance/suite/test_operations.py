"""Every operation of the IR on every dtype, at the values that are got wrong, as INTERP gives it.

A row each for an operation and a dtype: in scalars and as the scheduler writes it, and in vectors
of every number of lanes. docs/meaning.md is the table of what is right.
"""

from __future__ import annotations

import pytest

from opgraft.api import Device, Target
from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft_conformance import elementary, operations
from opgraft_conformance.operations import SCALAR, SCHEDULED, Batch, Operation, Results
from opgraft_conformance.rows import not_claimed

pytestmark = pytest.mark.must

TABLE = [(batch, row) for batch in operations.batches() for row in batch.rows]
MACHINE = [(batch, row) for batch in operations.machine_batches() for row in batch.rows]


@pytest.fixture(scope="module")
def results(device: Device, reference: Device) -> Results:
    """Each kernel of the table runs once, whatever the number of rows in it."""
    return Results(device, reference)


def rows(table: list[tuple[Batch, Operation]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("batch", "row"), table, ids=[row.id for _, row in table])


@rows(TABLE)
def test_scalars(results: Results, batch: Batch, row: Operation) -> None:
    """One element after another."""
    results.check(batch, row, SCALAR)


@rows(TABLE)
def test_scheduled(results: Results, batch: Batch, row: Operation) -> None:
    """As the scheduler chooses: in vectors, over cores, in grids."""
    results.check(batch, row, SCHEDULED)


@rows(TABLE)
def test_vectors(
    results: Results, capabilities: Target, effort: str, batch: Batch, row: Operation
) -> None:
    """In vectors of 2, 4, 8, ... lanes: each number in some rows; with effort long, in all."""
    in_vectors(results, capabilities, effort, batch, row)


@rows(MACHINE)
def test_machine(
    results: Results, capabilities: Target, effort: str, batch: Batch, row: Operation
) -> None:
    """CDIV, CMOD and MULACC, which lowering writes, where the target claims them."""
    native = row.op in capabilities.ops or row.dtype in capabilities.fma
    if not native or row.dtype not in capabilities.compute:
        not_claimed(f"{capabilities.name} has no {row}")
    results.check(batch, row, SCALAR)
    if capabilities.vector_bytes:
        in_vectors(results, capabilities, effort, batch, row)


def in_vectors(results: Results, target: Target, effort: str, batch: Batch, row: Operation) -> None:
    widest = max(batch.sources, key=lambda d: d.itemsize)
    forms = operations.vector_forms(target, widest)
    if not forms:
        not_claimed(f"{target.name} has no vectors")
    for form in forms if effort == "long" else operations.some_of(forms, batch):
        results.check(batch, row, form)


@pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
@pytest.mark.parametrize("op", elementary.OPS, ids=lambda op: op.name)
def test_elementary(results: Results, op: Ops, dtype: DType) -> None:
    """EXP, EXP2, LOG2 and SIN within the units in the last place that docs/meaning.md promises."""
    elementary.check(results, op, dtype)
