"""Rule systems that other libraries are measured with, as data for tests and benchmarks."""

from __future__ import annotations

from typing import Final

from opgraft_egraph.terms import Rewrite

AC: Final = (
    Rewrite("commute", "(+ ?a ?b)", "(+ ?b ?a)"),
    Rewrite("associate", "(+ ?a (+ ?b ?c))", "(+ (+ ?a ?b) ?c)"),
)

MATH: Final = tuple(
    Rewrite(name, left, right)
    for name, left, right in (
        ("commute-add", "(+ ?a ?b)", "(+ ?b ?a)"),
        ("commute-mul", "(* ?a ?b)", "(* ?b ?a)"),
        ("associate-add", "(+ ?a (+ ?b ?c))", "(+ (+ ?a ?b) ?c)"),
        ("associate-mul", "(* ?a (* ?b ?c))", "(* (* ?a ?b) ?c)"),
        ("subtract", "(- ?a ?b)", "(+ ?a (* -1 ?b))"),
        ("zero-add", "(+ ?a 0)", "?a"),
        ("zero-mul", "(* ?a 0)", "0"),
        ("one-mul", "(* ?a 1)", "?a"),
        ("cancel", "(- ?a ?a)", "0"),
        ("distribute", "(* ?a (+ ?b ?c))", "(+ (* ?a ?b) (* ?a ?c))"),
        ("factor", "(+ (* ?a ?b) (* ?a ?c))", "(* ?a (+ ?b ?c))"),
        ("multiply-powers", "(* (^ ?a ?b) (^ ?a ?c))", "(^ ?a (+ ?b ?c))"),
        ("power-one", "(^ ?x 1)", "?x"),
        ("power-two", "(^ ?x 2)", "(* ?x ?x)"),
        ("derive-add", "(D ?x (+ ?a ?b))", "(+ (D ?x ?a) (D ?x ?b))"),
        ("derive-mul", "(D ?x (* ?a ?b))", "(+ (* ?a (D ?x ?b)) (* ?b (D ?x ?a)))"),
        ("derive-sin", "(D ?x (sin ?x))", "(cos ?x)"),
        ("derive-cos", "(D ?x (cos ?x))", "(* -1 (sin ?x))"),
        ("integrate-one", "(I 1 ?x)", "?x"),
        ("integrate-cos", "(I (cos ?x) ?x)", "(sin ?x)"),
        ("integrate-sin", "(I (sin ?x) ?x)", "(* -1 (cos ?x))"),
        ("integrate-sum", "(I (+ ?f ?g) ?x)", "(+ (I ?f ?x) (I ?g ?x))"),
        ("integrate-difference", "(I (- ?f ?g) ?x)", "(- (I ?f ?x) (I ?g ?x))"),
        (
            "integrate-parts",
            "(I (* ?a ?b) ?x)",
            "(- (* ?a (I ?b ?x)) (I (* (D ?x ?a) (I ?b ?x)) ?x))",
        ),
    )
)

MATH_TERMS: Final = (
    "(I (ln x) x)",
    "(I (+ x (cos x)) x)",
    "(I (* (cos x) x) x)",
    "(D x (+ 1 (* 2 x)))",
    "(D x (- (^ x 3) (* 7 (^ x 2))))",
    "(+ (* y (+ x y)) (- (+ x 2) (+ x x)))",
    "(/ 1 (- (/ (+ 1 (sqrt five)) 2) (/ (- 1 (sqrt five)) 2)))",
)
