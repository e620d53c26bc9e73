"""What walks, look-ups and compiled matchers cost, counted instead of timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from opgraft.dtype import dtypes
from opgraft.ir import codegen
from opgraft.ir.intern import live_nodes
from opgraft.ir.matcher import signature
from opgraft.ir.ops import Ops
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.uop import UOp, head_of, toposort
from opgraft.rules.sets import sym


def ladder(rungs: int) -> UOp:
    """Every node is used twice: a walk that forgot where it was would take 2**rungs steps."""
    value = UOp.variable("x", 0, 9)
    for i in range(rungs):
        value = value * (value + i)
    return value


def test_a_walk_asks_the_gate_once_for_each_node_with_sources() -> None:
    asked: Counter[UOp] = Counter()

    def gate(n: UOp) -> bool:
        asked[n] += 1
        return True

    order = toposort((ladder(60),), gate)
    assert set(asked.values()) == {1}
    assert list(asked) != []
    assert all(not n.src for n in order if n not in asked)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_a_walk_lists_sources_first_each_once_and_in_their_order(width: int) -> None:
    leaves = [UOp.variable(f"w{i}", 0, 9) for i in range(width)]
    top = UOp.sink(*[leaf + 1 for leaf in leaves], *leaves)
    order = toposort((top, leaves[0]))
    place = {n: i for i, n in enumerate(order)}
    assert len(place) == len(order)
    assert all(place[s] < place[n] for n in order for s in n.src)
    assert [n for n in order if n in leaves] == leaves


def test_what_is_there_already_makes_no_node_and_no_head() -> None:
    x = UOp.variable("counted", 0, 9)
    kept = [(x + 3) * (x % 4) for _ in range(2)]
    before, head = live_nodes(), head_of(Ops.ADD, dtypes.index)
    again = [(x + 3) * (x % 4) for _ in range(100)]
    assert live_nodes() == before
    assert {id(n) for n in again} == {id(kept[0])}
    assert head_of(Ops.ADD, dtypes.index) is head


def test_rewriting_again_compiles_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def graph(name: str) -> UOp:
        return (UOp.variable(name, 0, 9) * 4 + 3) // 4 % 5

    graph_rewrite(graph("first"), sym)
    made: list[Any] = []
    original = codegen.Generator.function

    def counted(self: codegen.Generator, *arguments: Any) -> Any:
        made.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(codegen.Generator, "function", counted)
    graph_rewrite(graph("second"), sym)
    assert made == []


def test_the_quick_look_at_sources_leaves_out_no_rule_that_can_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = UOp.variable("x", 0, 9), UOp.variable("y", -3, 9)
    f = UOp(Ops.PARAM, dtypes.float32, (), (0, 64)).load(x)
    b = x < y
    operands = [x, y + 1, x * 3, x * 0, x % 4, x // 5, UOp.const(dtypes.index, -1)]
    nodes = [a + c for a in operands for c in operands]
    nodes += [a * c for a in operands for c in operands]
    nodes += [a // c for a in operands for c in operands] + [
        a % c for a in operands for c in operands
    ]
    nodes += [f * 0.0, f * 1.0, f + -0.0, f * f, (f * 2.0).cast(dtypes.int32), b & b, b ^ True]
    nodes += [b.where(x, y), b.where(x, x), (b ^ True).where(f, f * 2.0), x.maximum(y), x.eq(y)]

    def sources() -> dict[Any, list[str]]:
        generator = codegen.Generator(sym.rules)
        found: dict[Any, list[str]] = {}
        for n in nodes:
            kind, *known = signature(n)  # type: ignore[misc]
            generator.function(kind, list(known))
            found[kind, *known] = list(generator._functions)
        return found

    quick = sources()
    monkeypatch.setattr(codegen, "_sources_may_fit", lambda pattern, kinds: True)
    assert sources() == quick
