"""Wrong devices: each is right but for one thing, and a row of the kit says what.

The devices are INTERP behind a renderer that changes the program it is handed (a rule from node
to node), and the CPU behind a changed C renderer. A row that catches a mutant must pass without
it, and its message must lead to the fault.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from opgraft.api import CompilerPair, CompilerSet, Device, LinearProgram, Target, using
from opgraft.devices.cpu.device import CpuDevice
from opgraft.devices.interp.device import TARGET, InterpDevice
from opgraft.devices.invented import TextRenderer
from opgraft.dtype import DType, dtypes
from opgraft.errors import DeviceError, OpgraftError
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp, toposort
from opgraft.render.c import CRenderer
from opgraft_conformance import elementary, expressions, kernels, operations, programs, reductions
from opgraft_conformance.execution import agree
from opgraft_conformance.fault import Fault
from opgraft_conformance.operations import SCALAR, SCHEDULED, Form, Results

Rule = Callable[[UOp], UOp | None]
Check = Callable[[Device, Device], None]

LEAVES = {Ops.CONST, Ops.VAR, Ops.PARAM, Ops.IOTA, Ops.SPECIAL}


# ---- devices that are wrong


def rewritten(program: LinearProgram, rule: Rule) -> LinearProgram:
    """The program with each instruction replaced by what the rule makes of it."""
    changed: dict[UOp, UOp] = {}
    items: list[UOp] = []
    for n in program.instructions:
        node = n.with_src(tuple([changed.get(s, s) for s in n.src]))
        found = rule(node)
        made = node if found is None else found
        items += _new(made, node.src)
        changed[n] = made
    return dataclasses.replace(program, instructions=tuple(items))


def _new(root: UOp, known: tuple[UOp, ...]) -> list[UOp]:
    """The instructions of a graph over values that are known."""
    nodes = toposort((root,), lambda n: n not in known)
    return [n for n in nodes if n not in known and n.op not in LEAVES]


def mutant(rule: Rule | None, target: Target = TARGET) -> Device:
    """INTERP, but for the rule."""

    class Mutant(TextRenderer):
        def render(self, program: LinearProgram) -> str:
            return super().render(rewritten(program, rule) if rule else program)

    device = InterpDevice()
    pair = CompilerPair("MUTANT", "INTERP", lambda _: Mutant(target))
    device.pairs = CompilerSet("INTERP", target, [pair])
    return device


@pytest.fixture
def reference() -> Device:
    return InterpDevice()


@pytest.fixture(autouse=True)
def _nothing_from_the_cache() -> Iterator[None]:
    """With SPEC every kernel is lowered and rendered anew."""
    with using(SPEC=1, INTERP_CC="", CPU_CC=""):
        yield


# ---- rows


def operation(op: Ops, dtype: DType, *sources: DType, form: Form = SCHEDULED) -> Check:
    """A row of the table of operations."""
    wanted = sources or (dtype,)

    def check(device: Device, reference: Device) -> None:
        table = [*operations.batches(), *operations.machine_batches()]
        batch, row = next(
            (batch, row)
            for batch in table
            for row in batch.rows
            if row.op is op and row.dtype is dtype and set(row.sources) == set(wanted)
        )
        alone = dataclasses.replace(batch, rows=(row,))
        Results(device, reference).check(alone, row, form)

    return check


def move(name: str, dtype: DType = dtypes.float32) -> Check:
    """A row of memory/moves."""
    return lambda device, reference: agree(
        device, reference, kernels.MOVES[name](dtype), hint=kernels.HINTS[name]
    )


def text(name: str) -> Check:
    """A row of programs/texts."""
    return lambda device, reference: agree(
        device, reference, programs.program(name), hint=programs.HINTS.get(name, "")
    )


def expression(dtype: DType, name: str) -> Check:
    """A row of expressions, of the one expression."""

    def check(device: Device, reference: Device) -> None:
        sink, memory = expressions.of(dtype, [name], SCALAR.info())
        facts = {"expression": name}
        hint = expressions.hint(dtype, name)
        agree(device, reference, sink, memory, facts=facts, hint=hint)

    return check


def constants(dtype: DType) -> Check:
    """A row of expressions/constants."""

    def check(device: Device, reference: Device) -> None:
        sink, memory = expressions.constants(dtype)
        agree(device, reference, sink, memory, hint="how the renderer writes constants")

    return check


def reduction(form: str, dtype: DType) -> Check:
    """A row of reductions."""

    def check(device: Device, reference: Device) -> None:
        sink, memory = reductions.FORMS[form](dtype)
        agree(device, reference, sink, memory, slots=[op.name for op in reductions.ops_of(dtype)])

    return check


# ---- rules


def on(op: Ops, make: Callable[..., UOp], *, floats: bool | None = None) -> Rule:
    """A rule for nodes of an op: `make` is given the node and its sources."""

    def rule(n: UOp) -> UOp | None:
        if n.op is not op or (floats is not None and n.src[-1].dtype.is_float is not floats):
            return None
        return make(n, *n.src)

    return rule


def is_itself(n: UOp) -> bool:
    """Whether a comparison asks if a value is nan."""
    return n.op in (Ops.CMPNE, Ops.CMPEQ) and n.src[0] is n.src[1]


def nan_ignored(n: UOp) -> UOp | None:
    return n.const_like(n.op is Ops.CMPEQ) if is_itself(n) else None


def zeros_joined(n: UOp) -> UOp | None:
    """MAX of two zeros, made of their bits."""
    if n.op is not Ops.AND or any(s.op is not Ops.BITCAST for s in n.src):
        return None
    return n.src[0] | n.src[1]


def shift_unguarded(n: UOp) -> UOp | None:
    return n.src[1] if n.op is Ops.WHERE and n.src[1].op is Ops.SHL else None


def wraps(n: UOp) -> UOp | None:
    """A conversion to int8 without its limits."""
    if n.op is Ops.WHERE and n.dtype.is_float and n.src[0].op is Ops.CMPLT:
        return n.src[2]
    if n.op is Ops.CAST and n.dtype.scalar is i8:
        return n.src[0].cast(dtypes.int64.vec(n.dtype.count)).cast(n.dtype)
    return None


def nan_as_least(n: UOp) -> UOp | None:
    if n.op is not Ops.WHERE or not is_itself(n.src[0]):
        return None
    return n.src[0].where(n.src[1], n.const_like(-128.0))


def through_single(n: UOp, x: UOp) -> UOp | None:
    if n.dtype.scalar is not f16 or x.dtype.scalar is not dtypes.float64:
        return None
    return x.cast(f32.vec(n.dtype.count)).cast(n.dtype)


def in_single(n: UOp, *x: UOp) -> UOp | None:
    if n.dtype.scalar is not dtypes.float64:
        return None
    single = f32.vec(n.dtype.count)
    return UOp(n.op, single, tuple(s.cast(single) for s in x)).cast(n.dtype)


def flushed(n: UOp) -> UOp | None:
    if n.op is not Ops.MUL or n.dtype.scalar is not f32:
        return None
    least = n.const_like(2.0**-126)
    return ((n < least) & (least * -1.0 < n)).where(n * 0.0, n)


def contracted(n: UOp) -> UOp | None:
    if n.op is not Ops.ADD or not n.dtype.is_float or n.src[0].op is not Ops.MUL:
        return None
    return UOp(Ops.MULACC, n.dtype, (*n.src[0].src, n.src[1]))


def ungated_load(n: UOp) -> UOp | None:
    if n.op is not Ops.LOAD or len(n.src) < 4 or n.src[2].dtype.count != n.src[1].dtype.count:
        return None
    buffer, index, gate, _ = n.src
    return UOp(Ops.LOAD, n.dtype, (buffer, gate.where(index, index.const_like(0))))


def ungated_store(n: UOp) -> UOp | None:
    if n.op is not Ops.STORE or len(n.src) < 4 or n.src[3].dtype.count != n.src[1].dtype.count:
        return None
    buffer, index, value, gate = n.src
    return UOp(Ops.STORE, n.dtype, (buffer, gate.where(index, index.const_like(0)), value))


def aligned(n: UOp) -> UOp | None:
    if n.op is not Ops.LOAD or n.dtype.count == 1 or n.src[1].dtype.count > 1 or len(n.src) > 2:
        return None
    buffer, index = n.src
    lanes = 1 << (n.dtype.count.bit_length() - 1)
    return UOp(Ops.LOAD, n.dtype, (buffer, index & -lanes))


def last_lane_lost(n: UOp) -> UOp | None:
    if n.op is not Ops.HREDUCE or n.arg is not Ops.ADD:
        return None
    total = n.src[0].extract(0)
    for lane in range(1, n.src[0].dtype.count - 1):
        total = total + n.src[0].extract(lane)
    return total


def lane_shifted(n: UOp) -> UOp | None:
    if n.op is not Ops.ADD or n.dtype.count != 4 or not n.dtype.is_float:
        return None
    lanes = [n.extract(k) for k in (0, 1, 3, 2)]
    return UOp(Ops.STACK, n.dtype, tuple(lanes))


def positive_zeros(n: UOp) -> UOp | None:
    if not any(s.op is Ops.CONST and s.dtype.is_float and s.arg == 0 for s in n.src):
        return None
    return n.with_src(
        tuple([s.const_like(0.0) if s.op is Ops.CONST and s.arg == 0 else s for s in n.src])
    )


def dimensions_swapped(n: UOp) -> UOp | None:
    """Where group0 is multiplied by 1000, group1 is."""
    first = n.src[0] if n.op is Ops.MUL and n.src[1].arg == 1000 else None
    if first is None or first.op is not Ops.SPECIAL:
        return None
    return n.with_src((UOp(Ops.SPECIAL, first.dtype, (), ("group1", 3)), n.src[1]))


def narrow_sums(n: UOp) -> UOp | None:
    if n.op is not Ops.HREDUCE or n.arg is not Ops.ADD or not n.dtype.is_float:
        return None
    total = n.src[0].extract(0)
    for lane in range(1, n.src[0].dtype.count):
        total = (total + n.src[0].extract(lane)).cast(f16).cast(n.dtype)
    return total


def sine_of_small(n: UOp, x: UOp) -> UOp:
    square = x * x
    return x * (n.const_like(1.0) + square * (-1 / 6) + square * square * (1 / 120))


f32, f16, i32, i8 = dtypes.float32, dtypes.float16, dtypes.int32, dtypes.int8
WITH_SINE = dataclasses.replace(TARGET, ops=TARGET.ops | {Ops.SIN})
X4 = Form("x4", 4)

MUTANTS: dict[str, tuple[Rule, Check, str]] = {
    "nan equals itself": (
        nan_ignored,
        operation(Ops.MAX, f32),
        r"MAX\(.*nan.*gave .*not nan[\s\S]*nan if either operand is",
    ),
    "MAX of zeros has the wrong sign": (
        zeros_joined,
        operation(Ops.MAX, f16),
        r"gave -0.0[\s\S]*0.0 counts as greater than -0.0",
    ),
    "shift counts are taken modulo the width": (
        shift_unguarded,
        operation(Ops.SHL, i32),
        r"SHL\(\d+, 32\)[\s\S]*a count outside 0 .. bits-1 gives 0",
    ),
    "float to int8 wraps": (
        wraps,
        operation(Ops.CAST, i8, f32),
        r"CAST float32 to int8[\s\S]*truncates, saturates out of range",
    ),
    "nan becomes the least integer": (
        nan_as_least,
        operation(Ops.CAST, i8, f32),
        r"CAST\(nan\) gave -128, not 0[\s\S]*nan gives 0",
    ),
    "true is an odd number": (
        on(
            Ops.CAST,
            lambda n, x: (x & 1).ne(0) if n.dtype.is_bool and x.dtype.is_int else None,
        ),
        operation(Ops.CAST, dtypes.bool, i32),
        r"CAST\(2\) gave False, not True[\s\S]*true is everything but 0",
    ),
    "division by a reciprocal": (
        on(Ops.FDIV, lambda n, a, b: a * UOp(Ops.FDIV, n.dtype, (n.const_like(1.0), b))),
        operation(Ops.FDIV, f32),
        r"FDIV of float32[^\n]*: \d+ of[\s\S]*correctly rounded: no reciprocal",
    ),
    "not equal is less or greater": (
        on(Ops.CMPNE, lambda n, a, b: (a < b) | (b < a), floats=True),
        operation(Ops.CMPNE, dtypes.bool, f32),
        r"CMPNE\(.*nan.*gave False, not True[\s\S]*CMPNE is true",
    ),
    "float64 to float16 through float32": (
        on(Ops.CAST, through_single, floats=True),
        operation(Ops.CAST, f16, dtypes.float64),
        r"one rounding from the exact value, never through float32",
    ),
    "float64 is computed in float32": (
        on(Ops.ADD, in_single, floats=True),
        operation(Ops.ADD, dtypes.float64),
        r"ADD of float64[\s\S]*all results are numbers of float32: is it computed in that",
    ),
    "subnormals are flushed": (
        flushed,
        operation(Ops.MUL, f32),
        r"MUL\([\s\S]*an operand is subnormal: a device that flushes them says so",
    ),
    "MULACC rounds twice": (
        on(Ops.MULACC, lambda n, a, b, c: a * b + c, floats=True),
        operation(Ops.MULACC, f32),
        r"one rounding of the exact a \* b \+ c",
    ),
    "a product and a sum are fused": (
        contracted,
        expression(f32, "a * b + a"),
        r"expression: a \* b \+ a[\s\S]*no contraction to a fused multiply-add",
    ),
    "-0.0 is written as 0.0": (
        positive_zeros,
        constants(f32),
        r"is 0.0 \(0x00000000\), not -0.0 \(0x80000000\)[\s\S]*how the renderer writes constants",
    ),
    "the gate of a load is ignored": (
        ungated_load,
        move("gated_load"),
        r"kernel 'gated_load'[\s\S]*the alternative is taken",
    ),
    "the gate of a store is ignored": (
        ungated_store,
        move("masked_store"),
        r"kernel 'masked_store'[\s\S]*where the gate is false nothing is written",
    ),
    "vectors are loaded from aligned places": (
        aligned,
        move("unaligned"),
        r"kernel 'unaligned'[\s\S]*a vector begins at any element",
    ),
    "lanes change places": (
        lane_shifted,
        operation(Ops.ADD, f32, form=X4),
        r"ADD of float32, x4: \d+ of",
    ),
    "the last lane of a sum is lost": (
        last_lane_lost,
        text("vector_lanes"),
        r"kernel 'vector_lanes' leaves other values",
    ),
    "sums in float16 accumulate in float16": (
        narrow_sums,
        reduction("of_rows", f16),
        r"slot 0, 9 of float16: ADD",
    ),
    "group0 and group1 are swapped": (
        dimensions_swapped,
        text("grid_of_two"),
        r"kernel 'grid_of_two'[\s\S]*which dimension of groups and threads is which",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(reference: Device, name: str) -> None:
    rule, check, message = MUTANTS[name]
    check(mutant(None), reference)
    with pytest.raises(Fault, match=message):
        check(mutant(rule), reference)


def test_a_mutant_of_vectors_passes_as_scalars(reference: Device) -> None:
    rule, _, _ = MUTANTS["lanes change places"]
    operation(Ops.ADD, f32)(mutant(rule), reference)


@pytest.mark.parametrize("dtype", [f32, dtypes.float64], ids=str)
def test_a_sine_that_is_right_near_zero_only_is_caught(reference: Device, dtype: DType) -> None:
    device = mutant(on(Ops.SIN, sine_of_small), WITH_SINE)
    with pytest.raises(Fault, match=r"SIN of \w+: \d+ of[\s\S]*units in the last place"):
        elementary.check(Results(device, reference), Ops.SIN, dtype)


def test_a_barrier_left_out_is_caught(reference: Device) -> None:
    class Mutant(TextRenderer):
        def render(self, program: LinearProgram) -> str:
            items = tuple([n for n in program.instructions if n.op is not Ops.BARRIER])
            return super().render(dataclasses.replace(program, instructions=items))

    device = InterpDevice()
    pair = CompilerPair("MUTANT", "INTERP", Mutant)
    device.pairs = CompilerSet("INTERP", TARGET, [pair])
    for name in ("group_reversal", "group_sum", "group_scan", "group_tiles", "group_vectors"):
        with pytest.raises((Fault, DeviceError)):
            text(name)(device, reference)


# ---- the same with C: what only a text in another language gets wrong


def c_device(renderer: type[CRenderer]) -> Device:
    """The CPU with a changed renderer."""
    try:
        device = CpuDevice()
    except OpgraftError as error:
        pytest.skip(f"needs a C compiler: {error.message}")
    made = device.pairs.select("").pair.compiler
    pair = CompilerPair(renderer.__name__.upper(), "CPU", renderer, made)
    device.pairs = CompilerSet("CPU", device.target, [pair])
    return device


class ShortLiterals(CRenderer):
    """Float constants with six digits, as printf's %g gives them."""

    def float_literal(self, dtype: DType, value: float) -> str:
        if dtype.bits < 32 or not math.isfinite(value):
            return super().float_literal(dtype, value)
        return f"({value:.6e}{'f' if dtype is f32 else ''})"


class Promoted(CRenderer):
    """Narrow integers stay as C computes them: in int."""

    def wrapped(self, u: UOp, text: str, *parts: str) -> str:
        return f"({text})" if u.dtype.bits < 32 else super().wrapped(u, text, *parts)


class RawBools(CRenderer):
    """A bool is the low byte of the number."""

    def cast(self, w: Any, u: UOp) -> str:
        if u.dtype.is_bool and u.src[0].dtype.is_int:
            return f"((unsigned char){w.ref(u.src[0])})"
        return super().cast(w, u)


C_MUTANTS: dict[type[CRenderer], tuple[Check, str]] = {
    ShortLiterals: (constants(f32), r"kernel 'constants'[\s\S]*how the renderer writes constants"),
    Promoted: (
        expression(i8, "(a + b) in a wider dtype"),
        r"\(a \+ b\) in a wider dtype[\s\S]*C computes narrow integers in int",
    ),
    RawBools: (
        operation(Ops.CAST, dtypes.bool, i32, form=SCALAR),
        r"CAST\(2\) gave the byte 2, which is no bool, not True[\s\S]*memory holds 0 or 1",
    ),
}


@pytest.mark.parametrize("renderer", C_MUTANTS, ids=lambda r: r.__name__)
def test_a_mutant_of_the_c_renderer_is_caught(reference: Device, renderer: type[CRenderer]) -> None:
    check, message = C_MUTANTS[renderer]
    check(c_device(CRenderer), reference)
    with pytest.raises(Fault, match=message):
        check(c_device(renderer), reference)
