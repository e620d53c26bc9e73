"""The kit's own ways: levels, what is not claimed, expected failures, reports, processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opgraft.api import Program
from opgraft_conformance import Fault, expected
from opgraft_conformance.rows import area_of, row_id
from running import FAULTY, SUITE, Done, run, run_kit, run_suite


def table_of(done: Done) -> list[list[str]]:
    """The lines of the table in the terminal report."""
    lines = done.text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("area "))
    cells = [line.split() for line in lines[first:]]
    return cells[: next(n for n, row in enumerate(cells) if not row or "claimed:" in row)]


# ---- rows


def test_names_of_rows_are_short_and_have_no_blanks() -> None:
    assert row_id("a/b/test_x.py::test_y[1-a b]") == "x/y[1-a_b]"
    assert row_id("test_x.py::TestThings::test_y") == "x/TestThings.test_y"
    assert area_of("a\\test_x.py::test_y") == "x"


def test_what_is_not_claimed_neither_fails_nor_passes(tmp_path: Path) -> None:
    done = run_suite(tmp_path, SUITE)
    assert done.code == 0, done.text
    assert done.results() == {
        "sample/right": "passed",
        "sample/also_right[int8]": "passed",
        "sample/also_right[a_b]": "passed",
        "sample/beyond": "not claimed",
        "sample/decided_inside": "not claimed",
    }
    assert done.rows()["sample/beyond"]["reason"] == "a thousand dimensions"
    assert "not claimed: a moon (1 row)" in done.text
    assert "3 passed, 2 not claimed" in done.text
    assert "INTERP with NUMPY passes every row of must and should that applies to it" in done.text
    assert "FAILURES" not in done.text
    assert "SKIPPED" not in done.text


@pytest.mark.parametrize(
    ("row", "level", "code"),
    [
        ("must", "must", 1),
        ("should", "must", 0),
        ("should", "should", 1),
        ("may", "should", 0),
        ("may", "may", 1),
    ],
)
def test_the_level_says_which_failures_decide(
    tmp_path: Path, row: str, level: str, code: int
) -> None:
    done = run_suite(tmp_path, SUITE + FAULTY.format(level=row), f"--opgraft-level={level}")
    assert done.code == code, done.text
    assert done.report["status"] == code
    assert done.report["level"] == level
    # it is shown in any case
    assert done.results()["sample/wrong"] == "failed"
    assert "ADD of int8 is wrong" in done.text
    assert done.report["totals"][row]["failed"] == 1


def test_the_table_counts_by_area_and_level(tmp_path: Path) -> None:
    done = run_suite(tmp_path, SUITE + FAULTY.format(level="should"))
    assert table_of(done) == [
        ["area", "level", "passed", "failed", "not", "claimed", "expected", "skipped"],
        ["sample", "must", "1", "-", "1", "-", "-"],
        ["sample", "should", "2", "1", "-", "-", "-"],
        ["sample", "may", "-", "-", "1", "-", "-"],
        ["all", "must", "1", "-", "1", "-", "-"],
        ["all", "should", "2", "1", "-", "-", "-"],
        ["all", "may", "-", "-", "1", "-", "-"],
    ]


def test_a_fault_is_told_in_its_own_words_and_an_error_with_the_lines_of_the_row(
    tmp_path: Path,
) -> None:
    broken = "\n@pytest.mark.must\ndef test_raises():\n    {}['no such key']  # here\n"
    done = run_suite(tmp_path, SUITE + FAULTY.format(level="must") + broken, "--tb=no")
    assert done.code == 1
    wrong = done.rows()["sample/wrong"]["message"]
    assert wrong.splitlines() == [
        "ADD of int8 is wrong",
        "  values:   100 + 100",
        "  got:      200",
        "  expected: -56",
        "  look at: Renderer.binary",
    ]
    assert "MUST sample/wrong\n    ADD of int8 is wrong\n      values:   100 + 100" in done.text
    raised = done.rows()["sample/raises"]["message"]
    assert raised.startswith("KeyError: 'no such key'")
    assert "# here" in raised
    assert "site-packages" not in raised, "the way through pytest helps nobody"


def test_a_row_whose_fixture_fails_has_failed(tmp_path: Path) -> None:
    text = "\n@pytest.fixture\ndef broken():\n    raise OSError('gone')\n"
    text += "\n@pytest.mark.must\ndef test_needs(broken):\n    pass\n"
    text += "\n@pytest.fixture\ndef ends_badly():\n    yield\n    raise OSError('at the end')\n"
    text += "\n@pytest.mark.should\ndef test_ends(ends_badly):\n    pass\n"
    done = run_suite(tmp_path, SUITE + text)
    assert done.code == 1
    assert done.results()["sample/needs"] == done.results()["sample/ends"] == "failed"
    assert "gone" in done.rows()["sample/needs"]["message"]
    assert "at the end" in done.rows()["sample/ends"]["message"]


# ---- expected failures


def with_expected(folder: Path, entries: str, text: str, *options: str) -> Done:
    (folder / "known.txt").write_text(entries)
    return run_suite(folder, text, "--opgraft-expected=known.txt", *options)


def test_an_expected_failure_does_not_fail(tmp_path: Path) -> None:
    entries = "# what we know\n\nsample/wrong   the adder, see ticket 7\n"
    done = with_expected(tmp_path, entries, SUITE + FAULTY.format(level="must"))
    assert done.code == 0, done.text
    row = done.rows()["sample/wrong"]
    assert (row["result"], row["reason"]) == ("expected", "the adder, see ticket 7")
    assert "ADD of int8 is wrong" in row["message"]
    assert "expected: sample/wrong: the adder, see ticket 7" in done.text


@pytest.mark.parametrize("processes", ["0", "2"])
def test_stale_entries_fail(tmp_path: Path, processes: str) -> None:
    entries = (
        "sample/right was wrong once\n"
        "sample/beyond was claimed once\n"
        "sample/renamed went away\n"
        "nowhere/at_all never was\n"
        "buffers/large is not run here\n"
    )
    done = with_expected(tmp_path, entries, SUITE, "-n", processes)
    assert done.code == 1, done.text
    assert done.results()["sample/right"] == done.results()["sample/beyond"] == "failed"
    stale = done.rows()["sample/right"]["message"]
    assert "line 1 of the expected failures is stale: the row passes" in stale
    assert "was wrong once" in stale
    assert "not claimed (a thousand dimensions)" in done.rows()["sample/beyond"]["message"]
    # of an area of the kit that this run did not collect, nothing is known
    assert done.report["stale"] == [
        {"row": "sample/renamed", "where": "known.txt:3"},
        {"row": "nowhere/at_all", "where": "known.txt:4"},
    ]
    assert "STALE sample/renamed\n    known.txt:3: no row has this name" in done.text


def test_rows_that_are_deselected_are_not_stale(tmp_path: Path) -> None:
    entries = "sample/wrong the adder\n"
    text = SUITE + FAULTY.format(level="must")
    assert with_expected(tmp_path, entries, text, "-k", "also_right").code == 0


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ("sample/right\n", "known.txt:1: sample/right has no reason behind it"),
        ("# x\na/b one\na/b two\n", "known.txt:3: a/b stands in line 2 already"),
    ],
)
def test_a_list_that_is_no_list_is_refused(tmp_path: Path, entries: str, complaint: str) -> None:
    done = with_expected(tmp_path, entries, SUITE)
    assert done.code == 4
    assert complaint in done.text
    with pytest.raises(ValueError, match=complaint.partition(": ")[2]):
        expected.read(tmp_path / "known.txt")


# ---- devices


def test_an_unknown_device_is_told_with_the_nearest(tmp_path: Path) -> None:
    done = run_kit(tmp_path, "INTREP")
    assert done.code == 4
    assert "there is no device 'INTREP'; known: " in done.text
    assert "Did you mean INTERP?" in done.text
    assert not done.report


def test_a_device_that_does_not_open_is_told_once(tmp_path: Path) -> None:
    done = run_kit(tmp_path, "CPU", env={"OPGRAFT_CPU_CC": "NOSUCHPAIR"})
    assert done.code == 4
    assert done.text.count("NOSUCHPAIR") == 1
    assert "CPU_CC takes one of" in done.text


def test_a_device_that_runs_nothing_is_refused(tmp_path: Path) -> None:
    done = run_kit(tmp_path, "NULL")
    assert done.code == 4
    assert "NULL compiles kernels and runs none: there is nothing to test" in done.text


def test_a_wrong_option_is_refused(tmp_path: Path) -> None:
    assert run_kit(tmp_path, "INTERP", "--area", "nonsense").code == 2
    done = run_kit(tmp_path, "INTERP", "--absent", "PATH")
    assert done.code == 4
    assert "--opgraft-absent takes VAR=VALUE, not 'PATH'" in done.text


# ---- reports and processes


def test_the_report_is_the_same_from_one_process_and_from_several(tmp_path: Path) -> None:
    text = SUITE + FAULTY.format(level="must")
    runs = []
    for processes in ("0", "2"):
        folder = tmp_path / processes
        folder.mkdir()
        runs.append(run_suite(folder, text, "-n", processes))
    one, two = (done.report for done in runs)
    assert runs[0].code == runs[1].code == 1
    assert len(one["rows"]) == 6
    for report in (one, two):
        assert report.pop("seconds") > 0
        for row in report["rows"]:
            assert row.pop("seconds") >= 0
    assert one == two


def test_the_report_says_what_was_tested(tmp_path: Path) -> None:
    report = run_suite(tmp_path, SUITE).report
    assert report["form"] == 1
    assert report["device"] == "INTERP"
    assert report["pair"] == "NUMPY"
    assert report["pairs"]["NUMPY"] == ""
    assert report["provider"] == "opgraft-core"
    assert report["seed"] == 5
    assert report["effort"] == "short"
    assert "float32" in report["target"]["compute"]
    assert {"python", "opgraft-core", "numpy", "pytest"} <= set(report["versions"])
    assert set(report["rows"][0]) == {
        *("row", "area", "level", "result", "seconds", "reason", "message")
    }
    assert report["totals"]["must"] == {
        "passed": 1,
        "failed": 0,
        "not claimed": 1,
        "expected": 0,
        "skipped": 0,
    }
    json.dumps(report)


def test_a_row_that_kills_its_process_is_named(tmp_path: Path) -> None:
    text = SUITE + "\n@pytest.mark.must\ndef test_deadly(device):\n    os._exit(7)\n"
    done = run_suite(tmp_path, text, "-n", "1")
    assert done.code == 1, done.text
    assert done.results()["sample/deadly"] == "failed"
    assert "crashed" in done.rows()["sample/deadly"]["message"]
    assert done.results()["sample/right"] == "passed"


def test_a_row_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    text = (
        SUITE + "\n@pytest.mark.must\ndef test_stuck(device):\n    import time; time.sleep(600)\n"
    )
    done = run_suite(tmp_path, text, "-n", "1", "--opgraft-timeout=10")
    assert done.code == 1, done.text
    assert done.results()["sample/stuck"] == "failed"
    assert done.results()["sample/right"] == "passed"
    assert "test_sample.py::test_stuck is not done within 10 s" in done.text
    assert "in test_stuck" in done.text, "where each thread was"


def test_other_test_runs_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("def test_a(): pass\ndef test_b(): assert False\n")
    done = run(["pytest", "-p", "opgraft_conformance.plugin", "test_mine.py"], tmp_path)
    assert done.code == 1
    assert "conformance of" not in done.text
    assert "1 failed, 1 passed" in done.text


def test_what_lies_around_has_no_say(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise SystemExit('not yours')\n")
    done = run_kit(tmp_path, "INTERP", "--area", "timing", "-k", "waiting")
    assert done.code == 0, done.text
    assert set(done.results().values()) == {"passed"}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "conftest.py",
        "pytest.ini",
        "report.json",
    ]


# ---- messages


def test_the_source_in_a_message_begins_shortly_before_the_kernel() -> None:
    """A renderer's runtime may be longer than all that a message shows."""
    head = [f"helper_{n}();" for n in range(200)]
    source = "\n".join([*head, "void og_k(int *a) {", *["body;"] * 150, "}"])
    said = str(Fault("wrong", kernel=Program("k", source, entry="og_k"))).splitlines()
    assert said[:3] == ["wrong", "  source of kernel 'k':", "  | ... 180 lines before, and"]
    assert said[3] == "  | helper_180();"
    assert "  | void og_k(int *a) {" in said
    assert said[-1] == "  | ... and 52 lines more"


def test_a_short_source_is_shown_whole() -> None:
    source = "int helper;\nvoid og_k(int *a) {\n}"
    said = str(Fault("wrong", kernel=Program("k", source, entry="og_k"))).splitlines()
    assert said[2:] == ["  | int helper;", "  | void og_k(int *a) {", "  | }"]
    assert "no source" in str(Fault("wrong", kernel=Program("k")))
