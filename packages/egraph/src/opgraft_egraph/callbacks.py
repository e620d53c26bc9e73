"""`Callbacks`: the rules that an engine cannot run by itself, called with nodes.

The engine hands over the matches of a round. For each captured class the function sees the cheapest
node that is known of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opgraft.api import GroupOp, UOp, errors
from opgraft_egraph import codes
from opgraft_egraph.conflicts import conflict_error
from opgraft_egraph.language import closed
from opgraft_egraph.patterns import Match, Part, describe

if TYPE_CHECKING:
    from opgraft_egraph.graph import EGraph


def _passes(part: Part, node: UOp) -> bool:
    predicate = part.pattern.predicate
    return predicate is None or bool(predicate(node))


class LearntError(Exception):
    """A function has been traced that the engine did not know: it is to begin again."""


class Callbacks:
    """Calls the functions of a graph's rules, each once for the same nodes.

    It does not hold the graph, so that a graph is freed as soon as nobody does.
    """

    def __init__(self) -> None:
        self.counts: Final[dict[str, int]] = {}
        """How often each rule's function was called."""
        self._made: Final[dict[Any, UOp | None]] = {}

    def apply(self, graph: EGraph, matches: list[tuple[int, tuple[int, ...]]]) -> None:
        """Do what the rules say for these matches, until a limit is reached."""
        engine = graph.engine
        _learn(graph, matches)
        for way, slots in matches:
            if engine.over():
                return
            match = graph.ruleset.matches[way]
            made = self._call(graph, way, match, slots)
            if made is None:
                continue
            before, result = made
            left = slots[match.way.root]
            if graph.explain:
                # as the function saw it, so that it can be shown the same again
                left = graph.id_of(before)
                if engine.find(left) != engine.find(slots[match.way.root]):
                    continue
            if engine.unite(left, graph.id_of(result), way, codes.BY_RULE, way) is None:
                raise conflict_error(graph, slots=slots)

    def _call(
        self, graph: EGraph, way: int, match: Match, slots: tuple[int, ...]
    ) -> tuple[UOp, UOp] | None:
        """The matched node and what the rule makes of it; None: it declines."""
        rule = graph.ruleset.rule_of[way]
        done: dict[int, UOp] = {}
        root = _part(graph, match.root, slots, done)
        names = match.captures
        captures = {
            n: _part(graph, names[n], slots, done) for n, _ in rule.parameters if n in names
        }
        key = (rule, root) if match.loose else (way, root, *captures.values())
        if not graph.analyses and key in self._made:
            made = self._made[key]
            return None if made is None else (root, made)
        self.counts[rule.name] = self.counts.get(rule.name, 0) + 1
        try:
            if match.loose:
                made = rule.interpret(root, graph.ctx)
            else:
                made = None
                if all(_passes(p, done[id(p)]) for p in match.predicates):
                    made = rule.apply(captures, graph.ctx)
        except Exception as error:
            shown = ", ".join(f"{n}={describe(c)}" for n, c in captures.items())
            raise errors.RewriteError(
                f"rule {rule} failed on {describe(root)} ({shown}): {type(error).__name__}: {error}"
            ) from error
        if made is root:
            made = None
        self._made[key] = made
        return None if made is None else (root, made)


def _learn(graph: EGraph, matches: list[tuple[int, tuple[int, ...]]]) -> None:
    """Have functions traced for the dtypes of these matches, if they were not yet."""
    ruleset, fact, new = graph.ruleset, graph.engine.fact, False
    for way, slots in matches:
        if ruleset.native[way]:
            captures = ruleset.matches[way].way.captures
            new |= ruleset.learn(way, tuple([fact(slots[s]).dtype for s in captures]))
    if new:
        raise LearntError


def _part(graph: EGraph, part: Part, slots: tuple[int, ...], done: dict[int, UOp]) -> UOp:
    """The node that stands for a part of a pattern in a match."""
    found = done.get(id(part))
    if found is not None:
        return found
    cls = slots[part.slot]
    if part.row < 0:
        made = graph.term(cls)
    else:
        row = graph.engine.node(slots[part.row])
        if part.kids is None or part.each:
            made = graph.built(row, [graph.term(k) for k in row.kids])
        else:
            kids = [_part(graph, kid, slots, done) for kid in part.kids]
            if part.swap and slots[part.kids[0].slot] != row.kids[0]:
                # matched the other way round: as it is, where that makes a difference
                n = graph.shown(row.head)
                if n is not None and n.op not in GroupOp.COMMUTATIVE:
                    kids.reverse()
            kids += [graph.term(k) for k in row.kids[len(kids) :]]
            n = graph.shown(row.head)
            assert n is not None
            made = n.with_src((*kids, *closed(n))) if row.kids else n
    done[id(part)] = made
    return made
