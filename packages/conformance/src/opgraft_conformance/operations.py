"""The table of operations: each op on each dtype, at the values that it gets wrong.

A row (`Operation`) is an op, what it gives and what it takes; the operands follow from the
dtypes (values.py), the right results from INTERP, the tolerance from comparison.py: exact. All
rows are *must*: what a target claims natively has to be right, and so has what lowering puts in
the place of what it does not claim.

Rows with the same operands share a kernel (`Batch`), as many as the target's buffers allow, so
that the whole table takes a few hundred compilations; a row is judged, and fails, by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np

from opgraft.api import Device, Target
from opgraft.dtype import DType, dtypes
from opgraft.errors import CompileError, DeviceError, LoweringError
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.ops import AxisKind, GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.opt.actions import Split
from opgraft_conformance.comparison import SHOWN, differ, difference, is_nan, is_subnormal
from opgraft_conformance.execution import Memory, compiled, execute, expected, zeros
from opgraft_conformance.fault import Fault
from opgraft_conformance.opening import target_of
from opgraft_conformance.rows import not_claimed
from opgraft_conformance.values import Row, Words, column, conversions, pairs, singles, triples

PADDING: Final = 64
"""Rows are repeated up to a multiple of this: then no vector form has a remainder."""


@dataclass(frozen=True)
class Operation:
    """A row of the table."""

    op: Ops
    dtype: DType
    sources: tuple[DType, ...]

    def __str__(self) -> str:
        given = ", ".join(map(str, dict.fromkeys(self.sources)))
        if self.op in GroupOp.UNARY and self.sources[0] is not self.dtype:
            return f"{self.op.name} {given} to {self.dtype}"
        return f"{self.op.name} of {given}"

    @property
    def id(self) -> str:
        """Its name in a row of the report: "MAX-float32", "CAST-int8-bool"."""
        parts = [self.op.name, *dict.fromkeys((self.sources[-1].name, self.dtype.name))]
        return "-".join(parts if self.op in (Ops.CAST, Ops.BITCAST) else parts[:2])


# ---- which operations there are

INTEGER: Final = (Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR,
                  Ops.XOR, Ops.SHL, Ops.SHR)  # fmt: skip
FLOAT: Final = (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MOD, Ops.MAX, Ops.MIN)
BOOL: Final = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR)
COMPARISONS: Final = (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
MACHINE: Final = (Ops.CDIV, Ops.CMOD, Ops.MULACC)
"""What lowering alone writes: these rows are linear programs."""


def binary(dtype: DType) -> list[Operation]:
    """The operations on two values of a dtype."""
    ops = BOOL if dtype.is_bool else FLOAT if dtype.is_float else INTEGER
    both = (dtype, dtype)
    found = [Operation(op, dtype, both) for op in ops]
    found += [Operation(op, dtypes.bool, both) for op in COMPARISONS]
    if dtype is dtypes.uint64:
        found.append(Operation(Ops.THREEFRY, dtype, both))
    return found


def unary(dtype: DType) -> list[Operation]:
    """The exact operations on one value: the elementary ones have a table of their own."""
    return [Operation(op, dtype, (dtype,)) for op in (Ops.SQRT, Ops.TRUNC) if dtype.is_float]


def conversion(source: DType) -> list[Operation]:
    """CAST to every dtype, BITCAST to those of the same width."""
    others = [d for d in dtypes.all if d is not source]
    found = [Operation(Ops.CAST, d, (source,)) for d in others]
    same = [d for d in others if d.bits == source.bits]
    return found + [Operation(Ops.BITCAST, d, (source,)) for d in same]


def machine(dtype: DType) -> list[Operation]:
    """What only lowered programs hold."""
    if dtype.is_float:
        return [Operation(Ops.MULACC, dtype, (dtype,) * 3)]
    if dtype.is_bool:
        return []
    found = [Operation(op, dtype, (dtype, dtype)) for op in (Ops.CDIV, Ops.CMOD)]
    return [*found, Operation(Ops.MULACC, dtype, (dtype,) * 3)]


@dataclass(frozen=True)
class Batch:
    """Rows that take the same operands."""

    rows: tuple[Operation, ...]
    sources: tuple[DType, ...]
    operands: tuple[Row, ...] = field(repr=False)

    def __len__(self) -> int:
        return -(-len(self.operands) // PADDING) * PADDING

    def columns(self) -> list[Words]:
        """The operands, source by source, padded."""
        rows = [*self.operands, *self.operands[:1] * (len(self) - len(self.operands))]
        return [column([row[k] for row in rows], s) for k, s in enumerate(self.sources)]


@cache
def batches() -> tuple[Batch, ...]:
    """The table of what kernels hold."""
    found: list[Batch] = []
    for dtype in dtypes.all:
        found.append(_batch(binary(dtype), pairs(dtype)))
        if dtype.is_float:
            found.append(_batch(unary(dtype), singles(dtype)))
        choice = (dtypes.bool, dtype, dtype)
        found.append(_batch([Operation(Ops.WHERE, dtype, choice)], triples(choice, 300)))
        casts = conversion(dtype)
        found.append(_batch(casts, conversions(dtype, [c.dtype for c in casts])))
    return tuple(found)


@cache
def machine_batches() -> tuple[Batch, ...]:
    """The table of what only linear programs hold."""
    found: list[Batch] = []
    for dtype in dtypes.all:
        rows = machine(dtype)
        two = [r for r in rows if len(r.sources) == 2]
        if two:
            # the divisor of C's division is never 0, and nothing overflows
            least = int(dtype.min)
            legal = [(a, b) for a, b in pairs(dtype) if b != 0 and (a, b) != (least, -1)]
            found.append(_batch(two, legal))
        three = [r for r in rows if len(r.sources) == 3]
        if three:
            found.append(_batch(three, [*triples((dtype,) * 3), *_cancelling(dtype)]))
    return tuple(found)


def _batch(rows: Sequence[Operation], operands: Sequence[Row]) -> Batch:
    return Batch(tuple(rows), rows[0].sources, tuple(operands))


def _cancelling(dtype: DType) -> Iterator[Row]:
    """Sums a * b + c that nearly cancel: they show a second rounding."""
    if not dtype.is_float:
        return
    random = np.random.default_rng(1)
    for _ in range(60):
        a, b = (dtype.const(float(v)) for v in random.normal(size=2))
        c = dtype.const(-a * b)
        yield a, b, c
        yield a, b, dtype.const(c * (1 + 2.0**-dtype.mantissa))


# ---- forms: as what a row is compiled


@dataclass(frozen=True)
class Form:
    """How the loop over the rows is scheduled."""

    name: str
    lanes: int | None
    """Lanes of vectors; 1: scalars, None: the scheduler's choice."""

    def info(self) -> KernelInfo:
        """The `arg` of the kernel's SINK."""
        if self.lanes is None:
            return KernelInfo("operations")
        if self.lanes == 1:
            return KernelInfo("operations", ())
        return KernelInfo("operations", (Split("i", self.lanes, AxisKind.VECTOR),))


SCALAR: Final = Form("scalar", 1)
SCHEDULED: Final = Form("as scheduled", None)


def vector_forms(target: Target, widest: DType) -> list[Form]:
    """Vectors of every number of lanes that kernels of this dtype meet on the target.

    Powers of two up to twice a register: half a register, a whole one, and one in two parts.
    """
    if target.vector_bytes == 0:
        return []
    natural = max(2, target.vector_bytes // widest.itemsize)
    most = min(2 * natural, target.max_lanes, PADDING)
    return [Form(f"x{lanes}", lanes) for lanes in _powers(most)]


def some_of(forms: Sequence[Form], batch: Batch) -> list[Form]:
    """Two forms for a batch: whole registers, and one of the others by turns.

    So every number of lanes has its rows somewhere in the table, at a fraction of the
    compilations; with --opgraft-effort=long every batch has them all.
    """
    every = (*batches(), *machine_batches())
    chosen = {forms[max(0, len(forms) - 2)], forms[every.index(batch) % len(forms)]}
    return [form for form in forms if form in chosen]


def _powers(most: int) -> list[int]:
    return [1 << k for k in range(1, 12) if 1 << k <= most]


# ---- claims


def lacking(target: Target, wanted: Sequence[DType]) -> DType | None:
    """A dtype that nothing can stand in for on this target; None: all are there.

    64-bit integers become pairs of words, 16-bit floats integers; the others have no substitute.
    """
    for dtype in wanted:
        if dtype in target.compute or dtype in (*dtypes.ints, dtypes.float16, dtypes.bfloat16):
            continue
        return dtype
    return None


def require(target: Target, *wanted: DType) -> None:
    """End a row for which the target lacks a dtype."""
    missing = lacking(target, wanted)
    if missing is not None:
        not_claimed(f"{target.name} does not compute in {missing}")


def manner(target: Target, row: Operation) -> str:
    """Whether the target claims a row natively: it says in whose code the fault is."""
    known = all(d in target.compute for d in (row.dtype, *row.sources))
    native = row.op in target.ops and row.op not in (Ops.IDIV, Ops.MOD)
    native |= row.op is Ops.MULACC and row.dtype in target.fma
    if native and known:
        return "claimed by the target: the renderer writes it"
    if native:
        return "in a dtype that the target does not compute in: lowering decomposes it"
    return "lowering decomposes it into what the target has"


# ---- running


class Results:
    """What a device gives for the rows of the table; each kernel is compiled and run once."""

    def __init__(self, device: Device, reference: Device) -> None:
        self.device = device
        self.reference = reference
        self.target = target_of(device)
        self._lock = threading.Lock()
        self._found: dict[tuple[Operation, Form], Words | Exception] = {}
        self._wanted: dict[Operation, Words] = {}

    def wanted(self, batch: Batch, row: Operation) -> Words:
        """The right results."""
        with self._lock:
            if row not in self._wanted:
                # as the scheduler likes it: INTERP is fast with wide vectors alone
                kernel = _kernel(batch, batch.rows, SCHEDULED)
                made = expected(self.reference, kernel, _memory(batch, batch.rows))
                self._wanted.update((r, made[k]) for k, r in enumerate(batch.rows))
            return self._wanted[row]

    def found(self, batch: Batch, row: Operation, form: Form) -> Words:
        """The device's results. Raises what the device raised for this row."""
        with self._lock:
            if (row, form) not in self._found:
                self._fill(batch, form)
            result = self._found[row, form]
        if isinstance(result, Exception):
            raise result
        return result

    def _fill(self, batch: Batch, form: Form) -> None:
        target = self.target
        rows = [r for r in batch.rows if lacking(target, (r.dtype, *r.sources)) is None]
        for part in _chunks(rows, max(1, target.max_buffers - len(batch.sources))):
            try:
                made = _run(self.device, batch, part, form)
                self._found.update(((r, form), words) for r, words in zip(part, made, strict=True))
            except (CompileError, LoweringError, DeviceError):
                # one of them is at fault: which one, each by itself shows
                for row in part:
                    try:
                        (words,) = _run(self.device, batch, [row], form)
                        self._found[row, form] = words
                    except (CompileError, LoweringError, DeviceError) as error:
                        self._found[row, form] = error

    def check(self, batch: Batch, row: Operation, form: Form) -> None:
        """Raise `Fault` where the device gets a row wrong in this form."""
        require(self.target, row.dtype, *row.sources)
        what = str(row) + ("" if form.lanes == 1 else f", {form.name}")
        try:
            found = self.found(batch, row, form)
        except (CompileError, LoweringError, DeviceError) as error:
            raise Fault(
                f"{what}: the kernel cannot be made or run",
                {"error": error, "operation": manner(self.target, row)},
            ) from error
        wanted = self.wanted(batch, row)
        bad = differ(found, wanted, row.dtype) & ~_exempt(self.target, batch, row, [found, wanted])
        places = np.flatnonzero(bad)
        if len(places):
            raise self._fault(batch, row, form, what, places, found, wanted)

    def _fault(
        self,
        batch: Batch,
        row: Operation,
        form: Form,
        what: str,
        places: Words,
        found: Words,
        wanted: Words,
    ) -> Fault:
        columns = batch.columns()
        shown = [
            difference(
                row.op.name,
                row.op,
                row.dtype,
                row.sources,
                [c[p] for c in columns],
                found[p],
                wanted[p],
            )
            for p in places[:SHOWN].tolist()
        ]
        alone = compiled(self.device, _kernel(batch, [row], form))
        after = execute(self.device, alone, _memory(batch, [row]))[0]
        beside = not differ(after, wanted, row.dtype).any()
        return Fault(
            f"{what}: {len(places)} of {len(found)} results are wrong",
            {
                "as": "\n".join(map(str, shown)),
                "operation": manner(self.target, row),
                "dtype": _taken_for(batch, row, places, found, wanted),
                "note": "alone in a kernel it is right: the fault lies in what stands beside it"
                if beside
                else None,
            },
            kernel=alone,
            hint=next((s.hint for s in shown if s.hint), ""),
        )


def _taken_for(
    batch: Batch, row: Operation, places: Words, found: Words, wanted: Words
) -> str | None:
    """Which other dtype the device seems to compute in, where all wrong results say the same."""
    high = np.zeros(len(batch), np.bool_)
    for dtype, words in ((row.dtype, wanted), *zip(batch.sources, batch.columns())):
        if dtype.is_int and dtype.min == 0:
            high |= words >> (dtype.bits - 1) != 0
    if high[places].all() and not high.all():
        return (
            "wrong only where the highest bit of an unsigned number is set: is it taken as signed?"
        )
    if row.dtype is dtypes.float64 and _in_single(found) and not _in_single(wanted):
        return "all results are numbers of float32: is it computed in that?"
    return None


def _in_single(words: Words) -> bool:
    """Whether these numbers of float64 are all numbers of float32."""
    values = words.view(np.float64)
    with np.errstate(all="ignore"):
        return np.array_equal(values.astype(np.float32).astype(np.float64), values, equal_nan=True)


def _exempt(target: Target, batch: Batch, row: Operation, results: Sequence[Words]) -> Words:
    """Elements that are not compared: see comparison.py."""
    spared = np.zeros(len(batch), np.bool_)
    if row.op is Ops.BITCAST and row.sources[0].is_float:
        spared |= is_nan(batch.columns()[0], row.sources[0])  # its payload is not defined
    if target.flushes_subnormals:
        for words in results:
            spared |= is_subnormal(words, row.dtype)
        for words, source in zip(batch.columns(), row.sources):
            spared |= is_subnormal(words, source)
    return spared


def _chunks(rows: Sequence[Operation], size: int) -> list[list[Operation]]:
    return [list(rows[k : k + size]) for k in range(0, len(rows), size)]


def _memory(batch: Batch, rows: Sequence[Operation]) -> Memory:
    memory: Memory = {k: zeros(r.dtype, len(batch)) for k, r in enumerate(rows)}
    for k, words in enumerate(batch.columns()):
        memory[len(rows) + k] = words
    return memory


def _run(device: Device, batch: Batch, rows: Sequence[Operation], form: Form) -> list[Words]:
    """The results of these rows, computed by one kernel."""
    kernel = compiled(device, _kernel(batch, rows, form))
    after = execute(device, kernel, _memory(batch, rows))
    return [after[k] for k in range(len(rows))]


def _kernel(batch: Batch, rows: Sequence[Operation], form: Form) -> UOp | LinearProgram:
    count = len(batch)
    outs = [UOp(Ops.PARAM, r.dtype, (), (k, count)) for k, r in enumerate(rows)]
    ins = [UOp(Ops.PARAM, s, (), (len(rows) + k, count)) for k, s in enumerate(batch.sources)]
    if rows[0].op in MACHINE:
        return _linear(rows, outs, ins, count, form.lanes or PADDING)
    i = UOp.range(count, "i")
    operands = tuple(p.load(i) for p in ins)
    stores = [
        out.store(i, UOp(row.op, row.dtype, operands)).end(i)
        for out, row in zip(outs, rows, strict=True)
    ]
    return UOp.sink(*stores, arg=form.info())


def _linear(
    rows: Sequence[Operation], outs: Sequence[UOp], ins: Sequence[UOp], count: int, lanes: int
) -> LinearProgram:
    """The same loop as a linear program."""
    size = UOp.const(dtypes.int32, count // lanes)
    i = UOp(Ops.RANGE, dtypes.int32, (size,), ("i", AxisKind.LOOP))
    items = [i]
    at = i
    if lanes > 1:
        at = UOp(Ops.MUL, dtypes.int32, (i, UOp.const(dtypes.int32, lanes)))
        items.append(at)
    operands = tuple(UOp(Ops.LOAD, p.dtype.vec(lanes), (p, at)) for p in ins)
    items += operands
    for out, row in zip(outs, rows, strict=True):
        result = UOp(row.op, row.dtype.vec(lanes), operands)
        items += [result, UOp(Ops.STORE, dtypes.void, (out, at, result))]
    items.append(UOp(Ops.END, dtypes.void, (i,)))
    return LinearProgram("operations", tuple(items), (*outs, *ins), written=tuple(range(len(rows))))
