"""What was measured of operations, kept in a file by kind of device.

`opgraft calibrate` writes it; a device that is opened reads it into its target (`op_prices`), so
that it is part of every key that a kernel is cached by.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Final, TypeAlias

from opgraft import settings
from opgraft.errors import OpgraftError
from opgraft.forking import ForkLock

Prices: TypeAlias = tuple[tuple[str, float], ...]

_FORMAT: Final = 1
_lock: Final = ForkLock()
_read: Final[dict[str, dict[str, Prices]]] = {}


def file() -> str | None:
    """The file that the setting CALIBRATION names; None: nothing is kept."""
    chosen: str = settings.CALIBRATION
    if chosen.lower() == "off":
        return None
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("APPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Application Support")
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(base, "opgraft", "calibration.json") if os.path.isabs(base) else None


def measured_prices(kind: str) -> Prices:
    """What was measured on a kind of device ("CPU"), sorted by name; nothing: empty."""
    return everything().get(kind, ())


def everything() -> Mapping[str, Prices]:
    """What was measured, by kind of device. The file is read once in a process."""
    path = file()
    if path is None:
        return {}
    found = _read.get(path)
    if found is None:
        with _lock:
            found = _read.setdefault(path, _load(path))
    return found


def record(kind: str, prices: Mapping[str, float] | None) -> str:
    """Keep these prices for a kind of device, None: none; the file that holds them."""
    path = file()
    if path is None:
        raise OpgraftError(
            "measured prices are kept nowhere: CALIBRATION is off",
            remedy="OPGRAFT_CALIBRATION names a file; unset it is in the configuration folder.",
        )
    with _lock:
        kept = dict(_load(path))
        if prices is None:
            kept.pop(kind, None)
        else:
            kept[kind] = tuple(sorted((name, float(price)) for name, price in prices.items()))
        _write(path, kept)
        _read[path] = kept
    return path


def _write(path: str, kept: Mapping[str, Prices]) -> None:
    """To a temporary name, then renamed: a reader never sees half of it."""
    import json  # late: few processes measure

    text = json.dumps(
        {"format": _FORMAT, "devices": {kind: dict(prices) for kind, prices in kept.items()}},
        indent=2,
    )
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise OpgraftError(
            f"{path} cannot be written: {error.strerror}",
            remedy="OPGRAFT_CALIBRATION names another file.",
        ) from error


def _load(path: str) -> dict[str, Prices]:
    """What a file holds; one of another format, or a damaged one, holds nothing."""
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except OSError:
        return {}
    import json  # late: most machines have no such file

    try:
        held = json.loads(text)
        if held["format"] != _FORMAT:
            return {}
        return {
            str(kind): tuple(sorted((str(name), float(price)) for name, price in prices.items()))
            for kind, prices in held["devices"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
