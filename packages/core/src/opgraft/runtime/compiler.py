"""Where renderers and compilers meet: `Compiler`, `CompilerPair`, `CompilerSet`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from opgraft.dtype import DType
from opgraft.errors import DeviceError, OpgraftError, PluginError
from opgraft.forking import ForkLock
from opgraft.ir.ops import Ops
from opgraft.target import Target

if TYPE_CHECKING:
    from opgraft.render.renderer import Renderer

_FORM: Final = "1"
"""Part of every key; to be changed when what a key does not name changes its meaning."""


class Compiler(ABC):
    """Turns source into what a device loads.

    `key` names everything beside the source that decides the result: the compiler, its version,
    its options, the architecture. It is part of the key of the compile cache.
    """

    key: str

    @abstractmethod
    def compile(self, source: str) -> bytes:
        """The binary. Raises `CompileError` with the compiler's own message."""


@dataclass(frozen=True)
class CompilerPair:
    """A renderer and the compiler of what it writes, under a name that users select by."""

    name: str
    """Upper case: "GCC"."""
    device: str
    """The device's name without an index: "CPU"."""
    renderer: Callable[[Target], Renderer]
    compiler: Callable[[Target], Compiler] | None = None
    """Raises `OpgraftError` where the compiler is absent. None: the driver takes source."""
    priority: int = 0
    """The pair with the greatest is tried first."""
    note: str = ""
    """One line for the listing: what it is, what to install."""


class Selected:
    """A pair that initialised for one target. Its renderer is made when first asked for."""

    def __init__(self, pair: CompilerPair, target: Target, compiler: Compiler | None) -> None:
        self.pair: Final = pair
        self.target: Final = target
        self.compiler: Final = compiler

    @cached_property
    def renderer(self) -> Renderer:
        """The pair's renderer. Its `target` is what kernels are lowered for: it may know less
        than the device."""
        return self.pair.renderer(self.target)

    @cached_property
    def key(self) -> str:
        """All that decides a binary beside its source; the same in every process."""
        inner = "" if self.compiler is None else self.compiler.key
        return "\n".join((_FORM, self.pair.device, self.pair.name, inner, describe(self.target)))


class CompilerSet:
    """The pairs of one device, in order of priority, and why those failed that did.

    `custom` makes a pair of a value that names none (the CPU takes a path to a compiler);
    `preferred` says what is chosen where the user does not; empty: the first that works.
    """

    def __init__(
        self,
        device: str,
        target: Target,
        pairs: Iterable[CompilerPair] = (),
        custom: Callable[[str], CompilerPair | None] | None = None,
        preferred: Callable[[], str] = str,
    ) -> None:
        self.device = device
        self.target = target
        self._custom = custom
        self._preferred = preferred
        self._first: Selected | None = None
        self._lock = ForkLock()
        self._pairs: dict[str, CompilerPair] = {}
        self._opened: dict[str, Selected] = {}
        self._failures: dict[str, OpgraftError] = {}
        self._refused: dict[str, OpgraftError] = {}
        self.extend(pairs)

    def extend(self, pairs: Iterable[CompilerPair]) -> None:
        """Add pairs; one that is there already is skipped, another of its name is an error."""
        with self._lock:
            for pair in pairs:
                self._first = None
                known = self._pairs.setdefault(pair.name.upper(), pair)
                if known != pair:
                    raise PluginError(
                        f"two compiler pairs for {self.device} are named {pair.name}: "
                        f"{_where(known)} and {_where(pair)}",
                        remedy="Block one of the two plugins with the setting PLUGINS.",
                    )

    def refuse(self, name: str, error: OpgraftError) -> None:
        """Have `error` raised when the pair of this name is selected; it is not tried otherwise.

        For a name that several plugins claim.
        """
        with self._lock:
            self._first = None
            self._pairs.setdefault(
                name.upper(), CompilerPair(name.upper(), self.device, _no_renderer)
            )
            self._refused[name.upper()] = error
            self._failures[name.upper()] = error

    @property
    def pairs(self) -> tuple[CompilerPair, ...]:
        """All pairs, the one to try first in front; names break ties."""
        with self._lock:
            return tuple(sorted(self._pairs.values(), key=lambda p: (-p.priority, p.name)))

    @property
    def failures(self) -> dict[str, OpgraftError]:
        """By the pair's name, why it could not be used; only pairs that were tried."""
        with self._lock:
            return dict(self._failures)

    def select(self, choice: str | None = None) -> Selected:
        """The pair of this name; without one, the first in order that initialises.

        A named pair is the only one tried: `DeviceError` says why it fails, or which names exist.
        """
        with self._lock:
            choice = choice or self._preferred()
            if choice:
                return self._open(self._named(choice))
            if self._first is not None:
                return self._first
            for pair in self.pairs:
                try:
                    self._first = self._open(pair)
                except OpgraftError:
                    continue  # kept in failures
                return self._first
            raise DeviceError(
                f"{self.device} has no compiler that works",
                tried=tuple((name, error.message) for name, error in self._failures.items()),
                remedy=self._remedy(),
            )

    def _named(self, choice: str) -> CompilerPair:
        found = self._pairs.get(choice.upper())
        if found is None and self._custom is not None:
            found = self._custom(choice)
        if found is None:
            known = ", ".join(pair.name for pair in self.pairs) or "none"
            raise DeviceError(
                f"{self.device} has no compiler pair named {choice!r}",
                remedy=f"{self.device}_CC takes one of: {known}.",
            )
        return found

    def _open(self, pair: CompilerPair) -> Selected:
        refused = self._refused.get(pair.name.upper())
        if refused is not None:
            raise refused
        found = self._opened.get(pair.name)
        if found is not None:
            return found
        try:
            compiler = None if pair.compiler is None else pair.compiler(self.target)
        except OpgraftError as error:
            self._failures[pair.name] = error
            raise
        self._failures.pop(pair.name, None)
        made = self._opened[pair.name] = Selected(pair, self.target, compiler)
        return made

    def _remedy(self) -> str:
        notes = [f"{pair.name}: {pair.note}" for pair in self.pairs if pair.note]
        choose = f"Choose one with the setting {self.device}_CC."
        return "\n".join([*notes, choose])


def _no_renderer(target: Target) -> Renderer:
    raise PluginError("this pair was refused")  # never reached: it is never opened


def _where(pair: CompilerPair) -> str:
    return f"{pair.renderer.__module__} ({pair.note or 'no note'})"


def describe(target: Target) -> str:
    """The facts of a target in a fixed order: sets print in the order of their names."""
    return " ".join(f"{f.name}={_plain(getattr(target, f.name))}" for f in fields(target))


def _plain(value: Any) -> str:
    if isinstance(value, (frozenset, set)):
        return "{" + ",".join(sorted(_plain(v) for v in value)) + "}"
    if isinstance(value, (Ops, DType)):
        return value.name
    return repr(value)
