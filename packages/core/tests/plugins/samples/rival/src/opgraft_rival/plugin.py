"""The sample's names again, and one of its own."""

from opgraft.api import (
    Command,
    CompilerPair,
    CRenderer,
    DeviceSpec,
    OptimizerSpec,
    Probe,
    Target,
)

API = (1, 0)


def _open(index):
    raise AssertionError("nobody can have meant this one")


def opgraft_devices():
    return [
        DeviceSpec("SAMPLE", _open, lambda: Probe(1), 50),
        DeviceSpec(
            "LONER",
            _open,
            lambda: Probe(0, "there is none on earth"),
            50,
            "a telescope",
            target=lambda: Target("LONER", vector_bytes=0),
        ),
    ]


def opgraft_compiler_pairs(device):
    if device == "CPU":
        return [CompilerPair("SAMPLE", "CPU", CRenderer, None, -10, "the sample's name")]
    if device == "LONER":
        return [CompilerPair("LONERC", "LONER", CRenderer)]
    return []


def opgraft_optimizers():
    return [OptimizerSpec("patient", lambda: None, 50)]


def opgraft_commands():
    return [Command("sample", lambda arguments: 0, "not the sample's")]
