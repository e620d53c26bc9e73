"""graph_rewrite: to a fixed point, each node once, at any depth; circles are named."""

from __future__ import annotations

import gc
import os
import pickle
import random
import sys
import threading
import warnings
from typing import Any

import pytest

from opgraft.dtype import dtypes
from opgraft.errors import RewriteError
from opgraft.ir import EqualitySet, GroupOp, Ops, PatternMatcher, UOp, UPat, graph_rewrite
from opgraft.ir.collector import paused
from opgraft.ir.uop import live_nodes
from tested import sampled

x, y, z, c, d = UPat.var("x"), UPat.var("y"), UPat.var("z"), UPat.cvar("c"), UPat.cvar("d")
n, m = UOp.variable("n", 0, 9), UOp.variable("m", 0, 9)


def fold(r: UOp, c: UOp, d: UOp) -> UOp:
    a, b = c.const_value, d.const_value
    return r.const_like(a + b if r.op is Ops.ADD else a * b)


def together(r: UOp, x: UOp, c: UOp, d: UOp) -> UOp | None:
    return None if x.is_const else r.with_src((x, fold(r, c, d)))


def right(r: UOp, c: UOp, x: UOp) -> UOp | None:
    return None if x.is_const else r.with_src((x, c))


simple = EqualitySet(
    [
        (UPat({Ops.ADD, Ops.MUL}, src=(c, d), name="r"), fold),
        (x + 0, lambda x: x, "add zero"),
        (x * 1, lambda x: x, "times one"),
        (x * 0, lambda x: x.const_like(0), "times zero"),
        (UPat(GroupOp.COMMUTATIVE, src=(c, x), name="r"), right),
        (((x + c) + d).named("r"), together, "add constants"),
        (((x * c) * d).named("r"), together, "multiply constants"),
        ((x + c) * d, lambda x, c, d: x * d + c.const_value * d.const_value, "distribute"),
        (x + x, lambda x: x * 2, "double"),
    ]
)

both_ways = pytest.mark.parametrize("bottom_up", [False, True])


@both_ways
def test_rules_are_applied_until_none_fires(bottom_up: bool) -> None:
    made = graph_rewrite(((n * 1 + 2) * 3 + 0) * 2 + (n + n), simple, bottom_up=bottom_up)
    assert made is n * 6 + 12 + n * 2


@both_ways
def test_what_no_rule_matches_is_left_alone(bottom_up: bool) -> None:
    node = (n // 3) % m
    assert graph_rewrite(node, simple, bottom_up=bottom_up) is node
    assert graph_rewrite(node, PatternMatcher([]), bottom_up=bottom_up) is node


def random_graph(seed: int, size: int) -> UOp:
    choose = random.Random(seed)
    pool = [n, m, *(UOp.const(dtypes.index, v) for v in (0, 1, 2, 3))]
    for _ in range(size):
        a, b = choose.choice(pool), choose.choice(pool)
        pool.append(a + b if choose.random() < 0.6 else a * choose.choice(pool[:6]))
    return UOp.sink(*pool[-5:])


@both_ways
@pytest.mark.parametrize("seed", range(10))
def test_no_rule_fires_on_any_node_of_the_result(bottom_up: bool, seed: int) -> None:
    result = graph_rewrite(random_graph(seed, 60), simple, bottom_up=bottom_up)
    for node in result.toposort():
        assert simple.rewrite(node) is None
        assert simple.interpret(node) is None
    assert graph_rewrite(result, simple, bottom_up=bottom_up) is result


@pytest.mark.parametrize("seed", range(10))
def test_compiled_and_interpreted_rules_give_the_same_graph(seed: int) -> None:
    class Oracle(PatternMatcher):
        """Answers every look-up with the interpreter."""

        @property
        def table(self) -> Any:
            class Interpreted:
                def __getitem__(_, key: object) -> Any:
                    return self.interpret

            return Interpreted()

    graph = random_graph(100 + seed, 80)
    for bottom_up in (False, True):
        compiled = graph_rewrite(graph, simple, bottom_up=bottom_up)
        assert graph_rewrite(graph, Oracle(simple.rules), bottom_up=bottom_up) is compiled


@both_ways
def test_each_distinct_node_meets_the_rules_once(bottom_up: bool) -> None:
    seen: list[UOp] = []
    watch = PatternMatcher([(UPat(name="r"), lambda ctx, r: ctx.append(r))])
    node = n
    for _ in range(24):  # 2**24 paths
        node = node + node
    assert graph_rewrite(node, watch, seen, bottom_up=bottom_up) is node
    assert len(seen) == len(set(seen)) == 25


def test_sources_come_first_unless_bottom_up() -> None:
    order = PatternMatcher([(UPat(name="r"), lambda ctx, r: ctx.append(r))])
    node = (n + m) * n
    late: list[UOp] = []
    graph_rewrite(node, order, late)
    assert late == [n, m, n + m, node]
    early: list[UOp] = []
    graph_rewrite(node, order, early, bottom_up=True)
    assert early == [node, n + m, n, m]


def test_bottom_up_replaces_a_whole_before_its_parts() -> None:
    rules = PatternMatcher([((x + y) * 2, lambda x, y: x), (x + y, lambda x, y: y)])
    assert graph_rewrite((n + m) * 2, rules) is m * 2
    assert graph_rewrite((n + m) * 2, rules, bottom_up=True) is n


def test_the_context_reaches_the_rules() -> None:
    rules = PatternMatcher([(UPat(Ops.VAR, name="v"), lambda ctx, v: ctx.get(v))])
    assert graph_rewrite(n + m * 2, rules, {n: UOp.const(dtypes.index, 3)}) is 3 + m * 2


def test_what_a_rule_makes_is_rewritten_too() -> None:
    rules = PatternMatcher([(x % c, lambda x, c: x - (x // c) * c), (x // 3, lambda x: x >> 1)])
    assert graph_rewrite(n % 3, rules) is n - (n >> 1) * 3


def test_a_failing_rule_is_reported_from_the_depth_of_a_graph() -> None:
    def broken(x: UOp) -> UOp:
        raise KeyError("gone")

    rules = PatternMatcher([(x * 1, lambda x: x), (x // 2, broken)])
    with pytest.raises(RewriteError, match=r"broken \(test_rewrite.py:\d+\)") as caught:
        graph_rewrite(UOp.sink((n // 2) + 1), rules)
    assert isinstance(caught.value.__cause__, KeyError)


# ---- circles


@both_ways
def test_a_circle_of_two_rules_is_reported_with_both(bottom_up: bool) -> None:
    rules = PatternMatcher(
        [
            (x + y, lambda x, y: x * y, "sum to product"),
            (x * y, lambda x, y: x + y, "product to sum"),
            (x // 1, lambda x: x, "innocent"),
        ]
    )
    with pytest.raises(RewriteError, match="run in a circle in demo") as caught:
        graph_rewrite(UOp.sink((n // 1) + m), rules, bottom_up=bottom_up, name="demo")
    assert "sum to product (test_rewrite.py:" in str(caught.value)
    assert "product to sum (test_rewrite.py:" in str(caught.value)
    assert "innocent" not in str(caught.value)


@both_ways
def test_a_rule_that_wraps_its_own_node_is_a_circle(bottom_up: bool) -> None:
    rules = PatternMatcher([((x // y).named("r"), lambda r, x, y: r + 1, "wrap")])
    with pytest.raises(RewriteError, match=r"(?s)circle.*wrap"):
        graph_rewrite(n // m, rules, bottom_up=bottom_up)


@both_ways
def test_a_circle_through_the_sources_of_what_rules_made(bottom_up: bool) -> None:
    # the sum becomes a difference that holds the product, and the product holds the sum
    rules = PatternMatcher(
        [
            (UPat(Ops.ADD, src=(x, y)), lambda x, y: (x * y) // 7, "outer"),
            (UPat(Ops.MUL, src=(x, y)), lambda x, y: (x + y) % 5, "inner"),
        ]
    )
    with pytest.raises(RewriteError, match="circle") as caught:
        graph_rewrite(n + m, rules, bottom_up=bottom_up)
    assert "outer" in str(caught.value)
    assert "inner" in str(caught.value)


@both_ways
def test_a_circle_that_grows_is_reported(bottom_up: bool) -> None:
    rules = PatternMatcher(
        [
            (UPat(Ops.ADD, src=(x, c)), lambda x, c: x * c.const_like(c.const_value + 1), "up"),
            (UPat(Ops.MUL, src=(x, c)), lambda x, c: x + c.const_like(c.const_value + 1), "on"),
        ]
    )
    with pytest.raises(RewriteError, match="circle that grows") as caught:
        graph_rewrite(UOp.sink(n + 1, m), rules, bottom_up=bottom_up)
    assert "up (test_rewrite.py:" in str(caught.value)
    assert "on (test_rewrite.py:" in str(caught.value)


@both_ways
def test_a_circle_that_grows_downward_is_reported(bottom_up: bool) -> None:
    rules = PatternMatcher([(UPat(Ops.IDIV, src=(x, c)), lambda x, c: (x * 2) // 3 + 1, "deeper")])
    deeper = PatternMatcher([(UPat(Ops.IDIV, src=(x, y)), lambda x, y: ((x + 1) // y) % 5, "deep")])
    assert graph_rewrite(n + 1, rules, bottom_up=bottom_up) is n + 1
    with pytest.raises(RewriteError, match=r"(?s)circle.*deep"):
        graph_rewrite(n // m, deeper, bottom_up=bottom_up)


def test_many_rewrites_of_a_long_chain_are_no_circle() -> None:
    node = n
    for i in range(3000):
        node = (node + i % 3) * 1 + 0
    assert graph_rewrite(node, simple) is n + 3000


# ---- depth, at the default recursion limit


@pytest.mark.parametrize("bottom_up", sampled([False, True], 2))
def test_chains_of_100000_nodes(bottom_up: bool) -> None:
    assert sys.getrecursionlimit() == 1000
    node = n
    for _ in range(100_000):
        node = node + m
    assert graph_rewrite(node, simple, bottom_up=bottom_up) is node
    swap = PatternMatcher([(UPat(Ops.ADD, src=(x, y)), lambda x, y: x * y)])
    made = graph_rewrite(node, swap, bottom_up=bottom_up)
    assert made.op is Ops.MUL
    assert len(made.toposort()) == 100_002


def test_a_rule_that_moves_down_a_long_chain() -> None:
    # each step leaves an open rewrite: 20,000 deep, and no circle
    node = n
    for _ in range(20_000):
        node = node + m
    push = PatternMatcher([((x + y) * 3, lambda x, y: x * 3 + y * 3, "push")])
    made = graph_rewrite(node * 3, push)
    assert made.op is Ops.ADD
    assert len(made.toposort()) == 2 * 2 + 1 + 20_000


@pytest.mark.thorough
def test_a_rewritten_chain_of_40000_distinct_additions() -> None:
    # egg#50, tinygrad#8167: long chains overflow the stack
    node = UOp.variable("v", 0, 9, dtypes.int64)
    for i in range(40_000):
        node = node + (UOp.variable(f"v{i}", 0, 9, dtypes.int64) + 0)
    made = graph_rewrite(node, simple)
    assert len(made.toposort()) == 80_001
    assert pickle.loads(pickle.dumps(made)) is made


# ---- memory and the collector


def test_nothing_is_kept_after_a_rewrite() -> None:
    graph_rewrite(random_graph(1, 50), simple)
    gc.collect()
    gc.disable()
    try:
        before = live_nodes()
        for seed in range(5):
            graph_rewrite(random_graph(seed, 200), simple)
        assert live_nodes() == before
    finally:
        gc.enable()


def test_the_collector_pauses_inside_the_outermost_rewrite_and_comes_back() -> None:
    states: list[bool] = []

    def inside(ctx: int, r: UOp) -> None:
        states.append(gc.isenabled())
        if ctx:
            graph_rewrite(r, rules, ctx - 1)
        states.append(gc.isenabled())

    rules = PatternMatcher([(UPat(Ops.VAR, name="r"), inside)])
    assert gc.isenabled()
    graph_rewrite(n, rules, 2)
    assert gc.isenabled()
    assert states == [False] * 6


def test_the_collector_comes_back_after_an_error() -> None:
    def broken() -> UOp:
        raise ValueError("no")

    rules = PatternMatcher([(UPat(Ops.VAR), broken)])
    with pytest.raises(RewriteError):
        graph_rewrite(n, rules)
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        graph_rewrite(n + 0, simple)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_function_of_many_rewrites_is_paused_as_a_whole() -> None:
    @paused
    def both() -> list[bool]:
        graph_rewrite(n + 0, simple)
        between = gc.isenabled()
        graph_rewrite(n + 0, simple)
        return [between, gc.isenabled()]

    assert both() == [False, False]
    assert gc.isenabled()


def test_overlapping_rewrites_of_threads_share_the_pause() -> None:
    inside, go = threading.Event(), threading.Event()

    def wait(r: UOp) -> None:
        inside.set()
        go.wait(10)

    thread = threading.Thread(
        target=lambda: graph_rewrite(n, PatternMatcher([(UPat(Ops.VAR, name="r"), wait)]))
    )
    thread.start()
    assert inside.wait(10)
    graph_rewrite(n + 0, simple)
    assert not gc.isenabled()
    go.set()
    thread.join()
    assert gc.isenabled()
    assert paused._inside == 0


def test_threads_rewrite_to_the_same_nodes() -> None:
    results: list[list[UOp]] = [[] for _ in range(8)]

    def work(mine: list[UOp]) -> None:
        mine += [graph_rewrite(random_graph(seed, 80), simple) for seed in range(6)]

    threads = [threading.Thread(target=work, args=(mine,)) for mine in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for nodes in zip(*results):
        assert all(node is nodes[0] for node in nodes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_others_rewrite_can_rewrite() -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            graph_rewrite(random_graph(3, 60), simple)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, 3.12
                child = os.fork()
            if child == 0:
                fresh = UOp.variable("fresh", 0, 9, dtypes.uint16)
                right = graph_rewrite(fresh * 1 + 0, simple) is fresh and gc.isenabled()
                os._exit(0 if right else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("bottom_up", [False, True])
def test_settled_nodes_are_taken_as_they_are(bottom_up: bool) -> None:
    zero = PatternMatcher([(UPat.var("x") + 0, lambda x: x, "add_zero")])
    n = UOp.variable("n", 0, 9)
    inner = n + 0
    sink = (inner * 2) + 0
    made = graph_rewrite(sink, zero, bottom_up=bottom_up, settled=[inner])
    assert made is inner * 2
    assert graph_rewrite(sink, zero, bottom_up=bottom_up) is n * 2
