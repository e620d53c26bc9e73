"""The functions of signatures: what is compiled, when, and that it is the same as what is here."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from opgraft.dtype import dtypes
from opgraft.errors import RewriteError
from opgraft.ir import Ops, PatternMatcher, UOp, UPat
from opgraft.ir import steps as made_here
from opgraft.ir.steps import _MANY, _READY, Try

x, y, c = UPat.var("x"), UPat.var("y"), UPat.cvar("c")
n, m = UOp.variable("n", 0, 9), UOp.variable("m", 0, 9)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Try, ...]]:
    """The texts that are compiled from now on, in a process that has compiled none."""
    found: list[tuple[Try, ...]] = []
    original = made_here._compiled

    def noted(width: int | None, tries: tuple[Try, ...], names: tuple[str, ...]) -> Any:
        found.append(tries)
        return original(width, tries, names)

    monkeypatch.setattr(made_here, "_compiled", noted)
    monkeypatch.setattr(made_here, "_makers", dict(_READY))
    return found


@pytest.mark.parametrize("key", _READY, ids=lambda key: " ".join(key[1][0]))
def test_what_is_ready_does_what_would_be_compiled(key: Any) -> None:
    width, tries = key
    flag = n < m
    sources: list[tuple[UOp, ...]] = [(n,), (n, m), (n, n), (flag, n, m), (flag, n, n)]
    given: list[tuple[UOp, ...]] = []
    answers: list[Any] = []

    def rule(*captured: UOp) -> Any:
        given.append(captured)
        return answers[-1]

    def failed(error: Exception, node: UOp) -> RewriteError:
        return RewriteError(f"{error} {node.op.name}")

    def outcome(function: Any, node: UOp) -> Any:
        given.clear()
        try:
            return function(node, None), list(given)
        except RewriteError as error:
            return str(error), list(given)

    ready = _READY[key](rule, failed)
    made = made_here._compiled(width, tries, ("f0",))(rule, failed)
    met = 0
    for src in sources:
        if width in (None, len(src)):
            node = UOp(Ops.ADD, dtypes.index, src)
            for answer in (None, node, n, m, 5):  # 5 is no node: that is an error
                answers.append(answer)
                expected = outcome(made, node)
                assert outcome(ready, node) == expected
                met += bool(expected[1])
    assert met


def test_short_rules_are_never_compiled(compiled: list[Any]) -> None:
    rules = PatternMatcher(
        [
            (UPat((Ops.ADD, Ops.MUL), name="x"), lambda x: None),
            (x + x, lambda x: x * 2),
            (UPat(Ops.WHERE, name="w", src=(y, x, x)), lambda w, x: x),
        ]
    )
    assert rules.rewrite(n + m) is None
    assert rules.rewrite(n + n) is n * 2
    assert rules.rewrite(n * m) is None
    assert compiled == []


def test_equal_rules_are_compiled_once_whatever_they_mention(compiled: list[Any]) -> None:
    for size in range(2, 6):
        matcher = PatternMatcher([(x + y * size, lambda x, y: y)])
        assert matcher.rewrite(n + m * size) is m
        assert matcher.rewrite(n + m * 7) is None
    small = PatternMatcher([(x + y * c, lambda x, y, c: y)])
    assert small.rewrite(n + m * 7) is m
    texts = len(compiled)
    other = PatternMatcher([(y + x * c, lambda y, x, c: x)])
    assert other.rewrite(n + m * 7) is m
    assert len(compiled) == texts


def test_a_signature_that_is_met_often_is_compiled_in_one_piece(compiled: list[Any]) -> None:
    matcher = PatternMatcher(
        [(x + c, lambda x, c: None), (x + c, lambda c, x: x if c.const_value == 7 else None)]
    )
    for _ in range(_MANY):
        assert matcher.rewrite(n + 3) is None
    assert all(len(tries) == 1 for tries in compiled)
    assert matcher.rewrite(n + 7) is n
    assert [len(tries) for tries in compiled].count(2) == 1
    before = len(compiled)
    for _ in range(3):
        assert matcher.rewrite(n + 7) is n
        assert matcher.rewrite(n + 3) is None
    assert len(compiled) == before


def test_in_one_piece_a_rule_that_raises_is_named_too() -> None:
    def broken(x: UOp, c: UOp) -> UOp:
        raise ZeroDivisionError("by zero")

    rules: list[Any] = [
        (x // c, lambda x, c: None, "first"),
        (x // 3, lambda x: None, "second"),
        (x // c, broken),
        (x // c, lambda x, c: 5, "last"),
    ]
    matcher = PatternMatcher(rules)
    last = PatternMatcher([*rules[:2], rules[3]])
    for _ in range(_MANY + 3):
        with pytest.raises(RewriteError, match=r"broken \(test_steps.py:\d+\) failed on IDIV"):
            matcher.rewrite(n // 3)
        with pytest.raises(RewriteError, match=r"last .* a rule returns a UOp or None, not 5"):
            last.rewrite(n // 3)


def test_functions_do_not_keep_their_matcher_alive() -> None:
    matcher = PatternMatcher([(x + y, lambda x, y: None), (x + y, lambda y, x: None)])
    matcher.rewrite(n + m)
    table = weakref.ref(matcher.table)
    gc.disable()
    try:
        del matcher
        assert table() is None
    finally:
        gc.enable()
