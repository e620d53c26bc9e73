"""What callers may pass: errors that say what was asked for, and what was found instead."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, TypeVar

from opgraft.api import PatternMatcher, UOp, errors
from opgraft_egraph.exact.effort import Effort

Function = TypeVar("Function", bound=Callable[..., Any])


def _found(given: object) -> str:
    return f"{reprlib.repr(given)} of type {type(given).__name__}"


def a_node(given: Any, what: str) -> UOp:
    """A node of the IR, else a TypeError."""
    if not isinstance(given, UOp):
        raise TypeError(f"{what} is a UOp, not {_found(given)}")
    return given


def some_rules(given: Any, what: str = "rules") -> PatternMatcher:
    """A `PatternMatcher`, such as an `EqualitySet` is, else a TypeError."""
    if not isinstance(given, PatternMatcher):
        raise TypeError(f"{what}: an EqualitySet or a PatternMatcher, not {_found(given)}")
    return given


def a_function(given: Function, what: str) -> Function:
    """Something that can be called, else a TypeError."""
    if not callable(given):
        raise TypeError(f"{what} is a function, not {_found(given)}")
    return given


def a_count(given: Any, what: str) -> int:
    """A whole number from 0 on, else a TypeError or a ValueError."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{what} is a whole number, not {_found(given)}")
    if given < 0:
        raise ValueError(f"{what} is {given}: at least 0 is asked for")
    return given


def an_amount(given: Any, what: str) -> float:
    """A number from 0 on, perhaps without end, else a TypeError or a ValueError."""
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise TypeError(f"{what} is a number, not {_found(given)}")
    if not given >= 0:
        raise ValueError(f"{what} is {given}: a number that is at least 0 is asked for")
    return given


def a_price(given: Any, what: object) -> float:
    """What something costs: a number from 0 on, else a TypeError or an OpgraftError."""
    if isinstance(given, str) or not hasattr(given, "__float__"):
        raise TypeError(f"a cost is a number, not {_found(given)}, as {what!r} is said to have")
    price = float(given)
    if not price >= 0:
        raise errors.OpgraftError(f"a node costs {price}: a cost is at least 0")
    return price


def an_effort(given: Any) -> Effort:
    """An `Effort` whose limits are limits, else a TypeError or a ValueError."""
    if not isinstance(given, Effort):
        raise TypeError(f"effort is an Effort, not {_found(given)}")
    an_amount(given.steps, "the steps of an Effort")
    an_amount(given.seconds, "the seconds of an Effort")
    return given
