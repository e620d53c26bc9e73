"""`UOp`: the one node type of the IR, immutable and interned.

Two nodes are the same object exactly when op, dtype, sources, argument and tag are the same, so
`is` compares graphs. How they are found is in ir/intern.py, the walks over graphs are in
ir/graph.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from opgraft.dtype import DType, Scalar, dtypes, to_dtype
from opgraft.ir.graph import key_of, order_of, ranges_of, remember, toposort
from opgraft.ir.intern import (
    Head,
    Node,
    _plain,
    constant_head,
    exact_key,
    head_of,
    interner,
    live_nodes,
)
from opgraft.ir.ops import AxisKind, Ops

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "Head",
    "Operand",
    "UOp",
    "exact_key",
    "head_of",
    "live_nodes",
    "make",
    "node",
    "substitute",
    "toposort",
]

Operand: TypeAlias = "UOp | Scalar"


class _Interning(type):
    """Makes `UOp(...)` a look-up: no `__init__`, no second object."""

    def __call__(
        cls,
        op: Ops,
        dtype: DType = dtypes.void,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> UOp:
        if arg is None and tag is None:
            head = _plain_head((op, dtype))
            if head is not None:
                ref = head.get(src)
                if ref is not None:
                    found: UOp | None = ref()
                    if found is not None:
                        return found
                return make(head, src)
        elif op is Ops.CONST:
            if tag is None:
                return node(constant_head(dtype, arg), src)
            arg = constant_head(dtype, arg).arg
        return node(head_of(op, dtype, arg, tag), src)


def _binary(op: Ops, says: str | None = None) -> Callable[[UOp, Operand], UOp]:
    """The operator that makes `op` nodes; found ones are looked up without a further call."""
    heads: dict[DType, Head] = {}  # by the dtype of the operands: heads without arg stay for good

    def build(self: UOp, other: Operand) -> UOp:
        if other.__class__ is not UOp:
            other = _number(self, other)  # type: ignore[arg-type]
        src = (self, other)
        try:
            head = heads[self.dtype]
        except KeyError:
            head = heads[self.dtype] = self.head.family[op]
        ref = head.get(src)
        if ref is not None:
            found: UOp | None = ref()
            if found is not None:
                return found
        return make(head, src)

    build.__doc__ = says
    return build


def _number(like: UOp, value: Scalar) -> UOp:
    """The constant of the dtype of `like`; a known int is found without a further call."""
    if value.__class__ is int:
        head = like.head.family.whole.get(value)
        if head is not None:
            ref = head.get(())
            if ref is not None:
                found: UOp | None = ref()
                if found is not None:
                    return found
    return UOp.const(like.dtype, value)


def _reflected(op: Ops) -> Callable[[UOp, Operand], UOp]:
    """The operator for `number op node`."""

    def build(right: UOp, left: Operand) -> UOp:
        first = left if isinstance(left, UOp) else UOp.const(right.dtype, left)
        return node(first.head.family[op], (first, right))

    return build


def _unary(op: Ops, says: str) -> Callable[[UOp], UOp]:
    """The method that makes `op` nodes."""

    def build(self: UOp) -> UOp:
        return node(self.head.family[op], (self,))

    build.__doc__ = says
    return build


class UOp(Node, metaclass=_Interning):
    """One operation on the values of other nodes.

    `UOp(op, dtype, src, arg, tag)` finds or makes the node. Attributes: `op`, `dtype` (of the
    value; `void` for effects), `src` (tuple of UOp), `arg` (see `Ops` for each), `tag` (free
    for passes; part of the identity). `==` is identity; comparisons of values are `eq`, `ne`, `<`.

    >>> x = UOp.variable("x", 0, 9)
    >>> (x + 1) is (x + 1)
    True
    >>> (x * 4 + 3).vmax
    39
    """

    __slots__ = ()
    __match_args__ = ("op", "dtype", "src", "arg", "tag")

    src: tuple[UOp, ...]
    _bounds: tuple[Any, ...] | None  # (vmin, vmax); of floats also whether nan is possible

    if TYPE_CHECKING:  # what the metaclass does, said in a way that type checkers follow

        def __init__(
            self,
            op: Ops,
            dtype: DType = dtypes.void,
            src: tuple[UOp, ...] = (),
            arg: Any = None,
            tag: Any = None,
        ) -> None: ...

    # ---- making nodes

    @staticmethod
    def const(dtype: DType | str, value: Scalar | Fraction) -> UOp:
        """The constant as `dtype` holds it; of a vector dtype, every lane the same."""
        made = dtype if dtype.__class__ is DType else to_dtype(dtype)
        if made.base is not None:
            lane = node(constant_head(made.base, value), ())
            return node(head_of(Ops.BROADCAST, made), (lane,))
        return node(constant_head(made, value), ())

    @staticmethod
    def variable(name: str, least: Scalar, greatest: Scalar, dtype: DType = dtypes.index) -> UOp:
        """A named value within [least, greatest], known when the kernel runs."""
        lo, hi = dtype.const(least), dtype.const(greatest)
        if not lo <= hi:
            raise ValueError(f"variable {name!r}: least {least} is above greatest {greatest}")
        return UOp(Ops.VAR, dtype, (), (name, lo, hi))

    @staticmethod
    def range(size: int | UOp, name: int | str, kind: AxisKind = AxisKind.LOOP) -> UOp:
        """A loop index 0 .. size-1; ranges of one name and kind and size are one loop."""
        bound = size if isinstance(size, UOp) else UOp.const(dtypes.index, size)
        return UOp(Ops.RANGE, dtypes.index, (bound,), (name, kind))

    @staticmethod
    def sink(*effects: UOp, arg: Any = None) -> UOp:
        """The end of a program: it holds these effects."""
        return UOp(Ops.SINK, dtypes.void, effects, arg)

    def const_like(self, value: Scalar | Fraction) -> UOp:
        """A constant of this node's dtype."""
        return UOp.const(self.dtype, value)

    def replace(self, **changes: Any) -> UOp:
        """The node with some of op, dtype, src, arg, tag changed."""
        unknown = changes.keys() - {"op", "dtype", "src", "arg", "tag"}
        if unknown:
            raise TypeError(f"replace takes op, dtype, src, arg and tag, not {sorted(unknown)}")
        get = changes.get
        return UOp(
            get("op", self.op),
            get("dtype", self.dtype),
            get("src", self.src),
            get("arg", self.arg),
            get("tag", self.tag),
        )

    def with_src(self, src: tuple[UOp, ...]) -> UOp:
        """The same operation on other sources (the fast form of `replace(src=...)`)."""
        return node(self.head, src)

    def rtag(self, tag: Any = True) -> UOp:
        return self.replace(tag=tag)

    # ---- operators

    def _operand(self, value: Operand) -> UOp:
        return value if isinstance(value, UOp) else UOp.const(self.dtype, value)

    def alu(self, op: Ops, *others: Operand) -> UOp:
        """`op` on this node and others; numbers become constants of this node's dtype.

        Comparisons give bool (of as many lanes). Dtypes are the caller's matter: see ir/spec.py.
        """
        operands = (self, *map(self._operand, others))
        return node(operands[-1].head.family[op], operands)

    __add__ = _binary(Ops.ADD)
    __radd__ = _reflected(Ops.ADD)
    __mul__ = _binary(Ops.MUL)
    __rmul__ = _reflected(Ops.MUL)
    __truediv__ = _binary(Ops.FDIV)
    __rtruediv__ = _reflected(Ops.FDIV)
    __floordiv__ = _binary(Ops.IDIV)
    __rfloordiv__ = _reflected(Ops.IDIV)
    __mod__ = _binary(Ops.MOD)
    __rmod__ = _reflected(Ops.MOD)
    __and__ = _binary(Ops.AND)
    __rand__ = _reflected(Ops.AND)
    __or__ = _binary(Ops.OR)
    __ror__ = _reflected(Ops.OR)
    __xor__ = _binary(Ops.XOR)
    __rxor__ = _reflected(Ops.XOR)
    __lshift__ = _binary(Ops.SHL)
    __rlshift__ = _reflected(Ops.SHL)
    __rshift__ = _binary(Ops.SHR)
    __rrshift__ = _reflected(Ops.SHR)
    __lt__ = _binary(Ops.CMPLT)
    __gt__ = _reflected(Ops.CMPLT)
    eq = _binary(Ops.CMPEQ, "A bool: whether the values are equal; `==` asks for one node.")
    ne = _binary(Ops.CMPNE, "A bool: whether the values differ; `!=` asks for two nodes.")
    maximum = _binary(Ops.MAX, "The larger value; nan if either is nan.")
    minimum = _binary(Ops.MIN, "The smaller value; nan if either is nan.")
    sqrt = _unary(Ops.SQRT, "The square root of a float, correctly rounded.")
    exp = _unary(Ops.EXP, "e to the power of a float; docs/meaning.md says how exactly.")
    exp2 = _unary(Ops.EXP2, "Two to the power of a float; docs/meaning.md says how exactly.")
    log2 = _unary(Ops.LOG2, "The logarithm of a float to base two.")
    sin = _unary(Ops.SIN, "The sine of a float in radians, over the whole range.")
    trunc = _unary(Ops.TRUNC, "A float without its fraction, toward zero.")

    def __neg__(self) -> UOp:
        """`self * -1`, exact for floats too; of a bool, its negation."""
        return self ^ True if self.dtype.is_bool else self * -1

    def __sub__(self, other: Operand) -> UOp:
        """`self + other * -1`; of a number, `self + -number`."""
        return self + (-other if isinstance(other, UOp) else self._negative(other))

    def __rsub__(self, other: Operand) -> UOp:
        return self._operand(other) + -self

    def _negative(self, value: Scalar) -> UOp:
        """The constant `-value`; of the float 0.0 that is -0.0, of a bool its negation."""
        dtype = self.dtype.scalar
        number = dtype.const(value)
        return self.const_like(not number if dtype.is_bool else -number)

    def __invert__(self) -> UOp:
        return self ^ (True if self.dtype.is_bool else -1)

    def __le__(self, other: Operand) -> UOp:
        """`not other < self`; of floats `self < other or self == other`, for the sake of nan."""
        right = self._operand(other)
        if self.dtype.is_float:
            return (self < right) | self.eq(right)
        return ~(right < self)

    def __ge__(self, other: Operand) -> UOp:
        return self._operand(other) <= self

    def where(self, yes: Operand, no: Operand) -> UOp:
        """`yes` where this bool is true, else `no`; one of the two must be a node."""
        if not isinstance(yes, UOp):
            if not isinstance(no, UOp):
                raise TypeError("where needs a node for one of its values, to take the dtype from")
            yes = no.const_like(yes)
        return node(head_of(Ops.WHERE, yes.dtype), (self, yes, yes._operand(no)))

    def cast(self, dtype: DType | str) -> UOp:
        """The value converted (docs/meaning.md); to its own dtype it is the node itself."""
        target = to_dtype(dtype)
        return self if target is self.dtype else node(head_of(Ops.CAST, target), (self,))

    def bitcast(self, dtype: DType | str) -> UOp:
        """The same bits read as another dtype of the same width."""
        target = to_dtype(dtype)
        if target.bits * target.count != self.dtype.bits * self.dtype.count:
            raise TypeError(f"bitcast from {self.dtype} to {target}: the widths differ")
        return self if target is self.dtype else node(head_of(Ops.BITCAST, target), (self,))

    # ---- vectors

    def broadcast(self, count: int) -> UOp:
        """A vector with this scalar in each of `count` lanes."""
        if count == 1:
            return self
        return node(head_of(Ops.BROADCAST, self.dtype.vec(count)), (self,))

    def extract(self, lane: int) -> UOp:
        """The scalar in one lane; of a scalar, itself."""
        if self.dtype.count == 1:
            return self
        if self.op is Ops.BROADCAST:
            return self.src[0]
        if self.op is Ops.STACK:
            return self.src[lane]
        return node(head_of(Ops.EXTRACT, self.dtype.scalar, lane), (self,))

    # ---- memory

    def load(self, index: Operand, gate: UOp | None = None, alternative: Operand = 0) -> UOp:
        """The element of this buffer at `index`; where `gate` is false, `alternative`."""
        place = index if isinstance(index, UOp) else UOp.const(dtypes.index, index)
        element = self.dtype
        dtype = element if element.base is not None else element.vec(place.dtype.count)
        if gate is None:
            return node(head_of(Ops.LOAD, dtype), (self, place))
        other = alternative if isinstance(alternative, UOp) else UOp.const(dtype, alternative)
        return node(head_of(Ops.LOAD, dtype), (self, place, gate, other))

    def store(self, index: Operand, value: UOp, gate: UOp | None = None) -> UOp:
        """The effect of writing `value` at `index` of this buffer, where `gate` holds."""
        place = index if isinstance(index, UOp) else UOp.const(dtypes.index, index)
        src = (self, place, value) if gate is None else (self, place, value, gate)
        return node(head_of(Ops.STORE, dtypes.void), src)

    def end(self, *ranges: UOp) -> UOp:
        """This effect for every value of the ranges; without ranges, itself."""
        return node(head_of(Ops.END, dtypes.void), (self, *ranges)) if ranges else self

    def after(self, *effects: UOp) -> UOp:
        """This buffer once the effects are done; without effects, itself."""
        return node(head_of(Ops.AFTER, self.dtype), (self, *effects)) if effects else self

    def reduce(self, op: Ops, *ranges: UOp) -> UOp:
        """The values over all iterations of the ranges, combined; without ranges, itself."""
        return node(head_of(Ops.REDUCE, self.dtype, op), (self, *ranges)) if ranges else self

    # ---- derived facts

    @property
    def vmin(self) -> Any:
        """A lower bound of the value (of every lane); -inf where nothing is known."""
        found = self._bounds
        return (found if found is not None else _bounds_of(self))[0]

    @property
    def vmax(self) -> Any:
        """An upper bound of the value (of every lane); inf where nothing is known."""
        found = self._bounds
        return (found if found is not None else _bounds_of(self))[1]

    def toposort(self, gate: Callable[[UOp], bool] | None = None) -> list[UOp]:
        """This node and all below it, sources first, each once, in a fixed order.

        Below a node for which `gate` is false nothing is visited. The nodes of a whole program
        are kept with its SINK: every pass asks for them.
        """
        if gate is not None or self.op is not Ops.SINK:
            return toposort((self,), gate)
        memo = self._memo
        below = None if memo is None else memo.get("below")
        if below is None:
            below = remember(self, "below", toposort(self.src))
        return [*below, self]

    @property
    def backward_slice(self) -> list[UOp]:
        """All nodes below this one, sources first."""
        return self.toposort()[:-1]

    def substitute(self, changes: Mapping[UOp, UOp]) -> UOp:
        """The graph with some nodes replaced, each at once, new nodes not searched again."""
        return substitute((self,), changes)[0]

    @property
    def ranges(self) -> tuple[UOp, ...]:
        """The open ranges: those the value depends on and that nothing below closed.

        In the order of a walk from the sources, the same in every process.
        """
        known = self._ranges
        if known is not None and self.op is not Ops.RANGE:
            return known  # type: ignore[no-any-return]
        return ranges_of(self)

    def remember(self, name: str, value: Any) -> Any:
        """Keep a derived fact with the node, under a name that is its owner's alone."""
        return remember(self, name, value)

    @property
    def order(self) -> int:
        """A 64-bit digest of structure, the same in every process: a sort key, not an identity."""
        return self._order or order_of(self)

    @property
    def key(self) -> str:
        """A 160-bit digest of the graph, the same in every process, for caches."""
        return key_of(self)

    @property
    def is_const(self) -> bool:
        """A constant, or a vector with one constant in every lane."""
        return self.kind.constant

    @property
    def const_value(self) -> Any:
        """The number of a constant (scalar or broadcast), None of anything else."""
        if self.kind.constant:
            return self.src[0].arg if self.src else self.arg
        return None

    # ---- object protocol

    def __bool__(self) -> bool:
        raise TypeError(
            "a UOp has no truth value: it stands for a value that is not known yet; "
            "use `is` to compare nodes, `.eq()` to build a comparison"
        )

    def __repr__(self) -> str:
        if _printer[0] is None:
            importlib.import_module("opgraft.ir.infix")
        return _printer[0](self)  # type: ignore[misc]

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        nodes = self.toposort()
        place = {n: i for i, n in enumerate(nodes)}
        rows = [(n.op.name, n.dtype, tuple(place[s] for s in n.src), n.arg, n.tag) for n in nodes]
        return _restore, (rows,)

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UOp:
        return self


node, make = interner(UOp)
_plain_head: Final = _plain.get
# Set by ir/infix.py and ir/bounds.py when they load, at the first use: the node type knows
# neither, and a process that finds its kernels in the cache has no use for them.
_printer: Final[list[Callable[[UOp], str] | None]] = [None]
_bounder: Final[list[Callable[[UOp], tuple[Any, ...]] | None]] = [None]


def _bounds_of(node: UOp) -> tuple[Any, ...]:
    if _bounder[0] is None:
        importlib.import_module("opgraft.ir.bounds")
    return _bounder[0](node)  # type: ignore[misc]


def _restore(rows: list[tuple[str, DType, tuple[int, ...], Any, Any]]) -> UOp:
    made: list[UOp] = []
    for op, dtype, src, arg, tag in rows:
        made.append(UOp(Ops[op], dtype, tuple(made[i] for i in src), arg, tag))
    return made[-1]


def substitute(roots: Iterable[UOp], changes: Mapping[UOp, UOp]) -> list[UOp]:
    """The roots with nodes replaced; all at once, so a replacement is not searched again."""
    wanted = list(roots)
    done: dict[UOp, UOp] = dict(changes)
    for below in toposort(wanted, lambda n: n not in changes):
        if below not in done:
            src = tuple([done[s] for s in below.src])
            done[below] = below if src == below.src else node(below.head, src)
    return [done[r] for r in wanted]
