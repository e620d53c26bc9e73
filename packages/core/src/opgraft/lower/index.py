"""Give `index` values a width.

Before: addresses and loop counts are unbounded integers. After: each is int32 if its bounds and
those of everything it is computed from fit, else int64; nothing is `index` any more. Why here:
the rules of index math hold without exception only on unbounded integers, and the bounds of
every intermediate are known once the indices have their final form.
"""

from __future__ import annotations

from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.errors import LoweringError
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, toposort

_INT32: Final = (int(dtypes.int32.min), int(dtypes.int32.max))
_ORDER: Final = frozenset(
    {
        Ops.LOAD,
        Ops.STORE,
        Ops.ATOMIC,
        Ops.PREFETCH,
        Ops.END,
        Ops.AFTER,
        Ops.SINK,
        Ops.BARRIER,
    }
)
_INT64: Final = (int(dtypes.int64.min), int(dtypes.int64.max))


def lower_index(sink: UOp) -> UOp:
    """The graph with int32 and int64 for `index`; LoweringError where int64 is too narrow."""
    sink = _bound_loaded(sink)
    values = _wanted_as_values(sink.toposort())
    done: dict[UOp, UOp] = {}
    loose: set[UOp] = set()
    for n in sink.toposort():
        src = tuple([done[s] for s in n.src])
        if src == n.src and not n.dtype.is_index:
            done[n] = n
        elif n.dtype.is_index or any(s.dtype.is_index for s in n.src):
            if (n.op is Ops.CAST and n in values) or any(s in loose for s in n.src):
                loose.add(n)
            done[n] = _lower(n, src, n in loose)
        else:
            done[n] = n.with_src(src)
    return done[sink]


_FAR: Final = 1 << 42
"""No buffer has so many elements: an index from memory beyond it is out of range, however far."""


def _bound_loaded(sink: UOp) -> UOp:
    """Where an index computed from values in memory could leave 64 bits: those values, clamped.

    Accesses by such values are gated, and no gate tells 2**42 from what is greater. Where the
    index is wanted as a value, it is computed in int64, which wraps like any int64.
    """
    nodes = sink.toposort()
    if all(_fits(n, _INT64) for n in nodes if n.dtype.is_index):
        return sink
    values = _wanted_as_values(nodes)
    changes: dict[UOp, UOp] = {}
    for n in nodes:
        if n.op is not Ops.CAST or not n.dtype.is_index or _fits(n, (-_FAR, _FAR)):
            continue
        value = n.src[0]
        if value.dtype.kind == "uint" and value.dtype.bits > 43:
            changes[n] = value.minimum(_INT64[1] if n in values else _FAR).cast(n.dtype)
        elif value.dtype.kind == "int" and value.dtype.bits > 43 and n not in values:
            changes[n] = value.minimum(_FAR).maximum(-_FAR).cast(n.dtype)
    return sink.substitute(changes) if changes else sink


def _wanted_as_values(nodes: list[UOp]) -> set[UOp]:
    """The nodes from which a value in memory, not an address, is computed through `index`."""
    wanted = [n for n in nodes if n.op is Ops.CAST and n.src[0].dtype.is_index]
    return set(toposort(wanted, lambda n: n.op is not Ops.LOAD)) if wanted else set()


def _lower(n: UOp, src: tuple[UOp, ...], loose: bool) -> UOp:
    wide = any(s.dtype.is_index and new.dtype.bits > 32 for s, new in zip(n.src, src, strict=True))
    if n.op is Ops.CAST:
        if not n.dtype.is_index:
            return src[0].cast(n.dtype)
        wide = not _fits(n, _INT32)
        return src[0].cast(_width(n, wide, loose))
    if n.op in _ORDER:
        return n.with_src(src)
    if n.op in (Ops.REDUCE, Ops.SCAN) and not n.dtype.is_index:
        return n.with_src(src)
    if n.op in (Ops.REDUCE, Ops.SCAN):
        dtype = _width(n, wide or not _fits(n, _INT32), loose)
        return UOp(n.op, dtype, (src[0].cast(dtype), *src[1:]), n.arg, n.tag)
    if n.dtype.is_index:
        wide = wide or not _fits(n, _INT32)
        dtype = _width(n, wide, loose)
        operands = _aligned(n, src, dtype.scalar)
        if n.op is Ops.CONST:
            return UOp(Ops.CONST, dtype, (), n.arg, n.tag)
        return UOp(n.op, dtype, operands, n.arg, n.tag)
    # comparisons and the like: operands of one width
    scalar = dtypes.int64 if wide else dtypes.int32
    return UOp(n.op, n.dtype, _aligned(n, src, scalar), n.arg, n.tag)


def _aligned(n: UOp, src: tuple[UOp, ...], scalar: DType) -> tuple[UOp, ...]:
    """The sources, those that were `index` in one width. A RANGE's extent has the RANGE's."""
    return tuple(
        new.cast(scalar.vec(new.dtype.count)) if s.dtype.is_index else new
        for s, new in zip(n.src, src, strict=True)
    )


def _fits(n: UOp, limits: tuple[int, int]) -> bool:
    return bool(limits[0] <= n.vmin and n.vmax <= limits[1])


def _width(n: UOp, wide: bool, loose: bool) -> DType:
    if wide and not loose and not _fits(n, _INT64):
        raise LoweringError(
            f"an index within [{n.vmin}, {n.vmax}] does not fit 64 bits",
            remedy="bound the values it is computed from, for instance with maximum and minimum",
        )
    return (dtypes.int64 if wide else dtypes.int32).vec(n.dtype.count)
