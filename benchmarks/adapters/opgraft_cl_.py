"""opgraft on OpenCL as an adapter of the workloads' bench.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import opgraft_
from opgraft_ import Fn, to_numpy

__all__ = ["CASES", "setup", "to_numpy"]


def setup(threads: int) -> None:
    """All work goes to the device CL, whose driver has its own setting for threads."""
    os.environ["OPGRAFT_DEVICE"] = "CL"


def waited(build: Callable[..., Fn]) -> Callable[..., Fn]:
    """The same case, each run until the device is done."""

    def case(*arrays: Any) -> Fn:
        from opgraft import Device  # after setup

        run, device = build(*arrays), Device["CL"]

        def to_the_end() -> Any:
            result = run()
            device.synchronize()
            return result

        return to_the_end

    return case


CASES = {name: waited(build) for name, build in opgraft_.CASES.items()}
