"""What a condition proves about the values that it guards.

Under `i < 3 and 2 < j` the index `(4*i + j) // 12` is simpler than anywhere else. So the index
of a gated LOAD or STORE, the branches of a WHERE, and each clause of a conjunction are
simplified with the bounds that their condition gives to variables, ranges and subexpressions.

A LOAD within a guarded value is left alone: it is carried out whether the condition holds or
not, so its index must stay right for all values.
"""

from __future__ import annotations

from typing import Any, Final

from opgraft.dtype import dtypes
from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat, bools, index, values
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.uop import UOp, substitute
from opgraft.rules.boolean import clauses_of, limit_of
from opgraft.rules.optimizer import CostModel
from opgraft.rules.sums import Sum, build, sum_of

# Larger expressions are left as they are: an index has some dozens of nodes.
_LARGEST: Final = 96
_COST: Final = CostModel()
# What can become simpler when bounds narrow.
_WORTH: Final = frozenset(
    {Ops.IDIV, Ops.MOD, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE, Ops.WHERE, Ops.MAX, Ops.MIN, Ops.CAST}
)


class Facts:
    """What holds where a condition does: truths of nodes, and bounds of integer nodes."""

    def __init__(self, condition: UOp, holds: bool = True) -> None:
        self.truths: dict[UOp, bool] = {}
        self.bounds: dict[UOp, tuple[Any, Any]] = {}
        self.impossible = False
        joined = Ops.AND if holds else Ops.OR
        for clause in clauses_of(joined, condition):
            if clause.op is Ops.XOR and clause.src[1].const_value is True:
                self._learn(clause.src[0], not holds)
            else:
                self._learn(clause, holds)

    def _learn(self, clause: UOp, holds: bool) -> None:
        if self.truths.setdefault(clause, holds) != holds:
            self.impossible = True
        found = limit_of(clause)
        if found is not None:
            node, upper, limit = found
            if upper == holds:
                self._narrow(node, node.vmin, limit if holds else limit - 1)
            else:
                self._narrow(node, limit if holds else limit + 1, node.vmax)
        elif clause.op in (Ops.CMPEQ, Ops.CMPNE) and (clause.op is Ops.CMPEQ) == holds:
            a, b = clause.src
            if a.dtype.is_int and b.is_const:
                self._narrow(a, b.const_value, b.const_value)

    def _narrow(self, node: UOp, low: Any, high: Any) -> None:
        known = self.bounds.get(node, (node.vmin, node.vmax))
        low, high = max(low, known[0]), min(high, known[1])
        if low > high:
            self.impossible = True
        self.bounds[node] = (low, high)


def _inside(root: UOp) -> tuple[list[UOp], dict[UOp, UOp]] | None:
    """The elementwise part below the root, and what it stands on; None: it is too large."""
    part: dict[UOp, None] = {}
    edge: dict[UOp, UOp] = {}
    stack = [root]
    while stack:
        n = stack.pop()
        if n in part or n in edge:
            continue
        if n.op in GroupOp.ALU:
            part[n] = None
            if len(part) > _LARGEST:
                return None
            stack += n.src
        else:
            edge[n] = n
    return list(part), edge


def simplify_under(condition: UOp | Facts, expr: UOp, equalities: EqualitySet) -> UOp | None:
    """`expr` made cheaper, equal wherever the condition holds; None: nothing was gained."""
    facts = condition if isinstance(condition, Facts) else Facts(condition)
    if facts.impossible:
        return None
    found = _inside(expr)
    if found is None:
        return None
    part, edge = found
    best: UOp | None = None
    cost = -1.0
    for changes, back in _views(facts, part, edge):
        current = expr if best is None else best
        kept = {**edge, **changes}
        (changed,) = substitute((current,), kept)
        if changed is current:
            continue
        made = graph_rewrite(changed, equalities, name="under a condition")
        (made,) = substitute((made,), back)
        made = graph_rewrite(made, equalities, name="under a condition")
        if made is current:
            continue
        if cost < 0:
            cost = _COST.graph(expr)
        price = _COST.graph(made)
        if price < cost:
            best, cost = made, price
            again = _inside(made)
            if again is None:
                break
            edge = again[1]
    return best


def _views(
    facts: Facts, part: list[UOp], edge: dict[UOp, UOp]
) -> list[tuple[dict[UOp, UOp], dict[UOp, UOp]]]:
    """Ways to write what is known into an expression: (changes, the way back)."""
    here = {*part, *edge}
    views: list[tuple[dict[UOp, UOp], dict[UOp, UOp]]] = []
    known = {
        n: UOp.const(dtypes.bool.vec(n.dtype.count), holds)
        for n, holds in facts.truths.items()
        if n in here
    }
    if known:
        views.append((known, {}))
    if not any(n.op in _WORTH for n in part):
        return views
    changes: dict[UOp, UOp] = {}
    back: dict[UOp, UOp] = {}
    for number, (node, (low, high)) in enumerate(facts.bounds.items()):
        if node.dtype.count != 1 or (low, high) == (node.vmin, node.vmax):
            continue
        if low == high:
            stand_in = node.const_like(low)
        else:
            stand_in = UOp(Ops.VAR, node.dtype, (), (f"under a condition {number}", low, high))
            back[stand_in] = node
        if node in here:
            changes[node] = stand_in
        solved = _solved(node, stand_in, here)
        if solved is not None:
            views.append((dict([solved]), {} if low == high else {stand_in: node}))
    if changes:
        views.append((changes, back))
    return views


def _solved(total: UOp, stand_in: UOp, here: set[UOp]) -> tuple[UOp, UOp] | None:
    """An atom of the sum `total`, and what it is in terms of `stand_in` and the other atoms."""
    if not total.dtype.is_index or total.op is not Ops.ADD:
        return None
    terms = sum_of(total).terms
    for atom, k in terms.items():
        if abs(k) == 1 and atom in here:
            rest = {a: -j * k for a, j in terms.items() if a is not atom}
            rest[stand_in] = k
            return atom, build(total.dtype, Sum(-sum_of(total).constant * k, rest))
    return None


def rules(equalities: EqualitySet) -> EqualitySet:
    """The rules of this file; what they guard is simplified by `equalities`."""

    def index_under_gate(x: UOp, i: UOp, gate: UOp) -> UOp | None:
        facts = Facts(gate)
        if facts.impossible:
            return x.with_src((*x.src[:-1], gate.const_like(False))) if x.op is Ops.STORE else None
        made = simplify_under(facts, i, equalities)
        return None if made is None else x.with_src((x.src[0], made, *x.src[2:]))

    def branches(x: UOp, c: UOp, a: UOp, b: UOp) -> UOp | None:
        yes = simplify_under(Facts(c), a, equalities) if a.src else None
        no = simplify_under(Facts(c, False), b, equalities) if b.src else None
        if yes is None and no is None:
            return None
        return x.with_src((c, a if yes is None else yes, b if no is None else no))

    def clauses(x: UOp, a: UOp, b: UOp) -> UOp | None:
        if Facts(x).impossible:
            return x.const_like(False)
        made = simplify_under(Facts(a), b, equalities)
        if made is not None:
            return a & made
        made = simplify_under(Facts(b), a, equalities)
        return None if made is None else made & b

    gate, i, a, b = UPat.var("gate", bools), UPat.var("i", index), UPat.var("a"), UPat.var("b")
    return EqualitySet(
        [
            # a load, where the gate is true: at the index; where it is false: the alternative
            (
                UPat(Ops.LOAD, src=(UPat(), i, UPat.const(True), UPat()), name="x"),
                lambda x: x.with_src(x.src[:2]),
                "gate_true",
            ),
            (
                UPat(Ops.LOAD, src=(UPat(), i, UPat.const(False), a)),
                lambda a: a,
                "gate_false",
            ),
            (
                UPat(Ops.STORE, src=(UPat(), i, a, UPat.const(True)), name="x"),
                lambda x: x.with_src(x.src[:3]),
                "store_gate_true",
            ),
            # c ? load(p, i, c, a) : b = load(p, i, c, b)
            (
                UPat(Ops.WHERE, src=(gate, UPat(Ops.LOAD, src=(UPat(), i, gate, a), name="x"), b)),
                lambda x, b: x.with_src((*x.src[:3], b)) if x.dtype is b.dtype else None,
                "gate_and_value",
            ),
            # load(p, i, g, a) = load(p, j, g, a) where g implies i = j
            (UPat(Ops.LOAD, src=(UPat(), i, gate, UPat()), name="x"), index_under_gate),
            (
                UPat(Ops.STORE, src=(UPat(), i, UPat(), gate), name="x"),
                index_under_gate,
                "store_index_under_gate",
            ),
            # c ? a : b = c ? d : e where c implies a = d, and not c implies b = e
            (UPat(Ops.WHERE, values, src=(UPat.var("c"), a, b), name="x"), branches),
            # a and b = a and c where a implies b = c
            (UPat(Ops.AND, bools, src=(UPat.var("a"), b), name="x"), clauses),
        ]
    )
