"""`Tile`: a tile of results in registers over any extent. `Outermost`: the order of loops."""

from __future__ import annotations

from dataclasses import dataclass

from opgraft.dtype import dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.ops import AxisKind, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import (
    Action,
    Refused,
    close_copies,
    find_loop,
    keep_nesting,
    replace_nodes,
)
from opgraft.opt.axes import (
    DISTINCT,
    OVERLAP,
    Kernel,
    buffer_of,
    closed_by,
    constant_extent,
    is_distinct,
    known_most,
    most,
    overlapping,
    rename,
    store_of,
    stores_once,
)
from opgraft.rules.simplify import tidy


@writable_as_text
@dataclass(frozen=True)
class Tile(Action):
    """Ranges of effects become tiles: for each (name, copies, lanes) so many iterations, copies
    times lanes, are carried out at once. NAME.o counts tiles, NAME.u copies, NAME.v lanes.

    The last tile is moved back to end with the range, so all tiles are full; what two tiles cover
    is stored twice, the same value each time. Where a single tile is wider than the range, its
    last copy is moved back instead. So are those of the last tile of a range whose extent varies,
    each by itself: such a range has tiles of copies alone.
    """

    parts: tuple[tuple[object, int, int], ...]

    def change(self, sink: UOp) -> UOp:
        # what may be tiled is seen before the first is: tiles that overlap hide it
        kernel = Kernel(sink)
        names = [name for name, _, _ in self.parts]
        if len(set(names)) < len(names):
            raise Refused(f"a range is tiled once: {', '.join(map(str, names))}")
        for name, copies, lanes in self.parts:
            _check(kernel, name, copies, lanes)
        for name, copies, lanes in self.parts:
            sink = _tiled(Kernel(sink), name, copies, lanes)
        return tidy(sink)


def _check(kernel: Kernel, name: object, copies: int, lanes: int) -> None:
    loop, width = kernel.find(name), copies * lanes
    size = None if loop is None else known_most(loop)
    if loop is None or size is None:
        raise Refused(f"there is no range {name!r} of known extent")
    varies = constant_extent(loop) is None
    if varies and lanes > 1:
        raise Refused(f"range {name} may be shorter than a vector of {lanes} lanes")
    if not 1 <= lanes <= size or not 0 <= (copies - 1) * lanes < size:
        raise Refused(f"range {name} of {size} has no tiles of {width}")
    if any(n.op is not Ops.END for n in kernel.closers[loop]):
        raise Refused(f"range {name} is reduced: no value of it may count twice")
    if not kernel.may_reorder(loop) and not fills_alone(kernel, loop):
        raise Refused(f"iterations of {name} stay in order")
    if width > 1 and loop.arg[1] not in (AxisKind.LOOP, AxisKind.PARALLEL):
        raise Refused(f"range {name} is carried out at once already")
    if (varies or size % width) and not repeatable(kernel, loop):
        raise Refused(f"a statement in {name} reads what it or another one stores")
    if (varies or size % width) and loop.arg[1] is AxisKind.PARALLEL:
        raise Refused(
            f"the cores share range {name}: two would store the elements of the last tile"
        )
    if width > 1 and kernel.fills_locals(loop):
        raise Refused(f"a local buffer is filled anew in each iteration of {name}")


def _tiled(kernel: Kernel, name: object, copies: int, lanes: int) -> UOp:
    loop = kernel.find(name)
    assert loop is not None
    if constant_extent(loop) is None:
        return _copied(kernel, loop, copies)
    size, width = constant_extent(loop) or 1, copies * lanes
    ranges: list[UOp] = []
    index: UOp = UOp.const(dtypes.index, 0)
    count = -(-size // width)
    if count > 1:
        outer = rename(kernel, loop, ".o", loop.arg[1], count)
        ranges.append(outer)
        index = outer * width
        if size % width:
            index = index.minimum(UOp.const(dtypes.index, size - width))
    if copies > 1:
        copy = rename(kernel, loop, ".u", AxisKind.UNROLL, copies)
        ranges.append(copy)
        index = index + copy * lanes
        if width > size:
            index = index.minimum(UOp.const(dtypes.index, size - lanes))
    if lanes > 1:
        lane = rename(kernel, loop, ".v", AxisKind.VECTOR, lanes)
        ranges.append(lane)
        index = index + lane
    sink = kernel.sink
    if size % width:  # the loop over tiles, or that over copies of the only one
        sink = _mark_overlap(kernel, loop, str(ranges[0].arg[0]))
    return close_copies(sink, loop, [({loop: index}, tuple(ranges))])


def _copied(kernel: Kernel, loop: UOp, copies: int) -> UOp:
    """A range whose extent varies, in tiles: copies beyond its end are its last iteration."""
    extent = loop.src[0]
    copy = rename(kernel, loop, ".u", AxisKind.UNROLL, copies)
    ranges, index = [copy], copy + 0
    if most(loop) > copies:
        count = (extent + (copies - 1)) // copies
        outer = rename(kernel, loop, ".o", loop.arg[1], count)
        ranges.insert(0, outer)
        index = outer * copies + copy
    index = index.minimum(extent + -1)
    sink = _mark_overlap(kernel, loop, str(copy.arg[0]))
    return close_copies(sink, loop, [({loop: index}, tuple(ranges))])


def _mark_overlap(kernel: Kernel, loop: UOp, name: str) -> UOp:
    """The kernel, with the STOREs in a loop marked as those that the loop `name`, which it becomes,
    carries out twice for some elements."""
    changes: dict[UOp, UOp] = {}
    for effect in kernel.closers[loop]:
        store, loops = store_of(effect), closed_by(effect)
        names = overlapping(store)
        once = store.tag is None or is_distinct(store.tag)
        if names or (once and stores_once(store, loops)):
            changes[store] = store.replace(tag=f"{OVERLAP}:{','.join((*names, name))}")
    return replace_nodes(kernel.sink, changes)


def rename_overlap(kernel: Kernel, loop: UOp, name: str) -> UOp:
    """The kernel, with the STOREs marked that a loop carries out twice for some elements as those
    that the loop `name`, which takes its place in that, does; or several, with commas between."""
    changes: dict[UOp, UOp] = {}
    for effect in kernel.closers[loop]:
        store = store_of(effect)
        names = [name if n == str(loop.arg[0]) else n for n in overlapping(store)]
        if names:
            changes[store] = store.replace(tag=f"{OVERLAP}:{','.join(names)}")
    return replace_nodes(kernel.sink, changes)


def mark_distinct(kernel: Kernel, loop: UOp) -> UOp:
    """The kernel, with those STOREs in a loop marked of which it shows that no two iterations
    reach one element: after the loop is split their indices may not tell."""
    stores = {store_of(e): closed_by(e) for e in kernel.closers[loop] if e.op is Ops.END}
    once = [s for s, loops in stores.items() if s.tag is None and stores_once(s, loops)]
    return replace_nodes(kernel.sink, {s: s.replace(tag=DISTINCT) for s in once})


def fills_alone(kernel: Kernel, loop: UOp) -> bool:
    """Whether a loop only fills buffers of the kernel's own, each element by itself."""
    return (
        not kernel.collides(loop)
        and not kernel.is_scanned(loop)
        and all(
            buffer_of(store_of(effect).src[0]).op is Ops.LOCAL
            and stores_once(store_of(effect), closed_by(effect))
            for effect in kernel.closers[loop]
        )
    )


def repeatable(kernel: Kernel, loop: UOp) -> bool:
    """Whether iterations of `loop` may be carried out twice: nothing reads what they store. (A
    buffer of the kernel's own is read when it is full; but by what fills it, earlier.)"""
    stores = [store_of(effect) for effect in kernel.closers[loop]]
    if any(store.op is not Ops.STORE for store in stores):
        return False
    for store in stores:
        buffer = buffer_of(store.src[0])
        readers = kernel.nodes if buffer.op is Ops.PARAM else store.toposort()
        if any(n.op is Ops.LOAD and buffer_of(n.src[0]) is buffer for n in readers):
            return False
    return True


def _repeats(kernel: Kernel, loop: UOp) -> bool:
    """Whether all that iterations of a loop have in common is that they store the same twice."""
    stores = [store_of(e) for e in kernel.closers[loop]]
    return not kernel.is_scanned(loop) and all(overlapping(s) for s in stores)


@writable_as_text
@dataclass(frozen=True)
class Outermost(Action):
    """Ranges go outermost, in this order, in every effect and every fill of a buffer of the
    kernel's own that closes them."""

    names: tuple[object, ...]

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        loops = [r for r in map(kernel.find, self.names) if r is not None]
        if not loops and self.names:
            find_loop(kernel, self.names[0])
        for loop in loops:
            free = kernel.may_reorder(loop) or fills_alone(kernel, loop)
            if not free and not _repeats(kernel, loop):
                raise Refused(f"iterations of {loop.arg[0]} stay in order")
        changes: dict[UOp, UOp] = {}
        for effect in kernel.nodes:
            if effect.op is Ops.END and any(r in effect.src[1:] for r in loops):
                first = [r for r in loops if r in effect.src[1:]]
                rest = [r for r in effect.src[1:] if r not in first]
                _keep_shared(effect.src[1:], (*first, *rest))
                keep_nesting((*first, *rest))
                changes[effect] = effect.with_src((effect.src[0], *first, *rest))
        return replace_nodes(sink, changes)


def _keep_shared(before: tuple[UOp, ...], after: tuple[UOp, ...]) -> None:
    """Refused where a loop goes around one that the cores share, and was inside it."""
    for place, shared in enumerate(after):
        if shared.arg[1] is AxisKind.PARALLEL:
            inside = before[before.index(shared) + 1 :]
            if any(r in inside and r.arg[1] is AxisKind.LOOP for r in after[:place]):
                raise Refused(f"the cores share range {shared.arg[0]}: it stays outermost")
