"""What lowering hands to a renderer: a kernel as a list of instructions, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from opgraft.ir.uop import UOp

EXCLUSIVE: Final = "exclusive"
"""The tag of a SCAN, on the way to a program, that leaves its own value out: what came before."""

STREAM: Final = "stream"
"""The tag of a STORE of whole vectors that goes past the caches where the machine can. Each begins
at a multiple of its own size, counted from the begin of its buffer. See opt/stores.py."""


@dataclass(frozen=True)
class KernelInfo:
    """The `arg` of a kernel's SINK."""

    name: str = "kernel"
    schedule: tuple[Any, ...] | None = None
    """Actions to apply, in order; None: the scheduler chooses. See opt/."""


Launch: TypeAlias = tuple[tuple[int | UOp, ...], tuple[int, ...]]
"""Groups and threads of a launch in each dimension, as many of the one as of the other. A number
of groups may be an expression in the program's variables."""


@dataclass(frozen=True)
class LinearProgram:
    """A kernel in the order of its execution.

    `instructions` are nodes whose sources are leaves (CONST, VAR, PARAM, IOTA, SPECIAL, which
    are not listed) or stand earlier in the list, in an open scope. A node may stand in the list
    several times: each time it is computed anew. RANGE opens a loop, END with the RANGE as its
    only source closes it; IF and ENDIF likewise. LOCAL declares its buffer (a register holds a
    value of the LOCAL's dtype, vectors included) for the rest of its scope. No REDUCE, SCAN,
    AFTER or `index` dtype is left. The parallel range, if any, is in no other:
    the kernel is called with a part of it. A program with a `launch` is carried out by every
    thread of every group; a BARRIER is reached by all threads of a group, or by none.
    """

    name: str
    instructions: tuple[UOp, ...]
    params: tuple[UOp, ...]
    """The PARAMs in order of their slots; slots are 0 .. len-1."""
    variables: tuple[UOp, ...] = ()
    """The VARs in order of their names."""
    parallel: UOp | None = None
    """The RANGE of kind PARALLEL (src[0] is its extent), None: the kernel runs in one piece."""
    launch: Launch = field(default=((), ()))
    """Groups and threads, of a program for a device that launches grids: its SPECIAL indices are
    "group0", "thread0" and so on, and `parallel` is None."""
    written: tuple[int, ...] = ()
    """Slots that the kernel stores to."""
    operations: int = 0
    """An estimate of the elementwise operations of one run, lanes counted."""
