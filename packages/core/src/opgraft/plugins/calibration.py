"""`Calibration`: a step of `opgraft calibrate` that a plugin brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from opgraft.runtime.device import Device


class Calibration(NamedTuple):
    """What a step measures on a device, and how.

    What `measure` gives is kept with the kind of device, beside what other steps measured, and is
    in the `op_prices` of the target of every device of that kind that is opened from then on.
    """

    name: str
    """Lower case, words joined by `-`."""
    help: str
    """One line: what is measured, in which unit."""
    prices: tuple[str, ...]
    """The names of all prices that it may give. No two steps have one in common."""
    measure: Callable[[Device], Mapping[str, float]]
    """Called with an open device that executes kernels; takes seconds, not minutes."""
