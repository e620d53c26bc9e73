"""Matrix units and dot instructions as data: the args of MATRIX and DOT, and what a `Target` lists.

A dot instruction works lane by lane: it takes two words of narrow numbers apart, multiplies those
in the same place, and adds all products to a sum.

A matrix unit adds the product of two small matrices to a third one, a (m x k) times b (k x n) onto
c (m x n). The elements are spread over the registers of the threads that carry it out together.
Who holds what is a `MatrixLayout`: the number of a thread and the number of a register are each
taken apart into digits, the least first; every digit says along which side of the matrix it moves,
and by how much. So with

    MatrixLayout(lanes=(("k", 4, 2), ("m", 8, 1)), registers=(("k", 2, 1), ("m", 2, 8)))

thread 6 has the digits 2 and 1, register 3 has 1 and 1: the element in row 1*1 + 1*8 and column
2*2 + 1*1. The manuals of such instructions draw the same as figures, or give it as formulas in the
numbers of thread and register; tests/kernel_forms/units.py has some of them beside their layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Literal, TypeAlias

from opgraft.dtype import DType

Operand: TypeAlias = Literal["a", "b", "c"]
Digit: TypeAlias = tuple[str, int, int]
"""A side of the matrix, how many values the digit has, elements moved by each step. The side "" of
step 0: all of these threads hold the same elements."""

SIDES: Final[dict[Operand, tuple[str, str]]] = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}
"""Rows and columns of each operand."""


@dataclass(frozen=True)
class MatrixLayout:
    """Which element of a matrix each register of each thread holds."""

    lanes: tuple[Digit, ...] = ()
    registers: tuple[Digit, ...] = ()

    @property
    def size(self) -> int:
        """Registers of a thread, an element each."""
        return prod(size for _, size, _ in self.registers)

    @property
    def threads(self) -> int:
        return prod(size for _, size, _ in self.lanes)

    @property
    def repeats(self) -> int:
        """Threads that hold the same elements."""
        return prod(size for side, size, _ in self.lanes if not side)

    def at(self, lane: int, register: int) -> dict[str, int]:
        """The place of an element, by the sides of its matrix."""
        place: dict[str, int] = {}
        for number, digits in ((lane, self.lanes), (register, self.registers)):
            for side, size, step in digits:
                number, digit = divmod(number, size)
                if side:
                    place[side] = place.get(side, 0) + digit * step
        return place

    def fault(self, sides: dict[str, int]) -> str:
        """Why this is no layout of a matrix of these sides; "" if it is: every element has one
        place, but for threads that repeat others."""
        digits = [*self.lanes, *self.registers]
        for side, size, step in digits:
            if side and side not in sides:
                return f"it moves along {side!r}, where there are {' and '.join(sides)}"
            if not side and (step or (side, size, step) not in self.lanes):
                return "threads may repeat elements, registers may not"
        for side, extent in sides.items():
            known = 1
            for _, size, step in sorted(
                (d for d in digits if d[0] == side and d[1] > 1), key=lambda d: d[2]
            ):
                if step != known:
                    return f"along {side!r} some elements have several places, or none"
                known *= size
            if known != extent:
                return f"it has {known} places along {side!r}, where {extent} are to be held"
        return ""


@dataclass(frozen=True)
class DotUnit:
    """An instruction that adds products of the narrow numbers in two words to a sum, in each lane.

    >>> from opgraft.dtype import dtypes
    >>> DotUnit("dot4", (dtypes.uint8, dtypes.int8, dtypes.int32)).depth
    4
    """

    name: str
    """What a renderer finds the instruction by."""
    dtypes: tuple[DType, DType, DType]
    """Of the parts of a, of those of b, and of the sums."""

    def __post_init__(self) -> None:
        a, b, _ = self.dtypes
        if a.bits != b.bits or a.bits not in (8, 16):
            raise ValueError(f"dot instruction {self.name}: parts are of 8 bits, or of 16")

    @property
    def depth(self) -> int:
        """Parts of a word, which is an int32; the lowest bits hold the first."""
        return 32 // self.dtypes[0].bits


@dataclass(frozen=True)
class MatrixUnit:
    """An instruction that adds the product of two matrices to a third.

    >>> from opgraft.dtype import dtypes
    >>> unit = MatrixUnit(
    ...     "tiny", (4, 4, 2), (dtypes.float32,) * 3, 4,
    ...     MatrixLayout((("m", 4, 1),), (("k", 2, 1),)),
    ...     MatrixLayout((("n", 4, 1),), (("k", 2, 1),)),
    ...     MatrixLayout((("n", 4, 1),), (("m", 4, 1),)),
    ... )
    >>> unit.registers("c"), unit.c.at(lane=2, register=3)
    (4, {'n': 2, 'm': 3})
    """

    name: str
    """What a renderer finds the instruction by."""
    shape: tuple[int, int, int]
    """m, n, k: rows and columns of the result, and products that are added up for each."""
    dtypes: tuple[DType, DType, DType]
    """Of a, b, and of the sums."""
    threads: int
    """How many carry it out together: neighbours in a group, from a multiple of the number on."""
    a: MatrixLayout
    b: MatrixLayout
    c: MatrixLayout

    def __post_init__(self) -> None:
        sides = dict(zip("mnk", self.shape, strict=True))
        for operand, own in SIDES.items():
            layout = self.layout(operand)
            fault = layout.fault({side: sides[side] for side in own})
            if layout.threads != self.threads:
                fault = f"it is of {layout.threads} threads, not {self.threads}"
            if fault or (operand == "c" and layout.repeats > 1):
                raise ValueError(
                    f"matrix unit {self.name}, layout of {operand}: "
                    f"{fault or 'every sum has one place'}"
                )

    def layout(self, operand: Operand) -> MatrixLayout:
        return self.a if operand == "a" else self.b if operand == "b" else self.c

    def dtype(self, operand: Operand) -> DType:
        """Of one element of an operand."""
        return self.dtypes["abc".index(operand)]

    def registers(self, operand: Operand) -> int:
        """Elements of an operand that each thread holds."""
        return self.layout(operand).size

    def held(self, operand: Operand) -> DType:
        """What a thread holds of an operand: a vector, or a scalar where it is one element."""
        size = self.registers(operand)
        return self.dtype(operand).vec(size) if size > 1 else self.dtype(operand)

    @property
    def products(self) -> int:
        """Multiplications of one instruction, by all threads together."""
        return prod(self.shape)
