"""The plugins that take part under one value of the setting PLUGINS, and all that they offer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from opgraft.errors import OpgraftError, PluginError
from opgraft.plugins.calibration import Calibration
from opgraft.plugins.claims import Claims, T, clash
from opgraft.plugins.command import Command
from opgraft.plugins.discovery import normalized
from opgraft.plugins.plugin import Plugin, State

if TYPE_CHECKING:
    from opgraft.ir.matcher import EqualitySet, PatternMatcher
    from opgraft.rules.optimizer import OptimizerSpec
    from opgraft.runtime.compiler import CompilerPair
    from opgraft.runtime.device import DeviceSpec

Filter: TypeAlias = "tuple[str, ...] | None"
Kind: TypeAlias = Literal["device", "optimizer", "command"]


class PluginStatus(NamedTuple):
    """One row of `opgraft plugins`."""

    name: str
    value: str
    distribution: str
    version: str
    state: State
    reason: str = ""
    remedy: str = ""
    seconds: float = 0.0
    api: tuple[int, int] | None = None
    offers: tuple[str, ...] = ()
    """What it brings: "device CPU", "pair CPU/GCC", "optimizer greedy", ..."""


def admits(tokens: Filter, plugin: Plugin) -> bool:
    """Whether the setting lets a plugin in.

    A token is the name of an entry point or of a distribution; `-` in front blocks. With at
    least one that does not block, only those named come in, and with an empty list none does.
    Built-in plugins need no permission, but can be blocked by name.
    """
    if tokens is None:
        return True
    wanted = [t for t in tokens if not t.startswith("-")]
    barred = [t[1:] for t in tokens if t.startswith("-")]
    if any(fits(t, plugin) for t in barred):
        return False
    if plugin.built_in:
        return True
    return any(fits(t, plugin) for t in wanted) if wanted or not barred else True


def fits(token: str, plugin: Plugin) -> bool:
    """Whether a name in the setting PLUGINS means this plugin."""
    wanted = normalized(token)
    return wanted in (normalized(plugin.name), normalized(plugin.entry.distribution))


class Roster:
    """A view of the registry's plugins. Made and asked under the registry's lock."""

    def __init__(self, plugins: Sequence[Plugin], tokens: Filter) -> None:
        self.plugins: Final = tuple(plugins)
        self.tokens: Final = tokens
        admitted = [p for p in plugins if admits(tokens, p)]
        self.blocked: Final = tuple(p for p in plugins if p not in admitted)
        by_name: dict[str, list[Plugin]] = {}
        for plugin in admitted:
            by_name.setdefault(plugin.name.lower(), []).append(plugin)
        self.rivals: Final = {name: ps for name, ps in by_name.items() if len(ps) > 1}
        """Plugins of one name: none of them is loaded."""
        self.active: Final = tuple(ps[0] for ps in by_name.values() if len(ps) == 1)
        self._pairs: dict[str, Claims[CompilerPair]] = {}
        self._equalities: dict[str, EqualitySet | None] = {}

    # ---- what they offer

    @functools.cached_property
    def devices(self) -> Claims[DeviceSpec]:
        """Kinds of devices."""
        return self._claims("device", Plugin.devices)

    @functools.cached_property
    def optimizers(self) -> Claims[OptimizerSpec]:
        """Optimizers beside the built-in one."""
        return self._claims("optimizer", Plugin.optimizers)

    @functools.cached_property
    def commands(self) -> Claims[Command]:
        """Subcommands of the command line."""
        return self._claims("command", Plugin.commands)

    @functools.cached_property
    def calibrations(self) -> Claims[Calibration]:
        """Steps of a calibration."""
        return self._claims("calibration", Plugin.calibrations)

    def pairs(self, device: str) -> Claims[CompilerPair]:
        """Compiler pairs for a kind of device."""
        found = self._pairs.get(device)
        if found is None:
            found = self._claims(f"compiler pair {device}", lambda p: p.compiler_pairs(device))
            self._pairs[device] = found
        return found

    def _claims(self, kind: str, offered: Callable[[Plugin], Iterable[T]]) -> Claims[T]:
        """What the plugins that take part offer of a kind, each under its name."""
        claims: Claims[T] = Claims(kind)
        for plugin in self.active:
            for one in offered(plugin):
                claims.add(one, plugin)
        return claims

    def equalities(self, stage: str) -> EqualitySet | None:
        """The equalities of all plugins for a stage; the same object every time."""
        if stage not in self._equalities:
            sets = [s for p in self.active for named, s in p.equalities() if named == stage]
            joined: PatternMatcher | None = sets[0] if sets else None
            for one in sets[1:]:
                joined = one if joined is None else joined + one
            self._equalities[stage] = cast("EqualitySet | None", joined)  # as sums of them are
        return self._equalities[stage]

    # ---- what is missing, and why

    def missing(
        self, kind: Kind, name: str, asked: str, known: Sequence[str], error: type[OpgraftError]
    ) -> OpgraftError:
        """The error for a name that nobody offers: with the plugin's own reason where one has
        that name, else with the known names and the nearest. `asked` is what the user wrote."""
        low = name.lower()
        if low in self.rivals:
            return clash(f"the plugin name {low}", self.rivals[low])
        for plugin in self.active:
            if plugin.name.lower() == low and plugin.fault is not None:
                return plugin.failure()
        for plugin in self.blocked:
            if plugin.name.lower() == low:
                return error(
                    f"{kind} {name}: plugin {plugin.name} of {plugin.owner} is blocked by the "
                    f"setting PLUGINS = {','.join(self.tokens or ())!r}",
                    remedy="Change OPGRAFT_PLUGINS, or using(PLUGINS=...).",
                )
        import difflib  # late: for errors alone

        near = difflib.get_close_matches(low, [k.lower() for k in known], 1, 0.5)
        nearest = [k for k in known if k.lower() in near]
        hint = f"No plugin that is installed offers it; one may be named opgraft-{low}. "
        if nearest:
            hint = f"Did you mean {nearest[0]}? "
        return error(
            f"there is no {kind} {asked!r}; known: {', '.join(known) or 'none'}",
            tried=tuple((f"plugin {p.name}", p.reason) for p in self.active if p.fault),
            remedy=f"{hint}`opgraft {'devices' if kind == 'device' else 'plugins'}` shows more.",
        )

    # ---- the listing

    def status(self) -> tuple[PluginStatus, ...]:
        """Every plugin that is installed, as far as it is known now: loads nothing."""
        return tuple(self._row(plugin) for plugin in self.plugins)

    def complete(self) -> None:
        """Load every plugin and ask all it can tell, for a listing."""
        for plugin in self.active:
            plugin.load()
        _ = (self.devices, self.optimizers, self.commands, self.calibrations)
        for stage in ("index", "scalar", "tensor"):
            self.equalities(stage)
        for name in self.devices.names():
            self.pairs(name.upper())

    def _row(self, plugin: Plugin) -> PluginStatus:
        state, reason, remedy = plugin.state, "", ""
        if plugin in self.blocked:
            state = State.BLOCKED
            reason = f"by the setting PLUGINS = {','.join(self.tokens or ())!r}"
        elif plugin not in self.active:
            error = clash(f"the plugin name {plugin.name}", self.rivals[plugin.name.lower()])
            state, reason, remedy = State.CLASH, error.message, error.remedy
        elif plugin.fault is not None:
            reason, remedy = plugin.reason, plugin.failure().remedy
        else:
            clashes = self._clashes(plugin)
            if clashes:
                state = State.CLASH
                reason = "; ".join(c.message for c in clashes)
                remedy = clashes[0].remedy
        entry = plugin.entry
        return PluginStatus(
            entry.name,
            entry.value,
            entry.distribution,
            entry.version,
            state,
            reason,
            remedy,
            plugin.seconds,
            plugin.api,
            self._offers(plugin) if plugin in self.active else (),
        )

    def _tables(self) -> list[Claims[Any]]:
        """Those that were asked for already."""
        kinds = ("devices", "optimizers", "commands", "calibrations")
        return [self.__dict__[k] for k in kinds if k in self.__dict__]

    def _clashes(self, plugin: Plugin) -> list[PluginError]:
        return [
            claims.clash(name)
            for claims in (*self._tables(), *self._pairs.values())
            for name, owners in claims.clashes().items()
            if plugin in owners
        ]

    def _offers(self, plugin: Plugin) -> tuple[str, ...]:
        found = [f"{c.kind} {one.name}" for c in self._tables() for one in c.of(plugin)]
        for device, pairs in self._pairs.items():
            found += [f"pair {device}/{pair.name}" for pair in pairs.of(plugin)]
        if self._equalities:
            found += [f"equalities {stage} ({len(s)})" for stage, s in plugin.equalities()]
        return tuple(found)
