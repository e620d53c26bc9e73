"""The value of any graph on one assignment, by ir/evaluate.py: the definition, one lane.

Memory is a function of buffer, index: every place holds some fixed value, in range or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from opgraft.dtype import DType
from opgraft.ir import UOp
from opgraft.ir.elementary import fold_elementary
from opgraft.ir.evaluate import alu
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.reduction import identity
from opgraft.ir.uop import toposort

PLACES: Final = (3, 0, 1, 7, -2, 12, 5, 100, -128, 4, 2, 9, -1)


def stored(slot: int, index: int, dtype: DType) -> Any:
    """What stands in a buffer."""
    return dtype.const(PLACES[(index * 5 + slot) % len(PLACES)])


def evaluate(root: UOp, env: Mapping[UOp, Any]) -> dict[UOp, Any]:
    """The value of each node on the way to `root`, outside of reductions."""
    done: dict[UOp, Any] = dict(env)
    for n in toposort((root,), lambda n: n not in env and n.op is not Ops.REDUCE):
        if n not in done:
            done[n] = _value(n, done, env)
    return done


def _value(n: UOp, done: dict[UOp, Any], env: Mapping[UOp, Any]) -> Any:
    if n.op is Ops.CONST:
        return n.arg
    if n.op in GroupOp.ELEMENTARY:
        return fold_elementary(n.op, n.dtype.scalar, done[n.src[0]])
    if n.op in GroupOp.ALU:
        operands = tuple([done[s] for s in n.src])
        return alu(n.op, n.dtype.scalar, tuple([s.dtype.scalar for s in n.src]), operands)
    if n.op is Ops.PARAM:
        return n.arg[0]
    if n.op is Ops.BROADCAST or n.op is Ops.EXTRACT:
        return done[n.src[0]]
    if n.op is Ops.LOAD:
        if len(n.src) == 4 and not done[n.src[2]]:
            return done[n.src[3]]
        return stored(done[n.src[0]], done[n.src[1]], n.dtype.scalar)
    if n.op is Ops.STORE:
        if len(n.src) == 4 and not done[n.src[3]]:
            return None
        return (done[n.src[0]], done[n.src[1]], done[n.src[2]])
    if n.op is Ops.REDUCE:
        return _reduced(n, env)
    raise KeyError(n)


def _reduced(n: UOp, env: Mapping[UOp, Any]) -> Any:
    """The value of a REDUCE: every combination of its ranges, in order."""
    op, dtype = n.arg, n.dtype.scalar
    total = identity(op, dtype).const_value
    sizes = [evaluate(r.src[0], env)[r.src[0]] for r in n.src[1:]]
    for turn in itertools.product(*map(range, sizes)):
        inner = {k: v for k, v in env.items() if k.op is not Ops.REDUCE}
        inner.update(zip(n.src[1:], turn))
        total = alu(op, dtype, (dtype, dtype), (total, evaluate(n.src[0], inner)[n.src[0]]))
    return total
