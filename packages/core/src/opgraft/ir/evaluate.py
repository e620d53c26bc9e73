"""The meaning of every elementwise op on Python numbers: one lane, exact (docs/meaning.md).

Constant folding and the checks of rules call `alu`. It is the definition that the interpreter
and every compiled kernel must agree with.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from opgraft.dtype import DType, Scalar, dtypes, wrap
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp, toposort


def _add(dtype: DType, a: Any, b: Any) -> Scalar:
    if dtype.is_bool:
        return bool(a or b)
    if dtype.is_float:
        return _float_add(dtype, a, b)
    return dtype.const(a + b)


def _float_add(dtype: DType, a: float, b: float) -> Scalar:
    # float64 addition of narrower floats is exact enough: 53 >= 2p + 2 bits for p <= 24
    return dtype.const(a + b)


def _mul(dtype: DType, a: Any, b: Any) -> Scalar:
    if dtype.is_bool:
        return bool(a and b)
    return dtype.const(a * b)


def _fdiv(dtype: DType, a: float, b: float) -> Scalar:
    if b == 0.0:
        if a == 0.0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return dtype.const(a / b)


def _idiv(dtype: DType, a: Any, b: Any) -> Scalar:
    return dtype.const(a // b if b else 0)


def _mod(dtype: DType, a: Any, b: Any) -> Scalar:
    if dtype.is_float:
        return _float_mod(dtype, a, b)
    return dtype.const(a % b if b else 0)


def _float_mod(dtype: DType, a: float, b: float) -> Scalar:
    """The remainder with the sign of the divisor, exact, then rounded once."""
    if a != a or b != b or math.isinf(a) or b == 0.0:
        return math.nan
    if math.isinf(b):
        if a == 0.0:
            return math.copysign(0.0, b)
        return a if (a < 0) == (b < 0) else b
    from fractions import Fraction  # late: with decimal behind it, and rarely needed

    rest = Fraction(a) % Fraction(b)
    return dtype.const(rest) if rest else math.copysign(0.0, b)


def _cdiv(dtype: DType, a: int, b: int) -> Scalar:
    if b == 0:
        return dtype.const(0)
    quotient = abs(a) // abs(b)
    return dtype.const(-quotient if (a < 0) != (b < 0) else quotient)


def _cmod(dtype: DType, a: int, b: int) -> Scalar:
    if b == 0:
        return dtype.const(0)
    rest = abs(a) % abs(b)
    return dtype.const(-rest if a < 0 else rest)


def _max(dtype: DType, a: Scalar, b: Scalar) -> Scalar:
    if a != a or b != b:
        return math.nan
    if dtype.is_float and a == b:
        return a if math.copysign(1.0, a) > 0 else b
    return a if a > b else b


def _min(dtype: DType, a: Scalar, b: Scalar) -> Scalar:
    if a != a or b != b:
        return math.nan
    if dtype.is_float and a == b:
        return a if math.copysign(1.0, a) < 0 else b
    return a if a < b else b


def _bits(operation: Callable[[Any, Any], Any]) -> Callable[[DType, Any, Any], Scalar]:
    return lambda dtype, a, b: dtype.const(operation(a, b))


def _shl(dtype: DType, a: int, b: int) -> Scalar:
    if dtype.is_index:
        return a << b if b >= 0 else 0
    return dtype.const(a << b) if 0 <= b < dtype.bits else dtype.const(0)


def _shr(dtype: DType, a: int, b: int) -> Scalar:
    if b >= 0 and (dtype.is_index or b < dtype.bits):
        return dtype.const(a >> b)
    return dtype.const(-1 if a < 0 else 0)


def _sqrt(dtype: DType, a: float) -> Scalar:
    if a < 0.0:
        return math.nan
    # rounding float64's square root to p <= 24 bits equals rounding once (53 >= 2p + 2)
    return dtype.const(math.sqrt(a))


def _trunc(dtype: DType, a: float) -> Scalar:
    if a != a or math.isinf(a):
        return a
    return math.copysign(float(math.trunc(a)), a)


ROTATIONS: Final = (13, 15, 26, 6, 17, 29, 16, 24)


def _threefry(dtype: DType, counter: int, key: int) -> Scalar:
    """Threefry-2x32 with 20 rounds (Salmon et al., SC 2011, table 2)."""
    mask = 0xFFFFFFFF
    x0, x1 = counter & mask, counter >> 32
    k0, k1 = key & mask, key >> 32
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = (x0 + keys[0]) & mask, (x1 + keys[1]) & mask
    for block in range(5):
        for step in range(4):
            turn = ROTATIONS[(block % 2) * 4 + step]
            x0 = (x0 + x1) & mask
            x1 = ((x1 << turn) | (x1 >> (32 - turn))) & mask
            x1 ^= x0
        x0 = (x0 + keys[(block + 1) % 3]) & mask
        x1 = (x1 + keys[(block + 2) % 3] + block + 1) & mask
    return x0 | (x1 << 32)


def _mulacc(dtype: DType, a: Any, b: Any, c: Any) -> Scalar:
    if not dtype.is_float:
        return dtype.const(a * b + c)
    if any(v != v or math.isinf(v) for v in (a, b, c)):
        if math.isinf(c) and math.isfinite(a) and math.isfinite(b):
            return c  # type: ignore[no-any-return]  # the product must not overflow first
        return dtype.const(a * b + c)
    from fractions import Fraction  # late, as above

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        product = a * b if a == 0.0 or b == 0.0 else math.copysign(0.0, a) * math.copysign(1.0, b)
        return product + c if c == 0.0 else 0.0
    return dtype.const(exact)


_TABLE: Final[dict[Ops, Callable[..., Scalar]]] = {
    Ops.SQRT: _sqrt,
    Ops.TRUNC: _trunc,
    Ops.ADD: _add,
    Ops.MUL: _mul,
    Ops.FDIV: _fdiv,
    Ops.IDIV: _idiv,
    Ops.MOD: _mod,
    Ops.CDIV: _cdiv,
    Ops.CMOD: _cmod,
    Ops.MAX: _max,
    Ops.MIN: _min,
    Ops.AND: _bits(lambda a, b: a & b),
    Ops.OR: _bits(lambda a, b: a | b),
    Ops.XOR: _bits(lambda a, b: a ^ b),
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.CMPLT: lambda dtype, a, b: a < b,
    Ops.CMPNE: lambda dtype, a, b: a != b,
    Ops.CMPEQ: lambda dtype, a, b: a == b,
    Ops.THREEFRY: _threefry,
    Ops.WHERE: lambda dtype, c, a, b: a if c else b,
    Ops.MULACC: _mulacc,
}


def cast(value: Scalar, target: DType) -> Scalar:
    """`value` converted to `target`: wraps, saturates or rounds once (docs/meaning.md)."""
    return target.const(value)


_FORMATS: Final = {("float", 16): "<e", ("float", 32): "<f", ("float", 64): "<d"}


def bitcast(value: Scalar, source: DType, target: DType) -> Scalar:
    """The bits of `value` in `source`, read as `target`; both scalar and of one width."""
    return bits_to_value(value_to_bits(value, source), target)


def value_to_bits(value: Scalar, dtype: DType) -> int:
    """The bits that hold `value`, as an unsigned integer."""
    if dtype is dtypes.bfloat16:
        return struct.unpack("<I", struct.pack("<f", value))[0] >> 16  # type: ignore[no-any-return]
    if dtype.is_float:
        packed = struct.pack(_FORMATS["float", dtype.bits], value)
        return int.from_bytes(packed, "little")
    return wrap(int(value), dtype.bits, False)


def bits_to_value(bits: int, dtype: DType) -> Scalar:
    """The value of `dtype` that these bits hold."""
    if dtype is dtypes.bfloat16:
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    if dtype.is_float:
        packed = bits.to_bytes(dtype.bits // 8, "little")
        return float(struct.unpack(_FORMATS["float", dtype.bits], packed)[0])
    return dtype.const(bits)


def alu(op: Ops, dtype: DType, sources: tuple[DType, ...], values: tuple[Any, ...]) -> Scalar:
    """The value of `op` on one lane. `dtype` is the result's, `sources` the operands', scalar.

    CAST and BITCAST take both. EXP, EXP2, LOG2 and SIN are defined by their expansion
    (ir/elementary.py), which is built of the ops here.
    """
    if op is Ops.CAST:
        return cast(values[0], dtype)
    if op is Ops.BITCAST:
        return bitcast(values[0], sources[0], dtype)
    return _TABLE[op](dtype, *values)


def can_fold(n: UOp) -> bool:
    """Whether `alu` defines this node's op."""
    return n.op in _TABLE or n.op is Ops.CAST or n.op is Ops.BITCAST


def evaluate(root: UOp, values: Mapping[UOp, Scalar]) -> Scalar:
    """The value of a scalar elementwise graph, given the values of its other leaves.

    Raises `KeyError` with the node for a leaf that `values` lacks.
    """
    done: dict[UOp, Any] = {}
    for n in toposort((root,), lambda n: n not in values):
        if n in values:
            done[n] = n.dtype.const(values[n])
        elif n.op is Ops.CONST:
            done[n] = n.arg
        elif n.op in GroupOp.ALU:
            operands = tuple(done[s] for s in n.src)
            done[n] = alu(n.op, n.dtype, tuple(s.dtype for s in n.src), operands)
        else:
            raise KeyError(n)
    return done[root]  # type: ignore[no-any-return]
