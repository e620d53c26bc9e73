"""Which memory the accesses of a kernel reach, as far as the order of statements asks.

Before and after: nothing changes; linearize asks here whether two accesses can be exchanged, and
whether a store may be carried out again.
"""

from __future__ import annotations

from opgraft.dtype import DType
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.opt.axes import buffer_of, target_of


def reads_its_target(store: UOp) -> bool:
    """Whether a STORE replaces what its value is computed from: twice is not once."""
    nodes = toposort(store.src[2:], lambda n: n.op is not Ops.AFTER)
    return any(n.op is Ops.LOAD and n.src[0] is target_of(store) for n in nodes)


def meet(load: UOp, store: UOp) -> bool:
    """Whether the elements that a LOAD and a STORE of one buffer reach may be the same."""
    if store.op is not Ops.STORE:
        return True
    (low, high), (first, last) = _reach(load, load.dtype), _reach(store, store.src[2].dtype)
    return bool(low <= last and first <= high)


def _reach(access: UOp, dtype: DType) -> tuple[float, float]:
    """The least and greatest element of an access; a scalar index stands for `count` of them."""
    index = access.src[1]
    more = dtype.count - 1 if index.dtype.count == 1 else 0
    return index.vmin, index.vmax + more


def reads_element(load: UOp, store: UOp) -> bool:
    """Whether a LOAD reads the element that a STORE to a LOCAL writes. Other elements of that
    buffer a statement reads as they were before it (see opt/reuse.py)."""
    return buffer_of(load.src[0]) is buffer_of(store.src[0]) and load.src[1] is store.src[1]
