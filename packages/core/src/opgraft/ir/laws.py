"""What every node must satisfy by itself, at any stage: how its sources and its arg fit its op.

`LAWS` is a table: for each op the laws that hold for it. A law is a sentence, which is what a
`SpecError` says, and a predicate. ir/spec.py adds what each stage of compilation demands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opgraft.dtype import DType, dtypes
from opgraft.ir.matrix import DotUnit, MatrixUnit, Operand
from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
from opgraft.ir.uop import UOp, exact_key


@dataclass(frozen=True)
class Law:
    """One demand on a node."""

    says: str
    holds: Callable[[UOp], bool]


def broken_law(n: UOp) -> Law | None:
    """The first law that the node breaks, None if it is well-formed."""
    for law in LAWS.get(n.op, ()):
        if not law.holds(n):
            return law
    return None


def _sources(*counts: int) -> Law:
    says = " or ".join(map(str, counts))
    return Law(f"it takes {says} source{'s' * (counts != (1,))}", lambda n: len(n.src) in counts)


def _some(least: int, what: str) -> Law:
    return Law(f"it takes {what}", lambda n: len(n.src) >= least)


def _arg(says: str, holds: Callable[[Any], bool]) -> Law:
    return Law(f"its arg is {says}", lambda n: holds(n.arg))


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_pair(arg: Any, first: type | tuple[type, ...], second: Callable[[Any], bool]) -> bool:
    return type(arg) is tuple and len(arg) == 2 and isinstance(arg[0], first) and second(arg[1])


_PLAIN: Final = Law("it has no arg", lambda n: n.arg is None)
_VOID: Final = Law("it is an effect: its dtype is void", lambda n: n.dtype is dtypes.void)
_VALUE: Final = Law("it has a value: its dtype is not void", lambda n: n.dtype is not dtypes.void)
_ONE_DTYPE: Final = Law(
    "its sources have its own dtype: cast or broadcast them",
    lambda n: all(s.dtype is n.dtype for s in n.src),
)
_ALIKE: Final = Law(
    "its two sources have one dtype: cast or broadcast one of them",
    lambda n: n.src[0].dtype is n.src[1].dtype,
)
_BOOL: Final = Law(
    "it gives bool, of as many lanes as its sources have",
    lambda n: n.dtype.is_bool and n.dtype.count == n.src[0].dtype.count,
)
_FLOAT: Final = Law("it computes in a float dtype", lambda n: n.dtype.is_float)
_INTEGER: Final = Law("it computes in an integer dtype", lambda n: n.dtype.is_int)
_NUMBER: Final = Law(
    "it computes in an integer or float dtype", lambda n: n.dtype.is_int or n.dtype.is_float
)
_BITS: Final = Law(
    "it computes in an integer dtype or bool", lambda n: n.dtype.is_int or n.dtype.is_bool
)
_REDUCES: Final = _arg(
    "ADD, MUL, MAX, MIN, AND or OR", lambda arg: isinstance(arg, Ops) and arg in GroupOp.REDUCING
)
_REDUCES_DTYPE: Final = Law(
    "AND and OR combine integers or bool",
    lambda n: n.arg not in (Ops.AND, Ops.OR) or not n.dtype.is_float,
)
_FIRST_DTYPE: Final = Law("its value has its own dtype", lambda n: n.src[0].dtype is n.dtype)
_OVER_RANGES: Final = Law(
    "all its sources but the first are RANGEs",
    lambda n: all(s.op is Ops.RANGE for s in n.src[1:]),
)
_MEMORY: Final = Law(
    "its first source is a buffer: PARAM, LOCAL or AFTER", lambda n: n.src[0].op in GroupOp.MEMORY
)
_IN_MEMORY: Final = Law(
    "its buffer is in memory, not in registers",
    lambda n: n.src[0].op is not Ops.LOCAL or n.src[0].arg[2] is not Space.REGISTER,
)
_PLACE: Final = Law("its index is an integer", lambda n: n.src[1].dtype.is_int)


def _accessed(n: UOp) -> DType:
    """The dtype that a LOAD or STORE moves."""
    return n.dtype if n.op is Ops.LOAD else n.src[2].dtype


def _fits_element(n: UOp) -> bool:
    element, moved, index = n.src[0].dtype, _accessed(n), n.src[1].dtype
    if element.count > 1:
        return moved is element and index.count == 1
    if moved.scalar is not element:
        return False
    return index.count in (1, moved.count)


def _gate(n: UOp) -> bool:
    place = 2 if n.op is Ops.LOAD else 3
    if len(n.src) <= place:
        return True
    gate = n.src[place].dtype
    return gate.is_bool and gate.count in (1, _accessed(n).count)


_LAUNCH: Final = tuple(f"{what}{axis}" for what in ("group", "thread") for axis in range(3))


def _special(arg: Any) -> bool:
    if not _is_pair(arg, str, lambda size: True) or arg[0] not in (*_LAUNCH, "begin"):
        return False
    size = arg[1]
    return isinstance(size, UOp) or (type(size) is int and size >= 1)


def _is_effect(n: UOp) -> bool:
    return n.dtype is dtypes.void


def _variable(arg: Any) -> bool:
    return type(arg) is tuple and len(arg) == 3 and type(arg[0]) is str


def _exact(n: UOp) -> bool:
    if n.dtype.base is not None or n.dtype is dtypes.void:
        return False
    held = n.arg
    if not isinstance(held, (bool, int, float)):
        return False
    return held != held or exact_key(n.dtype.const(held)) == exact_key(held)


_OPERANDS: Final[tuple[Operand, ...]] = ("a", "b", "c")
_ANY_ATOMIC: Final = frozenset({Ops.ADD, Ops.MAX, Ops.MIN})
_ARITHMETIC: Final = (_sources(2), _PLAIN, _VALUE, _ONE_DTYPE)
_ACCESS: Final = (
    _MEMORY,
    _PLACE,
    Law(
        "it moves elements of its buffer's dtype: one, several from a scalar index on, or one "
        "for each lane of a vector of indices",
        _fits_element,
    ),
    Law("its gate is bool, of one lane or one for each element", _gate),
)

LAWS: Final[dict[Ops, tuple[Law, ...]]] = {
    Ops.CONST: (
        _sources(0),
        Law("its arg is a number as its (scalar) dtype holds it: use UOp.const", _exact),
    ),
    Ops.VAR: (
        _sources(0),
        _VALUE,
        _arg("(name, least, greatest)", _variable),
        Law(
            "its limits are values of its dtype, the least first",
            lambda n: (
                all(exact_key(n.dtype.const(v)) == exact_key(v) for v in n.arg[1:])
                and n.arg[1] <= n.arg[2]
            ),
        ),
    ),
    Ops.PARAM: (
        _sources(0),
        _arg("(slot, size)", lambda arg: _is_pair(arg, int, _is_count) and arg[0] >= 0),
        Law("its dtype is one that memory holds", lambda n: n.dtype.scalar in dtypes.all),
    ),
    Ops.LOCAL: (
        _sources(0),
        _arg(
            "(name, size, space)",
            lambda arg: (
                type(arg) is tuple
                and len(arg) == 3
                and _is_count(arg[1])
                and isinstance(arg[2], Space)
            ),
        ),
        _VALUE,
    ),
    Ops.IOTA: (_sources(0), _PLAIN, Law("it is a vector", lambda n: n.dtype.count > 1), _NUMBER),
    Ops.SPECIAL: (
        _sources(0),
        _INTEGER,
        _arg(f'("begin", size), or (name, size) with one of {", ".join(_LAUNCH)}', _special),
    ),
    Ops.RANGE: (
        _sources(1),
        _INTEGER,
        _FIRST_DTYPE,
        _arg(
            "(name, AxisKind)",
            lambda arg: _is_pair(arg, (int, str), lambda kind: isinstance(kind, AxisKind)),
        ),
    ),
    Ops.CAST: (
        _sources(1),
        _PLAIN,
        _VALUE,
        Law(
            "its source is a value of as many lanes",
            lambda n: n.src[0].dtype is not dtypes.void and n.src[0].dtype.count == n.dtype.count,
        ),
    ),
    Ops.BITCAST: (
        _sources(1),
        _PLAIN,
        Law(
            "its source has as many bits as it has, neither of them index or void",
            lambda n: (
                n.dtype.bits * n.dtype.count == n.src[0].dtype.bits * n.src[0].dtype.count > 0
            ),
        ),
    ),
    **dict.fromkeys(
        (Ops.SQRT, Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.TRUNC),
        (_sources(1), _PLAIN, _FLOAT, _ONE_DTYPE),
    ),
    **dict.fromkeys((Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN), _ARITHMETIC),
    Ops.FDIV: (*_ARITHMETIC, _FLOAT),
    Ops.MOD: (*_ARITHMETIC, _NUMBER),
    **dict.fromkeys((Ops.IDIV, Ops.CDIV, Ops.CMOD, Ops.SHL, Ops.SHR), (*_ARITHMETIC, _INTEGER)),
    **dict.fromkeys((Ops.AND, Ops.OR, Ops.XOR), (*_ARITHMETIC, _BITS)),
    **dict.fromkeys((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ), (_sources(2), _PLAIN, _ALIKE, _BOOL)),
    Ops.THREEFRY: (
        *_ARITHMETIC,
        Law("it computes in uint64", lambda n: n.dtype.scalar is dtypes.uint64),
    ),
    Ops.WHERE: (
        _sources(3),
        _PLAIN,
        _VALUE,
        Law(
            "its condition is bool, of as many lanes",
            lambda n: n.src[0].dtype is dtypes.bool.vec(n.dtype.count),
        ),
        Law(
            "its two values have its own dtype: cast or broadcast them",
            lambda n: n.src[1].dtype is n.dtype is n.src[2].dtype,
        ),
    ),
    Ops.MULACC: (_sources(3), _PLAIN, _NUMBER, _ONE_DTYPE),
    Ops.REDUCE: (
        _some(2, "a value and ranges"),
        _REDUCES,
        _REDUCES_DTYPE,
        _FIRST_DTYPE,
        _OVER_RANGES,
    ),
    Ops.SCAN: (_sources(2, 3), _REDUCES, _REDUCES_DTYPE, _FIRST_DTYPE, _OVER_RANGES),
    Ops.STACK: (
        _PLAIN,
        Law("it has a source for each lane", lambda n: len(n.src) == n.dtype.count > 1),
        Law(
            "its sources are scalars of its dtype",
            lambda n: all(s.dtype is n.dtype.base for s in n.src),
        ),
    ),
    Ops.BROADCAST: (
        _sources(1),
        _PLAIN,
        Law("it is a vector of its source's dtype", lambda n: n.src[0].dtype is n.dtype.base),
    ),
    Ops.EXTRACT: (
        _sources(1),
        Law("its source is a vector of its dtype", lambda n: n.src[0].dtype.base is n.dtype),
        Law(
            "its arg is a lane of its source",
            lambda n: _is_count(n.arg) and n.arg < n.src[0].dtype.count,
        ),
    ),
    Ops.HREDUCE: (
        _sources(1),
        _REDUCES,
        _REDUCES_DTYPE,
        Law("its source is a vector of its dtype", lambda n: n.src[0].dtype.base is n.dtype),
    ),
    Ops.DOT: (
        _sources(3),
        _arg("a DotUnit", lambda arg: isinstance(arg, DotUnit)),
        Law(
            "its first two sources are int32 words of as many lanes as it has",
            lambda n: all(s.dtype is dtypes.int32.vec(n.dtype.count) for s in n.src[:2]),
        ),
        Law(
            "its sum and its value have the dtype of its unit's sums",
            lambda n: n.src[2].dtype is n.dtype and n.dtype.scalar is n.arg.dtypes[2],
        ),
    ),
    Ops.MATRIX: (
        _sources(3),
        _arg("a MatrixUnit", lambda arg: isinstance(arg, MatrixUnit)),
        Law(
            "its sources are what a thread holds of a, b and c, by its unit's layouts",
            lambda n: all(s.dtype is n.arg.held(o) for s, o in zip(n.src, _OPERANDS, strict=True)),
        ),
        Law("it gives what a thread holds of c", lambda n: n.dtype is n.arg.held("c")),
    ),
    Ops.LOAD: (
        _sources(2, 4),
        _PLAIN,
        *_ACCESS,
        Law(
            "its alternative has its own dtype",
            lambda n: len(n.src) == 2 or n.src[3].dtype is n.dtype,
        ),
    ),
    Ops.STORE: (_sources(3, 4), _PLAIN, _VOID, *_ACCESS),
    Ops.ATOMIC: (
        _sources(3, 4),
        _VOID,
        *_ACCESS,
        _arg(
            "ADD, MAX, MIN, AND, OR or XOR",
            lambda arg: isinstance(arg, Ops) and arg in GroupOp.ATOMIC,
        ),
        Law("it changes one element", lambda n: n.src[2].dtype.count == 1),
        Law(
            "AND, OR and XOR combine integers or bool",
            lambda n: n.arg in _ANY_ATOMIC or not n.src[2].dtype.is_float,
        ),
        _IN_MEMORY,
    ),
    Ops.PREFETCH: (
        _sources(2, 3),
        _PLAIN,
        _VOID,
        _MEMORY,
        _PLACE,
        Law(
            "it names one element, and its gate is one bool",
            lambda n: n.src[1].dtype.count == 1 and all(s.dtype is dtypes.bool for s in n.src[2:]),
        ),
        _IN_MEMORY,
    ),
    Ops.END: (
        _some(1, "an effect and ranges"),
        _PLAIN,
        _VOID,
        Law(
            "its first source is an effect (in a linear program: its one RANGE)",
            lambda n: _is_effect(n.src[0]) or (len(n.src) == 1 and n.src[0].op is Ops.RANGE),
        ),
        _OVER_RANGES,
    ),
    Ops.AFTER: (
        _some(2, "a buffer and effects"),
        _PLAIN,
        _MEMORY,
        _FIRST_DTYPE,
        Law("all its sources but the first are effects", lambda n: all(map(_is_effect, n.src[1:]))),
    ),
    Ops.BARRIER: (_VOID, Law("its sources are effects", lambda n: all(map(_is_effect, n.src)))),
    Ops.IF: (
        _VOID,
        _sources(1),
        Law("its condition is bool", lambda n: n.src[0].dtype is dtypes.bool),
    ),
    Ops.ENDIF: (_VOID, _sources(1), Law("its source is an IF", lambda n: n.src[0].op is Ops.IF)),
    Ops.SINK: (_VOID,),
    # arrays: their shapes are the tensor graph's matter
    Ops.BUFFER: (_sources(0), _VALUE),
    **dict.fromkeys(
        GroupOp.VIEW | {Ops.MATERIALIZE, Ops.COPY}, (_sources(1), _VALUE, _FIRST_DTYPE)
    ),
    Ops.REDUCE_AXIS: (
        _sources(1),
        _FIRST_DTYPE,
        _arg("(op, axes)", lambda arg: _is_pair(arg, Ops, lambda axes: type(axes) is tuple)),
    ),
    Ops.SCAN_AXIS: (
        _sources(1),
        _FIRST_DTYPE,
        _arg("(op, axis)", lambda arg: _is_pair(arg, Ops, lambda axis: type(axis) is int)),
    ),
    Ops.ARANGE: (_sources(0), _VALUE),
    Ops.GATHER: (
        _sources(2),
        _FIRST_DTYPE,
        Law("its indices are integers", lambda n: n.src[1].dtype.is_int),
    ),
    Ops.SCATTER: (
        _sources(3),
        _FIRST_DTYPE,
        Law("its indices are integers", lambda n: n.src[1].dtype.is_int),
        Law("its values have its own dtype", lambda n: n.src[2].dtype is n.dtype),
    ),
    Ops.WRITE: (_sources(2), _ONE_DTYPE),
}
