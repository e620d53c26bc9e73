"""The kit's rows of matrix units: a device whose instructions don't do what its target says is
caught, and told what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opgraft.api import (
    CompilerPair,
    CompilerSet,
    LinearProgram,
    MatrixLayout,
    MatrixUnit,
    Target,
    using,
)
from opgraft.devices.interp.device import TARGET, InterpDevice
from opgraft.devices.invented import LANES32, LANES64, TextRenderer
from opgraft.dtype import dtypes
from opgraft.ir.argument import format_value
from opgraft_conformance import matrices
from opgraft_conformance.fault import Fault
from opgraft_conformance.rows import NotClaimed
from running import run_kit

TILE8, TALL16 = LANES32.matrix_units
UNITS = [*LANES32.matrix_units, *LANES64.matrix_units]


def device_with(true: MatrixUnit, claimed: MatrixUnit) -> InterpDevice:
    """A device whose instruction is `true`, while its target says `claimed`."""

    class Wrong(TextRenderer):
        def __init__(self, target: Target) -> None:
            super().__init__(replace(LANES64, matrix_units=(claimed,)))

        def render(self, program: LinearProgram) -> str:
            return super().render(program).replace(format_value(claimed), format_value(true))

    device = InterpDevice()
    device.pairs = CompilerSet("INTERP", TARGET, [CompilerPair("WRONG", "INTERP", Wrong)])
    return device


def other_rows(layout: MatrixLayout) -> MatrixLayout:
    """TILE8's a or c with its rows in another order: 2 * second digit + fourth."""
    lanes = (layout.lanes[0], ("m", 4, 2), layout.lanes[2], ("m", 2, 1))
    return replace(layout, lanes=lanes)


def swapped(layout: MatrixLayout) -> MatrixLayout:
    """The layout with the first and third digit of threads, which are as long, swapped."""
    first, second, third, fourth = layout.lanes
    return replace(layout, lanes=(third, second, first, fourth))


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
def test_units_as_they_are_pass(unit: MatrixUnit) -> None:
    device = device_with(unit, unit)
    for aspect in matrices.ASPECTS:
        matrices.check_aspect(device, unit, aspect)
    matrices.check_products(device, unit, 2, 0)
    if unit.dtype("c").is_float:
        matrices.check_precision(device, unit, 0)


WRONG = {
    "a's rows": (
        replace(TILE8, a=other_rows(TILE8.a)),
        "rows",
        '"m" lies in the layouts of a and c',
    ),
    "b's columns": (
        replace(TILE8, b=swapped(TILE8.b)),
        "columns",
        '"n" lies in the layouts of b',
    ),
    "a's depth": (
        replace(TILE8, a=swapped(TILE8.a)),
        "depth",
        '"k" lies in the layouts of a and b',
    ),
    "b's registers": (
        replace(
            TALL16,
            b=replace(TALL16.b, lanes=(("k", 4, 1), ("n", 8, 1)), registers=(("k", 4, 4),)),
        ),
        "depth",
        '"k" lies in the layouts of a and b',
    ),
    "rows of the sums": (
        replace(TILE8, c=other_rows(TILE8.c)),
        "rows",
        '"m" lies in the layouts',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_layout_is_caught_and_named(name: str) -> None:
    claimed, aspect, look_at = WRONG[name]
    true = TALL16 if claimed.name == TALL16.name else TILE8
    device = device_with(true, claimed)
    with pytest.raises(Fault, match=r"does not hold its matrices as Target.matrix_units") as caught:
        matrices.check_aspect(device, claimed, aspect)
    message = str(caught.value)
    assert f"look at: how {look_at}" in message
    assert "register 0 (row " in message
    assert "source of kernel" in message
    with pytest.raises(Fault, match="gives wrong products"):
        matrices.check_products(device, claimed, 1, 0)
    # what is laid out as it ought to be is not accused
    for other in matrices.ASPECTS:
        if other != aspect:
            matrices.check_aspect(device, claimed, other)


def test_a_wrong_value_tells_where_it_belongs() -> None:
    claimed = replace(TILE8, a=other_rows(TILE8.a))
    with pytest.raises(Fault) as caught:
        matrices.check_aspect(device_with(TILE8, claimed), claimed, "rows")
    assert "thread 2 register 0 (row 1, column 0): 24, not 16: that of row 2" in str(caught.value)


def test_a_unit_of_fewer_digits_is_caught() -> None:
    """An instruction that rounds its operands to 8 bits, claimed for float32."""
    half = replace(TILE8, name="rounded")
    rounded = replace(half, dtypes=(dtypes.bfloat16, dtypes.bfloat16, dtypes.float32))

    class Rounding(TextRenderer):
        def __init__(self, target: Target) -> None:
            super().__init__(replace(LANES64, matrix_units=(half,)))

        def render(self, program: LinearProgram) -> str:
            text = super().render(program).replace(format_value(half), format_value(rounded))
            return with_casts(text)

    device = InterpDevice()
    device.pairs = CompilerSet("INTERP", TARGET, [CompilerPair("ROUNDING", "INTERP", Rounding)])
    matrices.check_aspect(device, half, "rows")
    with pytest.raises(Fault, match="computes less exactly than its dtypes say"):
        matrices.check_precision(device, half, 0)


def with_casts(text: str) -> str:
    """The program with the unit's first two operands rounded to bfloat16."""
    lines = []
    for line in text.splitlines():
        if "= matrix[" in line:
            head, _, operands = line.rpartition("(")
            a, b, c = operands.rstrip(")").split(", ")
            lines += [f"  {o}r: bfloat16x2 = cast({o})" for o in dict.fromkeys((a, b))]
            line = f"{head}({a}r, {b}r, {c})"
        lines.append(line)
    return "\n".join(lines) + "\n"


PLUGIN = """
from dataclasses import replace
from opgraft.api import CompilerPair
from opgraft.devices.invented import LANES32, TextRenderer
from opgraft.ir.argument import format_value

API = (1, 0)
TRUE = LANES32.matrix_units[0]
LANES = (TRUE.a.lanes[0], ("m", 4, 2), TRUE.a.lanes[2], ("m", 2, 1))
CLAIMED = replace(TRUE, a=replace(TRUE.a, lanes=LANES))

class Wrong(TextRenderer):
    def __init__(self, target):
        super().__init__(replace(LANES32, matrix_units=(CLAIMED,)))

    def render(self, program):
        return super().render(program).replace(format_value(CLAIMED), format_value(TRUE))

def opgraft_compiler_pairs(device):
    return [CompilerPair("WRONG", "INTERP", Wrong)] if device.upper() == "INTERP" else []
"""


def test_the_kit_reports_a_wrong_layout(tmp_path: Path) -> None:
    """As its users run it, on a pair that a package brings."""
    (tmp_path / "wrong_layout.py").write_text(PLUGIN)
    told = tmp_path / "wrong_layout-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.4\nName: wrong-layout\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[opgraft]\nwrong = wrong_layout\n")
    env = {"PYTHONPATH": str(tmp_path), "OPGRAFT_INTERP_CC": "WRONG"}
    done = run_kit(tmp_path, "INTERP", "--area", "matrix", "-k", "-0", env=env)
    failed = {name for name, row in done.rows().items() if row["result"] == "failed"}
    assert done.code == 1, done.text
    assert "matrix/layouts[rows-0]" in failed
    assert "matrix/layouts[columns-0]" not in failed
    assert "matrix/layouts[sums-0]" not in failed
    message = done.rows()["matrix/layouts[rows-0]"]["message"]
    assert 'look at: how "m" lies in the layouts of a and c' in message


def test_targets_without_units_are_asked_nothing() -> None:
    with using(INTERP_CC=""), pytest.raises(NotClaimed, match="INTERP has no matrix unit"):
        matrices.matrix_unit(TARGET, 0)
    with pytest.raises(NotClaimed, match="LANES32 has only 2 matrix units"):
        matrices.matrix_unit(LANES32, 2)
    with pytest.raises(NotClaimed, match=r"LANES32 has only 1 dot instruction$"):
        matrices.dot_unit(LANES32, 1)
