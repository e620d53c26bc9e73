"""Linear programs written by hand, and runs of them on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opgraft.api import LinearProgram, Ops, UOp, compile_linear, dtypes
from opgraft.dtype import DType
from opgraft.runtime import Device

LEAVES = {Ops.CONST, Ops.VAR, Ops.PARAM, Ops.IOTA, Ops.SPECIAL}
NUMPY = {d: np.dtype(d.name) for d in dtypes.all if d is not dtypes.bfloat16}
NUMPY[dtypes.bfloat16] = np.dtype("uint16")


def i32(value: int) -> UOp:
    return UOp.const(dtypes.int32, value)


def param(slot: int, dtype: DType, size: int) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def load(buffer: UOp, index: UOp, lanes: int = 1, *gate: UOp) -> UOp:
    return UOp(Ops.LOAD, buffer.dtype.vec(lanes), (buffer, index, *gate))


def store(buffer: UOp, index: UOp, value: UOp, *gate: UOp) -> UOp:
    return UOp(Ops.STORE, dtypes.void, (buffer, index, value, *gate))


def special(name: str, size: int) -> UOp:
    return UOp(Ops.SPECIAL, dtypes.int32, (), (name, size))


def program(
    effects: Sequence[UOp],
    name: str = "k",
    groups: Sequence[Any] = (),
    threads: Sequence[int] = (),
) -> LinearProgram:
    """The effects in their order, each with the nodes that it needs and that are not there yet.

    What is loaded before a barrier is loaded anew after it.
    """
    listed: list[UOp] = []
    scopes: list[dict[UOp, None]] = [{}]
    for effect in effects:
        for n in effect.toposort():
            if n.op in LEAVES or (n is not effect and any(n in s for s in scopes)):
                continue
            if n.op in (Ops.END, Ops.ENDIF):
                scopes.pop()
            listed.append(n)
            scopes[-1][n] = None
            if n.op in (Ops.RANGE, Ops.IF):
                scopes.append({})
            elif n.op is Ops.BARRIER:
                for scope in scopes:
                    for old in [m for m in scope if m.op is not Ops.LOCAL and _loads(m)]:
                        del scope[old]
    nodes = dict.fromkeys(
        n for e in (*effects, *groups) if isinstance(e, UOp) for n in e.toposort()
    )
    params = sorted((n for n in nodes if n.op is Ops.PARAM), key=lambda n: n.arg[0])
    stored = [n.src[0] for n in nodes if n.op in (Ops.STORE, Ops.ATOMIC)]
    return LinearProgram(
        name,
        tuple(listed),
        tuple(params),
        tuple(sorted((n for n in nodes if n.op is Ops.VAR), key=lambda n: str(n.arg[0]))),
        launch=(tuple(groups), tuple(threads)),
        written=tuple(sorted({n.arg[0] for n in stored if n.op is Ops.PARAM})),
    )


def _loads(n: UOp) -> bool:
    return any(m.op is Ops.LOAD for m in n.toposort())


def run(
    device: Device, made: LinearProgram, arrays: Sequence[np.ndarray], variables: Sequence[Any] = ()
) -> list[np.ndarray]:
    """What the arrays, in order of slots, hold after a run that began with them."""
    kernel = compile_linear(device, made)
    buffers = [device.buffer(a.nbytes) for a in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        buffer.copy_in(array)
    kernel.run(buffers, variables)
    found = [np.empty_like(a) for a in arrays]
    for buffer, array in zip(buffers, found, strict=True):
        buffer.copy_out(array)
    return found


def bits(array: np.ndarray) -> list[int]:
    """Values as bits; every nan as the one nan."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.view(f"u{array.dtype.itemsize}").tolist()  # type: ignore[no-any-return]


def edges(dtype: DType, count: int) -> np.ndarray:
    """So many values of a dtype, those that operations get wrong among them."""
    kind = NUMPY[dtype]
    if dtype.is_bool:
        return np.resize(np.array([False, True, True, False, True]), count)
    rng = np.random.default_rng(dtype.bits)
    if dtype.is_float:
        info = np.finfo(kind)
        ends = [info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan, 0.0, 1.0, 2.5, 1 / 3]
        first = np.array([*ends, *(-np.array(ends))], kind)
        more = (rng.normal(size=count) * 100).astype(kind)
    else:
        least, greatest = int(dtype.min), int(dtype.max)
        wanted = [0, 1, 2, 3, 7, dtype.bits - 1, dtype.bits, -1, -2, -7, least, greatest, least + 1]
        first = np.array([v for v in wanted if least <= v <= greatest], kind)
        more = rng.integers(least, greatest, count, dtype=kind, endpoint=True)
    return np.concatenate([first, more])[:count].astype(kind)
