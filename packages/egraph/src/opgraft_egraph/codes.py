"""The numbers by which Python and the engines name things; the same as in csrc/interface.h."""

from __future__ import annotations

from typing import Final

NONE: Final = 0xFFFFFFFF
KIDS: Final = 4
SLOTS: Final = 32
CAPTURES: Final = 8

UNTYPED, VOID, BOOL, SIGNED, UNSIGNED, INDEX, FLOAT = range(7)
"""Kinds of dtypes."""

(OPAQUE, CONST, LEAF, ADD, MUL, FDIV, IDIV, MOD, CDIV, CMOD, MAX, MIN, AND, OR, XOR, SHL, SHR,
 LESS, UNEQUAL, EQUAL, WHERE, CAST, SQRT, TRUNC, SAME, LANES) = range(26)  # fmt: skip
"""What the analyses know of a head."""

NO_NUMBER, NUMBER_INT, NUMBER_FLOAT, NUMBER_BOOL, ELSEWHERE = range(5)
"""Kinds of constants."""

FROM_CHANGED, FROM_CLASS, FROM_CHILD, FROM_FACTS = range(4)
"""Where a step of a plan takes its nodes from."""

GUARD_DTYPE, GUARD_CONSTANT, GUARD_INT, GUARD_FLOAT, GUARD_BOOL, GUARD_NONZERO = range(6)

RUNNING, SATURATED, STOP_NODES, STOP_ROUNDS, STOP_SECONDS, CALLBACKS, CONFLICT, NO_MEMORY = range(8)

STOPS: Final = {
    SATURATED: "saturated",
    STOP_NODES: "nodes",
    STOP_ROUNDS: "rounds",
    STOP_SECONDS: "seconds",
}
"""The stop reason in a result: "saturated", or the limit that was reached."""

DIFFERENT_CONSTANTS, DIFFERENT_DTYPES, DISJOINT_INTERVALS, DISJOINT_REMAINDERS = range(1, 5)

BY_CONGRUENCE, BY_RULE, BY_CALLER, BY_VALUE = range(4)
AGAINST: Final = 0x100
"""Set in the kind of an edge of the proof forest that leads against the direction of its union."""

MAKE_NODE, MAKE_CONSTANT, MAKE_NUMBER = range(3)

(PUSH, PUSH_LOW, PUSH_HIGH, PUSH_VALUE, PUSH_MODULUS, PUSH_REST, PUSH_CONSTANT, PUSH_NONZERO,
 N_ADD, N_SUB, N_MUL, N_DIV, N_MOD, N_NEG, N_ABS, N_MAX, N_MIN, N_AND, N_OR, N_XOR, N_SHL,
 N_SHR, N_LESS, N_EQUAL, N_NOT, N_GCD) = range(26)  # fmt: skip
"""Code of numbers in tests and right sides."""

LEAST: Final = -(1 << 63)
MOST: Final = (1 << 63) - 1
"""The ends of an interval that is not limited."""

EACH: Final = 0xFF
"""The slot of a guard that every child must pass."""

DEAD, SWAPPED = 1, 2
"""Flags of a node."""
