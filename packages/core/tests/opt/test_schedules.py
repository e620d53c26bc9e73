"""The schedule that the heuristic chooses is a value: it prints, parses, and can be replayed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_forms import kernels
from opgraft import dtypes, using
from opgraft.devices.invented import LANES32
from opgraft.errors import OpgraftError
from opgraft.ir import UOp
from opgraft.ir.text import linear_to_text, parse, to_text
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.actions import Action, Fuse, Parallel, Split
from opgraft.opt.grid_actions import GroupReduce
from opgraft.opt.notes import noting
from opgraft.target import Target

CPU = Target("test", fma=frozenset((dtypes.float32,)), vector_bytes=32, cores=4)
CORES = Target("cores", vector_bytes=32, cores=2, group_dims=1)
TARGETS = [CPU, CORES, LANES32]
LARGE = {
    "matmul_tiled": lambda: kernels.matmul(96, 80, 40),
    "matmul_odd": lambda: kernels.matmul(61, 83, 37),
    "column_sums": lambda: kernels.column_max(96, 600),
    "transposed_blocks": lambda: kernels.transposed(70, 90),
    "convolution_tiled": lambda: kernels.convolution(16, 64, 3),
    "long_rows": lambda: kernels.normalised_rows(8, 256),
}
KERNELS = {**kernels.NAMED, **LARGE}


def with_schedule(sink: UOp, steps: tuple[Action, ...]) -> UOp:
    return sink.replace(arg=replace(sink.arg, schedule=steps))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", KERNELS)
def test_what_was_chosen_gives_the_same_program_again(name: str, target: Target) -> None:
    sink = KERNELS[name]()
    with using(OPTIMIZER="greedy"):
        chosen = with_schedule(sink, schedule_of(sink, target))
        again = parse(to_text(chosen))
        assert again is chosen
        assert linear_to_text(lower(again, target)) == linear_to_text(lower(sink, target))


def test_a_schedule_has_the_steps_that_were_kept_and_no_other() -> None:
    """fuse_outputs tries to join the loops of a transposed copy, and drops the result."""
    steps = schedule_of(kernels.transposed(2048, 2048), CPU)
    assert not any(isinstance(step, Fuse) for step in steps)
    assert any(isinstance(step, Parallel) for step in steps)


def test_notes_tell_the_way_from_one_kernel_to_another() -> None:
    sink = kernels.rows(8, 16)
    first, second = Split("i", 4), Split("j", 8)
    with noting() as notes:
        halfway = first.apply(sink)
        Split("j", 2).apply(halfway)  # not kept
        end = second.apply(halfway)
    assert notes.between(sink, end) == (first, second)
    assert notes.between(halfway, end) == (second,)
    assert notes.between(end, end) == ()


def test_an_action_that_works_by_another_is_noted_as_one_step() -> None:
    sink = kernels.row_sum(4, 64)
    with noting() as notes:
        made = GroupReduce("k", 8).apply(sink)
    (step,) = notes.between(sink, made)
    assert step.apply(sink) is made


def test_a_change_that_is_no_action_is_reported() -> None:
    sink = kernels.rows()
    other = kernels.rows(4, 4)
    with noting() as notes, pytest.raises(OpgraftError, match="no action"):
        notes.between(sink, other)
