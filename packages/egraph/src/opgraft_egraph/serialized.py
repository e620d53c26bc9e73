"""E-graphs in the public extraction format, as JSON.

`{"nodes": {id: {"op", "cost", "eclass", "children": [node ids]}}, "root_eclasses": [...]}`: a
child is named by any node of its class.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opgraft.api import errors
from opgraft_egraph.exact import Effort, Problem, Solution, solve, tree_optimum


@dataclass(frozen=True)
class Answer:
    """The chosen node of each class that the roots need."""

    choices: dict[str, str]
    cost: float
    proved: bool
    seconds: float
    lower: float
    how: str

    def to_json(self) -> dict[str, Any]:
        return {"cost": self.cost, "choices": self.choices, "proved": self.proved}


class Serialized:
    """An e-graph as it stands in a file."""

    def __init__(self, data: Mapping[str, Any], name: str = "the e-graph") -> None:
        self.name: Final = name
        nodes = self._part(data, "nodes")
        if not isinstance(nodes, Mapping):
            raise errors.ParseError(f"{name}: 'nodes' is to be an object: an id and a node each")
        self.nodes: Final[dict[str, Any]] = dict(nodes)
        self.ids: Final = list(self.nodes)
        self._class_of: Final[dict[str, str]] = {}
        for id_, node in self.nodes.items():
            if not isinstance(node, Mapping) or "eclass" not in node:
                raise errors.ParseError(f"{name}: node {id_!r} names no eclass")
            self._class_of[id_] = str(node["eclass"])
        numbers: dict[str, int] = {}
        for cls in self._class_of.values():
            numbers.setdefault(cls, len(numbers))
        self.classes: Final = list(numbers)
        given = self._part(data, "root_eclasses")
        if not isinstance(given, list | tuple):
            raise errors.ParseError(f"{name}: 'root_eclasses' is to be a list of classes")
        roots = [str(root) for root in given]
        for root in roots:
            if root not in numbers:
                raise errors.ParseError(f"{name}: root {root!r} is no class: it has no node")
        self.children: Final = [
            [self._child(id_, kid) for kid in self._kids(id_)] for id_ in self.ids
        ]
        self._repeats: Final = [[numbers[cls] for cls in kids] for kids in self.children]
        self.problem: Final = Problem(
            [numbers[self._class_of[id_]] for id_ in self.ids],
            self._repeats,
            [self._cost(id_) for id_ in self.ids],
            [numbers[root] for root in roots],
        )

    @classmethod
    def read(cls, path: str | Path) -> Serialized:
        """The e-graph in a file."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise errors.ParseError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise errors.ParseError(f"{path} is not JSON: {error}") from error
        except RecursionError as error:
            raise errors.ParseError(f"{path} is no e-graph: its JSON is nested deeply") from error
        if not isinstance(data, dict):
            raise errors.ParseError(f"{path}: an object with nodes and root_eclasses is expected")
        return cls(data, str(path))

    def _part(self, data: Mapping[str, Any], key: str) -> Any:
        if key not in data:
            raise errors.ParseError(f"{self.name}: {key!r} is missing")
        return data[key]

    def _kids(self, id_: str) -> list[str]:
        kids = self.nodes[id_].get("children", ())
        if not isinstance(kids, list | tuple):
            raise errors.ParseError(f"{self.name}: node {id_!r}: 'children' is to be a list of ids")
        return [str(kid) for kid in kids]

    def _cost(self, id_: str) -> float:
        cost = self.nodes[id_].get("cost", 1.0)
        try:
            if isinstance(cost, int | float):
                return float(cost)
        except OverflowError:  # a whole number without limits
            pass
        raise errors.ParseError(f"{self.name}: node {id_!r} costs {cost!r:.40}: no number")

    def _child(self, id_: str, kid: str) -> str:
        found = self._class_of.get(kid)
        if found is None:
            raise errors.ParseError(f"{self.name}: child {kid!r} of node {id_!r} is no node")
        return found

    # ---- answers

    def extract(
        self,
        cost: str = "dag",
        deadline: float = 10.0,
        report: Callable[[int], None] | None = None,
    ) -> Answer:
        """The cheapest choice: `cost` is "dag" (a node is paid once) or "tree"."""
        if cost == "tree":
            found = tree_optimum(self.problem, self._repeats)
        else:
            found = solve(self.problem, Effort(math.inf, deadline, True), report=report)
        return self._answer(found)

    def _answer(self, found: Solution) -> Answer:
        if math.isinf(found.cost):
            raise errors.OpgraftError(f"{self.name}: the cheapest term costs more than a float can")
        choices = {self.classes[cls]: self.ids[node] for cls, node in found.choice.items()}
        return Answer(
            *(choices, found.cost, found.proved, found.seconds, found.lower, found.how),
        )

    def price(self, choices: Mapping[str, str], cost: str = "dag") -> float:
        """What choices cost, worked out anew; an error if they are none.

        Every class that the roots need has a node of its own, and there is no circle.
        """
        numbers = {cls: i for i, cls in enumerate(self.classes)}
        places = {id_: i for i, id_ in enumerate(self.ids)}
        choice = {numbers[cls]: places[id_] for cls, id_ in choices.items()}
        units = self.problem.price(choice)
        if units is None:
            raise errors.OpgraftError("a class that is needed has no node, or there is a circle")
        if cost == "tree":
            return self.problem.tree_cost(choice, self._repeats)
        return self.problem.cost(units)
