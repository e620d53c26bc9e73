"""`python -m opgraft_egraph`: what it prints, and what it says when it cannot."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opgraft.api import errors
from opgraft_egraph.__main__ import main
from opgraft_egraph.plugin import opgraft_commands
from opgraft_egraph.rulefile import parse_rules
from opgraft_egraph.serialized import Serialized

GRAPH: dict[str, Any] = {
    "nodes": {
        "sum": {"op": "+", "cost": 1, "eclass": "s", "children": ["a.0", "b.0"]},
        "a.0": {"op": "a", "cost": 3, "eclass": "a", "children": []},
        "a.1": {"op": "f", "cost": 0.5, "eclass": "a", "children": ["c"]},
        "b.0": {"op": "b", "cost": 3, "eclass": "b", "children": []},
        "b.1": {"op": "g", "cost": 0.5, "eclass": "b", "children": ["c"]},
        "c": {"op": "c", "cost": 4, "eclass": "c", "children": []},
    },
    "root_eclasses": ["s"],
}

RULES = """\
# two laws
commute: (+ ?a ?b) => (+ ?b ?a)
double:  (+ ?a ?a) <=> (* 2 ?a)
one:     (/ ?a ?a) => 1   if ?a is nonzero
"""


def written(folder: Path, data: object, name: str = "graph.json") -> str:
    file = folder / name
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(file)


def test_extract_prints_cost_choices_and_whether_it_is_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, GRAPH)
    assert main(["extract", file]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "cost": 6.0,
        "choices": {"s": "sum", "a": "a.1", "b": "b.1", "c": "c"},
        "proved": True,
    }
    assert main(["extract", file, "--cost", "tree", "--deadline", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "cost": 7.0,
        "choices": {"s": "sum", "a": "a.0", "b": "b.0"},
        "proved": True,
    }


def test_a_child_that_stands_twice_in_a_node_is_paid_twice_in_a_tree() -> None:
    nodes = {
        "m": {"op": "*", "cost": 1, "eclass": "m", "children": ["x", "x"]},
        "x": {"op": "x", "cost": 5, "eclass": "x", "children": []},
    }
    graph = Serialized({"nodes": nodes, "root_eclasses": ["m"]})
    assert graph.extract("tree").cost == 11
    assert graph.extract("dag").cost == 6


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("{", "is not JSON"),
        ({"nodes": {}}, "'root_eclasses' is missing"),
        ({"nodes": {}, "root_eclasses": ["r"]}, "root 'r' is no class"),
        (
            {"nodes": {"n": {"eclass": "c", "children": ["m"]}}, "root_eclasses": ["c"]},
            "child 'm' of node 'n' is no node",
        ),
        (
            {"nodes": {"n": {"eclass": "c", "children": ["n"]}}, "root_eclasses": ["c"]},
            "has no term",
        ),
        ({"nodes": [1, 2], "root_eclasses": []}, "'nodes' is to be an object"),
        ({"nodes": None, "root_eclasses": []}, "'nodes' is to be an object"),
        ({"nodes": {}, "root_eclasses": 5}, "'root_eclasses' is to be a list"),
        ({"nodes": {"n": {"eclass": "c", "cost": "u"}}, "root_eclasses": []}, "costs 'u'"),
        ({"nodes": {"n": {"eclass": "c", "cost": None}}, "root_eclasses": []}, "costs None"),
        ({"nodes": {"n": {"eclass": "c", "cost": 10**400}}, "root_eclasses": []}, "no number"),
        ({"nodes": {"n": {"eclass": "c", "cost": -1}}, "root_eclasses": ["c"]}, "at least 0"),
        ({"nodes": {"n": {"eclass": "c", "cost": math.nan}}, "root_eclasses": []}, "at least 0"),
        ({"nodes": {"n": {"eclass": "c", "children": 5}}, "root_eclasses": []}, "to be a list"),
        ({"nodes": {"n": {"eclass": "c", "children": None}}, "root_eclasses": []}, "to be a list"),
        ("[" * 200_000, "nested deeply"),
        (
            {
                "nodes": {
                    "n": {"eclass": "c", "cost": 1e308, "children": ["m"]},
                    "m": {"eclass": "d", "cost": 1e308},
                },
                "root_eclasses": ["c"],
            },
            "costs more than a float can",
        ),
    ],
)
def test_a_file_that_is_none_is_refused_in_words(
    data: object, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["extract", written(tmp_path, data)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert complaint in output.err


def test_prove_prints_verdict_time_and_stop_reason_of_each_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "ID,Expression",
        "1,( <= ( * ( / v0 8 ) 8 ) v0 )",
        "2,( < ( min v0 v1 ) v1 )",
        "x,( == ( * v0 v1 ) ( * v0 ( * v1 v2 ) ) )",
    ]
    file = written(tmp_path, "\n".join(lines), "statements.csv")
    assert main(["prove", file]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in shown[:3]] == [["1", "true"], ["2", "false"], ["x", "false"]]
    assert all(float(row[2]) >= 0 and row[3] == "s" and row[4] for row in shown[:3])
    assert " ".join(shown[3]) == "1 true, 2 false, 0 unknown"
    assert main(["prove", file, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == ["1", "2", "x"]
    assert {"verdict", "seconds", "stop"} <= set(rows[0])
    assert rows[1]["values"]["v0"] >= rows[1]["values"]["v1"]


def test_a_line_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["ID,Expression", "1,( <= v0", "2,( <= v0 v0 )", "3,( < v0 1180591620717411303424 )"]
    assert main(["prove", written(tmp_path, "\n".join(lines), "some.csv"), "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["verdict"] for row in rows] == ["unknown", "true", "false"]
    assert "is not one expression" in rows[0]["stop"]


def test_run_saturates_and_prints_the_cheapest_term(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, RULES, "rules.txt")
    assert main(["run", file, "(/ (+ x x) (* 2 x))", "--price", "/=9", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # nothing says that x is not 0
    assert found["term"] == "(/ (+ x x) (+ x x))"
    assert found["stop"] == "saturated"
    assert found["rules"]["double"]["united"] >= 1
    assert main(["run", file, "(/ (+ 3 4) 7)", "--explain"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "1"
    assert "  by one" in output
    assert output[-1].startswith("saturated after ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("commute (+ ?a ?b) => (+ ?b ?a)", "line 1: .* is not of the form"),
        ("\nfree: (f ?a) => ?b", r"line 2: rule free uses \?b"),
        ("c: (f ?a) => ?a if ?a is even", "is no condition"),
        ("c: (f ?a => ?a", "is not one term"),
    ],
)
def test_a_line_that_is_no_rule_is_named(text: str, complaint: str) -> None:
    with pytest.raises(errors.ParseError, match=complaint):
        parse_rules(text)


def test_files_that_are_no_text_are_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\xfe\x00")
    for command in (["extract", str(file)], ["prove", str(file)], ["run", str(file), "x"]):
        assert main(command) == 1
        assert str(file) in capsys.readouterr().err


def test_a_line_without_a_statement_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "ID,Expression\n1\n2,( == v0 v0 )\n", "short.csv")
    assert main(["prove", file, "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["verdict"] for row in rows] == ["unknown", "true"]


def test_numbers_that_no_engine_holds_are_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, RULES, "rules.txt")
    for number in ("99999999999999999999", "-9223372036854775809", "7" * 5_000):
        assert main(["run", file, f"(+ {number} 1)", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["term"] == f"(+ {number} 1)"


def test_limits_are_counts_of_any_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, RULES, "rules.txt")
    for option in ("--rounds", "--nodes"):
        assert main(["run", file, "(+ 1 2)", option, "9" * 30]) == 0
        assert capsys.readouterr().out.startswith("3\n")
        assert main(["run", file, "(+ 1 2)", option, "-1"]) == 1
        assert "no limit is below 0" in capsys.readouterr().err


def test_progress_stays_off_where_stderr_is_no_terminal(tmp_path: Path) -> None:
    file = written(tmp_path, GRAPH)
    done = subprocess.run(
        [sys.executable, "-m", "opgraft_egraph", "extract", file], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["cost"] == 6.0


def test_opgraft_has_the_same_under_one_subcommand() -> None:
    (command,) = opgraft_commands()
    assert command.name == "egraph"


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["extract"])
    assert stopped.value.code == 2
    assert "FILE.json" in capsys.readouterr().err
