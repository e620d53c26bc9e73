"""Which memory may be written in place: what no live tensor can reach any more."""

from __future__ import annotations

from collections.abc import Sequence

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, node, toposort
from opgraft_tensor.storage import kept, live_handles


class Liveness:
    """What live tensors hold, besides the outputs of the plan being made."""

    def __init__(self, outputs: Sequence[UOp]) -> None:
        self.reached: dict[UOp, None] = {}
        """BUFFERs that somebody may still read when the outputs have their values."""
        self.versions: dict[UOp, list[UOp]] = {}
        """WRITEs below the outputs that live tensors hold: settled node to handles."""
        handles = [h for h in dict.fromkeys(live_handles()) if h.op is not Ops.CONST]
        settled = _settled(handles)
        done = dict.fromkeys(outputs)
        inside = dict.fromkeys(toposort(outputs))
        for handle in handles:
            n = settled[handle]
            if n.op is Ops.WRITE and n in inside and n not in done:
                self.versions.setdefault(n, []).append(handle)
        done.update(dict.fromkeys(self.versions))
        rest = [settled[h] for h in handles if settled[h] not in done]
        for n in toposort(rest, lambda n: n not in done):
            if n.op is Ops.BUFFER:
                self.reached[n] = None

    def writable(self, buffer: UOp) -> bool:
        """Whether the memory of a BUFFER may be overwritten."""
        return buffer not in self.reached and not buffer.arg.pinned


def _settled(handles: Sequence[UOp]) -> dict[UOp, UOp]:
    """The handles' graphs with kept values as BUFFERs and without marks, as plans see them."""
    done: dict[UOp, UOp] = {}
    for n in toposort(handles, lambda n: kept(n) is None):
        found = kept(n)
        if found is not None:
            done[n] = found
        elif n.op is Ops.RESHAPE and n.tag is not None:
            done[n] = done[n.src[0]]
        else:
            src = tuple([done[s] for s in n.src])
            done[n] = n if src == n.src else node(n.head, src)
    return done
