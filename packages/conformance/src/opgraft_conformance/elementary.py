"""EXP, EXP2, LOG2 and SIN: how far results are from the exact ones, in units in the last place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from opgraft.dtype import DType, Scalar
from opgraft.errors import CompileError, DeviceError, LoweringError
from opgraft.ir.ops import Ops
from opgraft_conformance import exact
from opgraft_conformance.comparison import ELEMENTARY_ULPS, SHOWN
from opgraft_conformance.fault import Fault
from opgraft_conformance.operations import (
    SCALAR,
    SCHEDULED,
    Batch,
    Operation,
    Results,
    manner,
    require,
)
from opgraft_conformance.values import distinct, edges, shown, value

OPS: Final = (Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN)


def arguments(op: Ops, dtype: DType) -> list[Scalar]:
    """Edges, points where the function is hard, and some everywhere in its range."""
    random = np.random.default_rng(3)
    found: list[float] = [float(v) for v in edges(dtype)]
    if op is Ops.EXP:
        least, most = (math.log(2) * p for p in _powers(dtype))
        found += np.linspace(least - 2, most + 2, 41).tolist()
        found += [most + d for d in (-1.0, -0.1, -0.01, -1e-5)] + [least + 1, least / 1.01]
        found += [math.log(2) * (k + 0.5) for k in range(-9, 9, 2)]
        found += [s * 2.0**-k for k in range(1, 30, 3) for s in (1, -1)]
        found += random.uniform(least, most, 60).tolist() + random.uniform(-1, 1, 40).tolist()
    elif op is Ops.EXP2:
        most = 1 << (dtype.exponent - 1)
        found += [float(v) for v in range(-most - dtype.mantissa - 2, most + 2, max(1, most // 16))]
        found += [most - 2.0**-k for k in range(1, 12)]  # near overflow
        found += [-most - dtype.mantissa + 2 + d for d in (-1.5, -1, -0.75, -0.5, 0.0, 0.5, 1.25)]
        found += [s * 2.0**-k for k in range(1, 30, 3) for s in (1, -1)]
        found += random.uniform(-most - 4, most, 60).tolist()
        found += random.uniform(-1, 1, 40).tolist()
    elif op is Ops.LOG2:
        unit = 2.0**-dtype.mantissa
        found += [1 + k * unit for k in (1, 2, 3, 17)] + [1 - k * unit / 2 for k in (1, 2, 3, 17)]
        found += [2.0**k for k in range(-20, 16, 3)] + [math.sqrt(2), math.sqrt(0.5), 0.75]
        found += random.uniform(0.4, 2.5, 60).tolist()
        found += (2.0 ** random.uniform(-14, 15, 60)).tolist()
    else:
        found += [k * math.pi / 4 for k in range(-9, 10)]
        found += [k * math.pi for k in (100, 1e3, 12345, 31416)]
        found += [s * 2.0**-k for k in range(1, 30, 3) for s in (1, -1)]
        found += random.uniform(-50, 50, 60).tolist()
        # the argument is reduced exactly, however large: the worst cases of float64 and float32
        found += [6381956970095103.0 * 2.0**797, 16367173.0 * 2.0**72, 8248251512.0, 5e15, 1e22]
        top = min(1020, (1 << (dtype.exponent - 1)) - 1)
        found += [s * 2.0**k * 1.37 for k in range(8, top, max(1, top // 24)) for s in (1, -1)]
    return distinct([dtype.const(v) for v in found], dtype)


def _powers(dtype: DType) -> tuple[int, int]:
    """The powers of two from which on, downwards and upwards, results are 0 and infinite."""
    most = 1 << (dtype.exponent - 1)
    return 1 - most - dtype.mantissa, most


def special(op: Ops, x: float) -> float | None:
    """Values that are exact, as C's functions give them; None: the function has to be computed."""
    if math.isnan(x):
        return math.nan
    if op is Ops.SIN:
        return math.nan if math.isinf(x) else x if x == 0 else None
    if op in (Ops.EXP, Ops.EXP2):
        if math.isinf(x):
            return math.inf if x > 0 else 0.0
        return 1.0 if x == 0 else None
    if x <= 0:
        return math.nan if x < 0 else -math.inf
    return math.inf if math.isinf(x) else 0.0 if x == 1 else None


@cache
def exactly(op: Ops, x: float) -> Fraction:
    """The value of the function, to hundreds of bits."""
    if op in (Ops.EXP, Ops.EXP2):
        x = min(max(x, -2000.0), 2000.0)  # beyond, every dtype has overflown
    return exact.FUNCTIONS[op.name](x)


def unit(wanted: Fraction, dtype: DType) -> Fraction:
    """One unit in the last place of `dtype` at this value."""
    bias = (1 << (dtype.exponent - 1)) - 1
    size = abs(wanted)
    power = size.numerator.bit_length() - size.denominator.bit_length() if size else -bias
    if size and size < Fraction(2) ** power:
        power -= 1
    return Fraction(2) ** (max(power, 1 - bias) - dtype.mantissa)


def error(found: float, wanted: Fraction, dtype: DType) -> float:
    """How far a result is off, in units in the last place.

    Of the exact value in float32 and float64, of the correctly rounded one in the 16-bit floats.
    An infinity is where the next value after the largest would be.
    """
    if math.isnan(found):
        return math.inf
    bias = (1 << (dtype.exponent - 1)) - 1
    end = Fraction(2) ** (bias + 1)
    if dtype.bits == 16:
        rounded = float(dtype.const(wanted))
        wanted = Fraction(rounded) if math.isfinite(rounded) else (end if wanted > 0 else -end)
    held = Fraction(found) if math.isfinite(found) else (end if found > 0 else -end)
    wanted = min(max(wanted, -end), end)
    off = abs(held - wanted) / unit(wanted if abs(wanted) < end else end / 2, dtype)
    return float(min(off, Fraction(2) ** 1000))


@dataclass(frozen=True)
class Miss:
    """A result that is too far off."""

    x: str
    found: str
    wanted: str
    off: str

    def __str__(self) -> str:
        return f"({self.x}) gave {self.found}, not {self.wanted}{self.off}"


def miss(op: Ops, x: float, found: float, dtype: DType) -> Miss | None:
    """What is wrong with one result; None: nothing."""
    exactly_known = special(op, x)
    if exactly_known is not None:
        if math.isnan(exactly_known):
            right = math.isnan(found)
        else:
            right = (found, math.copysign(1, found)) == (
                exactly_known,
                math.copysign(1, exactly_known),
            )
        return None if right else Miss(repr(x), repr(found), repr(exactly_known), "")
    wanted = exactly(op, x)
    off = error(found, wanted, dtype)
    if off <= ELEMENTARY_ULPS[dtype]:
        return None
    how = "" if math.isinf(off) else f": {off:.4g} units in the last place off"
    return Miss(repr(x), repr(found), repr(float(dtype.const(wanted))), how)


def batch_of(op: Ops, dtype: DType) -> Batch:
    """The rows of one function."""
    values = tuple((v,) for v in arguments(op, dtype))
    return Batch((Operation(op, dtype, (dtype,)),), (dtype,), values)


def check(results: Results, op: Ops, dtype: DType) -> None:
    """Raise `Fault` where a function is further off than docs/meaning.md promises."""
    require(results.target, dtype)
    batch = batch_of(op, dtype)
    row = batch.rows[0]
    for form in (SCALAR, SCHEDULED):
        what = str(row) + ("" if form.lanes == 1 else f", {form.name}")
        try:
            words = results.found(batch, row, form)
        except (CompileError, LoweringError, DeviceError) as problem:
            raise Fault(
                f"{what}: the kernel cannot be made or run",
                {"error": problem, "operation": manner(results.target, row)},
            ) from problem
        given = batch.columns()[0]
        flushes = results.target.flushes_subnormals
        misses = []
        for x_word, word in zip(given, words):
            x, got = float(value(x_word, dtype)), float(value(word, dtype))
            found = miss(op, x, got, dtype)
            if found is None or (flushes and _tiny(x, got, op, dtype)):
                continue
            misses.append(Miss(shown(x_word, dtype), shown(word, dtype), found.wanted, found.off))
        if misses:
            raise Fault(
                f"{what}: {len(misses)} of {len(words)} results are too far off",
                {
                    "as": "\n".join(f"{op.name}{m}" for m in misses[:SHOWN]),
                    "allowed": f"{ELEMENTARY_ULPS[dtype]:g} units in the last place",
                    "operation": manner(results.target, row),
                },
                hint="a fast or native function of the device's language; the argument of SIN is "
                "reduced exactly, whatever its size",
            )


def _tiny(x: float, got: float, op: Ops, dtype: DType) -> bool:
    """Whether an operand or the result is subnormal: a device may say that it flushes them."""
    normal = 2.0 ** (2 - (1 << (dtype.exponent - 1)))
    known = special(op, x)
    wanted = known if known is not None else float(exactly(op, x))
    return any(0 < abs(v) < normal for v in (x, got, wanted))
