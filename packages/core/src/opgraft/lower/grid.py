"""Give every PARALLEL and THREAD range its place in a launch of groups and threads.

Before: a kernel graph whose schedule has marked ranges PARALLEL and THREAD, for a target with
`group_dims`; no REDUCE closes one. After: none of these ranges is left; their indices are
SPECIALs, "group0" and so on, which every thread of the launch has. A statement that has no range
for a dimension, or a shorter one than others, stands under a guard: a loop of one iteration or
none, which linearize writes as a condition; where threads of a group hand each other values, it
is stores and loads that are gated instead, so that every thread gets to the barriers. Groups
beyond the target's limit are folded: each group loops.
"""

from __future__ import annotations

from math import prod
from typing import Final

from opgraft.dtype import dtypes
from opgraft.errors import LoweringError
from opgraft.ir.linear import Launch
from opgraft.ir.loops import stride_of
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.uop import UOp
from opgraft.opt.axes import buffer_of, closed_by, store_of, target_of
from opgraft.opt.pad import gated, loads_gated, pad_range
from opgraft.target import Target

_NAMES: Final = {AxisKind.PARALLEL: "group", AxisKind.THREAD: "thread"}


def launch_grid(sink: UOp, target: Target, together: bool) -> tuple[UOp, Launch]:
    """The kernel with launch indices in place of its PARALLEL and THREAD ranges, and the launch.

    `together`: threads of a group hand each other values. Numbers of groups that variables
    decide are expressions of dtype index. Raises LoweringError for a schedule that the target
    can't launch.
    """
    if not target.group_dims:
        return sink, ((), ())
    return _Grid(sink, target, together).run()


def guard(condition: UOp, name: str) -> UOp:
    """A range of one iteration where the condition holds, else of none."""
    return UOp.range(condition.cast(dtypes.index), name)


class _Grid:
    def __init__(self, sink: UOp, target: Target, cooperative: bool) -> None:
        self.target = target
        self.sink = sink
        self.cooperative = cooperative
        """Whether threads of a group hand each other values, so that all get to the barriers."""
        self.axes = self._axes()
        if self.cooperative:
            self._lengthen()
        self.changes: dict[UOp, UOp] = {}
        self.instead: dict[UOp, tuple[UOp, ...]] = {}
        """For each range of the grid the loops and guards that take its place."""
        self.used: dict[str, UOp] = {}
        """The indices that have more than one value."""

    def run(self) -> tuple[UOp, Launch]:
        groups: list[int | UOp] = []
        threads: list[int] = []
        counts = self._counts()
        for axis in range(1 + max(self.axes.values(), default=0)):
            groups.append(self._groups(axis))
            threads.append(counts.get(axis, 1))
            self._threads(axis, threads[-1])
        whole = UOp.const(dtypes.index, 0)
        for axis, count in reversed(list(enumerate(threads))):
            whole = whole * count + self._special(f"thread{axis}", count)
        for loop in self.flat:
            self._settle_thread(loop, whole)
        if prod(threads) > self.target.threads_per_group:
            raise LoweringError(
                f"the schedule wants {prod(threads)} threads of a group; {self.target.name} has "
                f"{self.target.threads_per_group}"
            )
        return self._rewritten(), (tuple(groups), tuple(threads))

    # ---- dimensions

    def _axes(self) -> dict[UOp, int]:
        """The dimension of each range. Those of one statement differ; threads along which memory is
        closest come first, else the innermost.

        Where some statements have several THREAD ranges, one that stands by itself in another
        statement goes over all dimensions of threads: it is in `flat`.
        """
        beside: dict[UOp, dict[UOp, None]] = {}
        for n in self.sink.toposort():
            if n.op is Ops.END:
                own = [r for r in (*reversed(closed_by(n)), *n.ranges) if r.arg[1] in _NAMES]
                for loop in own:
                    beside.setdefault(loop, {}).update(dict.fromkeys(own))
        threads = [r for r in beside if r.arg[1] is AxisKind.THREAD]
        lone = [r for r in threads if not any(o in threads and o is not r for o in beside[r])]
        self.flat = lone if len(lone) < len(threads) else []
        closeness = self._closeness(threads) if len(threads) > 1 else {}
        axes: dict[UOp, int] = {}
        for loop in sorted(beside, key=lambda r: -closeness.get(r, 0)):
            others = beside[loop]
            if loop in self.flat:
                continue
            taken = {axes[r] for r in others if r in axes and r.arg[1] is loop.arg[1]}
            axes[loop] = next(axis for axis in range(len(others)) if axis not in taken)
        most = 1 + max(axes.values(), default=0)
        if most > self.target.group_dims:
            raise LoweringError(
                f"the schedule spreads {most} loops of one kind; a launch on {self.target.name} "
                f"has {self.target.group_dims} dimensions"
            )
        return axes

    def _closeness(self, threads: list[UOp]) -> dict[UOp, int]:
        """How many accesses to buffers move on to the neighbour with each of these ranges."""
        found = dict.fromkeys(threads, 0)
        for n in self.sink.toposort():
            if n.op in (Ops.LOAD, Ops.STORE) and buffer_of(n.src[0]).op is Ops.PARAM:
                for loop in threads:
                    found[loop] += loop in n.src[1].ranges and stride_of(n.src[1], loop) == 1
        return found

    def _lengthen(self) -> None:
        """Give all THREAD ranges of a dimension one extent; gates hold the shorter ones back."""
        counts = self._counts()
        whole = prod(counts.values())
        for loop in [*self.axes, *self.flat]:
            if loop.arg[1] is not AxisKind.THREAD:
                continue
            count = whole if loop in self.flat else counts[self.axes[loop]]
            if loop.src[0].vmax < count:
                longer = loop.with_src((UOp.const(dtypes.index, count),))
                self.sink = pad_range(self.sink, loop, longer)
        self.axes = self._axes()

    def _counts(self) -> dict[int, int]:
        """Threads in each dimension that has some."""
        counts: dict[int, int] = {}
        for loop in [*self.axes, *self.flat]:
            if loop.arg[1] is not AxisKind.THREAD:
                continue
            size = loop.src[0].const_value
            if size is None:
                raise LoweringError("the number of threads of a group is a constant")
            if loop in self.flat:
                others = prod(counts.values()) // counts[0]
                counts[0] = max(counts[0], -(-int(size) // others))
            else:
                counts[self.axes[loop]] = max(counts.get(self.axes[loop], 1), int(size))
        return counts

    def _special(self, name: str, size: int) -> UOp:
        return UOp(Ops.SPECIAL, dtypes.int32, (), (name, size)).cast(dtypes.index)

    def _groups(self, axis: int) -> int | UOp:
        """Settles the PARALLEL ranges of a dimension; the number of groups."""
        own = [r for r, at in self.axes.items() if at == axis and r.arg[1] is AxisKind.PARALLEL]
        limit, name = self.target.max_parallel_size, f"group{axis}"
        sizes = [r.src[0] for r in own]
        known = [s.const_value for s in sizes]
        if None not in known:
            most = max((int(k) for k in known if k is not None), default=1)
            folds = max(1, -(-most // limit))
            launched = max(1, -(-most // folds))
            count: int | UOp = launched if most else 0
        else:
            total = sizes[0]
            for size in sizes[1:]:
                total = total.maximum(size)
            launched = max(1, min(int(total.vmax), limit))
            count = total if total.vmax <= limit else total.minimum(limit)
        index = self._special(name, launched)
        if launched > 1:
            self.used[name] = index
        for loop in own:
            size, instead, value = loop.src[0], list[UOp](), index
            if size.vmax > launched:
                turn = UOp.range((size + (launched - 1)) // launched, f"{loop.arg[0]}.f")
                value = index + turn * launched
                instead.append(turn)
            if not (value < size).vmin:
                # one group more than another statement needs, or the last turn of a fold
                instead.append(guard(value < size, f"{loop.arg[0]}.w"))
            self.changes[loop], self.instead[loop] = value, tuple(instead)
        return count

    def _threads(self, axis: int, count: int) -> None:
        """Settles the THREAD ranges of a dimension of so many threads."""
        name = f"thread{axis}"
        index = self._special(name, count)
        if count > 1:
            self.used[name] = index
        for loop, at in self.axes.items():
            if at == axis and loop.arg[1] is AxisKind.THREAD:
                self._settle_thread(loop, index)

    def _settle_thread(self, loop: UOp, index: UOp) -> None:
        inside = index < loop.src[0]
        self.changes[loop] = index
        self.instead[loop] = () if inside.vmin else (guard(inside, f"{loop.arg[0]}.w"),)

    # ---- the graph

    def _rewritten(self) -> UOp:
        done: dict[UOp, UOp] = dict(self.changes)
        awaited = {e for n in self.sink.toposort() if n.op is Ops.AFTER for e in n.src[1:]}
        top = set(self.sink.src)
        for n in self.sink.toposort():
            if n in done:
                continue
            made = self._ended(n, done) if n.op is Ops.END else None
            if made is None:
                src = tuple([done[s] for s in n.src])
                made = n if src == n.src else n.with_src(src)
            if n in top or (n in awaited and _is_shared(target_of(n))):
                made = self._held_back(n, made, n in top)
            done[n] = made
        return done[self.sink]

    def _ended(self, n: UOp, done: dict[UOp, UOp]) -> UOp:
        ranges: list[UOp] = []
        for loop in n.src[1:]:
            ranges.extend(self.instead.get(loop, (done[loop],)))
        return done[n.src[0]].end(*ranges)

    def _held_back(self, effect: UOp, made: UOp, top: bool) -> UOp:
        """An effect, left to the first index of the dimensions it has no range for.

        One inside of another is repeated by every group, as all that groups have of their own is.
        """
        around = (*closed_by(effect), *effect.ranges)
        own = {f"{_NAMES[r.arg[1]]}{self.axes[r]}" for r in around if r in self.axes}
        if any(r in self.flat for r in around):
            own.update(name for name in self.used if name.startswith("thread"))
        missing = [name for name in self.used if name not in own]
        threads = [self.used[name].eq(0) for name in missing if name.startswith("thread")]
        groups = [self.used[name].eq(0) for name in missing if top and name.startswith("group")]
        if threads and self.cooperative:
            made = _left_to_one(effect, made, _all(threads))
            threads = []
        conditions = [*groups, *threads]
        if not conditions:
            return made
        body, rest = (made.src[0], made.src[1:]) if made.op is Ops.END else (made, ())
        return body.end(guard(_all(conditions), "first"), *rest)


def _all(conditions: list[UOp]) -> UOp:
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = whole & condition
    return whole


def _left_to_one(effect: UOp, made: UOp, condition: UOp) -> UOp:
    """An effect whose STORE happens in one thread alone, though all get here.

    Where all of it was one thread's, so are its LOADs of what it stores: it need not wait for the
    others there.
    """
    nodes = effect.toposort()
    if not any(n.op is Ops.RANGE and n.arg[1] is AxisKind.THREAD for n in nodes):
        stored = {b for n in nodes if n.op is Ops.STORE and _is_shared(b := buffer_of(n.src[0]))}
        made = loads_gated(made, condition, lambda n: buffer_of(n.src[0]) in stored)
    store = store_of(made)
    return made.substitute({store: gated(store, condition)})


def _is_shared(buffer: UOp) -> bool:
    return buffer.op is Ops.PARAM or buffer.arg[2] is Space.GROUP
