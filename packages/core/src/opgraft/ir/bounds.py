"""The least and greatest value of every node: `UOp.vmin` and `UOp.vmax` come from here.

What the two say, for every op, dtype and wrap:

- Every value that the node (each of its lanes) can have lies in [vmin, vmax]. They are exact
  Python integers, bools or floats; -inf and inf where nothing is known.
- Of floats they speak only of values that are not nan: `may_be_nan` says whether nan is
  possible as well. An end of 0.0 covers -0.0 too, so equal ends are one value for integers and
  bools, but not for floats.
- The bounds of a comparison take nan into account: `vmin` is true only where the comparison
  holds for every value, nan included; `vmax` is false only where it holds for none.
- A node in a loop that never runs, or in lanes that a gate switches off, may be bounded as if
  it ran.

The result of one node is kept with the node (`_bounds`), so asking again costs a look-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from opgraft.dtype import DType
from opgraft.ir import bit_intervals, float_intervals, intervals, uop
from opgraft.ir.evaluate import bits_to_value, value_to_bits
from opgraft.ir.float_intervals import UNKNOWN
from opgraft.ir.intervals import ANY, LARGE, Interval
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp

Bounds = tuple[Any, ...]  # (least, greatest), of floats (least, greatest, nan)


def bounds(node: UOp) -> Interval:
    """(vmin, vmax) of a node.

    >>> x = UOp.variable("x", 0, 9)
    >>> bounds((x * 4 + 3) // -5)
    (-8, -1)
    """
    found = node._bounds
    if found is None:
        found = _compute(node)
    return found[0], found[1]


def may_be_nan(node: UOp) -> bool:
    """Whether a value of this node can be nan; false is proved, true is merely not excluded."""
    if not node.dtype.is_float:
        return False
    found = node._bounds
    return bool((_compute(node) if found is None else found)[2])


def _compute(root: UOp) -> Bounds:
    """The bounds of a node whose bounds are not known yet, and of all below it."""
    stack = [root]
    rule_of = _RULES.get
    while stack:
        n = stack[-1]
        if n._bounds is None:
            src = n.src
            rule = rule_of(n.op)
            if len(src) == 2:
                left, right = src[0]._bounds, src[1]._bounds
                if left is None or right is None:
                    stack += [source for source in src if source._bounds is None]
                    continue
                n._bounds = _whole(n.dtype) if rule is None else rule(n, left, right)
            else:
                known = [source._bounds for source in src]
                if None in known:
                    stack += [source for source in src if source._bounds is None]
                    continue
                n._bounds = _whole(n.dtype) if rule is None else rule(n, *known)
        stack.pop()
    assert root._bounds is not None
    return root._bounds


def bounds_of(node: UOp) -> Bounds:
    """The bounds of a node in full: of floats also whether nan is possible."""
    found = node._bounds
    return _compute(node) if found is None else found


def bounds_given(n: UOp, *sources: Bounds) -> Bounds:
    """The bounds that `n` would have if those of its sources were these.

    Of integers and bools (least, greatest), of floats (least, greatest, whether nan).
    """
    rule = _RULES.get(n.op)
    return _whole(n.dtype) if rule is None else rule(n, *sources)


def _whole(dtype: DType) -> Bounds:
    """Of a dtype of which nothing else is known."""
    if dtype.is_float:
        return UNKNOWN
    return ANY if dtype.kind == "void" else intervals.whole(dtype)


def _union(dtype: DType, *parts: Bounds) -> Bounds:
    found = parts[0]
    for part in parts[1:]:
        found = (float_intervals if dtype.is_float else intervals).union(found, part)
    return found


# ---- leaves and loops


def _const(n: UOp) -> Bounds:
    if n.dtype.is_float:
        return float_intervals.constant(n.arg)
    return intervals.fit(n.dtype, n.arg, n.arg)


def _variable(n: UOp) -> Bounds:
    _, low, high = n.arg
    return (low, high, True) if n.dtype.is_float else intervals.fit(n.dtype, low, high)


def _upto(dtype: DType, last: Any) -> Bounds:
    """Of an index 0 .. last; one that is never reached counts as 0."""
    last = max(last, 0)
    if dtype.is_float:
        return 0.0, dtype.const(last), False
    return intervals.fit(dtype, 0, last)


def _range(n: UOp, size: Bounds) -> Bounds:
    return _upto(n.dtype, size[1] - 1)


def _special(n: UOp) -> Bounds:
    size = n.arg[1]
    return _upto(n.dtype, (size.vmax if isinstance(size, UOp) else size) - 1)


def _iota(n: UOp) -> Bounds:
    return _upto(n.dtype.scalar, n.dtype.count - 1)


# ---- elementwise


def _add(n: UOp, a: Bounds, b: Bounds) -> Bounds:
    dtype = n.dtype
    if dtype.is_int:
        low, high = a[0] + b[0], a[1] + b[1]
        if dtype.is_index and low >= -LARGE and high <= LARGE:  # the usual case
            return low, high
        return intervals.fit(dtype, low, high)
    if dtype.is_float:
        return float_intervals.add(dtype.scalar, a, b)
    return a[0] or b[0], a[1] or b[1]


def _multiply(n: UOp, a: Bounds, b: Bounds) -> Bounds:
    dtype = n.dtype
    same = n.src[0] is n.src[1]
    if dtype.is_int:
        return intervals.square(dtype, a) if same else intervals.multiply(dtype, a, b)
    if dtype.is_float:
        if same:
            return float_intervals.square(dtype.scalar, a)
        return float_intervals.multiply(dtype.scalar, a, b)
    return a[0] and b[0], a[1] and b[1]


_Function = Callable[[DType, Any, Any], Interval]


def _binary(op: Ops, integer: _Function | None = None) -> Callable[..., Bounds]:
    """An op with one function for integers and bools, one for floats; unknown for the rest."""
    floating = float_intervals.BINARY.get(op)

    def rule(n: UOp, a: Bounds, b: Bounds) -> Bounds:
        dtype = n.dtype
        if dtype.is_int and integer is not None:
            return integer(dtype, a, b)
        if dtype.is_float:
            return UNKNOWN if floating is None else floating(dtype.scalar, a, b)
        if integer is None:
            return _whole(dtype)
        low, high = integer(dtype, a, b)
        return bool(low), bool(high)

    return rule


def _unary(op: Ops) -> Callable[..., Bounds]:
    floating = float_intervals.UNARY[op]
    return lambda n, a: floating(n.dtype.scalar, a) if n.dtype.is_float else _whole(n.dtype)


def _less(n: UOp, a: Bounds, b: Bounds) -> Bounds:
    if n.src[0] is n.src[1]:
        return False, False
    if n.src[0].dtype.is_float:
        return float_intervals.less(a, b)
    return a[1] < b[0], a[0] < b[1]


def _equal(n: UOp, a: Bounds, b: Bounds) -> Bounds:
    if n.src[0].dtype.is_float:
        if n.src[0] is n.src[1]:
            return not a[2], True
        return float_intervals.equal(a, b)
    if n.src[0] is n.src[1]:
        return True, True
    return a[0] == a[1] == b[0] == b[1], a[0] <= b[1] and b[0] <= a[1]


def _differ(n: UOp, a: Bounds, b: Bounds) -> Bounds:
    low, high = _equal(n, a, b)
    return not high, not low


def _where(n: UOp, condition: Bounds, yes: Bounds, no: Bounds) -> Bounds:
    if condition[0]:
        return yes
    if not condition[1]:
        return no
    test = n.src[0]
    if n.dtype.is_float and test.op is Ops.CMPLT and yes[0] == yes[1]:
        # a clamp to a number: what it lets through is on its side, or nan; of zeros either one
        if yes[0] == 0.0 and 0.0 in no[:2]:
            return _union(n.dtype, yes, no)
        if test.src[0] is n.src[2] and test.src[1] is n.src[1]:
            return max(yes[0], no[0]), max(yes[0], no[1]), no[2]
        if test.src[0] is n.src[1] and test.src[1] is n.src[2]:
            return min(yes[0], no[0]), min(yes[0], no[1]), no[2]
    return _union(n.dtype, yes, no)


def _multiply_accumulate(n: UOp, a: Bounds, b: Bounds, c: Bounds) -> Bounds:
    dtype = n.dtype
    if dtype.is_float:
        return float_intervals.multiply_accumulate(dtype.scalar, a, b, c)
    low, high = intervals.product((a[0], a[1]), (b[0], b[1]))
    return intervals.fit(dtype, low + c[0], high + c[1])


def _cast(n: UOp, a: Bounds) -> Bounds:
    source, target = n.src[0].dtype.scalar, n.dtype.scalar
    low, high = a[0], a[1]
    if target.is_bool:
        zero = low <= 0 <= high
        return not zero, not (zero and low == high and not (source.is_float and a[2]))
    if not source.is_float:
        if target.is_float:
            return target.const(low), target.const(high), False
        return intervals.fit(target, int(low) if source.is_bool else low, high + 0)
    if target.is_float:
        return target.const(low), target.const(high), a[2]
    if target.is_index and (math.isinf(low) or math.isinf(high)):
        return ANY
    low, high = target.const(low), target.const(high)
    return (min(low, 0), max(high, 0)) if a[2] else (low, high)


def _bitcast(n: UOp, a: Bounds) -> Bounds:
    source, target = n.src[0].dtype, n.dtype
    if source.bits != target.bits or target.is_bool or source.is_bool:
        return _whole(target)
    if target.is_float:
        return _positive_float(target.scalar, a) if source.is_int else _whole(target)
    if not source.is_float:
        return intervals.fit(target, a[0], a[1])
    if a[2] or a[0] <= 0.0:
        return _whole(target)
    # the bits of positive floats are in the order of the floats
    return value_to_bits(a[0], source.scalar), value_to_bits(a[1], source.scalar)


def _positive_float(dtype: DType, bits: Bounds) -> Bounds:
    """Of a float whose bits are these: without the sign, they are in the order of the floats."""
    endless = ((1 << dtype.exponent) - 1) << dtype.mantissa
    if bits[0] < 0 or bits[1] >> (dtype.bits - 1) or bits[0] > endless:
        return UNKNOWN
    ends = [bits_to_value(min(b, endless), dtype) for b in bits[:2]]
    return ends[0], ends[1], bits[1] > endless


# ---- over loops and lanes


def _combined(dtype: DType, op: Ops, value: Bounds, count: Interval) -> Bounds:
    if dtype.is_float:
        return float_intervals.combined(dtype.scalar, op, value, count)
    return intervals.combined(dtype, op, (value[0], value[1]), count)


def _reduce(n: UOp, value: Bounds, *ranges: Bounds) -> Bounds:
    count: Interval = (1, 1)
    for r in n.src[1:]:
        size = bounds(r.src[0]) if r.op is Ops.RANGE else (0, math.inf)
        count = intervals.product(count, (max(size[0], 0), max(size[1], 0)))
    return _combined(n.dtype, n.arg, value, count)


def _scan(n: UOp, value: Bounds, *loops: Bounds) -> Bounds:
    most = 1
    for _, last in loops:
        most *= last + 1
    return _combined(n.dtype, n.arg, value, (1, most))


def _across(n: UOp, value: Bounds) -> Bounds:
    lanes = n.src[0].dtype.count
    return _combined(n.dtype, n.arg, value, (lanes, lanes))


def _load(n: UOp, *sources: Bounds) -> Bounds:
    whole = _whole(n.dtype)
    return whole if len(sources) < 4 else _union(n.dtype, whole, sources[3])


# ---- arrays: only what needs no knowledge of shapes


def _pad(n: UOp, value: Bounds) -> Bounds:
    dtype = n.dtype
    zero: Bounds = (0.0, 0.0, False) if dtype.is_float else intervals.fit(dtype, 0, 0)
    return _union(dtype, value, (False, False) if dtype.is_bool else zero)


def _write(n: UOp, old: Bounds, value: Bounds, *more: Bounds) -> Bounds:
    return _union(n.dtype, old, value)


def _same(n: UOp, value: Bounds, *more: Bounds) -> Bounds:
    return value


def _matrix(n: UOp, a: Bounds, b: Bounds, c: Bounds) -> Bounds:
    """Of sums of products of integers; of floats nothing is known."""
    if n.dtype.is_float:
        return UNKNOWN
    ends = [x * y * n.arg.shape[2] for x in a[:2] for y in b[:2]]
    return intervals.fit(n.dtype, c[0] + min(ends), c[1] + max(ends))


def _dot(n: UOp, a: Bounds, b: Bounds, c: Bounds) -> Bounds:
    """Of sums of products of integers: words tell nothing of their parts."""
    if n.dtype.is_float:
        return UNKNOWN
    parts = [(d.min, d.max) for d in n.arg.dtypes[:2]]
    ends = [x * y * n.arg.depth for x in parts[0] for y in parts[1]]
    return intervals.fit(n.dtype, c[0] + min(ends), c[1] + max(ends))


_RULES: Final[dict[Ops, Callable[..., Bounds]]] = {
    Ops.CONST: _const,
    Ops.VAR: _variable,
    Ops.RANGE: _range,
    Ops.SPECIAL: _special,
    Ops.IOTA: _iota,
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    **{op: _unary(op) for op in float_intervals.UNARY},
    Ops.ADD: _add,
    Ops.MUL: _multiply,
    Ops.FDIV: _binary(Ops.FDIV),
    Ops.IDIV: _binary(Ops.IDIV, intervals.floor_divide),
    Ops.MOD: _binary(Ops.MOD, intervals.floor_modulo),
    Ops.CDIV: _binary(Ops.CDIV, intervals.truncating_divide),
    Ops.CMOD: _binary(Ops.CMOD, intervals.truncating_modulo),
    Ops.MAX: _binary(Ops.MAX, intervals.maximum),
    Ops.MIN: _binary(Ops.MIN, intervals.minimum),
    Ops.AND: _binary(Ops.AND, bit_intervals.bit_and),
    Ops.OR: _binary(Ops.OR, bit_intervals.bit_or),
    Ops.XOR: _binary(Ops.XOR, bit_intervals.bit_xor),
    Ops.SHL: _binary(Ops.SHL, bit_intervals.shift_left),
    Ops.SHR: _binary(Ops.SHR, bit_intervals.shift_right),
    Ops.CMPLT: _less,
    Ops.CMPEQ: _equal,
    Ops.CMPNE: _differ,
    Ops.WHERE: _where,
    Ops.MULACC: _multiply_accumulate,
    Ops.REDUCE: _reduce,
    Ops.SCAN: _scan,
    Ops.STACK: lambda n, *lanes: _union(n.dtype, *lanes),
    Ops.BROADCAST: _same,
    Ops.EXTRACT: _same,
    Ops.HREDUCE: _across,
    Ops.MATRIX: _matrix,
    Ops.DOT: _dot,
    Ops.LOAD: _load,
    **dict.fromkeys(GroupOp.VIEW - {Ops.PAD, Ops.UNWINDOW}, _same),
    Ops.PAD: _pad,
    Ops.WRITE: _write,
    Ops.MATERIALIZE: _same,
    Ops.COPY: _same,
}

uop._bounder[0] = _compute
