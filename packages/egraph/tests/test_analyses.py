"""What is known of a class is true of its values, and as much as core's bounds say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from egraph_cases.expressions import LEAVES, expression, points
from opgraft.api import (
    DType,
    EqualitySet,
    GroupOp,
    Ops,
    PatternMatcher,
    UOp,
    UPat,
    dtypes,
    errors,
    evaluate,
    sym,
)
from opgraft_egraph import Analysis, EGraph, Fingerprint, Schedule, codes
from opgraft_egraph.engine import EngineMaker, Fact, default_engine
from opgraft_egraph.language import decode
from opgraft_egraph.reference import ReferenceEngine

X = UPat.var("x")
A, B = UOp.variable("a", 0, 9), UOp.variable("b", -4, 9)
ENGINES = list(dict.fromkeys((default_engine(), ReferenceEngine)))
each_engine = pytest.mark.parametrize("engine", ENGINES)


def allows(fact: Fact, value: Any) -> bool:
    """Whether a value is among those that a fact leaves."""
    if fact.number in (codes.NUMBER_INT, codes.NUMBER_BOOL, codes.NUMBER_FLOAT):
        return repr(decode(fact.number, fact.value)) == repr(value)
    if isinstance(value, float):
        return True
    low = fact.low == codes.LEAST or fact.low <= value
    high = fact.high == codes.MOST or value <= fact.high
    rest = not fact.modulus or value % fact.modulus == fact.rest
    return low and high and rest and not (fact.nonzero and value == 0)


@each_engine
@pytest.mark.parametrize("dtype", LEAVES, ids=str)
def test_every_value_is_within_what_is_known(dtype: DType, engine: EngineMaker) -> None:
    rng = random.Random(f"facts {dtype}")
    for _ in range(60):
        root = expression(rng, dtype, 4)
        graph = EGraph(root, engine=engine)
        graph.run()
        for at in points(rng, 12):
            for n in root.toposort():
                assert allows(graph.fact(n), evaluate(n, at)), n


_NARROW = (Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR)


@each_engine
@pytest.mark.parametrize("op", [*_NARROW, Ops.SHL, Ops.SHR, Ops.CMPLT, Ops.CMPEQ], ids=str)
def test_all_pairs_of_narrow_intervals(op: Ops, engine: EngineMaker) -> None:
    rng = random.Random(op.name)
    dtype = dtypes.narrow(4, True)
    for _ in range(60):
        ends = [sorted(rng.choices(range(-8, 8), k=2)) for _ in range(2)]
        p, q = (UOp.variable(n, *e, dtype) for n, e in zip("pq", ends))
        root = p.alu(op, q)
        fact = EGraph(root, engine=engine).fact(root)
        for i in range(ends[0][0], ends[0][1] + 1):
            for j in range(ends[1][0], ends[1][1] + 1):
                assert allows(fact, evaluate(root, {p: i, q: j})), (root, i, j)


def test_intervals_of_index_arithmetic_are_as_narrow_as_those_of_core() -> None:
    rng = random.Random(5)
    wider = 0
    total = 0
    for _ in range(200):
        root = expression(rng, dtypes.index, 4)
        graph = EGraph(root)
        for n in root.toposort():
            if n.dtype.is_index:
                fact = graph.fact(n)
                total += 1
                wider += fact.low < n.vmin or fact.high > n.vmax
    assert wider <= total // 50, (wider, total)


@each_engine
def test_constants_fold_as_evaluate_says(engine: EngineMaker) -> None:
    rng = random.Random(8)
    numbers = (0, 1, -1, 2, 3, 7, -8, 100, 127, -128)
    reals = (0.0, -0.0, 1.0, -1.5, 3.0, 1e30, 65504.0, 1e-8, float("inf"), float("nan"))
    folded = 0
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.index, dtypes.bool,
                  dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):  # fmt: skip
        values = reals if dtype.is_float else (False, True) if dtype.is_bool else numbers
        for op in sorted(GroupOp.BINARY - {Ops.THREEFRY, Ops.CDIV, Ops.CMOD}):
            if not _is_defined(op, dtype):
                continue
            for _ in range(12):
                p, q = (UOp.const(dtype, rng.choice(values)) for _ in range(2))
                root = p.alu(op, q)
                fact = EGraph(root, engine=engine).fact(root)
                if fact.number:
                    folded += 1
                    found = decode(fact.number, fact.value)
                    assert repr(found) == repr(evaluate(root, {})), root
    assert folded > 1_000


def _is_defined(op: Ops, dtype: DType) -> bool:
    if dtype.is_float:
        return op in (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.MIN) or op in GroupOp.COMPARISON
    if op in (Ops.FDIV,):
        return False
    return not (dtype.is_bool and op in (Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR))


@each_engine
def test_casts_fold_as_evaluate_says(engine: EngineMaker) -> None:
    sources = [
        *(UOp.const(dtypes.int32, v) for v in (0, 1, -1, 300, -129, 1 << 30, 16_777_217)),
        *(UOp.const(dtypes.float64, v) for v in (0.5, -3.7, 1e10, 65520.0, float("nan"), -0.0)),
        *(UOp.const(dtypes.bool, v) for v in (False, True)),
    ]
    targets = (dtypes.int8, dtypes.uint8, dtypes.uint32, dtypes.bool, dtypes.float16)
    for source in sources:
        for target in (*targets, dtypes.bfloat16, dtypes.float32, dtypes.index):
            root = source.cast(target)
            fact = EGraph(root, engine=engine).fact(root)
            assert fact.number, root
            value = root.const_value if root.is_const else evaluate(root, {})
            assert repr(decode(fact.number, fact.value)) == repr(value), root


class TestWhatIsKnown:
    def test_remainders(self) -> None:
        assert EGraph(A * 6 + 4).fact(A * 6 + 4)[4:6] == (6, 4)
        assert EGraph((A * 6 + 4) * 2).fact((A * 6 + 4) * 2)[4:6] == (12, 8)
        assert EGraph((A * 6 + 4) % 3).fact((A * 6 + 4) % 3).value == 1
        p = UOp.variable("p", -128, 127, dtypes.int8)
        # a product that wraps keeps its remainder modulo powers of two alone
        assert EGraph(p * 12).fact(p * 12)[4:6] == (4, 0)

    def test_a_number_that_is_not_zero(self) -> None:
        assert EGraph(A + 1).fact(A + 1).nonzero
        assert EGraph(B * 2 + 1).fact(B * 2 + 1).nonzero
        assert not EGraph(B).fact(B).nonzero

    def test_odd_is_never_even(self) -> None:
        assert EGraph().fact((B * 2 + 1).eq(A * 2)).value == 0

    def test_what_is_known_of_equal_nodes_is_put_together(self) -> None:
        graph = EGraph((A, B))
        graph.merge(A * 2, B + 3)
        fact = graph.fact(B + 3)
        assert (fact.low, fact.high) == (0, 12)
        assert fact.modulus == 2

    def test_one_value_left_is_that_constant(self) -> None:
        n = UOp.variable("n", 0, 100)
        graph = EGraph((A + 9, n))
        graph.merge(A + 9, n.minimum(9))
        assert graph.equal(n.minimum(9), UOp.const(dtypes.index, 9))

    def test_it_reaches_the_parents_through_the_whole_graph(self) -> None:
        n = UOp.variable("n", 0, 1_000)
        root = ((n + 1) * 2 + 3).maximum(0) // 2
        graph = EGraph(root)
        assert graph.fact(root).high == 1_002
        graph.merge(n, A)
        assert graph.fact(root).high == 11


class Depth(Analysis):
    """The height of the lowest node of a class."""

    def make(self, node: UOp, kids: Sequence[Any]) -> int:
        return 1 + max(kids, default=-1)

    def merge(self, a: int, b: int) -> int:
        return min(a, b)


class Unit(Analysis):
    """What a variable's name begins with; sums are of one unit."""

    def make(self, node: UOp, kids: Sequence[Any]) -> str:
        if node.op is Ops.VAR:
            return str(node.arg[0][0])
        return max(kids, default="")

    def merge(self, a: str, b: str) -> str:
        if a and b and a != b:
            raise ValueError(f"{a} is not {b}")
        return a or b


class TestAnalysesOfOnesOwn:
    def test_a_value_for_every_class(self) -> None:
        rules = EqualitySet([(X * 1, lambda x: x, "one")])
        graph = EGraph((A * 1 + 1) * 2, rules, analyses={"depth": Depth()})
        graph.run()
        assert graph.analysis("depth", A * 1) == 0
        assert graph.analysis("depth", (A * 1 + 1) * 2) == 2

    def test_rules_are_asked_again_when_a_value_changes(self) -> None:
        rules = PatternMatcher(
            [
                (X % 16, lambda ctx, x: x if ctx("depth", x) == 0 else None, "flat"),
                (X * 1, lambda x: x, "one"),
            ]
        )
        graph = EGraph((A * 1 * 1) % 16, rules, analyses={"depth": Depth()})
        report = graph.run()
        assert report.stop == "saturated"
        assert graph.equal((A * 1 * 1) % 16, A)

    def test_a_conflict_names_the_rule_and_the_analysis(self) -> None:
        metre, second = UOp.variable("m", 0, 9), UOp.variable("s", 0, 9)
        rules = EqualitySet([(UPat(Ops.VAR, name="x") + 0, lambda x: second, "mix")])
        graph = EGraph(metre + 0, rules, analyses={"unit": Unit()})
        with pytest.raises(errors.RewriteError, match=r"rule mix .*analysis unit .*(m|s) is not"):
            graph.run()


class TestFingerprints:
    @pytest.mark.parametrize(
        "rule",
        [
            (X % 8, lambda x: x & 6, "wrong"),
            (X // 3, lambda x: x // 4, "wrong"),
            (UPat.var("x", dtypes.float32) + 0.0, lambda x: x, "wrong"),
            (X.maximum(UPat.var("y")), lambda x, y: x, "wrong"),
        ],
    )
    def test_a_wrong_rule_that_intervals_let_pass_is_named(
        self, rule: tuple[UPat, object, str]
    ) -> None:
        n, u = UOp.variable("n", 0, 99), UOp(Ops.VAR, dtypes.float32, (), ("u", -1.0, 1.0))
        root = UOp.sink(n % 8, n // 3, u + 0.0, n.maximum(A))
        graph = EGraph(root, EqualitySet([rule]), analyses={"values": Fingerprint()})  # type: ignore[list-item]
        with pytest.raises(errors.RewriteError, match=r"rule wrong .*analysis values .*one is"):
            graph.run(Schedule(rounds=3))

    def test_the_built_in_rules_pass(self) -> None:
        rng = random.Random(77)
        for dtype in LEAVES:
            for _ in range(8):
                root = expression(rng, dtype, 4)
                graph = EGraph(root, sym, analyses={"values": Fingerprint()})
                graph.run(Schedule(nodes=300, rounds=3, seconds=0.0, matches=60))
                assert graph.analysis("values", root) is not None
