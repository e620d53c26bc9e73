"""The two engines, written apart, say the same: counts, classes, facts, extraction."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable

import pytest

from egraph_cases.expressions import expression, same
from opgraft.api import DType, EqualitySet, UOp, UPat, dtypes, sym, symbolic_simple
from opgraft_egraph import codes
from opgraft_egraph.engine import EngineMaker, default_engine
from opgraft_egraph.graph import EGraph
from opgraft_egraph.reference import ReferenceEngine
from opgraft_egraph.report import Schedule
from opgraft_egraph.terms import Rewrite, TermGraph

native = pytest.importorskip(
    "opgraft_egraph.native", reason="the C engine is not built here; there is nothing to compare"
)
ENGINES: tuple[EngineMaker, ...] = (native.NativeEngine, ReferenceEngine)

X, Y, Z = UPat.var("x", dtypes.index), UPat.var("y"), UPat.var("z")
C, D = UPat.cvar("c"), UPat.cvar("d")
BOTH_WAYS = EqualitySet(
    [
        (X + (Y + Z), lambda x, y, z: (x + y) + z, "associate"),
        (X * (Y + Z), lambda x, y, z: x * y + x * z, "distribute"),
        (X * Y + X * Z, lambda x, y, z: x * (y + z), "factor"),
        (X + 0, lambda x: x, "add_zero"),
        (X * 1, lambda x: x, "times_one"),
        (X * 0, lambda x: x.const_like(0), "times_zero"),
        (X + X * C, lambda x, c: x * (c.const_value + 1), "count"),
        ((X // C) // D, lambda x, c, d: x // (c * d) if c.const_value > 0 else None, "nest"),
        (X // C, lambda x, c: x.const_like(0) if x.vmin >= 0 and x.vmax < c.const_value else None),
        (X % C, lambda x, c: x if x.vmin >= 0 and x.vmax < c.const_value else None, "small"),
    ]
)


def partition(graph: EGraph, nodes: Iterable[UOp]) -> list[list[int]]:
    """Which of these nodes are equal, as lists of places."""
    groups: dict[int, list[int]] = {}
    for place, n in enumerate(nodes):
        groups.setdefault(graph.engine.find(graph.id_of(n)), []).append(place)
    return sorted(groups.values())


def roots(dtype: DType, count: int, depth: int) -> list[UOp]:
    rng = random.Random(f"{dtype}-{depth}")
    return [expression(rng, dtype, depth) for _ in range(count)]


@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int8, dtypes.bool, dtypes.float32], ids=str)
@pytest.mark.parametrize(("rules", "rounds"), [(BOTH_WAYS, 3), (symbolic_simple, 0)])
def test_the_same_counts_classes_and_terms(dtype: DType, rules: EqualitySet, rounds: int) -> None:
    for root in roots(dtype, 12, 4):
        seen = []
        for engine in ENGINES:
            graph = EGraph(root, rules, engine=engine)
            report = graph.run(Schedule(0, rounds, 0.0, 0, 0))
            tree = graph.engine.extract(None, [graph.id_of(root)], False)[1]
            # greedy on shared terms depends on the order in which it looks, so it may differ
            assert graph.engine.extract(None, [graph.id_of(root)], True)[1] <= tree
            facts = [graph.fact(n) for n in root.toposort()]
            facts = [f._replace(dtype=0) for f in facts]
            counts = report.nodes, report.classes, report.stop
            seen.append((counts, partition(graph, root.toposort()), facts, tree))
        assert seen[0] == seen[1], root


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_extracted_has_the_same_value(engine: EngineMaker) -> None:
    rng = random.Random(7)
    for dtype in (dtypes.index, dtypes.int8, dtypes.bool, dtypes.float32):
        for root in roots(dtype, 10 if engine is native.NativeEngine else 3, 4):
            graph = EGraph(root, sym, engine=engine)
            graph.run(Schedule(200, 3, 1.0, 200, 2))
            for made in (*graph.extract(), *graph.extract(cost="tree")):
                assert same(root, made, rng), (root, made)


@pytest.mark.parametrize("size", [3, 5])
def test_the_same_on_terms_that_have_no_meaning(size: int) -> None:
    rules = [
        Rewrite("turn", "(f ?a ?b)", "(f ?b ?a)"),
        Rewrite("move", "(f ?a (f ?b ?c))", "(f (f ?a ?b) ?c)"),
        Rewrite("same", "(f ?a ?a)", "?a"),
        Rewrite("drop", "(g (f ?a ?b))", "(h ?b (g ?a) (g ?b) ?a)"),
    ]
    term = "(w a b c d e (g (f a (f b (f c (f a d))))))" if size == 5 else "(g (f a (f b a)))"
    counts = []
    for engine in ENGINES:
        graph = TermGraph(rules, engine=engine)
        root = graph.add(term)
        by_round = [(r.nodes, r.classes) for r in (graph.run(1) for _ in range(4))]
        counts.append((by_round, len(graph.extract(root))))
    assert counts[0] == counts[1]


def _term(rng: random.Random, depth: int, leaves: list[str]) -> str:
    if not depth or rng.random() < 0.25:
        return rng.choice(leaves)
    name, arity = rng.choice([("f", 2), ("g", 1), ("h", 3), ("+", 2), ("*", 2)])
    return f"({name} {' '.join(_term(rng, depth - 1, leaves) for _ in range(arity))})"


def _rule(rng: random.Random, name: str) -> Rewrite:
    """Often with a variable twice below one operator, which binds it and asks for it at once."""
    names = ["?a", "?b", "?c"]
    left = _term(rng, 2, [*names, "k"])
    while left[0] != "(":
        left = _term(rng, 2, [*names, "k"])
    used = [n for n in names if n in left]
    return Rewrite(name, left, _term(rng, rng.choice([0, 1, 2]), [*used, "k"]))


def test_the_same_for_random_rules_on_random_terms() -> None:
    matched = 0
    for seed in range(40):
        rng = random.Random(seed)
        rules = [_rule(rng, f"r{i}") for i in range(rng.randint(1, 6))]
        # the shape that a search once bound too late: one variable twice in a part
        rules.append(Rewrite("twice", "(+ (* ?a k) (h ?b ?b ?c))", "(h (g ?a) ?b k)"))
        terms = [_term(rng, 3, ["x", "y", "k"]) for _ in range(3)]
        terms.append("(+ (* x k) (h y y z))")
        joined = rng.randrange(len(terms)), rng.randrange(len(terms))
        seen = []
        for engine in ENGINES:
            graph = TermGraph(rules, commutative=["+"] if seed % 2 else [], engine=engine)
            classes = [graph.add(term) for term in terms]
            graph.union(*[classes[place] for place in joined])
            counts = [graph.run(1)[2:4] for _ in range(3)]
            equal = [graph.equal(a, b) for a in classes for b in classes]
            costs = [graph.extraction(cls).cost for cls in classes]
            seen.append((counts, equal, costs))
            matched += graph.run(1).matches
        assert seen[0] == seen[1], seed
    assert matched > 100


def test_numbers_have_one_name() -> None:
    lib = native.lib
    names = [name for name in dir(codes) if name.isupper() and hasattr(lib, name)]
    assert len(names) > 90
    assert {n: getattr(codes, n) for n in names} == {n: getattr(lib, n) for n in names}
    assert codes.CONFLICT == lib.CONFLICT_FOUND
    assert codes.NO_MEMORY == lib.OUT_OF_MEMORY


def test_a_process_without_the_c_engine_says_so_once_and_goes_on() -> None:
    program = (
        "import sys; sys.modules['opgraft_egraph._engine'] = None\n"
        "from opgraft_egraph import egraph_extract\n"
        "from opgraft.api import UOp, symbolic_simple\n"
        "a = UOp.variable('a', 0, 9)\n"
        "for _ in range(2): print(egraph_extract(a + 0, symbolic_simple) is a)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["True", "True"]
    assert len(ran.stderr.strip().splitlines()) == 1
    assert "the C engine is missing" in ran.stderr


def test_asking_for_the_python_engine_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGRAFT_EGRAPH_ENGINE", "python")
    default_engine.cache_clear()
    try:
        assert default_engine() is ReferenceEngine
    finally:
        default_engine.cache_clear()
