"""Grids: what a program that is launched as groups of threads must satisfy, and its limits.

A target with `group_dims` launches grids. Every thread of every group carries out the whole
program; its SPECIAL indices tell it who it is. Threads of one group share its group memory and
meet at barriers; groups never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Final

from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import Ops, Space
from opgraft.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from opgraft.target import Target

_MOST_DIMS: Final = 3


def broken_launch(program: LinearProgram) -> tuple[UOp | None, str] | None:
    """What is wrong with the launch of a program, and the node that shows it; None if nothing."""
    groups, threads = program.launch
    if len(groups) != len(threads) or len(groups) > _MOST_DIMS:
        return None, (
            f"a launch has as many numbers of groups as of threads, at most {_MOST_DIMS}: "
            f"this one has {len(groups)} and {len(threads)}"
        )
    if any(type(n) is not int or n < 1 for n in threads):
        return None, f"numbers of threads are 1 or more: {threads}"
    if any(not isinstance(n, UOp) and (type(n) is not int or n < 0) for n in groups):
        return None, f"numbers of groups are 0 or more, or expressions: {groups}"
    if groups and program.parallel is not None:
        return program.parallel, "a program with a launch has no parallel range"
    for n in toposort(program.instructions):
        if n.op is Ops.SPECIAL and (fault := _fault(n, program)):
            return n, fault
    return _divergent_barrier(program)


def _fault(n: UOp, program: LinearProgram) -> str:
    """What is wrong with a SPECIAL."""
    name, size = n.arg
    if name == "begin":
        return "a launch of groups has no begin" if program.launch[0] else ""
    axis, groups = int(name[-1]), program.launch[0]
    if axis >= len(groups):
        return f"the launch has {len(groups)} dimensions, so no {name}"
    if name.startswith("thread"):
        given = program.launch[1][axis]
        return "" if size == given else f"the launch has {given} threads there"
    count = groups[axis]
    most = int(count.vmax) if isinstance(count, UOp) else count
    if isinstance(size, UOp) or size < most:
        return f"the launch has up to {most} groups there"
    return ""


def varies_in_group(n: UOp) -> bool:
    """Whether a value may differ between threads of one group, as far as its own sources tell.

    What is loaded counts as the same for all: only running it shows otherwise.
    """
    if n.op is not Ops.SPECIAL and n.vmin == n.vmax:
        return False
    below = toposort((n,), lambda m: m.op is not Ops.LOAD)
    return any(m.op is Ops.SPECIAL and m.arg[0].startswith("thread") and m.vmax > 0 for m in below)


def _divergent_barrier(program: LinearProgram) -> tuple[UOp | None, str] | None:
    opened: list[UOp] = []
    for n in program.instructions:
        if n.op in (Ops.IF, Ops.RANGE):
            opened.append(n)
        elif n.op in (Ops.END, Ops.ENDIF) and opened:
            opened.pop()
        elif n.op is Ops.BARRIER:
            for scope in opened:
                if varies_in_group(scope.src[0]):
                    what = "condition" if scope.op is Ops.IF else "loop"
                    return n, f"it stands in a {what} that differs between threads of a group"
    return None


def group_bytes(program: LinearProgram) -> int:
    """Bytes of group memory that a group of this program takes."""
    return _bytes_in(Space.GROUP, program)


def private_bytes(program: LinearProgram) -> int:
    """Bytes of the buffers that each thread which carries out this program has for itself."""
    return _bytes_in(Space.PRIVATE, program)


def _bytes_in(space: Space, program: LinearProgram) -> int:
    found = dict.fromkeys(n for n in program.instructions if n.op is Ops.LOCAL)
    return sum(int(n.arg[1]) * n.dtype.count * n.dtype.itemsize for n in found if n.arg[2] is space)


def over_limits(program: LinearProgram, target: Target) -> tuple[str, ...]:
    """The limits of the target that the program exceeds: what it needs, and what there is."""
    return tuple(_exceeded(program, target))


def _exceeded(program: LinearProgram, target: Target) -> Iterator[str]:
    groups, threads = program.launch
    if len(program.params) > target.max_buffers:
        yield f"{len(program.params)} buffers, where {target.max_buffers} is the most"
    if not groups or not target.group_dims:
        return  # where there are no grids, the renderer refuses them; INTERP takes any
    if len(groups) > target.group_dims:
        yield f"{len(groups)} dimensions, where {target.group_dims} is the most"
    if prod(threads) > target.threads_per_group:
        yield f"{prod(threads)} threads of a group, where {target.threads_per_group} is the most"
    for count in groups:
        most = int(count.vmax) if isinstance(count, UOp) else count
        if most > target.max_parallel_size:
            yield f"{most} groups in a dimension, where {target.max_parallel_size} is the most"
    taken = group_bytes(program)
    if taken > target.local_bytes:
        yield f"{taken} bytes of group memory, where {target.local_bytes} is the most"
