"""`SeparateReduces`: reductions that stand in different loops get ranges of their own."""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, keep_extents
from opgraft.opt.axes import Kernel, fresh


@writable_as_text
@dataclass(frozen=True)
class SeparateReduces(Action):
    """REDUCEs that share a range but stand in different loops get ranges of their own, NAME_1 and
    so on. Those in the same loops keep sharing theirs, so that they can run as one loop."""

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        users: dict[UOp, dict[frozenset[UOp], int]] = {}
        done: dict[UOp, UOp] = {}
        for n in kernel.reduces:
            free = frozenset(n.ranges)
            for loop in n.src[1:]:
                sets = users.setdefault(loop, {})
                sets.setdefault(free, len(sets))
        for n in kernel.nodes:
            src = tuple([done[s] for s in n.src])
            made = n if src == n.src else n.with_src(src)
            if n.op is Ops.REDUCE:
                free = frozenset(n.ranges)
                own = {}
                for loop in n.src[1:]:
                    place = users[loop][free]
                    if place:
                        keep_extents(kernel, loop)
                        name = fresh(kernel, f"{loop.arg[0]}_{place}")
                        own[done[loop]] = done[loop].replace(arg=(name, loop.arg[1]))
                if own:
                    value = substitute_free(made.src[0], own)
                    made = made.with_src((value, *(own.get(r, r) for r in made.src[1:])))
            done[n] = made
        return done[sink]
