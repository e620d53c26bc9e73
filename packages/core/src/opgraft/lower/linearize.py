"""Order a kernel: from a graph of effects to the list of instructions that a renderer prints.

Before: a kernel graph without VECTOR and UNROLL ranges and without `index` values.
After: a LinearProgram. REDUCE and SCAN have become registers, AFTER has become order.

How: a *statement* is an effect, or a REDUCE; it opens loops of its own inside the loops that it
is free in. A block (the body of one loop, or the kernel itself) is given the statements to carry
out in it. It takes those whose needs are met, opens one loop for all that want the same range
next, and hands them to the block inside. A pure value is computed where it is first needed, but
in the outermost block that has all it depends on: loop invariants leave their loops for free.
Where a statement needs the finished result of another, the two get loops of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeVar

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.linear import EXCLUSIVE, KernelInfo, LinearProgram
from opgraft.ir.ops import AxisKind, Ops, Space
from opgraft.ir.reduction import combine, identity
from opgraft.ir.uop import UOp, toposort
from opgraft.lower.operations import count_operations
from opgraft.lower.reach import meet, reads_element, reads_its_target
from opgraft.lower.scans import loops_outside, sums_beside
from opgraft.lower.statements import (
    Statement,
    fetch_beside,
    fill_together,
    in_order,
    keep_inside,
)
from opgraft.opt.axes import store_of, target_of

_LEAVES: Final = frozenset({Ops.CONST, Ops.VAR, Ops.PARAM, Ops.IOTA, Ops.SPECIAL})
_ADDING: Final = frozenset({Ops.DOT, Ops.MATRIX})
_ZERO: Final = UOp.const(dtypes.int32, 0)


@dataclass(eq=False)
class _Block:
    """The body of a loop (`range`), or of the kernel."""

    range: UOp | None
    depth: int
    items: list[UOp] = field(default_factory=list)
    known: list[UOp] = field(default_factory=list)
    """Nodes whose value was computed here, to be forgotten at the end of the block."""


Work = tuple[Statement, tuple[UOp, ...]]
_Order = dict[Statement, list[Statement]]


def linearize(sink: UOp, fma: frozenset[DType] = frozenset()) -> LinearProgram:
    """The instructions of a kernel in order.

    `fma` names the float dtypes in which a REDUCE's accumulate step over a product becomes one
    MULACC. Raises LoweringError for a graph whose loops cannot be nested.
    """
    return _Linearizer(sink, fma).run()


class _Linearizer:
    def __init__(self, sink: UOp, fma: frozenset[DType]) -> None:
        self.sink = sink
        self.fma = fma
        self.nodes = sink.toposort()
        self.statements: dict[UOp, Statement] = {}
        self.blocks: list[_Block] = []
        self.values: dict[UOp, tuple[UOp, int]] = {}  # node -> (instruction, depth of its block)
        self.opened: dict[UOp, int] = {}  # RANGE -> depth of its block
        self.registers = 0
        self.scan_outside = loops_outside(self.nodes)
        self.parallel = self._parallel_range()
        self.place: dict[Statement, int] = {}
        self.registers_of: dict[Statement, UOp] = {}
        self.storing: UOp | None = None  # the STORE to a LOCAL whose value is being computed
        self.shared: frozenset[UOp] = frozenset()
        """STOREs that several statements carry out, in fewer loops or more."""
        self.carried: dict[Statement, frozenset[UOp]] = {}
        self.stored: dict[UOp, None] = {}
        self.loads: dict[UOp, UOp] = {}  # instruction -> what it was made of

    # ---- the statements and what they need

    def _parallel_range(self) -> UOp | None:
        found = [n for n in self.nodes if n.op is Ops.RANGE and n.arg[1] is AxisKind.PARALLEL]
        if len(found) > 1:
            names = ", ".join(str(r.arg[0]) for r in found)
            raise LoweringError(f"a kernel has one parallel axis, this one has {names}")
        return found[0] if found else None

    def _collect(self) -> list[Statement]:
        """Statements in an order in which each stands after those it needs."""
        effects = set(self.sink.src)
        for n in self.nodes:
            if n.op is Ops.AFTER:
                effects.update(n.src[1:])
        below: dict[UOp, tuple[Statement, ...]] = {}
        ordered: list[Statement] = []
        written = {target_of(e) for e in effects if store_of(e).op is not Ops.PREFETCH}
        # PARAM -> who LOADs its old data, and does not store to it itself
        readers: dict[UOp, list[tuple[Statement, UOp]]] = {}
        plain: dict[UOp, tuple[UOp, ...]] = {}  # node -> LOADs without AFTER of what is written
        for n in self.nodes:
            needs, reads = _joined(below, n.src), _joined(plain, n.src)
            if n.op is Ops.LOAD and n.src[0] in written:
                reads = (*reads, n)
            if n.op is Ops.REDUCE or n in effects:
                own = n.src[1:] if n.op in (Ops.REDUCE, Ops.END) else ()
                made = Statement(n, own, frozenset(n.ranges), list(needs))
                self.statements[n] = made
                ordered.append(made)
                target = None if made.is_reduce else target_of(n)
                for load in reads:
                    if load.src[0] is not target:
                        readers.setdefault(load.src[0], []).append((made, load))
                below[n], plain[n] = (made,), ()
            else:
                below[n], plain[n] = needs, reads
        for statement in ordered:
            store = store_of(statement.node)
            if not statement.is_reduce and store.op is not Ops.PREFETCH:
                found = readers.get(target_of(statement.node), ())
                statement.readers = list(dict.fromkeys(r for r, load in found if meet(load, store)))
        stores = Counter(store_of(s.node) for s in ordered if not s.is_reduce)
        self.shared = frozenset(store for store, count in stores.items() if count > 1)
        fill_together(ordered)
        fetch_beside(ordered)
        ordered = in_order(ordered)
        keep_inside(ordered)
        return ordered

    # ---- blocks

    def run(self) -> LinearProgram:
        self.place = {s: i for i, s in enumerate(self._collect())}
        root = _Block(None, 0)
        self.blocks.append(root)
        work = [(self.statements[e], self.statements[e].own) for e in dict.fromkeys(self.sink.src)]
        beside = [w for w in work if self.parallel is not None and self.parallel not in w[1]]
        self._fill(root, [w for w in work if w not in beside])
        if beside:
            self._once(root, beside)
        info = self.sink.arg if isinstance(self.sink.arg, KernelInfo) else KernelInfo()
        params = sorted((n for n in self.nodes if n.op is Ops.PARAM), key=lambda p: p.arg[0])
        variables = sorted((n for n in self.nodes if n.op is Ops.VAR), key=lambda v: v.arg[0])
        written = {target_of(n).arg[0] for n in self.nodes if _stores_param(n)}
        return LinearProgram(
            info.name,
            tuple(root.items),
            tuple(params),
            tuple(variables),
            self.parallel,
            written=tuple(sorted(written)),
            operations=count_operations(root.items),
        )

    def _fill(self, block: _Block, given: list[Work]) -> None:
        """Carry out the given statements in this block, and whatever they need here."""
        work = self._here(block, given)
        waiting: dict[Statement, tuple[UOp, ...]] = dict(work)
        before, overwritten = self._order_within(list(waiting))
        reading_no_more: set[Statement] = set()
        while waiting:
            free = [s for s in waiting if not any(n in waiting for n in before[s])]
            ready = [s for s in free if not any(n in waiting for n in overwritten[s])]
            ready = self._in_company(ready, waiting)
            if not ready:
                ready = self._entangled(free, waiting, overwritten)
                fetched = [s for s in ready or free if not waiting[s] and s not in reading_no_more]
                for statement in fetched:
                    self._fetch(block, statement)
                if fetched and not ready:
                    # loops may store now to what these have read; these store after them
                    reading_no_more.update(fetched)
                    for others in overwritten.values():
                        others[:] = [n for n in others if n not in reading_no_more]
                    continue
            if not ready:
                names = ", ".join(s.node.op.name for s in waiting)
                raise LoweringError(f"statements wait for each other: {names}")
            now = [s for s in ready if not waiting[s]]
            for statement in now:
                self._body(block, statement)
                if not statement.own:
                    self._finish(block, statement)
                del waiting[statement]
            if now:
                continue
            # the parallel loop opens once, when all that stands before it is done
            opens = {s: self._next_range(s, waiting[s]) for s in ready}
            first = next((r for r in opens.values() if r is not self.parallel), opens[ready[0]])
            group = [s for s in ready if opens[s] is first]
            # what overwrites memory that others of the loop read does so later in the body: they
            # meet in one iteration only (see lower/order.py)
            late = [s for s in free if s not in group and waiting[s]]
            late = [s for s in late if self._next_range(s, waiting[s]) is first]
            while astray := [
                s
                for s in late
                if any(n in waiting and n not in group and n not in late for n in overwritten[s])
            ]:
                late = [s for s in late if s not in astray]
            group += late
            for statement in group:
                if statement.is_reduce and waiting[statement] == statement.own:
                    self._open_register(block, statement)
            inner = [(s, tuple(r for r in waiting[s] if r is not first)) for s in group]
            self._loop(block, first, inner)
            for statement in group:
                if waiting[statement] == statement.own:
                    self._finish(block, statement)
                del waiting[statement]

    def _once(self, root: _Block, work: list[Work]) -> None:
        """What stands beside the parallel loop is done by the one part that starts at 0."""
        begin = UOp(Ops.SPECIAL, dtypes.int32, (), ("begin", 1 << 31))
        first = begin.eq(0)
        test = UOp(Ops.IF, dtypes.void, (first,))
        inner = _Block(None, root.depth + 1)
        self.blocks.append(inner)
        self._fill(inner, work)
        self.blocks.pop()
        for n in inner.known:
            del self.values[n]
        root.items += [first, test, *inner.items, UOp(Ops.ENDIF, dtypes.void, (test,))]

    def _here(self, block: _Block, given: list[Work]) -> list[Work]:
        """The given statements and all they need that belongs into this block."""
        found: dict[Statement, tuple[UOp, ...]] = dict(given)
        seen: set[Statement] = set(found)
        stack = list(reversed(list(found)))
        while stack:
            for need in stack.pop().needs:
                if need in seen or need.node in self.values:
                    continue
                seen.add(need)
                stack.append(need)
                if all(r in self.opened for r in need.free):
                    found[need] = need.own
        place = self.place
        return sorted(found.items(), key=lambda item: place[item[0]])

    def _order_within(self, here: list[Statement]) -> tuple[_Order, _Order]:
        """For each statement of a block the others of the block that must come before it:
        those whose results it needs, and those that read what it overwrites."""
        wanted = set(here)
        before: _Order = {}
        closure: dict[Statement, dict[Statement, None]] = {}
        for statement in here:
            found: dict[Statement, None] = {}
            seen: dict[Statement, None] = {}
            stack = list(statement.needs)
            while stack:
                need = stack.pop()
                if need in seen or need.node in self.values:
                    continue
                seen[need] = None
                if need in wanted:
                    found[need] = None
                stack.extend(need.needs)
            before[statement], closure[statement] = list(found), seen
        overwritten: _Order = {s: [] for s in here}
        for statement in here:
            for other in here if statement.readers else ():
                if other is statement or statement in closure[other]:
                    continue
                # a reader that is carried out here itself is the one to come first
                reads = (
                    r is other or (r in closure[other] and r not in wanted)
                    for r in statement.readers
                )
                if any(reads):
                    overwritten[statement].append(other)
        return before, overwritten

    def _entangled(
        self,
        free: list[Statement],
        waiting: dict[Statement, tuple[UOp, ...]],
        overwritten: _Order,
    ) -> list[Statement]:
        """Statements that each overwrite what another reads, and wait for nothing else.

        Where they share their next loop they meet at the same element in each iteration (in place
        is a placement decided by that): the block inside can order them. Where no loop is left,
        their values can be computed before the first of them stores.
        """
        groups: dict[UOp | None, list[Statement]] = {}
        for statement in free:
            left = waiting[statement]
            loop = self._next_range(statement, left) if left else None
            groups.setdefault(loop, []).append(statement)
        for group in groups.values():
            own = set(group)
            if all(n in own for s in group for n in overwritten[s] if n in waiting):
                return group
        return []

    def _in_company(
        self, ready: list[Statement], waiting: dict[Statement, tuple[UOp, ...]]
    ) -> list[Statement]:
        """Those that need not wait for one that will carry out a STORE of theirs, too, for what it
        reads there: each in loops of its own both would store, in place twice."""
        if not self.shared:
            return ready
        late = [self._carried(s) for s in waiting if s not in ready]
        alone = [s for s in ready if all(self._carried(s).isdisjoint(other) for other in late)]
        return alone or ready

    def _carried(self, statement: Statement) -> frozenset[UOp]:
        """The STOREs of several statements that this one carries out, itself or on the way."""
        found = self.carried.get(statement)
        if found is None:
            seen, stack = {statement: None}, [statement]
            while stack:
                for need in stack.pop().needs:
                    if need not in seen:
                        seen[need] = None
                        stack.append(need)
            stores = [store_of(s.node) for s in seen if not s.is_reduce]
            found = self.carried[statement] = frozenset(stores) & self.shared
        return found

    def _fetch(self, block: _Block, statement: Statement) -> None:
        """Compute what an effect will store, and where, so that it reads nothing any more."""
        if not statement.is_reduce:
            for source in store_of(statement.node).src[1:]:
                self._value(block, source)

    def _next_range(self, statement: Statement, left: tuple[UOp, ...]) -> UOp:
        """The loop that a statement opens next: in its own order, but the ranges of a SCAN last."""
        remaining = set(left)
        for loop in left:
            if not (self.scan_outside.get(loop, frozenset()) & remaining) - {loop}:
                return loop
        raise LoweringError(
            "the ranges of two SCANs would each have to stand inside the other: "
            + ", ".join(str(r.arg[0]) for r in left),
            remedy="materialise the inner SCAN first",
        )

    def _loop(self, block: _Block, loop: UOp, work: list[Work]) -> None:
        if loop in self.opened:
            raise LoweringError(
                f"all of {loop.arg[0]} is wanted in each iteration of it",
                remedy="store what is read there by a kernel of its own",
            )
        size = loop.src[0]
        if size.op is Ops.CAST and size.src[0].dtype.is_bool:
            self._guarded(block, loop, size.src[0], work)
            return
        opened = loop.with_src(tuple(self._value(block, s) for s in loop.src))
        inner = _Block(opened, block.depth + 1)
        self.blocks.append(inner)
        self.opened[loop] = inner.depth
        self._know(inner, loop, opened)
        self._fill(inner, work)
        self.blocks.pop()
        for n in inner.known:
            del self.values[n]
        del self.opened[loop]
        block.items.append(opened)
        block.items.extend(inner.items)
        block.items.append(UOp(Ops.END, dtypes.void, (opened,)))

    def _guarded(self, block: _Block, loop: UOp, condition: UOp, work: list[Work]) -> None:
        """A loop of one iteration or none (see lower/grid.py) is a condition."""
        test = UOp(Ops.IF, dtypes.void, (self._value(block, condition),))
        inner = _Block(loop, block.depth + 1)
        self.blocks.append(inner)
        self.opened[loop] = inner.depth
        self._know(inner, loop, _ZERO.cast(loop.dtype))
        self._fill(inner, work)
        self.blocks.pop()
        for n in inner.known:
            del self.values[n]
        del self.opened[loop]
        block.items += [test, *inner.items, UOp(Ops.ENDIF, dtypes.void, (test,))]

    def _know(self, block: _Block, n: UOp, instruction: UOp) -> None:
        self.values[n] = (instruction, block.depth)
        block.known.append(n)

    # ---- statements

    def _open_register(self, block: _Block, statement: Statement) -> None:
        n = statement.node
        register = self._new_register(block, n.dtype, identity(n.arg, n.dtype))
        self.registers_of[statement] = register

    def _new_register(self, block: _Block, dtype: DType, start: UOp) -> UOp:
        register = UOp(Ops.LOCAL, dtype, (), (f"acc{self.registers}", 1, Space.REGISTER))
        self.registers += 1
        block.items.append(register)
        block.items.append(register.store(_ZERO, self._value(block, start)))
        return register

    def _finish(self, block: _Block, statement: Statement) -> None:
        if statement.is_reduce:
            register = self.registers_of.pop(statement)
            result = UOp(Ops.LOAD, statement.node.dtype, (register, _ZERO))
            block.items.append(result)
            self._know(block, statement.node, result)
        else:
            self._know(block, statement.node, statement.node)

    def _body(self, block: _Block, statement: Statement) -> None:
        n = statement.node
        if statement.is_reduce:
            self._accumulate(block, self.registers_of[statement], n.arg, n.src[0])
            return
        store = n.src[0] if n.op is Ops.END else n
        if store is not n and store in self.statements:
            return  # an END around another effect, which is done by now
        if store in self.stored and reads_its_target(store):
            raise LoweringError(
                "what is stored in place is read again after loops that stand apart",
                remedy="store it to a buffer of its own",
            )
        self.stored[store] = None
        self.storing = store if target_of(store).op is Ops.LOCAL else None
        block.items.append(store.with_src(tuple(self._value(block, s) for s in store.src)))
        self.storing = None

    def _accumulate(
        self, block: _Block, register: UOp, op: Ops, value: UOp, at: UOp = _ZERO
    ) -> UOp:
        """Emit `register[at] = register[at] op value`; the new value."""
        old = UOp(Ops.LOAD, value.dtype, (register, at))
        fused = (
            op is Ops.ADD
            and value.op is Ops.MUL
            and value not in self.values
            and value.dtype.is_float
            and value.dtype.scalar in self.fma
        )
        if op is Ops.ADD and value.op in _ADDING and value.src[2].const_value == 0:
            # what it adds to is a source of its own
            factors = tuple(self._value(block, s) for s in value.src[:2])
            block.items.append(old)
            new = value.with_src((*factors, old))
        elif fused:
            factors = tuple(self._value(block, s) for s in value.src)
            block.items.append(old)
            new = UOp(Ops.MULACC, value.dtype, (*factors, old))
        else:
            item = self._value(block, value)
            block.items.append(old)
            new = combine(op, old, item)
        block.items.append(new)
        block.items.append(register.store(at, new))
        return new

    # ---- values

    def _value(self, block: _Block, root: UOp) -> UOp:
        """The instruction whose result is `root`, emitted now if need be."""
        known = self.values.get(root)
        if known is not None:
            return known[0]
        if root.op in _LEAVES:
            return root
        for n in toposort((root,), lambda n: n not in self.values and n.op not in _LEAVES):
            if n in self.values or n.op in _LEAVES:
                continue
            self._emit(n)
        return self.values[root][0]

    def _depth(self, n: UOp) -> int:
        found = self.values.get(n)
        return found[1] if found is not None else 0

    def _emit(self, n: UOp) -> None:
        if n.op is Ops.LOCAL:
            home = self.blocks[1 if self.parallel in self.opened else 0]
            home.items.append(n)
            self._know(home, n, n)
            return
        if n.op is Ops.REDUCE or n in self.statements:
            raise LoweringError(f"the result of {n.op.name} is used outside of its loops")
        if n.op is Ops.RANGE:
            raise LoweringError(f"range {n.arg[0]} is used outside of its loop")
        depth = max((self._depth(s) for s in n.src), default=0)
        if n.op is Ops.SCAN:
            self._emit_scan(n, depth)
            return
        if n.op is Ops.AFTER:
            self._know(self.blocks[depth], n, self._instruction(n.src[0]))
            return
        if n.op is Ops.LOAD:
            depth = max(depth, self._innermost_maybe_empty())
            if self.storing is not None and reads_element(n, self.storing):
                # sums so far: what is stored here is read here in the next iteration of a loop
                depth = len(self.blocks) - 1
        home = self.blocks[depth]
        made = n.with_src(tuple([self._instruction(s) for s in n.src]))
        if n.op is Ops.LOAD and self.loads.setdefault(made, n) is not n:
            # of the same element, but after another statement has stored to it
            made = made.replace(tag=f"again{len(self.loads)}")
            self.loads[made] = n
        home.items.append(made)
        self._know(home, n, made)

    def _instruction(self, n: UOp) -> UOp:
        found = self.values.get(n)
        return found[0] if found is not None else n

    def _innermost_maybe_empty(self) -> int:
        """The deepest loop that may have no iterations: a load must not be moved out of it."""
        for block in reversed(self.blocks):
            if block.range is not None and block.range.src[0].vmin < 1:
                return block.depth
        return 0

    def _emit_scan(self, n: UOp, depth: int) -> None:
        value, loop = n.src
        if loop not in self.opened:
            raise LoweringError(
                f"a SCAN over {loop.arg[0]} is used outside of its loop",
                remedy="materialise the scanned values first",
            )
        home = self.blocks[self.opened[loop]]
        outside = self.blocks[home.depth - 1]
        start, at = identity(n.arg, n.dtype), _ZERO
        inner = [r for r, place in self.opened.items() if home.depth < place <= depth]
        if inner:
            register, at = self._carry(outside, n, start, inner)
            home = self.blocks[depth]
            at = self._value(home, at)
        else:
            register = self._new_register(outside, n.dtype, start)
        if n.tag == EXCLUSIVE:
            old = UOp(Ops.LOAD, n.dtype, (register, at))
            home.items.append(old)
            self._know(home, n, old)
        total = self._accumulate(home, register, n.arg, value, at)
        if n.tag != EXCLUSIVE:
            self._know(home, n, total)

    def _carry(self, outside: _Block, n: UOp, start: UOp, inner: list[UOp]) -> tuple[UOp, UOp]:
        """Memory for the sums of a SCAN around loops, filled with what they begin with; and the
        place in it of an iteration of those."""
        name = f"carry{self.registers}"
        self.registers += 1
        memory, at = sums_beside(n, inner, name)
        self._value(outside, memory)
        size = UOp.const(dtypes.int32, memory.arg[1])
        each = UOp(Ops.RANGE, dtypes.int32, (size,), (name, AxisKind.LOOP))
        first = UOp.const(memory.dtype, start.const_value)
        outside.items += [each, memory.store(each, first), UOp(Ops.END, dtypes.void, (each,))]
        return memory, at


_Found = TypeVar("_Found")


def _joined(of: dict[UOp, tuple[_Found, ...]], nodes: tuple[UOp, ...]) -> tuple[_Found, ...]:
    """What these nodes have, each once, in order."""
    found: tuple[_Found, ...] = ()
    for n in nodes:
        part = of[n]
        if part and part is not found:
            found = tuple(dict.fromkeys((*found, *part))) if found else part
    return found


def _stores_param(n: UOp) -> bool:
    return n.op is Ops.STORE and target_of(n).op is Ops.PARAM
