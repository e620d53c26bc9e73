"""What a condition proves about the values that it guards.

Under `i < 3 and 2 < j` the index `(4*i + j) // 12` is simpler than anywhere else. So the index
of a gated LOAD or STORE, the branches of a WHERE, and each clause of a conjunction are
simplified with the bounds that their condition gives to variables, ranges and subexpressions.

A LOAD within a guarded value is left alone: it is carried out whether the condition holds or
not, so its index must stay right for all values.
"""

from __future__ import annotations

from math import fsum
from typing import Any, Final

from opgraft.dtype import dtypes
from opgraft.ir.bounds import Bounds, bounds_given, bounds_of
from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import UPat, bools, index, values
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.uop import UOp, node, substitute, toposort
from opgraft.rules.boolean import clauses_of, limit_of
from opgraft.rules.optimizer import CostModel
from opgraft.rules.sums import Sum, add, build, interval, sum_of

# Larger expressions are left as they are: an index has some dozens of nodes.
_LARGEST: Final = 96
_COST: Final = CostModel()
# What can become simpler when bounds narrow.
_WORTH: Final = frozenset(
    {Ops.IDIV, Ops.MOD, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE, Ops.WHERE, Ops.MAX, Ops.MIN, Ops.CAST}
)
# Those whose rules look at the bounds of single terms of their operands.
_COMPUTED: Final = frozenset({Ops.IDIV, Ops.MOD, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE})
_ELEMENTWISE: Final = frozenset(GroupOp.ALU)


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

    def may_help(self, within: int) -> bool:
        """Whether something is known of a node of an expression that has these (`_within`)."""
        for known in (*self.truths, *self.bounds):
            if _bit(known) & within:
                return True
            if _solvable(known) and any(_bit(atom) & within for atom in sum_of(known).terms):
                return True
        return False


def _solvable(total: UOp) -> bool:
    """Whether a bound of this node may be written into other sums: it is a sum of indices."""
    return total.op is Ops.ADD and total.dtype.is_index


def _within(root: UOp) -> int:
    """Bits of the nodes that `_inside` would find: where the bit of a node is 0 it is not there."""
    if root.op not in _ELEMENTWISE:
        return _bit(root)
    stack = [root]
    while stack:
        n = stack[-1]
        if n._memo is None or "within" not in n._memo:
            missing = [
                s
                for s in n.src
                if s.op in _ELEMENTWISE and (s._memo is None or "within" not in s._memo)
            ]
            if missing:
                stack += missing
                continue
            bits = 1 << ((n._order or n.order) & 1023)
            for s in n.src:
                bits |= s._memo["within"] if s.op in _ELEMENTWISE else _bit(s)  # type: ignore[index]
            if n._memo is None:
                n.remember("within", bits)
            else:
                n._memo["within"] = bits
        stack.pop()
    return root._memo["within"]  # type: ignore[index, no-any-return]


def _bit(n: UOp) -> int:
    return 1 << ((n._order or n.order) & 1023)


def _inside(root: UOp) -> tuple[dict[UOp, UOp], dict[UOp, UOp]] | None:
    """The elementwise part below the root, sources first, and what it stands on.

    None: it is too large.
    """
    if _known_vast(root):
        return None
    part: dict[UOp, UOp] = {}
    edge: dict[UOp, UOp] = {}
    opened: set[UOp] = set()
    stack = [root]
    push = stack.append
    while stack:
        n = stack[-1]
        if n in opened:
            part[n] = n
            stack.pop()
        elif n.op in _ELEMENTWISE:
            opened.add(n)
            memo = n._memo
            if len(opened) > _LARGEST or (memo is not None and "vast" in memo):
                root.remember("vast", True)
                return None
            for s in n.src:
                if s not in opened and s not in edge:
                    push(s)
        else:
            edge[n] = n
            stack.pop()
    return part, edge


def _known_vast(root: UOp) -> bool:
    """Whether the elementwise part below the root, or below a source, was found too large."""
    if root.op not in _ELEMENTWISE:
        return False
    for n in (root, *root.src):
        if n._memo is not None and "vast" in n._memo and n.op in _ELEMENTWISE:
            return True
    return False


def _price(root: UOp, edge: dict[UOp, UOp]) -> float:
    """The cost of what stands above the edge, each node of the edge that is used included."""
    return fsum(map(_COST.node, toposort((root,), lambda n: n not in edge)))


def simplify_under(condition: UOp | Facts, expr: UOp, equalities: EqualitySet) -> UOp | None:
    """`expr` made cheaper, equal wherever the condition holds; None: nothing was gained.

    What `expr` stands on is left as it is.
    """
    facts = condition if isinstance(condition, Facts) else Facts(condition)
    if facts.impossible or not facts.may_help(_within(expr)):
        return None
    found = _inside(expr)
    if found is None:
        return None
    part, edge = found
    best: UOp | None = None
    cost = -1.0
    for changes, back in _views(facts, part, edge):
        current = expr if best is None else best
        changed, kept = _with(changes, current, part, edge)
        if changed is current:
            continue
        made = graph_rewrite(changed, equalities, name="under a condition", settled=kept)
        (made,) = substitute((made,), {**edge, **back})
        made = graph_rewrite(made, equalities, name="under a condition", settled=(*edge, *part))
        if made is current:
            continue
        if cost < 0:
            cost = _price(expr, edge)
        price = _price(made, edge)
        if price < cost:
            best, cost = made, price
            again = _inside(made)
            if again is None:
                break
            part, edge = again
    return best


def _with(
    changes: dict[UOp, UOp], root: UOp, part: dict[UOp, UOp], edge: dict[UOp, UOp]
) -> tuple[UOp, list[UOp]]:
    """The root with these changes, and the nodes of its part and edge that stay as they are."""
    now = dict(changes)
    kept = [n for n in edge if n not in changes]
    for n in part:
        if n in now:
            continue
        src = n.src
        for s in src:
            if s in now:
                now[n] = node(n.head, tuple([now.get(s, s) for s in src]))
                break
        else:
            kept.append(n)
    return now.get(root, root), kept


def _views(
    facts: Facts, part: dict[UOp, UOp], edge: dict[UOp, UOp]
) -> list[tuple[dict[UOp, UOp], dict[UOp, UOp]]]:
    """Ways to write what is known into an expression: (changes, the way back)."""
    views: list[tuple[dict[UOp, UOp], dict[UOp, UOp]]] = []
    known = {
        n: UOp.const(dtypes.bool.vec(n.dtype.count), holds)
        for n, holds in facts.truths.items()
        if n in part or n in edge
    }
    if known:
        views.append((known, {}))
    worth = [n for n in part if n.op in _WORTH]
    if not worth:
        return views
    changes: dict[UOp, UOp] = {}
    back: dict[UOp, UOp] = {}
    narrowed: dict[UOp, Bounds] = {}
    for number, (total, (low, high)) in enumerate(facts.bounds.items()):
        if total.dtype.count != 1 or (low, high) == (total.vmin, total.vmax):
            continue
        here = total in part or total in edge
        atom = _atom_of(total, (low, high), worth, part, edge) if _solvable(total) else None
        if not here and atom is None:
            continue
        if low == high:
            stand_in, way = total.const_like(low), {}
        else:
            stand_in = UOp(Ops.VAR, total.dtype, (), (f"under a condition {number}", low, high))
            way = {stand_in: total}
        if here:
            changes[total] = stand_in
            narrowed[total] = (low, high)
            back.update(way)
        if atom is not None:
            views.append(({atom: _solved(total, stand_in, atom)}, way))
    if changes and _matters(narrowed, part):
        views.append((changes, back))
    return views


def _matters(narrowed: dict[UOp, Bounds], part: dict[UOp, UOp]) -> bool:
    """Whether narrower bounds of these nodes reach one that may become simpler by them."""
    now = dict(narrowed)
    whole: set[UOp] = set()  # sums whose bounds are narrower than their terms say
    for n, (low, high) in narrowed.items():
        if low == high:
            return True
        if n.op is Ops.ADD or n.op is Ops.MUL:
            whole.add(n)
    for n in part:
        if n in now:
            continue
        for s in n.src:
            if s in now:
                break
        else:
            continue
        op = n.op
        if op in _COMPUTED:
            if any(s in whole for s in n.src) or not n.src[0].dtype.is_index:
                return True
            if _decides(op, _number(n), _difference(n), now):
                return True
        sources = [now.get(s) or bounds_of(s) for s in n.src]
        found = bounds_given(n, *sources)
        if op is Ops.ADD or op is Ops.MUL:
            now[n] = found
            if any(s in whole for s in n.src):
                whole.add(n)
        elif found != bounds_of(n):
            if op is Ops.CAST or found[0] == found[1]:
                return True
            now[n] = found
        if (op is Ops.MAX or op is Ops.MIN) and (
            sources[0][0] >= sources[1][1] or sources[1][0] >= sources[0][1]
        ):
            return True
    return False


def _difference(n: UOp) -> Sum:
    """What a division divides, or the difference of what a comparison compares."""
    a, b = n.src
    found = sum_of(a)
    return found if n.op is Ops.IDIV or n.op is Ops.MOD else add(a.dtype, found, sum_of(b), -1)


def _number(n: UOp) -> int | None:
    value = n.src[1].const_value
    return None if value is None else int(value)


def _decides(op: Ops, by: int | None, found: Sum, narrowed: dict[UOp, Bounds]) -> bool:
    """Whether the rules of divisions and comparisons may decide otherwise with these bounds.

    A part of a sum has its rest, or its truth, known if it spans less than the divisor, or than
    twice the factor of another: no term of it may span more.
    """
    constant, terms = found.constant, found.terms
    if op is Ops.IDIV or op is Ops.MOD:
        if by is None:
            return True
        limit = abs(by)
    else:
        low = high = constant
        for atom, k in terms.items():
            least, most = narrowed.get(atom) or bounds_of(atom)
            low += k * (least if k > 0 else most)
            high += k * (most if k > 0 else least)
        if high < 0 or low > 0 or (low == 0 and op is Ops.CMPLT):
            return True
        if op is not Ops.CMPLT or len(terms) < 2:
            return False
        limit = 2 * max(map(abs, terms.values()))
    for atom, k in terms.items():
        bounds = narrowed.get(atom)
        if bounds is not None and abs(k) * (bounds[1] - bounds[0]) < limit:
            return True
    return False


def _atom_of(
    total: UOp,
    bounds: tuple[int, int],
    worth: list[UOp],
    part: dict[UOp, UOp],
    edge: dict[UOp, UOp],
) -> UOp | None:
    """The atom of the sum `total` to be written by it, if there is one and it may help.

    It may where the bounds of the sum narrow those of the atom, or where more of the sum stands
    beside the atom.
    """
    known = sum_of(total)
    constant, terms = known.constant, known.terms
    for atom, k in terms.items():
        if abs(k) == 1 and (atom in part or atom in edge):
            break
    else:
        return None
    low, high = interval(Sum(constant, {a: j for a, j in terms.items() if a is not atom}))
    least, most = (bounds[0] - high, bounds[1] - low)
    if k < 0:
        least, most = -most, -least
    least, most = max(least, atom.vmin), min(most, atom.vmax)
    if (least > atom.vmin or most < atom.vmax) and _matters({atom: (least, most)}, part):
        return atom
    for n in worth:
        if n.op is Ops.WHERE or n.op is Ops.CAST or not n.src[0].dtype.is_index:
            continue
        if n.op is Ops.MAX or n.op is Ops.MIN:
            beside = {**sum_of(n.src[0]).terms, **sum_of(n.src[1]).terms}
            if atom in beside and any(a in terms for a in beside if a is not atom):
                return atom
            continue
        found = _difference(n)
        by = found.terms.get(atom)
        if by is None or not any(a in terms for a in found.terms if a is not atom):
            continue
        # atom = k * (total - the rest of it)
        solved = add(total.dtype, found, Sum(constant, terms), -by * k)
        solved = Sum(solved.constant, {**solved.terms, total: by * k})
        if _decides(n.op, _number(n), solved, {total: bounds}):
            return atom
    return None


def _solved(total: UOp, stand_in: UOp, atom: UOp) -> UOp:
    """An atom of the sum `total` in terms of `stand_in` and the other atoms."""
    known = sum_of(total)
    constant, terms = known.constant, known.terms
    k = terms[atom]
    rest = {a: -j * k for a, j in terms.items() if a is not atom}
    rest[stand_in] = k
    return build(total.dtype, Sum(-constant * k, rest))


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
