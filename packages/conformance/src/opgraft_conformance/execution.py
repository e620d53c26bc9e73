"""Run a kernel or a linear program on a device, and compare what it leaves in memory.

Every buffer has a border behind its end, which no kernel may touch: a store that went too far is
a fault of its own, with its own message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from opgraft.api import (
    Device,
    Executable,
    LinearProgram,
    Scalar,
    compile_kernel,
    compile_linear,
    using,
)
from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_conformance.comparison import SHOWN, differ
from opgraft_conformance.fault import Fault
from opgraft_conformance.rows import not_claimed
from opgraft_conformance.values import Words, shown, whole_numbers, words_of

Memory: TypeAlias = dict[int, Words]
"""For each slot of a kernel the words of its buffer."""

BORDER: Final = 64
"""Bytes behind the end of each buffer."""
_MARK: Final = 0xA5


def parameters(root: UOp | LinearProgram) -> dict[int, tuple[DType, int]]:
    """For each slot the dtype and the number of elements."""
    if isinstance(root, LinearProgram):
        params: Sequence[UOp] = root.params
    else:
        params = [n for n in root.toposort() if n.op is Ops.PARAM]
    found = {p.arg[0]: (p.dtype, p.arg[1]) for p in params}
    return dict(sorted(found.items()))


def filled(root: UOp | LinearProgram, seed: int = 0) -> Memory:
    """Small whole numbers for every buffer: sums of them are exact in any order."""
    return {
        slot: whole_numbers(dtype, size, seed * 1000 + slot)
        for slot, (dtype, size) in parameters(root).items()
    }


def compiled(device: Device, root: UOp | LinearProgram) -> Executable:
    """Ready to run; a linear program as it stands, a kernel lowered."""
    if isinstance(root, LinearProgram):
        return compile_linear(device, root)
    return compile_kernel(device, root)


def execute(
    device: Device, kernel: Executable, memory: Memory, variables: Sequence[Scalar] = ()
) -> Memory:
    """The memory after the kernel ran; `memory` itself is left alone.

    Raises `Fault` where the border of a buffer was written to.
    """
    if not device.executes:
        not_claimed(f"{device.name} runs no kernels")
    buffers = []
    for words in memory.values():
        buffer = device.buffer(words.nbytes + BORDER)
        buffer.copy_in(words.tobytes() + bytes([_MARK]) * BORDER)
        buffers.append(buffer)
    kernel.run(buffers, tuple(variables), wait=True)
    after: Memory = {}
    for (slot, words), buffer in zip(memory.items(), buffers, strict=True):
        data = buffer.bytes()
        border = np.frombuffer(data[words.nbytes :], np.uint8)
        if (border != _MARK).any():
            at = words.nbytes + int(np.flatnonzero(border != _MARK)[0])
            raise Fault(
                f"kernel {kernel.program.name!r} wrote behind the end of a buffer",
                {
                    "buffer": f"slot {slot}, {len(words)} elements of {words.itemsize} bytes",
                    "written": f"byte {at}, element {at // words.itemsize}",
                },
                kernel=kernel,
                hint="stores whose gate is false write nothing; a vector store writes its lanes "
                "and no more",
            )
        after[slot] = np.frombuffer(data[: words.nbytes], words.dtype)
    return after


def outcome(
    device: Device, root: UOp | LinearProgram, memory: Memory, variables: Sequence[Scalar] = ()
) -> Memory:
    """Compile, run, and the memory after it."""
    return execute(device, compiled(device, root), memory, variables)


def expected(
    reference: Device, root: UOp | LinearProgram, memory: Memory, variables: Sequence[Scalar] = ()
) -> Memory:
    """What the memory ought to be. A compiler pair chosen for a test of INTERP has no say in it."""
    with using(**{f"{reference.kind}_CC": ""}):
        return outcome(reference, root, memory, variables)


def agree(
    device: Device,
    reference: Device,
    root: UOp | LinearProgram,
    memory: Memory | None = None,
    variables: Sequence[Scalar] = (),
    *,
    meaning: UOp | LinearProgram | None = None,
    facts: Mapping[str, Any] | None = None,
    slots: Sequence[str] = (),
    hint: str = "",
    slot_hints: Sequence[str] = (),
) -> None:
    """Raise `Fault` unless the device leaves in memory what the reference does.

    `meaning` is what the reference runs, where that is not the same: a kernel before a schedule
    was applied, say. `facts` go into the message; `slots` say what stands in each buffer,
    `slot_hints` where to look when it is wrong.
    """
    given = filled(root) if memory is None else memory
    wanted = expected(reference, meaning if meaning is not None else root, given, variables)
    kernel = compiled(device, root)
    found = execute(device, kernel, given, variables)
    for slot, (dtype, _) in parameters(root).items():
        places = np.flatnonzero(differ(found[slot], wanted[slot], dtype))
        if len(places):
            raise Fault(
                f"kernel {kernel.program.name!r} leaves other values in memory than it ought to",
                {
                    **(facts or {}),
                    "buffer": f"slot {slot}, {len(found[slot])} of {dtype}"
                    + (f": {slots[slot]}" if slot < len(slots) else ""),
                    "wrong": f"{len(places)} elements: "
                    + ", ".join(map(str, places[:8].tolist()))
                    + (" ..." if len(places) > 8 else ""),
                    "elements": "\n".join(
                        _element(root, p, slot, dtype, found, wanted, given)
                        for p in places[:SHOWN].tolist()
                    ),
                    "variables": ", ".join(map(str, variables)) or None,
                },
                kernel=kernel,
                hint=slot_hints[slot] if slot < len(slot_hints) else hint,
            )


def _element(
    root: UOp | LinearProgram,
    place: int,
    slot: int,
    dtype: DType,
    found: Memory,
    wanted: Memory,
    before: Memory,
) -> str:
    was, got = before[slot][place], found[slot][place]
    text = f"[{place}] is {shown(got, dtype)}, not {shown(wanted[slot][place], dtype)}"
    if got == was:
        text += " (as it was before: never written?)"
    # of buffers that are as long, the elements at the same place: most often the operands
    beside = [
        f"slot {other}: {shown(before[other][place], kind)}"
        for other, (kind, size) in parameters(root).items()
        if other not in _written(root) and size == len(found[slot])
    ]
    return f"{text}; there, {', '.join(beside[:3])}" if beside else text


def _written(root: UOp | LinearProgram) -> set[int]:
    if isinstance(root, LinearProgram):
        return set(root.written)
    stores = [n.src[0] for n in root.toposort() if n.op is Ops.STORE]
    return {b.arg[0] for b in stores if b.op is Ops.PARAM}


def zeros(dtype: DType, count: int) -> Words:
    """A buffer of zero bytes."""
    return np.zeros(count, words_of(dtype))
