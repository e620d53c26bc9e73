"""Random schedules, sensible or not, on kernels of all forms.

`python -m kernel_forms.random_schedules --seeds 0:500` tries that many. Each action is legal, or
refused with a reason. The graph after all that are legal gives what the kernel did, loop by loop,
and so does the program that it is lowered to, carried out by the interpreter.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from opgraft import using
from opgraft.devices.invented import LANES32
from opgraft.errors import LoweringError
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.text import parse, to_text
from opgraft.lower.pipeline import lower, prepared
from opgraft.opt.accumulate import Accumulate
from opgraft.opt.actions import (
    Action,
    Fuse,
    Innermost,
    Parallel,
    Partition,
    Refused,
    Split,
    Unroll,
)
from opgraft.opt.ahead import FetchAhead
from opgraft.opt.axes import Kernel
from opgraft.opt.bit_order import BitOrder
from opgraft.opt.blocks import Blocks, SumInBlocks
from opgraft.opt.chunks import InChunks
from opgraft.opt.cover import Cover
from opgraft.opt.distribute import Distribute
from opgraft.opt.fold import Fold
from opgraft.opt.grid_actions import Grid, GroupReduce, Pad, Stage
from opgraft.opt.grid_scan import GroupScan
from opgraft.opt.inline import Inline
from opgraft.opt.next_row import FetchNext
from opgraft.opt.pack import Pack
from opgraft.opt.partial import Partial
from opgraft.opt.prefetch import Prefetch
from opgraft.opt.reuse import Reuse
from opgraft.opt.scan import ScanLanes
from opgraft.opt.separate import SeparateReduces
from opgraft.opt.stores import Stream
from opgraft.opt.tile import Outermost, Tile
from opgraft.target import Target

from . import kernels
from .execute import interpret
from .memory import expected, fill
from .random_kernels import AnyKernel
from .seeds import try_seeds

CORES: Final = Target("cores", vector_bytes=32, vector_registers=16, cores=2)
_TRIED: Final = 40
"""Actions that are proposed before a schedule is taken as short as it is."""
_LONGEST: Final = 6
_KINDS: Final = (
    AxisKind.LOOP, AxisKind.LOOP, AxisKind.VECTOR, AxisKind.VECTOR, AxisKind.UNROLL,
    AxisKind.REDUCE, AxisKind.THREAD, AxisKind.PARALLEL,
)  # fmt: skip


class AnySchedule:
    """Draws a kernel and the actions of a schedule. The same seed gives the same in every process.

    `sink` is the kernel, `steps` its schedule, `made` the graph after it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sink = self._kernel(seed)
        self.made = prepared(self.sink)
        self.steps: tuple[Action, ...] = ()
        self.tried: Action | None = None

    def draw(self) -> None:
        """Take actions, those that are legal, until there are enough of them."""
        wanted = self.random.randint(1, _LONGEST)
        for _ in range(_TRIED):
            self.tried = self._action(Kernel(self.made))
            try:
                made = self.tried.apply(self.made)
            except Refused as refused:
                if not refused.message.strip():
                    raise ValueError("it is refused without a reason") from refused
                continue
            if made is not self.made:
                self.made, self.steps = made, (*self.steps, self.tried)
            if len(self.steps) == wanted:
                break
        self.tried = None

    def _kernel(self, seed: int) -> UOp:
        if self.random.random() < 0.35:
            sink = AnyKernel(seed).make().sink
            if not any(n.op is Ops.VAR for n in sink.toposort()):
                return sink
        return kernels.NAMED[self.random.choice(list(kernels.NAMED))]()

    def _action(self, kernel: Kernel) -> Action:
        pick = self.random
        names: list[object] = [r.arg[0] for r in kernel.ranges] or ["none"]
        locals_ = [str(n.arg[0]) for n in kernel.nodes if n.op is Ops.LOCAL] or ["none"]
        loop = kernel.find(name := pick.choice(names))
        size = 5 if loop is None else int(min(loop.src[0].vmax, 64))
        begin, end = sorted((pick.randint(0, size), pick.randint(0, size)))
        other, factor = pick.choice(names), pick.choice((1, 2, 2, 3, 4, 4, 5, 8, 16))
        few, slot = pick.choice((1, 1, 2, 3, 4)), pick.randint(0, 3)
        buffer, beside = pick.choice(locals_), pick.choice(locals_)

        def some() -> tuple[object, ...]:
            return tuple(pick.sample(names, min(len(names), pick.randint(1, 3))))

        drawn: tuple[Callable[[], Action], ...] = (
            lambda: Split(name, factor, pick.choice(_KINDS)),
            lambda: Split(name, factor, pick.choice(_KINDS)),
            lambda: Partition(name, begin, end),
            lambda: Unroll(name),
            lambda: Fuse(name, other),
            lambda: Parallel(name),
            lambda: Innermost(name),
            lambda: Outermost(some()),
            lambda: Accumulate(name, other, factor),
            lambda: BitOrder(),
            lambda: Blocks(name, factor),
            lambda: SumInBlocks(name, some()),
            lambda: InChunks(factor),
            lambda: Cover(name, factor, few),
            lambda: Fold(name, factor, few),
            lambda: Distribute(name),
            lambda: Grid(name, factor),
            lambda: Grid(name),
            lambda: GroupReduce(name, factor),
            lambda: GroupScan(name, factor),
            lambda: Pad(name, factor),
            lambda: Stage(slot, pick.choice(("", name)), pick.choice((0, 1))),
            lambda: Inline(buffer),
            lambda: Reuse(buffer, beside),
            lambda: Pack(some(), some() if few > 1 else ()),
            lambda: Partial(name, factor),
            lambda: Prefetch(name, factor),
            lambda: FetchAhead(buffer, name),
            lambda: FetchNext(slot, name),
            lambda: ScanLanes(name, factor),
            lambda: SeparateReduces(),
            lambda: Stream(slot),
            lambda: Tile(
                tuple((n, pick.choice((1, 2, 3)), pick.choice((1, 1, 2, 4))) for n in some())
            ),
        )
        return pick.choice(drawn)()


def compare(seed: int) -> str:
    """What is wrong with a schedule; empty if nothing is."""
    with using(OPTIMIZER="greedy", SPEC=True):
        given = AnySchedule(seed)
        try:
            given.draw()
            told = _difference(given)
        except Exception as error:  # of whatever kind: it is told with the actions that led to it
            told = f"{type(error).__name__}: {error}"
    steps = given.steps if given.tried is None else (*given.steps, given.tried)
    return f"{given.sink.arg.name}, {steps}: {told}" if told else ""


def _difference(given: AnySchedule) -> str:
    sink = given.sink.replace(arg=replace(given.sink.arg, schedule=given.steps))
    if parse(to_text(sink)) is not sink:
        return "its text is another schedule"
    memory = fill(sink)
    wanted = expected(sink, memory)
    if expected(given.made, memory) != wanted:
        return "the graph has another meaning"
    kinds = {r.arg[1] for r in Kernel(given.made).ranges}
    for target in (LANES32,) if AxisKind.THREAD in kinds else (CORES, LANES32):
        try:
            program = lower(sink, target)
        except LoweringError:
            continue  # what a target can't run
        if interpret(program, memory) != wanted:
            return f"it has another meaning on {target.name}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:500")
    first, last = map(int, parser.parse_args(arguments).seeds.split(":"))
    return 1 if try_seeds(range(first, last), compare, what="schedules") else 0


if __name__ == "__main__":
    sys.exit(main())
