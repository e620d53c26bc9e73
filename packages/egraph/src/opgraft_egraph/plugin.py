"""The plugin: what opgraft-egraph adds to opgraft. Only what a process uses is imported."""

from __future__ import annotations

from typing import Final

from opgraft.api import Command, Optimizer, OptimizerSpec

API: Final = (1, 0)
HOOKS: Final = ("opgraft_optimizers", "opgraft_commands")


def _make() -> Optimizer:
    from opgraft_egraph.optimizer import EGraphOptimizer  # late: listing plugins needs no engine

    return EGraphOptimizer()


def opgraft_optimizers() -> list[OptimizerSpec]:
    """`egraph`: where it is installed the setting OPTIMIZER=auto takes it; EGRAPH=0 does not."""
    return [
        OptimizerSpec(
            "egraph", _make, priority=10, description="equality saturation, never worse than greedy"
        )
    ]


def opgraft_commands() -> list[Command]:
    """`opgraft egraph extract | prove | run`."""
    from opgraft_egraph.commands import COMMAND  # late: an optimizer needs no command line

    return [COMMAND]
