"""Matrix units and dot instructions that a target claims: programs that use one as it stands, and
what they ought to give, by NumPy.

The layouts in `Target.matrix_units` are the device's own word for which thread holds what. Inputs
are made so that what comes out tells which side of which matrix lies elsewhere: the rows of a and
of the sums, the columns of b and of the sums, or what is multiplied with what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opgraft.api import Device, DotUnit, LinearProgram, MatrixUnit, Ops, Target, UOp, dtypes
from opgraft.dtype import DType
from opgraft.ir.matrix import SIDES, Operand
from opgraft_conformance.execution import compiled, execute
from opgraft_conformance.fault import Fault
from opgraft_conformance.rows import not_claimed
from opgraft_conformance.values import column, value

Array: TypeAlias = NDArray[Any]
MOST: Final = 4
"""Units of a target that have rows."""
_SHOWN: Final = 6
_ZERO: Final = UOp.const(dtypes.int32, 0)
_OPERANDS: Final[tuple[Operand, ...]] = ("a", "b", "c")


def matrix_unit(target: Target, place: int) -> MatrixUnit:
    """A unit that the target claims; ends the row where it has fewer, or no such groups."""
    units = target.matrix_units
    if place >= len(units):
        number = f"only {len(units)}" if units else "no"
        not_claimed(f"{target.name} has {number} matrix unit{'s' * (len(units) > 1)}")
    return units[place]


def dot_unit(target: Target, place: int) -> DotUnit:
    """A dot instruction that the target claims; ends the row where it has fewer."""
    units = target.dot_units
    if place >= len(units):
        number = f"only {len(units)}" if units else "no"
        not_claimed(f"{target.name} has {number} dot instruction{'s' * (len(units) > 1)}")
    return units[place]


# ---- matrix units


def unit_program(unit: MatrixUnit, groups: int, blocks: int) -> LinearProgram:
    """Each thread loads what it holds of a, b and c from places of its own, and stores what it
    then holds of c in the place of the old.

    Slots are a, b and c; `blocks` are as many units side by side in each group.
    """
    threads = blocks * unit.threads
    group = UOp(Ops.SPECIAL, dtypes.int32, (), ("group0", groups))
    thread = UOp(Ops.SPECIAL, dtypes.int32, (), ("thread0", threads))
    me = group * threads + thread
    held, params = [], []
    for slot, operand in enumerate(_OPERANDS):
        size = unit.registers(operand)
        memory = UOp(Ops.PARAM, unit.dtype(operand), (), (slot, groups * threads * size))
        params.append(memory)
        parts = tuple(memory.load(me * size + r) for r in range(size))
        held.append(parts[0] if size == 1 else UOp(Ops.STACK, unit.held(operand), parts))
    made = UOp(Ops.MATRIX, unit.held("c"), tuple(held), unit)
    size = unit.registers("c")
    results = [made] if size == 1 else [made.extract(r) for r in range(size)]
    stores = [params[2].store(me * size + r, one) for r, one in enumerate(results)]
    leaves = {Ops.CONST, Ops.PARAM, Ops.SPECIAL}
    listed = [n for n in UOp.sink(*stores).toposort() if n.op not in leaves | {Ops.SINK}]
    return LinearProgram(
        f"{unit.name}_as_it_is",
        tuple(listed),
        tuple(params),
        launch=((groups,), (threads,)),
        written=(2,),
    )


def places(unit: MatrixUnit, operand: Operand) -> tuple[Array, Array]:
    """Row and column of each register of each thread, threads x registers."""
    layout = unit.layout(operand)
    at = [[layout.at(t, r) for r in range(layout.size)] for t in range(unit.threads)]
    row, down = SIDES[operand]
    return (
        np.array([[place.get(row, 0) for place in line] for line in at]),
        np.array([[place.get(down, 0) for place in line] for line in at]),
    )


def multiplied(
    device: Device, unit: MatrixUnit, a: Array, b: Array, c: Array, blocks: int = 1
) -> tuple[Array, Any]:
    """What the threads hold of a * b + c for stacks of matrices, and the kernel: an array of as
    many matrices x threads x registers. The matrices go to groups of so many blocks."""
    made = unit_program(unit, len(a) // blocks, blocks)
    memory = {
        slot: column(matrices[:, *places(unit, operand)].reshape(-1).tolist(), unit.dtype(operand))
        for slot, (operand, matrices) in enumerate(zip(_OPERANDS, (a, b, c), strict=True))
    }
    kernel = compiled(device, made)
    words = execute(device, kernel, memory)[2]
    held = np.array([value(word, unit.dtype("c")) for word in words])
    return held.reshape(len(a), unit.threads, -1), kernel


@dataclass(frozen=True)
class Aspect:
    """A question to a unit: matrices whose product tells one thing."""

    asks: str
    make: Callable[[MatrixUnit], tuple[Array, Array, Array]]
    """Stacks of a, b and c, of whole numbers."""
    decode: Callable[[MatrixUnit, float], str]
    """What a wrong value tells."""
    look_at: str


def _rows(unit: MatrixUnit) -> tuple[Array, Array, Array]:
    m, n, k = unit.shape
    a = np.broadcast_to(np.arange(1, m + 1)[None, :, None], (1, m, k))
    return a, np.ones((1, k, n)), np.zeros((1, m, n))


def _columns(unit: MatrixUnit) -> tuple[Array, Array, Array]:
    m, n, k = unit.shape
    b = np.broadcast_to(np.arange(1, n + 1)[None, None, :], (1, k, n))
    return np.ones((1, m, k)), b, np.zeros((1, m, n))


def _depth(unit: MatrixUnit) -> tuple[Array, Array, Array]:
    m, n, k = unit.shape
    a = np.broadcast_to(np.eye(k)[:, None, :], (k, m, k))
    b = np.broadcast_to(np.arange(1, k + 1)[None, :, None], (k, k, n))
    return a, b, np.zeros((k, m, n))


def _sums(unit: MatrixUnit) -> tuple[Array, Array, Array]:
    m, n, k = unit.shape
    c = np.arange(1, m * n + 1).reshape(1, m, n)
    return np.zeros((1, m, k)), np.zeros((1, k, n)), c


def _which(what: str, each: bool) -> Callable[[MatrixUnit, float], str]:
    def decode(unit: MatrixUnit, found: float) -> str:
        number = found / unit.shape[2] if each else found
        most = unit.shape["mnk".index({"row": "m", "column": "n", "product": "k"}[what])]
        if number != int(number) or not 1 <= number <= most:
            return ""
        return f": that of {what} {int(number) - 1}"

    return decode


ASPECTS: Final = {
    "rows": Aspect(
        "the rows of a against those of the sums",
        _rows,
        _which("row", each=True),
        'how "m" lies in the layouts of a and c',
    ),
    "columns": Aspect(
        "the columns of b against those of the sums",
        _columns,
        _which("column", each=True),
        'how "n" lies in the layouts of b and c',
    ),
    "depth": Aspect(
        "which elements of a and b are multiplied with each other",
        _depth,
        _which("product", each=False),
        'how "k" lies in the layouts of a and b',
    ),
    "sums": Aspect(
        "that what is added to stays where it is",
        _sums,
        lambda unit, found: "",
        "the third operand in Renderer.matrix",
    ),
}


def check_aspect(device: Device, unit: MatrixUnit, name: str) -> None:
    """Raises `Fault` where the unit answers otherwise than its layouts say."""
    aspect = ASPECTS[name]
    a, b, c = aspect.make(unit)
    held, kernel = multiplied(device, unit, a, b, c)
    wanted = (c + a @ b)[:, *places(unit, "c")]
    wrong = np.argwhere(held != wanted)
    if len(wrong):
        raise Fault(
            f"matrix unit {unit.name} does not hold its matrices as Target.matrix_units says: "
            f"{aspect.asks}",
            {
                **_told(unit),
                "wrong": f"{len(wrong)} of {held.size} sums",
                "sums": _listed(unit, held, wanted, wrong, aspect.decode),
            },
            kernel=kernel,
            hint=f"{aspect.look_at}, and the order of operands in Renderer.matrix",
        )


def check_products(device: Device, unit: MatrixUnit, blocks: int, seed: int) -> None:
    """Raises `Fault` unless all blocks of all groups multiply their matrices: of small whole
    numbers, of which every order of a sum is exact, and of the greatest that the dtypes have."""
    m, n, k = unit.shape
    pick = np.random.default_rng(seed)
    count = 3 * blocks

    def numbers(operand: Operand, shape: tuple[int, ...]) -> Array:
        dtype = unit.dtype(operand)
        if dtype.is_float or operand == "c":
            low = 0 if dtype.kind == "uint" else -7
            return pick.integers(low, 8, shape)
        return pick.integers(int(dtype.min), int(dtype.max) + 1, shape)

    a, b, c = numbers("a", (count, m, k)), numbers("b", (count, k, n)), numbers("c", (count, m, n))
    held, kernel = multiplied(device, unit, a, b, c, blocks)
    wanted = (c + a @ b)[:, *places(unit, "c")]
    wrong = np.argwhere(held != wanted)
    if len(wrong):
        raise Fault(
            f"matrix unit {unit.name} gives wrong products",
            {
                **_told(unit),
                "groups": f"{count // blocks} of {blocks} times {unit.threads} threads",
                "wrong": f"{len(wrong)} of {held.size} sums",
                "sums": _listed(unit, held, wanted, wrong, lambda unit, found: ""),
            },
            kernel=kernel,
            hint="rows matrix/layouts of this unit, if they fail too; which threads of a group are "
            "neighbours for the instruction",
        )


def check_precision(device: Device, unit: MatrixUnit, seed: int) -> None:
    """Raises `Fault` where sums are further from the exact ones than rounding each product and
    each sum once explains."""
    m, n, k = unit.shape
    pick = np.random.default_rng(seed)

    def numbers(operand: Operand, shape: tuple[int, ...]) -> Array:
        dtype = unit.dtype(operand)
        return np.array(
            [dtype.const(float(x)) for x in pick.standard_normal(shape).reshape(-1)]
        ).reshape(shape)

    a, b, c = numbers("a", (2, m, k)), numbers("b", (2, k, n)), numbers("c", (2, m, n))
    held, kernel = multiplied(device, unit, a, b, c)
    wanted, reach = (c + a @ b), (np.abs(c) + np.abs(a) @ np.abs(b))
    at = (slice(None), *places(unit, "c"))
    allowed = (k + 1) * 2.0 ** -(unit.dtype("c").mantissa + 1) * reach[at]
    apart = np.abs(held - wanted[at])
    wrong = np.argwhere(~(apart <= allowed))
    if len(wrong):
        raise Fault(
            f"matrix unit {unit.name} computes less exactly than its dtypes say",
            {
                **_told(unit),
                "wrong": f"{len(wrong)} of {held.size} sums",
                "error": f"{(apart / allowed).max():.3g} times what is allowed",
                "sums": _listed(unit, held, wanted[at], wrong, lambda unit, found: ""),
            },
            kernel=kernel,
            hint="units that round their operands to fewer digits claim those dtypes",
        )


def _told(unit: MatrixUnit) -> dict[str, object]:
    a, b, c = unit.dtypes
    m, n, k = unit.shape
    return {"unit": f"{m} x {n} x {k}, {a} by {b} onto {c}, {unit.threads} threads"}


def _listed(
    unit: MatrixUnit,
    held: Array,
    wanted: Array,
    wrong: Array,
    decode: Callable[[MatrixUnit, float], str],
) -> str:
    rows, columns = places(unit, "c")
    return "\n".join(
        f"thread {t} register {r} (row {rows[t, r]}, column {columns[t, r]}): "
        f"{_plain(held[w, t, r])}, not {_plain(wanted[w, t, r])}{decode(unit, held[w, t, r])}"
        for w, t, r in wrong[:_SHOWN].tolist()
    )


def _plain(number: Any) -> str:
    return f"{float(number):g}" if abs(float(number)) < 1e6 else str(number)


# ---- dot instructions


def dot_program(unit: DotUnit, lanes: int, count: int) -> LinearProgram:
    """c = dot(a, b, c) over buffers of `count` words and sums, so many lanes at a time."""
    kind = unit.dtypes[2]
    a, b, c = (
        UOp(Ops.PARAM, dtype, (), (slot, count))
        for slot, dtype in enumerate((dtypes.int32, dtypes.int32, kind))
    )
    listed: list[UOp] = []
    for first in range(0, count, lanes):
        at = UOp.const(dtypes.int32, first)
        loads = [UOp(Ops.LOAD, p.dtype.vec(lanes), (p, at)) for p in (a, b, c)]
        made = UOp(Ops.DOT, kind.vec(lanes), tuple(loads), unit)
        listed += [*loads, made, c.store(at, made)]
    return LinearProgram(f"{unit.name}_as_it_is", tuple(listed), (a, b, c), written=(2,))


def parts_of(words: Array, dtype: DType) -> Array:
    """The parts of int32 words, words x parts, as exact numbers."""
    bits = 8 * dtype.itemsize
    count = 32 // bits
    unsigned = words.astype(np.int64) & 0xFFFFFFFF
    parts = [(unsigned >> (bits * part)) & ((1 << bits) - 1) for part in range(count)]
    flat = np.stack(parts, axis=1)
    return np.array([[value(word, dtype) for word in row] for row in flat.tolist()])
