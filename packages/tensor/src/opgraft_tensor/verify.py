"""What must hold of a plan. Run on every plan in the tests, and where the setting SPEC is on.

1. closed: no range is open at a kernel's sink, and every store's index has its own ranges alone;
2. once: a root's ranges are one per axis, of the axis's extent, all different;
3. order: what a kernel reads is an input, or stored by a kernel before it;
4. spine: statements of one kernel share a loop at the same iteration;
5. limits: distinct arrays and local bytes are within the device's;
6. complete: every output is stored;
7. versions: after a version is stored over the one before, nobody reads the one before;
8. scans: a SCAN runs along a bare range, which no REDUCE closes; others of its value outside;
9. bounds: every load without a gate stays inside its array, and so does every store.
"""

from __future__ import annotations

from math import prod

import opgraft.ir  # noqa: F401  computes vmin and vmax of nodes
from opgraft.errors import SpecError
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.draft import Draft
from opgraft_tensor.emit import Kernel
from opgraft_tensor.graph import shape
from opgraft_tensor.views import size_of


def verify(made: Draft) -> None:
    """Raise SpecError, with the kernel, for what does not hold."""
    stored: dict[UOp, None] = {}
    overwritten: dict[UOp, UOp] = {}
    home = made.placement.home
    for number, kernel in enumerate(made.kernels):
        _closed(number, kernel)
        _once(made, number, kernel)
        _spine(made, number, kernel)
        _limits(made, number, kernel)
        _scans(number, kernel)
        _bounds(number, kernel)
        for v, _ in kernel.loads:
            if v.op is not Ops.BUFFER and v not in stored:
                _fail(number, kernel, f"{v.op.name} {shape(v)} is read before it is stored")
            if v in overwritten:
                _fail(number, kernel, f"{v.op.name} {shape(v)} is read after a newer version")
        for v in kernel.stored:
            if v in stored:
                _fail(number, kernel, f"{v.op.name} {shape(v)} is stored twice")
            stored[v] = None
            place = home.get(v, v)
            if place is not v:
                for older, at in [*home.items(), (place, place)]:
                    if at is place and older is not v and (older in stored or older is place):
                        overwritten[older] = v
    for v in made.outputs:
        if v not in stored:
            raise SpecError(f"output {v.op.name} {shape(v)} is stored by no kernel")
        if v in overwritten:
            raise SpecError(f"output {v.op.name} {shape(v)} is overwritten by a newer version")


def _fail(number: int, kernel: Kernel, what: str) -> None:
    raise SpecError(f"kernel {number} ({kernel.sink.arg.name}): {what}")


def _closed(number: int, kernel: Kernel) -> None:
    if kernel.sink.ranges:
        _fail(number, kernel, "ranges are open at the sink")


def _once(made: Draft, number: int, kernel: Kernel) -> None:
    groups = made.walk.groups
    for root in kernel.stored:
        ranges = groups.own_ranges(root)
        extents = shape(root.src[1]) if root in made.walk.orders.partial else shape(root)
        if tuple(r.extent for r in ranges) != extents:
            _fail(number, kernel, f"the ranges of {root.op.name} are not those of its shape")
        wide = [r for r in ranges if r.extent != 1]
        if len(dict.fromkeys(wide)) != len(wide):
            _fail(number, kernel, f"{root.op.name} uses one range for two axes")


def _spine(made: Draft, number: int, kernel: Kernel) -> None:
    roots = kernel.group.roots
    if len(roots) < 2:
        return
    if not kernel.spine and not kernel.reread and max(map(size_of, roots)) > 1:
        _fail(number, kernel, "its statements share no loop")


def _limits(made: Draft, number: int, kernel: Kernel) -> None:
    prices = made.walk.prices
    if len(kernel.memory) > prices.max_buffers:
        _fail(number, kernel, f"{len(kernel.memory)} arrays, {prices.max_buffers} allowed")
    locals_ = dict.fromkeys(n for n in kernel.sink.toposort() if n.op is Ops.LOCAL)
    nbytes = sum(n.arg[1] * n.dtype.itemsize for n in locals_)
    if nbytes > prices.local_bytes:
        _fail(number, kernel, f"{nbytes} bytes of locals, {prices.local_bytes} allowed")


def _scans(number: int, kernel: Kernel) -> None:
    nodes = kernel.sink.toposort()
    loops = dict.fromkeys(n.src[1] for n in nodes if n.op is Ops.SCAN)
    outside: dict[UOp, dict[UOp, None]] = {}
    for n in nodes:
        if n.op is Ops.SCAN:
            if n.src[1].op is not Ops.RANGE:
                _fail(number, kernel, "a SCAN along an index that is no range")
            others = outside.setdefault(n.src[1], {})
            others.update(dict.fromkeys(r for r in n.src[0].ranges if r is not n.src[1]))
        elif n.op is Ops.REDUCE and any(r in loops for r in n.src[1:]):
            _fail(number, kernel, "a REDUCE closes the range of a SCAN")
    for n in nodes:
        if not outside or n.op not in (Ops.END, Ops.REDUCE):
            continue
        closed, still = n.src[1:], n.ranges
        if not any(r in outside for r in still):
            continue
        for scan in n.src[0].toposort():
            if scan.op is not Ops.SCAN or scan.src[1] not in still:
                continue
            if any(r in closed for r in outside[scan.src[1]]):
                _fail(number, kernel, "a SCAN outside of a loop that its value depends on")
    for loop, others in outside.items():
        if any(loop in outside.get(other, {}) for other in others):
            _fail(number, kernel, "two SCANs would each have to stand inside the other")


def _bounds(number: int, kernel: Kernel) -> None:
    for n in kernel.sink.toposort():
        if n.op not in (Ops.LOAD, Ops.STORE):
            continue
        gated = len(n.src) == 4
        memory = n.src[0]
        while memory.op is Ops.AFTER:
            memory = memory.src[0]
        size = memory.arg[1]
        if not gated and not 0 <= n.src[1].vmin <= n.src[1].vmax < size:
            low, high = n.src[1].vmin, n.src[1].vmax
            _fail(number, kernel, f"{n.op.name} at {low} .. {high} of an array of {size}")


def parallel_iterations(kernel: Kernel) -> int:
    """Iterations of the loops that all statements share."""
    return prod([r.extent for r in kernel.spine])
