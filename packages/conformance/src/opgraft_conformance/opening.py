"""A device opened in a process of its own, and what is to be known of it.

The process that steers the tests opens no device: it may have workers that do, and a driver that
crashes when it is opened is a message, not the end of the kit.
"""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import dataclass, field, fields
from importlib import metadata
from typing import Any

import opgraft
from opgraft.api import Device, DType, Ops, Target, errors
from opgraft_conformance import apart
from opgraft_conformance.fault import Fault


@dataclass(frozen=True)
class Facts:
    """What the report says of a device."""

    device: str
    pair: str = ""
    """The compiler pair that is used; empty for a device without one."""
    pairs: dict[str, str] = field(default_factory=dict)
    """Every pair, and why it cannot be used; empty: it can."""
    target: dict[str, Any] = field(default_factory=dict)
    executes: bool = True
    fork_safe: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    provider: str = ""
    """The distribution that brings the device."""


class DeviceDoesNotOpen(Exception):
    """With the device's own words, or those of its process."""


def open_apart(name: str) -> Facts:
    """The facts of a device. Raises `DeviceDoesNotOpen`."""
    code = "from opgraft_conformance.opening import tell\nanswer(tell(arguments[0]))"
    try:
        answer = apart.run(code, name)
    except Fault as fault:
        raise DeviceDoesNotOpen(f"{name} does not open: {fault}") from None
    if "error" in answer:
        raise DeviceDoesNotOpen(answer["error"])
    return Facts(**answer)


def tell(name: str) -> dict[str, Any]:
    """The facts as JSON can say them, or the error in words; called in the process apart."""
    try:
        device = opgraft.Device[name]
        target = target_of(device)
    except errors.OpgraftError as error:
        return {"error": str(error)}
    pairs = {}
    for pair in device.pairs.pairs:
        try:
            device.pairs.select(pair.name)
            pairs[pair.name] = ""
        except errors.OpgraftError as error:
            pairs[pair.name] = str(error)
    kind = device.name.partition(":")[0]
    listed = {row.name: row.distribution for row in opgraft.Device.listing()}
    return {
        "device": device.name,
        "pair": chosen_pair(device),
        "pairs": pairs,
        "target": {f.name: _plain(getattr(target, f.name)) for f in fields(target)},
        "executes": device.executes,
        "fork_safe": device.fork_safe,
        "versions": versions(),
        "provider": listed.get(kind, ""),
    }


def chosen_pair(device: Device) -> str:
    """The name of the pair in use; empty for a device without pairs."""
    if not device.pairs.pairs:
        return ""
    choice: str = opgraft.settings.get(f"{device.kind}_CC")
    return device.pairs.select(choice).pair.name


def target_of(device: Device) -> Target:
    """What kernels are lowered for: the renderer's target, which may be less than the device's."""
    if not device.pairs.pairs:
        return device.target
    choice: str = opgraft.settings.get(f"{device.kind}_CC")
    return device.pairs.select(choice).renderer.target


def versions() -> dict[str, str]:
    """Of all that takes part."""
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "opgraft-core": opgraft.__version__,
    }
    for name in ("opgraft-conformance", "opgraft-tensor", "numpy", "pytest"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a distribution"
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, (frozenset, set)):
        return sorted((_plain(v) for v in value), key=str)
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, (Ops, DType)):
        return value.name
    if isinstance(value, (int, float, str, bool)) or value is None:
        return value
    return getattr(value, "name", None) or repr(value)


if __name__ == "__main__":
    json.dump(tell(sys.argv[1]), sys.stdout)
