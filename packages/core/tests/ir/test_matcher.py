"""PatternMatcher: the compiled form says what the interpreter says; rules are checked when made."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from opgraft.dtype import DType, dtypes
from opgraft.errors import RewriteError
from opgraft.ir import EqualitySet, GroupOp, Ops, PatternMatcher, UOp, UPat
from opgraft.ir.matcher import _MOST_SIGNATURES, signature
from opgraft.ir.pattern import floats, index, ints
from opgraft.ir.steps import made_of

x, y, c = UPat.var("x"), UPat.var("y"), UPat.cvar("c")
n, m = UOp.variable("n", 0, 9), UOp.variable("m", 0, 9)


def test_the_first_rule_that_fires_wins() -> None:
    matcher = PatternMatcher(
        [(x + y, lambda x, y: None), (x + y, lambda x, y: x * y), (x + y, lambda x, y: x)]
    )
    assert matcher.rewrite(n + m) is n * m


def test_no_rule_no_rewrite() -> None:
    matcher = PatternMatcher([(x + 0, lambda x: x)])
    assert matcher.rewrite(n + m) is None
    assert matcher.rewrite(n) is None
    assert PatternMatcher([]).rewrite(n) is None


def test_a_declined_match_is_tried_in_the_other_order() -> None:
    matcher = PatternMatcher([(x + y, lambda x, y: x if x.op is Ops.VAR else None)])
    assert matcher.rewrite((n * 2) + m) is m


def test_returning_the_matched_node_is_declining() -> None:
    matcher = PatternMatcher([((x + y).named("s"), lambda s, x, y: s), (x + y, lambda x, y: x)])
    assert matcher.rewrite(n + m) is n
    assert matcher.interpret(n + m) is n


def test_rules_take_the_context_if_they_ask() -> None:
    seen: list[UOp] = []
    matcher = PatternMatcher([(x + 0, lambda ctx, x: ctx.append(x))])
    assert matcher.rewrite(n + 0, seen) is None
    assert seen == [n]


def test_plus_joins_in_order() -> None:
    first = PatternMatcher([(x + 0, lambda x: x)])
    second = PatternMatcher([(x + 0, lambda x: x * 2), (x * 1, lambda x: x)])
    both = first + second
    assert len(both) == 3
    assert both.rewrite(n + 0) is n
    assert both.rewrite(n * 1) is n
    assert (second + first).rewrite(n + 0) is n * 2


def test_equal_sums_share_their_compiled_functions() -> None:
    first, second = PatternMatcher([(x + 0, lambda x: x)]), PatternMatcher([(x * 1, lambda x: x)])
    one, other = first + second, first + second
    assert one.table is other.table


def test_equality_sets_add_up_to_equality_sets() -> None:
    first = EqualitySet([(x + 0, lambda x: x)])
    second = EqualitySet([(x * 1, lambda x: x)])
    lowering = PatternMatcher([(x * 1, lambda ctx, x: x)])
    assert type(first + second) is EqualitySet
    assert type(first + lowering) is PatternMatcher
    assert type(lowering + first) is PatternMatcher


def test_an_equality_takes_no_context() -> None:
    with pytest.raises(RewriteError, match=r"named \(test_matcher.py:\d+\) takes ctx"):
        EqualitySet([(x + 0, lambda ctx, x: x, "named")])


def test_a_rule_with_an_unbound_variable_is_refused_when_made() -> None:
    with pytest.raises(RewriteError, match=r"zero \(test_matcher.py:\d+\) takes 'z'") as caught:
        PatternMatcher([(x + 0, lambda z: z, "zero")])
    assert "captured: x" in str(caught.value)


def test_a_name_of_one_alternative_needs_a_default() -> None:
    either = UPat.any(x + 1, y * 2)
    with pytest.raises(RewriteError, match="only some alternatives"):
        PatternMatcher([(either, lambda x: x)])

    def taken(x: UOp | None = None, y: UOp | None = None) -> UOp | None:
        return x if x is not None else y

    matcher = PatternMatcher([(either, taken)])
    assert matcher.rewrite(n + 1) is n
    assert matcher.rewrite(m * 2) is m


@pytest.mark.parametrize(
    "pattern",
    [
        UPat(Ops.ADD, src=(x,)),
        UPat(Ops.SQRT, src=(x, y)),
        UPat((Ops.ADD, Ops.MUL), src=(x, y, c)),
        UPat((), name="x"),
        UPat(Ops.CMPLT, dtypes.int32, (x, y)),
        UPat.const(-1, dtypes.bool, "x"),
        UPat.const(300, dtypes.int8, "x"),
        UPat.const(1.5, dtypes.int8, "x"),
        x + UPat(Ops.WHERE, src=(y, c)),
    ],
)
def test_an_impossible_pattern_is_refused_with_the_rule(pattern: UPat) -> None:
    with pytest.raises(RewriteError, match=r"never \(test_matcher.py:\d+\) can never match"):
        PatternMatcher([(pattern, lambda **kw: None, "never")])


def test_a_rule_function_that_cannot_be_called_by_name_is_refused() -> None:
    with pytest.raises(RewriteError, match="by name"):
        PatternMatcher([(x + 0, lambda *x: None)])
    with pytest.raises(RewriteError, match="not a UPat"):
        PatternMatcher([(Ops.ADD, lambda: None)])  # type: ignore[list-item]


def test_rules_know_their_name_and_place() -> None:
    def add_zero(x: UOp) -> UOp:
        return x

    matcher = PatternMatcher(
        [
            (x + 0, add_zero),
            (x + 0, lambda x: x, "given"),
            (x + 0, functools.partial(lambda k, x: x, k=1), "partial"),
        ]
    )
    names = [rule.name for rule in matcher]
    assert names == ["add_zero", "given", "partial"]
    assert all(rule.file.endswith("test_matcher.py") and rule.line > 0 for rule in matcher)


def test_a_rule_that_raises_is_named_with_its_node_and_cause() -> None:
    def broken(x: UOp, c: UOp) -> UOp:
        raise ZeroDivisionError("by zero")

    rules: list[Any] = [(x * 1, lambda x: x), (x // c, lambda x, c: None), (x // c, broken)]
    matcher = PatternMatcher(rules)
    for run in (matcher.rewrite, matcher.interpret):
        with pytest.raises(RewriteError, match=r"broken \(test_matcher.py:\d+\)") as caught:
            run(n // 3)
        assert "IDIV" in str(caught.value)
        assert "by zero" in str(caught.value)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_rule_that_returns_no_node_is_named() -> None:
    matcher = PatternMatcher([(x * 1, lambda x: 5, "five")])  # type: ignore[list-item,return-value]
    for run in (matcher.rewrite, matcher.interpret):
        with pytest.raises(RewriteError, match=r"five .* a rule returns a UOp or None, not 5"):
            run(n * 1)


def test_keyword_only_and_optional_parameters() -> None:
    def keyword(*, y: UOp, x: UOp, z: int = 3) -> UOp:
        return x * y * z

    def everything(**captured: UOp) -> UOp:
        return captured["x"] - captured["y"]

    assert PatternMatcher([(x % y, keyword)]).rewrite(n % m) is n * m * 3
    assert PatternMatcher([(x % y, everything)]).rewrite(n % m) is n - m


def test_the_table_is_capped_and_stays_right() -> None:
    matcher = PatternMatcher([(x + 0, lambda x: x), (x + c, lambda x, c: x * c)])
    table = matcher.table
    for lanes in range(1, _MOST_SIGNATURES + 50):
        v = UOp.variable(f"v{lanes}", 0, 9, dtypes.int32)
        node = UOp(Ops.ADD, dtypes.int32.vec(lanes), (v, v))
        assert matcher.rewrite(node) is None
    assert len(table) <= _MOST_SIGNATURES + len(Ops)
    late = UOp.variable("late", 0, 9, dtypes.uint16)
    assert matcher.rewrite(late + 0) is late
    assert matcher.rewrite(late + 3) is late * 3
    assert matcher.rewrite(late * 3) is None


def test_signatures_tell_constants_apart_by_class() -> None:
    v = UOp.variable("v", 0, 9, dtypes.float32)
    same = [signature(v + k) for k in (2.0, 3.0, -0.0, float("nan"), float("inf"))]
    assert len(set(same)) == 1
    assert len({signature(v + k) for k in (0.0, 1.0, -1.0, 2.0)}) == 4
    u = UOp.variable("u", 0, 9, dtypes.uint8)
    assert signature(u + 255) == signature(u + -1)
    assert signature(u + 255) != signature(u + 254)


def test_one_matcher_serves_many_threads() -> None:
    matcher = PatternMatcher([(x + 0, lambda x: x), (x * c, lambda x, c: x + c)])
    faults: list[object] = []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(300):
            dtype = choose.choice(dtypes.ints)
            v = UOp.variable("v", 0, 9, dtype).broadcast(choose.choice([1, 2, 4, 8]))
            if matcher.rewrite(v + 0) is not v or matcher.rewrite(v * 3) is not v + 3:
                faults.append(v)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


# ---- the compiled form against the interpreter

_SPECIAL = [0, 1, -1, 2, 7, True, False, 0.0, -0.0, 1.0, float("nan"), float("inf"), 255]
_BINARY = sorted(GroupOp.BINARY - {Ops.THREEFRY})


def random_nodes(choose: random.Random, count: int) -> list[UOp]:
    pool: list[UOp] = []
    some: list[DType] = [dtypes.index, dtypes.int8, dtypes.uint8, dtypes.bool, dtypes.float32]
    some += [dtypes.float32.vec(4), dtypes.int8.vec(2)]
    for dtype in some:
        pool.append(UOp.variable("v", 0, 1, dtype.scalar).broadcast(dtype.count))
        pool += [UOp.const(dtype, v) for v in choose.sample([0, 1, -1, 2, 7], 3)]
    pool += [UOp.const(dtypes.float32, v) for v in (-0.0, float("nan"), float("inf"))]
    while len(pool) < count:
        kind = choose.randrange(8)
        a = choose.choice(pool)
        alike = [p for p in pool if p.dtype is a.dtype]
        b, d = choose.choice(alike), choose.choice(alike)
        if kind < 4:
            made = a.alu(choose.choice(_BINARY), b)
        elif kind == 4:
            made = a.cast(choose.choice(some).scalar.vec(a.dtype.count))
        elif kind == 5:
            made = UOp(Ops.WHERE, a.dtype, (a.ne(b), b, d))
        elif kind == 6:
            made = UOp(Ops.STACK, a.dtype.scalar.vec(3), (a, b, d))
        else:
            made = UOp(Ops.SINK, dtypes.void, tuple(choose.choices(pool, k=choose.randrange(7))))
        pool.append(made)
    return pool


def random_pattern(choose: random.Random, depth: int, names: list[str]) -> UPat:
    kind = choose.randrange(12) if depth else choose.randrange(3)
    name = choose.choice([None, choose.choice(names)])
    dtype = choose.choice([None, None, None, ints, floats, index, dtypes.bool, [floats, index]])

    def inner() -> UPat:
        return random_pattern(choose, depth - 1, names)

    if kind == 0:
        return UPat.var(name, dtype)
    if kind == 1:
        return UPat.cvar(name, dtype)
    if kind == 2:
        return UPat.const(choose.choice(_SPECIAL), None, name)
    if kind in (3, 4):
        pair = [inner(), inner()]
        src: Any = pair if choose.random() < 0.5 else tuple(pair)
        return UPat(choose.choice(_BINARY), None, src, name=name)
    if kind == 5:
        return UPat(choose.sample(_BINARY, 4), dtype, (inner(), inner()), name=name)
    if kind == 6:
        return UPat.any(inner(), inner())
    if kind == 7:
        several = choose.choice([Ops.STACK, Ops.SINK, None])
        return UPat(several, None, inner(), name=name)
    if kind == 8:
        several = choose.choice([Ops.STACK, Ops.SINK, Ops.WHERE, None])
        return UPat(several, None, (inner(),), name=name, allow_any_len=True)
    if kind == 9:
        return UPat(Ops.STACK, None, [inner(), inner(), inner()], name=name)
    if kind == 10:
        return UPat(None, dtype, (inner(), inner()), name=name).having(odd)
    operator: Callable[[UPat, UPat], UPat] = choose.choice(
        [
            lambda a, b: a + b,
            lambda a, b: a - 1,
            lambda a, b: ~a,
            lambda a, b: -a,
            lambda a, b: a <= b,
            lambda a, b: a.ne(b),
            lambda a, b: a.eq(0).where(a, b),
            lambda a, b: a.cast(),
        ]
    )
    return operator(inner(), inner())


def pattern_of(choose: random.Random, node: UOp, depth: int, names: list[str]) -> UPat:
    """A pattern that this node matches, but for names used twice."""
    name = choose.choice([None, None, choose.choice(names)])
    dtype = choose.choice([None, None, node.dtype])
    if depth == 0 or (node.src and choose.random() < 0.15):
        return UPat.var(name, dtype)
    if node.is_const:
        value = choose.choice([None, node.const_value])
        return UPat.cvar(name, dtype) if value is None else UPat.const(value, dtype, name)
    op: Any = choose.choice([node.op, node.op, {node.op, choose.choice(_BINARY)}])
    parts = [pattern_of(choose, s, depth - 1, names) for s in node.src]
    src: Any = tuple(parts)
    rest = len(parts) > 1 and choose.random() < 0.1
    if rest:
        src = src[:-1]
    elif len(parts) <= 4 and choose.random() < 0.4:
        choose.shuffle(parts)
        src = parts
    made = UPat(op, dtype, src, name=name, allow_any_len=rest)
    return UPat.any(random_pattern(choose, 2, names), made) if choose.random() < 0.1 else made


def odd(node: UOp) -> bool:
    return node.order % 2 == 1


def observed(number: int, seen: list[Any]) -> Callable[..., UOp | None]:
    """A rule's function that notes its captures and fires now and then."""

    def function(**captured: UOp) -> UOp | None:
        seen.append((number, tuple(captured.items())))
        mixed = sum(v.order for v in captured.values()) + number
        return next(iter(captured.values()), None) if mixed % 7 == 0 else None

    return function


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(24))
def test_compiled_and_interpreted_agree_on_random_graphs_and_patterns(seed: int) -> None:
    choose = random.Random(seed)
    nodes = random_nodes(choose, 120)
    seen: list[Any] = []
    rules: list[Any] = []
    while len(rules) < 25:
        if len(rules) % 3:
            pattern = pattern_of(choose, choose.choice(nodes), 3, list("abcdef"))
        else:
            pattern = random_pattern(choose, 3, ["a", "b", "c"])
        try:
            PatternMatcher([(pattern, observed(len(rules), seen))])
        except RewriteError:
            continue  # impossible, as it may be
        rules.append((pattern, observed(len(rules), seen)))
    matcher = PatternMatcher(rules)
    calls = 0
    for node in nodes:
        seen.clear()
        expected = matcher.interpret(node)
        wanted = list(dict.fromkeys(seen))
        calls += len(wanted)
        seen.clear()
        assert matcher.rewrite(node) is expected
        assert list(dict.fromkeys(seen)) == wanted
        seen.clear()
        # in one piece, as when its signature is met often
        text = matcher.table.generator.text(node.kind, [s.kind for s in node.src])
        assert (made_of(text)(node, None) if text.rules else None) is expected
        assert list(dict.fromkeys(seen)) == wanted
        seen.clear()
        # without the kinds of the sources, as when the table is full
        general = matcher.table[node.kind]
        assert (None if general is None else general(node, None)) is expected
        assert list(dict.fromkeys(seen)) == wanted
    assert calls > 10
