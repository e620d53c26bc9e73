"""Runs a linear program on NumPy arrays: the oracle that every compiled kernel must agree with.

Values are arrays of instances x lanes. An *instance* is an iteration of the parallel range: a few
thousand of them are carried out at once, as the first axis of every array (an axis of one stands
for a value that is the same for all). Lanes of a vector are the second axis. Other loops run one
after another. A condition that differs between instances becomes a mask that loads and stores
obey.

Of a program with a launch the instances are threads, whole groups of them at once. They run
through the instructions in lockstep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np

from opgraft.api import LinearProgram, Ops, UOp, errors, evaluate
from opgraft.devices.interp.alu import (
    Array,
    constant,
    register_dtype,
)
from opgraft.devices.interp.frame import Frame, Grid, Loop
from opgraft.devices.interp.instructions import Action, action_of, both
from opgraft.devices.interp.memory import Memory
from opgraft.devices.interp.place import Place
from opgraft.devices.interp.races import Watch
from opgraft.devices.interp.traffic import LaunchTraffic

_ELEMENTS: Final = 1 << 15
"""Instances are carried out together up to this many elements of the widest value."""
_INSTANCES: Final = 4096
_LOCAL_BYTES: Final = 64 << 20


@dataclass
class _Step:
    """A run of instructions without jumps, or one instruction that jumps."""

    kind: Ops | None
    actions: list[Action] = field(default_factory=list)
    node: UOp | None = None
    slot: int = 0
    source: int = 0
    partner: int = 0
    """Of an opening step the place of its end, and the other way round."""


class Executor:
    """A linear program made ready; `run` may be called any number of times, from any thread."""

    def __init__(self, program: LinearProgram) -> None:
        self.program = program
        self._slots: dict[UOp, int] = {}
        self._fixed: list[tuple[int, Array]] = []
        self._specials: list[tuple[int, UOp]] = []
        self._steps: list[_Step] = []
        self._translate()
        widest = max((n.dtype.count for n in program.instructions), default=1)
        local = sum(_bytes_of(n) for n in program.instructions if n.op is Ops.LOCAL)
        self._chunk = max(1, min(_INSTANCES, _ELEMENTS // widest, _LOCAL_BYTES // max(local, 1)))

    # ---- preparation

    def _slot(self, n: UOp) -> int:
        found = self._slots.get(n)
        if found is None:
            found = self._slots[n] = len(self._slots)
            if n.op is Ops.CONST:
                self._fixed.append((found, constant(n.arg, n.dtype)))
            elif n.op is Ops.IOTA:
                lanes = np.arange(n.dtype.count)[None, :]
                self._fixed.append((found, lanes.astype(register_dtype(n.dtype))))
            elif n.op is Ops.SPECIAL:
                self._specials.append((found, n))
        return found

    def _translate(self) -> None:
        open_steps: list[int] = []
        for number, n in enumerate(self.program.instructions):
            if n.op in (Ops.RANGE, Ops.IF):
                open_steps.append(len(self._steps))
                self._steps.append(_Step(n.op, [], n, self._slot(n), self._slot(n.src[0])))
            elif n.op in (Ops.END, Ops.ENDIF):
                first = open_steps.pop()
                self._steps[first].partner = len(self._steps)
                self._steps.append(_Step(n.op, [], n, partner=first))
            else:
                if not self._steps or self._steps[-1].kind is not None:
                    self._steps.append(_Step(None))
                self._steps[-1].actions.append(
                    action_of(n, self._slot, Place(self.program, number))
                )

    # ---- running

    def run(
        self,
        buffers: Sequence[Array],
        variables: Mapping[str, Any] | None = None,
        begin: int = 0,
        end: int | None = None,
        traffic: LaunchTraffic | None = None,
    ) -> None:
        """Carry out iterations begin .. end of the parallel range; all of them without `end`.

        `buffers` are contiguous arrays in the order of their slots; their bytes count, not
        their dtype. What a launch moves is added to `traffic`. Raises `DeviceError` for an
        access out of range, a buffer that is too small and a variable out of its limits.
        """
        frame = Frame([None] * len(self._slots), begin, end)
        for slot, value in self._fixed:
            frame.values[slot] = value
        self._bind(frame, buffers, variables or {})
        if self.program.parallel is None and begin != 0:
            return
        with np.errstate(all="ignore"):
            if self.program.launch[0]:
                frame.traffic = traffic
                self._launch(frame, variables or {})
            else:
                self._execute(frame)

    def _launch(self, bound: Frame, variables: Mapping[str, Any]) -> None:
        """Carry out all groups, a chunk of whole groups at once."""
        known = {v: v.dtype.const(variables[v.arg[0]]) for v in self.program.variables}
        counts, threads = self.program.launch
        groups = tuple(n if isinstance(n, int) else max(0, int(evaluate(n, known))) for n in counts)
        total, each = prod(groups), prod(threads)
        step = max(1, self._chunk // each)
        for first in range(0, total, step):
            here = min(step, total - first)
            grid = Grid(groups, threads, first, here)
            frame = Frame(list(bound.values), 0, None, here * each, grid=grid)
            frame.traffic = bound.traffic
            for slot, special in self._specials:
                kind = register_dtype(special.dtype)
                frame.values[slot] = grid.index(special.arg[0]).astype(kind)
            self._execute(frame)

    def _bind(self, frame: Frame, buffers: Sequence[Array], variables: Mapping[str, Any]) -> None:
        name = self.program.name
        for p in self.program.params:
            slot, size = p.arg
            if slot >= len(buffers):
                raise errors.DeviceError(f"kernel {name!r}: no buffer was given for slot {slot}")
            if not buffers[slot].flags.c_contiguous:
                raise ValueError(f"kernel {name!r}: the array of slot {slot} is not contiguous")
            memory = Memory.over(buffers[slot], p.dtype, size)
            if memory.size < size:
                raise errors.DeviceError(
                    f"kernel {name!r}: the buffer of slot {slot} has {memory.size} elements "
                    f"of {p.dtype}, it needs {size}"
                )
            memory.name = f"slot {slot}"
            if self.program.launch[0] and slot in self.program.written:
                memory.watch = Watch(f"slot {slot}", size)
            if p in self._slots:
                frame.values[self._slots[p]] = memory
        for v in self.program.variables:
            label, least, greatest = v.arg
            if label not in variables:
                raise errors.DeviceError(f"kernel {name!r}: variable {label!r} has no value")
            value = v.dtype.const(variables[label])
            if not least <= value <= greatest:
                raise errors.DeviceError(
                    f"kernel {name!r}: variable {label!r} is {value}, "
                    f"outside of its limits {least} .. {greatest}"
                )
            if v in self._slots:
                frame.values[self._slots[v]] = constant(value, v.dtype)
        for slot, special in self._specials:
            if special.arg[0] == "begin":
                frame.values[slot] = constant(frame.begin, special.dtype)

    def _execute(self, frame: Frame) -> None:
        place, steps = 0, self._steps
        while place < len(steps):
            step = steps[place]
            if step.kind is None:
                for action in step.actions:
                    action(frame)
                place += 1
            elif step.kind is Ops.RANGE:
                place = self._enter(frame, step, place)
            elif step.kind is Ops.END:
                place = self._again(frame, steps[step.partner], step.partner, place)
            elif step.kind is Ops.IF:
                place = self._branch(frame, step, place)
            else:
                frame.mask = frame.loops.pop().mask
                place += 1

    def _enter(self, frame: Frame, step: _Step, place: int) -> int:
        sizes = frame.values[step.source]
        last = int(sizes.max())
        loop = Loop(0, last, sizes, frame.mask)
        if step.node is self.program.parallel:
            loop.index = frame.begin
            loop.last = last if frame.end is None else min(last, frame.end)
            loop.step = self._chunk
        if loop.index >= loop.last:
            return step.partner + 1
        frame.loops.append(loop)
        self._iterate(frame, step, loop)
        return place + 1

    def _again(self, frame: Frame, step: _Step, first: int, place: int) -> int:
        loop = frame.loops[-1]
        loop.index += loop.step
        if loop.index < loop.last:
            self._iterate(frame, step, loop)
            return first + 1
        frame.loops.pop()
        frame.mask = loop.mask
        if step.node is self.program.parallel:
            frame.instances = 1
        return place + 1

    def _iterate(self, frame: Frame, step: _Step, loop: Loop) -> None:
        assert step.node is not None
        kind = register_dtype(step.node.dtype)
        if step.node is self.program.parallel:
            stop = min(loop.index + loop.step, loop.last)
            frame.instances = stop - loop.index
            frame.values[step.slot] = np.arange(loop.index, stop, dtype=kind)[:, None]
            return
        frame.values[step.slot] = np.array([[loop.index]], dtype=kind)
        if loop.sizes.shape[0] > 1:  # the number of iterations differs between instances
            frame.mask = both(loop.mask, loop.sizes > loop.index)

    def _branch(self, frame: Frame, step: _Step, place: int) -> int:
        condition = frame.values[step.source]
        active = both(frame.mask, condition)
        if not active.any():
            return step.partner + 1
        frame.loops.append(Loop(0, 1, condition, frame.mask))
        frame.mask = None if condition.shape[0] == 1 and frame.mask is None else active
        return place + 1


def _bytes_of(n: UOp) -> int:
    return int(n.arg[1]) * n.dtype.count * register_dtype(n.dtype).itemsize


def execute(
    program: LinearProgram,
    buffers: Sequence[Array],
    variables: Mapping[str, Any] | None = None,
    begin: int = 0,
    end: int | None = None,
) -> None:
    """Run a program once; see `Executor.run`."""
    Executor(program).run(buffers, variables, begin, end)
