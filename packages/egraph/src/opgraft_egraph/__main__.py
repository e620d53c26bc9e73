"""`python -m opgraft_egraph extract | prove | run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from opgraft.api import errors
from opgraft_egraph import commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 it went well, 1 it failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        "python -m opgraft_egraph", description="Equality saturation from the command line."
    )
    commands.configure(parser)
    try:
        code = commands.run(parser.parse_args(arguments))
        sys.stdout.flush()
    except errors.OpgraftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # the reader has gone, as `... | head` does; Python would complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    raise SystemExit(main())
