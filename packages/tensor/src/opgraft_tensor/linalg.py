"""Products of a tensor: matmul, dot, einsum. Each is a product of views and a sum over axes.

float16 and bfloat16 operands are multiplied and summed in float32 and rounded once. Integers
wrap in their common dtype, as NumPy's matmul; of bool a product is and, a sum is or.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opgraft.dtype import dtypes, promote
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import algebra, graph
from opgraft_tensor.base import Base, Operand
from opgraft_tensor.graph import Shape, shape
from opgraft_tensor.reductions import widened

if TYPE_CHECKING:
    from typing import Self


class Products(Base):
    """`@`, `matmul`, `dot`."""

    __slots__ = ()

    def _two(self, other: Operand) -> tuple[UOp, UOp]:
        right = self._as_node(other)
        common = promote(self.dtype, right.dtype)
        return graph.cast(self._uop, common), graph.cast(right, common)

    def matmul(self, other: Operand) -> Self:
        """The matrix product, batched over leading axes; one axis stands for a row or a column."""
        a, b = self._two(other)
        return self._new(matrix_product(a, b))

    def dot(self, other: Operand) -> Self:
        """As `matmul`."""
        return self.matmul(other)

    def __matmul__(self, other: Operand) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Operand) -> Self:
        a, b = self._two(other)
        return self._new(matrix_product(b, a))

    def outer(self, other: Operand) -> Self:
        """All products of an element of this vector and one of the other."""
        a, b = self._two(other)
        if len(shape(a)) != 1 or len(shape(b)) != 1:
            raise ValueError(f"outer is of two vectors, not of shapes {shape(a)} and {shape(b)}")
        return self._new(algebra.mul(graph.reshape(a, (*shape(a), 1)), b))


def matrix_product(a: UOp, b: UOp) -> UOp:
    """The product over the last axis of `a` and the last but one of `b`; one dtype."""
    left, right = shape(a), shape(b)
    if not left or not right:
        raise ValueError(f"matmul of shapes {left} and {right}: a scalar has no rows; use *")
    if left[-1] != right[-2 if len(right) > 1 else 0]:
        raise ValueError(
            f"matmul of shapes {left} and {right}: {left[-1]} columns meet "
            f"{right[-2 if len(right) > 1 else 0]} rows"
        )
    rows = graph.reshape(a, (1, left[-1])) if len(left) == 1 else a
    columns = graph.reshape(b, (right[0], 1)) if len(right) == 1 else b
    m, k = shape(rows)[-2:]
    n = shape(columns)[-1]
    rank = len(shape(columns))
    turned = graph.permute(columns, (*range(rank - 2), rank - 1, rank - 2))
    batch = graph.broadcast_shapes(shape(rows)[:-2], shape(columns)[:-2])
    x = graph.reshape(rows, (*shape(rows)[:-2], m, 1, k))
    y = graph.reshape(turned, (*shape(turned)[:-2], 1, n, k))
    result = contracted(x, y, (len(batch) + 2,))
    kept = [*batch, *([m] if len(left) > 1 else []), *([n] if len(right) > 1 else [])]
    return graph.reshape(result, tuple(kept))


def contracted(a: UOp, b: UOp, axes: Sequence[int]) -> UOp:
    """The sum of a * b over axes, accumulated in float32 where the dtype is narrower."""
    product = algebra.mul(widened(a), widened(b))
    return graph.cast(graph.reduce_axis(product, Ops.ADD, axes), a.dtype)


def einsum_nodes(equation: str, operands: Sequence[UOp]) -> UOp:
    """The sum of products that the equation names, of nodes of one dtype.

    Operands are taken in from the left; an axis is summed as soon as nobody names it any more.
    """
    inputs, output = _parsed(equation, [len(shape(o)) for o in operands])
    prepared = [_diagonal(names, widened(o), equation) for names, o in zip(inputs, operands)]
    extents = _extents(prepared, equation)
    unknown = [name for name in output if name not in extents]
    if unknown:
        raise ValueError(f"einsum {equation!r}: {unknown[0]} is in the output alone")
    names, result = prepared[0]
    for place in range(1, len(prepared) + 1):
        last = place == len(prepared)
        more, operand = ([], None) if last else prepared[place]
        needed = {*output, *(name for other, _ in prepared[place + 1 :] for name in other)}
        everything = list(dict.fromkeys([*names, *more]))
        kept = [name for name in everything if name in needed]
        if last and kept == everything:
            break
        order = [*kept, *[name for name in everything if name not in needed]]
        result = _aligned(names, result, order)
        if operand is not None:
            result = algebra.mul(result, _aligned(more, operand, order))
        size = tuple([extents[name] for name in order])
        axes = tuple(range(len(kept), len(order)))
        result = graph.reduce_axis(graph.broadcast_to(result, size), Ops.ADD, axes)
        names = kept
    size = tuple([extents[name] for name in output])
    return graph.cast(graph.broadcast_to(_aligned(names, result, output), size), operands[0].dtype)


def _extents(prepared: Sequence[tuple[list[str], UOp]], equation: str) -> dict[str, int]:
    """The extent of each name; extents of 1 broadcast, as in NumPy."""
    extents: dict[str, int] = {}
    for names, operand in prepared:
        for name, extent in zip(names, shape(operand)):
            known = extents.get(name, 1)
            if known not in (1, extent) and extent != 1:
                raise ValueError(f"einsum {equation!r}: {name} has extents {known} and {extent}")
            extents[name] = extent if known == 1 else known
    return extents


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The letters of each operand and of the result; "..." as names of their own."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ValueError(f"einsum {equation!r} is of {len(parts)} operands, given {len(ranks)}")
    inputs: list[list[str]] = []
    widest = 0
    for part, rank in zip(parts, ranks):
        letters = part.replace("...", "", 1)
        dots = rank - len(letters) if "..." in part else 0
        if dots < 0 or (dots == 0 and len(letters) != rank) or not _are_letters(letters):
            raise ValueError(f"einsum {equation!r}: {part!r} does not name {rank} axes")
        widest = max(widest, dots)
        before = part.split("...")[0] if "..." in part else part
        names = [f"...{dots - i}" for i in range(dots)]
        inputs.append([*before, *names, *letters[len(before) :]])
    everything = [f"...{widest - i}" for i in range(widest)]
    if arrow:
        before, _, after = right.partition("...")
        dotted = everything if "..." in right else []
        if not _are_letters(before + after) or len(set(before + after)) != len(before + after):
            raise ValueError(f"einsum {equation!r}: the result {right!r} is not a list of axes")
        return inputs, [*before, *dotted, *after]
    single = left.replace("...", "").replace(",", "")
    once = sorted(letter for letter in set(single) if single.count(letter) == 1)
    return inputs, [*everything, *once]


def _are_letters(text: str) -> bool:
    return text == "" or (text.isalpha() and text.isascii())


def _diagonal(letters: list[str], operand: UOp, equation: str) -> tuple[list[str], UOp]:
    """Repeated letters of one operand: its diagonal, the letter left once."""
    while len(set(letters)) != len(letters):
        first = next(i for i, letter in enumerate(letters) if letter in letters[i + 1 :])
        second = letters.index(letters[first], first + 1)
        size = shape(operand)
        if size[first] != size[second]:
            raise ValueError(f"einsum {equation!r}: the diagonal of extents {size}")
        same = algebra.equal(
            graph.arange(size, first, dtypes.int32), graph.arange(size, second, dtypes.int32)
        )
        op = Ops.OR if operand.dtype.is_bool else Ops.ADD
        operand = graph.reduce_axis(algebra.choose(same, operand, 0), op, (second,))
        letters = [letter for i, letter in enumerate(letters) if i != second]
    return letters, operand


def _aligned(letters: list[str], operand: UOp, everything: Sequence[str]) -> UOp:
    """The operand with its axes in the common order, missing ones of extent 1."""
    order = tuple(sorted(range(len(letters)), key=lambda i: everything.index(letters[i])))
    moved = graph.permute(operand, order)
    sizes = dict(zip([letters[i] for i in order], shape(moved)))
    size: Shape = tuple([sizes.get(letter, 1) for letter in everything])
    return graph.reshape(moved, size)
