"""Rows that hang: the process is ended, with a word about which row it was.

A device that waits for something that never comes (a barrier that one thread leaves out, a queue
that is stuck) sits in the driver's code, where Python cannot interrupt it. So the process ends;
under xdist the run goes on in another, and the report names the row.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import pytest

CODE = 86
"""The exit code of a process that was ended so."""
_LATER = 15.0
"""Seconds after which a process is ended even where no Python thread gets its turn."""


class Watchdog:
    """Watches each row of this process for `seconds`."""

    def __init__(self, config: pytest.Config, seconds: float) -> None:
        self.seconds = seconds
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            self._stderr = os.dup(2)  # not what pytest captures

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """From before the first fixture until after the last."""
        timer = threading.Timer(self.seconds, self._end, [item.nodeid])
        timer.daemon = True
        timer.start()
        later = self.seconds + _LATER
        faulthandler.dump_traceback_later(later, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()

    def _end(self, nodeid: str) -> None:
        text = (
            f"\nopgraft_conformance: {nodeid} is not done within {self.seconds:.0f} s, so this "
            "process ends. `-n 1` goes on with the next row.\n"
        )
        os.write(self._stderr, text.encode())
        faulthandler.dump_traceback(self._stderr)
        os._exit(CODE)

    def pytest_unconfigure(self) -> None:
        """Give the descriptor back."""
        os.close(self._stderr)
