"""Proofs about integers: is a comparison true for all values of its variables?

First by equalities, in an e-graph; then by refutation of the contrary: linear forms, bounds, and
cases where a minimum, a maximum or a disjunction leaves several. A false statement is shown by
values for which it is false.
"""

from __future__ import annotations

from opgraft_egraph.proving.prover import Proof, prove
from opgraft_egraph.proving.statements import parse_statement, read_statements

__all__ = ["Proof", "parse_statement", "prove", "read_statements"]
