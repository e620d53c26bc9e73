"""Ranks first among optimizers and cannot be made."""

from opgraft.api import OptimizerSpec

API = (1, 0)


def _make():
    raise OSError("engine not found")


def opgraft_optimizers():
    return [OptimizerSpec("hopeless", _make, 100)]
