"""Alternatives to divisions, modulos and the sums that hold them: neither side is the better one.

Which is cheaper depends on what else is computed: x % c costs a multiplication and an addition
where x // c is there, and a division where it is not. So greedy rewriting has none of these rules;
an optimizer that keeps both sides and counts shared parts once takes its pick.

Most are on `index`, where nothing wraps; those of FIXED are on numbers of a fixed width, of which
the bounds say enough. What they make is in the normal form of sums.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.matcher import EqualitySet
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.pattern import DTypeSpec, UPat, index, ints
from opgraft.ir.uop import UOp, toposort
from opgraft.rules.compare import less
from opgraft.rules.quotients import divide
from opgraft.rules.sums import Sum, Terms, build, exact_sum, place, plus, sum_of
from opgraft.rules.validity import Facts

_MOST: Final = 16
"""Divisions or modulos that one sum may hold to be rewritten."""
_FEW: Final = 3
"""Quotients that are told apart by comparisons."""


def _number(n: UOp) -> int | None:
    """The divisor of a division or modulo by a constant above 1."""
    by = n.src[1].const_value
    return by if isinstance(by, int) and by > 1 else None


def _power_of_two(by: int) -> bool:
    return by & (by - 1) == 0


def _quotient(n: UOp, by: int) -> Sum:
    """The first source of a modulo, divided by the second."""
    return _divided(n, sum_of(n.src[0]), by)


def _divided(like: UOp, a: Sum, by: int) -> Sum:
    if by == 1:
        return a
    made = divide(like.dtype, a, by)
    assert made is not None  # nothing is too wide for `index`
    return made


# ---- modulo and division


def modulo_by_division(x: UOp, a: UOp, c: UOp) -> UOp | None:
    by = _number(x)
    if by is None:
        return None
    return build(x.dtype, plus(sum_of(a), _quotient(x, by), -by))


def _without_modulos(x: UOp, cheap: bool) -> UOp | None:
    """The sum with a - c*(a // c) for every a % c; with `cheap` for powers of two as well."""
    found, changed = sum_of(x), False
    for _ in range(_MOST):
        for atom in found.terms:
            by = _number(atom) if atom.op is Ops.MOD else None
            if by is not None and (cheap or not _power_of_two(by)):
                break
        else:
            break
        k = found.terms[atom]
        rest = {other: j for other, j in found.terms.items() if other is not atom}
        found = plus(
            plus(Sum(found.constant, rest), sum_of(atom.src[0]), k), _quotient(atom, by), -by * k
        )
        changed = True
    return build(x.dtype, found) if changed else None


def sum_without_modulos(x: UOp) -> UOp | None:
    return _without_modulos(x, cheap=False)


def sum_without_any_modulo(x: UOp) -> UOp | None:
    made = _without_modulos(x, cheap=True)
    return None if made is _without_modulos(x, cheap=False) else made


def sum_by_known_quotients(x: UOp) -> UOp | None:
    """Only modulos whose division stands in the same sum."""
    found, changed = sum_of(x), False
    for atom in tuple(found.terms)[:_MOST]:
        by = _number(atom) if atom.op is Ops.MOD else None
        k = found.terms.get(atom, 0)  # as it is now: another modulo may hold this one
        if by is None or not k:
            continue
        quotient = _quotient(atom, by)
        if not any(part in found.terms for part in quotient.terms):
            continue
        rest = {other: j for other, j in found.terms.items() if other is not atom}
        found = plus(plus(Sum(found.constant, rest), sum_of(atom.src[0]), k), quotient, -by * k)
        changed = True
    return build(x.dtype, found) if changed else None


def sum_by_modulos(x: UOp) -> UOp | None:
    """k*c*(a // c) as k*a - k*(a % c)."""
    found, changed = sum_of(x), False
    for atom in tuple(found.terms)[:_MOST]:
        by = _number(atom) if atom.op is Ops.IDIV else None
        k = found.terms.get(atom, 0)  # as above
        if by is None or not k or k % by:
            continue
        rest = {other: j for other, j in found.terms.items() if other is not atom}
        inside = atom.src[0]
        rest_of = inside % by
        found = plus(
            plus(Sum(found.constant, rest), sum_of(inside), k // by), Sum(0, {rest_of: 1}), -k // by
        )
        changed = True
    return build(x.dtype, found) if changed else None


def fixed_modulo_by_division(x: UOp, a: UOp, c: UOp) -> UOp | None:
    """With c * (a // c) in one product more, a sum modulo 2**bits is what was meant."""
    by = _number(x)
    quotient = None if by is None else divide(x.dtype, exact_sum(a), by)
    if by is None or quotient is None:
        return None
    return build(x.dtype, plus(sum_of(a), quotient, -by))


# ---- divisors that are products


def _nested(x: UOp, inner: int) -> UOp | None:
    by = _number(x)
    if by is None or not 1 < inner < by or by % inner:
        return None
    first = build(x.dtype, _divided(x, sum_of(x.src[0]), inner))
    return first // (by // inner)


def division_by_odd_part(x: UOp, c: UOp) -> UOp | None:
    by: int = c.const_value
    return _nested(x, by // (by & -by)) if by > 1 else None


def division_by_half(x: UOp, c: UOp) -> UOp | None:
    by: int = c.const_value
    return _nested(x, by // 2) if by > 1 and by % 2 == 0 and not _power_of_two(by) else None


# ---- downward counting


def _flipped(a: Sum) -> Sum | None:
    """-a, if more of it counts down than up."""
    down = sum(k < 0 for k in a.terms.values())
    return (
        Sum(-a.constant, {atom: -k for atom, k in a.terms.items()})
        if 2 * down > len(a.terms)
        else None
    )


def division_flipped(x: UOp, a: UOp, c: UOp) -> UOp | None:
    by = _number(x)
    opposite = None if by is None else _flipped(sum_of(a))
    if by is None or opposite is None:
        return None
    upward = _divided(x, Sum(opposite.constant + by - 1, opposite.terms), by)
    return build(x.dtype, plus(Sum(0, {}), upward, -1))


def modulo_flipped(x: UOp, a: UOp, c: UOp) -> UOp | None:
    by = _number(x)
    opposite = None if by is None else _flipped(sum_of(a))
    if by is None or opposite is None:
        return None
    inside = Sum(opposite.constant - 1, opposite.terms)
    upward = plus(inside, _divided(x, inside, by), -by)
    return build(x.dtype, plus(Sum(by - 1, {}), upward, -1))


# ---- few quotients


def _steps(a: UOp, by: int) -> tuple[int, int] | None:
    """The least and the greatest quotient where there are few."""
    low, high = a.vmin, a.vmax
    if not (isinstance(low, int) and isinstance(high, int)):
        return None
    first, last = low // by, high // by
    return (first, last) if 0 < last - first < _FEW else None


def _below(a: UOp, limit: int) -> UOp:
    """a < limit in the normal form of comparisons, so that equal ones are one."""
    written = a < limit
    made = less(written, a, a.const_like(limit))
    return written if made is None else made


def _chosen(a: UOp, by: int, first: int, last: int, values: list[UOp]) -> UOp:
    made = values[-1]
    for quotient in range(last - 1, first - 1, -1):
        made = _below(a, (quotient + 1) * by).where(values[quotient - first], made)
    return made


def division_by_comparison(x: UOp, a: UOp, c: UOp) -> UOp | None:
    by = _number(x)
    steps = None if by is None else _steps(a, by)
    if by is None or steps is None:
        return None
    first, last = steps
    return _chosen(a, by, first, last, [x.const_like(q) for q in range(first, last + 1)])


def modulo_by_comparison(x: UOp, a: UOp, c: UOp) -> UOp | None:
    by = _number(x)
    steps = None if by is None else _steps(a, by)
    if by is None or steps is None:
        return None
    first, last = steps
    inside = sum_of(a)
    values = [
        build(x.dtype, Sum(inside.constant - q * by, inside.terms)) for q in range(first, last + 1)
    ]
    return _chosen(a, by, first, last, values)


# ---- sums


def common_coefficient(x: UOp) -> UOp | None:
    found = sum_of(x)
    groups: dict[int, int] = {}
    for k in found.terms.values():
        groups[abs(k)] = groups.get(abs(k), 0) + 1
    groups.pop(1, None)
    factor = max(groups, key=lambda k: (groups[k], k), default=1)
    if factor == 1 or groups[factor] < 2:
        return None
    inside = Sum(0, {atom: k // factor for atom, k in found.terms.items() if abs(k) == factor})
    rest = Sum(found.constant, {atom: k for atom, k in found.terms.items() if abs(k) != factor})
    if not rest.terms and rest.constant % factor == 0:
        return build(x.dtype, Sum(rest.constant // factor, inside.terms)) * factor
    made = build(x.dtype, inside) * factor
    if not rest.terms:
        return made + rest.constant
    made = build(x.dtype, Sum(0, rest.terms)) + made
    return made + rest.constant if rest.constant else made


def constant_with_outer_terms(x: UOp) -> UOp | None:
    """The constant of a sum added to the terms of outer loops, where it is added once for all."""
    found = sum_of(x)
    outer, inner = _by_depth(found)
    if not found.constant or not outer or not inner:
        return None
    made = build(x.dtype, Sum(found.constant, outer))
    return _on(made, inner)


def _by_depth(found: Sum) -> tuple[Terms, Terms]:
    """The terms of outer loops, and those of the innermost one of the sum."""
    deepest = max((place(atom)[0] for atom in found.terms), default=None)
    outer = {atom: k for atom, k in found.terms.items() if place(atom)[0] != deepest}
    return outer, {atom: k for atom, k in found.terms.items() if atom not in outer}


def _on(made: UOp, terms: Terms) -> UOp:
    """The node with terms added to it."""
    for atom in sorted(terms, key=place):
        k = terms[atom]
        made = made + (atom if k == 1 else atom * k)
    return made


def sum_by_comparison(x: UOp) -> UOp | None:
    """k*(a // c) + y as y + (a < c ? 0 : k), or a < c ? y : y + k where y is of outer loops."""
    found = sum_of(x)
    for atom in found.terms:
        by = _number(atom) if atom.op is Ops.IDIV or atom.op is Ops.MOD else None
        steps = None if by is None else _steps(atom.src[0], by)
        if by is not None and steps is not None:
            break
    else:
        return None
    first, last = steps
    a, k = atom.src[0], found.terms[atom]
    left = Sum(found.constant, {other: j for other, j in found.terms.items() if other is not atom})
    if atom.op is Ops.MOD:
        # k*(a % c) = k*a - k*c*(a // c)
        left, k = plus(left, sum_of(a), k), -k * by
    outer, inner = _by_depth(Sum(0, {**left.terms, atom: 1}))
    for part in (outer, inner):
        part.pop(atom, None)
    choices = [build(x.dtype, Sum(left.constant + k * q, outer)) for q in range(first, last + 1)]
    return _on(_chosen(a, by, first, last, choices), inner)


# ---- under a gate


def congruent_under_gate(x: UOp, i: UOp, gate: UOp) -> UOp | None:
    """Modulos in an index, written by modulos of which the gate knows the range."""
    facts = Facts(gate)
    known = [(n, bounds) for n, bounds in facts.bounds.items() if n.op is Ops.MOD]
    if facts.impossible or not known:
        return None
    changes: dict[UOp, UOp] = {}
    # not below a load: that one is carried out whether the gate is open or not
    part = toposort((i,), lambda n: n.op in GroupOp.ALU)
    for n in part:
        by = _number(n) if n.op is Ops.MOD and n.dtype.is_index else None
        if by is None:
            continue
        for other, bounds in known:
            modulus = _number(other)
            if modulus is None or modulus % by or other is n:
                continue
            left = plus(sum_of(n.src[0]), sum_of(other.src[0]), -1)
            if any(k % by for k in left.terms.values()):
                continue
            low, high = bounds[0] + left.constant, bounds[1] + left.constant
            turns = low // by
            if high // by == turns:
                # n = (other + constant) % by, and the gate tells which turn that is in
                changes[n] = build(n.dtype, Sum(left.constant - turns * by, {other: 1}))
                break
    if not changes:
        return None
    return x.with_src((x.src[0], _replaced(i, part, changes), *x.src[2:]))


def _replaced(root: UOp, part: list[UOp], changes: dict[UOp, UOp]) -> UOp:
    """The root with changes in its elementwise part alone."""
    for n in part:
        if n not in changes and n.op in GroupOp.ALU and any(s in changes for s in n.src):
            changes[n] = n.with_src(tuple([changes.get(s, s) for s in n.src]))
    return changes.get(root, root)


_sum: Final = UPat(Ops.ADD, index, name="x")
_i: Final = UPat.var("i", index)
_gate: Final = UPat.var("gate")


def _divided_by(op: Ops, dtype: DTypeSpec = index) -> UPat:
    return UPat(op, dtype, src=(UPat.var("a"), UPat.cvar("c")), name="x")


RULES: Final = EqualitySet(
    [
        # a % c = a - c*(a // c)
        (_divided_by(Ops.MOD), modulo_by_division),
        # the same in a sum, of which like terms are joined: every modulo but by powers of two
        (_sum, sum_without_modulos),
        # every modulo
        (_sum, sum_without_any_modulo),
        # those whose a // c stands in the sum
        (_sum, sum_by_known_quotients),
        # k*c*(a // c) = k*a - k*(a % c)
        (_sum, sum_by_modulos),
        # a // (m*n) = (a // m) // n
        (UPat(Ops.IDIV, index, src=(UPat(), UPat.cvar("c")), name="x"), division_by_odd_part),
        (UPat(Ops.IDIV, index, src=(UPat(), UPat.cvar("c")), name="x"), division_by_half),
        # a // c = -((c-1 - a) // c), a % c = c-1 - (-1-a) % c
        (_divided_by(Ops.IDIV), division_flipped),
        (_divided_by(Ops.MOD), modulo_flipped),
        # a // c = a < c ? 0 : 1 for 0 <= a < 2*c, a % c = a < c ? a : a-c, and the like
        (_divided_by(Ops.IDIV), division_by_comparison),
        (_divided_by(Ops.MOD), modulo_by_comparison),
        # k*a + k*b = k*(a + b)
        (_sum, common_coefficient),
        # x + y + c = (x + c) + y, x of outer loops
        (_sum, constant_with_outer_terms),
        # y + k*(a // c) = y + (a < c ? 0 : k) for 0 <= a < 2*c, and the like
        (_sum, sum_by_comparison),
        # a % c = (b % d) + k where c divides d and a - b - k, and the gate bounds b % d
        (UPat(Ops.LOAD, src=(UPat(), _i, _gate, UPat()), name="x"), congruent_under_gate),
        (
            UPat(Ops.STORE, src=(UPat(), _i, UPat(), _gate), name="x"),
            congruent_under_gate,
            "congruent_store_under_gate",
        ),
    ]
)

FIXED: Final = EqualitySet(
    [
        # a % c = a - c*(a // c)
        (_divided_by(Ops.MOD, ints), fixed_modulo_by_division),
        # a // c = a < c ? 0 : 1 for 0 <= a < 2*c, a % c = a < c ? a : a-c, and the like
        (_divided_by(Ops.IDIV, ints), division_by_comparison, "fixed_division_by_comparison"),
        (_divided_by(Ops.MOD, ints), modulo_by_comparison, "fixed_modulo_by_comparison"),
    ]
)
"""On numbers that a program computes with: in the tier of all that a kernel computes."""
