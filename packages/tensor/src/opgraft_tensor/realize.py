"""From lazy nodes to memory: what the planner need not see is settled here.

Before: any array graphs. In order: nodes whose value is in memory become their BUFFERs; marks are
dropped; each COPY is carried out, sources first; outputs without elements or with one value
everywhere are filled by the host; the planner computes the rest. After: each output has a BUFFER,
kept with its node (`storage.keep`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, node, toposort
from opgraft_tensor import plan
from opgraft_tensor.exchange import fill_buffer, host_values
from opgraft_tensor.graph import constant_of, shape
from opgraft_tensor.late import np
from opgraft_tensor.recording import recorder
from opgraft_tensor.storage import Storage, buffer_node, keep, kept


def realize(outputs: Sequence[UOp], device: str) -> list[UOp]:
    """The BUFFER node of each output, computed on `device`, where the memory of all of them is."""
    made: dict[UOp, UOp] = {}
    wanted = [o for o in dict.fromkeys(outputs) if memory_of(o) is None]
    if wanted:
        settled = settle(wanted)
        rest: list[UOp] = []
        for output in dict.fromkeys(settled):
            filled = output if output.op is Ops.BUFFER else _filled(output, device)
            if filled is None:
                rest.append(output)
            else:
                made[output] = filled
        if rest:
            made.update(zip(rest, plan.realize(rest, device)))
        for output, node_ in zip(wanted, settled):
            # what depends on no memory is one node in all programs and on all devices: it stays
            # an expression, and only the tensor that asked for it refers to its memory
            alone = device_of(output) is None
            made[output] = made[node_] if alone else keep(output, made[node_].arg)
    found = [made[o] if o in made else memory_of(o) for o in outputs]
    return [f for f in found if f is not None]


def memory_of(uop: UOp) -> UOp | None:
    """The BUFFER that holds the node's value already, or None."""
    return uop if uop.op is Ops.BUFFER else kept(uop)


def settle(outputs: Sequence[UOp]) -> list[UOp]:
    """The graphs with kept values as BUFFERs, copies carried out, and without marks."""
    done: dict[UOp, UOp] = {}
    for below in toposort(outputs, _is_open):
        if not _is_open(below):
            found = kept(below)
            assert found is not None
            done[below] = found
        elif below.op is Ops.COPY:
            done[below] = _copied(below)
        elif below.op is Ops.RESHAPE and below.tag is not None:
            done[below] = done[below.src[0]]
        else:
            changed = False
            for source in below.src:
                if done[source] is not source:
                    changed = True
            done[below] = (
                node(below.head, tuple([done[s] for s in below.src])) if changed else below
            )
    return [done[o] for o in outputs]


def _is_open(uop: UOp) -> bool:
    """Whether the node's value is not in memory yet."""
    memo = uop._memo
    return memo is None or "kept" not in memo or kept(uop) is None


_STEPS: Final = 32
"""Nodes down to memory up to which they are walked again for each node that is asked for."""


def device_of(uop: UOp) -> str | None:
    """The device of the memory that a value depends on; None: it depends on none."""
    memo = uop._memo
    if memo is not None and "device" in memo:
        return memo["device"]  # type: ignore[no-any-return]
    first = uop  # what the first source depends on comes before all else
    for _ in range(_STEPS):
        if not first.src or first.op is Ops.COPY:
            break
        first = first.src[0]
    if first.op is Ops.BUFFER:
        uop.remember("device", first.arg.device)
        return first.arg.device  # type: ignore[no-any-return]
    for below in toposort((uop,), lambda n: not (n._memo and "device" in n._memo)):
        if below._memo and "device" in below._memo:
            continue
        if below.op is Ops.BUFFER:
            place = below.arg.device
        elif below.op is Ops.COPY:
            place = below.arg
        else:
            sources = [(s._memo or {}).get("device") for s in below.src]
            place = next((s for s in sources if s is not None), None)
        below.remember("device", place)
    assert uop._memo is not None
    return uop._memo["device"]  # type: ignore[no-any-return]


def _copied(uop: UOp) -> UOp:
    """The BUFFER of a COPY: its source, computed where it is, in the other device's memory."""
    source = realize([uop.src[0]], device_of(uop.src[0]) or uop.arg)[0].arg
    copied = Storage(source.shape, source.dtype, uop.arg)
    if source.host is not None:
        copied.host = source.host
    elif copied.nbytes:
        known = recorder()
        if known is not None:
            known.reads([source])
        fill_buffer(copied).copy_from(fill_buffer(source))
        if known is not None:
            known.copied(copied.buffer, source.buffer)
            known.made([copied])
    return keep(uop, copied)


def _filled(uop: UOp, device: str) -> UOp | None:
    """The BUFFER of what needs no kernel: without elements, or one value everywhere; else None."""
    size = shape(uop)
    constant = constant_of(uop)
    if 0 in size:
        values = np.zeros(size)
    elif constant is not None and constant.op is Ops.CONST:
        values = np.full(size, constant.arg)
    else:
        return None
    return buffer_node(Storage(size, uop.dtype, device, host_values(values, uop.dtype)))
