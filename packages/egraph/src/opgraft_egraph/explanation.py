"""`Explanation`: a chain of rule applications from one node to an equal one, and its check.

>>> from opgraft.api import EqualitySet, UPat
>>> from opgraft_egraph import EGraph
>>> x = UPat.var("x")
>>> rules = EqualitySet([(x + 0, lambda x: x, "add_zero"), (x * 1, lambda x: x, "times_one")])
>>> a = UOp.variable("a", 0, 9)
>>> graph = EGraph((a + 0) * 1, rules, explain=True)
>>> report = graph.run()
>>> print(explain(graph, (a + 0) * 1, a))
(a + 0)*1
  = a + 0  by times_one
  = a  by add_zero
>>> explain(graph, (a + 0) * 1, a).check()
[]
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from opgraft.api import GroupOp, Ops, UOp, errors, evaluate
from opgraft_egraph import codes
from opgraft_egraph.engine import Fact
from opgraft_egraph.graph import EGraph
from opgraft_egraph.language import closed
from opgraft_egraph.proofs import FlatStep, flat, rebuilt
from opgraft_egraph.tracing import facts_of

_KINDS: Final = {
    codes.BY_RULE: "rule",
    codes.BY_CALLER: "merge",
    codes.BY_VALUE: "value",
    codes.BY_CONGRUENCE: "commute",
}
_POINTS: Final = 32


@dataclass(frozen=True)
class Condition:
    """What was known of a captured class when a rule was allowed to fire."""

    name: str
    node: UOp
    fact: Fact

    def __str__(self) -> str:
        if self.fact.number:
            return f"{self.name} is constant"
        low = "-inf" if self.fact.low == codes.LEAST else self.fact.low
        high = "inf" if self.fact.high == codes.MOST else self.fact.high
        return f"{self.name} in [{low}, {high}]"


@dataclass(frozen=True)
class Step:
    """`before` = `after`, because `left` = `right` at one place in them.

    `kind`: "rule" (in the direction of `rule` if `forward`, else against it), "value" (`left` has
    one value only, or `right` has), "commute" (operands turned round), "merge" (the caller said
    so).
    """

    kind: str
    before: UOp
    after: UOp
    left: UOp
    right: UOp
    rule: Any = None
    forward: bool = True
    conditions: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        if self.kind != "rule":
            return {"value": "its value", "commute": "turning operands", "merge": "the caller"}[
                self.kind
            ]
        where = f" where {', '.join(map(str, self.conditions))}" if self.conditions else ""
        return f"{self.rule.name}{'' if self.forward else ' (from right to left)'}{where}"

    def fault(self) -> str:
        """Why this step does not hold; empty: it does."""
        if not _replaces(self.before, self.after, self.left, self.right):
            return "the rest of the node changes too"
        if self.kind == "merge":
            return ""
        if self.kind == "commute":
            turned = self.left.src == self.right.src[::-1]
            same = self.left.with_src(self.right.src) is self.right
            return "" if turned and same and self.left.op in GroupOp.COMMUTATIVE else "no turn"
        if self.kind == "value":
            one, other = (self.left, self.right) if self.right.is_const else (self.right, self.left)
            value = other.const_value
            if one.dtype.kind != "float" and one.vmin == one.vmax == value:
                return ""
            return "" if _same_values(one, other) else f"{one!r} has other values than {value!r}"
        start, end = (self.left, self.right) if self.forward else (self.right, self.left)
        for captures in self.rule.pattern.matches(start):
            if self.rule.apply(captures, None) is end:
                return ""
        if self.conditions and _same_values(start, end):
            # it fired by facts of a class, of which this member alone does not show them
            return ""
        return f"{self.rule} makes something else of {start!r}"


@dataclass(frozen=True)
class Explanation:
    """Why two nodes are equal: each step's `after` is the next one's `before`."""

    start: UOp
    end: UOp
    steps: tuple[Step, ...]

    def check(self) -> list[str]:
        """The faults found when each rule is applied again; empty: the explanation holds.

        Where a rule fired by facts that the node at hand does not show by itself, values at
        random points stand in for it; merges by the caller are taken for granted.
        """
        found = [f"step {i}: {step.fault()}" for i, step in enumerate(self.steps) if step.fault()]
        here = self.start
        for i, step in enumerate(self.steps):
            if step.before is not here:
                found.append(f"step {i} does not begin where the one before it ended")
            here = step.after
        if here is not self.end:
            found.append("the last step does not end at the second node")
        return found

    @property
    def rules(self) -> list[str]:
        """The names of the rules that were used, in order."""
        return [step.rule.name for step in self.steps if step.kind == "rule"]

    def __str__(self) -> str:
        shown = [_text(self.start)]
        shown += [f"  = {_text(step.after)}  by {step}" for step in self.steps]
        return "\n".join(shown)


def _text(n: UOp) -> str:
    text = repr(n)
    head, _, body = text.partition(": ")
    return body.removesuffix(">") if head.startswith("<") and body else text


def explain(graph: EGraph, a: UOp, b: UOp) -> Explanation:
    """Why `a` and `b` are equal. The graph must have been made with `explain=True`."""
    if not graph.explain:
        raise errors.OpgraftError(
            "this e-graph keeps no proofs", remedy="make it with EGraph(..., explain=True)"
        )
    with graph.turn:
        return Explanation(a, b, _steps(graph, a, b))


def _steps(graph: EGraph, a: UOp, b: UOp) -> tuple[Step, ...]:
    graph.rebuild()
    first, last = graph.id_of(a), graph.id_of(b)
    if graph.engine.find(first) != graph.engine.find(last):
        raise errors.OpgraftError(f"{a!r} and {b!r} are not equal in this e-graph")
    steps: list[Step] = []
    done: dict[int, object] = {}
    here = a
    for item in flat(graph.engine, first, last):
        left, right = _node(graph, item.link.left, done), _node(graph, item.link.right, done)
        if item.link.kind == codes.BY_CONGRUENCE:
            # the children have been dealt with: what is left is their order
            left = _at(here, item.place)
            right = left.with_src(left.src[::-1])
        after = replaced(here, item.place, right)
        steps.append(_step(graph, item, here, after, left, right))
        here = after
    return tuple(steps)


def _node(graph: EGraph, term: int, done: dict[int, object]) -> UOp:
    def make(head: int, kids: list[object]) -> object:
        n = graph.shown(head)
        if n is None:
            _, dtype, number, value = graph.engine.head_at(head)
            return graph.number(Fact(0, 0, number, value, 0, 0, dtype, False))
        return n.with_src((*kids, *closed(n))) if kids else n  # type: ignore[arg-type]

    made = rebuilt(graph.engine, term, make, done)
    assert isinstance(made, UOp)
    return made


def _step(graph: EGraph, item: FlatStep, before: UOp, after: UOp, left: UOp, right: UOp) -> Step:
    link = item.link
    kind = _KINDS[link.kind]
    rule: Any = None
    conditions: tuple[Condition, ...] = ()
    if kind == "rule":
        rule = graph.ruleset.rule_of[link.data]
        conditions = _conditions(graph, link.data, left if link.forward else right)
    return Step(kind, before, after, left, right, rule, link.forward, conditions)


def _conditions(graph: EGraph, way: int, start: UOp) -> tuple[Condition, ...]:
    match = graph.ruleset.matches[way]
    looked_at = {s for v in graph.language.book.variants[way] for s in facts_of(v)}
    rule = graph.ruleset.rule_of[way]
    found: list[Condition] = []
    for captures in rule.pattern.matches(start):
        for name, node in captures.items():
            part = match.captures.get(name)
            if part is not None and part.slot in looked_at:
                found.append(Condition(name, node, graph.fact(node)))
        break
    return tuple(found)


def _at(n: UOp, place: Sequence[int]) -> UOp:
    for i in place:
        n = n.src[i]
    return n


def replaced(n: UOp, place: Sequence[int], by: UOp) -> UOp:
    """The node with `by` at a place in it: the source to follow, from the root on."""
    above: list[UOp] = []
    for i in place:
        above.append(n)
        n = n.src[i]
    made = by
    for parent, i in zip(reversed(above), reversed(place)):
        made = parent.with_src((*parent.src[:i], made, *parent.src[i + 1 :]))
    return made


def _replaces(before: UOp, after: UOp, left: UOp, right: UOp) -> bool:
    """Whether `after` is `before` with one `left` in it replaced by `right`."""
    a, b = before, after
    while a is not left or b is not right:
        if a.op is not b.op or len(a.src) != len(b.src) or a.with_src(b.src) is not b:
            return False
        differ = [i for i, (x, y) in enumerate(zip(a.src, b.src)) if x is not y]
        if len(differ) != 1:
            return False
        a, b = a.src[differ[0]], b.src[differ[0]]
    return True


def _same_values(a: UOp, b: UOp) -> bool:
    """Whether two expressions have the same value at random points of their variables."""
    leaves = [n for n in UOp.sink(a, b).toposort() if not n.src and not n.is_const]
    leaves += [n for n in UOp.sink(a, b).toposort() if n.op is Ops.RANGE]
    rng = random.Random(0)
    for _ in range(_POINTS):
        values: dict[UOp, Any] = {n: _value(rng, n) for n in leaves}
        try:
            if repr(evaluate(a, values)) != repr(evaluate(b, values)):
                return False
        except KeyError:  # not of elementwise operations alone
            return False
    return True


def _value(rng: random.Random, n: UOp) -> Any:
    if n.dtype.is_float:
        return n.dtype.const(rng.choice((0.0, -0.0, 1.0, -1.5, rng.uniform(-100, 100))))
    low, high = max(n.vmin, -(1 << 40)), min(n.vmax, 1 << 40)
    return n.dtype.const(rng.randint(int(low), int(high)))
