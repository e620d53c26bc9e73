"""Random kernels in kernel form: everything that tensor may hand to core, in small sizes.

`python -m kernel_forms.random_kernels --seeds 0:2000 --devices INTERP,CPU` runs that many.

Numbers stay small integers and halves, so that every order of a sum is exact: what is multiplied
is bounded first. A kernel may have several outputs over shared loops, reductions, scans, locals,
variables, gathers, gated loads and stores, outputs that are read again, and arrays in place.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opgraft import Device, DType, dtypes, using
from opgraft.ir import Ops, Space, UOp
from opgraft.ir.spec import check

from .execute import execute
from .kernels import kernel, loop, over, param
from .memory import fill
from .oracle import Memory, Oracle
from .seeds import try_seeds

_EXTENTS: Final = (1, 2, 3, 5, 8, 9, 16, 17, 24)
_POINTS: Final = 400  # of all loops of a statement together
_LARGEST: Final = 8  # of what is multiplied
_BUFFERS: Final = 24


@dataclass(frozen=True)
class Made:
    """A kernel, and values for its variables."""

    sink: UOp
    variables: dict[str, int] = field(default_factory=dict)

    def memory(self, seed: int) -> Memory:
        """Values for its parameters."""
        return fill(self.sink, seed)

    def expected(self, memory: Memory) -> Memory:
        """The memory after the kernel, by the oracle; `memory` itself is left alone."""
        held = {slot: list(values) for slot, values in memory.items()}
        return Oracle(self.sink, held, self.variables).run()


class AnyKernel:
    """Draws a kernel. The same seed gives the same one in every process."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed

    def make(self) -> Made:
        """The kernel of this seed: one of few enough buffers."""
        while True:
            made = self._draw()
            if self.slot <= _BUFFERS:
                check(made.sink, "kernel")
                return made

    # ---- shape

    def _draw(self) -> Made:
        pick = self.random
        self.dtype: DType = pick.choice((dtypes.float32, dtypes.float32, dtypes.int32))
        self.variables: dict[UOp, int] = {}
        self.slot = self.locals = 0
        self.filled: list[tuple[UOp, tuple[UOp, ...], tuple[UOp, ...]]] = []
        self.spine = self._loops()
        self.reduces = [over(pick.choice((1, 3, 8, 17)), f"k{n}") for n in range(2)]
        # scans across each other are refused: one loop is scanned over, if any
        self.scanned = pick.choice(self.spine) if pick.random() < 0.4 else None
        self.outputs: list[tuple[UOp, UOp, list[UOp]]] = []
        effects = [self._statement() for _ in range(pick.choice((1, 1, 2, 3)))]
        sink = kernel(f"random{self.seed}", *effects)
        used = {n.arg[0] for n in sink.toposort() if n.op is Ops.PARAM}
        slots = {old: new for new, old in enumerate(sorted(used))}
        renamed = {
            n: UOp(Ops.PARAM, n.dtype, (), (slots[n.arg[0]], n.arg[1]))
            for n in sink.toposort()
            if n.op is Ops.PARAM
        }
        there = {n for n in sink.toposort() if n.op is Ops.VAR}
        values = {v.arg[0]: number for v, number in self.variables.items() if v in there}
        return Made(sink.substitute(renamed), values)

    def _loops(self) -> list[UOp]:
        pick = self.random
        sizes: list[int] = []
        for _ in range(pick.choice((1, 2, 2, 3))):
            room = _POINTS // math.prod(sizes)
            sizes.append(pick.choice([n for n in _EXTENTS if n <= room]))
        loops = [loop(s, f"i{n}") for n, s in enumerate(sizes)]
        if pick.random() < 0.15:
            at = pick.randrange(len(loops))
            n = self._variable(0, sizes[at])
            loops[at] = UOp.range(n, f"i{at}")
        return loops

    def _variable(self, least: int, most: int) -> UOp:
        made = UOp.variable(f"n{len(self.variables)}", least, most)
        self.variables[made] = self.random.randint(least, most)
        return made

    def _param(self, size: int, dtype: DType | None = None) -> UOp:
        made = param(self.slot, size, dtype or self.dtype)
        self.slot += 1
        return made

    @staticmethod
    def extent(r: UOp) -> int:
        """The greatest number of iterations."""
        return int(r.src[0].vmax)

    def flat(self, loops: Sequence[UOp]) -> UOp:
        """The place of an iteration in row-major order."""
        at = UOp.const(dtypes.index, 0)
        for r in loops:
            at = at * self.extent(r) + r
        return at

    def size(self, loops: Sequence[UOp]) -> int:
        return math.prod([self.extent(r) for r in loops])

    # ---- statements

    def _statement(self) -> UOp:
        pick = self.random
        loops = list(self.spine)
        if self.outputs:
            loops = self.spine[: pick.randint(1, len(self.spine))]
        if self.scanned is not None and self.scanned not in loops:
            self.scanned = None
        order = list(loops)
        if pick.random() < 0.2:
            pick.shuffle(order)
        size, at = self.size(loops), self.flat(order)
        if pick.random() < 0.15:
            at = at * -1 + (size - 1)
        buffer = self._param(size)
        value = self.value(loops, 3)
        gate = None
        if pick.random() < 0.25:
            gate = self.condition(loops)
            if pick.random() < 0.4:
                at = at + pick.choice((-1, 1, 2))
                gate = (at >= 0) & (at < size) & gate
        if pick.random() < 0.25:
            # in place: the old value at the same index
            old = buffer.load(at) if gate is None else buffer.load(at, gate, self.number(0))
            value = value + old * self.number(2)
        store = buffer.store(at, value, gate)
        if gate is None and not any(r.src[0].op is Ops.VAR for r in loops):
            self.outputs.append((buffer, store, loops))
        return store.end(*loops)

    # ---- values

    def number(self, value: int) -> UOp:
        return UOp.const(self.dtype, float(value) if self.dtype.is_float else value)

    def value(self, loops: list[UOp], depth: int) -> UOp:
        """An expression that is free in some of these loops, outermost first."""
        pick = self.random
        if depth == 0:
            return self.leaf(loops)
        kinds = {
            self._arithmetic: 6,
            self._reduction: 4,
            self._scan: 4,
            self._local: 2,
            self._selected: 2,
            self.leaf: 2,
            self._read_again: 3,
            self._of_a_variable: 1,
        }
        return pick.choices(list(kinds), list(kinds.values()))[0](loops, depth)

    def _bounded(self, x: UOp) -> UOp:
        return x.minimum(self.number(_LARGEST)).maximum(self.number(-_LARGEST))

    def _arithmetic(self, loops: list[UOp], depth: int) -> UOp:
        a, b = self.value(loops, depth - 1), self.value(loops, depth - 1)
        kind = self.random.choice("++-*<>")
        if kind == "*":
            return self._bounded(a) * self._bounded(b)
        return {"+": a + b, "-": a - b, "<": a.minimum(b), ">": a.maximum(b)}[kind]

    def _reduction(self, loops: list[UOp], depth: int) -> UOp:
        free = [r for r in self.reduces if r not in loops]
        if not free or self.size(loops) * self.extent(free[0]) > 4 * _POINTS:
            return self.leaf(loops)
        op = self.random.choice((Ops.ADD, Ops.ADD, Ops.MAX, Ops.MIN))
        value = self.value([*loops, free[0]], depth - 1)
        return (
            self._bounded(value).reduce(op, free[0]) if op is Ops.ADD else value.reduce(op, free[0])
        )

    def _scan(self, loops: list[UOp], depth: int) -> UOp:
        if self.scanned not in loops or not all(r in self.spine for r in loops):
            return self._arithmetic(loops, depth)  # a scan inside of a reduction is refused
        scanned, self.scanned = self.scanned, None  # no scan in a scan
        value = self._bounded(self.value(loops, depth - 1))
        self.scanned = scanned
        op = self.random.choice((Ops.ADD, Ops.ADD, Ops.MAX, Ops.MIN))
        return UOp(Ops.SCAN, self.dtype, (value, scanned), op)

    def _local(self, loops: list[UOp], depth: int) -> UOp:
        """Read a row that is filled once for each iteration of the loops that it depends on."""
        pick = self.random
        known = [f for f in self.filled if all(r in loops for r in f[1])]
        if known and pick.random() < 0.5:
            filled, _, own = pick.choice(known)
        else:
            number = self.locals
            self.locals += 1  # before the value is drawn, which may have locals of its own
            own = [
                loop(pick.choice((1, 3, 8, 9)), f"l{number}_{n}")
                for n in range(pick.choice((1, 1, 2)))
            ]
            outer = [r for r in loops if r in self.spine and r is not self.scanned]
            outer = outer[: pick.randint(0, len(outer))]
            scanned, self.scanned = self.scanned, None
            value = self.value([*outer, *own], depth - 1)
            self.scanned = scanned
            size = self.size(own)
            row = UOp(Ops.LOCAL, self.dtype, (), (f"row{number}", size, Space.PRIVATE))
            filled = row.after(row.store(self.flat(own), value).end(*own))
            self.filled.append((filled, filled.ranges, tuple(own)))
        size = self.size(own)
        at = self.index(loops, size)
        return filled.load(at)

    def _selected(self, loops: list[UOp], depth: int) -> UOp:
        a, b = self.value(loops, depth - 1), self.value(loops, depth - 1)
        return self.condition(loops).where(a, b)

    def _read_again(self, loops: list[UOp], depth: int) -> UOp:
        """What an earlier statement stored, at another place, once its inner loops are done."""
        pick = self.random
        known = [o for o in self.outputs if o[2][0] in loops]
        if not known:
            return self._arithmetic(loops, depth)
        buffer, store, inner = pick.choice(known)
        agreed = next(n for n in range(len(inner), 0, -1) if all(r in loops for r in inner[:n]))
        agreed = pick.randint(1, agreed)
        closed = inner[agreed:]
        place = store.src[1]
        for r in closed:
            place = place.substitute({r: self.index(loops, self.extent(r))})
        return buffer.after(store.end(*closed) if closed else store).load(place)

    def _of_a_variable(self, loops: list[UOp], depth: int) -> UOp:
        known = list(self.variables)
        if known and self.random.random() < 0.5:
            n = self.random.choice(known)
        else:
            n = self._variable(self.random.choice((-3, 0)), self.random.choice((2, 5)))
        return n.cast(self.dtype) + self.value(loops, depth - 1)

    # ---- leaves

    def index(self, loops: Sequence[UOp], size: int) -> UOp:
        """A place in 0 .. size-1."""
        pick = self.random
        fitting = [r for r in loops if self.extent(r) <= size]
        if fitting and pick.random() < 0.7:
            return pick.choice(fitting)
        some = [r for r in loops if pick.random() < 0.6] or list(loops[:1])
        at = self.flat(some) if some else UOp.const(dtypes.index, 0)
        return (at * pick.choice((1, 3, -1)) + pick.randint(0, 3)) % size

    def condition(self, loops: Sequence[UOp]) -> UOp:
        pick = self.random
        kind = pick.random()
        if kind < 0.4 and loops:
            r = pick.choice(list(loops))
            made = r < pick.randint(0, self.extent(r))
        elif kind < 0.6 and len(loops) > 1:
            a, b = pick.sample(list(loops), 2)
            made = a < b
        elif kind < 0.7:
            made = self._variable(0, 5) < 3
        else:
            made = self.leaf(loops) < self.number(pick.randint(-2, 6))
        return ~made if pick.random() < 0.2 else made

    def leaf(self, loops: Sequence[UOp], depth: int = 0) -> UOp:
        """An element of an input: straight, mirrored, shifted under a gate, or gathered."""
        pick = self.random
        used = [r for r in loops if pick.random() < 0.8] or list(loops[:1])
        if pick.random() < 0.3:
            pick.shuffle(used)
        size, at = self.size(used), self.flat(used)
        kind = pick.random()
        if kind < 0.15:
            at = at * -1 + (size - 1)
        elif kind < 0.35:
            at = at + pick.choice((-1, 1, 2))
            inside = (at >= 0) & (at < size)
            if pick.random() < 0.3:
                inside = inside & self.condition(used) if len(used) > 1 else inside
            return self._param(size).load(at, inside, self.number(1))
        elif kind < 0.5:
            return self._gathered(used)
        elif kind < 0.6 and used:
            shift = self._variable(0, 4)
            return self._param(size + 4).load(at + shift)
        elif kind < 0.65:
            return self.number(pick.randint(-3, 3))
        return self._param(size).load(at)

    def _gathered(self, used: Sequence[UOp]) -> UOp:
        pick = self.random
        integer = pick.choice((dtypes.int32, dtypes.int64, dtypes.int8))
        where = self._param(self.size(used), integer).load(self.flat(used)).cast(dtypes.index)
        table = pick.choice((1, 5, 9))
        if pick.random() < 0.4:
            return self._param(table).load(where % table)
        width = pick.choice([1, *[self.extent(r) for r in used]])
        inner = next((r for r in used if self.extent(r) == width), UOp.const(dtypes.index, 0))
        inside = (where >= 0) & (where < table)
        return self._param(table * width).load(where * width + inner, inside, self.number(0))


# ---- running many


def compare(made: Made, devices: Sequence[Any], seed: int) -> str:
    """What is wrong with this kernel on these devices; empty if nothing is."""
    memory = made.memory(seed)
    wanted = made.expected(memory)
    for device in devices:
        with using(SPEC=True):
            got = execute(device, made.sink, memory, made.variables)
        for slot, values in wanted.items():
            if got[slot] != values:
                pairs = zip(itertools.count(), got[slot], values)
                at = next((n, a, b) for n, a, b in pairs if a != b)
                return f"{device.name}: slot {slot} [{at[0]}] is {at[1]}, should be {at[2]}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:200")
    parser.add_argument("--devices", default="INTERP,CPU")
    given = parser.parse_args(arguments)
    first, last = map(int, given.seeds.split(":"))
    devices = [Device[name] for name in given.devices.split(",")]
    faults = try_seeds(
        range(first, last), lambda seed: compare(AnyKernel(seed).make(), devices, seed)
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
