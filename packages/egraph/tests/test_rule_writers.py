"""The functions for rule writers, on small graphs whose answers are plain."""

from __future__ import annotations

import pytest

from opgraft.api import (
    GroupOp,
    Ops,
    PatternMatcher,
    UOp,
    UPat,
    dtypes,
    graph_rewrite,
    symbolic,
    symbolic_simple,
)
from opgraft_egraph import (
    EGraph,
    egraph_extract,
    egraph_rewrite,
    egraph_saturate,
    node_cost,
    rewrite_all,
)

X, Y = UPat.var("x"), UPat.var("y")
A, B, C = (UOp.variable(name, 0, 10) for name in "abc")


def fold(a: UOp) -> UOp | None:
    left, right = (s.const_value for s in a.src)
    if a.op is Ops.ADD:
        return a.const_like(left + right)
    return a.const_like(left * right) if a.op is Ops.MUL else None


ADD_ZERO = (X + 0, lambda x: x, "add_zero")
TIMES_ONE = (X * 1, lambda x: x, "times_one")
TIMES_ZERO = (X * 0, lambda x: x.const_like(0), "times_zero")
FOLD = (UPat(GroupOp.BINARY, src=(UPat.cvar(), UPat.cvar()), name="a"), fold, "fold")
DOUBLE = (X + X, lambda x: x * 2, "double")
SHIFT = (X + X, lambda x: UOp(Ops.SHL, x.dtype, (x, x.const_like(1))), "shift")
TWICE = (X * UPat.cvar("c"), lambda x, c: x + x if c.const_value == 2 else None, "twice")
TWICE_SHIFTED = (
    X * UPat.cvar("c"),
    lambda x, c: UOp(Ops.SHL, x.dtype, (x, x.const_like(1))) if c.const_value == 2 else None,
    "twice_shifted",
)
COMBINE = (
    X * UPat.cvar("c") + X * UPat.cvar("d"),
    lambda x, c, d: x * (c + d),
    "combine",
)
NEST = ((X * UPat.cvar("c")) * UPat.cvar("d"), lambda x, c, d: x * (c * d), "nest")

ZEROS = PatternMatcher([TIMES_ZERO, ADD_ZERO])
IDENTITIES = PatternMatcher([ADD_ZERO, TIMES_ONE])


def total(n: UOp) -> int:
    return sum(node_cost(m) for m in n.toposort())


def class_of(classes: dict[UOp, dict[UOp, None]], n: UOp) -> UOp:
    (found,) = [representative for representative, members in classes.items() if n in members]
    return found


class TestAllRewritesOfANode:
    def test_a_rule_that_matches_gives_its_result(self) -> None:
        assert rewrite_all(PatternMatcher([ADD_ZERO]), A + 0) == [A]

    def test_nothing_matches(self) -> None:
        assert rewrite_all(PatternMatcher([ADD_ZERO]), A + B) == []

    def test_only_rules_for_this_node_fire(self) -> None:
        assert rewrite_all(IDENTITIES, A + 0) == [A]

    def test_every_rule_fires_not_just_the_first(self) -> None:
        assert rewrite_all(PatternMatcher([DOUBLE, SHIFT]), A + A) == [
            A * 2,
            UOp(Ops.SHL, A.dtype, (A, A.const_like(1))),
        ]

    def test_equal_results_come_once(self) -> None:
        again = (X + 0, lambda x: x, "again")
        assert rewrite_all(PatternMatcher([ADD_ZERO, again]), A + 0) == [A]

    def test_constants_are_folded_by_a_rule_over_an_op_set(self) -> None:
        three, four = UOp.const(dtypes.int32, 3), UOp.const(dtypes.int32, 4)
        assert rewrite_all(PatternMatcher([FOLD]), three + four) == [UOp.const(dtypes.int32, 7)]

    def test_the_context_reaches_the_rule(self) -> None:
        rules = PatternMatcher([(X + 0, lambda ctx, x: ctx[x], "look up")])
        assert rewrite_all(rules, A + 0, {A: B}) == [B]


class TestGraph:
    def test_every_node_of_the_root_is_a_class_of_its_own(self) -> None:
        root = A * 2 + 1
        graph = EGraph(root)
        assert len(graph.classes) == len(root.toposort())
        assert root in graph

    def test_a_node_is_added_once(self) -> None:
        graph = EGraph(A)
        assert graph.add(B)
        assert B in graph
        assert not graph.add(B)

    def test_merging_makes_one_class_of_two(self) -> None:
        graph = EGraph(A + 0)
        assert graph.merge(A + 0, A)
        assert graph.find(A + 0) is graph.find(A)

    def test_merging_what_is_one_already_says_so(self) -> None:
        graph = EGraph(A)
        assert not graph.merge(A, A)
        assert graph.merge(A, B)
        assert not graph.merge(B, A)

    def test_merging_is_transitive(self) -> None:
        graph = EGraph((A, B, C))
        graph.merge(A, B)
        graph.merge(B, C)
        assert graph.find(A) is graph.find(C)

    def test_parents_of_merged_nodes_are_merged(self) -> None:
        graph = EGraph((A * C + 1, B * C + 1))
        assert not graph.equal(A * C + 1, B * C + 1)
        graph.merge(A, B)
        assert graph.equal(A * C + 1, B * C + 1)


class TestSaturation:
    def test_identity_joins_both_sides(self) -> None:
        classes = egraph_saturate(A + 0, IDENTITIES)
        assert class_of(classes, A) is class_of(classes, A + 0)

    def test_folded_constant_is_a_member(self) -> None:
        sum_ = UOp.const(dtypes.int32, 2) + UOp.const(dtypes.int32, 3)
        classes = egraph_saturate(sum_, symbolic_simple)
        assert UOp.const(dtypes.int32, 5) in classes[class_of(classes, sum_)]

    def test_without_a_match_each_class_keeps_its_one_member(self) -> None:
        classes = egraph_saturate(A + B, PatternMatcher([ADD_ZERO]))
        assert [len(members) for members in classes.values()] == [1, 1, 1]

    def test_one_round_is_enough_for_one_step(self) -> None:
        classes = egraph_saturate(A + 0, PatternMatcher([ADD_ZERO]), max_iters=1)
        assert class_of(classes, A) is class_of(classes, A + 0)

    def test_rounds_are_limited(self) -> None:
        deep = PatternMatcher([(X + 1, lambda x: (x + 2) + -1, "onward")])
        few = egraph_saturate(A + 1, PatternMatcher([*deep.rules, ADD_ZERO]), max_iters=1)
        assert sum(map(len, few.values())) <= 8

    def test_equality_below_makes_a_rule_match_above(self) -> None:
        root = A * 0 + A
        classes = egraph_saturate(root, ZEROS)
        assert class_of(classes, root) is class_of(classes, A)

    def test_equality_travels_up_a_chain(self) -> None:
        root = (A * 0 + 0) + B
        classes = egraph_saturate(root, ZEROS)
        assert class_of(classes, root) is class_of(classes, B)


class TestExtraction:
    @pytest.mark.parametrize(
        ("root", "rules", "expected"),
        [
            (A + 0, PatternMatcher([ADD_ZERO]), A),
            (A * 1, PatternMatcher([TIMES_ONE]), A),
            ((A + 0) * 1, IDENTITIES, A),
            (A + B, PatternMatcher([ADD_ZERO]), A + B),
            ((A + 0) * 1, symbolic_simple, A),
            (A * 0 + A, ZEROS, A),
            ((A * 0 + 0) + B, ZEROS, B),
            ((A + B) * 0, PatternMatcher([TIMES_ZERO]), UOp.const(dtypes.index, 0)),
            (A * 0 + B * 0, PatternMatcher([TIMES_ZERO, FOLD]), UOp.const(dtypes.index, 0)),
            (A * 0 + B * 1, symbolic_simple, B),
            (
                (A * 0 + B * 0) + C,
                PatternMatcher([TIMES_ZERO, ADD_ZERO, FOLD]),
                C,
            ),
            (A * 3 + A * 4, symbolic, A * 7),
        ],
    )
    def test_the_cheapest_form(self, root: UOp, rules: PatternMatcher, expected: UOp) -> None:
        assert egraph_extract(root, rules) is expected

    def test_constants_fold(self) -> None:
        root = UOp.const(dtypes.int32, 2) + UOp.const(dtypes.int32, 3)
        assert egraph_extract(root, symbolic_simple) is UOp.const(dtypes.int32, 5)

    def test_a_dearer_equal_is_not_taken(self) -> None:
        assert egraph_extract(A + A, PatternMatcher([DOUBLE])) is A + A


class TestPrices:
    def test_constants_are_free(self) -> None:
        assert node_cost(UOp.const(dtypes.int32, 0)) == 0

    def test_an_addition_costs_one(self) -> None:
        assert node_cost(A + B) == 1

    def test_a_division_costs_five(self) -> None:
        assert node_cost(A // UOp.variable("d", 1, 10)) == 5

    def test_a_product_costs_more_than_a_sum(self) -> None:
        assert node_cost(A * B) > node_cost(A + B)

    def test_a_constant_is_better_written_last(self) -> None:
        assert node_cost(1 + A) > node_cost(A + 1)


class TestAgainstGreedy:
    @pytest.mark.parametrize(
        "root",
        [A + 0, (A + 0) * 1, UOp.const(dtypes.int32, 10) + UOp.const(dtypes.int32, 20)],
    )
    def test_the_same_where_order_does_not_matter(self, root: UOp) -> None:
        assert egraph_extract(root, symbolic_simple) is graph_rewrite(root, symbolic_simple)

    @pytest.mark.parametrize(
        ("rules", "root", "expected"),
        [
            # doubling hides the product that the other rule joins
            ([TWICE, COMBINE, FOLD], A * 2 + A * 3, A * 5),
            # so does shifting
            ([TWICE_SHIFTED, COMBINE, FOLD], A * 2 + A * 3, A * 5),
            # three terms
            ([TWICE, COMBINE, FOLD], A * 2 + A * 3 + A * 4, A * 9),
            # a factor within a factor
            ([TWICE, NEST, FOLD], (A * 2) * 3, A * 6),
        ],
    )
    def test_cheaper_where_one_rule_hides_what_another_needs(
        self, rules: list[tuple[UPat, object, str]], root: UOp, expected: UOp
    ) -> None:
        matcher = PatternMatcher(rules)  # type: ignore[arg-type]
        made = egraph_extract(root, matcher)
        assert made is expected
        assert total(made) < total(graph_rewrite(root, matcher))

    def test_both_sides_hidden(self) -> None:
        rules = PatternMatcher([TWICE, COMBINE, FOLD])
        root = A * 2 + A * 2
        made = egraph_extract(root, rules)
        assert made is A * 4
        assert total(made) <= total(graph_rewrite(root, rules))


class TestCircles:
    @pytest.mark.parametrize("root", [A + 0, ((A + 0) + 0) + 0])
    def test_a_class_that_contains_itself(self, root: UOp) -> None:
        assert egraph_extract(root, PatternMatcher([ADD_ZERO])) is A

    def test_two_classes_that_contain_each_other(self) -> None:
        graph = EGraph((A ^ 1, B ^ 1))
        graph.merge(A, B ^ 1)
        graph.merge(B, A ^ 1)
        made = graph.extract(A ^ 1, B ^ 1)
        assert made == (B, A)

    def test_rules_that_undo_each_other(self) -> None:
        assert egraph_extract(A + A, PatternMatcher([DOUBLE, TWICE])) is A + A


class TestRewriting:
    def test_lowering_follows_extraction_and_never_enters_the_graph(self) -> None:
        seen: list[UOp] = []

        def lower(x: UOp) -> UOp:
            seen.append(x)
            return UOp(Ops.SHL, x.dtype, (x.src[0], x.const_like(1)))

        lowering = PatternMatcher([(UPat(Ops.MUL, src=(UPat(), UPat.const(2)), name="x"), lower)])
        equalities = PatternMatcher([ADD_ZERO, TIMES_ONE])
        made = egraph_rewrite((A + 0) * 2, equalities, lowering)
        assert made is UOp(Ops.SHL, A.dtype, (A, A.const_like(1)))
        assert seen == [A * 2]
