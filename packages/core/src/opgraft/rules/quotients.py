"""Floor division and modulo of sums by a positive constant, computed on numbers alone.

`divide` and `modulo` take a sum that equals its node as a number (`exact_sum`) and hand back a
sum that does too. What is left to divide is always brought to the same form: coefficients
reduced toward zero, and the constant chosen so that the least value lies in 0 .. divisor-1.
So x // n and x % n of one x leave the same rest, which `recombine` can then find; and few rests
are negative, which would cost a fix-up on machines whose division truncates.
"""

from __future__ import annotations

from math import gcd
from typing import Final

from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.rules.sums import Sum, build, exact_sum, fits, interval, plus

# Steps that one division may take; each makes the divisor or the sum smaller.
_STEPS: Final = 64
_FAR: Final = -(1 << 24)


def _atom(x: UOp) -> Sum:
    return Sum(0, {x: 1})


def _shifted(a: Sum, by: int) -> tuple[Sum, int, bool]:
    """(rest, k, inside) with a = rest + by * k and the least value of rest in 0 .. by-1.

    `inside` says whether its greatest value is, too.

    Where the least value is far below 0 the constant is in 0 .. by-1 instead: a large one
    would take wider integers than the values themselves.
    """
    low, high = interval(a)
    turns = int(low) // by if low > _FAR else a.constant // by
    if not turns:
        return a, 0, bool(low >= 0 and high < by)
    move = by * turns
    return Sum(a.constant - move, a.terms), turns, bool(low >= move and high - move < by)


def _split(a: Sum, by: int) -> tuple[Sum, Sum, bool]:
    """(quotient, rest, inside) with a = by * quotient + rest and the rest in its normal form.

    `inside` says whether all values of the rest lie in 0 .. by-1.
    """
    whole: dict[UOp, int] = {}
    rest: dict[UOp, int] = {}
    for atom, k in a.terms.items():
        turns = k // by if k >= 0 else -(-k // by)
        if turns:
            whole[atom] = turns
        left = k - turns * by
        if left:
            rest[atom] = left
    moved, turns, inside = _shifted(Sum(a.constant, rest), by)
    return Sum(turns, whole), moved, inside


def _nearest(a: Sum, by: int) -> tuple[Sum, Sum] | None:
    """As `_split` with each coefficient the nearest to zero, where the rest then has one turn."""
    rest: dict[UOp, int] = {}
    whole: dict[UOp, int] = {}
    for atom, k in a.terms.items():
        if 2 * abs(k) > by:
            turn = 1 if k > 0 else -1
            whole[atom] = turn
            if k != turn * by:
                rest[atom] = k - turn * by
        else:
            rest[atom] = k
    if not whole:
        return None
    moved, turns, inside = _shifted(Sum(a.constant, rest), by)
    return (Sum(turns, whole), moved) if inside else None


def _common(a: Sum, by: int) -> int:
    """The greatest common divisor of `by` and all coefficients."""
    found = by
    for k in a.terms.values():
        found = gcd(found, k)
        if found == 1:
            break
    return found


def _factored(a: Sum, by: int) -> tuple[int, Sum, Sum] | None:
    """(g, large, small) with a = g * large + small, g a divisor of `by`, 0 <= small < g."""
    tried: list[int] = []
    for k in a.terms.values():
        g = gcd(k, by)
        if 1 < g < by and g not in tried:
            tried.append(g)
    for g in sorted(tried, reverse=True):
        large = {atom: k // g for atom, k in a.terms.items() if k % g == 0}
        small = {atom: k for atom, k in a.terms.items() if k % g}
        rest, turns, inside = _shifted(Sum(a.constant % g, small), g)
        if inside:
            return g, Sum(a.constant // g + turns, large), rest
    return None


def _two_valued(a: Sum) -> tuple[UOp, int] | None:
    """(atom, least) where the sum has one atom, which has two values."""
    if len(a.terms) != 1:
        return None
    (atom,) = a.terms
    low = atom.vmin
    return (atom, int(low)) if atom.vmax - low == 1 else None


def divide(dtype: DType, a: Sum, by: int) -> Sum | None:
    """The sum a // by, for by > 1, each value of it a number of `dtype`; None: not expressible."""
    made = Sum(0, {})
    for _ in range(_STEPS):
        whole, a, inside = _split(a, by)
        made = plus(made, whole)
        if inside:
            return made
        g = _common(a, by)
        if g > 1:
            # (g*y + k) // (g*c) = (y + k//g) // c
            a = Sum(a.constant // g, {atom: k // g for atom, k in a.terms.items()})
            by //= g
            continue
        parts = _factored(a, by)
        if parts is not None:
            # (g*y + r) // (g*c) = y // c for 0 <= r < g
            a, by = parts[1], by // parts[0]
            continue
        two = _two_valued(a)
        if two is not None:
            # a function of two values is a straight line through them
            atom, low = two
            k = a.terms[atom]
            first = (k * low + a.constant) // by
            rise = (k * (low + 1) + a.constant) // by - first
            return plus(made, Sum(first - rise * low, {atom: rise} if rise else {}))
        near = _nearest(a, by)
        if near is not None:
            return plus(made, near[0])
        inner = _nested(dtype, a, by)
        if isinstance(inner, UOp):
            return plus(made, _atom(inner))
        if inner is None:
            break
        a, by = inner
    if not fits(dtype, interval(a)) or by > dtype.max:
        return None
    return plus(made, _atom(build(dtype, a) // by))


def _nested(dtype: DType, a: Sum, by: int) -> tuple[Sum, int] | UOp | None:
    """The sum and divisor that a // by is when `a` is one division or modulo; or the node."""
    if len(a.terms) != 1:
        return None
    ((atom, k),) = a.terms.items()
    if k != 1 or atom.op not in (Ops.IDIV, Ops.MOD):
        return None
    n = atom.src[1].const_value
    if n is None or n <= 0:
        return None
    inside = atom.src[0]
    if atom.op is Ops.IDIV:
        # (y//n + k) // c = (y + k*n) // (n*c)
        below = exact_sum(inside)
        below = Sum(below.constant + a.constant * n, below.terms)
        if by * n <= dtype.max and fits(dtype, interval(below)):
            return below, by * n
        return None
    if a.constant == 0 and n % by == 0:
        # (y % (c*m)) // c = (y//c) % m
        return (inside // inside.const_like(by)) % inside.const_like(n // by)
    return None


def modulo(dtype: DType, a: Sum, by: int) -> Sum | None:
    """The sum a % by, for by > 1, each value of it a number of `dtype`; None: not expressible."""
    made, factor = Sum(0, {}), 1  # the result is made + factor * (a % by)
    for _ in range(_STEPS):
        _, a, inside = _split(_unwrapped(a, by), by)
        if inside:
            return plus(made, a, factor)
        g = _common(a, by)
        if g > 1:
            # (g*y + k) % (g*c) = g * ((y + k//g) % c) + k%g
            made = Sum(made.constant + factor * (a.constant % g), made.terms)
            a = Sum(a.constant // g, {atom: k // g for atom, k in a.terms.items()})
            factor, by = factor * g, by // g
            continue
        parts = _factored(a, by)
        if parts is not None:
            # (g*y + r) % (g*c) = g * (y % c) + r for 0 <= r < g
            g, a, small = parts
            made = plus(made, small, factor)
            factor, by = factor * g, by // g
            continue
        two = _two_valued(a)
        if two is not None:
            atom, low = two
            k = a.terms[atom]
            first = (k * low + a.constant) % by
            rise = (k * (low + 1) + a.constant) % by - first
            line = Sum(first - rise * low, {atom: rise} if rise else {})
            return plus(made, line, factor)
        near = _nearest(a, by)
        if near is not None:
            return plus(made, near[1], factor)
        break
    if not fits(dtype, interval(a)) or by > dtype.max:
        return None
    return plus(made, _atom(build(dtype, a) % by), factor)


def _unwrapped(a: Sum, by: int) -> Sum:
    """`a` with y for y % n wherever n is a multiple of `by`: equal modulo `by`."""
    for atom in a.terms:
        if atom.op is Ops.MOD:
            n = atom.src[1].const_value
            if n is not None and n > 0 and n % by == 0:
                break
    else:
        return a
    made = Sum(a.constant, {})
    for atom, k in a.terms.items():
        n = atom.src[1].const_value if atom.op is Ops.MOD else None
        if n is not None and n > 0 and n % by == 0:
            made = plus(made, exact_sum(atom.src[0]), k)
        else:
            made = plus(made, _atom(atom), k)
    return made


def recombine(dtype: DType, a: Sum) -> Sum:
    """`a` with parts of one division joined, as often as that goes.

    k*(x % n) + k*n*(x // n) = k*x
    k*(x % c) + k*c*((x // c) % m) = k*(x % (c*m))
    k*x - k*n*(x // n) = k*(x % n)
    """
    for _ in range(_STEPS):
        joined = _join(dtype, a)
        if joined is None:
            break
        a = joined
    return a


def _join(dtype: DType, a: Sum) -> Sum | None:
    parts: list[tuple[UOp, int, int]] = []
    for atom, k in a.terms.items():
        if atom.op is Ops.MOD or atom.op is Ops.IDIV:
            n = atom.src[1].const_value
            if n is not None and n > 0:
                parts.append((atom, k, n))
    if len(a.terms) < 2:
        return None
    for atom, k, n in parts:
        joined = (
            _joined_modulo(dtype, a, atom, k, n, parts)
            if atom.op is Ops.MOD
            else _joined_difference(a, atom, k, n)
        )
        if joined is not None:
            return joined
    return None


def _joined_modulo(
    dtype: DType, a: Sum, atom: UOp, k: int, n: int, parts: list[tuple[UOp, int, int]]
) -> Sum | None:
    """k*(x % n) with the part that completes it, if there is one."""
    x = atom.src[0]
    for other, j, m in parts:
        if j != k * n or other is atom:
            continue
        rest = {b: i for b, i in a.terms.items() if b is not atom and b is not other}
        if _divided(x, other, n):
            return plus(Sum(a.constant, rest), exact_sum(x), k)
        if other.op is Ops.MOD and n * m <= dtype.max and _divided(x, other.src[0], n):
            joined = x % x.const_like(n * m)
            return plus(Sum(a.constant, rest), _atom(joined), k)
    return None


def _joined_difference(a: Sum, atom: UOp, k: int, n: int) -> Sum | None:
    """k*(x // n) with -k/n*x, if all of that is there."""
    if k % n:
        return None
    by = -k // n
    below = exact_sum(atom.src[0])
    if not below.terms or any(a.terms.get(b) != by * j for b, j in below.terms.items()):
        return None
    rest = {b: j for b, j in a.terms.items() if b is not atom and b not in below.terms}
    constant = a.constant - by * below.constant
    return plus(Sum(constant, rest), _atom(atom.src[0] % atom.src[1]), by)


def _divided(x: UOp, y: UOp, n: int) -> bool:
    """Whether y is x // n, as `divide` would write it."""
    if y.op is Ops.IDIV and y.src[0] is x and y.src[1].const_value == n:
        return True
    if x.op is not Ops.IDIV and x.op is not Ops.MOD:
        return False
    found = divide(x.dtype, exact_sum(x), n)
    return found is not None and build(x.dtype, found) is y
