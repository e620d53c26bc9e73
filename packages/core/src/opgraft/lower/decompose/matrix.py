"""DOT and MATRIX where the target lacks the instruction: products, added up.

Before: any DOT and MATRIX. After: shifts, conversions, products and sums in their places, of all
lanes at once. A MATRIX of several threads stays: no thread has what the others hold.
"""

from __future__ import annotations

from opgraft.ir.expansions import matrix_products, sum_of_products
from opgraft.ir.matcher import PatternMatcher
from opgraft.ir.ops import Ops
from opgraft.ir.pattern import UPat
from opgraft.ir.uop import UOp
from opgraft.target import Target


def products(target: Target) -> PatternMatcher:
    """The rules for the dot instructions and matrix units that the target lacks."""

    def taken_apart(n: UOp) -> UOp | None:
        return None if n.arg in target.dot_units else sum_of_products(n)

    def multiplied(n: UOp) -> UOp | None:
        alone = n.arg.threads == 1 and n.arg not in target.matrix_units
        return matrix_products(n) if alone else None

    return PatternMatcher(
        [(UPat(Ops.DOT, name="n"), taken_apart), (UPat(Ops.MATRIX, name="n"), multiplied)]
    )
