"""Whether rewrites are being recorded, and where to; what does the recording is in ir/trace.py."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opgraft.ir.trace import Trace

current: Final[ContextVar[Trace | None]] = ContextVar("opgraft_trace", default=None)


def recording() -> Trace | None:
    """The trace that records now in this thread (or task), if any."""
    return current.get()
