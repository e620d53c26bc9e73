"""Are two graphs equal in value and dtype, and are the bounds of their nodes right?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opgraft.ir import UOp
from opgraft.ir.ops import Ops
from opgraft.ir.uop import exact_key, toposort

from . import reference, vectors
from .generator import assignments, columns


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
    """Compare on all assignments if they are at most `most`, else on that many samples.

    Graphs that NumPy's integers cannot hold are compared on `slow` samples one by one.
    """
    if before.dtype is not after.dtype:
        return Judged(f"dtype {before.dtype} became {after.dtype}", True, 0)
    leaves = free_leaves(before, after)
    if not vectors.suits(before, after):
        rows = _possible(leaves, assignments(leaves, rng, slow))
        return Judged(_compare_one_by_one(before, after, leaves, rows), not leaves, len(rows))
    found, complete = columns(leaves, rng, most)
    env: dict[UOp, Any] = {}
    for n, column in zip(leaves, found):
        env[n] = vectors.rounded(n.dtype, column) if n.dtype.is_float else column
        if n.dtype.is_bool:
            env[n] = column.astype(np.bool_)
    runs = np.ones(len(found[0]) if found else 1, np.bool_)
    for n in leaves:
        if n.op is Ops.RANGE and n.src[0].op is not Ops.CONST:
            size = vectors.evaluate(n.src[0], env)[n.src[0]]
            runs &= np.asarray(env[n] < size)
    if not np.all(runs):
        env = {n: values[runs] for n, values in env.items()}
    count = int(np.count_nonzero(runs))
    fault = compare_vectors(before, after, env, count) if count else ""
    return Judged(fault, complete, count)


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


def compare_vectors(before: UOp, after: UOp, env: dict[UOp, Any], count: int) -> str:
    """What differs on `count` assignments at once, in value or from the bounds; empty: nothing."""
    one, other = vectors.evaluate(before, env), vectors.evaluate(after, env)
    a, b = np.broadcast_arrays(one[before], other[after])
    same = a == b
    if before.dtype.is_float:
        same = (same & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    if not np.all(same):
        at = int(np.argmin(np.broadcast_to(same, (count,))))
        where = {n: values[at] for n, values in env.items()}
        return _told(before, after, where, *(np.broadcast_to(v, (count,))[at] for v in (a, b)))
    for values in (one, other):
        for n, found in values.items():
            if n.dtype.kind in ("void", "float") or n.op is Ops.PARAM:
                continue
            if np.min(found) < n.vmin or np.max(found) > n.vmax:
                return f"bounds [{n.vmin}, {n.vmax}] of {n!r}: {np.min(found)}..{np.max(found)}"
    return ""


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
