"""Makes `egraph_cases` importable from the tests beside it, wherever they are run from."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
