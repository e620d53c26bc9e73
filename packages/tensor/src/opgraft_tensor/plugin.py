"""The plugin: what opgraft-tensor adds to opgraft, a step of `opgraft calibrate`."""

from __future__ import annotations

from typing import Final

from opgraft.api import Calibration
from opgraft_tensor.calibrate import NAMES, calibrate

API: Final = (1, 0)
HOOKS: Final = ("opgraft_calibrations",)


def opgraft_calibrations() -> list[Calibration]:
    """What the planner reckons with: bytes in memory and in each cache, and launches."""
    what = "bytes by level of cache and launches, in elementwise operations"
    return [Calibration("planner", what, NAMES, calibrate)]
