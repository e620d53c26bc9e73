"""One plugin: its entry point, its module once loaded, and what its hooks gave.

Whatever a plugin's code raises ends here: it is recorded with the plugin, and the rest of the
program goes on without it.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from opgraft.errors import PluginError
from opgraft.plugins.calibration import Calibration
from opgraft.plugins.command import RESERVED, Command
from opgraft.plugins.discovery import EntryPoint
from opgraft.plugins.handshake import Version, check, stated

if TYPE_CHECKING:
    from opgraft.ir.matcher import EqualitySet
    from opgraft.plugins.hooks import Hooks
    from opgraft.rules.optimizer import OptimizerSpec
    from opgraft.runtime.compiler import CompilerPair
    from opgraft.runtime.device import DeviceSpec

T = TypeVar("T")

_KIND: Final = re.compile("[A-Z][A-Z0-9_]*")


class State(StrEnum):
    """Where a plugin stands."""

    FOUND = "found"
    """Installed; nothing has asked for it yet."""
    LOADED = "loaded"
    BROKEN = "broken"
    """Its module or one of its hooks raised, or gave what it may not."""
    REFUSED = "refused"
    """Written for another version of the interface."""
    BLOCKED = "blocked"
    """By the setting PLUGINS."""
    CLASH = "clash"
    """It claims a name that another claims too."""


class Fault(NamedTuple):
    """What went wrong in a plugin, where, and the exception itself."""

    place: str
    error: BaseException
    state: State = State.BROKEN

    @property
    def reason(self) -> str:
        """One line."""
        error = self.error
        if isinstance(error, PluginError):
            words = error.message
        else:
            words = f"{type(error).__name__}: {error}".strip().removesuffix(":")
        return " ".join(f"{self.place}: {words}".split())


class Plugin:
    """A plugin in its compartment. Not thread-safe by itself: the registry holds the lock."""

    def __init__(
        self, entry: EntryPoint, hooks: tuple[str, ...] | None = None, built_in: bool = False
    ) -> None:
        self.entry: Final = entry
        self.built_in: Final = built_in
        self.faults: list[Fault] = []
        """What went wrong, in the order in which it did: each hook fails for itself."""
        self.seconds = 0.0
        """What loading it and calling its hooks took."""
        self.api: Version | None = None
        self._limited_to = hooks
        self._hooks: Hooks | Own | None = None
        self._results: dict[tuple[str, str], Any] = {}
        self._loading = False

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def owner(self) -> str:
        """Its distribution, for messages."""
        return self.entry.distribution or self.entry.value

    @property
    def state(self) -> State:
        """What is known of the plugin by itself; clashes and blocks are the registry's."""
        if self.fault is not None:
            return self.fault.state
        return State.FOUND if self._hooks is None else State.LOADED

    @property
    def fault(self) -> Fault | None:
        """The first thing that went wrong."""
        return self.faults[0] if self.faults else None

    @property
    def reason(self) -> str:
        """All that went wrong, in one line."""
        return "; ".join(fault.reason for fault in self.faults)

    def blame(self, place: str, error: BaseException, state: State = State.BROKEN) -> None:
        """Record what went wrong."""
        self.faults.append(Fault(place, error, state))

    def failure(self) -> PluginError:
        """The error to raise when a broken or refused plugin is asked for; has a cause."""
        fault = self.fault
        assert fault is not None
        known = fault.error if isinstance(fault.error, PluginError) else None
        if known is not None and fault.state is State.REFUSED:
            return PluginError(known.message, remedy=known.remedy)
        made = PluginError(
            f"plugin {self.name} of {self.owner} {self.entry.version} is {fault.state}: "
            f"{self.reason}",
            remedy=f"Repair or upgrade {self.owner}, skip the plugin "
            f"(OPGRAFT_PLUGINS=-{self.name}), or remove it (pip uninstall {self.owner}).",
        )
        made.__cause__ = fault.error
        return made

    # ---- loading

    def load(self) -> None:
        """Import the module, shake hands, register its hooks: once, whatever comes of it."""
        if self._hooks is not None or self.fault is not None or self._loading:
            return
        self._loading = True
        start = time.perf_counter()
        place = f"import of {self.entry.value}"
        try:
            # what comes with the core was written for it
            said = None if self.built_in else stated(self._module)
            if said is None or self._welcome(said):
                found = self._import()
                place = "hooks"
                if self._welcome(getattr(found, "API", None)):
                    self._hooks = Own(found) if self.built_in else _hooks(found, self.name)
        except (Exception, SystemExit) as error:
            self.blame(place, error)
        finally:
            self._loading = False
            self.seconds += time.perf_counter() - start

    def _import(self) -> Any:
        module, attributes = self._module, self.entry.value.partition(":")[2]
        found: Any = importlib.import_module(module)
        if getattr(getattr(found, "__spec__", None), "_initializing", False):
            raise PluginError(
                f"{module} uses devices or optimizers of opgraft while it is being imported; "
                "such work belongs into functions"
            )
        for attribute in filter(None, attributes.partition("[")[0].strip().split(".")):
            found = getattr(found, attribute)
        return found

    def _welcome(self, said: object) -> bool:
        try:
            self.api = check(said, self.name, self.owner)
        except PluginError as error:
            self.blame("API", error, State.REFUSED)
            return False
        return True

    def _may_have(self, hook: str) -> bool:
        """Whether to ask for a hook: a plugin that says which it has is not loaded in vain."""
        if self._limited_to is None:
            said = None if self.built_in else stated(self._module, "HOOKS")
            self._limited_to = said if isinstance(said, tuple) else ()
        return not self._limited_to or hook in self._limited_to

    @property
    def _module(self) -> str:
        return self.entry.value.partition(":")[0].strip()

    # ---- hooks, each in a typed function

    def devices(self) -> tuple[DeviceSpec, ...]:
        """Kinds of devices that it offers."""
        return self._ask("opgraft_devices", _devices)

    def compiler_pairs(self, device: str) -> tuple[CompilerPair, ...]:
        """Its pairs for a device."""

        def sort(result: Any) -> tuple[CompilerPair, ...]:
            pairs: tuple[CompilerPair, ...] = _each(
                result, _class("opgraft.runtime.compiler", "CompilerPair")
            )
            for pair in pairs:
                if pair.device != device:
                    raise PluginError(
                        f"gave the pair {pair.name} for {pair.device}, asked for {device}"
                    )
            return pairs

        return self._ask("opgraft_compiler_pairs", sort, device)

    def optimizers(self) -> tuple[OptimizerSpec, ...]:
        """Optimizers that it offers."""
        return self._ask(
            "opgraft_optimizers",
            lambda r: _each(r, _class("opgraft.rules.optimizer", "OptimizerSpec")),
        )

    def equalities(self) -> tuple[tuple[str, EqualitySet], ...]:
        """Its further equalities, by stage."""
        return self._ask("opgraft_equalities", _by_stage)

    def commands(self) -> tuple[Command, ...]:
        """Its subcommands."""
        return self._ask("opgraft_commands", _commands)

    def calibrations(self) -> tuple[Calibration, ...]:
        """Its steps of a calibration."""
        return self._ask("opgraft_calibrations", _calibrations)

    def _ask(
        self, hook: str, sort: Callable[[Any], tuple[T, ...]], device: str = ""
    ) -> tuple[T, ...]:
        """What the hook gives, checked; nothing, and a fault, where it fails."""
        if not self._may_have(hook):
            return ()
        self.load()
        if self._hooks is None:
            return ()
        key = (hook, device)
        if key not in self._results:
            start = time.perf_counter()
            arguments = {"device": device} if device else {}
            try:
                answers = self._hooks.call(hook, arguments)
                self._results[key] = tuple(item for answer in answers for item in sort(answer))
            except (Exception, SystemExit) as error:
                self._results[key] = ()
                self.blame(f"{hook}({device})", error)
            self.seconds += time.perf_counter() - start
        found: tuple[T, ...] = self._results[key]
        return found


class Own:
    """The hooks of a built-in plugin, called straight: its tests see to what pluggy would check,
    and pluggy takes longer to load than the plugin."""

    def __init__(self, found: Any) -> None:
        self._found: Final = found

    def call(self, hook: str, arguments: Mapping[str, Any]) -> list[Any]:
        """As `Hooks.call`."""
        function = getattr(self._found, hook, None)
        return [] if function is None else [function(**arguments)]


def _hooks(found: Any, name: str) -> Hooks:
    made: Hooks = importlib.import_module("opgraft.plugins.hooks").Hooks(found, name)
    return made


def _class(module: str, name: str) -> Any:
    """A class of another room; it is there already if a plugin has made one of its kind."""
    return getattr(importlib.import_module(module), name)


def _each(result: Any, kind: type[T]) -> tuple[T, ...]:
    """The items of a result, all of the kind that the hook is for, no two of one name."""
    if isinstance(result, (str, bytes, Mapping)) or not isinstance(result, Iterable):
        raise PluginError(f"gave {_shown(result)}, not {kind.__name__}s")
    items = tuple(result)
    names: dict[str, None] = {}
    for item in items:
        if not isinstance(item, kind):
            raise PluginError(f"gave {_shown(item)} among its {kind.__name__}s")
        name = getattr(item, "name", None)
        if not isinstance(name, str) or not name:
            raise PluginError(f"gave a {kind.__name__} whose name is {_shown(name)}")
        if name.lower() in names:
            raise PluginError(f"gave two {kind.__name__}s named {name}")
        names[name.lower()] = None
    return items


def _devices(result: Any) -> tuple[DeviceSpec, ...]:
    specs: tuple[DeviceSpec, ...] = _each(result, _class("opgraft.runtime.device", "DeviceSpec"))
    for spec in specs:
        if not _KIND.fullmatch(spec.name):
            raise PluginError(
                f"names a device {spec.name!r}; names are upper case: letters, digits and _"
            )
    return specs


def _commands(result: Any) -> tuple[Command, ...]:
    commands = _each(result, Command)
    for command in commands:
        if command.name in RESERVED:
            raise PluginError(f"gave the command {command.name}, which is opgraft's own")
    return commands


def _calibrations(result: Any) -> tuple[Calibration, ...]:
    steps = _each(result, Calibration)
    for step in steps:
        prices: Any = step.prices
        if not isinstance(prices, tuple) or not all(isinstance(name, str) for name in prices):
            raise PluginError(f"calibration {step.name} has prices {_shown(prices)}, not names")
    return steps


def _by_stage(result: Any) -> tuple[tuple[str, EqualitySet], ...]:
    if not isinstance(result, Mapping):
        raise PluginError(f"gave {_shown(result)}, not a mapping of stages to EqualitySets")
    kind = _class("opgraft.ir.matcher", "EqualitySet")
    for stage, rules in result.items():
        if not isinstance(stage, str):
            raise PluginError(f"names a stage {_shown(stage)}, not a string")
        if not isinstance(rules, kind):
            raise PluginError(
                f"gave {_shown(rules)} for stage {stage}: only an EqualitySet may be given to an "
                "optimizer"
            )
    return tuple(sorted(result.items(), key=lambda item: str(item[0])))


def _shown(value: object) -> str:
    text = repr(value)
    return f"a {type(value).__name__}, {text if len(text) < 60 else text[:57] + '...'}"
