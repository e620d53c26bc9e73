"""`Device["CPU"]`: names to opened devices, the default device, and the listing.

Naming and listing start no driver: a name is text until a device of it is opened, which happens
once. A named device never falls back to another.
"""

from __future__ import annotations

import atexit
import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from opgraft import settings
from opgraft.errors import DeviceError, OpgraftError, PluginError
from opgraft.forking import ForkLock
from opgraft.plugins.claims import Claim, Claims, clash
from opgraft.plugins.discovery import EntryPoint
from opgraft.plugins.plugin import Plugin
from opgraft.plugins.registry import BUILT_IN, REGISTRY, Registry
from opgraft.runtime.compiler import CompilerPair
from opgraft.runtime.device import Device as OpenDevice
from opgraft.runtime.device import DeviceSpec, Probe

_NAME: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?::(0|[1-9][0-9]*))?")


@dataclass(frozen=True)
class Listed:
    """A kind of device as the listing shows it."""

    name: str
    count: int
    """How many seem to be there, by a cheap look; 0: none."""
    reason: str
    """Why there is none, or why it cannot be used."""
    install: str
    description: str
    priority: int
    distribution: str


class Catalog:
    """The devices of a process. Thread-safe.

    >>> from opgraft import Device
    >>> Device.canonical("cpu:0")
    'CPU'
    >>> Device.canonical("CPV")
    Traceback (most recent call last):
    opgraft.errors.DeviceError: there is no device 'CPV'; known: CPU, INTERP, NULL
    Did you mean CPU? `opgraft devices` shows more.
    """

    def __init__(self, registry: Registry = REGISTRY) -> None:
        self._registry = registry
        self._lock: Final = ForkLock()
        self._opened: dict[tuple[EntryPoint, str, int], OpenDevice] = {}
        self._defaults: dict[object, OpenDevice] = {}
        self._named: dict[tuple[str, object], OpenDevice] = {}
        """What a name meant under a value of the setting PLUGINS: a look-up for every realize."""

    # ---- names

    def canonical(self, name: str) -> str:
        """The name in its one spelling: upper case, no ":0". DeviceError if nobody has it.

        Starts no driver; says nothing about whether the device is there.
        """
        kind, index = self._parse(name)
        if kind.lower() not in BUILT_IN:
            self._registry.device(kind, name)
        return kind if index == 0 else f"{kind}:{index}"

    def names(self) -> list[str]:
        """The known kinds, in upper case."""
        return self._registry.device_names()

    def __contains__(self, name: object) -> bool:
        """Whether a device of this name can be asked for (not whether it opens)."""
        try:
            return isinstance(name, str) and bool(self.canonical(name))
        except OpgraftError:
            return False

    def _parse(self, name: object) -> tuple[str, int]:
        found = _NAME.fullmatch(name) if isinstance(name, str) else None
        if found is None:
            known = self.names()
            import difflib  # late: for errors alone

            near = difflib.get_close_matches(str(name).upper().partition(":")[0], known, 1, 0.5)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise DeviceError(
                f"{name!r} is not the name of a device; known: {', '.join(known)}",
                remedy=f"A device is named KIND or KIND:INDEX, such as CPU or CPU:0.{hint}",
            )
        return found[1].upper(), int(found[2] or 0)

    # ---- opening

    def __getitem__(self, name: str | OpenDevice) -> OpenDevice:
        """The device of this name, opened on first use; an opened device is itself.

        Raises DeviceError where nobody offers it or it does not open (what was tried, what to
        install), PluginError where its plugin is at fault.
        """
        if isinstance(name, OpenDevice):
            return name
        asked = (name, settings.PLUGINS)
        known = self._named.get(asked)
        if known is not None:
            known.check_process()
            return known
        kind, index = self._parse(name)
        return self._open(self._registry.device(kind, name), index, asked)

    def _open(
        self, claim: Claim[DeviceSpec], index: int, asked: tuple[str, object] | None = None
    ) -> OpenDevice:
        key = (claim.plugin.entry, claim.item.name, index)
        with self._lock:
            device = self._opened.get(key)
            if device is None:
                device = self._opened[key] = self._make(claim, index)
            if asked is not None:
                self._named[asked] = device
        device.check_process()
        return device

    def _make(self, claim: Claim[DeviceSpec], index: int) -> OpenDevice:
        spec = claim.item
        pairs = self._registry.pairs(spec.name)
        try:
            made = spec.open(index)
        except OpgraftError:
            raise
        except Exception as error:
            raise DeviceError(
                f"{spec.name} does not open: {type(error).__name__}: {error}",
                remedy=f"This looks like a fault of {claim.plugin.owner}. {spec.install}".strip(),
            ) from error
        if not isinstance(made, OpenDevice):
            raise PluginError(f"opening {spec.name} gave a {type(made).__name__}, not a Device")
        try:
            _join(made, claim.plugin, pairs)
            if made.pairs.pairs:
                made.pairs.select(settings.get(f"{spec.name}_CC"))
        except BaseException:
            made.close()
            raise
        return made

    # ---- the default

    @property
    def default(self) -> OpenDevice:
        """The device of the setting DEVICE, which must open; without it, the one of highest
        priority that opens. Found once per process and value of the setting PLUGINS."""
        wanted = settings.DEVICE
        if wanted:
            return self[wanted]
        key = settings.PLUGINS
        found = self._defaults.get(key)
        if found is None:
            # the registry is asked before the lock is taken: it may be busy with a plugin whose
            # import comes here
            claims = [c for c in self._registry.devices() if c.item.priority >= 0]
            clashes = self._registry.device_clashes()
            with self._lock:
                found = self._defaults.get(key) or self._find_default(claims, clashes)
                self._defaults[key] = found
        found.check_process()
        return found

    def _find_default(
        self, claims: Iterable[Claim[DeviceSpec]], clashes: Iterable[tuple[str, PluginError]]
    ) -> OpenDevice:
        tried = [(name, error.message) for name, error in clashes]
        absent: list[tuple[str, str]] = []
        for claim in sorted(claims, key=lambda c: (-c.item.priority, c.item.name)):
            spec = claim.item
            seen = look(spec)
            if seen.count == 0:
                absent.append((spec.name, seen.reason))
                continue
            try:
                made = self._open(claim, 0)
            except OpgraftError as error:
                if settings.get(f"{spec.name}_CC"):
                    raise  # its compiler was chosen by name: then nothing else is tried
                tried.append((spec.name, error.message))
                continue
            if tried:
                _warn(made.name, tried)
            return made
        raise DeviceError(
            "no device opens",
            tried=(*tried, *absent),
            remedy="`opgraft devices` says what each needs.",
        )

    # ---- the listing

    def listing(self) -> tuple[Listed, ...]:
        """Every kind, the default's candidates in front. Probes; opens nothing, raises nothing."""
        rows = [_listed(claim) for claim in self._registry.devices()]
        rows += [
            Listed(name, 0, error.message, error.remedy, "", -1, "")
            for name, error in self._registry.device_clashes()
        ]
        return tuple(sorted(rows, key=lambda r: (-r.priority, r.name)))

    def pairs(self, kind: str) -> tuple[CompilerPair, ...]:
        """The compiler pairs that plugins offer for a kind of device, the first to try first."""
        found = [c.item for c in self._registry.pairs(self.canonical(kind).partition(":")[0])]
        return tuple(sorted(found, key=lambda p: (-p.priority, p.name)))

    def opened(self) -> list[str]:
        """Names of the devices that are open now, in the order in which they were opened."""
        with self._lock:
            return [device.name for device in self._opened.values()]

    def close(self) -> None:
        """Close every device that this process opened, the last first."""
        with self._lock:
            opened = list(self._opened.values())
            self._opened.clear()
            self._defaults.clear()
            self._named.clear()
        failed: list[Exception] = []
        for device in reversed(opened):
            if device.process == os.getpid():
                try:
                    device.close()
                except Exception as error:  # the others are closed all the same
                    failed.append(error)
        if failed:
            raise failed[0]

    def __repr__(self) -> str:
        return f"<devices: {', '.join(self.names())}; open: {', '.join(self.opened()) or 'none'}>"


def look(spec: DeviceSpec) -> Probe:
    """The probe of a kind of device; one that raises, though it must not, has found nothing."""
    try:
        return spec.probe()
    except Exception as error:
        return Probe(0, f"its probe raised {type(error).__name__}: {error}")


def _warn(chosen: str, tried: list[tuple[str, str]]) -> None:
    """A device that seems to be there and does not open is not passed over in silence."""
    lines = "".join(f"\n  {name}: {why}" for name, why in tried)
    warnings.warn(
        f"opgraft uses {chosen} by default, as these do not open:{lines}\n"
        "Set OPGRAFT_DEVICE to choose; `opgraft devices` says more.",
        RuntimeWarning,
        stacklevel=4,
    )


def _listed(claim: Claim[DeviceSpec]) -> Listed:
    spec = claim.item
    seen = look(spec)
    return Listed(
        spec.name,
        seen.count,
        seen.reason,
        spec.install,
        spec.description,
        spec.priority,
        claim.plugin.owner,
    )


def _join(device: OpenDevice, own: Plugin, pairs: Claims[CompilerPair]) -> None:
    """Give a device the pairs that plugins have for it; names that clash are refused."""
    there = {pair.name.upper() for pair in device.pairs.pairs}
    for name in pairs.clashes():
        device.pairs.refuse(name, pairs.clash(name))
    for claim in pairs:
        if claim.item.name.upper() not in there:
            device.pairs.extend([claim.item])
        elif claim.plugin is not own:
            what = f"{pairs.kind} {claim.item.name}"
            device.pairs.refuse(claim.item.name, clash(what, [own, claim.plugin]))


Device: Final = Catalog()
"""The devices of this process."""

atexit.register(Device.close)
