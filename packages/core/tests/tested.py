"""What tests run on, and how much they do; both by the environment.

OPGRAFT_TEST_DEVICES holds names of devices with commas between, in place of INTERP and CPU.
OPGRAFT_CHECK is `quick` (as README's command runs the tests), `full` (as CI and nox do) or `long`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

DEVICES = (os.environ.get("OPGRAFT_TEST_DEVICES") or "INTERP,CPU").upper().split(",")
COMPILED = next((name for name in DEVICES if name != "INTERP"), "INTERP")
"""One of them that compiles kernels."""

EFFORTS = ("quick", "full", "long")
EFFORT = os.environ.get("OPGRAFT_CHECK") or "quick"
if EFFORT not in EFFORTS:
    raise ValueError(f"OPGRAFT_CHECK={EFFORT!r} is none of {', '.join(EFFORTS)}")


def at(quick: T, full: T, long: T | None = None) -> T:
    """What this run's effort chooses; `long` is `full` where it is not given."""
    if EFFORT == "quick":
        return quick
    return full if EFFORT == "full" or long is None else long


def sampled(values: Iterable[T], every: int) -> list[T]:
    """All of them; in a quick run the first of each `every`."""
    return list(values)[:: at(every, 1)]
