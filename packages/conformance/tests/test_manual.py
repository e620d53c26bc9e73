"""docs/conformance.md says what is so: options, areas, members of the report, examples."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from opgraft_conformance import expected
from opgraft_conformance.__main__ import areas, parser, pytest_arguments
from opgraft_conformance.ledger import Ledger
from opgraft_conformance.opening import Facts
from opgraft_conformance.report import as_json
from opgraft_conformance.rows import RESULTS, Level
from running import run_suite

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"


@pytest.fixture(scope="module")
def page() -> str:
    if not PAGE.is_file():
        pytest.skip("the manual is in the repository, and this is no checkout")
    return PAGE.read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [text for language, text in found if not language]


def first_cells(page: str, head: str) -> list[str]:
    """The first column of the table with this head."""
    lines = page.split(head, 1)[1].splitlines()[2:]
    rows = lines[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]
    return [row.split("|")[1].strip() for row in rows]


def test_it_lists_every_area(page: str) -> None:
    listed = [cell.strip("`") for cell in first_cells(page, "| area | what a device is asked")]
    assert sorted(listed) == areas()


def test_it_lists_every_option(page: str) -> None:
    known = {text for action in parser()._actions for text in action.option_strings}
    cells = first_cells(page, "| option | through pytest |")
    assert {cell.strip("`").split()[0] for cell in cells} == known - {"-h", "--help"} | {"DEVICE"}
    prefixed = {f"--opgraft-{option[2:]}" for option in known - {"-h", "--help", "--area"}}
    assert prefixed | {"--opgraft-device"} == set(re.findall(r"--opgraft-[a-z]+", page))


def test_its_commands_are_understood(page: str) -> None:
    kit = "python -m opgraft_conformance "
    found = [line for block in blocks(page) for line in block.splitlines() if kit in line]
    assert len(found) >= 3
    for line in found:
        arguments = pytest_arguments(shlex.split(line.split(kit, 1)[1]))
        assert "-p" in arguments


def test_it_lists_every_member_of_the_report(page: str) -> None:
    report = as_json(
        Ledger(Level.MUST), Facts("MINE"), seed=0, effort="short", status=0, seconds=1.0
    )
    cells = first_cells(page, "| member | |")
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == sorted(
        report, key=lambda name: page.index(f"`{name}`", page.index("| member | |"))
    )
    assert all(f"`{result}`" in page for result in RESULTS)


def test_its_list_of_expected_failures_is_one(page: str, tmp_path: Path) -> None:
    (entries,) = [block for block in blocks(page) if block.startswith("# the emulator")]
    (tmp_path / "known.txt").write_text(entries)
    found = expected.read(tmp_path / "known.txt")
    assert found["buffers/large"].reason == "it has 64 MiB"
    assert len(found) == 2


def test_its_row_of_ones_own_is_one(page: str, tmp_path: Path) -> None:
    (text,) = re.findall(r"<!-- file: test_mine.py -->\n```python\n(.*?)^```$", page, re.S | re.M)
    done = run_suite(tmp_path, text)
    assert done.code == 0, done.text
    row = done.rows()["sample/a_buffer_can_be_given_away"]
    assert (row["level"], row["result"]) == ("should", "not claimed")
    assert row["reason"] == "buffers that can be given away"
