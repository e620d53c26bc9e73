"""When a result is right: one place for every tolerance of the kit, and the reason of each.

**Exact** is the rule: bit for bit what INTERP gives. docs/meaning.md defines every operation to
the last bit (IEEE 754 for floats, wrapping for integers, saturating conversions), so a difference
of one bit is a difference of meaning: it shows contraction, a second rounding, flushed
subnormals, a reordered sum. The exceptions are these:

- *nan is nan*: its sign and payload are not defined, so any nan equals any other. The sign of a
  zero is defined and compared.
- *EXP, EXP2, LOG2 and SIN* are within 2 units in the last place in float32 and float64 (correct
  rounding is not affordable there); in float16 and bfloat16 they are correctly rounded but for
  1 unit. They are compared with the exact result (exact.py), not with INTERP's.
- *The order inside a REDUCE* is free, so reductions are given small whole numbers, whose sums
  and products are exact in any order: then the comparison is exact again. The sign of a zero that
  MAX or MIN finds in a REDUCE is free: reductions are given no zeros of both signs.
- *Subnormals*, on a device whose target says `flushes_subnormals`: rows with a subnormal among
  operands or results are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft_conformance.values import Words, shown, words_of

ELEMENTARY_ULPS: Final = {
    dtypes.float16: 1.0,
    dtypes.bfloat16: 1.0,
    dtypes.float32: 2.0,
    dtypes.float64: 2.0,
}
"""How far EXP, EXP2, LOG2 and SIN may be from the exact value: docs/meaning.md, "Floats"."""

SHOWN: Final = 3
"""So many differences are written out; the others are counted."""


def _fields(words: Words, dtype: DType) -> tuple[Words, Words]:
    """Signs and magnitudes of floats."""
    kind = words_of(dtype).type
    sign = words >> kind(dtype.bits - 1)
    return sign, words & kind((1 << (dtype.bits - 1)) - 1)


def is_nan(words: Words, dtype: DType) -> Words:
    """Which elements are nan; of integers and bool none."""
    if not dtype.is_float:
        return np.zeros(words.shape, np.bool_)
    _, magnitude = _fields(words, dtype)
    infinity = ((1 << dtype.exponent) - 1) << dtype.mantissa
    return np.asarray(magnitude > infinity)


def is_subnormal(words: Words, dtype: DType) -> Words:
    """Which elements are subnormal floats."""
    if not dtype.is_float:
        return np.zeros(words.shape, np.bool_)
    _, magnitude = _fields(words, dtype)
    return np.asarray((magnitude > 0) & (magnitude < (1 << dtype.mantissa)))


def differ(found: Words, wanted: Words, dtype: DType) -> Words:
    """Which elements are wrong: other bits, two nan apart."""
    same = is_nan(found, dtype) & is_nan(wanted, dtype)
    return np.asarray((found != wanted) & ~same)


@dataclass(frozen=True)
class Wrong:
    """One result that is not what it ought to be."""

    what: str
    """The operation, as a person writes it: "MAX of float32, x4"."""
    given: str
    found: str
    wanted: str
    hint: str = ""

    def __str__(self) -> str:
        tail = f"   [{self.hint}]" if self.hint else ""
        return f"{self.what}({self.given}) gave {self.found}, not {self.wanted}{tail}"


def listed(head: str, wrong: Sequence[Wrong], of: int) -> str:
    """A message about what is wrong; empty where nothing is."""
    if not wrong:
        return ""
    lines = [f"{head}: {len(wrong)} of {of} results are wrong"]
    lines += [f"  {w}" for w in wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        lines.append(f"  ... and {len(wrong) - SHOWN} more")
    return "\n".join(lines)


def hint(op: Ops | None, dtype: DType, sources: Sequence[DType], given: Sequence[Any]) -> str:
    """What usually is the fault behind a wrong result of these operands; empty: no idea."""
    source = sources[0] if sources else dtype
    nan = any(bool(is_nan(np.asarray([g], words_of(s)), s)[0]) for g, s in zip(given, sources))
    for row_op, applies, says in _HINTS:
        if op is row_op and applies(dtype, source, nan):
            return says
    if any(bool(is_subnormal(np.asarray([g], words_of(s)), s)[0]) for g, s in zip(given, sources)):
        return "an operand is subnormal: a device that flushes them says so in its Target"
    return ""


def _float(dtype: DType, source: DType, nan: bool) -> bool:
    return dtype.is_float


_HINTS: Final = (
    (Ops.MAX, lambda d, s, nan: d.is_float and nan, "MAX and MIN are nan if either operand is"),
    (Ops.MIN, lambda d, s, nan: d.is_float and nan, "MAX and MIN are nan if either operand is"),
    (Ops.MAX, _float, "0.0 counts as greater than -0.0, in both orders"),
    (Ops.MIN, _float, "0.0 counts as greater than -0.0, in both orders"),
    (
        Ops.CAST,
        lambda d, s, nan: d.is_int and s.is_float,
        "float to integer truncates, saturates out of range, and nan gives 0",
    ),
    (
        Ops.CAST,
        lambda d, s, nan: d.is_float and d.bits < 32,
        "one rounding from the exact value, never through float32",
    ),
    (Ops.CAST, lambda d, s, nan: d.is_bool, "true is everything but 0, and memory holds 0 or 1"),
    (Ops.SHL, lambda d, s, nan: True, "a count outside 0 .. bits-1 gives 0"),
    (Ops.SHR, lambda d, s, nan: True, "a count outside 0 .. bits-1 gives 0, or -1 of a negative"),
    (Ops.IDIV, lambda d, s, nan: True, "floor, by 0 gives 0, the least number // -1 wraps"),
    (Ops.MOD, lambda d, s, nan: not d.is_float, "the sign of the divisor, and by 0 gives 0"),
    (Ops.MOD, _float, "exact, with the sign of the divisor, also that of a zero"),
    (Ops.CMPNE, lambda d, s, nan: nan, "with nan: CMPLT and CMPEQ are false, CMPNE is true"),
    (Ops.CMPEQ, lambda d, s, nan: nan, "with nan: CMPLT and CMPEQ are false, CMPNE is true"),
    (Ops.CMPLT, lambda d, s, nan: nan, "with nan: CMPLT and CMPEQ are false, CMPNE is true"),
    (Ops.FDIV, _float, "correctly rounded: no reciprocal, no fast division"),
    (Ops.SQRT, _float, "correctly rounded: no fast square root"),
    (Ops.MULACC, _float, "one rounding of the exact a * b + c"),
    (Ops.TRUNC, _float, "toward zero, and the sign of a zero stays"),
)


def difference(
    what: str,
    op: Ops | None,
    dtype: DType,
    sources: Sequence[DType],
    given: Sequence[Any],
    found: Any,
    wanted: Any,
) -> Wrong:
    """A wrong element, in words."""
    return Wrong(
        what,
        ", ".join(shown(g, s) for g, s in zip(given, sources)),
        shown(found, dtype),
        shown(wanted, dtype),
        hint(op, dtype, sources, given),
    )
