"""The operations of the IR: each name, and the groups that passes ask about."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Ops(Enum):
    """Every operation. What each means, value by value, is written in docs/meaning.md."""

    # values without sources
    CONST = auto()  # arg: the value, as the dtype holds it
    VAR = auto()  # arg: (name, least, greatest); a scalar handed to the kernel when it runs
    PARAM = auto()  # arg: (slot, size); a buffer handed to the kernel; dtype: of an element
    LOCAL = auto()  # arg: (name, size, space); a buffer inside the kernel; space: Space
    IOTA = auto()  # dtype: a vector; lane i holds i
    # arg: (name, size); an index that the launch hands to each thread, 0 .. size-1: "group0" ..
    # "group2" and "thread0" .. "thread2"; or "begin", the first iteration of the parallel range
    # that this call of the kernel carries out
    SPECIAL = auto()

    # loops
    RANGE = auto()  # src: (size,); arg: (name, AxisKind); 0 .. size-1

    # one source
    CAST = auto()
    BITCAST = auto()
    SQRT = auto()
    EXP = auto()
    EXP2 = auto()
    LOG2 = auto()
    SIN = auto()
    TRUNC = auto()  # float to float, toward zero

    # two sources
    ADD = auto()
    MUL = auto()
    FDIV = auto()
    IDIV = auto()  # floor
    MOD = auto()  # floor: the sign of the divisor
    CDIV = auto()  # truncating, divisor not 0: rendered code only
    CMOD = auto()  # the sign of the dividend, divisor not 0: rendered code only
    MAX = auto()
    MIN = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()
    SHR = auto()  # arithmetic for signed, logical for unsigned integers
    CMPLT = auto()
    CMPNE = auto()
    CMPEQ = auto()
    THREEFRY = auto()  # (counter, key), both uint64: Threefry-2x32, 20 rounds

    # three sources
    WHERE = auto()  # (condition, if true, if false)
    MULACC = auto()  # (a, b, c): a*b + c with one rounding; no rule makes it of a written a*b + c

    # over loops
    REDUCE = auto()  # src: (value, *ranges); arg: ADD, MUL, MAX, MIN, AND or OR; closes them
    # src: (value, range[, lanes]); arg: as REDUCE; inclusive; leaves the ranges open. With lanes, a
    # range of kind VECTOR, it runs over both, each iteration of the first through all lanes
    SCAN = auto()

    # vectors
    STACK = auto()  # lanes from scalars
    BROADCAST = auto()  # every lane the same scalar
    EXTRACT = auto()  # arg: lane
    HREDUCE = auto()  # src: (vector,); arg: as REDUCE; the lanes combined to a scalar

    # (a, b, c): in each lane the parts of a times those of b, and c; arg: a DotUnit
    DOT = auto()
    # (a, b, c): what this thread holds of three matrices; what it holds of a * b + c. arg: a
    # MatrixUnit; carried out by as many neighbouring threads together as that says
    MATRIX = auto()

    # memory and order
    LOAD = auto()  # (buffer, index) or (buffer, index, gate, alternative)
    STORE = auto()  # (buffer, index, value) or (buffer, index, value, gate)
    # as STORE, but the element becomes itself combined with the value, by arg: ADD, MAX, MIN, AND,
    # OR or XOR, at once for all others to see; in no promised order
    ATOMIC = auto()
    # (buffer, index) or (buffer, index, gate): the element will be wanted soon; gives no value
    PREFETCH = auto()
    END = auto()  # (effect, *ranges): the effect for every value of the ranges
    AFTER = auto()  # (buffer, *effects): the buffer as it is once the effects are done
    # src: effects, in a linear program none; reached by all threads of a group, or by none
    BARRIER = auto()
    IF = auto()  # linear program: (condition,)
    ENDIF = auto()  # linear program: (IF,)
    SINK = auto()  # src: effects; arg: KernelInfo or None

    # arrays: nodes of the tensor graph; each is a function of its index
    BUFFER = auto()  # arg: an identity (hashable), shape in arg.shape; memory that exists
    RESHAPE = auto()  # arg: shape
    PERMUTE = auto()  # arg: axes
    EXPAND = auto()  # arg: shape; from extent 1 only
    PAD = auto()  # arg: ((before, after), ...); zeros (false) around
    SLICE = auto()  # arg: ((begin, count, step), ...)
    WINDOW = auto()  # arg: (axis, size, stride, dilation); a last axis of windows
    UNWINDOW = auto()  # arg: (axis, size, stride, dilation, extent); the adjoint read of WINDOW
    REDUCE_AXIS = auto()  # arg: (op, axes); the axes are gone afterwards
    SCAN_AXIS = auto()  # arg: (op, axis)
    ARANGE = auto()  # arg: shape, axis; the index along the axis, in the node's dtype
    GATHER = auto()  # (table, indices): table[indices[i..], j..]
    SCATTER = auto()  # (table, indices, values): the last of repeated indices wins
    WRITE = auto()  # (old, value); arg: ((begin, count, step), ...): the next version of old
    MATERIALIZE = auto()  # its source, in memory of its own
    COPY = auto()  # arg: a device's name; its source in that device's memory

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    def __lt__(self, other: object) -> bool:
        """Order of declaration, so that sorting is the same in every process."""
        return isinstance(other, Ops) and self.value < other.value

    # identity hashing: Enum's own hashes the name in Python code, on every look-up
    __hash__ = object.__hash__


class AxisKind(Enum):
    """How the iterations of a RANGE are carried out."""

    LOOP = auto()  # one after another
    REDUCE = auto()  # one after another, closed by a REDUCE
    PARALLEL = auto()  # over cores, or the groups of a launch
    THREAD = auto()  # over the threads of a group
    VECTOR = auto()  # lanes of one vector operation; gone after expansion
    UNROLL = auto()  # copies of the body; gone after expansion

    def __repr__(self) -> str:
        return f"AxisKind.{self.name}"

    def __lt__(self, other: object) -> bool:
        return isinstance(other, AxisKind) and self.value < other.value

    __hash__ = object.__hash__


class Space(Enum):
    """Where a LOCAL buffer lives."""

    REGISTER = auto()  # one per thread, size 1 or indexed by constants
    PRIVATE = auto()  # memory of one thread (on the CPU: the stack or a scratch arena)
    GROUP = auto()  # memory shared by the threads of a group

    def __repr__(self) -> str:
        return f"Space.{self.name}"

    __hash__ = object.__hash__


class GroupOp:
    """Sets of operations, each a frozenset."""

    UNARY: Final = frozenset(
        {Ops.CAST, Ops.BITCAST, Ops.SQRT, Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.TRUNC}
    )
    BINARY: Final = frozenset(
        {
            Ops.ADD,
            Ops.MUL,
            Ops.FDIV,
            Ops.IDIV,
            Ops.MOD,
            Ops.CDIV,
            Ops.CMOD,
            Ops.MAX,
            Ops.MIN,
            Ops.AND,
            Ops.OR,
            Ops.XOR,
            Ops.SHL,
            Ops.SHR,
            Ops.CMPLT,
            Ops.CMPNE,
            Ops.CMPEQ,
            Ops.THREEFRY,
        }
    )
    TERNARY: Final = frozenset({Ops.WHERE, Ops.MULACC})
    ALU: Final = UNARY | BINARY | TERNARY
    """Elementwise: each lane of the result depends on the same lane of the sources alone."""
    COMPARISON: Final = frozenset({Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
    COMMUTATIVE: Final = frozenset(
        {
            Ops.ADD,
            Ops.MUL,
            Ops.MAX,
            Ops.MIN,
            Ops.AND,
            Ops.OR,
            Ops.XOR,
            Ops.CMPNE,
            Ops.CMPEQ,
        }
    )
    ASSOCIATIVE: Final = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR})
    """Of integers and bool; of floats only MAX and MIN."""
    REDUCING: Final = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR})
    """What REDUCE, SCAN and HREDUCE take as arg."""
    ATOMIC: Final = frozenset({Ops.ADD, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR})
    """What ATOMIC takes as arg."""
    ELEMENTARY: Final = frozenset({Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN})
    VIEW: Final = frozenset(
        {
            Ops.RESHAPE,
            Ops.PERMUTE,
            Ops.EXPAND,
            Ops.PAD,
            Ops.SLICE,
            Ops.WINDOW,
            Ops.UNWINDOW,
        }
    )
    ARRAY: Final = VIEW | frozenset(
        {
            Ops.BUFFER,
            Ops.REDUCE_AXIS,
            Ops.SCAN_AXIS,
            Ops.ARANGE,
            Ops.GATHER,
            Ops.SCATTER,
            Ops.WRITE,
            Ops.MATERIALIZE,
            Ops.COPY,
        }
    )
    MEMORY: Final = frozenset({Ops.PARAM, Ops.LOCAL, Ops.AFTER})
    """What LOAD and STORE take as their buffer."""
    EFFECT: Final = frozenset({Ops.STORE, Ops.ATOMIC, Ops.PREFETCH, Ops.END, Ops.BARRIER, Ops.SINK})
