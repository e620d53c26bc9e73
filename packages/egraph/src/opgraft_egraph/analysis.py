"""Analyses of one's own: a value for every class, made of its nodes.

>>> class Depth(Analysis):
...     def make(self, node, kids):
...         return 1 + max(kids, default=-1)
...     def merge(self, a, b):
...         return min(a, b)
>>> from opgraft_egraph import EGraph
>>> a = UOp.variable("a", 0, 9)
>>> graph = EGraph(a + a * 2, analyses={"depth": Depth()})
>>> report = graph.run()
>>> graph.analysis("depth", a + a * 2)
2

Rules that take `ctx` get the graph's analyses as it: `ctx("depth", x)` is the value of the class
of a captured node. When a value changes, they are asked again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from opgraft.api import UOp, errors
from opgraft_egraph.engine import NodeRow

_MOST_PASSES: Final = 1_000


class Analysis(ABC):
    """What a value is. Values are compared with `==`, and only ever get more precise."""

    @abstractmethod
    def make(self, node: UOp, kids: Sequence[Any]) -> Any:
        """The value of a node: of its operation, dtype and argument, and of its children's values.

        The sources of `node` are not those of the class: look at `kids`.
        """

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """What is known where both hold; `ValueError` if they cannot both hold."""


def values_of(
    name: str,
    analysis: Analysis,
    rows: Iterable[NodeRow],
    show: Callable[[NodeRow], UOp],
    conflict: Callable[[str, int, str], Exception],
) -> dict[int, Any]:
    """The value of every class, by repeated passes over the nodes until none changes."""
    found: dict[int, Any] = {}
    waiting = list(rows)
    shown: Mapping[int, UOp] = {row.id: show(row) for row in waiting}
    for _ in range(_MOST_PASSES):
        changed = False
        for row in waiting:
            if any(kid not in found for kid in row.kids):
                continue
            made = analysis.make(shown[row.id], [found[kid] for kid in row.kids])
            if row.cls in found:
                try:
                    made = analysis.merge(found[row.cls], made)
                except ValueError as problem:
                    raise conflict(name, row.cls, str(problem)) from problem
                if made == found[row.cls]:
                    continue
            found[row.cls] = made
            changed = True
        if not changed:
            return found
    raise errors.RewriteError(f"analysis {name} does not come to rest: its values keep changing")
