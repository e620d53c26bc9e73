"""A device that seems to be there, ranks first, and does not open."""

from opgraft.api import DeviceSpec, Probe

API = (1, 0)


def _open(index):
    raise ValueError("error 999")


def _probe():
    raise RuntimeError("no bus")


def opgraft_devices():
    return [
        DeviceSpec("MIRAGE", _open, lambda: Probe(1), 100, "water"),
        DeviceSpec("UNPROBED", _open, _probe, 99),
    ]
