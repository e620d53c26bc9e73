"""Data types: what a value is, what it can hold, and how a Python number becomes one.

A `DType` is interned: two equal dtypes are one object, so `is` compares them. Constants are
rounded here, once, when they are made (see docs/meaning.md), so that folding equals running.
"""

from __future__ import annotations

import builtins
import math
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from fractions import Fraction

Kind = Literal["void", "bool", "int", "uint", "float", "index"]
Scalar = bool | int | float


@dataclass(frozen=True, eq=False)
class DType:
    """A scalar type, or a vector of `count` lanes of one.

    `bits` is the width of one lane. `exponent` and `mantissa` are the field widths of a binary
    float (IEEE 754 for float16/32/64), 0 otherwise. Make vectors with `vec`, never directly.
    """

    name: str
    kind: Kind
    bits: int
    exponent: int = 0
    mantissa: int = 0
    count: int = 1
    base: DType | None = None

    def vec(self, count: int) -> DType:
        """The vector of `count` lanes of this scalar; `vec(1)` is the scalar itself."""
        if self.base is not None:
            raise TypeError(f"{self} is a vector already; take its .scalar first")
        if count < 1:
            raise ValueError(f"a vector needs at least one lane, not {count}")
        if count == 1:
            return self
        found = _vectors.get((self, count))
        if found is None:
            made = DType(
                f"{self.name}x{count}",
                self.kind,
                self.bits,
                self.exponent,
                self.mantissa,
                count,
                self,
            )
            found = _vectors.setdefault((self, count), made)
        return found

    @property
    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self.base is None else self.base

    @cached_property
    def is_float(self) -> bool:
        return self.kind == "float"

    @cached_property
    def is_int(self) -> bool:
        """Fixed-width integers and `index`; not bool."""
        return self.kind in ("int", "uint", "index")

    @cached_property
    def is_signed(self) -> bool:
        """Whether negative values exist."""
        return self.kind in ("int", "index", "float")

    @cached_property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @cached_property
    def is_index(self) -> bool:
        return self.kind == "index"

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one lane in memory. `index` and `void` have no size."""
        return (self.bits + 7) // 8

    @cached_property
    def min(self) -> int | float:
        """The least value; -inf for floats and for `index`."""
        if self.kind == "int":
            return -(1 << (self.bits - 1))
        return 0 if self.kind in ("uint", "bool") else -math.inf

    @cached_property
    def max(self) -> int | float:
        """The greatest value; inf for floats and for `index`."""
        if self.kind == "int":
            return (1 << (self.bits - 1)) - 1
        if self.kind == "uint":
            return (1 << self.bits) - 1
        return 1 if self.kind == "bool" else math.inf

    def const(self, value: Scalar | Fraction) -> Scalar:
        """`value` as this dtype holds it: integers wrap, floats are rounded once to nearest even.

        A float becomes an integer by truncation; out of range it saturates and nan gives 0.
        """
        kind = self.kind
        if kind == "float":
            return round_float(value, self.exponent, self.mantissa)
        if kind == "bool":
            return bool(value)
        if kind == "void":
            raise TypeError("void has no values")
        if isinstance(value, float):
            return self._saturate(value)
        number = int(value)
        if kind == "index":
            return number
        return wrap(number, self.bits, kind == "int")

    def _saturate(self, value: float) -> int:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            if self.kind == "index":
                raise OverflowError("index cannot hold an infinity")
            return int(self.max if value > 0 else self.min)
        number = int(value)
        return number if self.kind == "index" else min(max(number, int(self.min)), int(self.max))

    def __repr__(self) -> str:
        return f"dtypes.{self.scalar.name}" + (f".vec({self.count})" if self.base else "")

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _restore, (self.scalar.name, self.bits, self.count)


_vectors: Final[dict[tuple[DType, int], DType]] = {}


def wrap(value: int, bits: int, signed: bool) -> int:
    """`value` modulo 2**bits, read as two's complement when `signed`."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


_PACKED: Final = {(8, 23): "<f", (5, 10): "<e"}
"""Formats that Python's struct rounds to, by the widths of their fields."""


def round_float(value: Scalar | Fraction, exponent: int, mantissa: int) -> float:
    """The nearest binary float with these field widths, ties to even; overflow gives an infinity.

    Exact for integers and fractions of any size: there is no rounding through float64 first.
    """
    if isinstance(value, float):
        if mantissa == 52 or value == 0.0 or math.isinf(value):
            return value
        if math.isnan(value):
            return math.nan
        packed = _PACKED.get((exponent, mantissa))
        if packed is not None:
            try:
                return float(struct.unpack(packed, struct.pack(packed, value))[0])
            except OverflowError:
                return math.copysign(math.inf, value)
    elif isinstance(value, int) and -1 <= value <= 1 < exponent:
        return float(value)
    from fractions import Fraction  # late: with decimal behind it, and rarely needed

    exact = Fraction(value)
    if exact == 0:
        return 0.0
    bias = (1 << (exponent - 1)) - 1
    magnitude = abs(exact)
    # floor(log2(magnitude)), from the lengths of numerator and denominator
    power = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** power:
        power -= 1
    unit = max(power, 1 - bias) - mantissa
    scaled = magnitude / Fraction(2) ** unit
    whole = round(scaled)  # Fraction rounds half to even
    result = Fraction(whole) * Fraction(2) ** unit
    sign = -1.0 if exact < 0 else 1.0
    if result >= Fraction(2) ** (bias + 1):
        return sign * math.inf
    return sign * float(result)


class dtypes:
    """The namespace of built-in dtypes."""

    void: Final = DType("void", "void", 0)
    bool: Final = DType("bool", "bool", 1)
    int8: Final = DType("int8", "int", 8)
    int16: Final = DType("int16", "int", 16)
    int32: Final = DType("int32", "int", 32)
    int64: Final = DType("int64", "int", 64)
    uint8: Final = DType("uint8", "uint", 8)
    uint16: Final = DType("uint16", "uint", 16)
    uint32: Final = DType("uint32", "uint", 32)
    uint64: Final = DType("uint64", "uint", 64)
    float16: Final = DType("float16", "float", 16, 5, 10)
    bfloat16: Final = DType("bfloat16", "float", 16, 8, 7)
    float32: Final = DType("float32", "float", 32, 8, 23)
    float64: Final = DType("float64", "float", 64, 11, 52)
    index: Final = DType("index", "index", 0)
    """Unbounded integers for addresses and loop counts; lowered to int32 or int64."""

    signed_ints: Final = (int8, int16, int32, int64)
    unsigned_ints: Final = (uint8, uint16, uint32, uint64)
    ints: Final = signed_ints + unsigned_ints
    floats: Final = (float16, bfloat16, float32, float64)
    all: Final = (bool, *ints, *floats)
    """Every dtype that memory can hold."""

    default_int: Final = int64
    default_float: Final = float32

    @staticmethod
    def narrow(bits: int, signed: builtins.bool) -> DType:
        """An integer of an unusual width, for exhaustive checks only; no device runs it."""
        key = (bits, signed)
        found = _narrow.get(key)
        if found is None:
            made = DType(f"{'int' if signed else 'uint'}{bits}", "int" if signed else "uint", bits)
            found = _narrow.setdefault(key, made)
        return found


_named: Final[dict[str, DType]] = {d.name: d for d in (dtypes.void, dtypes.index, *dtypes.all)}
_narrow: Final[dict[tuple[int, bool], DType]] = {(d.bits, d.kind == "int"): d for d in dtypes.ints}


def _restore(name: str, bits: int, count: int) -> DType:
    scalar = _named.get(name) or dtypes.narrow(bits, name.startswith("int"))
    return scalar.vec(count)


def to_dtype(spec: object) -> DType:
    """The dtype of a name such as `"int8"` or `"float32x4"`; a `DType` is handed back as it is.

    Raises `TypeError` with the known names when there is none.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        name, lanes = spec, ""
        if spec not in _named and "x" in spec:
            name, _, lanes = spec.rpartition("x")
        name = {"half": "float16", "float": "float32", "double": "float64"}.get(name, name)
        if name in _named and (not lanes or lanes.isdigit()):
            return _named[name].vec(int(lanes)) if lanes else _named[name]
        # the checker's narrow integers print as int4, uint4
        digits = name.removeprefix("u").removeprefix("int")
        if name.removeprefix("u").startswith("int") and digits.isdigit() and 1 < int(digits) <= 64:
            narrow = dtypes.narrow(int(digits), not name.startswith("u"))
            return narrow.vec(int(lanes)) if lanes else narrow
    known = ", ".join(_named)
    raise TypeError(f"no dtype is named {spec!r}; known: {known}")


def promote(*operands: DType) -> DType:
    """The dtype that an operation on these computes in, by the Python array API standard.

    Beyond the standard, which leaves them open: bool with a number gives the number's dtype, an
    integer with a float gives the float, uint64 with a signed integer gives float64 (as NumPy),
    float16 with bfloat16 gives float32.
    """
    if not operands:
        raise TypeError("promote needs at least one dtype")
    result = operands[0]
    for other in operands[1:]:
        result = _promote(result, other)
    return result


def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.kind == "void" or b.kind == "void":
        raise TypeError(f"{a} and {b} have no common dtype")
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_index or b.is_index:
        other = b if a.is_index else a
        return other if other.is_float else dtypes.index
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        if a.bits == b.bits:
            return dtypes.float32
        return a if a.bits > b.bits else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return dtypes.float64 if unsigned.bits == 64 else dtypes.narrow(unsigned.bits * 2, True)


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums and products of `dtype` accumulate.

    Small integers and bool widen as in NumPy, float16 and bfloat16 accumulate in float32.
    """
    if dtype.is_bool or (dtype.kind == "int" and dtype.bits < 64):
        return dtypes.int64
    if dtype.kind == "uint" and dtype.bits < 64:
        return dtypes.uint64
    if dtype.is_float and dtype.bits < 32:
        return dtypes.float32
    return dtype
