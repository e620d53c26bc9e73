"""`UPat`: patterns of nodes, written like the nodes they match.

>>> from opgraft.ir.uop import UOp
>>> x, c = UPat.var("x"), UPat.cvar("c")
>>> node = UOp.variable("n", 0, 9) * 4
>>> [sorted(found) for found in (x * c).matches(node)]
[['c', 'x']]

What matches, in the cases where one could think otherwise:

- A scalar dtype in a pattern accepts vectors of it too, because elementwise operations mean the
  same lane by lane. A vector dtype accepts itself alone.
- `UPat.cvar` and `UPat.const` match a CONST and also a BROADCAST of a CONST. Read the number of
  what they captured by `.const_value`, never by `.arg`.
- `UPat.const(v)` and a number among operators match by exact value in the dtype of the node:
  an int matches the same number in any dtype that holds it (0 matches False, 0 and 0.0 but not
  -0.0; negative numbers match the unsigned constant with the same bits, as `UOp.const` makes
  them); a float matches floats alone, bit by bit (-0.0 is not 0.0, nan is nan); True and False
  match bool alone.
- A name used twice means the same node twice.
- Sources of a commutative operation written with an operator or a method match in both orders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

from opgraft.dtype import DType, Scalar
from opgraft.ir.dtype_set import (
    DTypeSet,
    DTypeSpec,
    bools,
    dtype_set,
    floats,
    index,
    integers,
    ints,
    numbers,
    reachable,
    signed,
    unsigned,
    values,
)
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, exact_key

__all__ = [
    "ANY",
    "Captures",
    "DTypeSet",
    "DTypeSpec",
    "UPat",
    "bools",
    "floats",
    "holds",
    "index",
    "integers",
    "ints",
    "numbers",
    "reachable",
    "signed",
    "unsigned",
    "values",
]

Operand: TypeAlias = "UPat | Scalar"
Captures: TypeAlias = dict[str, UOp]
Form = Literal["anything", "ordered", "any order", "repeated"]


class _Anything:
    """Stands for "no demand" where None is a value."""

    def __repr__(self) -> str:
        return "anything"


ANY: Final = _Anything()


def holds(dtype: DType, number: Scalar, arg: Scalar) -> bool:
    """Whether `arg`, as `dtype` holds it, is what a pattern's `number` stands for."""
    kind = dtype.kind
    if type(number) is bool:
        return kind == "bool" and arg is number
    if type(number) is float:
        return kind == "float" and exact_key(dtype.scalar.const(number)) == exact_key(arg)
    if kind == "float":
        # an int is a zero without a sign of its own: it is the positive one
        return arg == number and (number != 0 or math.copysign(1.0, arg) > 0)
    if kind == "uint" and -(1 << (dtype.bits - 1)) <= number < 0:
        return arg == number + (1 << dtype.bits)
    return arg == number


class UPat:
    """A pattern of one node and, through its sources, of what lies below.

    `op`: an operation or several. `dtype`: a dtype, name, `DTypeSet`, or several. `src`: a tuple
    matches the sources in order, a list in any order, one pattern matches every source however
    many there are (at least one if it captures); with `allow_any_len`, a tuple matches the first
    sources and any may follow. `arg`: the exact argument (None: any). `name` captures the node.
    `predicate` is a test of the node, called after everything else about the node itself has
    matched; it must depend on nothing but the node.
    """

    __slots__ = (
        "alternatives",
        "arg",
        "constant",
        "dtypes",
        "form",
        "name",
        "ops",
        "predicate",
        "rest",
        "src",
        "value",
    )

    ops: tuple[Ops, ...] | None
    dtypes: DTypeSet | None
    src: tuple[UPat, ...]
    form: Form
    rest: bool
    arg: Any
    name: str | None
    predicate: Callable[[UOp], bool] | None
    constant: bool  # a CONST or a BROADCAST of one
    value: Any  # of the constant; ANY: any
    alternatives: tuple[UPat, ...]  # if not empty, nothing else is demanded

    def __init__(
        self,
        op: Ops | Iterable[Ops] | None = None,
        dtype: DTypeSpec | None = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
        predicate: Callable[[UOp], bool] | None = None,
    ) -> None:
        if op is None or isinstance(op, Ops):
            self.ops = None if op is None else (op,)
        else:
            self.ops = tuple(sorted(set(op)))
        self.dtypes = dtype_set(dtype)
        if src is None:
            self.form, self.src = "anything", ()
        elif isinstance(src, UPat):
            self.form, self.src = "repeated", (src,)
        else:
            self.form = "any order" if isinstance(src, list) else "ordered"
            self.src = tuple(src)
        for item in self.src:
            if not isinstance(item, UPat):
                raise TypeError(f"the sources of a pattern are UPats, not {item!r}")
        if allow_any_len and self.form not in ("ordered", "anything"):
            raise TypeError("allow_any_len goes with a tuple of sources")
        self.rest = allow_any_len
        self.arg = ANY if arg is None else arg
        if name is not None and not name.isidentifier():
            raise TypeError(f"a captured name is an identifier, not {name!r}")
        if name == "ctx":
            raise TypeError("the name ctx is taken: it is the context of the rewrite")
        self.name = name
        self.predicate = predicate
        self.constant, self.value, self.alternatives = False, ANY, ()

    # ---- making patterns

    @staticmethod
    def var(name: str | None = None, dtype: DTypeSpec | None = None) -> UPat:
        """Any node."""
        return UPat(None, dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DTypeSpec | None = None) -> UPat:
        """Any constant, scalar or broadcast; its number is `.const_value`."""
        made = UPat((Ops.CONST, Ops.BROADCAST), dtype, name=name)
        made.constant = True
        return made

    @staticmethod
    def const(value: Scalar, dtype: DTypeSpec | None = None, name: str | None = None) -> UPat:
        """The constant of exactly this value (see the head of the module), scalar or broadcast."""
        if not isinstance(value, (bool, int, float)):
            raise TypeError(f"the constant of a pattern is a number, not {value!r}")
        made = UPat.cvar(name, dtype)
        made.value = value
        return made

    @staticmethod
    def any(*alternatives: UPat) -> UPat:
        """What one of these matches; they are tried in order.

        A rule may take a name that only some of them capture if its parameter has a default.
        """
        for item in alternatives:
            if not isinstance(item, UPat):
                raise TypeError(f"the alternatives of a pattern are UPats, not {item!r}")
        if not alternatives:
            raise TypeError("UPat.any needs at least one alternative")
        made = UPat()
        made.alternatives = alternatives
        return made

    def _copy(self) -> UPat:
        made = UPat()
        for slot in UPat.__slots__:
            setattr(made, slot, getattr(self, slot))
        return made

    def named(self, name: str) -> UPat:
        """The same pattern that captures its node under `name`."""
        if self.name is not None and self.name != name:
            raise TypeError(f"this pattern has a name already: {self.name}")
        made = self._copy()
        made.name = UPat(name=name).name
        return made

    def having(self, predicate: Callable[[UOp], bool]) -> UPat:
        """The same pattern with one more test of its node, which looks at the node alone."""
        made = self._copy()
        first = self.predicate
        if self.alternatives:
            made.alternatives = tuple(a.having(predicate) for a in self.alternatives)
        elif first is None:
            made.predicate = predicate
        else:
            made.predicate = lambda node: first(node) and predicate(node)
        return made

    # ---- operators, as on UOp

    def alu(self, op: Ops, *others: Operand) -> UPat:
        """The operation on this and others; of a commutative one, in both orders."""
        src = [self, *map(_operand, others)]
        return UPat(op, src=src if op in GroupOp.COMMUTATIVE else tuple(src))

    def __add__(self, other: Operand) -> UPat:
        return self.alu(Ops.ADD, other)

    def __radd__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.ADD, self)

    def __mul__(self, other: Operand) -> UPat:
        return self.alu(Ops.MUL, other)

    def __rmul__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.MUL, self)

    def __neg__(self) -> UPat:
        """`self * -1`: of numbers, not of bool."""
        return self.alu(Ops.MUL, -1)

    def __sub__(self, other: Operand) -> UPat:
        """`self + other * -1`; of a number, `self + -number`."""
        return self.alu(Ops.ADD, -other)

    def __rsub__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.ADD, -self)

    def __truediv__(self, other: Operand) -> UPat:
        return self.alu(Ops.FDIV, other)

    def __rtruediv__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.FDIV, self)

    def __floordiv__(self, other: Operand) -> UPat:
        return self.alu(Ops.IDIV, other)

    def __rfloordiv__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.IDIV, self)

    def __mod__(self, other: Operand) -> UPat:
        return self.alu(Ops.MOD, other)

    def __rmod__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.MOD, self)

    def __and__(self, other: Operand) -> UPat:
        return self.alu(Ops.AND, other)

    def __rand__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.AND, self)

    def __or__(self, other: Operand) -> UPat:
        return self.alu(Ops.OR, other)

    def __ror__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.OR, self)

    def __xor__(self, other: Operand) -> UPat:
        return self.alu(Ops.XOR, other)

    def __rxor__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.XOR, self)

    def __lshift__(self, other: Operand) -> UPat:
        return self.alu(Ops.SHL, other)

    def __rlshift__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.SHL, self)

    def __rshift__(self, other: Operand) -> UPat:
        return self.alu(Ops.SHR, other)

    def __rrshift__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.SHR, self)

    def __invert__(self) -> UPat:
        """XOR with all bits: True of bool, -1 (in unsigned dtypes, their maximum) of integers."""
        return UPat(Ops.XOR, src=[self, UPat.any(UPat.const(True), UPat.const(-1))])

    def __lt__(self, other: Operand) -> UPat:
        return self.alu(Ops.CMPLT, other)

    def __gt__(self, other: Operand) -> UPat:
        return _operand(other).alu(Ops.CMPLT, self)

    def __le__(self, other: Operand) -> UPat:
        """As UOp builds it: `not other < self`, and for floats `self < other | self.eq(other)`."""
        right = _operand(other)
        above = UPat(Ops.CMPLT, src=(right, self), predicate=_compares_exactly)
        below = UPat(Ops.CMPLT, src=(self, right), predicate=_compares_floats)
        whole = UPat(Ops.XOR, src=[above, UPat.const(True)])
        real = UPat(Ops.OR, src=[below, UPat(Ops.CMPEQ, src=[self, right])])
        return UPat.any(whole, real)

    def __ge__(self, other: Operand) -> UPat:
        return _operand(other) <= self

    def eq(self, other: Operand) -> UPat:
        return self.alu(Ops.CMPEQ, other)

    def ne(self, other: Operand) -> UPat:
        return self.alu(Ops.CMPNE, other)

    def maximum(self, other: Operand) -> UPat:
        return self.alu(Ops.MAX, other)

    def minimum(self, other: Operand) -> UPat:
        return self.alu(Ops.MIN, other)

    def where(self, yes: Operand, no: Operand) -> UPat:
        return self.alu(Ops.WHERE, yes, no)

    def cast(self, dtype: DTypeSpec | None = None, name: str | None = None) -> UPat:
        return UPat(Ops.CAST, dtype, (self,), name=name)

    def bitcast(self, dtype: DTypeSpec | None = None, name: str | None = None) -> UPat:
        return UPat(Ops.BITCAST, dtype, (self,), name=name)

    def sqrt(self) -> UPat:
        return self.alu(Ops.SQRT)

    def exp(self) -> UPat:
        return self.alu(Ops.EXP)

    def exp2(self) -> UPat:
        return self.alu(Ops.EXP2)

    def log2(self) -> UPat:
        return self.alu(Ops.LOG2)

    def sin(self) -> UPat:
        return self.alu(Ops.SIN)

    def trunc(self) -> UPat:
        return self.alu(Ops.TRUNC)

    def load(self, index: UPat, *more: UPat, allow_any_len: bool = False) -> UPat:
        """LOAD of this buffer; `more` are gate and alternative."""
        return UPat(Ops.LOAD, src=(self, index, *more), allow_any_len=allow_any_len)

    def store(self, index: UPat, value: UPat, *more: UPat, allow_any_len: bool = False) -> UPat:
        """STORE to this buffer; `more` is the gate."""
        return UPat(Ops.STORE, src=(self, index, value, *more), allow_any_len=allow_any_len)

    # ---- matching, by interpretation

    def matches(self, node: UOp) -> Iterator[Captures]:
        """Every way in which `node` matches, in the order in which rules see them."""
        return _match(((self, node),), {})

    def fits(self, node: UOp) -> bool:
        """Whether the node itself is right, its sources and captures aside."""
        if self.ops is not None and node.op not in self.ops:
            return False
        if self.dtypes is not None and node.dtype not in self.dtypes:
            return False
        if self.constant:
            if not node.is_const:
                return False
            if self.value is not ANY and not holds(node.dtype, self.value, node.const_value):
                return False
        if self.arg is not ANY and exact_key(node.arg) != exact_key(self.arg):
            return False
        return self.predicate is None or bool(self.predicate(node))

    def captures(self) -> dict[str, bool]:
        """The names below, in order; whether each is captured by every match."""
        found: dict[str, bool] = {}
        if self.alternatives:
            each = [a.captures() for a in self.alternatives]
            for names in each:
                for name in names:
                    found[name] = all(other.get(name, False) for other in each)
        for source in self.src:
            for name, always in source.captures().items():
                found[name] = found.get(name, False) or always
        if self.name is not None:
            found[self.name] = True
        return found

    def __repr__(self) -> str:
        if self.alternatives:
            return f"UPat.any({', '.join(map(repr, self.alternatives))})"
        named = "" if self.name is None else f":{self.name}"
        if self.constant:
            return ("const" if self.value is ANY else repr(self.value)) + named
        if self.ops is None and not self.src:
            return f"any{named}" if self.name is None else self.name
        ops = "any" if self.ops is None else "|".join(o.name for o in self.ops)
        inside = ", ".join(map(repr, self.src)) + (", ..." if self.rest else "")
        shown = {"ordered": "({})", "any order": "[{}]", "repeated": "({}, ...)"}.get(self.form, "")
        return ops + shown.format(inside) + named


def _operand(value: Operand) -> UPat:
    return value if isinstance(value, UPat) else UPat.const(value)


def _compares_exactly(node: UOp) -> bool:
    return not node.src[0].dtype.is_float


def _compares_floats(node: UOp) -> bool:
    return node.src[0].dtype.is_float


def _match(todo: tuple[tuple[UPat, UOp], ...], bound: Captures) -> Iterator[Captures]:
    """The ways to match all of `todo` that agree with `bound`."""
    while todo:
        (pattern, node), todo = todo[0], todo[1:]
        if pattern.name is not None:
            known = bound.get(pattern.name)
            if known is None:
                bound = {**bound, pattern.name: node}
            elif known is not node:
                return
        if pattern.alternatives:
            for alternative in pattern.alternatives:
                yield from _match(((alternative, node), *todo), bound)
            return
        if not pattern.fits(node):
            return
        given, wanted = node.src, pattern.src
        if pattern.form == "ordered":
            if len(given) != len(wanted) and not (pattern.rest and len(given) >= len(wanted)):
                return
            todo = (*zip(wanted, given), *todo)
        elif pattern.form == "repeated":
            if not given and wanted[0].captures():
                return
            todo = (*((wanted[0], source) for source in given), *todo)
        elif pattern.form == "any order":
            if len(given) != len(wanted):
                return
            for order in itertools.permutations(given):
                yield from _match((*zip(wanted, order), *todo), bound)
            return
    yield bound
