"""Copies that turn an array, on a device that launches groups of threads.

Neighbouring threads store neighbours, so what they load lies far apart. A group takes a square of
results: its threads load the square as it lies, keep it in group memory, and read it there the
other way round.
"""

from __future__ import annotations

from typing import Final

from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Fuse, Refused
from opgraft.opt.axes import Access, Kernel, buffer_of, constant_extent
from opgraft.opt.grid_actions import Grid, Stage
from opgraft.opt.grid_products import RESIDENT, Product, Tiling, group_bytes
from opgraft.target import Target

_SIDES: Final = (32, 16)
"""Results along each side of a square, as many as there is room for, ..."""
_THREADS: Final = 256
"""... and the threads that share it."""
_LEAST: Final = 8
"""Loops shorter than this are not worth a square."""


def turn_on_grid(sink: UOp, free: list[UOp], target: Target) -> UOp | None:
    """The kernel by squares; None where nothing that it loads is turned."""
    kernel = Kernel(sink)
    if len(kernel.effects) != 1 or kernel.reduces or kernel.has_locals or len(free) < 2:
        return None
    if any(n.op is Ops.SCAN for n in kernel.nodes):
        return None
    across = free[-1]
    stored = [a for a in kernel.accesses if a.node.op is not Ops.LOAD]
    if any(a.stride(across) != 1 for a in stored) or (constant_extent(across) or 0) < _LEAST:
        return None
    for down in reversed(free[:-1]):
        turned = [a for a in kernel.accesses if _is_turned(a, down, across)]
        if not turned or (constant_extent(down) or 0) < _LEAST:
            continue
        slots = dict.fromkeys(buffer_of(a.node.src[0]).arg[0] for a in turned)
        widest = max(a.itemsize for a in turned)
        found = Product(down, across, across, tuple(slots), widest)
        for side in _SIDES:
            try:
                return _Turn(sink, free, found, target).squares(side)
            except Refused:
                continue
    return None


def _is_turned(access: Access, down: UOp, across: UOp) -> bool:
    """Whether a LOAD has neighbours along `down`, and others far away along `across`."""
    far = access.stride(across)
    return access.node.op is Ops.LOAD and access.stride(down) == 1 and far is not None and far > 1


class _Turn(Tiling):
    """The actions one by one; see `Tiling`."""

    def squares(self, side: int) -> UOp:
        target, found = self.target, self.found
        most = min(_THREADS, target.threads_per_group)
        lanes = min(side, most)
        rows = min(side, most // lanes)
        below, row = self.divide(found.rows.arg[0], side, rows, side // rows, AxisKind.UNROLL)
        beside, column = self.divide(
            found.columns.arg[0], side, lanes, side // lanes, AxisKind.UNROLL
        )
        groups = [name for name in (beside, below) if name is not None]
        for name in groups:
            self.apply(Grid(name))
        self.spread_others(target.group_dims - len(groups))
        for slot in found.slots:
            self.apply(Stage(slot, "", 1))
        if group_bytes(self.sink) > target.local_bytes // RESIDENT:
            raise Refused("the squares do not fit group memory")
        self.apply(Fuse(row, column))
        return self.sink
