"""Are two graphs equal in value and dtype, and are the bounds of their nodes right?"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from opgraft.ir import UOp
from opgraft.ir.ops import Ops
from opgraft.ir.uop import exact_key, toposort

from . import reference, vectors
from .generator import assignments, columns

SAMPLES: Final = 1 << 13
"""What is tried at most of assignments that are too many to be tried all."""


@dataclass(frozen=True)
class Judged:
    """What was found: `fault` is empty if nothing is wrong."""

    fault: str
    complete: bool
    assignments: int


def free_leaves(*roots: UOp) -> list[UOp]:
    """The variables and open ranges that the values of these graphs depend on."""
    found = [n for n in toposort(roots) if n.op is Ops.VAR]
    for root in roots:
        found += root.ranges
    return list(dict.fromkeys(found))


def judge(before: UOp, after: UOp, rng: random.Random, most: int, slow: int) -> Judged:
    """Compare on all assignments if they are at most `most`, else on that many samples, or on
    SAMPLES if they are fewer.

    Graphs that NumPy's arrays cannot hold are compared on `slow` samples one by one.
    """
    if before.dtype is not after.dtype:
        return Judged(f"dtype {before.dtype} became {after.dtype}", True, 0)
    leaves = free_leaves(before, after)
    if not vectors.suits(before, after):
        rows = _possible(leaves, assignments(leaves, rng, slow))
        return Judged(_compare_one_by_one(before, after, leaves, rows), not leaves, len(rows))
    found, complete = columns(leaves, rng, most, SAMPLES)
    env = dict(zip(leaves, found))
    varying = [n for n in leaves if n.op is Ops.RANGE and n.src[0].op is not Ops.CONST]
    if varying:
        env = _running(env, varying)
    count = math.prod(np.broadcast_shapes(*(column.shape for column in env.values())))
    return Judged(compare_vectors(before, after, env) if count else "", complete, count)


def _running(env: Mapping[UOp, Any], varying: Sequence[UOp]) -> dict[UOp, Any]:
    """The assignments in which every range of variable size is below it."""
    env = dict(zip(env, (column.ravel() for column in np.broadcast_arrays(*env.values()))))
    runs: Any = np.bool_(True)
    for n in varying:
        runs = runs & (env[n] < vectors.evaluate((n.src[0],), env)[n.src[0]])
    runs = np.broadcast_to(runs, env[varying[0]].shape)
    return {n: column[runs] for n, column in env.items()}


def _possible(leaves: Sequence[UOp], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows in which every range is below its size."""
    for i, n in enumerate(leaves):
        if n.op is Ops.RANGE and n.src[0].op is not Ops.CONST:
            size = n.src[0]
            rows = [
                row
                for row in rows
                if row[i] < reference.evaluate(size, dict(zip(leaves, row)))[size]
            ]
    return rows


def compare_vectors(before: UOp, after: UOp, env: Mapping[UOp, Any]) -> str:
    """What differs on assignments, in value or from the bounds; empty: nothing."""
    values = vectors.evaluate((before, after), env)
    a, b = values[before], values[after]
    same = _bits(a) == _bits(b)
    if before.dtype.is_float and not np.all(same):
        same |= np.isnan(a) & np.isnan(b)
    if not np.all(same):
        shape = np.broadcast_shapes(np.shape(same), *(np.shape(v) for v in env.values()))
        at = np.unravel_index(np.argmin(np.broadcast_to(same, shape)), shape)
        a, b = (np.broadcast_to(v, shape)[at] for v in (a, b))
        where = {n: np.broadcast_to(column, shape)[at] for n, column in env.items()}
        return _told(before, after, where, a, b)
    for n, found in values.items():
        if n.dtype.kind in ("void", "float") or n.op in (Ops.PARAM, Ops.CONST):
            continue
        if np.min(found) < n.vmin or np.max(found) > n.vmax:
            return f"bounds [{n.vmin}, {n.vmax}] of {n!r}: {np.min(found)}..{np.max(found)}"
    return ""


def _bits(values: Any) -> Any:
    """Floats as the integers of their bits: they tell one zero from the other."""
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values
    return values.view(np.dtype(f"int{8 * values.dtype.itemsize}"))


def _compare_one_by_one(
    before: UOp, after: UOp, leaves: Sequence[UOp], rows: list[tuple[Any, ...]]
) -> str:
    for row in rows:
        env = {n: n.dtype.const(v) for n, v in zip(leaves, row)}
        try:
            one, other = reference.evaluate(before, env), reference.evaluate(after, env)
        except OverflowError:
            continue  # an infinity has no place in an index: nothing is said about that
        if exact_key(one[before]) != exact_key(other[after]):
            return _told(before, after, env, one[before], other[after])
        for values in (one, other):
            for n, found in values.items():
                if n.dtype.kind in ("void", "float") or n.op is Ops.PARAM:
                    continue
                if not n.vmin <= found <= n.vmax:
                    return f"bounds [{n.vmin}, {n.vmax}] of {n!r}: {found}"
    return ""


def _told(before: UOp, after: UOp, where: dict[UOp, Any], a: Any, b: Any) -> str:
    at = ", ".join(f"{n.arg[0]}={v}" for n, v in where.items())
    return f"{before!r} is {a}, {after!r} is {b} at {at or 'any point'}"
