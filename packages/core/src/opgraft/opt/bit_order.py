"""`BitOrder`: the greatest of 16-bit floats, found as the greatest of integers.

Few processors compute in 16-bit floats: each number is widened before it is compared, and half of
a vector is lost. But the bits of a float, read as an integer, are in the order of the numbers, if
those of the negative ones are turned round. So a vector holds twice as many, and nothing is widened
or rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.argument import writable_as_text
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Action, Refused
from opgraft.opt.axes import Kernel
from opgraft.rules.simplify import tidy
from opgraft.target import Target

_MAGNITUDE: Final = 0x7FFF
"""All bits but the sign."""
_INFINITY: Final = {dtypes.float16: 0x7C00, dtypes.bfloat16: 0x7F80}


@writable_as_text
@dataclass(frozen=True)
class BitOrder(Action):
    """REDUCEs that take the greatest or least of 16-bit floats take that of int16 keys, which are
    in the same order: nan beyond all numbers, on the side that wins."""

    def change(self, sink: UOp) -> UOp:
        kernel = Kernel(sink)
        chosen = {n for n in kernel.reduces if _is_apt(n)}
        if not chosen:
            raise Refused("no greatest or least of 16-bit floats is looked for")
        done: dict[UOp, UOp] = {}
        for n in kernel.nodes:
            made = n.with_src(tuple([done[s] for s in n.src]))
            done[n] = _by_keys(made) if n in chosen else made
        return tidy(done[sink])


def _is_apt(n: UOp) -> bool:
    """Whether a REDUCE looks for the greatest or least of numbers that are 16-bit floats."""
    if n.arg not in (Ops.MAX, Ops.MIN) or any(r.src[0].vmin < 1 for r in n.src[1:]):
        return False  # of nothing it is an infinity, which the least of the keys is not
    return _narrow(n.src[0]).dtype in _INFINITY


def _narrow(value: UOp) -> UOp:
    """The value before it was widened."""
    if value.op is Ops.CAST and value.dtype.is_float and value.src[0].dtype in _INFINITY:
        wider = value.dtype.mantissa >= value.src[0].dtype.mantissa
        return value.src[0] if wider and value.dtype.bits > 16 else value
    return value


def _by_keys(reduce: UOp) -> UOp:
    value = _narrow(reduce.src[0])
    found = _key(value, reduce.arg).reduce(reduce.arg, *reduce.src[1:])
    return _turned(found).bitcast(value.dtype).cast(reduce.dtype)


def _key(value: UOp, op: Ops) -> UOp:
    """An int16 in the order of the numbers."""
    bits = value.bitcast(dtypes.int16)
    beyond = dtypes.int16.max if op is Ops.MAX else dtypes.int16.min
    is_nan = UOp.const(dtypes.int16, _INFINITY[value.dtype]) < (bits & _MAGNITUDE)
    return is_nan.where(UOp.const(dtypes.int16, beyond), _turned(bits))


def _turned(bits: UOp) -> UOp:
    """Bits as a key, or a key as bits: those of negative numbers the other way round."""
    return bits ^ ((bits >> 15) & _MAGNITUDE)


def order_by_bits(sink: UOp, target: Target) -> UOp:
    """The kernel with keys for the 16-bit floats that the target does not compute in."""
    if not target.vector_bytes or all(_computes(target, dtype) for dtype in _INFINITY):
        return sink
    found = [_narrow(n.src[0]).dtype for n in Kernel(sink).reduces if _is_apt(n)]
    if not found or any(_computes(target, dtype) for dtype in found):
        return sink
    return BitOrder().apply(sink)


def _computes(target: Target, dtype: DType) -> bool:
    return dtype in target.compute
