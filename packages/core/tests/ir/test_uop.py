"""UOp: one node per meaning, freed with its last user, the same in every process and thread."""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction

import pytest

from opgraft.dtype import DType, dtypes
from opgraft.ir import AxisKind, Ops, UOp, substitute, toposort
from opgraft.ir import intern as intern_table
from opgraft.ir.intern import exact_key, head_of
from opgraft.ir.uop import live_nodes

LONG = 100_000


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Nodes must die without the cyclic collector: they hold no cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def variable(name: str = "v") -> UOp:
    return UOp.variable(name, 0, 9)


def chain(length: int) -> UOp:
    value, other = variable("a"), variable("b")
    for _ in range(length):
        value = value + other
    return value


# ---- identity


def test_equal_nodes_are_one_object() -> None:
    x = variable()
    assert (x + 1) is (x + 1)
    assert UOp(Ops.ADD, dtypes.index, (x, x)) is x + x
    assert UOp(Ops.MUL, dtypes.index, (x, x)) is not x + x
    assert x.rtag("t") is not x
    assert x.rtag("t") is x.rtag("t")
    assert x.rtag("t").rtag(None) is x


def test_zeros_of_either_sign_are_two_constants() -> None:
    # hash-consing by == joins them: pyston_v1#725, Higgs#167
    for dtype in dtypes.floats:
        plus, minus = UOp.const(dtype, 0.0), UOp.const(dtype, -0.0)
        assert plus is not minus
        assert math.copysign(1.0, plus.arg) == 1.0
        assert math.copysign(1.0, minus.arg) == -1.0
        assert UOp.const(dtype, 0) is plus


def test_true_one_and_one_point_zero_are_three_constants() -> None:
    one = UOp.const(dtypes.int32, 1)
    true = UOp.const(dtypes.bool, True)
    real = UOp.const(dtypes.float32, 1.0)
    assert len({one, true, real}) == 3
    assert [type(n.arg) for n in (one, true, real)] == [int, bool, float]
    assert [n.dtype for n in (one, true, real)] == [dtypes.int32, dtypes.bool, dtypes.float32]


def test_arguments_that_compare_equal_are_told_apart() -> None:
    x = variable()
    kinds = [1, True, 1.0, Fraction(1), (1,), (True,), (1.0,), 0.0, -0.0, (0.0,), (-0.0,)]
    nodes = [UOp(Ops.SINK, dtypes.void, (x,), kind) for kind in kinds]
    assert len(set(nodes)) == len(kinds)
    for node, kind in zip(nodes, kinds):
        assert UOp(Ops.SINK, dtypes.void, (x,), kind) is node
        assert type(node.arg) is type(kind)


def test_nan_is_one_node_and_its_uses_do_not_grow() -> None:
    x = UOp.variable("x", 0.0, 1.0, dtypes.float32)
    first = x + math.nan
    before = live_nodes()
    kept = [x + float("nan") for _ in range(1000)]
    kept += [x + UOp.const(dtypes.float32, -math.nan) for _ in range(1000)]
    assert all(node is first for node in kept)
    assert live_nodes() == before
    assert UOp.const(dtypes.float32, math.nan) is not UOp.const(dtypes.float64, math.nan)


def test_constants_are_held_as_their_dtype_holds_them() -> None:
    assert UOp.const(dtypes.int8, 300) is UOp.const(dtypes.int8, 44)
    assert UOp.const(dtypes.uint8, -1) is UOp.const(dtypes.uint8, 255)
    assert UOp.const(dtypes.float32, 0.1) is not UOp.const(dtypes.float64, 0.1)
    assert UOp.const(dtypes.float32, 0.1) is UOp.const(dtypes.float32, Fraction(1, 10))
    assert UOp.const(dtypes.float16, 1e6).arg == math.inf
    assert UOp.const(dtypes.bool, 7) is UOp.const(dtypes.bool, True)
    wide = UOp.const(dtypes.int8.vec(4), 300)
    assert wide.op is Ops.BROADCAST
    assert wide.const_value == 44
    assert UOp(Ops.CONST, dtypes.int8, (), 300) is UOp.const("int8", 44)


@pytest.mark.parametrize("dtype", dtypes.floats)
def test_quick_ways_to_round_a_constant_agree_with_fractions(dtype: DType) -> None:
    unit = dtype.const(1.0) * 2.0**-dtype.mantissa
    least = 2.0 ** (2 - (1 << (dtype.exponent - 1)) - dtype.mantissa)  # the least subnormal
    most = float(Fraction(2) - Fraction(unit)) * 2.0 ** ((1 << (dtype.exponent - 1)) - 1)
    numbers = [0.5 * least, 1.5 * least, 1.0 + 0.5 * unit, 1.0 + 1.5 * unit, 1.0 + 0.51 * unit]
    numbers += [most, most * (1.0 + 0.25 * unit), 1e30, 1 / 3]
    for number in [*numbers, *(-x for x in numbers)]:
        assert dtype.const(number) == dtype.const(Fraction(number)), number
    for whole in (-2, -1, 0, 1, 2):
        assert dtype.const(whole) == dtype.const(float(whole)) == whole
        assert math.copysign(1.0, dtype.const(whole)) == (1.0 if whole >= 0 else -1.0)


def test_a_constant_needs_a_value() -> None:
    with pytest.raises(TypeError, match="CONST"):
        UOp(Ops.CONST, dtypes.int8)


def test_numbers_of_numpy_become_plain_constants() -> None:
    numpy = pytest.importorskip("numpy")
    x = UOp.variable("x", 0.0, 1.0, dtypes.float64)
    assert (x + numpy.float64(0.5)) is (x + 0.5)
    assert type((x + numpy.float64(0.5)).src[1].arg) is float
    assert UOp.const(dtypes.int32, numpy.int64(7)) is UOp.const(dtypes.int32, 7)
    assert UOp.const(dtypes.bool, numpy.bool_(True)) is UOp.const(dtypes.bool, True)


def test_exact_key_agrees_with_itself_alone() -> None:
    values: list[object] = [0, False, 0.0, -0.0, 1, True, 1.0, math.nan, (0,), (False,), "0", None]
    keys = [exact_key(v) for v in values]
    assert len(set(keys)) == len(values)
    assert exact_key(float("nan")) == exact_key(-float("nan"))


# ---- operators


def test_subtraction_and_negation_are_built_of_addition_and_multiplication() -> None:
    x, y = variable("x"), variable("y")
    assert -x is x * -1
    assert x - y is x + y * -1
    assert x - 3 is x + -3
    assert 3 - x is UOp.const(dtypes.index, 3) + x * -1
    b = UOp.variable("b", False, True, dtypes.bool)
    assert ~b is b ^ True
    assert ~x is x ^ -1


def test_subtracting_the_float_zero_keeps_signed_zeros() -> None:
    x = UOp.variable("x", 0.0, 1.0, dtypes.float32)
    # x - 0.0 is x + -0.0; x + 0.0 would make 0.0 of -0.0
    assert x - 0.0 is x + -0.0
    assert x - 0 is x + -0.0
    assert x - (-0.0) is x + 0.0


def test_subtracting_the_least_integer_wraps() -> None:
    x = UOp.variable("x", 0, 9, dtypes.int8)
    assert x - (-128) is x + -128


def test_operators_with_a_number_on_the_left() -> None:
    x = variable()
    three = UOp.const(dtypes.index, 3)
    assert 3 + x is three + x
    assert 3 // x is three // x
    assert (3 < x) is (three < x)  # noqa: SIM300
    assert (3 > x) is (x < three)  # noqa: SIM300
    assert (x > 3) is (three < x)


def test_comparisons_are_bool_of_as_many_lanes() -> None:
    v = UOp.variable("v", 0.0, 1.0, dtypes.float32).broadcast(4)
    assert (v < 1).dtype is dtypes.bool.vec(4)
    assert v.eq(v).dtype is dtypes.bool.vec(4)
    assert v.ne(2.0).where(v, 0.0).dtype is v.dtype


def test_less_or_equal_of_floats_is_false_for_nan() -> None:
    x, y = variable("x"), variable("y")
    assert (x <= y) is ~(y < x)
    f = UOp.variable("f", 0.0, 1.0, dtypes.float32)
    assert (f <= 1.0) is ((f < 1.0) | f.eq(1.0))
    assert (f >= 1.0) is ((UOp.const(dtypes.float32, 1.0) < f) | UOp.const(f.dtype, 1.0).eq(f))


def test_a_node_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="truth value"):
        bool(variable())


def test_replace_changes_what_is_named() -> None:
    x = variable()
    node = x + 1
    assert node.replace(op=Ops.MUL) is x * 1
    assert node.replace(src=(x, x)) is x + x
    assert node.replace(tag=3).tag == 3
    with pytest.raises(TypeError, match="sources"):
        node.replace(sources=())


# ---- life


def test_nodes_die_with_their_last_user() -> None:
    before = live_nodes()
    value = chain(500)
    assert live_nodes() > before + 400
    value = value.src[0].src[0]
    assert live_nodes() <= before + 502
    del value
    assert live_nodes() == before


def test_what_is_derived_keeps_nothing_alive() -> None:
    before = live_nodes()
    i, j = UOp.range(8, 0), UOp.range(UOp.range(4, 2) + 1, 1)
    value = (i * 8 + j).reduce(Ops.ADD, j)
    assert value.ranges == (i, *j.ranges[:-1])
    assert (value.vmin, value.order > 0, len(value.key)) == (0, True, 40)
    assert j.ranges[-1] is j
    del i, j, value
    assert live_nodes() == before


def test_heads_without_nodes_are_dropped() -> None:
    kept = [UOp.const(dtypes.int64, 10**9 + i) for i in range(50)]
    held = head_of(Ops.CONST, dtypes.int64, 10**12)  # a head in use, though without nodes
    intern_table._drop_idle_heads()
    small = len(intern_table._heads)
    for i in range(1000):
        UOp.const(dtypes.int64, 10**10 + i)
    intern_table._drop_idle_heads()
    assert len(intern_table._heads) <= small
    assert all(UOp.const(dtypes.int64, 10**9 + i) is node for i, node in enumerate(kept))
    assert head_of(Ops.CONST, dtypes.int64, 10**12) is held


def test_eight_threads_that_build_the_same_graphs_get_the_same_nodes() -> None:
    start = threading.Barrier(8)
    built: list[list[UOp]] = [[] for _ in range(8)]

    def work(mine: list[UOp]) -> None:
        start.wait()
        for round_ in range(20):
            x = UOp.variable(f"x{round_}", 0, 99, dtypes.int32)
            for i in range(60):
                x = (x * (i + 1000 * round_) + i) ^ UOp.const(dtypes.int32, i % 7)
                if i % 5 == 0:
                    mine.append(x)  # the others die at once, and are made again elsewhere

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(mine,)) for mine in built]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert all(len(mine) == len(built[0]) for mine in built)
    for nodes in zip(*built):
        assert all(node is nodes[0] for node in nodes)


def test_threads_that_drop_and_make_one_node_never_see_two() -> None:
    x = variable()
    start = threading.Barrier(4)
    faults: list[object] = []

    def work() -> None:
        start.wait()
        for _ in range(3000):
            first = x + 12345
            if (x + 12345) is not first:
                faults.append(first)
            del first

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert not faults


# ---- pickling and other processes


def sample() -> UOp:
    i = UOp.range(8, "i", AxisKind.REDUCE)
    f = UOp.variable("f", 0.0, 1.0, dtypes.float32)
    vector = (f * -0.0 + math.nan).broadcast(4) * UOp.const(dtypes.float32.vec(4), 2.5)
    total = (i.cast("float32") * f).reduce(Ops.ADD, i)
    return UOp.sink(vector, total, (i % 3).eq(1).rtag(("t", 1, True)), arg=(1, True, 1.0, "x"))


def test_a_pickled_node_comes_back_as_itself() -> None:
    node = sample()
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(node, protocol)) is node
    assert copy.copy(node) is node
    assert copy.deepcopy(node) is node
    assert copy.deepcopy([node])[0] is node


def test_key_and_order_are_the_same_in_every_process() -> None:
    node = sample()
    script = (
        "import pickle, sys\n"
        "node = pickle.load(sys.stdin.buffer)\n"
        "from opgraft.ir import UOp\n"
        "UOp.variable('other', 0, 1)\n"
        "order = [n.order for n in node.toposort()]\n"
        "print(node.key, *order)\n"
    )
    expected = " ".join(map(str, [node.key, *(n.order for n in node.toposort())]))
    for seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=pickle.dumps(node),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode().strip() == expected


def test_key_and_order_tell_nodes_apart() -> None:
    x, f = variable(), UOp.variable("f", 0.0, 1.0, dtypes.float32)
    nodes = [x + 1, x + 2, x * 1, x, 1 + x, f + 0.0, f + -0.0, f + math.nan, x.rtag(1), x + x]
    assert len({n.key for n in nodes}) == len(nodes)
    assert len({n.order for n in nodes}) == len(nodes)


# ---- long chains, at the default recursion limit (C03: egg#50, tinygrad#8167, #8457, #10224)


def test_a_long_chain_is_built_walked_and_freed() -> None:
    assert sys.getrecursionlimit() == 1000
    before = live_nodes()
    value = chain(LONG)
    assert len(value.toposort()) == LONG + 2
    assert value.toposort()[-1] is value
    assert len(value.backward_slice) == LONG + 1
    assert isinstance(hash(value), int)
    assert value.ranges == ()
    assert value.order != value.src[0].order
    assert len(value.key) == 40
    del value
    assert live_nodes() == before


def test_a_long_chain_is_pickled_and_copied() -> None:
    value = chain(LONG)
    assert pickle.loads(pickle.dumps(value)) is value
    assert copy.deepcopy(value) is value


@pytest.mark.thorough
def test_a_long_chain_is_substituted() -> None:
    value = chain(LONG)
    a, b = variable("a"), variable("b")
    assert value.substitute({a: b, b: a}).substitute({a: b, b: a}) is value
    assert len(value.substitute({a: b}).toposort()) == LONG + 1


@pytest.mark.thorough
def test_a_chain_of_40000_distinct_additions_survives_everything() -> None:
    value = UOp.variable("x", 0, 1, dtypes.int64)
    for i in range(40_000):
        value = value + UOp.variable(f"v{i}", 0, 1, dtypes.int64)
    assert pickle.loads(pickle.dumps(value)) is value
    assert len(repr(value)) > 100
    assert (value.vmin, value.vmax) == (0, 40_001)
    assert len({value, value.src[0]}) == 2


# ---- walks


def test_toposort_is_in_a_fixed_order_sources_first() -> None:
    x, y = variable("x"), variable("y")
    node = (x + y) * (y + x) + x
    order = toposort((node,))
    assert order == [x, y, x + y, y + x, (x + y) * (y + x), node]
    assert toposort((node,), lambda n: n.op is Ops.ADD) == [(x + y) * (y + x), x, node]
    assert toposort((x, node)) == order


def test_substitute_replaces_at_once_and_not_again() -> None:
    x, y = variable("x"), variable("y")
    assert (x + y).substitute({x: y, y: x}) is y + x
    assert (x + y).substitute({x: x * 2}) is x * 2 + y
    assert substitute([x, y + x], {x: y}) == [y, y + y]


def test_ranges_are_those_still_open() -> None:
    i, j, k = (UOp.range(8, name) for name in "ijk")
    value = (i * 8 + j + k).reduce(Ops.ADD, k, j)
    assert value.ranges == (i,)
    assert (value + j).ranges == (i, j)
    inner = UOp.range(i + 1, "n")
    assert inner.ranges == (i, inner)
    assert (inner * 2).reduce(Ops.ADD, inner).ranges == (i,)
