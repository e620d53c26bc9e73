"""The kit's tables are whole: every operation, dtype, action and reduction has its rows.

And what they are measured by is right: the exact functions, the comparison, the cutting down.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from opgraft.api import CompilerPair, CompilerSet, Target, compile_kernel, using
from opgraft.devices.interp.device import TARGET, InterpDevice
from opgraft.devices.invented import TextRenderer
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError
from opgraft.ir.laws import broken_law
from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.spec import check as check_spec
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Fuse, Refused, Split, apply_all
from opgraft.opt.grid_actions import Grid, GroupReduce
from opgraft.opt.tile import Tile
from opgraft_conformance import (
    elementary,
    exact,
    expressions,
    kernels,
    operations,
    programs,
    random_kernels,
    random_tensors,
    reductions,
    schedules,
)
from opgraft_conformance.comparison import differ
from opgraft_conformance.execution import execute
from opgraft_conformance.fault import Fault
from opgraft_conformance.opening import target_of
from opgraft_conformance.values import column, edges, shown, value


def is_legal(op: Ops, sources: tuple, dtype) -> bool:
    operands = tuple(UOp.variable(f"x{k}", s.min, s.max, s) for k, s in enumerate(sources))
    return broken_law(UOp(op, dtype, operands)) is None


def test_every_operation_has_a_row_on_every_dtype_on_which_it_is_legal() -> None:
    rows = {
        (row.op, row.sources, row.dtype)
        for batch in (*operations.batches(), *operations.machine_batches())
        for row in batch.rows
    }
    rows |= {(op, (d,), d) for op in elementary.OPS for d in dtypes.floats}
    missing = []
    for op in sorted(GroupOp.ALU):
        count = 1 if op in GroupOp.UNARY else 2 if op in GroupOp.BINARY else 3
        for source, dtype in itertools.product(dtypes.all, dtypes.all):
            sources = (dtypes.bool, source, source) if op is Ops.WHERE else (source,) * count
            same = op in (Ops.CAST, Ops.BITCAST) and source is dtype
            if is_legal(op, sources, dtype) and not same and (op, sources, dtype) not in rows:
                missing.append(f"{op.name} of {source} to {dtype}")
    assert not missing


def test_every_reduction_has_a_row() -> None:
    for dtype in dtypes.all:
        legal = [
            op
            for op in sorted(GroupOp.REDUCING)
            if not dtype.is_float or op not in (Ops.AND, Ops.OR)
        ]
        assert sorted(reductions.ops_of(dtype)) == legal


def test_every_action_of_the_scheduler_has_trials() -> None:
    assert schedules.without_trials() == []


def test_an_action_without_trials_is_noticed() -> None:
    class Untried(Action):
        def change(self, sink: UOp) -> UOp:
            return sink

    assert schedules.without_trials() == ["Untried"]
    del Untried
    import gc

    gc.collect()  # or the class would stay among the subclasses
    assert schedules.without_trials() == []


def test_every_kernel_of_the_kit_is_legal() -> None:
    for name, make in {**kernels.MOVES, **kernels.SHAPES}.items():
        for dtype in (dtypes.bool, dtypes.int8, dtypes.float16):
            if name in kernels.MOVES or not dtype.is_bool:
                check_spec(make(dtype), "kernel")


@pytest.mark.parametrize("name", programs.names())
def test_every_program_is_legal(name: str) -> None:
    check_spec(programs.program(name), "linear")


def test_what_a_program_needs_is_read_off_it() -> None:
    def lacks(name: str, target: Target) -> str:
        return programs.lacks(programs.program(name), target)

    grid = Target("MINE", group_dims=1, threads_per_group=64, max_lanes=4)
    assert lacks("grid", Target("MINE")) == "MINE launches no grids"
    assert lacks("group_sum", grid) == ""
    assert lacks("grid_of_two", grid) == "MINE launches grids of 1 dimensions"
    few = Target("MINE", group_dims=3, threads_per_group=16)
    assert lacks("group_sum", few) == "MINE has 16 threads to a group"
    small = Target("MINE", group_dims=3, threads_per_group=64, local_bytes=64)
    assert lacks("group_sum", small) == "MINE has 64 bytes of memory inside a kernel"
    assert lacks("vector_lanes", Target("MINE", vector_bytes=0)) == "MINE has no vectors of 4 lanes"
    assert lacks("vector_indices", grid) == "MINE takes no vectors of indices"
    whole = Target("MINE", compute=frozenset(dtypes.ints) | {dtypes.bool})
    assert lacks("vector_lanes", whole) == "MINE does not compute in float32"
    atomic = programs.filled_in("atomic", dtypes.int32, Ops.ADD)
    assert programs.lacks(atomic, grid) == "MINE has no atomic ADD of int32"


# ---- values and comparison


def test_edges_hold_what_operations_get_wrong() -> None:
    for dtype in dtypes.floats:
        held = edges(dtype)
        words = column(held, dtype)
        assert len(set(words.tolist())) > 25
        assert any(v == 0 and math.copysign(1, v) < 0 for v in held)
        assert any(v != v for v in held)
        assert math.inf in held
        assert [value(w, dtype) for w in words[:-1]] == held[:-1]
    assert {-128, 127, -1, 0, 8} <= set(edges(dtypes.int8))


def test_nan_equals_nan_and_zeros_differ() -> None:
    quiet, other = 0x7FC00000, 0xFFC00001
    found = np.array([quiet, 0x80000000, 0x3F800000], np.uint32)
    wanted = np.array([other, 0x00000000, 0x3F800000], np.uint32)
    assert differ(found, wanted, dtypes.float32).tolist() == [False, True, False]
    assert differ(found[:1], wanted[:1], dtypes.uint32).tolist() == [True]


def test_values_are_shown_so_that_nothing_is_hidden() -> None:
    assert shown(0x80000000, dtypes.float32) == "-0.0 (0x80000000)"
    assert shown(255, dtypes.int8) == "-1"
    assert shown(2, dtypes.bool) == "the byte 2, which is no bool"


@pytest.mark.parametrize("op", elementary.OPS, ids=lambda op: op.name)
def test_the_exact_functions_are_exact(op: Ops) -> None:
    """mpmath says so, with 3,000 bits."""
    with mpmath.workprec(3000):
        for dtype in (dtypes.float16, dtypes.float64):
            for x in elementary.arguments(op, dtype):
                if elementary.special(op, x) is not None or (
                    op in (Ops.EXP, Ops.EXP2) and abs(x) > 2000
                ):
                    continue
                got = exact.FUNCTIONS[op.name](float(x))
                point = mpmath.mpf(x)
                wanted = {
                    Ops.EXP: lambda: mpmath.exp(point),  # noqa: B023
                    Ops.EXP2: lambda: mpmath.mpf(2) ** point,  # noqa: B023
                    Ops.LOG2: lambda: mpmath.log(point, 2),  # noqa: B023
                    Ops.SIN: lambda: mpmath.sin(point),  # noqa: B023
                }[op]()
                off = abs((mpmath.mpf(got.numerator) / got.denominator - wanted) / wanted)
                assert off < mpmath.mpf(2) ** -150, x


@pytest.mark.parametrize(
    ("found", "wanted", "units"),
    [(1.0, 1.0, 0.0), (1.0 + 2**-22, 1.0, 2.0), (2.0**-149, 0.0, 1.0), (math.inf, 2.0**128, 0.0),
     (math.inf, 2.0**128 - 2.0**104, 1.0), (math.nan, 1.0, math.inf)],
)  # fmt: skip
def test_units_in_the_last_place(found: float, wanted: float, units: float) -> None:
    exactly = exact.Fraction(wanted)
    assert elementary.error(found, exactly, dtypes.float32) == units


# ---- chance


def test_a_seed_gives_the_same_kernel_and_program() -> None:
    for seed in range(20):
        first, again = (random_kernels.random_kernel(seed, TARGET) for _ in range(2))
        assert first is again
        check_spec(first, "kernel")
    one, two = (random_tensors.random_program(7).source("CPU") for _ in range(2))
    assert one == two
    compile(one, "program", "exec")


def test_random_kernels_hold_every_operation_sooner_or_later() -> None:
    nodes = [n for s in range(150) for n in random_kernels.random_kernel(s, TARGET).toposort()]
    ops = {n.op for n in nodes}
    never = {Ops.MULACC, Ops.CDIV, Ops.CMOD, Ops.THREEFRY, Ops.BITCAST} | GroupOp.ELEMENTARY
    assert ops >= GroupOp.ALU - never
    assert ops >= {Ops.REDUCE, Ops.SCAN}
    assert {n.dtype for n in nodes} >= set(dtypes.all) - {dtypes.uint16}


def test_random_kernels_keep_to_what_the_target_has() -> None:
    target = Target("MINE", compute=frozenset({dtypes.float32, dtypes.int32}), max_buffers=4)
    for seed in range(40):
        sink = random_kernels.random_kernel(seed, target)
        params = [n for n in sink.toposort() if n.op is Ops.PARAM]
        assert len(params) <= 4
        assert all(n.dtype is not dtypes.float64 for n in sink.toposort())


def test_a_random_kernel_is_cut_down_to_what_fails() -> None:
    def fails(sink: UOp) -> bool:
        return any(n.op is Ops.SQRT for n in sink.toposort())

    seed = next(s for s in range(100) if fails(random_kernels.random_kernel(s, TARGET)))
    large = random_kernels.random_kernel(seed, TARGET)
    small = random_kernels.shrunk(large, fails)
    assert fails(small)
    assert len(small.toposort()) < len(large.toposort())
    assert len(small.toposort()) < 20
    check_spec(small, "kernel")


def test_a_random_kernel_that_fails_is_told_with_seed_and_text() -> None:
    class NoRoots(TextRenderer):
        def render(self, program):
            if any(n.op is Ops.SQRT for n in program.instructions):
                raise DeviceError("no roots here")
            return super().render(program)

    device = InterpDevice()
    device.pairs = CompilerSet("INTERP", TARGET, [CompilerPair("NOROOTS", "INTERP", NoRoots)])
    has = lambda s: any(n.op is Ops.SQRT for n in s.toposort())  # noqa: E731
    sink = next(k for k in (random_kernels.random_kernel(s, TARGET) for s in range(99)) if has(k))
    with pytest.raises(Fault, match=r"seed: +seed 5[\s\S]*= sqrt\([\s\S]*no roots here"):
        random_kernels.check(device, InterpDevice(), sink, "seed 5")


def test_a_random_kernel_is_never_cut_down_to_one_that_is_wrong_itself() -> None:
    """A load without its gate reads beyond its buffer: that is an error of INTERP's, too."""

    class NoGates(TextRenderer):
        def render(self, program):
            if any(n.op is Ops.LOAD and len(n.src) > 2 for n in program.instructions):
                raise DeviceError("no gates here")
            return super().render(program)

    device = InterpDevice()
    device.pairs = CompilerSet("INTERP", TARGET, [CompilerPair("NOGATES", "INTERP", NoGates)])
    gated = lambda s: [n for n in s.toposort() if n.op is Ops.LOAD and len(n.src) > 2]  # noqa: E731
    kernels = (random_kernels.random_kernel(s, TARGET) for s in range(99))
    for sink, _ in zip(filter(gated, kernels), range(3)):
        with pytest.raises(Fault, match="no gates here") as raised:
            random_kernels.check(device, InterpDevice(), sink, "seed")
        assert "touches element" not in str(raised.value)


def test_a_random_tensor_program_is_cut_down_to_what_fails() -> None:
    lines = [random_tensors.Line(f"v{k}", text) for k, text in enumerate(
        ["v0 = Tensor([1, 2], device=DEVICE)", "v1 = v0 + 1", "v2 = v0 * 3", "v3 = v2 - 1"]
    )]  # fmt: skip
    made = random_tensors.Program(0, lines, ["v3"])
    small = random_tensors.shrunk(made, lambda p: any("* 3" in line.text for line in p.lines))
    assert [line.name for line in small.lines] == ["v0", "v2"]
    assert small.outputs == ["v2"]


def test_random_schedules_are_of_many_kinds() -> None:
    kinds = set()
    for seed in range(25):
        trial = schedules.random_trial(TARGET, seed)
        kinds |= {type(action) for action in trial.actions}
    assert len(kinds) > 6


# ---- borders


def test_a_store_behind_the_end_of_a_buffer_is_a_fault() -> None:
    out = kernels.param(0, 8, dtypes.int32)
    sink = kernels.kernel("longer", out.store(7, UOp.const(dtypes.int32, 1)))
    device = InterpDevice()

    made = compile_kernel(device, sink)
    with pytest.raises(Fault, match=r"wrote behind the end of a buffer[\s\S]*byte 28, element 7"):
        execute(device, _Longer(made), {0: column([0] * 7, dtypes.int32)})


class _Longer:
    """An executable whose kernel takes its buffers for longer than they are."""

    def __init__(self, inner):
        self.program = inner.program
        self.run = inner.run


def test_expressions_have_hints_where_compilers_are_to_blame() -> None:
    for dtype in (dtypes.float32, dtypes.int8):
        names = list(expressions.expressions(dtype))
        assert all(expressions.hint(dtype, n) for n in names if "max" not in n) or dtype.is_float
    assert "contraction" in expressions.hint(dtypes.float32, "a * b + a")


def test_every_number_of_lanes_has_rows_in_each_dtype_family() -> None:
    forms = operations.vector_forms(Target("MINE", vector_bytes=32, max_lanes=64), dtypes.int8)
    assert [form.lanes for form in forms] == [2, 4, 8, 16, 32, 64]
    chosen = [operations.some_of(forms, batch) for batch in operations.batches()]
    for form in forms:
        assert sum(form in some for some in chosen) > 5
    assert all(1 <= len(some) <= 2 for some in chosen)


@pytest.mark.parametrize("pair", ["", "LANES32", "LANES64"])
def test_what_the_scheduler_makes_of_random_schedules_is_right(pair: str) -> None:
    """INTERP carries out what is lowered for a target; a fault here is the core's."""
    reference = InterpDevice()
    with using(INTERP_CC=pair):
        target = target_of(reference)
    for seed in range(8):
        trial = schedules.random_trial(target, seed)
        assert schedules.is_sound(reference, trial, target), trial


SPLIT_GROUPS = (Grid("j", 4), Split("j.g", 2))
FOUND = {
    "extents that depend on a split loop": ("rows", SPLIT_GROUPS, dtypes.int32),
    "loads of two effects, one of them guarded": (
        "rows",
        (*SPLIT_GROUPS, Tile((("i", 2, 2),))),
        dtypes.int32,
    ),
    "lanes that are joined by threads": (
        "row_sums",
        (Grid("i"), Split("k", 2, AxisKind.VECTOR), GroupReduce("k.o", 8)),
        dtypes.float32,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_schedules_that_the_kit_found_wrong_stay_right(name: str) -> None:
    reference = InterpDevice()
    with using(INTERP_CC="LANES64"):
        target = target_of(reference)
    assert schedules.is_sound(reference, schedules.Trial(*FOUND[name]), target)


@pytest.mark.parametrize(
    ("kernel", "actions"),
    [
        ("by_way_of_a_local", (Tile((("i", 1, 2),)),)),
        ("scattered", (Split("i", 4), Fuse("i.t", "i.t"))),
    ],
)
def test_schedules_that_the_kit_found_wrong_are_refused(
    kernel: str, actions: tuple[Action, ...]
) -> None:
    with pytest.raises(Refused):
        apply_all(schedules.Trial(kernel, actions).meaning(), actions)
