"""The conformance kit: what a backend author runs against their device.

`python -m opgraft_conformance MINE`, or, through pytest,
`pytest -p opgraft_conformance.plugin --pyargs opgraft_conformance.suite --opgraft-device=MINE`.
A suite of one's own may use the same plugin: its fixtures, markers and these names.
"""

from __future__ import annotations

from opgraft_conformance.fault import Fault
from opgraft_conformance.rows import Level, NotClaimed, not_claimed

__all__ = ["Fault", "Level", "NotClaimed", "not_claimed"]
