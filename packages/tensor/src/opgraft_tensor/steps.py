"""A plan as data: arrays by number, and what to do with them, in order.

A plan holds no memory and no array of the user: it names inputs by number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from opgraft.dtype import DType, Scalar
from opgraft.ir.uop import UOp
from opgraft_tensor.graph import Shape
from opgraft_tensor.walk import Decision

if TYPE_CHECKING:
    from opgraft.runtime.program import Executable


class Array(NamedTuple):
    """Memory of a plan: an input's (`slot`), an output's (neither), or a temporary's (`offset`)."""

    shape: Shape
    dtype: DType
    slot: int | None = None
    offset: int | None = None

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass
class Launch:
    """A kernel and the arrays of its parameters, by slot."""

    sink: UOp
    arrays: tuple[int, ...]
    executable: Executable | None = None


class Fill(NamedTuple):
    """One value everywhere in an array."""

    array: int
    value: Scalar


class Duplicate(NamedTuple):
    """One array's bytes into another."""

    source: int
    target: int


@dataclass
class Plan:
    """What to do, in order, for the values of some outputs."""

    arrays: list[Array]
    steps: list[Launch | Fill | Duplicate]
    results: list[tuple[int, Shape]]
    """The array of each output, and the output's own shape."""
    arena: int
    """Bytes of the temporaries."""
    touched: int = 0
    """Bytes that the kernels touch: every kernel's distinct arrays, each once."""
    decisions: list[Decision] = field(default_factory=list)
    merges: list[str] = field(default_factory=list)
    versions: list[tuple[str, str]] = field(default_factory=list)
    """Each stored WRITE, and whether it is in place."""
    changes: list[str] = field(default_factory=list)
    """What the tensor stage did to the graph, and at what cost; empty where it did not look."""

    @property
    def kernels(self) -> list[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]
