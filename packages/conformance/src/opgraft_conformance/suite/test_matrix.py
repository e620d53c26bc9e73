"""Matrix units and dot instructions, where the target claims them: as they stand, and as the
scheduler uses them.

What a schedule is compared with is the same product as INTERP schedules it: it has no such units.
"""

from __future__ import annotations

import numpy as np
import pytest

from opgraft.api import Device, DotUnit, MatrixUnit, Target
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Split
from opgraft.opt.dot import Dot
from opgraft.opt.grid_actions import Grid, Pad, Stage
from opgraft.opt.matrix import Matrix
from opgraft_conformance import kernels, matrices, programs
from opgraft_conformance.execution import agree, compiled, execute
from opgraft_conformance.fault import Fault
from opgraft_conformance.rows import not_claimed
from opgraft_conformance.schedules import UNROLL, scheduled
from opgraft_conformance.values import column, value

pytestmark = pytest.mark.must

PLACES = range(matrices.MOST)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("aspect", matrices.ASPECTS)
def test_layouts(device: Device, capabilities: Target, aspect: str, place: int) -> None:
    """Threads hold the elements that the target's layouts say, as products of chosen matrices
    tell."""
    matrices.check_aspect(device, matrices.matrix_unit(capabilities, place), aspect)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("blocks", [1, 2])
def test_products(device: Device, capabilities: Target, seed: int, blocks: int, place: int) -> None:
    """Matrices of whole numbers, in several groups, and in several blocks of a group's threads."""
    unit = matrices.matrix_unit(capabilities, place)
    most = capabilities.threads_per_group // unit.threads
    matrices.check_products(device, unit, min(blocks, most), seed)


@pytest.mark.parametrize("place", PLACES)
def test_precision(device: Device, capabilities: Target, seed: int, place: int) -> None:
    """Floats are multiplied and added up in the dtypes that the target says."""
    unit = matrices.matrix_unit(capabilities, place)
    if not unit.dtype("c").is_float:
        not_claimed(f"{unit.name} adds up integers, which are exact")
    matrices.check_precision(device, unit, seed)


def product(unit: MatrixUnit, m: int, n: int, k: int) -> UOp:
    return kernels.product(unit.dtypes, m, n, k)


def shown(unit: MatrixUnit | DotUnit, schedule: object) -> dict[str, object]:
    return {"unit": unit.name, "schedule": schedule}


HINT = "rows matrix/layouts and matrix/products of the unit, which use it without a schedule"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", ["whole", "padded", "staged"])
def test_actions(
    device: Device, reference: Device, capabilities: Target, form: str, place: int
) -> None:
    """Products that the scheduler's action gives to the unit: of whole tiles, of tiles that reach
    over the edge, and of tiles that a group's threads copy to its memory first."""
    unit = matrices.matrix_unit(capabilities, place)
    m, n, k = unit.shape
    use = Matrix(unit, "i", "j", "k")
    actions: tuple[Action, ...]
    if form == "whole":
        sink, actions = product(unit, 2 * m, n, 2 * k), (use,)
    elif form == "padded":
        sink = product(unit, m + 1, 2 * n - 1, k + 1)
        actions = (Pad("i", m), Pad("j", n), Pad("k", k), use)
    else:
        sink = product(unit, 2 * m, 2 * n, 2 * k)
        actions = (
            Split("i", m, UNROLL),
            Split("j", n, UNROLL),
            Split("k", k),
            Stage(1, "k.o", 0, unit.threads),
            Stage(2, "k.o", 0, unit.threads),
            Grid("i.o"),
            Grid("j.o"),
            Matrix(unit, "i.u", "j.u", "k.i"),
        )
    agree(
        device,
        reference,
        scheduled(sink, actions),
        meaning=sink,
        facts=shown(unit, ", ".join(map(str, actions))),
        hint=HINT,
    )


@pytest.mark.parametrize("place", PLACES)
def test_chosen(device: Device, reference: Device, capabilities: Target, place: int) -> None:
    """Products as they come, of sizes that fit no tile: the scheduler chooses the unit by itself,
    if no other one is better."""
    unit = matrices.matrix_unit(capabilities, place)
    m, n, k = unit.shape
    sink = product(unit, 2 * m + 1, 3 * n - 1, 2 * k + 1)
    agree(
        device,
        reference,
        sink,
        meaning=sink,
        facts=shown(unit, "the scheduler's own"),
        hint=HINT,
    )


# ---- dot instructions


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_dots(device: Device, capabilities: Target, seed: int, lanes: int, place: int) -> None:
    """A dot instruction on words of all bits."""
    unit = matrices.dot_unit(capabilities, place)
    made = programs.for_target(matrices.dot_program(unit, lanes, 64), capabilities)
    lacking = programs.lacks(made, capabilities)
    if lacking:
        not_claimed(lacking)
    pick = np.random.default_rng(seed)
    if unit.dtypes[2].is_float:
        numbers = pick.integers(-9, 9, (2, 64 * unit.depth)).astype(float).tolist()
        a, b = (column(x, d).view(np.int32) for x, d in zip(numbers, unit.dtypes, strict=False))
    else:
        a, b = (pick.integers(-(1 << 31), 1 << 31, 64).astype(np.int32) for _ in range(2))
        a[:2], b[:2] = -(1 << 31), [0x80808080 - (1 << 32), 0x7F7F7F7F]
    c = pick.integers(-1000, 1000, 64)
    kind = unit.dtypes[2]
    memory = {0: a.view(np.uint32), 1: b.view(np.uint32), 2: column(c.tolist(), kind)}
    kernel = compiled(device, made)
    found = execute(device, kernel, memory)[2]
    exact = c + (matrices.parts_of(a, unit.dtypes[0]) * matrices.parts_of(b, unit.dtypes[1])).sum(1)
    wanted = column([kind.const(x) for x in exact.tolist()], kind)
    wrong = np.flatnonzero(found != wanted)
    if len(wrong):
        first = int(wrong[0])
        raise Fault(
            f"dot instruction {unit.name} is wrong",
            {
                "unit": f"{unit.depth} parts of {unit.dtypes[0]} by {unit.dtypes[1]} onto {kind}",
                "wrong": f"{len(wrong)} of {len(found)} sums, {lanes} lanes at a time",
                "words": f"a {_hex(a[first])}, b {_hex(b[first])}, c {c[first]}",
                "got": value(found[first], kind),
                "expected": value(wanted[first], kind),
            },
            kernel=kernel,
            hint="Renderer.dot: which operand is signed, whether products are added up at their "
            "full width, and that sums wrap",
        )


def _hex(word: int) -> str:
    return f"0x{int(word) & 0xFFFFFFFF:08x}"


@pytest.mark.parametrize("place", PLACES)
def test_dot_actions(device: Device, reference: Device, capabilities: Target, place: int) -> None:
    """Products that the scheduler's action gives to the instruction."""
    unit = matrices.dot_unit(capabilities, place)
    sink = kernels.product(unit.dtypes, 6, 19, 4 * unit.depth + 1)
    actions = (Pad("k", unit.depth), Dot(unit, "k"))
    agree(
        device,
        reference,
        scheduled(sink, actions),
        meaning=sink,
        facts=shown(unit, ", ".join(map(str, actions))),
        hint="rows matrix/dots of the instruction, which use it without a schedule",
    )
