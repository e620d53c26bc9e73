"""Kernels in kernel form, carried out by NumPy: each range an axis. Slow and plain, for tests."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir.evaluate import alu
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.steps import Duplicate, Fill, Launch, Plan

Value = tuple[np.ndarray, tuple[UOp, ...]]

_ALU: dict[Ops, Any] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.WHERE: np.where,
    Ops.MULACC: lambda a, b, c: a * b + c,
    Ops.SQRT: np.sqrt,
    Ops.EXP: np.exp,
    Ops.EXP2: np.exp2,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.TRUNC: np.trunc,
}
_REDUCE = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
}


def numpy_of(dtype: DType) -> Any:
    if dtype is dtypes.bfloat16:
        return ml_dtypes.bfloat16
    return np.int64 if dtype.is_index else np.dtype(dtype.name)


def run_plan(plan: Plan, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Carry out a plan on copies of the inputs; temporaries really share the arena."""
    arena = np.full(plan.arena, 0xAB, np.uint8)
    arrays: list[np.ndarray] = []
    given = [x.copy() for x in inputs]
    for a in plan.arrays:
        if a.slot is not None:
            arrays.append(given[a.slot].reshape(-1))
        elif a.offset is not None:
            part = arena[a.offset : a.offset + a.nbytes]
            arrays.append(part.view(numpy_of(a.dtype)))
        else:
            arrays.append(np.full(a.nbytes, 0xAB, np.uint8).view(numpy_of(a.dtype)))
    for step in plan.steps:
        if isinstance(step, Launch):
            run_kernel(step.sink, [arrays[i] for i in step.arrays])
        elif isinstance(step, Fill):
            arrays[step.array][...] = step.value
        else:
            assert isinstance(step, Duplicate)
            arrays[step.target][...] = arrays[step.source]
    run_plan.inputs_after = given  # type: ignore[attr-defined]
    return [arrays[i].reshape(size).copy() for i, size in plan.results]


def run_kernel(sink: UOp, params: list[np.ndarray]) -> None:
    """Carry out one kernel on flat arrays, by slot."""
    with np.errstate(all="ignore"):
        _Run(sink, params).run()


class _Run:
    def __init__(self, sink: UOp, params: list[np.ndarray]) -> None:
        self.sink = sink
        self.params = params
        self.old = [p.copy() for p in params]
        self.local: dict[UOp, Value] = {}
        self.values: dict[UOp, Value] = {}
        self.stored: set[UOp] = set()

    def run(self) -> None:
        for n in self.sink.toposort():
            if n.op in (Ops.PARAM, Ops.LOCAL, Ops.SINK, Ops.STORE):
                continue
            if n.op is Ops.END:
                self.effect(n)
            elif n.op is Ops.AFTER:
                for e in n.src[1:]:
                    self.effect(e)
            else:
                self.values[n] = self.value(n)
        for n in self.sink.src:
            if n.op is Ops.STORE:
                self.effect(n)

    def align(
        self, values: list[Value], more: tuple[UOp, ...] = ()
    ) -> tuple[list[np.ndarray], tuple[UOp, ...]]:
        axes: dict[UOp, None] = {}
        for _, own in values:
            axes.update(dict.fromkeys(own))
        axes.update(dict.fromkeys(more))
        order = tuple(axes)
        found = []
        for array, own in values:
            extra = [r for r in order if r not in own]
            array = array.reshape(array.shape + (1,) * len(extra))
            now = (*own, *extra)
            found.append(array.transpose([now.index(r) for r in order]))
        return found, order

    def full(self, v: Value, order: tuple[UOp, ...]) -> np.ndarray:
        (array,), found = self.align([v], order)
        array = array.transpose([found.index(r) for r in order])
        return np.broadcast_to(array, [r.src[0].arg for r in order])

    def effect(self, end: UOp) -> None:
        store = end
        closed: tuple[UOp, ...] = ()
        while store.op is Ops.END:
            closed += store.src[1:]
            store = store.src[0]
        if store in self.stored:
            return
        self.stored.add(store)
        memory, place, value = store.src[:3]
        parts = [self.values[place], self.values[value]]
        if memory.op is Ops.LOCAL:
            own = closed
            outer = tuple(r for r in dict.fromkeys((*parts[0][1], *parts[1][1])) if r not in own)
            order = (*outer, *own)
            index, data = self.full(parts[0], order), self.full(parts[1], order)
            lead = [r.src[0].arg for r in outer]
            array = np.zeros((*lead, memory.arg[1]), data.dtype)
            flat_lead = int(np.prod(lead, dtype=int)) if lead else 1
            flat = array.reshape(flat_lead, -1)
            flat[
                np.arange(flat_lead)[:, None],
                index.reshape(flat_lead, -1),
            ] = data.reshape(flat_lead, -1)
            self.local[memory] = (array, outer)
            return
        order = tuple(dict.fromkeys((*parts[0][1], *parts[1][1], *closed)))
        index, data = self.full(parts[0], order), self.full(parts[1], order)
        target = self.params[memory.arg[0]]
        seen = np.unique(index)
        assert seen.size == index.size, "an element is stored twice"
        target[index.reshape(-1)] = data.reshape(-1)

    def load(self, n: UOp) -> Value:
        memory = n.src[0]
        parts = [self.values[s] for s in n.src[1:]]
        if memory.op is Ops.PARAM:
            data: Value = (self.old[memory.arg[0]], ())
        elif memory.src[0].op is Ops.PARAM:
            data = (self.params[memory.src[0].arg[0]], ())
        else:
            data = self.local[memory.src[0]]
        array, outer = data
        parts_outer: list[Value] = [(np.arange(r.src[0].arg), (r,)) for r in outer]
        aligned, order = self.align([*parts, *parts_outer])
        index = aligned[0]
        size = array.shape[-1]
        if len(parts) == 3:
            gate, other = aligned[1], aligned[2]
            assert np.all((index >= 0) & (index < size) | ~gate), "a load leaves its array"
            index = np.where(gate, index, 0)
        else:
            assert np.all((index >= 0) & (index < size)), "a load leaves its array"
        found = array[(*aligned[len(parts) :], index)]
        if len(parts) == 3:
            found = np.where(gate, found, other)
        return found, order

    def value(self, n: UOp) -> Value:
        op = n.op
        if op is Ops.CONST:
            return np.array(n.arg, numpy_of(n.dtype)), ()
        if op is Ops.RANGE:
            return np.arange(n.src[0].arg), (n,)
        if op is Ops.LOAD:
            return self.load(n)
        if op is Ops.REDUCE:
            closed = n.src[1:]
            (array,), order = self.align([self.values[n.src[0]]], closed)
            array = np.broadcast_to(
                array, [r.src[0].arg if r in closed else k for r, k in zip(order, array.shape)]
            )
            axes = tuple(order.index(r) for r in closed)
            found = _REDUCE[n.arg].reduce(array, axis=axes, dtype=array.dtype)
            return found, tuple(r for r in order if r not in closed)
        if op is Ops.SCAN:
            (array,), order = self.align([self.values[n.src[0]]], (n.src[1],))
            axis = order.index(n.src[1])
            shape = list(array.shape)
            shape[axis] = n.src[1].src[0].arg
            array = np.broadcast_to(array, shape)
            return _REDUCE[n.arg].accumulate(array, axis=axis, dtype=array.dtype), order
        parts, order = self.align([self.values[s] for s in n.src])
        target = numpy_of(n.dtype)
        if op is Ops.CAST:
            return _cast(parts[0], n.src[0].dtype, n.dtype), order
        if op is Ops.IDIV:
            zero = parts[1] == 0
            return np.where(zero, 0, parts[0] // np.where(zero, 1, parts[1])).astype(target), order
        if op is Ops.MOD and not n.dtype.is_float:
            zero = parts[1] == 0
            return np.where(zero, 0, parts[0] % np.where(zero, 1, parts[1])).astype(target), order
        if op in _ALU:
            return np.asarray(_ALU[op](*parts)).astype(target, copy=False), order
        if op in GroupOp.ALU:
            kinds = tuple(s.dtype for s in n.src)
            apply = np.frompyfunc(lambda *v: alu(op, n.dtype, kinds, v), len(parts), 1)
            objects = [p.astype(object) for p in parts]
            return np.asarray(apply(*objects)).astype(target), order
        raise NotImplementedError(op)


def _cast(value: np.ndarray, source: DType, target: DType) -> np.ndarray:
    if source.is_float and target.is_int:
        low, high = int(target.min), int(target.max)
        clean = np.nan_to_num(
            np.trunc(value.astype(np.float64)), nan=0.0, posinf=2e19, neginf=-2e19
        )
        found = np.clip(clean, float(low), float(high))
        made = np.where(found >= float(high), high, np.where(found <= float(low), low, 0))
        middle = (found > float(low)) & (found < float(high))
        return np.where(middle, found, made).astype(numpy_of(target))
    if target.is_bool:
        return value != 0
    return value.astype(numpy_of(target))
