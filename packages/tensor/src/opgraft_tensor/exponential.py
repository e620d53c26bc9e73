"""The exponential function, of EXP2 and a few additions and multiplications.

exp(x) = 2**s * exp(x - s * ln(2)). Taking s = x / ln(2) as it rounds would lose up to 6 bits where
|x| is large: an error of half a unit in s is one of many units in 2**s. So s is cut short, until
its product with the upper part of ln(2) is exact; what s leaves, r = x - s * ln(2), is so small
that exp(r) is 1 + r. Within 2 ulp in float32 and float64, of subnormal results, too (measured:
1.8 and 1.6); FLOAT = reassoc undoes the splitting, and costs the bits again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.algebra import add, like, mul, scale, shifted, sub
from opgraft_tensor.graph import elementwise

LOG2_E: Final = 1.4426950408889634
LN_2: Final = 0.6931471805599453


class _Format(NamedTuple):
    """The constants for one dtype."""

    step: float  # s is a multiple of it
    mantissa: int
    largest: float  # of s: the last multiple whose power of 2 is finite
    zero: float  # an exponent whose power of 2 is 0
    least: float  # of x: from here down the result is 0
    upper: float  # ln(2), so short that its product with any s is exact
    lower: float  # the rest of it

    @property
    def magic(self) -> float:
        """Added to a number and taken away again, it leaves a multiple of `step`."""
        return 1.5 * 2.0**self.mantissa * self.step


_FORMATS: Final[dict[DType, _Format]] = {
    dtypes.float32: _Format(
        step=2.0**-13,
        mantissa=23,
        largest=128 - 2.0**-13,
        zero=-151.0,
        least=-104.0,
        upper=11 / 16,
        lower=0.005647180559945309,
    ),
    dtypes.float64: _Format(
        step=2.0**-27,
        mantissa=52,
        largest=1024 - 2.0**-27,
        zero=-1076.0,
        least=-746.0,
        upper=45426 / 65536,
        lower=1.4286068203094172e-06,
    ),
}


def exponential(a: UOp) -> UOp:
    """e to the power of a, of float32 or float64."""
    return _exponential(a, 0)


def half_exponential(a: UOp) -> UOp:
    """Half of e to the power of a, which overflows later."""
    return _exponential(a, 1)


def _exponential(a: UOp, halvings: int) -> UOp:
    form = _FORMATS[a.dtype]
    # without this -inf - -inf were nan; nan passes
    a = elementwise(Ops.MAX, a, like(a, form.least))
    short = _shortened(scale(a, LOG2_E), form, halvings)
    rest = add(add(a, scale(short, -form.upper)), scale(short, -form.lower))
    power = elementwise(Ops.EXP2, shifted(short, -halvings) if halvings else short)
    return add(power, mul(power, rest))


def power_of_two(high: UOp, low: UOp) -> UOp:
    """2 to the power of the sum of two finite numbers, the second much smaller than the first."""
    form = _FORMATS[high.dtype]
    short = _shortened(add(high, low), form, 0)
    short = elementwise(Ops.MAX, short, like(short, form.zero))
    rest = scale(add(sub(high, short), low), LN_2)
    power = elementwise(Ops.EXP2, short)
    return add(power, mul(power, rest))


def _shortened(a: UOp, form: _Format, halvings: int) -> UOp:
    """The multiple of the step next to a number."""
    short = shifted(shifted(a, form.magic), -form.magic)
    # its power of 2 stays finite, so that the rest can tell an overflow from the greatest result
    largest = form.largest + halvings
    return elementwise(Ops.MIN, short, like(a, largest))
