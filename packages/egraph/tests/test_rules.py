"""Rules from Python: what runs inside the engine, what is called back, and that both agree."""

from __future__ import annotations

import random

import pytest

from egraph_cases.expressions import LEAVES, expression
from opgraft.api import EqualitySet, GroupOp, Ops, PatternMatcher, UOp, UPat, dtypes, errors, sym
from opgraft_egraph import EGraph, Schedule, egraph_extract, egraph_saturate
from opgraft_egraph.ruleset import RuleSet, ruleset_of

X, Y, Z = UPat.var("x"), UPat.var("y"), UPat.var("z")
C, D = UPat.cvar("c"), UPat.cvar("d")
A, B = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)


def equal(a: UOp, b: UOp, *rules: tuple[UPat, object] | tuple[UPat, object, str]) -> bool:
    graph = EGraph((a, b), EqualitySet(rules))  # type: ignore[arg-type]
    graph.run(Schedule(seconds=20.0))
    return graph.equal(a, b)


class TestPatterns:
    def test_a_class_matches_by_any_of_its_members(self) -> None:
        root = (A + 0) * 2
        classes = egraph_saturate(
            root,
            EqualitySet([(X + 0, lambda x: x, "zero"), (UPat(Ops.VAR, name="x") * 2, lambda x: x)]),
        )
        assert any(root in members and A in members for members in classes.values())

    def test_commutative_operands_match_in_both_orders(self) -> None:
        rule = (X * 2 + Y, lambda x, y: y)
        assert equal(A * 2 + B, B, rule)
        assert equal(B + A * 2, B, rule)

    def test_sources_in_order_of_what_does_not_commute(self) -> None:
        rule = (UPat(Ops.IDIV, src=(X, UPat.const(2))), lambda x: x)
        assert equal(A // 2, A, rule)
        assert not equal(UOp.const(dtypes.index, 2) // A, A, rule)

    def test_sources_in_any_order(self) -> None:
        rule = (UPat(Ops.IDIV, src=[X, UPat.const(2)]), lambda x: x)
        assert equal(A // 2, A, rule)
        assert equal(UOp.const(dtypes.index, 2) // A, A, rule)

    def test_a_node_matched_the_other_way_round_is_shown_as_it_is(self) -> None:
        seen: list[UOp] = []

        def note(x: UOp) -> None:
            if x.op is Ops.CMPLT:  # which only a node can answer
                seen.append(x)

        pattern = UPat(Ops.CMPLT, src=[UPat(Ops.VAR), UPat.cvar()], name="x")
        for root in (A < 3, UOp.const(dtypes.index, 3) < A):
            EGraph(root, EqualitySet([(pattern, note)])).run()
            assert seen.pop() is root
            assert not seen

    def test_three_sources_in_any_order(self) -> None:
        condition = UOp.variable("t", False, True, dtypes.bool)
        pattern = UPat(Ops.WHERE, src=[UPat.const(7), X, UPat(Ops.VAR, dtypes.bool)])
        assert equal(condition.where(A, 7), A, (pattern, lambda x: x))
        assert equal(condition.where(UOp.const(A.dtype, 7), A), A, (pattern, lambda x: x))

    def test_a_capture_that_comes_twice_is_one_class(self) -> None:
        rule = (X + X, lambda x: x, "same")
        assert equal(A + A, A, rule)
        assert not equal(A + B, A, rule)
        assert equal(A * 1 + A, A, rule, (X * 1, lambda x: x, "one"))

    def test_alternatives(self) -> None:
        rule = (UPat.any(X + 0, X * 1), lambda x: x)
        assert equal(A + 0, A, rule)
        assert equal(A * 1, A, rule)
        assert not equal(A * 2, A, rule)

    def test_sets_of_operations_and_dtypes(self) -> None:
        rule = (UPat({Ops.ADD, Ops.MUL}, dtypes.int32, src=(X, Y)), lambda x, y: x)
        p, q = (UOp.variable(n, 0, 9, dtypes.int32) for n in "pq")
        assert equal(p + q, p, rule)
        assert equal(p * q, p, rule)
        assert not equal(p.maximum(q), p, rule)
        assert not equal(A + B, A, rule)

    def test_every_source_the_same_pattern(self) -> None:
        rule = (
            UPat(GroupOp.BINARY, src=UPat.cvar(), name="x"),
            lambda x: x.const_like(3) if x.op is Ops.MAX else None,
        )
        two, three = UOp.const(dtypes.index, 2), UOp.const(dtypes.index, 3)
        assert equal(two.maximum(three), three, rule)
        assert not equal(A.maximum(three), three, rule)

    def test_any_further_sources(self) -> None:
        buffer = UOp(Ops.PARAM, dtypes.int32, (), (0, 16))
        gate = UOp.variable("g", False, True, dtypes.bool)
        pattern = UPat(Ops.LOAD, src=(UPat(), UPat.var("i")), allow_any_len=True, name="x")
        seen: list[UOp] = []

        def note(x: UOp, i: UOp) -> None:
            if x.op is Ops.LOAD and x.src[1] is i:  # which only a node can answer
                seen.append(x)

        for root in (buffer.load(A), buffer.load(A, gate, 5)):
            graph = EGraph(root, EqualitySet([(pattern, note)]))
            graph.run()
            assert seen.pop() is root
            assert not seen

    def test_an_argument(self) -> None:
        r = UOp.range(4, 0)
        value = (r + A).cast(dtypes.int32)
        rule = (UPat(Ops.REDUCE, arg=Ops.MAX, src=(X,), allow_any_len=True), lambda x: x)
        assert equal(value.reduce(Ops.MAX, r), value, rule)
        assert not equal(value.reduce(Ops.ADD, r), value, rule)

    def test_a_predicate_on_the_node(self) -> None:
        pattern = UPat(Ops.VAR, name="v").having(lambda n: n.arg[0] == "a") + 0
        rule = (pattern, lambda v: v)
        assert equal(A + 0, A, rule)
        assert not equal(B + 0, B, rule)

    @pytest.mark.parametrize(
        ("number", "constant", "matches"),
        [
            (0, UOp.const(dtypes.float32, 0.0), True),
            (0, UOp.const(dtypes.float32, -0.0), False),
            (0.0, UOp.const(dtypes.float32, 0.0), True),
            (0.0, UOp.const(dtypes.int32, 0), False),
            (-0.0, UOp.const(dtypes.float32, -0.0), True),
            (1, UOp.const(dtypes.bool, True), True),
            (True, UOp.const(dtypes.bool, True), True),
            (True, UOp.const(dtypes.int32, 1), False),
            (-1, UOp.const(dtypes.uint8, 255), True),
            (2, UOp.const(dtypes.float16.vec(4), 2.0), True),
            (float("nan"), UOp.const(dtypes.float32, float("nan")), True),
        ],
    )
    def test_numbers_match_by_exact_value(
        self, number: float, constant: UOp, matches: bool
    ) -> None:
        whole = constant.dtype.min, constant.dtype.max
        x = UOp(Ops.VAR, constant.dtype, (), ("x", *whole))
        root = x.alu(Ops.MAX, constant)
        pattern = UPat(Ops.MAX, src=[UPat.var("x"), UPat.const(number)])
        assert bool(list(pattern.matches(root))) == matches
        assert equal(root, x, (pattern, lambda x: x)) == matches


class TestFunctions:
    def native(self, *rules: tuple[UPat, object]) -> list[bool]:
        return RuleSet(EqualitySet(rules).rules).native  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "rule",
        [
            (X + Y, lambda x, y: y + x),
            (X * 0, lambda x: x.const_like(0)),
            (X * C, lambda x, c: x + x if c.const_value == 2 else None),
            (X // C, lambda x, c: x.const_like(x.vmin // c.const_value) if x.vmin > 0 else None),
            (X + Y, lambda x, y: x.alu(Ops.MAX, y).where(x, y) if x.dtype.is_bool else None),
            (UPat.var("x", dtypes.bool), lambda x: (x ^ True) ^ True),
            (X < C, lambda x, c: x < c + 1),
        ],
    )
    def test_what_only_builds_and_compares_runs_inside(self, rule: tuple[UPat, object]) -> None:
        assert all(self.native(rule)) or rule[0].ops is None

    @pytest.mark.parametrize(
        "rule",
        [
            (X + Y, lambda x, y: x if x.op is Ops.MUL else None),
            (X + Y, lambda x, y: y if x is y else None),
            (UPat(Ops.ADD, name="x"), lambda x: x.src[0] * 2),
            (X + Y, lambda x, y: x if len(x.toposort()) > 3 else None),
            (X + Y, lambda x, y: {x: y}.get(y)),
        ],
    )
    def test_what_looks_at_nodes_is_called_back(self, rule: tuple[UPat, object]) -> None:
        assert not any(self.native(rule))

    def test_more_than_half_of_the_built_in_rules_run_inside(self) -> None:
        native = ruleset_of(sym).native
        assert sum(native) > len(native) // 2

    def test_a_rule_inside_the_engine_is_called_no_more_once_it_is_known(self) -> None:
        calls: list[object] = []

        def turn(x: UOp, y: UOp) -> UOp:
            calls.append(x)
            return y + x

        rules = EqualitySet([(X * Y, lambda x, y: turn(x, y), "turn")])
        EGraph(A * B, rules).run()
        known = len(calls)
        report = EGraph((A * B) * (A * 3), rules).run()
        assert len(calls) == known
        assert report.rules["turn"].matches > 2
        assert report.rules["turn"].calls == 0

    def test_known_or_not_a_rule_set_makes_the_same_graph(self) -> None:
        rng = random.Random(11)
        for dtype in LEAVES:
            root = expression(rng, dtype, 4)
            rules = RuleSet(sym.rules)
            found = []
            for _ in range(3):
                graph = EGraph.__new__(EGraph)
                graph.__init__(root, sym)  # type: ignore[misc]
                graph.run(Schedule(nodes=400, rounds=2, seconds=0.0, matches=60))
                found.append((graph.extract(), graph.classes))
            assert found[0] == found[1] == found[2]
            assert rules.rules == sym.rules

    def test_guards_are_asked_again_when_more_is_known(self) -> None:
        n = UOp.variable("n", 0, 100)
        rules = [
            (X % C, lambda x, c: x if x.vmin >= 0 and x.vmax < c.const_value else None, "small"),
            (UPat(Ops.VAR, name="n") * 1, lambda n: n.minimum(n.const_like(9)), "bound"),
        ]
        assert not equal((n * 1) % 16, n * 1, rules[0])
        assert equal((n * 1) % 16, n * 1, *rules)

    def test_a_function_sees_a_cheaper_term_when_one_is_found(self) -> None:
        rules = [
            (UPat(Ops.MOD, src=(X, C)), lambda x, c: x if x.op is Ops.VAR else None, "variable"),
            (X + 0, lambda x: x, "zero"),
        ]
        assert equal((A + 0) % 16, A, *rules)

    def test_numbers_computed_of_constants_wrap_as_their_dtype_does(self) -> None:
        p = UOp.variable("p", -128, 127, dtypes.int8)
        rule = (X + C, lambda x, c: x * x.const_like(c.const_value * 2))
        root = p + UOp.const(dtypes.int8, 100)
        assert equal(root, p * UOp.const(dtypes.int8, -56), rule)

    def test_numbers_too_large_for_the_engine_are_left_to_the_function(self) -> None:
        rule = (X * C, lambda x, c: x + x.const_like(c.const_value * (1 << 40)), "large")
        n = UOp.variable("n", 0, 1 << 70)
        root = n * (1 << 50)
        assert equal(root, n + (1 << 90), rule)

    def test_constants_of_any_size_fold_by_the_rules(self) -> None:
        big = UOp.const(dtypes.index, 1 << 70)
        assert egraph_extract(big + big, sym) is UOp.const(dtypes.index, 1 << 71)

    def test_loops_stay_named_in_what_closes_them(self) -> None:
        r = UOp.range(1, 0)
        buffer = UOp(Ops.PARAM, dtypes.int32, (), (0, 16))
        rules = EqualitySet([(X + 0, lambda x: x, "zero")])
        store = buffer.store(r + 0, UOp.const(dtypes.int32, 7)).end(r)
        graph = EGraph(store, rules)
        graph.merge(r, UOp.const(dtypes.index, 0))
        graph.run()
        (made,) = graph.extract()
        assert made.src[1:] == (r,)
        assert made.src[0].src[1] is UOp.const(dtypes.index, 0)


class TestErrors:
    def test_a_function_that_raises_on_nodes(self) -> None:
        def broken(x: UOp) -> UOp:
            raise ZeroDivisionError("of all things")

        with pytest.raises(errors.RewriteError, match=r"broken \(test_rules.py:\d+\).*all things"):
            egraph_extract(A + 0, EqualitySet([(X + 0, broken)]))

    def test_a_function_that_returns_no_node(self) -> None:
        rules = PatternMatcher([(X + 0, lambda x: 5, "five")])  # type: ignore[list-item, return-value]
        with pytest.raises(errors.RewriteError, match=r"rule five .*UOp or None"):
            egraph_extract(A + 0, rules)

    def test_the_graph_is_unharmed_by_an_error_before(self) -> None:
        rules = EqualitySet([(X * 0, lambda x: x.const_like(1), "wrong")])
        for _ in range(2):
            with pytest.raises(errors.RewriteError, match="wrong"):
                egraph_extract(A * 0, rules)
        assert egraph_extract(A * 1, rules) is A * 1
