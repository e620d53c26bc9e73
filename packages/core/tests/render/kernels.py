"""Linear programs written by hand, not by lowering, and calls of what was compiled from them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir import AxisKind, Ops, UOp, toposort
from opgraft.ir.linear import LinearProgram
from opgraft.render.c import CRenderer

LEAVES = {Ops.CONST, Ops.VAR, Ops.PARAM, Ops.IOTA, Ops.SPECIAL}

NUMPY = {d: np.dtype(d.name) for d in dtypes.all if d is not dtypes.bfloat16}
NUMPY[dtypes.bfloat16] = np.dtype("uint16")


def listed(root: UOp) -> list[UOp]:
    """The nodes of a graph as instructions, sources first."""
    return [n for n in toposort((root,)) if n.op not in LEAVES]


def elementwise(
    function: Callable[..., UOp], sources: Sequence[DType], size: int, lanes: int, name: str = "k"
) -> LinearProgram:
    """out[i] = function(in0[i], ...), `lanes` elements at a time; `size` is a multiple of lanes."""
    loop = UOp(
        Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, size // lanes),), ("i", AxisKind.LOOP)
    )
    at = loop * lanes
    params = [UOp(Ops.PARAM, d, (), (k + 1, size)) for k, d in enumerate(sources)]
    values = [UOp(Ops.LOAD, p.dtype.vec(lanes), (p, at)) for p in params]
    result = function(*values)
    out = UOp(Ops.PARAM, result.dtype.scalar, (), (0, size))
    store = UOp(Ops.STORE, dtypes.void, (out, at, result))
    end = UOp(Ops.END, dtypes.void, (loop,))
    return LinearProgram(name, (*listed(store), end), (out, *params), written=(0,))


def merged(renderer: CRenderer, programs: Sequence[LinearProgram]) -> str:
    """One source for several kernels, with the types and helpers that they share only once."""
    head: dict[str, None] = {}
    bodies: list[str] = []
    for program in programs:
        before, body = renderer.sections(program)
        head.update(dict.fromkeys(before))
        bodies.append(body)
    return "\n".join([*head, *bodies])


def call(
    entry: Any,
    arrays: Sequence[np.ndarray],
    variables: Sequence[int] = (),
    part: tuple[int, int] = (0, 1),
) -> None:
    """Calls a kernel on arrays in order of their slots."""
    buffers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
    numbers = (ctypes.c_longlong * max(1, len(variables)))(*variables)
    entry.restype = None
    entry(buffers, numbers, ctypes.c_longlong(part[0]), ctypes.c_longlong(part[1]))
