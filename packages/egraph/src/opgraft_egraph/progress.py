"""A line that says how far a command is: on a terminal only, and gone when it is done."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """A function that changes the line. Elsewhere than on a terminal it does nothing."""
    if not sys.stderr.isatty():
        yield lambda said: None
    elif importlib.util.find_spec("rich") is not None:
        # late: it takes longer than most commands
        from rich.console import Console

        with Console(stderr=True).status(text) as status:
            yield status.update
    else:
        yield lambda said: print(f"\r{said}\033[K", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)
