"""The tiers of a kernel: what they find that greedy rewriting can't, and what they decline."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points

import pytest

from egraph_cases.index_math import (
    blocked_layout,
    blocks_of_an_image,
    exclusive_loads,
    flipped_both_ways,
    flipped_view,
    four_lanes,
    loading_kernel,
    quotient_and_rest,
    random_roots,
    rolled_picture,
    same_values,
)
from opgraft import Device
from opgraft.api import (
    Budget,
    Buffer,
    CostModel,
    EqualitySet,
    KernelInfo,
    Loops,
    Ops,
    Target,
    UOp,
    UPat,
    compile_kernel,
    dtypes,
    errors,
    graph_rewrite,
    settings,
    simplify,
    sym,
)
from opgraft.ir.pattern import index
from opgraft.lower.pipeline import lower
from opgraft.rules.simplify import chosen_optimizer, tidy
from opgraft_egraph import EGraphOptimizer
from opgraft_egraph.exact import Problem, solve
from opgraft_egraph.exact.effort import Effort
from opgraft_egraph.kernel.pricelist import CPU, PLAIN, PriceList, of_target
from opgraft_egraph.kernel.region import Region
from opgraft_egraph.kernel.tiers import INDEX, SCALAR, Found, Tier, explore

LONG = os.environ.get("OPGRAFT_CHECK") == "long"


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    """With SPEC, the values of all classes are compared at random points in every round."""
    with settings.using(SPEC=True):
        yield


def found(
    roots: tuple[UOp, ...], prices: PriceList, tier: Tier = INDEX, budget: Budget | None = None
) -> Found:
    return explore(UOp.sink(*roots), sym, tier, budget or Budget(), prices)


class TestExamples:
    """Costs with the weights that the examples were published with: a division is 6, any other
    operation 1, times how often the loops have it computed."""

    @pytest.mark.parametrize(
        ("example", "greedy", "known"),
        [
            (flipped_view, 17.54, 14.23),
            (flipped_both_ways, 16.08, 7.00),
            (blocks_of_an_image, 29.01, 18.01),
            (four_lanes, 18.08, 13.08),
            (blocked_layout, 12.00, 8.00),
        ],
        ids=lambda x: getattr(x, "__name__", None),
    )
    def test_costs(self, example: object, greedy: float, known: float) -> None:
        roots = example()  # type: ignore[operator]
        made = found(roots, PLAIN)
        assert made.before <= greedy + 0.005
        assert made.after <= known + 0.005
        assert same_values(roots, made.sink.src)
        # as the price list says, counted once more on what came out
        assert made.after == PLAIN.graph(made.sink.src, Loops(UOp.sink(*roots)))

    def test_loads_that_exclude_each_other_share_an_index_under_their_gates(self) -> None:
        (root,) = exclusive_loads()
        (made,) = found((root,), PLAIN).sink.src
        indices = [n.src[1] for n in made.toposort() if n.op is Ops.LOAD]
        shared = indices[0]
        offsets = [0 if n is shared else n.src[1].const_value for n in indices]
        assert offsets == [0, -510, -731]
        assert all(n is shared or n.src[0] is shared for n in indices)
        assert same_values((root,), (made,))

    def test_a_quotient_beside_its_rest_is_left_to_the_compiler(self) -> None:
        roots = quotient_and_rest()
        by_operations = found(roots, PLAIN)
        assert (by_operations.before, by_operations.after) == (12.0, 8.0)
        kept = found(roots, CPU)
        assert kept.sink.src == graph_rewrite(UOp.sink(*roots), sym).src
        assert kept.after == kept.before

    def test_less_than_a_quarter_is_not_taken(self) -> None:
        i, j = UOp.range(40, 0), UOp.range(40, 1)
        roots = (i * j * 30 + j * 30 + j // 7,)
        free = dataclasses.replace(CPU, margin=1.0)
        better = found(roots, free)
        assert better.after < better.before < 1.25 * better.after
        assert found(roots, CPU).sink.src == graph_rewrite(UOp.sink(*roots), sym).src


def numbers(lanes: int, low: int = -(1 << 31)) -> UOp:
    """Loaded integers, with this as the least that they can be."""
    i = UOp.range(800, 0)
    data = UOp(Ops.PARAM, dtypes.int32, (), (1, 800 * lanes))
    loaded = UOp(Ops.LOAD, dtypes.int32.vec(lanes), (data, i * lanes))
    return loaded if low == -(1 << 31) else loaded.maximum(loaded.const_like(low))


def clock(n: UOp) -> UOp:
    """Five hours later: a choice, for the second modulo."""
    twelve, five = n.const_like(12), n.const_like(5)
    return (n % twelve + five) % twelve


def digits(n: UOp) -> UOp:
    """Four decimal digits, each in four bits: those below take the quotients of those above."""
    ten, value = n.const_like(10), n % n.const_like(10)
    for place in (1, 2, 3):
        digit = n // n.const_like(10**place) % ten
        value = value + digit * n.const_like(16**place)
    return value


class TestOwn:
    """Programs of our own that nobody listed."""

    @pytest.mark.parametrize("program", [clock, digits])
    @pytest.mark.parametrize("low", [-(1 << 31), 0])
    @pytest.mark.parametrize("lanes", [1, 8])
    def test_whole_numbers_of_a_program_are_divided_less_often(
        self, program: Callable[[UOp], UOp], low: int, lanes: int
    ) -> None:
        root = program(numbers(lanes, low))
        made = found((root,), dataclasses.replace(CPU, margin=1.0), SCALAR)
        before, after = (
            sum(n.op in (Ops.IDIV, Ops.MOD) for n in sink.toposort())
            for sink in (UOp.sink(root), made.sink)
        )
        assert after < before
        assert made.after < made.before
        if lanes > 1:
            # a quarter and more: divisions are dear in vectors
            assert found((root,), CPU, SCALAR).sink is made.sink

    def test_a_picture_rolled_along_both_axes_needs_no_division(self) -> None:
        (root,) = rolled_picture()
        made = found((root,), CPU)
        assert made.after < 0.55 * made.before
        assert not any(n.op in (Ops.IDIV, Ops.MOD) for n in made.sink.toposort())
        assert same_values((root,), made.sink.src)

    def test_one_exponential_of_a_choice_for_a_choice_of_two(self) -> None:
        x = UOp.variable("x", float("-inf"), float("inf"), dtypes.float32)
        y = UOp.variable("y", float("-inf"), float("inf"), dtypes.float32)
        root = (x < 0.0).where((x * 2.0).exp2(), (y + x).exp2())
        made = found((root,), CPU, SCALAR)
        assert sum(n.op is Ops.EXP2 for n in made.sink.toposort()) == 1
        assert made.after < 0.6 * made.before

    def test_rows_alone_are_summed_once_for_all_columns(self) -> None:
        i, j = UOp.range(64, 0), UOp.range(64, 1)
        data, rows, more = (
            UOp(Ops.PARAM, dtypes.int32, (), (slot, size)).load(at)
            for slot, size, at in ((1, 4096, i * 64 + j), (2, 64, i), (3, 64, i))
        )
        made = found(((data * rows) * more,), PLAIN, SCALAR)
        product = made.sink.src[0]
        assert set(product.src) >= {data}
        assert rows * more in product.src or more * rows in product.src

    def test_floats_are_regrouped_where_the_level_allows(self) -> None:
        i, j = UOp.range(64, 0), UOp.range(64, 1)
        data, rows, more = (
            UOp(Ops.PARAM, dtypes.float32, (), (slot, size)).load(at)
            for slot, size, at in ((1, 4096, i * 64 + j), (2, 64, i), (3, 64, i))
        )
        root = (data * rows) * more
        with settings.using(FLOAT="strict"):
            assert found((root,), PLAIN, SCALAR).sink.src == (root,)
        # which SPEC allows, too: it does not compare floats there
        with settings.using(FLOAT="reassoc"):
            (made,) = found((root,), PLAIN, SCALAR).sink.src
        assert any(s.op is Ops.MUL and j not in s.ranges for s in made.src)

    def test_rules_from_elsewhere_take_part(self) -> None:
        quotient = UPat(Ops.IDIV, index, src=(UPat.var("x"), UPat.const(7)))
        rules = EqualitySet(
            [
                # x // 7 = x * 9363 // 2**16 for 0 <= x < 1000
                (
                    quotient,
                    lambda x: x * 9363 // 65536 if x.vmin >= 0 and x.vmax < 1000 else None,
                    "by_reciprocal",
                )
            ]
        )
        root = UOp.range(800, 0) // 7
        cost = CostModel(target=Target("any"))
        made = EGraphOptimizer(alternatives=rules).optimize(
            UOp.sink(root), sym, cost=cost, budget=Budget(), stage="index"
        )
        assert not any(n.op is Ops.IDIV and n.src[1].arg == 7 for n in made.sink.toposort())
        assert made.cost_after < made.cost_before
        assert same_values((root,), made.sink.src)


class TestPrices:
    def test_what_was_measured_decides(self) -> None:
        roots = quotient_and_rest()
        prices = of_target(Target("other", op_prices=(("beside", 30.0), ("MOD", 30.0))))
        assert prices.beside == prices.table[Ops.MOD] == 30.0
        assert prices.table[Ops.IDIV] == CPU.table[Ops.IDIV]
        made = found(roots, prices)
        assert not any(n.op is Ops.MOD for n in made.sink.toposort())
        assert of_target(Target("unmeasured")) is CPU

    def test_prices_of_floats_are_their_own(self) -> None:
        prices = of_target(Target("other", op_prices=(("FDIV:float", 9.0), ("MUL", 2.0))))
        x = UOp.variable("x", 0.0, 1.0, dtypes.float32)
        n = UOp.variable("n", 0, 9)
        assert (prices.node(x / x), prices.node(x * x), prices.node(n * n)) == (9.0, 2.0, 2.0)

    def test_what_may_be_negative_is_dearer_to_divide(self) -> None:
        n, m = UOp.variable("n", 0, 99), UOp.variable("m", -99, 99)
        assert CPU.node(m // 7) == CPU.node(n // 7) + CPU.correction
        assert CPU.node(n // 8) == CPU.node(m // 8) == CPU.power_of_two

    def test_a_division_is_dearer_in_vectors_unless_it_is_a_shift(self) -> None:
        one, eight = numbers(1, 0), numbers(8, 0)
        dear = CPU.in_vectors * CPU.node(one % one.const_like(7))
        assert CPU.node(eight % eight.const_like(7)) == dear
        assert CPU.node(eight % eight.const_like(8)) == CPU.power_of_two
        assert PLAIN.node(eight % eight.const_like(7)) == PLAIN.node(one % one.const_like(7))

    def test_outer_loops_are_cheap(self) -> None:
        i, j = UOp.range(10, 0), UOp.range(20, 1)
        loops = Loops(UOp.sink(i, j))
        assert PLAIN.graph([i * 3], loops) == 1 / 20
        assert PLAIN.graph([j * 3], loops) == 1.0
        assert PLAIN.graph([UOp.variable("n", 0, 9) * 3], loops) == 1 / 200
        assert PLAIN.graph([i * 3 + j * 3, j * 3], loops) == 2.05


def using(optimizer: str, **others: object) -> settings.using:
    """A plugin's optimizer by name, whatever the environment says of plugins."""
    return settings.using(OPTIMIZER=optimizer, EGRAPH=None, PLUGINS=None, **others)


class TestInTheCompilePath:
    def lowered(self, optimizer: str) -> set[Ops]:
        sink, _, _ = loading_kernel(rolled_picture(), 1)
        with using(optimizer):
            return {n.op for n in lower(sink, Target("plain")).instructions}

    def test_a_kernel_is_lowered_with_what_was_chosen(self) -> None:
        divisions = {Ops.CDIV, Ops.CMOD, Ops.IDIV, Ops.MOD}
        assert self.lowered("greedy") & divisions
        assert not self.lowered("egraph") & divisions

    @pytest.mark.parametrize(
        "example",
        [flipped_view, flipped_both_ways, blocks_of_an_image, exclusive_loads, rolled_picture],
    )
    @pytest.mark.parametrize("pair", ["", "LANES32"])
    def test_results_are_the_same(self, example: Callable[[], tuple[UOp, ...]], pair: str) -> None:
        sink, size, most = loading_kernel(example(), 2)
        device = Device["INTERP"]
        count = len({n.arg[0] for n in sink.toposort() if n.op is Ops.PARAM})
        results = []
        for optimizer in ("greedy", "egraph"):
            with using(optimizer, INTERP_CC=pair, CACHE="off", SPEC=True):
                device.kernels.clear()
                executable = compile_kernel(device, sink)
                device.kernels.clear()
            buffers = [Buffer(device, n * 4) for n in (size, *[most] * (count - 1))]
            for buffer in buffers[1:]:
                buffer.copy_in(memoryview(array("f", range(most)).tobytes()))
            executable.run(buffers, wait=True)
            results.append(bytes(buffers[0].memory()))
        assert results[0] == results[1]

    def test_auto_takes_it_where_it_is_installed(self) -> None:
        if not any(e.value == "opgraft_egraph.plugin" for e in entry_points(group="opgraft")):
            pytest.skip("opgraft-egraph is on the path but not installed, so no plugin")
        with settings.using(OPTIMIZER="auto", EGRAPH=None, PLUGINS=None):
            assert chosen_optimizer().name == "egraph"
        with settings.using(OPTIMIZER="auto", EGRAPH=0):
            assert chosen_optimizer().name == "greedy"

    def test_between_passes_rewriting_is_greedy(self) -> None:
        j = UOp.range(30, 1)
        with using("egraph"):
            assert tidy((j + 11) % 30) is (j + 11) % 30
            assert simplify((j + 11) % 30) is not (j + 11) % 30


WRONG = {
    # 9363 would be right
    "wrong_reciprocal": (
        UPat(Ops.IDIV, index, src=(UPat.var("x"), UPat.const(7))),
        lambda x: x * 9362 // 65536,
    ),
    # so it is where the gate is open
    "wrong_under_gate": (
        UPat(
            Ops.LOAD,
            src=(UPat.var("b"), UPat.var("i"), UPat.var("a", index) < UPat.var("c"), UPat.var("e")),
        ),
        lambda b, i, a, c, e: b.load(i % 64, c < a, e),
    ),
    # floats are rounded
    "wrong_sum": (
        UPat.var("x", dtypes.float32) + UPat.var("y", dtypes.float32),
        lambda x, y: (x * 3.0 + y * 3.0) / 3.0,
    ),
}


class TestFingerprints:
    @pytest.mark.parametrize("name", WRONG)
    def test_a_wrong_equality_is_caught_by_name_on_the_way_to_a_program(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rule = EqualitySet([(*WRONG[name], name)])  # type: ignore[list-item]
        monkeypatch.setattr(
            "opgraft.rules.simplify.chosen_optimizer", lambda: EGraphOptimizer(alternatives=rule)
        )
        i = UOp.range(800, 0)
        data, out = (UOp(Ops.PARAM, dtypes.float32, (), (slot, 1000)) for slot in (1, 0))
        value = data.load(i // 7, i % 30 < 11, UOp.const(dtypes.float32, 1.5))
        value = (value < 0.0).where((value + data.load(i)).sqrt(), (value * 2.0).sqrt())
        sink = UOp.sink(out.store(i, value).end(i), arg=KernelInfo("planted"))
        with settings.using(SPEC=False):
            lower(sink, Target("plain"))
        with pytest.raises(errors.RewriteError, match=f"rule {name} .*at one point one is"):
            lower(sink, Target("plain"))

    def test_looking_changes_nothing(self) -> None:
        rng = random.Random(6)
        for _ in range(10):
            roots = random_roots(rng)
            made = found(roots, CPU)
            with settings.using(SPEC=False):
                assert found(roots, CPU).sink is made.sink


class TestPromises:
    @pytest.mark.parametrize("prices", [PLAIN, CPU], ids=lambda p: p.name)
    def test_random_indices_are_never_costlier_and_equal(self, prices: PriceList) -> None:
        rng = random.Random(5)
        better = 0
        for _ in range(5_000 if LONG else 60):
            roots = random_roots(rng)
            made = found(roots, prices)
            loops = Loops(UOp.sink(*roots))
            greedy = graph_rewrite(UOp.sink(*roots), sym)
            after = prices.graph(made.sink.src, loops)
            assert after <= prices.graph(greedy.src, loops) + 1e-9
            better += after < made.before - 1e-9
            assert same_values(roots, made.sink.src)
        assert better > (500 if LONG else 6)

    def test_every_process_finds_the_same(self) -> None:
        code = (
            "import random\n"
            "from egraph_cases.index_math import random_roots\n"
            "from opgraft.api import Budget, UOp, sym, node_to_text\n"
            "from opgraft_egraph.kernel.pricelist import CPU\n"
            "from opgraft_egraph.kernel.tiers import INDEX, explore\n"
            "rng = random.Random(8)\n"
            "for _ in range(6):\n"
            "    sink = UOp.sink(*random_roots(rng))\n"
            "    print(repr(explore(sink, sym, INDEX, Budget(), CPU).sink.key))\n"
        )
        outputs = [
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                cwd=os.path.dirname(__file__),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "77")
        ]
        assert outputs[0] == outputs[1]

    def test_time_is_a_net_that_is_told_and_gives_the_greedy_result(self) -> None:
        roots = flipped_view()
        made = found(roots, PLAIN, budget=Budget(seconds=1e-12))
        assert made.stop == "seconds"
        assert made.sink is graph_rewrite(UOp.sink(*roots), sym)

    def test_a_graph_that_is_too_large_is_left_alone(self) -> None:
        roots = flipped_view()
        made = found(roots, PLAIN, budget=Budget(nodes=10))
        assert made.stop == "nodes"
        assert made.sink is graph_rewrite(UOp.sink(*roots), sym)

    def test_without_a_division_a_choice_or_a_gate_nothing_is_explored(self) -> None:
        i, j = UOp.range(10, 0), UOp.range(20, 1)
        assert found((i * 20 + j + 5,), PLAIN).stop == "nothing to explore"
        assert found((i * 16 + j // 16,), PLAIN).stop == "nothing to explore"
        assert found((i * 16 + j // 3,), PLAIN).stop != "nothing to explore"

    def test_what_the_scalar_tier_chose_is_not_undone(self) -> None:
        # greedy rewriting would write x % 3 again
        j = UOp.range(100, 0)
        chosen = UOp.sink(j // 3, j // 3 * -3 + j)
        assert graph_rewrite(chosen, sym) is not chosen
        assert explore(chosen, sym, INDEX, Budget(), PLAIN).sink is chosen


class TestRegions:
    def test_a_region_put_back_is_the_graph(self) -> None:
        i, j = UOp.range(28, 0), UOp.range(30, 1)
        data = UOp(Ops.PARAM, dtypes.float32, (), (1, 4096))
        table = UOp(Ops.PARAM, dtypes.int32, (), (2, 4096))
        out = UOp(Ops.PARAM, dtypes.float32, (), (0, 4096))
        inner = table.load((i * 30 + j) % 7).cast(dtypes.index)
        value = data.load(inner % 64 + i) + data.load(inner // 3) * 2.0
        sink = UOp.sink(out.store((i * 30 + j) // 5, value).end(i, j))
        region = Region(sink, INDEX.inside)
        assert len(region) < len(sink.toposort())
        assert all(n.dtype.is_index for n in region.roots)
        assert region.restored(region.roots) is sink

    def test_constants_in_every_lane_stay_constants(self) -> None:
        """They were cut out as values that nothing is known of."""
        n = numbers(8)
        (root,) = Region(UOp.sink(n % n.const_like(7)), SCALAR.inside).roots
        assert root.src[1].const_value == 7

    def test_roots_within_what_a_leaf_stands_for_are_replaced_too(self) -> None:
        j = UOp.range(30, 0)
        table = UOp(Ops.PARAM, dtypes.int32, (), (2, 64))
        outer = table.load(table.load(j % 7).cast(dtypes.index) % 5)
        region = Region(UOp.sink(outer), INDEX.inside)
        shifted = region.restored([n + 1 for n in region.roots])
        inner = table.load(j % 7 + 1).cast(dtypes.index)
        assert shifted is UOp.sink(table.load(inner % 5 + 1))

    def test_a_value_is_known_wherever_its_leaf_is_read(self) -> None:
        """An equality gave the place another form, and the leaf came into the program (2018)."""
        i, j = UOp.range(8, 0), UOp.range(8, 1)
        value = UOp(Ops.PARAM, dtypes.int32, (), (1, 64)).load(i * 8 + j).cast(dtypes.index)
        sink = UOp.sink(value % 5)
        region = Region(sink, INDEX.inside)
        (leaf,) = [n for root in region.roots for n in root.toposort() if n.op is Ops.LOAD]
        elsewhere = leaf.with_src((leaf.src[0], i * 0 + 3))
        assert elsewhere is not leaf
        moved = [root.substitute({leaf: elsewhere}) for root in region.roots]
        assert region.restored(moved) is sink

    def test_a_load_from_a_buffer_that_was_written_before_is_no_leaf(self) -> None:
        """Its buffer is one: the array itself came into the program for its element."""
        i, k = UOp.range(27, 0), UOp.range(27, 1)
        held = UOp(Ops.PARAM, dtypes.bool, (), (1, 27))
        written = held.after(held.store(k, UOp.const(dtypes.bool, True)).end(k))
        gate = (i < 5) & (UOp.const(dtypes.index, 1) < i)
        value = written.load(i, gate, UOp.const(dtypes.bool, False))
        sink = UOp.sink(gate & value)
        region = Region(sink, INDEX.inside)
        assert region.restored(region.roots) is sink

    def test_loads_are_as_deep_in_loops_as_before(self) -> None:
        i, j = UOp.range(8, 0), UOp.range(8, 1)
        load = UOp(Ops.PARAM, dtypes.int32, (), (1, 64)).load(i * 8 + j)
        _, root = Region(UOp.sink(load.cast(dtypes.index) % 5), INDEX.inside).roots
        assert root.op is Ops.MOD
        assert set(root.ranges) == {i, j}


@pytest.mark.parametrize("seed", [21, 24])
def test_wherever_the_steps_run_out_there_is_an_answer(seed: int) -> None:
    """One random index in 5,000 left a problem without a choice, which was then to be split."""
    draw = random.Random(seed)
    classes: list[int] = []
    children: list[list[int]] = []
    prices: list[float] = []
    count = draw.randrange(6, 16)
    for cls in range(count):
        for _ in range(draw.choice((1, 2, 2, 3))):
            classes.append(cls)
            children.append(draw.sample(range(count), draw.choice((0, 1, 2, 2, 3))))
            prices.append(draw.choice((0, 1, 2, 3, 5)))
        classes.append(cls)
        children.append([])
        prices.append(9)
    problem = Problem(classes, children, prices, [0, 1])
    best = solve(problem).cost
    for steps in range(0, 3_000, 40):
        assert solve(problem, Effort(steps=steps)).cost >= best
