"""The way of a kernel, from what an array program asks for to a list of instructions.

Each pass is a file of this folder whose docstring says what holds before and after it.
"""

from __future__ import annotations

from dataclasses import replace

from opgraft import settings
from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir.launch import over_limits
from opgraft.ir.linear import Launch, LinearProgram
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.ir.rewrite import graph_rewrite
from opgraft.ir.spec import check
from opgraft.ir.uop import UOp
from opgraft.lower.barriers import place_barriers
from opgraft.lower.decompose import decompositions, split_wide_integers
from opgraft.lower.expand import expand
from opgraft.lower.grid import launch_grid
from opgraft.lower.group_reduce import reduce_in_groups
from opgraft.lower.index import lower_index
from opgraft.lower.linearize import linearize
from opgraft.lower.narrow_sums import narrow_sums
from opgraft.lower.nest import flatten_effects, nest_effects
from opgraft.lower.order import check_updates, order_effects
from opgraft.lower.prefetch import drop_prefetches
from opgraft.lower.shuffles import shuffle_lanes
from opgraft.lower.widen import widen_accumulators
from opgraft.opt.actions import Action
from opgraft.opt.heuristic import choose, schedule
from opgraft.opt.pad import gate_guards
from opgraft.opt.threads import has_group_memory, shared_slots
from opgraft.rules.optimizer import CostModel
from opgraft.rules.sets import symbolic_simple
from opgraft.rules.simplify import simplify, tidy
from opgraft.target import Target


def lower(sink: UOp, target: Target, *, extra: PatternMatcher | None = None) -> LinearProgram:
    """The kernel as instructions that a renderer for `target` prints.

    `extra` holds a renderer's own rewrites, done last. Raises SpecError for a graph that is not
    a kernel, LoweringError for one that the target can't run.
    """
    watch = bool(settings.SPEC)
    if watch:
        check(sink, "kernel")
    given = sink
    sink = drop_prefetches(schedule(prepared(sink), target), target)
    check_updates(sink)
    shared = shared_slots(sink) if target.group_dims else frozenset()
    sink = shuffle_lanes(expand(sink, target, tidy), target)
    # the two tiers of an optimizer: last, since greedy rewriting would undo what they choose
    cost = CostModel(target=target)
    sink = simplify(sink, stage="scalar", cost=cost)
    sink = simplify(sink, stage="index", cost=cost)
    together = bool(shared) or has_group_memory(sink)
    sink = reduce_in_groups(gate_guards(sink) if together else sink)
    sink, launch = launch_grid(sink, target, together)
    sink = lower_index(sink)
    sink = graph_rewrite(sink, decompositions(target), name="decompose")
    sink = graph_rewrite(sink, symbolic_simple, name="tidy")
    if extra is not None:
        sink = graph_rewrite(sink, extra, name="renderer's own")
    if watch:
        # 64-bit integers leave last, where the target has none: only then does all of it fit
        check(sink, "lowered", target if dtypes.int64 in target.compute else None)
    program = _with_all_params(linearize(flatten_effects(sink), target.fma), given)
    program = place_barriers(_with_launch(program, launch, target), shared)
    program = split_wide_integers(program, target)
    if watch:
        check(program, "linear", target)
    return program


def prepared(sink: UOp) -> UOp:
    """The kernel as the scheduler gets it: effects in order, wide accumulators, simplified."""
    sink = narrow_sums(widen_accumulators(nest_effects(order_effects(sink))))
    return flatten_effects(tidy(sink))


def schedule_of(sink: UOp, target: Target) -> tuple[Action, ...]:
    """The schedule that `lower` gives a kernel. As the kernel's own (`KernelInfo.schedule`) it
    makes the same program."""
    return choose(prepared(sink), target)


def _with_launch(program: LinearProgram, launch: Launch, target: Target) -> LinearProgram:
    """The program with its launch, numbers of groups that variables decide in a fixed width."""
    groups, threads = launch
    counts = tuple(n if isinstance(n, int) else lower_index(n) for n in groups)
    variables = dict.fromkeys(program.variables)
    for count in counts:
        if isinstance(count, UOp):
            variables.update((n, None) for n in count.toposort() if n.op is Ops.VAR)
    made = replace(
        program,
        launch=(counts, threads),
        variables=tuple(sorted(variables, key=lambda n: n.arg[0])),
    )
    exceeded = over_limits(made, target) if groups else ()
    if exceeded:
        raise LoweringError(f"kernel {program.name} needs {'; '.join(exceeded)} on {target.name}")
    return made


def _with_all_params(program: LinearProgram, given: UOp) -> LinearProgram:
    """The program with every PARAM of the kernel as it was given: callers hand over a buffer for
    each, also for one whose reads were simplified away."""
    by_slot = {n.arg[0]: n for n in given.toposort() if n.op is Ops.PARAM}
    by_slot |= {p.arg[0]: p for p in program.params}
    if len(by_slot) == len(program.params):
        return program
    return replace(program, params=tuple([by_slot[slot] for slot in sorted(by_slot)]))
