"""The one registry: every listing and every look-up of a plugin's name goes through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opgraft import __version__, settings
from opgraft.errors import DeviceError, PluginError, SettingError
from opgraft.forking import ForkLock, renewed_in_children
from opgraft.plugins.claims import Claim, Claims
from opgraft.plugins.discovery import EntryPoint, entry_points
from opgraft.plugins.handshake import CORE
from opgraft.plugins.plugin import Plugin
from opgraft.plugins.roster import Filter, PluginStatus, Roster, fits

if TYPE_CHECKING:
    from opgraft.ir.matcher import EqualitySet
    from opgraft.plugins.calibration import Calibration
    from opgraft.plugins.command import Command
    from opgraft.rules.optimizer import Optimizer, OptimizerSpec
    from opgraft.runtime.compiler import CompilerPair
    from opgraft.runtime.device import DeviceSpec

BUILT_IN: Final = ("cpu", "interp", "null")
"""Devices of core: modules of opgraft.devices, plugins like anyone's."""


def built_in() -> tuple[Plugin, ...]:
    """The plugins that need no entry point."""
    hooks = ("opgraft_devices", "opgraft_compiler_pairs")
    return tuple(
        Plugin(EntryPoint(name, f"opgraft.devices.{name}", CORE, __version__), hooks, True)
        for name in BUILT_IN
    )


class Registry:
    """All plugins of a process. Thread-safe; loads a plugin when a name is first needed.

    While a plugin's module is imported or its hooks run, it may not ask the registry: what it
    would get depended on who else is loaded. It gets a PluginError, which makes it `broken`.
    """

    _busy: bool
    """A plugin is being loaded, by whichever thread holds the lock."""

    def __init__(
        self,
        read: Callable[[], Sequence[EntryPoint]] = entry_points,
        own: Callable[[], Sequence[Plugin]] = built_in,
    ) -> None:
        self._read, self._own = read, own
        self._lock: Final = ForkLock()
        self.renew()
        renewed_in_children(self)
        self._plugins: tuple[Plugin, ...] | None = None
        self._rosters: dict[Filter, Roster] = {}
        self._made: dict[tuple[EntryPoint, str], Optimizer] = {}

    @contextmanager
    def _roster(self) -> Iterator[Roster]:
        with self._lock:
            if self._busy:
                raise PluginError(
                    "a plugin asks for devices or optimizers of opgraft while it is being loaded; "
                    "such work belongs into the factories that its hooks hand over"
                )
            tokens: Filter = settings.PLUGINS
            self._busy = True
            try:
                if self._plugins is None:
                    self._plugins = (*self._own(), *map(Plugin, self._read()))
                roster = self._rosters.get(tokens)
                if roster is None:
                    roster = self._rosters[tokens] = Roster(self._plugins, tokens)
                yield roster
            finally:
                self._busy = False

    # ---- listings

    def status(self, load: bool = False) -> tuple[PluginStatus, ...]:
        """A row per plugin; with `load`, each is loaded and asked what it offers."""
        with self._roster() as roster:
            if load:
                roster.complete()
            return roster.status()

    def unknown_tokens(self) -> list[str]:
        """Names in the setting PLUGINS that fit no plugin that is installed."""
        with self._roster() as roster:
            named = [t.removeprefix("-") for t in roster.tokens or ()]
            return [t for t in named if not any(fits(t, p) for p in roster.plugins)]

    # ---- devices

    def device_names(self) -> list[str]:
        """Kinds of devices that can be asked for, upper case, in order of the plugins."""
        with self._roster() as roster:
            return [name.upper() for name in roster.devices.names()]

    def device(self, name: str, asked: str) -> Claim[DeviceSpec]:
        """The kind of this name. DeviceError, with the known names and the nearest, where there
        is none; PluginError where a plugin of that name is at fault or several claim it."""
        with self._roster() as roster:
            claim = roster.devices.find(name)
            if claim is None:
                known = [n.upper() for n in roster.devices.names()]
                raise roster.missing("device", name, asked, known, DeviceError)
            return claim

    def devices(self) -> tuple[Claim[DeviceSpec], ...]:
        """Every kind that does not clash, and whose it is."""
        with self._roster() as roster:
            return tuple(roster.devices)

    def device_clashes(self) -> tuple[tuple[str, PluginError], ...]:
        """Kinds that several plugins claim, each with its error."""
        with self._roster() as roster:
            claims = roster.devices
            return tuple((name.upper(), claims.clash(name)) for name in claims.clashes())

    def pairs(self, device: str) -> Claims[CompilerPair]:
        """Compiler pairs for a kind of device, of all plugins."""
        with self._roster() as roster:
            return roster.pairs(device)

    # ---- optimizers and equalities

    def optimizer(self, name: str) -> Optimizer:
        """The optimizer of this name; "auto": the one of highest priority that can be made,
        greedy where none has a priority above 0."""
        from opgraft.rules.optimizer import greedy  # late: not on the way to a cached kernel

        with self._roster() as roster:
            claims = roster.optimizers
            if name == "auto":
                ranked = sorted(claims, key=lambda c: (-c.item.priority, c.item.name))
                for claim in ranked:
                    if claim.item.priority > 0:
                        made = self._make(claim)
                        if made is not None:
                            return made
                return greedy
            found = claims.find(name)
            if found is not None:
                made = self._make(found)
                if made is None:
                    raise found.plugin.failure()
                return made
            if name == greedy.name:
                return greedy
            known = ["auto", greedy.name, *claims.names()]
            raise roster.missing("optimizer", name, name, known, SettingError)

    def optimizers(self) -> tuple[tuple[OptimizerSpec, str], ...]:
        """Those that plugins bring, each with its distribution."""
        with self._roster() as roster:
            return tuple((c.item, c.plugin.owner) for c in roster.optimizers)

    def _make(self, claim: Claim[OptimizerSpec]) -> Optimizer | None:
        from opgraft.rules.optimizer import Optimizer  # late, as above

        key = (claim.plugin.entry, claim.item.name)
        made = self._made.get(key)
        if made is None:
            try:
                made = claim.item.make()
                if not isinstance(made, Optimizer):
                    raise PluginError(f"{made!r} is no optimizer: it needs name and optimize()")
            except (Exception, SystemExit) as error:
                claim.plugin.blame(f"making optimizer {claim.item.name}", error)
                return None
            self._made[key] = made
        return made

    def equalities(self, stage: str) -> EqualitySet | None:
        """What plugins add to the equalities of a stage; None: nothing."""
        with self._roster() as roster:
            return roster.equalities(stage)

    # ---- commands

    def commands(self) -> tuple[tuple[Command, ...], tuple[tuple[str, PluginError], ...]]:
        """Subcommands of plugins, and names that several claim."""
        with self._roster() as roster:
            claims = roster.commands
            clashes = tuple((name, claims.clash(name)) for name in claims.clashes())
            return tuple(c.item for c in claims), clashes

    # ---- calibration

    def calibrations(self) -> tuple[Claim[Calibration], ...]:
        """Steps of plugins, each with whose it is. PluginError where several claim a name."""
        with self._roster() as roster:
            for name in roster.calibrations.clashes():
                raise roster.calibrations.clash(name)
            return tuple(roster.calibrations)

    # ---- settings

    def load_for_setting(self, name: str) -> None:
        """Load the plugins whose name a setting begins with: they may declare it."""
        if self._busy_here():
            return
        with self._roster() as roster:
            for plugin in roster.active:
                if name.startswith(plugin.name.upper().replace("-", "_") + "_"):
                    plugin.load()

    def _busy_here(self) -> bool:
        with self._lock:  # whoever holds it and is busy is this thread
            return self._busy

    def renew(self) -> None:
        """See forking.py: whoever loaded a plugin is not in the child."""
        self._busy = False


REGISTRY: Final = Registry()
"""The plugins of this process."""


def find_optimizer(name: str) -> Optimizer:
    """The optimizer of this name, for `rules`."""
    return REGISTRY.optimizer(name)


def find_equalities(stage: str) -> EqualitySet | None:
    """What plugins add to the equalities of a stage, for `rules`."""
    return REGISTRY.equalities(stage)


def find_setting(name: str) -> None:
    """Give the plugin that declares this setting the occasion to do so, for `settings`."""
    REGISTRY.load_for_setting(name)


def installed() -> tuple[tuple[str, str, str], ...]:
    """Module, distribution and version of every plugin there is, for keys of the cache."""
    return tuple((row.value, row.distribution, row.version) for row in REGISTRY.status())
