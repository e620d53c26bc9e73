"""A schedule that is given as text: it is read before anything is compiled, and errors name it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_forms import kernels
from opgraft.errors import ParseError
from opgraft.ir.text import parse, to_text
from opgraft.lower.pipeline import lower
from opgraft.opt.actions import Refused
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, cores=2)
ROWS = to_text(kernels.rows(4, 16))


def given(schedule: str) -> str:
    """The text of a kernel with a schedule."""
    return ROWS.replace('KernelInfo("rows", none)', f'KernelInfo("rows", {schedule})')


@pytest.mark.thorough
def test_a_process_that_compiled_nothing_reads_a_schedule(tmp_path: Path) -> None:
    file = tmp_path / "kernel.ir"
    file.write_text(given('(Grid("i", 4), Split("j", 4, vector))'))
    code = (
        "import sys; from opgraft.ir.text import parse\n"
        "assert not [name for name in sys.modules if name.startswith('opgraft.opt')]\n"
        f"print(parse(open({str(file)!r}).read()).arg.schedule)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("(Grid(name='i', threads=4), Split("), ran.stderr


UNREADABLE = [
    ('(Splat("i", 4),)', "names known here: .*Split.*found 'Splat'"),
    ('(Split("i"),)', "Split: .*missing 1 required positional argument: 'factor'"),
    ('(Split("i", "x"),)', 'Split: factor is "x", not of the type int'),
    ('(Split("i", 2.5),)', "Split: factor is 2.5, not of the type int"),
    ('(Split("i", true),)', "Split: factor is true, not of the type int"),
    ('(Split("i", 2, add),)', "Split: kind is add, not of the type AxisKind"),
    ('(Tile(("i", 2, 4)),)', r"Tile: parts is .*, not of the type tuple\["),
    ('(Tile((("i", 2, 1.5),)),)', r"Tile: parts is .*, not of the type tuple\["),
    ('(Pack("i"),)', r'Pack: names is "i", not of the type tuple\['),
    ('(Split("i", 2)', "expected"),
]


@pytest.mark.parametrize(("schedule", "says"), UNREADABLE)
def test_text_that_is_no_schedule_says_what_is_wrong_with_it(schedule: str, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        parse(given(schedule))


REFUSED = [
    ('(Split("i", 2), Split("z", 2))', r'step 2 of the schedule, Split\("z", 2, loop\): no range'),
    ('(Parallel("j"), Parallel("i"))', r'step 2 .* Parallel\("i"\): the cores share range j'),
    ('(Outermost(("q",)),)', r"step 1 .* no range is named 'q'"),
    ('(Pad("i", 0),)', r"step 1 .* 0 is nothing to be a multiple of"),
    ('Split("i", 2)', r'tuple of actions, which Split\("i", 2, loop\) is not'),
    ('("i",)', r'tuple of actions, which \("i",\) is not'),
]


@pytest.mark.parametrize(("schedule", "says"), REFUSED)
def test_a_schedule_that_is_not_legal_names_the_step(schedule: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        lower(parse(given(schedule)), CPU)
