"""Linear programs in the IR's text, written for the kit: the files beside this one.

`NAME.ir` is a program; `NAME.ir.in` one with `$dtype` and `$op` to be filled in. What a program
needs of a target is read off it, so that a row is not claimed where the target lacks it.
"""

from __future__ import annotations

import string
from dataclasses import replace
from functools import cache
from importlib import resources
from math import prod
from typing import Final

from opgraft.api import LinearProgram, Target, parse_linear
from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import GroupOp, Ops, Space
from opgraft.ir.uop import UOp, toposort

PLAIN: Final = ".ir"
FORM: Final = ".ir.in"

HINTS: Final = {
    "group_reversal": "group memory is seen by the whole group after a barrier",
    "group_sum": "the barrier is in the loop, and all threads reach it",
    "group_scan": "the barrier is in the loop, and all threads reach it",
    "group_tiles": "two barriers in a loop: one after writing the tiles, one before the next",
    "groups_by_variable": "the number of groups is computed at each launch; of 0 nothing runs",
    "fetched_ahead": "what is fetched may lie outside of its buffer: no fault comes of it",
    "grid_of_two": "which dimension of groups and threads is which",
    "grid_of_three": "which dimension of groups and threads is which",
}
"""Where to look when a program is wrong."""


@cache
def names(suffix: str = PLAIN) -> tuple[str, ...]:
    """The programs that lie here, in alphabetical order."""
    found = [entry.name for entry in resources.files(__name__).iterdir()]
    return tuple(sorted(n.removesuffix(suffix) for n in found if n.endswith(suffix)))


def text(name: str, suffix: str = PLAIN) -> str:
    """The file of a program."""
    return resources.files(__name__).joinpath(name + suffix).read_text(encoding="utf-8")


def program(name: str) -> LinearProgram:
    """The program of a file."""
    return parse_linear(text(name))


def filled_in(name: str, dtype: DType, op: Ops | None = None) -> LinearProgram:
    """The program of a file with places to be filled in."""
    words = {"dtype": dtype.name, "op": "" if op is None else op.name.lower()}
    lines = string.Template(text(name, FORM)).substitute(words)
    if dtype.is_bool:
        lines = lines.replace(", %few, 0)", ", %few, false)")
    return parse_linear(lines)


def for_target(made: LinearProgram, target: Target) -> LinearProgram:
    """A program without a launch as a target takes it that launches grids: one thread of it."""
    if target.group_dims and not made.launch[0]:
        return replace(made, launch=((1,), (1,)))
    return made


def lacks(made: LinearProgram, target: Target) -> str:
    """What the program needs and the target does not claim; empty: nothing."""
    groups, threads = made.launch
    nodes = toposort(made.instructions)
    if len(groups) > target.group_dims and prod(threads) > 1:
        if target.group_dims == 0:
            return f"{target.name} launches no grids"
        return f"{target.name} launches grids of {target.group_dims} dimensions"
    if prod(threads) > max(target.threads_per_group, 1):
        return f"{target.name} has {target.threads_per_group} threads to a group"
    inside = [n for n in nodes if n.op is Ops.LOCAL and n.arg[2] is not Space.REGISTER]
    if sum(n.arg[1] * n.dtype.itemsize * n.dtype.count for n in inside) > target.local_bytes:
        return f"{target.name} has {target.local_bytes} bytes of memory inside a kernel"
    return _lacking_values(nodes, target) or _lacking_access(nodes, target)


def _lacking_values(nodes: list[UOp], target: Target) -> str:
    lanes = max(n.dtype.count for n in nodes)
    if lanes > 1 and (target.vector_bytes == 0 or lanes > target.max_lanes):
        return f"{target.name} has no vectors of {lanes} lanes"
    for n in nodes:
        known = target.compute if n.op in GroupOp.ALU else target.compute | target.storage
        if n.dtype is not dtypes.void and n.dtype.scalar not in known:
            return f"{target.name} does not compute in {n.dtype.scalar}"
        if n.op in GroupOp.ALU and n.op not in target.ops:
            return f"{target.name} has no {n.op.name}"
    return ""


def _lacking_access(nodes: list[UOp], target: Target) -> str:
    for n in nodes:
        if n.op in (Ops.LOAD, Ops.STORE):
            if n.src[1].dtype.count > 1 and not target.gather:
                return f"{target.name} takes no vectors of indices"
            if n.src[0].dtype.scalar not in target.storage:
                return f"{target.name} does not load or store {n.src[0].dtype.scalar}"
        if n.op is Ops.PREFETCH and not target.prefetch:
            return f"{target.name} fetches nothing ahead"
        if n.op is Ops.ATOMIC and (n.arg, n.src[2].dtype) not in target.atomics:
            return f"{target.name} has no atomic {n.arg.name} of {n.src[2].dtype}"
    return ""
