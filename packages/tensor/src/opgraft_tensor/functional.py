"""Functions of several tensors: gradients, einsum, joins, selection."""

from __future__ import annotations

from collections.abc import Sequence

from opgraft.dtype import promote
from opgraft_tensor import graph
from opgraft_tensor.base import Operand
from opgraft_tensor.linalg import einsum_nodes
from opgraft_tensor.tensor import Tensor, gradients_of


def grad(
    outputs: Tensor | Sequence[Tensor],
    wrt: Tensor | Sequence[Tensor],
    upstream: Tensor | Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """The gradients of the sum of outputs (of outputs times upstream) by each of `wrt`.

    They are tensors like any other, and can be differentiated again. Where nothing depends on a
    tensor its gradient is zeros.
    """
    results = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    sources = [wrt] if isinstance(wrt, Tensor) else list(wrt)
    given = [upstream] if isinstance(upstream, Tensor) else upstream
    for tensor in (*results, *sources):
        if not tensor.dtype.is_float:
            raise TypeError(f"only floats have gradients, not {tensor.dtype}")
    pairs = []
    for i, result in enumerate(results):
        ones = graph.full(result.shape, result.dtype, 1)
        pairs.append((result.uop, ones if given is None else result._upstream(given[i])))
    return gradients_of(pairs, sources)


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sum of products that the equation names, by NumPy's rules.

    >>> einsum("ij,kj->ik", Tensor([[1, 2]]), Tensor([[3, 4]])).tolist()
    [[11]]
    """
    if not operands:
        raise ValueError("einsum needs an operand")
    first = operands[0]
    from_all = [o.uop if o is first else first._as_node(o) for o in operands]
    common = promote(*[n.dtype for n in from_all])
    return first._new(einsum_nodes(equation, [graph.cast(n, common) for n in from_all]))


def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors joined along an axis that they have already."""
    first, *rest = tensors
    return first.cat(*rest, axis=axis)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    first, *rest = tensors
    return first.stack(*rest, axis=axis)


def where(condition: Tensor, yes: Operand, no: Operand) -> Tensor:
    """`yes` where the condition holds, else `no`; a branch not taken gets a gradient of zero."""
    return condition.where(yes, no)
