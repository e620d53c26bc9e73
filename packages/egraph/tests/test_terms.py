"""E-graphs of any terms: what rules with conditions find, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opgraft.api import errors
from opgraft_egraph.report import Schedule
from opgraft_egraph.terms import Rewrite, TermGraph, both_ways, parse_term, print_term


def distinct_variable(graph: TermGraph, match: Mapping[str, int]) -> bool:
    """?c is a number, or a name other than ?x."""
    if graph.equal(match["?c"], match["?x"]):
        return False
    if graph.fact(match["?c"]).number:
        return True
    return any(not kids for _, kids in graph.classes()[graph.engine.find(match["?c"])])


RULES = [
    Rewrite("associate-add", "(+ ?a (+ ?b ?c))", "(+ (+ ?a ?b) ?c)"),
    Rewrite("associate-mul", "(* ?a (* ?b ?c))", "(* (* ?a ?b) ?c)"),
    Rewrite("subtract", "(- ?a ?b)", "(+ ?a (* -1 ?b))"),
    Rewrite("zero-add", "(+ ?a 0)", "?a"),
    Rewrite("zero-mul", "(* ?a 0)", "0"),
    Rewrite("one-mul", "(* ?a 1)", "?a"),
    Rewrite("cancel-sub", "(- ?a ?a)", "0"),
    Rewrite("one-more", "(+ ?a ?a)", "(* 2 ?a)"),
    Rewrite("add-one", "(+ ?a (* ?a ?b))", "(* ?a (+ ?b 1))"),
    *both_ways("distribute", "(* ?a (+ ?b ?c))", "(+ (* ?a ?b) (* ?a ?c))"),
    Rewrite("cancel-div", "(/ ?a ?a)", "1", nonzero=("?a",)),
    Rewrite("multiply-powers", "(* (^ ?a ?b) (^ ?a ?c))", "(^ ?a (+ ?b ?c))"),
    Rewrite("power-one", "(^ ?x 1)", "?x"),
    Rewrite("power-two", "(^ ?x 2)", "(* ?x ?x)"),
    Rewrite("derive-variable", "(d ?x ?x)", "1"),
    Rewrite("derive-other", "(d ?x ?c)", "0", when=distinct_variable),
    Rewrite("derive-add", "(d ?x (+ ?a ?b))", "(+ (d ?x ?a) (d ?x ?b))"),
    Rewrite("derive-mul", "(d ?x (* ?a ?b))", "(+ (* ?a (d ?x ?b)) (* ?b (d ?x ?a)))"),
    Rewrite("derive-power", "(d ?x (^ ?x ?c))", "(* ?c (^ ?x (+ ?c -1)))", constant=("?c",)),
    Rewrite("derive-sin", "(d ?x (sin ?x))", "(cos ?x)"),
    Rewrite("integrate-cos", "(i (cos ?x) ?x)", "(sin ?x)"),
    Rewrite("integrate-sin", "(i (sin ?x) ?x)", "(* -1 (cos ?x))"),
    Rewrite(
        "integrate-parts",
        "(i (* ?a ?b) ?x)",
        "(- (* ?a (i ?b ?x)) (i (* (d ?x ?a) (i ?b ?x)) ?x))",
    ),
    Rewrite("minus-minus", "(- ?a (* -1 ?b))", "(+ ?a ?b)"),
]
BUDGET = Schedule(nodes=20_000, rounds=9, seconds=20.0, matches=400, ban_rounds=2)


@pytest.mark.parametrize(
    ("start", "goal"),
    [
        ("(+ x (+ x (+ x x)))", "(* 4 x)"),
        ("(+ 1 (- a (* (- 2 1) a)))", "1"),
        ("(* (+ x 3) (+ x 1))", "(+ (+ (* x x) (* 4 x)) 3)"),
        ("(d x (^ x 3))", "(* 3 (^ x 2))"),
        ("(i (* x (cos x)) x)", "(+ (* x (sin x)) (cos x))"),
        ("(/ 7 7)", "1"),
    ],
)
def test_what_is_found(start: str, goal: str) -> None:
    graph = TermGraph(RULES, numbers=True, commutative=["+", "*"])
    left, right = graph.add(start), graph.add(goal)
    for _ in range(BUDGET.rounds):
        report = graph.run(schedule=Schedule(20_000, 1, 20.0, 400, 2))
        if graph.equal(left, right) or report.stop != "rounds":
            break
    assert graph.equal(left, right)


def test_seven_terms_have_127_sums() -> None:
    graph = TermGraph([RULES[0]], commutative=["+"])
    graph.add("(+ a (+ b (+ c (+ d (+ e (+ f g))))))")
    assert graph.run().classes == 127


@pytest.mark.parametrize("start", ["(/ x x)", "(/ 0 0)", "(/ (- 4 4) (- 4 4))"])
def test_a_quotient_is_one_only_where_the_divisor_is_not_zero(start: str) -> None:
    rules = [r for r in RULES if r.name in ("cancel-div", "subtract", "cancel-sub")]
    graph = TermGraph(rules, numbers=True, commutative=["+", "*"])
    root, one = graph.add(start), graph.add("1")
    graph.run()
    assert not graph.equal(root, one)


def test_numbers_are_worked_out() -> None:
    graph = TermGraph([], numbers=True)
    root = graph.add("(+ 2 (* 3 4))")
    graph.run()
    assert graph.extract(root) == "14"
    assert graph.fact(root).value == 14


def test_two_numbers_in_one_class_are_an_error_that_names_the_rule() -> None:
    graph = TermGraph([Rewrite("wrong", "(f ?x)", "(+ ?x 1)")], numbers=True)
    graph.union(graph.add("(f 1)"), graph.add("1"))
    with pytest.raises(errors.RewriteError, match=r"rule wrong .* two different numbers"):
        graph.run()


def test_a_right_side_uses_no_unknown_variable() -> None:
    with pytest.raises(errors.RewriteError, match=r"rule bad uses \?y"):
        Rewrite("bad", "(f ?x)", "(g ?y)")


def test_rules_have_operators_of_at_most_four_arguments_terms_of_any() -> None:
    with pytest.raises(errors.RewriteError, match="at most 4"):
        TermGraph([Rewrite("wide", "(f ?a)", "(g ?a ?a ?a ?a ?a)")])
    graph = TermGraph([Rewrite("same", "(f ?a)", "?a")])
    wide = graph.add("(g (f a) b c d e (f f))")
    graph.run()
    assert graph.equal(wide, graph.add("(g a b c d e f)"))


@pytest.mark.parametrize("text", ["x", "(f x)", "(f (g x y) (h))", "(+ -1 (* 2 ?a))"])
def test_terms_are_printed_as_they_are_read(text: str) -> None:
    assert print_term(parse_term(text)) == text


@pytest.mark.parametrize("text", ["", "(f", "f)", "(f) (g)", "((f) x)", "()"])
def test_what_is_no_term(text: str) -> None:
    with pytest.raises(errors.ParseError):
        parse_term(text)


def test_the_price_of_an_operator_may_be_a_function() -> None:
    graph = TermGraph(both_ways("twice", "(+ ?a ?a)", "(* 2 ?a)"))
    root = graph.add("(+ x x)")
    graph.run()
    assert graph.extract(root, lambda op: 5.0 if op == "+" else 1.0) == "(* 2 x)"
    assert graph.extract(root, lambda op: 5.0 if op == "*" else 1.0) == "(+ x x)"


def test_an_explanation_names_the_rules_in_order() -> None:
    rules = [Rewrite("one", "(f ?x)", "(g ?x)"), Rewrite("two", "(h ?x)", "(g ?x)")]
    graph = TermGraph(rules, explain=True)
    graph.add("(p (f a))")
    graph.add("(p (h a))")
    graph.run()
    assert graph.explain("(p (f a))", "(p (h a))") == ["one", "<-two"]
