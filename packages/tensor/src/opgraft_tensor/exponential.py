"""The exponential function, and half of it, which overflows later."""

from __future__ import annotations

import math
from typing import Final

from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.algebra import choose, less, like, mul, shifted
from opgraft_tensor.graph import elementwise

LOG2_E: Final = 1.4426950408889634
LN_2: Final = 0.6931471805599453


def exponential(a: UOp) -> UOp:
    """e to the power of a, of float32 or float64."""
    return elementwise(Ops.EXP, a)


def half_exponential(a: UOp) -> UOp:
    """Half of e to the power of a, which overflows later; a is not negative."""
    large = less(like(a, 64), a)
    power = exponential(choose(large, shifted(a, -1), a))  # the difference is exact
    return mul(power, choose(large, like(a, math.e / 2), like(a, 0.5)))
