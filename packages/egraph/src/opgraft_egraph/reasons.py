"""Why what the optimizer made of a graph equals it, expression by expression.

The optimizer keeps no proofs, for they take time and memory. When somebody asks, the expressions
that it changed are found by comparing both graphs. The equalities lead from each down to a normal
form, rule by rule, and from what stands in its place; where those are two, an e-graph that keeps
proofs finds the way from one to the other by the alternatives that greedy rewriting cannot use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from opgraft.api import EqualitySet, GroupOp, UOp
from opgraft_egraph import codes
from opgraft_egraph.engine import Fact
from opgraft_egraph.explanation import Condition, Explanation, Step, explain, replaced
from opgraft_egraph.graph import EGraph
from opgraft_egraph.report import Schedule
from opgraft_egraph.ruleset import ruleset_of
from opgraft_egraph.tracing import facts_of

_ROUNDS: Final = 30
_REWRITES: Final = 1_000
_ROUND: Final = Schedule(nodes=20_000, rounds=1, seconds=20.0, matches=2_000, ban_rounds=2)


def reasons(
    before: UOp, after: UOp, equalities: EqualitySet, alternatives: EqualitySet
) -> list[Explanation]:
    """A chain of rules for each changed expression.

    One that is not found within the limits has no steps, and its check says so.
    """
    return [
        Explanation(old, new, tuple(_steps(old, new, equalities, alternatives)))
        for old, new in changes(before, after)
    ]


def changes(before: UOp, after: UOp) -> Iterator[tuple[UOp, UOp]]:
    """The expressions that differ, (old, new), each pair once, in the order of the old graph.

    Where both have the same operation that only holds what it uses (a store, a loop's end), it is
    looked into; an arithmetic one is taken as a whole, unless all it uses has its counterpart.
    """
    seen: dict[tuple[UOp, UOp], None] = {}
    stack = [(before, after)]
    while stack:
        old, new = stack.pop()
        if old is new or (old, new) in seen:
            continue
        seen[old, new] = None
        alike = old.head == new.head and len(old.src) == len(new.src)
        if alike and (old.op not in GroupOp.ALU or _only_below(old, new)):
            stack.extend(reversed(list(zip(old.src, new.src))))
        else:
            yield old, new


def _only_below(old: UOp, new: UOp) -> bool:
    """Whether the arithmetic is the same, and only what it is done on differs."""
    stack, seen = [(old, new)], dict[tuple[UOp, UOp], None]()
    while stack:
        a, b = stack.pop()
        if a is b or (a, b) in seen:
            continue
        seen[a, b] = None
        if a.head != b.head or len(a.src) != len(b.src):
            return False
        if a.op in GroupOp.ALU:
            stack.extend(zip(a.src, b.src))
    return True


def _steps(
    old: UOp, new: UOp, equalities: EqualitySet, alternatives: EqualitySet
) -> Sequence[Step]:
    down, normal = _normalized(old, equalities)
    up, wanted = _normalized(new, equalities)
    all_rules = EqualitySet([*equalities.rules, *alternatives.rules])
    across: Sequence[Step] | None = ()
    if normal is not wanted:
        across = _chain(normal, wanted, alternatives)
    if across is None:
        across = _chain(normal, wanted, all_rules)
    if across is not None:
        return [*down, *across, *(_reversed(step) for step in reversed(up))]
    # not by way of the normal forms
    return _chain(old, new, all_rules) or ()


def _reversed(step: Step) -> Step:
    return Step(
        *(step.kind, step.after, step.before, step.right, step.left, step.rule, not step.forward),
        conditions=step.conditions,
    )


def _normalized(root: UOp, rules: EqualitySet) -> tuple[list[Step], UOp]:
    """What greedy rewriting makes of an expression, one rule at one place at a time."""
    steps: list[Step] = []
    while len(steps) < _REWRITES:
        found = _first_rewrite(root, rules)
        if found is None:
            break
        place, n, rule, made = found
        after = replaced(root, place, made)
        conditions = _conditions(rules, rule, n)
        steps.append(Step("rule", root, after, n, made, rule, conditions=conditions))
        root = after
    return steps, root


def _first_rewrite(root: UOp, rules: EqualitySet) -> tuple[tuple[int, ...], UOp, Any, UOp] | None:
    for place, n in _places(root):
        found = _rewritten(n, rules)
        if found is not None:
            return place, n, *found
    return None


def _conditions(rules: EqualitySet, rule: Any, n: UOp) -> tuple[Condition, ...]:
    """What a rule may have asked of the nodes that it captured: their bounds, where it can.

    A rule that was traced says which captures it asks about; of others that is not known.
    """
    ruleset = ruleset_of(rules)
    asked: dict[str, None] = {}
    for way, match in enumerate(ruleset.matches):
        if ruleset.rule_of[way] is rule:
            variants = ruleset.language.book.variants[way]
            slots = {slot for variant in variants for slot in facts_of(variant)}
            traced = ruleset.native[way] and bool(variants)
            asked.update(
                (name, None)
                for name, part in match.captures.items()
                if not traced or part.slot in slots
            )
    captures: dict[str, UOp] = next(iter(rule.pattern.matches(n)), {})
    return tuple(
        Condition(name, node, _bounds(node)) for name, node in captures.items() if name in asked
    )


def _bounds(n: UOp) -> Fact:
    """What a node shows of its values by itself."""
    low, high = codes.LEAST, codes.MOST
    if n.dtype.kind not in ("float", "void"):
        low, high = (
            int(end) if codes.LEAST < end < codes.MOST else other
            for end, other in ((n.vmin, low), (n.vmax, high))
        )
    return Fact(low, high, codes.NUMBER_INT if n.is_const else 0, 0, 1, 0, 0, False)


def _rewritten(n: UOp, rules: EqualitySet) -> tuple[Any, UOp] | None:
    """The first rule that makes something else of a node, and what."""
    if rules.rewrite(n) is None:
        return None
    for rule in rules.rules:
        made = rule.interpret(n, None)
        if made is not None and made is not n:
            return rule, made
    return None


def _places(root: UOp) -> Iterator[tuple[tuple[int, ...], UOp]]:
    """Every node once, with a way from the root to it, sources first."""
    done: dict[UOp, None] = {}
    stack: list[tuple[tuple[int, ...], UOp, bool]] = [((), root, False)]
    while stack:
        place, n, ready = stack.pop()
        if n in done:
            continue
        if ready:
            done[n] = None
            yield place, n
            continue
        stack.append((place, n, True))
        stack += [((*place, i), s, False) for i, s in reversed(list(enumerate(n.src)))]


def _chain(old: UOp, new: UOp, rules: EqualitySet) -> Sequence[Step] | None:
    """The steps from one to the other; None: these rules do not lead there, or not soon."""
    if old is new:
        return ()
    graph = EGraph((old, new), rules, explain=True)
    for _ in range(_ROUNDS):
        if graph.equal(old, new):
            return explain(graph, old, new).steps
        if graph.run(_ROUND).stop != "rounds":
            break
    return explain(graph, old, new).steps if graph.equal(old, new) else None
