"""The devices that tests run on: INTERP and CPU, or those of OPGRAFT_TEST_DEVICES.

The variable holds names with commas between, and takes the place of both.
"""

from __future__ import annotations

import os

DEVICES = (os.environ.get("OPGRAFT_TEST_DEVICES") or "INTERP,CPU").upper().split(",")
COMPILED = next((name for name in DEVICES if name != "INTERP"), "INTERP")
"""One of them that compiles kernels."""
