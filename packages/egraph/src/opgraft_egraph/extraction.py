"""The cheapest terms of an e-graph: which node each class takes, and how good that is known to be.

1. The cheapest tree of every class, and greedy choices that pay for shared parts once, by the
   engine (csrc/extract.c; reference_extraction.py).
2. A lower bound by the engine (csrc/bound.c), which often is what they cost.
3. `exact/` on what the roots can reach: reductions, bounds, exchanges, branch and bound, until the
   optimum is proved or the effort is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from opgraft.api import errors
from opgraft_egraph.engine import Engine, NodeRow
from opgraft_egraph.exact.effort import QUICK, USUAL, Effort

if TYPE_CHECKING:
    from opgraft_egraph.exact.problem import Problem

T = TypeVar("T")
CostKind: TypeAlias = Literal["dag", "tree"]
"""What a term costs: each distinct node once ("dag"), or as often as it is used ("tree")."""

_MOST: Final = 1e300
"""What costs more is without limit to the engines."""


class Extraction(NamedTuple, Generic[T]):
    """The cheapest equals of some roots, together, and what is known about how cheap they are."""

    terms: tuple[T, ...]
    """One for each root, in order."""
    cost: float
    """Of all of them together: by "dag", what they share is paid once."""
    proved: bool
    """Whether the e-graph holds nothing cheaper."""
    lower: float
    """Nothing in the e-graph costs less than this."""
    how: str
    """What found it: "tree", "greedy-DAG", "exchange", "branch and bound", "integer program"."""
    stop: str
    """"proved", or the limit that ended the search: "steps", "seconds"."""
    steps: int
    repeatable: bool
    """Whether no clock had a say: the same terms in every process and on every machine."""


class Choice(NamedTuple):
    """An extraction as numbers: a node for each class that the roots need."""

    nodes: dict[int, int]
    cost: float
    proved: bool
    lower: float
    how: str
    stop: str
    steps: int = 0
    repeatable: bool = True

    def of(self, terms: tuple[T, ...]) -> Extraction[T]:
        """The same with the terms that the nodes make."""
        return Extraction(terms, *self[1:])


def choose(
    engine: Engine,
    roots: Sequence[int],
    prices: Sequence[float] | None,
    cost: CostKind,
    effort: Effort = USUAL,
) -> tuple[Choice, dict[int, NodeRow]]:
    """The cheapest choice for some classes of a rebuilt engine, and the chosen nodes by class.

    `prices`: of each node by its id; None: of its head. A root without a term, or with none of a
    finite price, is an error.
    """
    if cost not in ("dag", "tree"):
        raise errors.OpgraftError(f'a cost is "dag" or "tree", not {cost!r}')
    if prices is not None:
        for price in prices:
            if not price >= 0:
                raise errors.OpgraftError(f"a node costs {price}: a cost is at least 0")
    wanted = [engine.find(root) for root in roots]
    chosen, total = engine.extract(prices, wanted, cost == "dag")
    if not total < _MOST:
        list(engine.chosen(chosen, wanted))  # an error where a root has no term at all
        raise errors.OpgraftError("nothing to extract: every term of a root costs without limit")
    if cost == "tree":
        made = Choice({}, total, True, total, "tree", "proved")
    else:
        lower = engine.bound(prices, wanted, total) if effort.steps > QUICK.steps else 0.0
        if lower < total and effort.steps > QUICK.steps:
            return _exactly(engine, wanted, prices, chosen, effort)
        proved = total <= lower
        stop = "proved" if proved else "steps"
        made = Choice({}, total, proved, lower, "greedy-DAG", stop)
    rows = {row.cls: row for row in engine.chosen(chosen, wanted)}
    return made._replace(nodes={cls: row.id for cls, row in rows.items()}), rows


def _exactly(
    engine: Engine,
    roots: Sequence[int],
    prices: Sequence[float] | None,
    chosen: Sequence[int],
    effort: Effort,
) -> tuple[Choice, dict[int, NodeRow]]:
    """What `exact.solve` makes of the part of the graph that the roots reach."""
    from opgraft_egraph.exact.problem import Problem  # late: most extractions do without
    from opgraft_egraph.exact.solver import solve

    members: dict[int, list[NodeRow]] = {}
    for row in engine.dump():
        members.setdefault(row.cls, []).append(row)
    places: dict[int, int] = {}
    stack = list(reversed(roots))
    while stack:
        cls = stack.pop()
        if cls not in places:
            places[cls] = len(places)
            for row in members.get(cls, ()):
                stack.extend(kid for kid in row.kids if kid not in places)
    rows = [row for cls in places for row in members.get(cls, ())]
    given = engine.node_prices() if prices is None else prices
    problem = Problem(
        [places[row.cls] for row in rows],
        [[places[kid] for kid in row.kids] for row in rows],
        [given[row.id] for row in rows],
        [places[root] for root in roots],
    )
    where = {row.id: i for i, row in enumerate(rows)}
    seed = {place: where[chosen[cls]] for cls, place in places.items() if chosen[cls] in where}
    found = solve(problem, effort, seed=seed)
    nodes: dict[int, NodeRow] = {}
    for place in _bottom_up(problem, found.choice):
        row = rows[found.choice[place]]
        nodes[row.cls] = row
    how = "greedy-DAG" if found.how == "seed" else found.how
    made = Choice(
        *({cls: row.id for cls, row in nodes.items()}, found.cost, found.proved, found.lower),
        *(how, found.stop, found.steps, found.repeatable),
    )
    return made, nodes


def _bottom_up(problem: Problem, choice: Mapping[int, int]) -> list[int]:
    """The classes of an acyclic choice, parts before what they are parts of."""
    done: dict[int, None] = {}
    stack = list(reversed(problem.roots))
    while stack:
        cls = stack[-1]
        if cls not in done:
            missing = [kid for kid in problem.children[choice[cls]] if kid not in done]
            if missing:
                stack += reversed(missing)
                continue
            done[cls] = None
        stack.pop()
    return list(done)
