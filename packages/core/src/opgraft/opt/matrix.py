"""`Matrix`: a sum of products by a matrix unit.

The unit's layouts say which elements of a tile each thread holds. So the loops over a tile become
the threads that carry the unit out together, and a vector of registers for each operand; what a
thread holds of the result is stored element by element, neighbours at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.loops import substitute_free
from opgraft.ir.matrix import MatrixUnit, Operand
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused, find_loop
from opgraft.opt.axes import (
    DISTINCT,
    Kernel,
    closed_by,
    constant_extent,
    fresh,
    rename,
    store_of,
    stores_once,
    target_of,
)
from opgraft.opt.narrow import multiplied, narrowed
from opgraft.opt.neighbours import consecutive, vector_of
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Matrix(Action):
    """Sums of products over the loop `depth`, for all of the loops `rows` and `columns`, are
    carried out by a matrix unit.

    The three loops are multiples of the unit's m, n and k; NAME.o counts tiles. (A unit with a
    side of 1 takes no loop there: its name is "".) The threads of a unit are a loop "lane".
    `width`: the most neighbours that are loaded or stored at once.
    """

    unit: MatrixUnit
    rows: object
    columns: object
    depth: object
    width: int = 1

    def change(self, sink: UOp) -> UOp:
        return _Change(self, sink).run()


def operands_of(
    reduce: UOp, unit: MatrixUnit, rows: UOp | None, columns: UOp | None
) -> tuple[UOp, UOp]:
    """The factors of a sum of products in the dtypes of a unit's a and b. Raises Refused."""
    x, y = multiplied(reduce)
    sums = unit.dtype("c")
    # integers wrap: the low bits of a sum are those of a wider one
    wraps = reduce.dtype.is_int and sums.is_int and reduce.dtype.bits <= sums.bits
    if reduce.dtype is not sums and not wraps:
        raise Refused(f"{unit.name} adds up in {sums}, the sum is {reduce.dtype}")
    for one, other in ((x, y), (y, x)):
        if columns in one.ranges or rows in other.ranges:
            continue
        a, b = narrowed(one, unit.dtype("a")), narrowed(other, unit.dtype("b"))
        if a is not None and b is not None:
            return a, b
    if any(rows in f.ranges and columns in f.ranges for f in (x, y)):
        raise Refused("a factor varies along both rows and columns")
    raise Refused(
        f"{unit.name} multiplies {unit.dtype('a')} by {unit.dtype('b')}; the factors are not such"
    )


class _Change:
    """One application of `Matrix`."""

    def __init__(self, action: Matrix, sink: UOp) -> None:
        self.unit, self.width = action.unit, max(1, action.width)
        self.sink, self.kernel = sink, Kernel(sink)
        self.sides: dict[str, UOp | None] = {}
        self.outer: dict[str, UOp | None] = {}
        """By side the loop over tiles, where there are several."""
        names = (action.rows, action.columns, action.depth)
        for side, name, size in zip("mnk", names, self.unit.shape, strict=True):
            self._take(side, name, size)
        self.lane: UOp | None = None
        if self.unit.threads > 1:
            name = fresh(self.kernel, "lane")
            self.lane = UOp.range(self.unit.threads, name, AxisKind.THREAD)

    def _take(self, side: str, name: object, size: int) -> None:
        if name == "" and size == 1:
            self.sides[side] = self.outer[side] = None
            return
        loop = find_loop(self.kernel, name)
        extent = constant_extent(loop)
        if extent is None or extent % size:
            raise Refused(
                f"{self.unit.name} takes {size} iterations at once; range {name} of "
                f"{'no constant extent' if extent is None else extent} is no multiple: pad it"
            )
        if self.kernel.is_scanned(loop) or self.kernel.fills_locals(loop):
            raise Refused(f"a local buffer is filled in range {name}, or it is scanned")
        count = extent // size
        if count > 1 and loop.arg[1] not in (AxisKind.LOOP, AxisKind.REDUCE, AxisKind.UNROLL):
            raise Refused(f"range {name} is of kind {loop.arg[1].name} already")
        self.sides[side] = loop
        self.outer[side] = (
            rename(self.kernel, loop, ".o", loop.arg[1], count) if count > 1 else None
        )

    def run(self) -> UOp:
        depth = self.sides["k"]
        tile = [r for s in "mn" if (r := self.sides[s]) is not None]
        closers = [] if depth is None else self.kernel.closers[depth]
        sums = [n for n in closers if n.op is Ops.REDUCE]
        if not sums or len(sums) != len(closers):
            raise Refused("nothing is summed over the depth, or it is no loop of sums alone")
        fills = [e for n in self.kernel.nodes if n.op is Ops.AFTER for e in n.src[1:]]
        effects = [
            e
            for e in dict.fromkeys((*self.kernel.effects, *fills))
            if any(r in closed_by(e) for r in tile)
        ]
        self._check(effects, sums, tile)
        results = {n: self._matrix(n) for n in sums}
        if not tile:
            return tidy(self.sink.substitute({n: r.cast(n.dtype) for n, r in results.items()}))
        stores = {e: self._stores(e, results, n) for n, e in enumerate(effects)}
        made = self._replaced(stores)
        if self.lane is not None:
            made = made.substitute(_shared(target_of(e) for e in effects))
        return tidy(made)

    def _replaced(self, stores: dict[UOp, list[UOp]]) -> UOp:
        """The kernel with several effects in the place of each of these."""
        done: dict[UOp, tuple[UOp, ...]] = {}
        for n in self.kernel.nodes:
            if n in stores:
                done[n] = tuple(stores[n])
                continue
            src = tuple([part for s in n.src for part in done[s]])
            done[n] = (n if src == n.src else n.with_src(src),)
        return done[self.sink][0]

    def _check(self, effects: list[UOp], sums: list[UOp], tile: list[UOp]) -> None:
        """Refuses what a tile would have to be taken apart for."""
        for loop in tile:
            for n in self.kernel.closers[loop]:
                if n not in effects and not any(n in e.toposort() for e in effects):
                    raise Refused(f"range {loop.arg[0]} is closed by more than effects")
                if n.op is Ops.REDUCE:
                    raise Refused(f"range {loop.arg[0]} is reduced")
        for e in effects:
            store = store_of(e)
            if store.op is not Ops.STORE or any(r not in closed_by(e) for r in tile):
                raise Refused("an effect has not all loops of the tile")
            if not stores_once(store, closed_by(e)):
                raise Refused("iterations of the tile may store to one element: order counts")
        for n in self.kernel.reduces:
            if n not in sums and any(r in n.ranges for r in tile):
                raise Refused("another sum depends on the loops of the tile")

    def _places(self, operand: Operand, register: int) -> dict[UOp, UOp]:
        """What the loops of the tile are for one register of the thread "lane"."""
        layout = self.unit.layout(operand)
        inside: dict[str, UOp] = {}
        before = 1
        for side, size, step in layout.lanes:
            if side and self.lane is not None:
                digit = self.lane // before % size * step
                inside[side] = inside[side] + digit if side in inside else digit
            before *= size
        for side, number in layout.at(0, register).items():
            place = UOp.const(dtypes.index, number)
            inside[side] = inside[side] + place if side in inside else place
        changes: dict[UOp, UOp] = {}
        for side, place in inside.items():
            loop, outer = self.sides[side], self.outer[side]
            if loop is not None:
                size = self.unit.shape["mnk".index(side)]
                changes[loop] = place if outer is None else outer * size + place
        return changes

    def _held(self, operand: Operand, value: UOp) -> UOp:
        """What a thread holds of an operand."""
        count = self.unit.registers(operand)
        parts = [substitute_free(value, self._places(operand, r)) for r in range(count)]
        return vector_of(_tidied(parts), self.width)

    def _matrix(self, reduce: UOp) -> UOp:
        """The sums, as each thread holds them."""
        unit, depth = self.unit, self.sides["k"]
        a, b = operands_of(reduce, unit, self.sides["m"], self.sides["n"])
        kind = unit.held("c")
        nothing = UOp.const(unit.dtype("c"), 0)
        start = nothing if kind.count == 1 else nothing.broadcast(kind.count)
        made = UOp(Ops.MATRIX, kind, (self._held("a", a), self._held("b", b), start), unit)
        instead = () if self.outer["k"] is None else (self.outer["k"],)
        ranges = [r for s in reduce.src[1:] for r in (instead if s is depth else (s,))]
        return made.reduce(Ops.ADD, *ranges) if ranges else made

    def _stores(self, effect: UOp, results: dict[UOp, UOp], number: int) -> list[UOp]:
        """An effect for each register of the result, or for some of them at once."""
        store, count = store_of(effect), self.unit.registers("c")
        parts = []
        for register in range(count):
            changes = self._places("c", register)
            for n, result in results.items():
                one = result if count == 1 else result.extract(register)
                changes[n] = one if one.dtype is n.dtype else one.cast(n.dtype)
            parts.append(store.substitute(changes))
        ranges: list[UOp] = []
        for loop in closed_by(effect):
            side = next((s for s, r in self.sides.items() if r is loop), None)
            outer = loop if side is None else self.outer[side]
            ranges += [] if outer is None else [outer]
        if self.lane is not None:
            ranges.append(self.lane)
        tag = f"{DISTINCT}:{self.unit.name}{number}"
        return [s.replace(tag=tag).end(*ranges) for s in self._joined(_tidied(parts))]

    def _joined(self, stores: Sequence[UOp]) -> list[UOp]:
        """The STOREs, neighbours as one."""
        count = len(stores)
        for size in range(min(self.width, count), 1, -1):
            groups = [stores[i : i + size] for i in range(0, count, size)]
            if count % size == 0 and all(map(_neighbours, groups)):
                return [
                    g[0].with_src(
                        (*g[0].src[:2], vector_of([s.src[2] for s in g], size), *g[0].src[3:])
                    )
                    for g in groups
                ]
        return list(stores)


def _shared(buffers: Iterable[UOp]) -> dict[UOp, UOp]:
    """Buffers of each thread's own become those of its group: each thread fills a part."""
    return {
        b: b.replace(arg=(*b.arg[:2], Space.GROUP))
        for b in buffers
        if b.op is Ops.LOCAL and b.arg[2] is Space.PRIVATE
    }


def _neighbours(stores: Sequence[UOp]) -> bool:
    first = stores[0]
    return all(s.src[0] is first.src[0] and s.src[3:] == first.src[3:] for s in stores) and (
        consecutive([s.src[1] for s in stores])
    )


def _tidied(parts: Sequence[UOp]) -> tuple[UOp, ...]:
    """The same, simplified together."""
    return tidy(UOp.sink(*parts)).src
