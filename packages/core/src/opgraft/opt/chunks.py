"""The parallel loop of a kernel in few pieces, for launches on cores that have no lanes.

Such a core (`target.lanes` is 1: a processor's, say) carries out one thread at a time, by vectors
of its own. It does best with long walks through neighbouring iterations: a group for each
iteration would cost more than the iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.ops import AxisKind
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused
from opgraft.opt.axes import Kernel
from opgraft.opt.grid_actions import outermost, rename_symbolic
from opgraft.target import Target

_PIECES: Final = 8
"""For each core: so many that one that is late keeps the others waiting for little."""


def in_chunks(sink: UOp, target: Target) -> UOp:
    """The kernel with as many groups as keep the cores busy, each of one thread that loops."""
    return InChunks(_PIECES * target.cores).apply(sink)


@writable_as_text
@dataclass(frozen=True)
class InChunks(Action):
    """Parallel ranges of more than `most` iterations become ranges of at most so many chunks,
    NAME.g, and of the iterations of a chunk, NAME.i."""

    most: int

    def change(self, sink: UOp) -> UOp:
        if self.most < 2:
            raise Refused(f"a range of {self.most} chunks is nothing to share")
        for loop in Kernel(sink).ranges:
            size = loop.src[0]
            if loop.arg[1] is not AxisKind.PARALLEL or size.vmax <= self.most:
                continue
            kernel = Kernel(sink)
            each = (size + (self.most - 1)) // self.most
            count, known = self.most, size.const_value
            if known is not None:
                count = -(-int(known) // -(-int(known) // self.most))
            group = rename_symbolic(kernel, loop, ".g", AxisKind.PARALLEL, size.const_like(count))
            inner = rename_symbolic(kernel, loop, ".i", AxisKind.LOOP, each)
            index = group * each + inner
            instead = [group, inner]
            if not (index < size).vmin:
                instead.append(UOp.range((index < size).cast(dtypes.index), f"{loop.arg[0]}.w"))
            sink = outermost(sink, loop, *instead, index=index)
        return sink
