"""`opgraft explain --egraph`: each expression that the optimizer changed has a chain that holds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from egraph_cases.expressions import expression
from egraph_cases.index_math import loading_kernel, quotient_and_rest, rolled_picture
from opgraft import settings
from opgraft.api import CostModel, EqualitySet, Target, UOp, UPat, dtypes, graph_rewrite, sym
from opgraft.cli import main
from opgraft.rules.reasons import Explainer, reasons
from opgraft.rules.simplify import optimize
from opgraft_egraph import EGraphOptimizer
from opgraft_egraph.reasons import changes

L, J, K = (UOp.variable(n, 0, hi) for n, hi in (("i", 7), ("j", 3), ("k", 15)))
EGRAPH = EGraphOptimizer()


def test_the_optimizer_gives_reasons_though_the_protocol_asks_for_none() -> None:
    assert isinstance(EGRAPH, Explainer)


def test_what_it_finds_beyond_greedy_rewriting_is_explained_and_replayed() -> None:
    rng, explained = random.Random(2), 0
    for _ in range(80):
        root = expression(rng, dtypes.index, 5)
        made = optimize(root, optimizer=EGRAPH).sink
        if made is graph_rewrite(root, sym):
            continue
        explained += 1
        for reason in reasons(root, made, optimizer=EGRAPH) or ():
            assert reason.check() == []
            assert reason.steps
            assert reason.steps[-1].after is reason.end
    assert explained >= 4


@pytest.mark.parametrize("roots", [quotient_and_rest, rolled_picture])
def test_each_changed_expression_of_a_kernel_has_a_chain(roots) -> None:  # type: ignore[no-untyped-def]
    sink = loading_kernel(roots(), 2)[0]
    here, cost, found = sink, CostModel(target=Target("any")), 0
    for stage in ("index", "scalar"):
        made = optimize(here, cost=cost, stage=stage, optimizer=EGRAPH).sink  # type: ignore[arg-type]
        for reason in reasons(here, made, stage=stage, optimizer=EGRAPH) or ():  # type: ignore[arg-type]
            assert reason.check() == []
            # an expression of the kernel, not the kernel
            assert reason.start in here.toposort()
            assert len(reason.start.toposort()) < len(here.toposort())
            found += 1
        here = made
    assert found


def test_only_what_changed_is_explained_and_once() -> None:
    buffer = UOp.sink(L * 4 + J, (L * 4 + J) // 4, K)
    after = UOp.sink(L * 4 + J, L, K)
    assert list(changes(buffer, after)) == [((L * 4 + J) // 4, L)]
    both = UOp.sink((L * 4 + J) // 4, (L * 4 + J) // 4)
    assert len(list(changes(both, UOp.sink(L, L)))) == 1


def test_a_chain_with_a_step_that_does_not_hold_is_found_out() -> None:
    (reason,) = reasons((L * 4 + J) // 4 + K, K + L, optimizer=EGRAPH) or ()
    assert reason.check() == []
    wrong = replace(reason, end=K + J)  # type: ignore[type-var]
    assert wrong.check() == ["the last step does not end at the second node"]
    step = replace(reason.steps[0], after=reason.end)  # type: ignore[type-var]
    assert replace(reason, steps=(step, *reason.steps[1:])).check()  # type: ignore[type-var]


def test_what_the_rules_do_not_show_has_no_chain() -> None:
    (reason,) = reasons(L + 1, J + 1, optimizer=EGRAPH) or ()
    assert reason.steps == ()
    assert reason.check() == ["the last step does not end at the second node"]


def test_conditions_stand_beside_the_rule() -> None:
    x, c = UPat.var("x"), UPat.cvar("c")
    small = (x % c, lambda x, c: x if x.vmin >= 0 and x.vmax < c.const_value else None, "small")
    (reason,) = EGRAPH.explain(L % 9, L, EqualitySet([small]), stage="index")
    assert reason.check() == []
    assert list(map(str, reason.steps)) == ["small where x in [0, 7], c is constant"]


def test_the_command_prints_each_chain_and_that_it_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "(i*4 + j)//4*4 + (i*4 + j)%4 where i in [0, 7], j in [0, 3]"
    with settings.using(EGRAPH=None, OPTIMIZER="greedy"):
        assert main(["explain", "--egraph", "--no-source", text]) == 0
    shown = capsys.readouterr().out
    assert "by egraph" in shown
    assert "why (i*4 + j)//4*4 + (i*4 + j)%4 is j + i*4" in shown
    assert "= i*4 + (i*4 + j)%4  by divide_by_constant" in shown
    assert "replayed: each step holds" in shown
    with settings.using(EGRAPH=None, OPTIMIZER="greedy"):
        assert main(["explain", "--no-source", text]) == 0
    assert "why" not in capsys.readouterr().out
