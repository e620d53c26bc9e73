"""Makes a problem smaller without losing every optimum.

Nodes are deleted or joined, and a child is dropped only where what is needed anyway brings it
along, so a solution of what is left says at once which node each class of the whole takes.

- A class that no root can reach, and a node that can have no term, are out.
- `must(c)`: the classes that every term of c holds. A node whose own class is in the `must` of
  its children is out: its terms would run in a circle.
- A node is out if another of its class is no dearer and needs nothing but what it needs too.
- A class that every solution holds costs its users nothing. Where it lies in no circle with a
  user, the user can forget it.
- A class with one node, free of charge, is replaced by the children of that node.
- A class that only nodes of one other class use is paid once at most: its nodes are joined with
  those that use it.
- A node that makes a solution dearer than a known one, by a lower bound, is out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, TypeAlias

from opgraft_egraph.exact.effort import Effort, Meter
from opgraft_egraph.exact.problem import Problem

_Parts: TypeAlias = "int | tuple[_Parts, _Parts]"
_MOST_CLASSES: Final = 20_000
"""Sets of classes are bits of numbers; of more classes than this, they would take too much."""


class Reduced:
    """What is left of a problem: nodes, each of which stands for some of the problem's."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.classes: list[int] = list(problem.classes)
        self.prices: list[int] = list(problem.prices)
        self.children: list[tuple[int, ...]] = list(problem.children)
        self.parts: list[_Parts] = list(range(len(self.classes)))
        """The problem's nodes that a node stands for: one, or those of two that were joined."""
        self.members: list[list[int]] = [
            [n for n in nodes if problem.usable[n] and cls not in problem.children[n]]
            for cls, nodes in enumerate(problem.members)
        ]
        self.roots: tuple[int, ...] = problem.roots
        self.base = 0
        """The price of what every solution holds and the rest no longer mentions."""
        self.bound = 0
        """No solution costs less."""
        self.fixed: dict[int, int] = {}
        """The problem's nodes of classes that are no longer mentioned."""
        self.must: list[int] = []
        self.component: list[int] = []

    def copy(self) -> Reduced:
        """The same with numbers closed up, for a branch of the search."""
        new = Reduced.__new__(Reduced)
        place = {cls: i for i, cls in enumerate(c for c, m in enumerate(self.members) if m)}
        for root in self.roots:
            place.setdefault(root, len(place))
        nodes = [n for n in self.nodes if all(kid in place for kid in self.children[n])]
        new.problem = self.problem
        new.classes = [place[self.classes[n]] for n in nodes]
        new.prices = [self.prices[n] for n in nodes]
        new.children = [tuple(place[kid] for kid in self.children[n]) for n in nodes]
        new.parts = [self.parts[n] for n in nodes]
        new.members = [[] for _ in place]
        for i, cls in enumerate(new.classes):
            new.members[cls].append(i)
        new.roots = tuple(place[root] for root in self.roots)
        new.base, new.bound = self.base, self.bound
        new.fixed = dict(self.fixed)
        new.must, new.component = [], []
        return new

    @property
    def solved(self) -> bool:
        """Whether there is nothing left to choose."""
        return not self.roots

    def solvable(self) -> bool:
        """Whether every root still has a term."""
        return all(self.members[root] for root in self.roots)

    def needed(self) -> int:
        """The classes, as bits, that every solution of the rest holds."""
        bits = 0
        for root in self.roots:
            bits |= self.must[root] if self.must else 1 << root
        return bits

    @property
    def nodes(self) -> list[int]:
        """Those that are left, class by class."""
        return [n for nodes in self.members for n in nodes]

    def lift(self, chosen: Iterable[int]) -> dict[int, int]:
        """The choice for the whole problem, of the nodes chosen here."""
        whole = dict(self.fixed)
        for node in chosen:
            whole.update(self._stood_for(node))
        return whole

    def _stood_for(self, node: int) -> dict[int, int]:
        found: dict[int, int] = {}
        stack = [self.parts[node]]
        while stack:
            part = stack.pop()
            if isinstance(part, tuple):
                stack += part
            else:
                found[self.problem.classes[part]] = part
        return found

    # ---- the steps

    def simplify(self, meter: Meter | None = None) -> None:
        """Every step that needs no bound, until none changes anything or the meter runs out."""
        meter = meter or Meter(Effort(math.inf, math.inf))
        self.trim()
        if 2 * sum(1 for nodes in self.members if nodes) < len(self.members):
            # sets of classes are as long as the greatest number of one
            self.__dict__.update(self.copy().__dict__)
        changed = True
        while changed and meter.spend(3 * len(self.nodes)):
            changed = False
            if len(self.members) <= _MOST_CLASSES and self._require(meter):
                changed |= self._without_circles()
                changed |= self._without_dearer(meter)
                self.trim()
            changed |= self._inline()
            changed |= self._forget()
            changed |= self._join()
            self.trim()
        if changed:
            # stopped half way: what it says of classes that are gone since would be wrong
            self.must = []

    def delete(self, nodes: Iterable[int]) -> bool:
        """Take nodes out; whether there were any."""
        gone = set(nodes)
        if gone:
            for cls in dict.fromkeys(self.classes[n] for n in gone):
                self.members[cls] = [n for n in self.members[cls] if n not in gone]
        return bool(gone)

    def trim(self) -> None:
        """Keep what has a term and what the roots reach."""
        missing = {n: len(self.children[n]) for n in self.nodes}
        uses: list[list[int]] = [[] for _ in self.members]
        for n in missing:
            for kid in self.children[n]:
                uses[kid].append(n)
        built: dict[int, None] = {}
        ready = [n for n, count in missing.items() if not count]
        while ready:
            cls = self.classes[ready.pop()]
            if cls in built:
                continue
            built[cls] = None
            for user in uses[cls]:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        kept = {n for n, count in missing.items() if not count}
        reached: dict[int, None] = dict.fromkeys(self.roots)
        stack = list(self.roots)
        while stack:
            for n in self.members[stack.pop()]:
                if n in kept:
                    for kid in self.children[n]:
                        if kid not in reached:
                            reached[kid] = None
                            stack.append(kid)
        self.members = [
            [n for n in nodes if n in kept] if cls in reached else []
            for cls, nodes in enumerate(self.members)
        ]

    def _require(self, meter: Meter) -> bool:
        """`must` of every class, as bits: the greatest sets that agree with the nodes.

        False: the meter ran out before they were found, and there are none.
        """
        everything = (1 << len(self.members)) - 1
        must = [everything] * len(self.members)
        uses: list[list[int]] = [[] for _ in self.members]
        for n in self.nodes:
            for kid in self.children[n]:
                uses[kid].append(self.classes[n])
        queue = dict.fromkeys(c for c in reversed(self.sort()) if self.members[c])
        while queue:
            following: dict[int, None] = {}
            for cls in queue:
                if not meter.spend(len(self.members[cls])):
                    self.must = []
                    return False
                common = everything
                for n in self.members[cls]:
                    own = 0
                    for kid in self.children[n]:
                        own |= must[kid]
                    common &= own
                common |= 1 << cls
                if common != must[cls]:
                    must[cls] = common
                    following.update(dict.fromkeys(uses[cls]))
            queue = following
        self.must = must
        return True

    def _below(self, node: int) -> int:
        """What every term of a node holds, beside its own class."""
        bits = 0
        for kid in self.children[node]:
            bits |= self.must[kid]
        return bits

    def _without_circles(self) -> bool:
        return self.delete(n for n in self.nodes if self._below(n) >> self.classes[n] & 1)

    def _without_dearer(self, meter: Meter) -> bool:
        """Of two nodes of a class, the one that costs no less and needs no less is out."""
        gone: list[int] = []
        prices = self.prices
        for nodes in self.members:
            if len(nodes) < 2:
                continue
            ranked = sorted(nodes, key=lambda n: (prices[n], len(self.children[n]), n))
            kept: list[tuple[int, int]] = []
            for n in ranked:
                if not meter.spend(1 + len(kept) // 8):
                    return self.delete(gone)
                below = self._below(n)
                if any(not needs & ~below for _, needs in kept):
                    gone.append(n)
                    continue
                needs = 0
                for kid in self.children[n]:
                    needs |= 1 << kid
                kept.append((n, needs))
        return self.delete(gone)

    def _inline(self) -> bool:
        """Replace classes with one node that costs nothing by that node's children."""
        free = {
            cls: self.children[nodes[0]]
            for cls, nodes in enumerate(self.members)
            if len(nodes) == 1 and not self.prices[nodes[0]]
        }
        if not free:
            return False
        changed = False
        flat: dict[int, tuple[int, ...]] = {}
        for cls in reversed(self.sort()):
            if cls in free:
                flat[cls] = _spread(free[cls], flat)
                self._fix(self.members[cls][0])
        for n in self.nodes:
            kids = self.children[n]
            if any(kid in flat for kid in kids):
                made = _spread(kids, flat)
                changed |= made != kids
                self.children[n] = made
        roots = _spread(self.roots, flat)
        changed |= roots != self.roots
        self.roots = roots
        self.delete(n for n in self.nodes if self.classes[n] in self.children[n])
        return changed

    def _forget(self) -> bool:
        """Pay at once for classes that every solution holds, where no circle goes through them."""
        if not self.must:
            return False
        needed = self.needed()
        self.sort()
        component = self.component
        changed = False
        paid: dict[int, None] = {}
        for cls, nodes in enumerate(self.members):
            if len(nodes) == 1 and needed >> cls & 1:
                alone = all(component[kid] != component[cls] for kid in self.children[nodes[0]])
                if alone:
                    paid[cls] = None
        more: dict[int, None] = {}
        for n in self.nodes:
            own = component[self.classes[n]]
            kept = tuple(
                kid for kid in self.children[n] if not needed >> kid & 1 or component[kid] == own
            )
            if len(kept) < len(self.children[n]):
                for kid in self.children[n]:
                    if kid not in kept:
                        more[kid] = None
                self.children[n] = kept
                changed = True
        roots = dict.fromkeys([*self.roots, *more])
        for cls in paid:
            if cls in roots:
                node = self.members[cls][0]
                del roots[cls]
                roots.update(dict.fromkeys(self.children[node]))
                self.base += self.prices[node]
                self._fix(node)
                changed = True
        self.roots = tuple(roots)
        return changed

    def _fix(self, node: int) -> None:
        self.fixed.update(self._stood_for(node))

    def _join(self) -> bool:
        """Join classes that one other class alone uses with the nodes there."""
        changed = False
        users: list[dict[int, None]] = [{} for _ in self.members]
        for n in self.nodes:
            for kid in self.children[n]:
                users[kid][n] = None
        roots = dict.fromkeys(self.roots)
        gone: dict[int, None] = {}
        for kid in range(len(self.members)):
            using = {n: None for n in users[kid] if n not in gone}
            owners = dict.fromkeys(self.classes[n] for n in using)
            inner = self.members[kid]
            if kid in roots or len(owners) != 1 or kid in owners or not inner:
                continue
            if len(using) * len(inner) > len(using) + len(inner):
                continue
            (owner,) = owners
            made = [self._joined(n, kid, m) for n in using for m in inner]
            self.members[owner] = [
                *(n for n in self.members[owner] if n not in using),
                *(n for n in made if owner not in self.children[n]),
            ]
            gone.update(dict.fromkeys((*using, *inner)))
            self.members[kid] = []
            for n in made:
                if owner in self.children[n]:
                    gone[n] = None
                for below in self.children[n]:
                    users[below][n] = None
            changed = True
        return changed

    def _joined(self, user: int, kid: int, inner: int) -> int:
        """A node that is `user` with `inner` for its child `kid`."""
        self.classes.append(self.classes[user])
        self.prices.append(self.prices[user] + self.prices[inner])
        own = tuple(k for k in self.children[user] if k != kid)
        self.children.append(tuple(dict.fromkeys((*own, *self.children[inner]))))
        self.parts.append((self.parts[user], self.parts[inner]))
        return len(self.classes) - 1

    def sort(self) -> list[int]:
        """Classes, users before what they use where no circle is (Tarjan's components)."""
        order, component = _components(
            [
                tuple(dict.fromkeys(kid for n in nodes for kid in self.children[n]))
                for nodes in self.members
            ]
        )
        self.component = component
        return order


def _spread(kids: tuple[int, ...], flat: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(k for kid in kids for k in flat.get(kid, (kid,))))


def _components(edges: list[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    """Vertices, those that lead to others first, and the component of each, by its number.

    The strongly connected components of a graph, without recursion (Tarjan 1972).
    """
    count = len(edges)
    index, low = [-1] * count, [0] * count
    component = [-1] * count
    done: list[int] = []
    open_: list[int] = []
    clock = components = 0
    for start in range(count):
        if index[start] >= 0:
            continue
        stack = [(start, 0)]
        while stack:
            v, place = stack.pop()
            if not place:
                index[v] = low[v] = clock
                clock += 1
                open_.append(v)
            else:
                low[v] = min(low[v], low[edges[v][place - 1]])
            for i in range(place, len(edges[v])):
                w = edges[v][i]
                if index[w] < 0:
                    stack.append((v, i + 1))
                    stack.append((w, 0))
                    break
                if component[w] < 0:
                    low[v] = min(low[v], index[w])
            else:
                if low[v] == index[v]:
                    while True:
                        w = open_.pop()
                        component[w] = components
                        done.append(w)
                        if w == v:
                            break
                    components += 1
    return done[::-1], component
