"""Programs in the IR's text: vectors, registers, branches, grids, group memory, barriers, atomics.

They are compiled as they stand, without lowering, and compared with INTERP, which also reports
races, memory that is read before it is written, and barriers that not all threads reach.
"""

from __future__ import annotations

import pytest

from opgraft.api import Device, LinearProgram, Target
from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import GroupOp, Ops
from opgraft_conformance import programs
from opgraft_conformance.execution import agree
from opgraft_conformance.rows import not_claimed

pytestmark = pytest.mark.must

VARIABLES = {"branches": ((0,), (13,), (24,)), "groups_by_variable": ((0,), (1,), (200,), (256,))}


def run(device: Device, reference: Device, target: Target, made: LinearProgram, name: str) -> None:
    lacking = programs.lacks(made, target)
    if lacking:
        not_claimed(lacking)
    for values in VARIABLES.get(name, ((),)):
        agree(
            device,
            reference,
            programs.for_target(made, target),
            variables=values,
            meaning=made,
            hint=programs.HINTS.get(name, ""),
        )


@pytest.mark.parametrize("name", programs.names())
def test_texts(device: Device, reference: Device, capabilities: Target, name: str) -> None:
    """A program of the folder."""
    run(device, reference, capabilities, programs.program(name), name)


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_group_memory(
    device: Device, reference: Device, capabilities: Target, dtype: DType
) -> None:
    """Group memory of elements of a dtype."""
    made = programs.filled_in("group_elements", dtype)
    run(device, reference, capabilities, made, "group_reversal")


ATOMICS = [
    pytest.param(op, dtype, id=f"{op.name}-{dtype}")
    for op in sorted(GroupOp.ATOMIC)
    for dtype in dtypes.all
    if op in (Ops.ADD, Ops.MAX, Ops.MIN) or not dtype.is_float
]


@pytest.mark.parametrize(("op", "dtype"), ATOMICS)
def test_atomics(
    device: Device, reference: Device, capabilities: Target, op: Ops, dtype: DType
) -> None:
    """Elements of a buffer that many threads change at once, where the target claims it."""
    if not capabilities.atomics:
        not_claimed(f"{capabilities.name} has no atomics")
    if (op, dtype) not in capabilities.atomics:
        not_claimed(f"{capabilities.name} has not every atomic operation of {dtype}")
    made = programs.filled_in("atomic", dtype, op)
    run(device, reference, capabilities, made, "atomic")


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_group_atomics(
    device: Device, reference: Device, capabilities: Target, dtype: DType
) -> None:
    """The same in group memory, of one operation that is claimed."""
    claimed = [op for op in sorted(GroupOp.ATOMIC) if (op, dtype) in capabilities.atomics]
    if not claimed:
        what = f"atomics of {dtype}" if capabilities.atomics else "atomics"
        not_claimed(f"{capabilities.name} has no {what}")
    made = programs.filled_in("group_atomic", dtype, claimed[0])
    run(device, reference, capabilities, made, "group_atomic")
