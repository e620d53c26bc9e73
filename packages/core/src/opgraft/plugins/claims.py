"""Names that plugins claim: one owner each, or an error that names all of them when it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from opgraft.errors import PluginError
from opgraft.plugins.plugin import Plugin


class Named(Protocol):
    """What can be offered: it has a name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Claim(NamedTuple, Generic[T]):
    """What a plugin offers under a name."""

    item: T
    plugin: Plugin


class Claims(Generic[T]):
    """Everything of one kind (devices, say) by name. Names are compared without case."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._by_name: dict[str, list[Claim[T]]] = {}

    def add(self, item: T, plugin: Plugin) -> None:
        """Record a claim; that it clashes is told when the name is used."""
        self._by_name.setdefault(item.name.lower(), []).append(Claim(item, plugin))

    def of(self, plugin: Plugin) -> list[T]:
        """All that a plugin claims."""
        return [c.item for found in self._by_name.values() for c in found if c.plugin is plugin]

    def find(self, name: str) -> Claim[T] | None:
        """The one claim to a name, None if nobody has it. PluginError if several do."""
        found = self._by_name.get(name.lower())
        if found is None:
            return None
        if len(found) > 1:
            raise self.clash(name)
        return found[0]

    def clash(self, name: str) -> PluginError:
        """The error for a name that several claim."""
        return clash(f"{self.kind} {name}", [c.plugin for c in self._by_name[name.lower()]])

    def clashes(self) -> dict[str, tuple[Plugin, ...]]:
        """Names with several claims, and whose they are."""
        return {
            name: tuple(c.plugin for c in found)
            for name, found in self._by_name.items()
            if len(found) > 1
        }

    def __iter__(self) -> Iterator[Claim[T]]:
        """The claims that do not clash, in the order in which they were made."""
        for found in self._by_name.values():
            if len(found) == 1:
                yield found[0]

    def names(self) -> list[str]:
        """All names, those that clash too."""
        return list(self._by_name)


def clash(what: str, plugins: Iterable[Plugin]) -> PluginError:
    """The error for a name with several owners."""
    rivals = list(plugins)
    owners = " and ".join(f"{p.owner} (entry point {p.name} = {p.entry.value})" for p in rivals)
    guests = [p for p in rivals if not p.built_in]
    choices = " or ".join(f"OPGRAFT_PLUGINS=-{_switch(p, rivals)}" for p in guests)
    return PluginError(
        f"{what} is claimed by {owners}",
        remedy=f"Block one ({choices}), or uninstall it.",
    )


def _switch(plugin: Plugin, rivals: list[Plugin]) -> str:
    """What names this plugin and none of its rivals to the setting PLUGINS."""
    same = [p for p in rivals if p.name.lower() == plugin.name.lower()]
    return plugin.name if len(same) == 1 else plugin.owner
