"""Where values live: versions of one array in one memory, where nobody can see the difference.

WRITE is a pure node, the next version of an array; program order holds by construction. That a
version takes the memory of the one before is decided here, after the kernels are known:

- the old version is no output, and no live tensor will want it (its slot is writable);
- all loads of the old version in the writing kernel are at the element being written, or where a
  partial WRITE never writes;
- no other reader of the old version depends on the writing kernel; those readers go first
  (an edge from reader to writer, the anti-dependence);
- the writing kernel does not read its own result again away from the iteration;
- no other version has taken the memory already.

Otherwise the version gets fresh memory. A partial WRITE (its kernel stores the region alone)
cannot: its plan is made again with the WRITE as an ordinary node.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.emit import Kernel
from opgraft_tensor.graph import Region, shape
from opgraft_tensor.index import Index
from opgraft_tensor.views import region_place
from opgraft_tensor.walk import Walk


@dataclass
class Placement:
    """The outcome for all kernels of a plan."""

    home: dict[UOp, UOp] = field(default_factory=dict)
    """For each stored node the BUFFER or stored node whose memory it takes; often itself."""
    before: dict[int, dict[int, None]] = field(default_factory=dict)
    """For each kernel (by place in the list) the kernels that must run before it."""
    refused: dict[UOp, str] = field(default_factory=dict)
    """WRITEs in fresh memory, and why."""
    failed: list[UOp] = field(default_factory=list)
    """Partial WRITEs that may not be in place."""


def base(v: UOp) -> UOp:
    """The node itself, or what it is a reshape of: the same elements in the same order."""
    while v.op is Ops.RESHAPE:
        v = v.src[0]
    return v


def place(walk: Walk, kernels: list[Kernel], outputs: list[UOp]) -> Placement:
    """Decide the memory of every stored node and the order constraints of the kernels."""
    found = Placement()
    maker = {root: i for i, k in enumerate(kernels) for root in k.stored}
    readers: dict[UOp, dict[int, None]] = {}
    for i, kernel in enumerate(kernels):
        needs = found.before[i] = {}
        for v, _ in kernel.loads:
            readers.setdefault(v, {})[i] = None
            if v in maker:
                needs[maker[v]] = None
    wanted = dict.fromkeys(outputs)
    taken: dict[UOp, None] = {}
    for number, kernel in enumerate(kernels):
        for root in kernel.stored:
            found.home.setdefault(root, root)
            if root.op is not Ops.WRITE:
                continue
            partial = root in walk.orders.partial
            old = base(root.src[0])
            if partial and old in maker:
                found.before[number][maker[old]] = None
            why = _refusal(walk, kernels, number, root, old, found, maker, readers, wanted, taken)
            if why is None:
                taken[old] = None
                found.home[root] = found.home.get(old, old)
                for reader in readers.get(old, {}):
                    if reader != number:
                        found.before[number][reader] = None
            elif partial:
                found.failed.append(root)
            else:
                found.refused[root] = why
    return found


def _refusal(
    walk: Walk,
    kernels: list[Kernel],
    number: int,
    root: UOp,
    old: UOp,
    found: Placement,
    maker: dict[UOp, int],
    readers: dict[UOp, dict[int, None]],
    wanted: dict[UOp, None],
    taken: dict[UOp, None],
) -> str | None:
    """Why a WRITE may not take the memory of the old version; None: it may."""
    kernel = kernels[number]
    if old in wanted:
        return "the old version is a result"
    if old.op is Ops.BUFFER:
        if not old.arg.writable:
            return "a live tensor wants the old version"
    elif old not in maker:
        return "the old version is not in memory"
    elif maker[old] == number:
        return "both versions are made by one kernel"
    if old.dtype is not root.dtype:
        return "the dtypes differ"
    if root in kernel.reread:
        return "the new version is read again in its own kernel"
    if old in taken:
        return "the old version is overwritten already"
    home = found.home.get(old, old)
    here = [v for v in kernel.memory if v is not root and found.home.get(v, v) is home]
    if any(v is not old for v in here):
        return "its kernel reads two versions"
    table, groups = walk.table, walk.groups
    own = tuple([table.of(r) for r in groups.own_ranges(root)])
    if root in walk.orders.partial:
        own = region_place(table, root.arg, own)
    target = table.ravel(own, shape(root))
    for v, index in kernel.loads:
        if v is not old or table.ravel(index, shape(old)) is target:
            continue
        if root not in walk.orders.partial or not _apart(root.arg, index):
            return "its kernel reads the old version elsewhere"
    for reader in readers.get(old, {}):
        if reader != number and _reaches(found.before, reader, number):
            return "a reader of the old version needs the new one"
    return None


def _apart(region: Region, index: Index) -> bool:
    """Whether the bounds alone prove that an index never is in a region."""
    for x, (begin, count, step) in zip(index, region):
        first, last = sorted((begin, begin + (count - 1) * step))
        if x.high < first or x.low > last:
            return True
    return False


def _reaches(before: dict[int, dict[int, None]], start: int, end: int) -> bool:
    """Whether kernel `start` must run after kernel `end`."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        top = stack.pop()
        if top == end:
            return True
        if top not in seen:
            seen.add(top)
            stack.extend(before.get(top, ()))
    return False


def ordered(count: int, before: dict[int, dict[int, None]]) -> list[int]:
    """The kernels in an order that meets all constraints, as near to the given one as can be."""
    done: set[int] = set()
    entered: set[int] = set()
    found: list[int] = []
    for start in range(count):
        stack = [start]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            waiting = [b for b in before.get(top, ()) if b not in done]
            if not waiting:
                stack.pop()
                done.add(top)
                found.append(top)
                continue
            if top in entered:
                raise RuntimeError("kernels wait for each other in a circle")
            entered.add(top)
            stack.extend(reversed(waiting))
    return found
