"""What the entry point names: the hooks. They describe; the factories do the work later."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from opgraft.api import (
    Calibration,
    Command,
    CompilerPair,
    CRenderer,
    Device,
    DeviceSpec,
    EqualitySet,
    Optimizer,
    OptimizerSpec,
    Probe,
    UPat,
    declare,
)

API = (1, 0)

VOLUME = declare("SAMPLE_VOLUME", int, 3, "How loudly `opgraft sample` speaks.")


def _open(index: int) -> Device:
    from opgraft_sample.device import SampleDevice  # late: listing needs no device

    return SampleDevice(index)


def _optimizer() -> Optimizer:
    from opgraft_sample.optimizer import Patient

    return Patient()


def _speak(arguments: argparse.Namespace) -> int:
    print("sample" + "!" * VOLUME.value, *arguments.words)
    return 0


def opgraft_devices() -> Iterable[DeviceSpec]:
    return [
        DeviceSpec(
            "SAMPLE",
            open=_open,
            probe=lambda: Probe(1),
            priority=-5,
            install="nothing: it is always there",
            description="keeps its memory in Python and interprets one kind of kernel",
        )
    ]


def opgraft_compiler_pairs(device: str) -> Iterable[CompilerPair]:
    if device == "SAMPLE":
        return [CompilerPair("SAMPLEC", "SAMPLE", CRenderer, None, 10, "C source as text")]
    if device == "CPU":
        return [CompilerPair("SAMPLE", "CPU", CRenderer, None, -10, "a pair for the CPU")]
    return []


def opgraft_optimizers() -> Iterable[OptimizerSpec]:
    return [OptimizerSpec("patient", _optimizer, -1, "greedy, after a moment's thought")]


def opgraft_equalities() -> Mapping[str, EqualitySet]:
    x = UPat.var("x")
    # x ^ x ^ 12345 -> 12345: true, and so odd that no built-in rule has it in one step
    return {"index": EqualitySet([((x ^ 271828) ^ 271828, lambda x: x, "sample_xor_twice")])}


def opgraft_calibrations() -> Iterable[Calibration]:
    height = "sample.height"
    return [Calibration("waves", "waves, in metres", (height,), lambda device: {height: 1.5})]


def opgraft_commands() -> Iterable[Command]:
    return [
        Command(
            "sample",
            _speak,
            "speak",
            lambda parser: parser.add_argument("words", nargs="*") and None,
            'Say "sample" as loudly as the setting SAMPLE_VOLUME asks.',
        )
    ]
