"""The command line: `opgraft devices | plugins | info | cache | explain | compile`."""

from opgraft.cli.main import main

__all__ = ["main"]
