"""Names of devices for tensors: core's catalogue, asked as late as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opgraft.catalog import Device as catalog

if TYPE_CHECKING:
    from opgraft.runtime.device import Device


def open_device(name: str) -> Device:
    """The opened device of this name. Raises `DeviceError` where there is none."""
    return catalog[name]


def device_name(name: str | None) -> str:
    """The name in its one spelling (`"cpu:0"` is `"CPU"`); None: the default device's.

    A name is not opened here; one that nobody knows raises `DeviceError` with the known ones.
    """
    return catalog.default.name if name is None else catalog.canonical(name)
