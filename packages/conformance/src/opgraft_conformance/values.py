"""The values that operations get wrong: the edges of each dtype, and how columns of them lie in
memory.

A column is a NumPy array of unsigned words, one for each element, as wide as the element: the
bits themselves, so that nothing between the kit and the device can round, flush or lose a sign.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opgraft.dtype import DType, Scalar, dtypes
from opgraft.ir.evaluate import bits_to_value, value_to_bits

Words: TypeAlias = NDArray[Any]
Row: TypeAlias = tuple[Scalar, ...]

_WORDS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def words_of(dtype: DType) -> np.dtype[Any]:
    """The unsigned word of one element in memory."""
    return np.dtype(_WORDS[dtype.itemsize])


def column(values: Iterable[Scalar], dtype: DType) -> Words:
    """The values as they lie in memory."""
    return np.array([value_to_bits(v, dtype) for v in values], words_of(dtype))


def value(word: Any, dtype: DType) -> Scalar:
    """What a word in memory means. Of bool every byte but 0 is true; see `shown`."""
    return bits_to_value(int(word), dtype)


def shown(word: Any, dtype: DType) -> str:
    """A word in memory for a message: its value, and its bits where the value hides something."""
    bits = int(word)
    if dtype.is_bool:
        return ("False", "True")[bits] if bits < 2 else f"the byte {bits}, which is no bool"
    held = bits_to_value(bits, dtype)
    if not dtype.is_float or held != held:
        return str(held)
    return f"{held!r} (0x{bits:0{2 * dtype.itemsize}x})"


# ---- edges


def edges(dtype: DType) -> list[Scalar]:
    """Values of a dtype that operations get wrong, and some that they do not."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_int:
        return _integer_edges(dtype)
    unit = 2.0**-dtype.mantissa
    bias = (1 << (dtype.exponent - 1)) - 1
    largest = float((2 - Fraction(unit)) * Fraction(2) ** bias)
    least = float(Fraction(2) ** (1 - bias - dtype.mantissa))
    normal = least / unit
    plain = [0.0, 1.0, 1.0 + unit, 1.0 - unit / 2, 1.5, 2.5, 1 / 3, 7.0, 1e3, 2.0**31]
    ends = [largest, least, normal, normal - least, math.inf]
    positive = [float(dtype.const(v)) for v in plain + ends]
    return [*positive, *(-v for v in positive), math.nan]


def _integer_edges(dtype: DType) -> list[Scalar]:
    least, greatest = int(dtype.min), int(dtype.max)
    near = [0, 1, 2, 3, 5, 7, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100]
    near += [-1, -2, -3, -7, -dtype.bits]
    ends = [least, least + 1, greatest - 1, greatest, greatest // 2, greatest // 2 + 1]
    return list(dict.fromkeys(v for v in near + ends if least <= v <= greatest))


def ordinary(dtype: DType) -> list[Scalar]:
    """The edges without what is infinite or nan."""
    return [v for v in edges(dtype) if math.isfinite(v)]


def near_limits(source: DType, target: DType) -> list[Scalar]:
    """Values of `source` at and beside what `target` can hold, and halfway between its values."""
    found = edges(source)
    if target.is_int:
        for end in (int(target.min), int(target.max)):
            if source.is_float:
                beside = (end + d for d in (0.0, -1.0, -0.5, 0.5, 1.0))
                found += [source.const(float(v)) for v in beside]
            else:
                found.append(source.const(end))
    if target.is_int and source.is_float:
        found += [source.const(v) for v in (0.5, 0.99, -0.5, -0.99, 2.9, -2.9)]
    if target.is_float:
        nudge = Fraction(1, 1 << 40)
        for power in (-20, -3, 0, 8, 10, 24, 33, 60):
            # halfway between two values of the target, and a little to either side
            half = Fraction(2) ** power * (1 + Fraction(1, 2 << target.mantissa))
            for near in (half, half * (1 + nudge), half * (1 - nudge)):
                made = source.const(float(near) if source.is_float else int(near))
                found += [made, source.const(-made)]
    return found


def distinct(values: Iterable[Scalar], dtype: DType) -> list[Scalar]:
    """The values without those of equal bits, in order."""
    return list({value_to_bits(v, dtype): v for v in values}.values())


# ---- rows of operands


def pairs(dtype: DType) -> list[Row]:
    """All pairs of edges."""
    return list(itertools.product(edges(dtype), repeat=2))


def triples(sources: Sequence[DType], count: int = 400) -> list[Row]:
    """A sample of the triples of edges: always the same ones."""
    every = list(itertools.product(*(edges(d) for d in sources)))
    if len(every) <= count:
        return every
    return random.Random(len(every)).sample(every, count)


def singles(dtype: DType) -> list[Row]:
    """Each edge by itself."""
    return [(v,) for v in edges(dtype)]


def conversions(source: DType, targets: Sequence[DType]) -> list[Row]:
    """What casts from `source` to these targets get wrong."""
    every = itertools.chain.from_iterable(near_limits(source, t) for t in targets)
    return [(v,) for v in distinct(every, source)]


def whole_numbers(dtype: DType, count: int, seed: int) -> Words:
    """Small whole numbers: sums and products of a few of them are exact in any order."""
    pick = random.Random(seed)
    low = 0 if not dtype.is_signed else -4
    if dtype.is_bool:
        return column([pick.random() < 0.5 for _ in range(count)], dtype)
    numbers = [pick.randint(low, 12) for _ in range(count)]
    return column([dtype.const(float(n) if dtype.is_float else n) for n in numbers], dtype)


FLOATS: Final = dtypes.floats
