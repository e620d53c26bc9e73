"""Random expressions on real devices: each as it is and simplified, for many assignments.

A batch of expressions becomes one kernel. Leaves become loads from buffers of their values, so
one kernel runs all assignments; what each device stores is compared with ir/evaluate.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp
from opgraft.ir.evaluate import bits_to_value, value_to_bits
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import exact_key
from opgraft.rules.simplify import simplify
from opgraft.runtime import Device, compile_kernel

from . import reference
from .generator import assignments
from .judge import free_leaves

ROWS: Final = 32
# Beyond this an index may not fit the machine's integers.
_LARGEST: Final = 1 << 40


def suits(expression: UOp) -> bool:
    """Whether a device can compute it: elementwise, of dtypes that memory holds."""
    for n in expression.toposort():
        if n.op not in GroupOp.ALU and n.op not in (Ops.CONST, Ops.VAR, Ops.RANGE):
            return False
        if n.op is Ops.RANGE and n.src[0].op is not Ops.CONST:
            return False
        if n.dtype.count != 1 or n.op in (Ops.THREEFRY, Ops.MULACC, Ops.CDIV, Ops.CMOD):
            return False
        if n.dtype.is_index:
            if not (n.vmin > -_LARGEST and n.vmax < _LARGEST):
                return False
        elif n.dtype not in dtypes.all:
            return False
    return bool(free_leaves(expression))


def compare(
    batch: Sequence[UOp], devices: Sequence[Device], rng: random.Random
) -> Iterator[tuple[UOp, str]]:
    """(expression, fault) of each expression of which a device stores other values."""
    most = min(d.pairs.select().renderer.target.max_buffers for d in devices)
    part: list[UOp] = []
    taken = 0
    for expression in batch:
        needed = len(free_leaves(expression)) + 2  # as it is, and simplified
        if part and taken + needed > most:
            yield from _compare(part, devices, rng)
            part, taken = [], 0
        part.append(expression)
        taken += needed
    yield from _compare(part, devices, rng)


def _compare(
    batch: Sequence[UOp], devices: Sequence[Device], rng: random.Random
) -> Iterator[tuple[UOp, str]]:
    """The same, of as many expressions as a kernel has buffers for."""
    run = UOp.range(ROWS, "row")
    params: list[tuple[UOp, bytes]] = []
    stores: list[UOp] = []
    wanted: list[tuple[UOp, UOp, DType, list[Any]]] = []

    def buffer(dtype: DType, content: bytes) -> UOp:
        made = UOp(Ops.PARAM, dtype, (), (len(params), ROWS))
        params.append((made, content))
        return made

    for expression in batch:
        leaves = free_leaves(expression)
        rows = assignments(leaves, rng, ROWS)
        loads = {n: _loaded(n, [r[i] for r in rows], run, buffer) for i, n in enumerate(leaves)}
        expected = [_value(expression, dict(zip(leaves, row))) for row in rows]
        for form in dict.fromkeys((expression, simplify(expression))):
            value = form.substitute(loads)
            if value.dtype.is_index:
                value = value.cast(dtypes.int64)
            size = ROWS * value.dtype.itemsize
            stores.append(buffer(value.dtype, bytes(size)).store(run, value).end(run))
            wanted.append((expression, params[-1][0], value.dtype, expected))
    sink = UOp.sink(*stores, arg=KernelInfo("fuzz"))
    for device in devices:
        executable = compile_kernel(device, sink)
        buffers = [device.buffer(len(content)) for _, content in params]
        for held, (_, content) in zip(buffers, params):
            held.copy_in(memoryview(content))
        executable.run(buffers, wait=True)
        for expression, param, dtype, expected in wanted:
            found = bytearray(ROWS * dtype.itemsize)
            buffers[param.arg[0]].copy_out(memoryview(found))
            for row, (value, right) in enumerate(zip(_unpacked(dtype, found), expected)):
                if right is not None and exact_key(value) != exact_key(dtype.const(right)):
                    yield expression, f"{device.name} gives {value}, not {right}, in row {row}"
                    break


def _value(expression: UOp, env: dict[UOp, Any]) -> Any:
    """The right value; None where nothing is said: an infinity as an index."""
    try:
        return reference.evaluate(expression, {n: n.dtype.const(v) for n, v in env.items()})[
            expression
        ]
    except OverflowError:
        return None


def _loaded(n: UOp, values: list[Any], run: UOp, buffer: Any) -> UOp:
    """The leaf as a load of its value in this row, with the bounds of the leaf if an index."""
    if not n.dtype.is_index:
        content = b"".join(_packed(n.dtype, v) for v in values)
        return buffer(n.dtype, content).load(run)  # type: ignore[no-any-return]
    low = int(n.vmin)
    content = b"".join(_packed(dtypes.int64, v - low) for v in values)
    loaded = buffer(dtypes.int64, content).load(run).cast(dtypes.index)
    return loaded % (int(n.vmax) - low + 1) + low  # type: ignore[no-any-return]


def _packed(dtype: DType, value: Any) -> bytes:
    number = value_to_bits(dtype.const(value), dtype)
    return number.to_bytes(dtype.itemsize, "little")


def _unpacked(dtype: DType, content: bytearray) -> Iterator[Any]:
    size = dtype.itemsize
    for at in range(0, len(content), size):
        yield bits_to_value(int.from_bytes(content[at : at + size], "little"), dtype)
