"""tinygrad on OpenCL as an adapter of the workloads' bench.py."""

import os

os.environ["DEV"] = "CL"

from tinygrad_ import CASES, setup, to_numpy

__all__ = ["CASES", "setup", "to_numpy"]
