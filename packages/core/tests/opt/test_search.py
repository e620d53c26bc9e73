"""A search finds faster schedules by measuring, and no candidate can end or mislead it.

Nothing is timed here: a schedule's "seconds" are its price by a model, the same everywhere.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kernel_forms import kernels
from kernel_forms.execute import interpret
from kernel_forms.memory import expected, fill
from opgraft.devices.invented import LANES32, TextRenderer
from opgraft.errors import DeviceError, LoweringError, OpgraftError
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import LinearProgram
from opgraft.ir.text import parse_linear
from opgraft.lower.pipeline import lower, prepared, schedule_of
from opgraft.opt.accumulate import Accumulate
from opgraft.opt.actions import Action, Parallel, Split, apply_all
from opgraft.opt.axes import Kernel
from opgraft.opt.changes import Steps, changed, offers
from opgraft.opt.cover import Cover
from opgraft.opt.fold import Fold
from opgraft.opt.grid_actions import Grid, Stage
from opgraft.opt.pack import Pack
from opgraft.opt.prefetch import Prefetch
from opgraft.opt.search import Trials, fastest, search
from opgraft.opt.stores import Stream
from opgraft.opt.tile import Tile
from opgraft.runtime.search import maker, with_schedule
from opgraft.target import Target

CPU = Target("test", vector_bytes=32, vector_registers=16, cores=2)


def price(program: LinearProgram) -> float:
    """Instructions, as often as their loops carry them out."""
    total, times = 0.0, [1.0]
    for n in program.instructions:
        if n.op is Ops.RANGE:
            times.append(times[-1] * float(n.src[0].vmax))
        elif n.op is Ops.END:
            times.pop()
        total += times[-1]
    return total


class Bench:
    """Makes and "measures" the schedules of one kernel."""

    def __init__(self, sink: UOp, target: Target = CPU) -> None:
        self.sink = sink
        self.target = target
        self.measured: list[str] = []
        self.trials = Trials(maker(sink, TextRenderer(target)), self.measure)

    def measure(self, steps: Steps, enough: float) -> float:
        source = self.trials.make(steps)
        self.measured.append(source)
        return price(parse_linear(source))

    def search(self, width: int = 1) -> Steps:
        start = schedule_of(self.sink, self.target)
        return search(prepared(self.sink), self.target, start, width, self.trials)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("sink", "every"),
    [
        (kernels.rows(3, 20), 1),
        (kernels.matmul(16, 16, 17), 1),
        (kernels.column_max(16, 260), 4),
        (kernels.normalised_rows(8, 16), 2),
        (kernels.convolution(2, 24), 2),
        (kernels.stored_and_read_back(4, 16), 1),
        (kernels.transposed(36, 34), 2),
    ],
    ids=lambda value: value.arg.name if isinstance(value, UOp) else "",
)
def test_every_change_of_a_schedule_keeps_the_meaning(sink: UOp, every: int) -> None:
    given = prepared(sink)
    memory = fill(sink)
    wanted = expected(sink, memory)
    candidates = list(changed(given, CPU, schedule_of(sink, CPU)))[::every]
    assert len(candidates) >= 3
    for steps in candidates:
        assert expected(apply_all(given, steps), memory) == wanted, steps


def kinds(steps: Steps) -> set[str]:
    return {type(step).__name__ for step in steps}


def test_what_is_offered_follows_from_the_kernel_and_the_target() -> None:
    def offered(sink: UOp, steps: Steps = (), target: Target = CPU) -> set[Action]:
        return set(offers(Kernel(apply_all(prepared(sink), steps)), target))

    product = offered(kernels.matmul(64, 64, 256))
    shapes = {Cover("j", 8, 1), Cover("j", 8, 4), Fold("k", 8, 4), Split("k", 4, AxisKind.UNROLL)}
    tiles = {Tile((("i", 4, 1), ("j", 1, 8))), Tile((("i", 6, 1), ("j", 2, 8)))}
    assert product >= {*shapes, *tiles, Accumulate("k", "j", 4), Parallel("i"), Parallel("j")}
    tiled: Steps = (Tile((("i", 4, 1), ("j", 1, 8))), Parallel("i.o"))
    packed = {Pack(("j.v",)), Pack(("j.v",), ("i.o",))}
    assert offered(kernels.matmul(64, 64, 256), tiled) >= packed
    assert Stream(0) in offered(kernels.rows(8, 64), (Cover("j", 8, 1),))
    assert Stream(0) not in offered(kernels.rows(8, 64))  # no whole vectors
    wide = offered(kernels.rows(8, 64), target=replace(CPU, vector_bytes=64))
    assert {step.lanes for step in wide if isinstance(step, Cover)} == {16}
    plain = offered(kernels.rows(8, 64), target=replace(CPU, vector_bytes=0, cores=1))
    assert {type(step) for step in plain} == {Tile}  # copies of a loop, no lanes


def test_a_search_that_begins_with_nothing_finds_vectors_and_tiles() -> None:
    sink = kernels.matmul(16, 16, 4)
    bench = Bench(sink)
    found = search(prepared(sink), CPU, (), 1, bench.trials)
    start, best = bench.trials.done[0], bench.trials.best
    assert best is not None
    assert best.steps == found
    assert kinds(found) & {"Tile", "Cover"}
    assert 8 * (best.seconds or 0) < (start.seconds or 0)
    assert len(bench.measured) == len(set(bench.measured))


def test_a_worse_shape_of_a_loop_gives_way_to_another() -> None:
    others = list(changed(prepared(kernels.rows(8, 64)), CPU, (Cover("j", 2, 1), Parallel("i"))))
    assert (Tile((("j", 4, 1),)), Parallel("i")) in others
    assert (Cover("j", 8, 4), Parallel("i")) in others
    assert (Parallel("i"),) in others


@pytest.mark.parametrize("seed", range(3))
def test_by_no_measure_is_the_start_better_than_what_is_found(seed: int) -> None:
    sink = kernels.rows(8, 40)
    bench, pick = Bench(sink), random.Random(seed)
    bench.trials.measure = lambda steps, enough: pick.uniform(1, 2)
    found = bench.search(2)
    taken = {trial.steps: trial.seconds for trial in bench.trials.running}
    assert taken[found] == min(s for s in taken.values() if s)
    assert schedule_of(sink, CPU) in taken


def test_a_worse_start_is_improved_and_the_same_each_time() -> None:
    sink = kernels.matmul(4, 16, 4)
    start: Steps = (Split("j", 2, AxisKind.VECTOR), Parallel("i"))
    found = []
    for _ in range(2):
        bench = Bench(sink)
        found.append(search(prepared(sink), CPU, start, 2, bench.trials))
    assert found[0] == found[1] != start
    first, best = bench.trials.done[0], bench.trials.best
    assert best is not None
    assert first.steps == start
    assert best.steps == found[0]
    assert 2 * (best.seconds or 0) < (first.seconds or 0)


def test_a_source_is_measured_once() -> None:
    bench = Bench(kernels.rows(8, 40))
    bench.search(2)
    assert len(bench.measured) == len(set(bench.measured)) == len(bench.trials.done)


def test_where_nothing_gains_the_search_ends_after_a_round() -> None:
    bench = Bench(kernels.rows(8, 40))
    bench.trials.measure = lambda steps, enough: 1.0
    start = schedule_of(bench.sink, CPU)
    assert bench.search(3) == start
    near = set(changed(prepared(bench.sink), CPU, start))
    assert {trial.steps for trial in bench.trials.done} <= near | {start}


def test_lost_candidates_are_kept_with_their_reason_and_passed_over() -> None:
    bench = Bench(kernels.convolution(2, 24))

    def measure(steps: Steps, enough: float) -> float:
        if steps != schedule_of(bench.sink, CPU):
            raise DeviceError("it crashed")
        return 1.0

    bench.trials.measure = measure
    assert bench.search() == schedule_of(bench.sink, CPU)
    lost = [trial for trial in bench.trials.done if trial.seconds is None]
    assert len(lost) == len(bench.trials.done) - 1 >= 5
    assert {trial.reason for trial in lost} == {"it crashed"}


def test_a_start_that_does_not_run_is_not_searched_from() -> None:
    bench = Bench(kernels.rows(8, 40))

    def measure(steps: Steps, enough: float) -> float:
        raise DeviceError("it hangs")

    bench.trials.measure = measure
    assert bench.search() == schedule_of(bench.sink, CPU)
    assert len(bench.trials.done) == 1


def test_slow_candidates_may_be_broken_off() -> None:
    """`measure` is told how long is long enough: a few times the best so far."""
    bench = Bench(kernels.rows(8, 40))
    limits = []

    def measure(steps: Steps, enough: float) -> float:
        limits.append(enough)
        return 2.0

    bench.trials.measure = measure
    bench.search()
    assert limits[0] == float("inf")
    assert set(limits[1:]) == {6.0}


# ---- E02: one bad choice must not end everything

SMALL = replace(LANES32, local_bytes=48 << 10, threads_per_group=1024, max_buffers=31)
MATMUL = kernels.matmul(64, 64, 256)
STAGED: tuple[Action, ...] = (
    Split("i", 2, AxisKind.UNROLL),
    Split("j", 2, AxisKind.UNROLL),
    Grid("i.o", 32),
    Grid("j.o", 32),
    Stage(1),
    Stage(2),
)
CROWDED: tuple[Action, ...] = (Grid("i", 64), Grid("j", 64))
LEGAL: tuple[Action, ...] = (Grid("i", 8), Grid("j", 8))


def test_candidates_over_a_limit_are_skipped_with_what_they_need() -> None:
    bench = Bench(MATMUL, SMALL)
    best = fastest([STAGED, CROWDED, LEGAL], bench.trials)
    assert best.steps == LEGAL
    memory, threads = [t.reason for t in bench.trials.done if t.seconds is None]
    assert "131072 bytes of group memory, where 49152 is the most" in memory
    assert "4096 threads" in threads
    assert "1024" in threads


def test_the_legal_candidate_gives_the_right_result() -> None:
    sink = kernels.matmul(16, 16, 8)
    made = lower(with_schedule(sink, LEGAL), SMALL)
    memory = fill(sink)
    assert interpret(made, memory) == expected(sink, memory)


def test_where_all_candidates_are_bad_the_error_names_each_with_its_need() -> None:
    bench = Bench(MATMUL, SMALL)
    with pytest.raises(OpgraftError, match="no schedule of the list runs") as caught:
        fastest([STAGED, CROWDED], bench.trials)
    text = str(caught.value)
    for words in ("Stage(1", "131072 bytes", "49152", 'Grid("i", 64)', "4096 threads", "1024"):
        assert words in text


def test_buffers_of_a_processor_s_kernel_stay_within_its_memory_too() -> None:
    target = replace(CPU, local_bytes=48 << 10)
    bench = Bench(kernels.matmul(64, 64, 256), target)
    packed: tuple[Action, ...] = (Tile((("i", 4, 1), ("j", 1, 8))), Pack(("j.v",)))
    best = fastest([packed, (Parallel("i"),)], bench.trials)
    assert best.steps == (Parallel("i"),)
    assert "65536 bytes of local memory, where 49152 is the most" in bench.trials.done[0].reason
    with pytest.raises(LoweringError):
        bench.trials.make(packed)


def test_a_search_looks_ahead_and_keeps_that_last() -> None:
    sink = prepared(kernels.gather(40, 10, 16))
    plain = (Split("j", 8, AxisKind.VECTOR), Parallel("i"))
    assert (*plain, Prefetch("i", 8)) in list(changed(sink, CPU, plain))
    others = list(changed(sink, CPU, (*plain, Prefetch("i", 8))))
    assert (*plain, Prefetch("i", 4)) in others
    assert (*plain, Prefetch("i", 16)) in others
    assert plain in others
    assert (Split("j", 4, AxisKind.VECTOR), Parallel("i"), Prefetch("i", 8)) in others
