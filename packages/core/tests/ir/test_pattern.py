"""UPat: what matches, and what does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from opgraft.dtype import DType, Scalar, dtypes
from opgraft.ir import GroupOp, Ops, PatternMatcher, UOp, UPat
from opgraft.ir.pattern import bools, floats, index, integers, ints, numbers, signed, unsigned

n, m, k = (UOp.variable(name, 0, 9) for name in "nmk")
f = UOp.variable("f", 0.0, 1.0, dtypes.float32)
x, y, z, c = UPat.var("x"), UPat.var("y"), UPat.var("z"), UPat.cvar("c")


def found(pattern: UPat, node: UOp) -> list[dict[str, UOp]]:
    """The captures, in order; the compiled form must see the same."""
    seen: list[dict[str, UOp]] = []

    def note(**captured: UOp) -> None:
        seen.append(captured)

    PatternMatcher([(pattern, note)]).rewrite(node)
    interpreted = list(pattern.matches(node))
    distinct = [w for i, w in enumerate(interpreted) if w not in interpreted[:i]]
    assert seen in (interpreted, distinct)
    return interpreted


def matches(pattern: UPat, node: UOp) -> bool:
    return bool(found(pattern, node))


# ---- op and dtype


def test_an_op_or_one_of_several() -> None:
    pattern = UPat({Ops.ADD, Ops.MUL}, name="r")
    assert found(pattern, n + m) == [{"r": n + m}]
    assert matches(pattern, n * m)
    assert not matches(pattern, n // m)
    assert matches(UPat(GroupOp.COMPARISON), n < m)
    assert matches(UPat(), n)


def test_a_scalar_dtype_accepts_its_vectors_and_a_vector_itself_alone() -> None:
    wide = f.broadcast(4)
    assert matches(UPat.var("x", dtypes.float32), f)
    assert matches(UPat.var("x", dtypes.float32), wide)
    assert matches(UPat.var("x", "float32"), wide)
    assert matches(UPat.var("x", dtypes.float32.vec(4)), wide)
    assert not matches(UPat.var("x", dtypes.float32.vec(4)), f)
    assert not matches(UPat.var("x", dtypes.float32.vec(4)), f.broadcast(2))
    assert not matches(UPat.var("x", dtypes.float64), f)


@pytest.mark.parametrize(
    ("group", "inside", "outside"),
    [
        (ints, [dtypes.int8, dtypes.uint64, dtypes.narrow(4, True)], [dtypes.index, dtypes.bool]),
        (signed, [dtypes.int8], [dtypes.uint8, dtypes.index]),
        (unsigned, [dtypes.uint8], [dtypes.int8]),
        (integers, [dtypes.int8, dtypes.index], [dtypes.bool, dtypes.float16]),
        (floats, [dtypes.bfloat16, dtypes.float64], [dtypes.int8]),
        (numbers, [dtypes.float16, dtypes.index, dtypes.uint8], [dtypes.bool]),
        (bools, [dtypes.bool], [dtypes.uint8]),
        (index | dtypes.bool, [dtypes.index, dtypes.bool], [dtypes.int64]),
        (
            [dtypes.int8, floats, "index"],
            [dtypes.int8, dtypes.float64, dtypes.index],
            [dtypes.bool],
        ),
    ],
)
def test_groups_of_dtypes(group: Any, inside: list[DType], outside: list[DType]) -> None:
    pattern = UPat.var("x", group)
    for dtype in inside:
        assert matches(pattern, UOp.variable("v", 0, 1, dtype))
        assert matches(pattern, UOp.variable("v", 0, 1, dtype).broadcast(4))
    for dtype in outside:
        assert not matches(pattern, UOp.variable("v", 0, 1, dtype))


# ---- sources


def test_sources_in_order() -> None:
    pattern = UPat(Ops.ADD, src=(UPat.var("a"), UPat.cvar("b")))
    assert found(pattern, n + 3) == [{"a": n, "b": n.const_like(3)}]
    assert not matches(pattern, 3 + n)


def test_sources_in_any_order() -> None:
    pattern = UPat(Ops.ADD, src=[UPat.var("a"), UPat.cvar("b")])
    assert found(pattern, n + 3) == found(pattern, 3 + n) == [{"a": n, "b": n.const_like(3)}]
    stack = UOp(Ops.STACK, dtypes.index.vec(3), (n, m, k))
    three = UPat(Ops.STACK, src=[UPat.var("a"), UPat.var("b"), UPat.var("c")])
    assert len(found(three, stack)) == 6
    assert found(three, stack)[0] == {"a": n, "b": m, "c": k}


def test_one_pattern_for_every_source() -> None:
    same = UPat(Ops.STACK, src=UPat.var("a"))
    assert matches(same, UOp(Ops.STACK, dtypes.index.vec(3), (n, n, n)))
    assert not matches(same, UOp(Ops.STACK, dtypes.index.vec(3), (n, n, m)))
    folded = UPat(GroupOp.ALU, src=UPat.cvar(), name="r")
    assert matches(folded, UOp.const("int8", 3) + UOp.const("int8", 4))
    assert not matches(folded, n + 4)
    assert matches(UPat(Ops.SINK, src=UPat(Ops.VAR)), UOp.sink())
    assert not matches(UPat(Ops.SINK, src=UPat.var("a")), UOp.sink())


def test_a_prefix_and_anything_after_it() -> None:
    pattern = UPat(Ops.SINK, src=(UPat.var("a"), UPat.var("b")), allow_any_len=True)
    assert found(pattern, UOp.sink(n, m)) == [{"a": n, "b": m}]
    assert found(pattern, UOp.sink(n, m, k, n, m, k)) == [{"a": n, "b": m}]
    assert not matches(pattern, UOp.sink(n))


def test_no_demand_on_the_sources() -> None:
    assert matches(UPat(Ops.SINK), UOp.sink(n, m))
    assert not matches(UPat(Ops.SINK, src=()), UOp.sink(n, m))
    assert matches(UPat(Ops.SINK, src=()), UOp.sink())


def test_wrong_sources_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="UPats"):
        UPat(Ops.ADD, src=(x, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="allow_any_len"):
        UPat(Ops.ADD, src=[x, y], allow_any_len=True)
    with pytest.raises(TypeError, match="identifier"):
        UPat.var("not a name")
    with pytest.raises(TypeError, match="ctx"):
        UPat.var("ctx")
    with pytest.raises(TypeError, match="at least one"):
        UPat.any()


# ---- captures


def test_a_name_used_twice_means_the_same_node() -> None:
    assert matches(x + x, n + n)
    assert not matches(x + x, n + m)
    shared = (x * c) + (x * UPat.cvar("d"))
    assert found(shared, n * 2 + n * 3) == [
        {"x": n, "c": n.const_like(2), "d": n.const_like(3)},
        {"x": n, "c": n.const_like(3), "d": n.const_like(2)},
    ]
    assert not matches(shared, n * 2 + m * 3)


def test_the_root_can_be_named() -> None:
    assert found((x + y).named("r"), n + m)[0] == {"r": n + m, "x": n, "y": m}
    with pytest.raises(TypeError, match="name already"):
        x.named("other")


# ---- constants


@pytest.mark.parametrize(
    ("pattern", "dtype", "value", "expected"),
    [
        # an int is that number in every dtype that holds it
        (0, dtypes.int32, 0, True),
        (0, dtypes.index, 0, True),
        (0, dtypes.float32, 0.0, True),
        (0, dtypes.float32, -0.0, False),
        (0, dtypes.bool, False, True),
        (0, dtypes.int32, 1, False),
        (1, dtypes.bool, True, True),
        (1, dtypes.float16, 1.0, True),
        (2, dtypes.bool, True, False),
        (-1, dtypes.int8, -1, True),
        (-1, dtypes.uint8, 255, True),
        (-1, dtypes.bool, True, False),
        (-1, dtypes.float64, -1.0, True),
        (255, dtypes.uint8, 255, True),
        (255, dtypes.int8, -1, False),
        (256, dtypes.uint8, 0, False),
        (-129, dtypes.int8, 127, False),
        (7, dtypes.float32, 7.0, True),
        (16777217, dtypes.float32, 16777216.0, False),
        # a float is a float, bit by bit, rounded as the dtype rounds it
        (0.0, dtypes.float32, 0.0, True),
        (0.0, dtypes.float32, -0.0, False),
        (-0.0, dtypes.float32, -0.0, True),
        (-0.0, dtypes.float32, 0.0, False),
        (0.0, dtypes.int32, 0, False),
        (0.1, dtypes.float32, 0.1, True),
        (0.1, dtypes.float64, 0.1, True),
        (1.5, dtypes.int32, 1, False),
        (math.nan, dtypes.float32, math.nan, True),
        (math.nan, dtypes.float32, 1.0, False),
        (math.inf, dtypes.float64, math.inf, True),
        (math.inf, dtypes.float64, -math.inf, False),
        # True and False are bool
        (True, dtypes.bool, True, True),
        (True, dtypes.int32, 1, False),
        (True, dtypes.float32, 1.0, False),
        (False, dtypes.bool, False, True),
        (False, dtypes.int32, 0, False),
    ],
)
def test_constants_by_exact_value(
    pattern: Scalar, dtype: DType, value: Scalar, expected: bool
) -> None:
    scalar = UOp.const(dtype, value)
    wide = UOp.const(dtype.vec(4), value)
    other = UOp.variable("o", 0, 1, dtype)
    for node in (scalar, wide):
        assert matches(UPat.const(pattern), node) is expected
        # also below a node, where the compiled form decides by signature
        beside = other.broadcast(node.dtype.count)
        assert matches(UPat.var("x") + UPat.const(pattern), beside + node) is expected
        deep = ((beside + node) * beside) * beside
        assert matches(((x + UPat.const(pattern)) * y) * y, deep) is expected
    assert not matches(UPat.const(pattern), other)


def test_cvar_captures_a_constant_or_its_broadcast() -> None:
    scalar, wide = UOp.const(dtypes.int8, 3), UOp.const(dtypes.int8.vec(4), 3)
    assert found(c, scalar) == [{"c": scalar}]
    assert found(c, wide) == [{"c": wide}]
    assert scalar.const_value == wide.const_value == 3
    assert not matches(c, UOp.variable("v", 0, 1, dtypes.int8).broadcast(4))
    assert not matches(c, UOp(Ops.STACK, dtypes.int8.vec(2), (scalar, scalar)))
    assert matches(UPat.cvar("c", ints), wide)
    assert not matches(UPat.cvar("c", floats), wide)


def test_an_argument_is_matched_exactly() -> None:
    reduced = UOp(Ops.REDUCE, dtypes.index, (n, UOp.range(4, 0)), Ops.ADD)
    assert matches(UPat(Ops.REDUCE, arg=Ops.ADD), reduced)
    assert not matches(UPat(Ops.REDUCE, arg=Ops.MAX), reduced)
    for given in (1, True, 1.0, 0.0, -0.0, (1, True), "1", math.nan):
        node = UOp(Ops.SINK, dtypes.void, (), given)
        for asked in (1, True, 1.0, 0.0, -0.0, (1, True), (1, 1), "1", math.nan):
            same = type(given) is type(asked) and repr(given) == repr(asked)
            assert matches(UPat(Ops.SINK, arg=asked), node) is same


# ---- predicates and alternatives


def test_a_predicate_on_the_node() -> None:
    even = UPat.cvar("c", ints).having(lambda node: node.const_value % 2 == 0)
    v = UOp.variable("v", 0, 9, dtypes.int32)
    assert matches(x * even, v * 6)
    assert matches(x * even, 6 * v)
    assert not matches(x * even, v * 5)
    both = even.having(lambda node: node.const_value > 4)
    assert matches(x * both, v * 6)
    assert not matches(x * both, v * 4)


def test_alternatives_are_tried_in_order() -> None:
    either = UPat.any(x * 2, y + z, x)
    assert found(either, n * 2) == [{"x": n}, {"x": n * 2}]
    assert found(either, n + m)[0] == {"y": n, "z": m}
    inside = UPat.any(x * 2, 2 + x) // c
    assert found(inside, (n * 2) // 4) == [{"x": n, "c": n.const_like(4)}]
    assert found(inside, (n + 2) // 4) == [{"x": n, "c": n.const_like(4)}]
    small = UPat.any(x * 2, x * 3).having(lambda node: node.vmax < 20)
    assert matches(small, n * 2)
    assert not matches(small, n * 3)


# ---- operators


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: a & b,
        lambda a, b: a | b,
        lambda a, b: a ^ b,
        lambda a, b: a << b,
        lambda a, b: a >> b,
        lambda a, b: a / b,
        lambda a, b: a < b,
        lambda a, b: a > b,
        lambda a, b: a <= b,
        lambda a, b: a >= b,
        lambda a, b: a.eq(b),
        lambda a, b: a.ne(b),
        lambda a, b: a.maximum(b),
        lambda a, b: a.minimum(b),
        lambda a, b: (a < b).where(a, b),
        lambda a, b: -a,
        lambda a, b: ~a,
        lambda a, b: a + 3,
        lambda a, b: a - 3,
        lambda a, b: 3 - a,
        lambda a, b: 3 + a,
        lambda a, b: 3 * a,
        lambda a, b: 3 // a,
        lambda a, b: 3 % a,
        lambda a, b: 3 < a,  # noqa: SIM300
        lambda a, b: 3 >= a,  # noqa: SIM300
        lambda a, b: a & 1,
        lambda a, b: 1 << a,
        lambda a, b: 64 >> a,
        lambda a, b: 1 | a,
        lambda a, b: 1 ^ a,
        lambda a, b: 1 & a,
        lambda a, b: a.cast(dtypes.int16) + b.cast(dtypes.int16),
    ],
)
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint8, dtypes.index])
def test_a_pattern_matches_the_node_that_is_written_alike(
    build: Callable[[Any, Any], Any], dtype: DType
) -> None:
    a, b = UOp.variable("a", 0, 9, dtype), UOp.variable("b", 0, 9, dtype)
    captured = found(build(x, y), build(a, b))
    assert captured[0].get("x") is a
    assert captured[0].get("y", b) is b
    for other in (build(b, b), a * 7 + 5):
        if other is not build(a, b) and "x" in captured[0]:
            assert {"x": a, "y": b} not in found(build(x, y), other)


def test_operators_of_floats_and_bools() -> None:
    g = UOp.variable("g", 0.0, 1.0, dtypes.float32)
    p, q = (UOp.variable(name, False, True, dtypes.bool) for name in "pq")
    builds: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a <= b,
        lambda a, b: a / b,
        lambda a, b: a - 0.0,
        lambda a, b: 1.0 / a,
        lambda a, b: a.sqrt() + b.exp2() + a.log2(),
        lambda a, b: a.sin() * b.trunc(),
        lambda a, b: -a,
        lambda a, b: a.bitcast("int32"),
    ]
    for build in builds:
        assert matches(build(x, y), build(f, g))
    assert matches(~x, ~p)
    assert matches(x & y, p & q)
    assert not matches(x <= y, ~(g < f))
    assert not matches(x + 0.0, f - 0.0)


def test_commutative_operators_match_both_orders_and_others_do_not() -> None:
    assert matches(c + x, n + 3)
    assert matches(x.eq(c), UOp.const(dtypes.index, 3).eq(n))
    assert matches(x.maximum(c), n.maximum(3))
    assert not matches(c // x, n // 3)
    assert not matches(c < x, n < 3)


def test_memory_patterns() -> None:
    buffer = UOp(Ops.PARAM, dtypes.float32, (), (0, 10))
    gate = n < 3
    b, i, g, v = (UPat.var(name) for name in "bigv")
    assert found(b.load(i), buffer.load(n)) == [{"b": buffer, "i": n}]
    assert not matches(b.load(i), buffer.load(n, gate))
    assert matches(b.load(i, g, v), buffer.load(n, gate))
    assert matches(b.load(i, allow_any_len=True), buffer.load(n, gate))
    assert matches(b.store(i, v), buffer.store(n, f))
    assert matches(b.store(i, v, g), buffer.store(n, f, gate))


def test_patterns_print_what_they_match() -> None:
    assert repr(x + 0) == "ADD[x, 0]"
    assert repr((x // c).named("d")) == "IDIV(x, const:c):d"
    assert repr(UPat.any(x, y)) == "UPat.any(x, y)"
