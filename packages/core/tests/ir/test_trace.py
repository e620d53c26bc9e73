"""Tracing: every rewrite with its rule, place, nodes and time; per thread; nothing when off."""

from __future__ import annotations

import threading

import pytest

from opgraft.errors import RewriteError
from opgraft.ir import Ops, PatternMatcher, UOp, UPat, graph_rewrite
from opgraft.ir.trace import recording, tracing

x, y = UPat.var("x"), UPat.var("y")
n, m = UOp.variable("n", 0, 9), UOp.variable("m", 0, 9)
rules = PatternMatcher([(x + 0, lambda x: x, "add zero"), (x * 1, lambda x: x, "times one")])


def test_every_rewrite_is_recorded_in_order() -> None:
    with tracing() as trace:
        result = graph_rewrite((n * 1 + 0) // (m + 0), rules, name="demo")
    assert result is n // m
    seen = [(s.rule.name, s.before, s.after, s.name) for s in trace.steps]
    assert seen == [
        ("times one", n * 1, n, "demo"),
        ("add zero", n + 0, n, "demo"),
        ("add zero", m + 0, m, "demo"),
    ]
    assert all(s.seconds >= 0 and s.rule.line > 0 for s in trace.steps)
    assert all(s.rule.file.endswith("test_trace.py") for s in trace.steps)


def test_a_traced_rewrite_gives_the_same_result() -> None:
    node = ((n + 0) * 1 + (m * 1 + 0)) // 3
    for bottom_up in (False, True):
        expected = graph_rewrite(node, rules, bottom_up=bottom_up)
        with tracing() as trace:
            assert graph_rewrite(node, rules, bottom_up=bottom_up) is expected
        assert len(trace) == 4


def test_nothing_is_recorded_outside() -> None:
    with tracing() as trace:
        pass
    graph_rewrite(n + 0, rules)
    assert trace.steps == []
    assert recording() is None


def test_traces_nest_and_the_inner_one_records() -> None:
    with tracing() as outer:
        with tracing() as inner:
            graph_rewrite(n + 0, rules)
        graph_rewrite(m * 1, rules)
    assert [s.rule.name for s in inner.steps] == ["add zero"]
    assert [s.rule.name for s in outer.steps] == ["times one"]


def test_a_rewrite_inside_a_rule_is_named_by_its_way() -> None:
    def inner(r: UOp) -> UOp:
        return graph_rewrite(r.src[0], rules, name="inner")

    outer = PatternMatcher([(UPat(Ops.IDIV, name="r"), inner)])
    with tracing() as trace:
        graph_rewrite((n + 0) // 3, outer, name="outer")
    assert [s.name for s in trace.steps] == ["outer / inner", "outer"]


def test_other_threads_are_not_recorded() -> None:
    with tracing() as trace:
        thread = threading.Thread(target=lambda: graph_rewrite(n + 0, rules))
        thread.start()
        thread.join()
        graph_rewrite(m * 1, rules)
    assert [s.rule.name for s in trace.steps] == ["times one"]


def test_recording_ends_with_an_error() -> None:
    def broken(x: UOp) -> UOp:
        raise ValueError("no")

    breaks = PatternMatcher([(x + 0, broken)])
    with pytest.raises(RewriteError, match="broken"), tracing():
        graph_rewrite(n + 0, breaks)
    assert recording() is None


def test_a_trace_prints_and_tallies_the_rules() -> None:
    with tracing() as trace:
        graph_rewrite((n * 1 + 0) + m, rules, name="demo")
    text = str(trace)
    assert "demo: times one (test_trace.py:" in text
    assert "MUL:index(VAR:index ('n', 0, 9), CONST:index 1)" in text
    tallies = {rule.name: (t.fired, t.declined) for rule, t in trace.rules.items()}
    assert tallies == {"times one": (1, 0), "add zero": (1, 1)}
    assert "add zero" in trace.table()
