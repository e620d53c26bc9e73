"""What is illegal is refused at its stage, with the node, the rule and what to do."""

from __future__ import annotations

import math

import pytest

from opgraft.dtype import dtypes
from opgraft.errors import SpecError
from opgraft.ir import AxisKind, GroupOp, Ops, Space, UOp
from opgraft.ir.laws import LAWS, broken_law
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.spec import check
from opgraft.ir.uop import head_of, node
from opgraft.target import Target

F32, I32, I64, INDEX = dtypes.float32, dtypes.int32, dtypes.int64, dtypes.index
DATA = UOp(Ops.PARAM, F32, (), (0, 64))
OUT = UOp(Ops.PARAM, F32, (), (1, 64))
ROW, K = UOp.range(16, "i"), UOp.range(4, "k", AxisKind.REDUCE)
F = UOp.variable("f", -1.0, 1.0, F32)
N = UOp.variable("n", 0, 9, I32)
B = UOp.variable("b", False, True, dtypes.bool)


def a_kernel(value: UOp | None = None, name: str = "k") -> UOp:
    if value is None:
        value = (DATA.load(ROW * 4 + K) * 2.0).reduce(Ops.ADD, K)
    return UOp.sink(OUT.store(ROW, value).end(ROW), arg=KernelInfo(name))


def test_every_op_has_laws() -> None:
    assert set(LAWS) == set(Ops)


def test_a_kernel_is_legal() -> None:
    check(a_kernel(), "kernel")
    check(a_kernel(DATA.load(ROW, ROW < 5, 0.0)), "kernel")
    local = UOp(Ops.LOCAL, F32, (), ("row", 4, Space.PRIVATE))
    j = UOp.range(4, "j")
    filled = local.after(local.store(j, DATA.load(ROW * 4 + j)).end(j))
    check(a_kernel(filled.load(0) + filled.load(1)), "kernel")
    scan = UOp(Ops.SCAN, F32, (DATA.load(ROW), ROW), Ops.ADD)
    check(a_kernel(scan), "kernel")
    check(a_kernel(UOp(Ops.MULACC, F32, (DATA.load(ROW), F, F))), "kernel")


BROKEN_NODES = [
    (UOp(Ops.ADD, F32, (F, N)), "its sources have its own dtype"),
    (UOp(Ops.ADD, F32, (F,)), "takes 2 sources"),
    (UOp(Ops.ADD, F32, (F, F), 3), "it has no arg"),
    (UOp(Ops.IDIV, F32, (F, F)), "computes in an integer dtype"),
    (UOp(Ops.FDIV, I32, (N, N)), "computes in a float dtype"),
    (UOp(Ops.SHL, dtypes.bool, (B, B)), "computes in an integer dtype"),
    (UOp(Ops.AND, F32, (F, F)), "integer dtype or bool"),
    (UOp(Ops.MOD, dtypes.bool, (B, B)), "integer or float"),
    (UOp(Ops.SQRT, I32, (N,)), "computes in a float dtype"),
    (UOp(Ops.CMPLT, dtypes.bool, (F, N)), "have one dtype"),
    (UOp(Ops.CMPLT, F32, (F, F)), "it gives bool"),
    (UOp(Ops.WHERE, F32, (N, F, F)), "its condition is bool"),
    (UOp(Ops.WHERE, F32, (B, F, N)), "its two values have its own dtype"),
    (UOp(Ops.THREEFRY, I64, (UOp.const(I64, 1),) * 2), "computes in uint64"),
    (UOp(Ops.CAST, F32.vec(4), (F,)), "as many lanes"),
    (UOp(Ops.BITCAST, I64, (F,)), "as many bits"),
    (node(head_of(Ops.CONST, I32, 1.5), ()), "a number as its (scalar) dtype holds it"),
    (UOp(Ops.VAR, I32, (), ("n", 5, 1)), "limits"),
    (UOp(Ops.VAR, I32, (), ("n", 0, 1 << 40)), "limits"),
    (UOp(Ops.PARAM, F32, (), (0,)), "(slot, size)"),
    (UOp(Ops.PARAM, INDEX, (), (0, 4)), "memory holds"),
    (UOp(Ops.LOCAL, F32, (), ("x", 4)), "(name, size, space)"),
    (UOp(Ops.RANGE, I32, (N,), ("i",)), "(name, AxisKind)"),
    (UOp(Ops.RANGE, INDEX, (N,), ("i", AxisKind.LOOP)), "its value has its own dtype"),
    (UOp(Ops.REDUCE, F32, (F, K), Ops.SHL), "ADD, MUL, MAX, MIN, AND or OR"),
    (UOp(Ops.REDUCE, F32, (F, K), Ops.AND), "AND and OR combine"),
    (UOp(Ops.REDUCE, F32, (F, F), Ops.ADD), "are RANGEs"),
    (UOp(Ops.REDUCE, F32, (F,), Ops.ADD), "a value and ranges"),
    (UOp(Ops.STACK, F32.vec(3), (F, F)), "a source for each lane"),
    (UOp(Ops.STACK, F32.vec(2), (F, N)), "scalars of its dtype"),
    (UOp(Ops.BROADCAST, F32.vec(2), (N,)), "a vector of its source's dtype"),
    (UOp(Ops.EXTRACT, F32, (F.broadcast(2),), 2), "a lane of its source"),
    (UOp(Ops.HREDUCE, F32, (F,), Ops.ADD), "its source is a vector"),
    (UOp(Ops.LOAD, I32, (DATA, ROW)), "moves elements of its buffer's dtype"),
    (UOp(Ops.LOAD, F32, (F, ROW)), "its first source is a buffer"),
    (UOp(Ops.LOAD, F32, (DATA, F)), "its index is an integer"),
    (UOp(Ops.LOAD, F32, (DATA, ROW, B)), "takes 2 or 4 sources"),
    (UOp(Ops.LOAD, F32, (DATA, ROW, B, N)), "its alternative has its own dtype"),
    (UOp(Ops.LOAD, F32, (DATA, ROW, N, F)), "its gate is bool"),
    (UOp(Ops.STORE, dtypes.void, (OUT, ROW, N)), "moves elements"),
    (UOp(Ops.STORE, F32, (OUT, ROW, F)), "its dtype is void"),
    (UOp(Ops.AFTER, F32, (OUT, F)), "are effects"),
    (UOp(Ops.END, dtypes.void, (F, ROW)), "its first source is an effect"),
    (UOp(Ops.END, dtypes.void, (OUT.store(ROW, F), F)), "are RANGEs"),
]


@pytest.mark.parametrize(
    ("broken", "rule"), BROKEN_NODES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_malformed_node_breaks_its_law(broken: UOp, rule: str) -> None:
    law = broken_law(broken)
    assert law is not None
    assert rule in law.says


def test_a_malformed_node_is_named_with_the_law_it_breaks() -> None:
    with pytest.raises(SpecError) as raised:
        check(UOp.sink(F + N), "array")
    assert str(raised.value) == (
        'not legal at stage \'array\': float32 add(var["f", -1.0, 1.0], var["n", 0, 9])\n'
        "  rule: ADD: its sources have its own dtype: cast or broadcast them\n"
        "  sources: float32, int32"
    )


def test_every_stage_has_its_own_ops() -> None:
    reshape = UOp(Ops.RESHAPE, F32, (F,), (1,))
    check(UOp.sink(reshape), "array")
    with pytest.raises(SpecError, match="no RESHAPE at this stage"):
        check(a_kernel(reshape), "kernel")
    with pytest.raises(SpecError, match="no PARAM at this stage"):
        check(DATA.load(0).sqrt(), "array")
    with pytest.raises(SpecError, match="no CDIV at this stage"):
        check(a_kernel(UOp(Ops.CDIV, I32, (N, N)).cast(F32)), "kernel")
    with pytest.raises(SpecError, match="no BROADCAST at this stage"):
        check(a_kernel(F.broadcast(2).sqrt().extract(0)), "kernel")
    with pytest.raises(SpecError, match="values are scalar"):
        check(a_kernel(UOp.variable("v", 0.0, 1.0, F32.vec(2)).sqrt()), "kernel")
    with pytest.raises(SpecError, match="no value has dtype index"):
        check(a_kernel(), "lowered")


BROKEN_KERNELS = [
    (OUT.store(ROW, F), "a kernel is a SINK"),
    (UOp.sink(OUT.store(0, F)), "a kernel is a SINK with a KernelInfo"),
    (UOp.sink(OUT.store(ROW, F), arg=KernelInfo()), "leaves ranges open: i"),
    (UOp.sink(F, arg=KernelInfo()), "are STOREs and ENDs"),
    (UOp.sink(OUT.store(N, F), arg=KernelInfo()), "have dtype index"),
    (a_kernel(UOp(Ops.PARAM, F32, (), (1, 8)).load(ROW)), "slot 1 is another buffer"),
    (a_kernel(UOp(Ops.PARAM, F32, (), (5, 8)).load(ROW)), "without a gap"),
    (UOp.sink(OUT.store(K, F).end(K), arg=KernelInfo()), "kind REDUCE"),
]


@pytest.mark.parametrize(("sink", "rule"), BROKEN_KERNELS, ids=[rule for _, rule in BROKEN_KERNELS])
def test_a_broken_kernel_is_refused(sink: UOp, rule: str) -> None:
    with pytest.raises(SpecError) as raised:
        check(sink, "kernel")
    assert rule in str(raised.value)


# ---- what the target has


def lowered(value: UOp) -> UOp:
    i = UOp(Ops.RANGE, I32, (UOp.const(I32, 16),), ("i", AxisKind.LOOP))
    place = UOp.const(I32, 0) if value.dtype.count > 1 else i
    return UOp.sink(OUT.store(place, value).end(i), arg=KernelInfo())


def test_a_lowered_kernel_has_only_what_the_target_has() -> None:
    small = Target("small", compute=frozenset({F32, I32, dtypes.bool}), ops=frozenset({Ops.ADD}))
    check(lowered(F + 1.0), "lowered", small)
    with pytest.raises(SpecError, match="small has no MUL") as raised:
        check(lowered(F * 2.0), "lowered", small)
    assert "decompose" in str(raised.value)
    wide = Target("wide", compute=frozenset({F32}), storage=frozenset({F32}))
    with pytest.raises(SpecError, match="does not compute in int64"):
        check(lowered((UOp.const(I64, 1) + 2).cast(F32)), "lowered", wide)
    with pytest.raises(SpecError, match="no EXP2"):
        check(lowered(F.exp2()), "lowered", Target("plain"))
    check(lowered(F.exp2()), "lowered", Target("rich", ops=GroupOp.ALU))


def test_vectors_of_indices_need_gather() -> None:
    places = UOp(Ops.IOTA, I32.vec(4))
    gathered = UOp(Ops.LOAD, F32.vec(4), (DATA, places))
    check(lowered(gathered), "lowered", Target("g", gather=True))
    with pytest.raises(SpecError, match="takes no vector of indices"):
        check(lowered(gathered), "lowered", Target("g", gather=False))
    with pytest.raises(SpecError, match="has no vectors"):
        check(lowered(F.broadcast(4)), "lowered", Target("scalar", vector_bytes=0))


# ---- linear programs

ZERO = UOp.const(I32, 0)
LOOP = UOp(Ops.RANGE, I32, (UOp.const(I32, 16),), ("i", AxisKind.LOOP))
SPREAD = UOp(Ops.RANGE, I32, (UOp.const(I32, 16),), ("p", AxisKind.PARALLEL))
ITEM = DATA.load(LOOP)
SAVE = OUT.store(LOOP, ITEM)
CLOSE = UOp(Ops.END, dtypes.void, (LOOP,))
TEST = UOp(Ops.IF, dtypes.void, (B,))


def linear(*items: UOp, **changes: object) -> LinearProgram:
    fields = {"params": (DATA, OUT), "variables": (), "written": (1,)}
    return LinearProgram("p", items, **{**fields, **changes})  # type: ignore[arg-type]


def test_a_linear_program_is_legal() -> None:
    check(linear(LOOP, ITEM, SAVE, CLOSE), "linear")
    check(linear(LOOP, ITEM, SAVE, CLOSE, LOOP, ITEM, SAVE, CLOSE), "linear", Target("t"))
    item = DATA.load(SPREAD)
    items = (SPREAD, item, OUT.store(SPREAD, item), UOp(Ops.END, dtypes.void, (SPREAD,)))
    check(linear(*items, parallel=SPREAD), "linear")


BROKEN_PROGRAMS = [
    (linear(ITEM, LOOP, SAVE, CLOSE), "was not computed before it"),
    (linear(LOOP, ITEM, CLOSE, SAVE), "was not computed before it"),
    (linear(LOOP, ITEM, SAVE), "it is never closed"),
    (linear(LOOP, TEST, ITEM, SAVE, CLOSE, variables=(B,)), "the innermost open one"),
    (linear(CLOSE, written=()), "nothing is open"),
    (linear(LOOP, ITEM, SAVE, CLOSE, written=()), "says that it writes slots []"),
    (linear(LOOP, ITEM, SAVE, CLOSE, params=(DATA,)), "not among the program's params"),
    (linear(LOOP, ITEM, SAVE, CLOSE, params=(OUT, DATA)), "have slots [1, 0]"),
    (linear(N + 1, written=()), "not among the program's variables"),
    (linear(LOOP, ITEM, SAVE, CLOSE, variables=(N, B)), "not in the order of names"),
    (linear(ZERO, written=()), "leaves are not instructions"),
    (linear(SPREAD, UOp(Ops.END, dtypes.void, (SPREAD,)), written=()), "the program names none"),
    (linear(LOOP, ITEM, SAVE, CLOSE, parallel=SPREAD), "stands in the program once"),
    (
        linear(
            LOOP,
            SPREAD,
            ITEM,
            UOp(Ops.END, dtypes.void, (SPREAD,)),
            CLOSE,
            written=(),
            parallel=SPREAD,
        ),
        "stands in no other loop",
    ),
    (
        linear(
            LOOP, ITEM, SAVE, CLOSE, SPREAD, UOp(Ops.END, dtypes.void, (SPREAD,)), parallel=SPREAD
        ),
        "stays its own",
    ),
    (linear(F.reduce(Ops.ADD, LOOP), written=(), variables=(F,)), "no REDUCE at this stage"),
    (linear(ROW, UOp(Ops.END, dtypes.void, (ROW,)), written=()), "no value has dtype index"),
]


@pytest.mark.parametrize(
    ("program", "rule"), BROKEN_PROGRAMS, ids=[rule for _, rule in BROKEN_PROGRAMS]
)
def test_a_broken_linear_program_is_refused(program: LinearProgram, rule: str) -> None:
    with pytest.raises(SpecError) as raised:
        check(program, "linear")
    assert rule in str(raised.value)


def test_the_stage_must_exist_and_fit() -> None:
    with pytest.raises(ValueError, match="no stage is named 'late'"):
        check(a_kernel(), "late")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stage linear"):
        check(a_kernel(), "linear")


def test_a_deep_graph_is_checked() -> None:
    value = F
    for _ in range(50_000):
        value = value + 1.0
    check(UOp.sink(value), "array")
    with pytest.raises(SpecError, match="its sources have its own dtype"):
        check(UOp.sink(UOp(Ops.ADD, F32, (value, N))), "array")


def test_floats_without_limits_are_legal_variables() -> None:
    check(UOp.sink(UOp.variable("z", -math.inf, math.inf, F32)), "array")
