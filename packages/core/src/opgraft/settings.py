"""Every setting in one typed table, and how it is set.

A setting `NAME` is `using(NAME=...)` in code, `OPGRAFT_NAME` in the environment, or its default,
the first of these that is there. `settings.NAME` reads it. Code's values live in a context
variable: a thread or an asyncio task that sets one disturbs no other. (A new thread starts
without them, as with every context variable: hand it `contextvars.copy_context().run`.)

The environment is looked up at every read, so `os.environ["OPGRAFT_DEBUG"] = "1"` in a notebook
is the process-wide way. A read costs about half a microsecond: hoist it out of inner loops.

>>> from opgraft import settings
>>> with settings.using(DEBUG=2, CPU_CC="GCC"):
...     settings.DEBUG, settings.get("CPU_CC")
(2, 'GCC')
>>> settings.using(DEBGU=1)
Traceback (most recent call last):
opgraft.errors.SettingError: there is no setting DEBGU
Did you mean DEBUG? `opgraft info --settings` lists them all.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    cast,
)

from opgraft import setting_forms as forms
from opgraft.errors import SettingError
from opgraft.forking import ForkLock

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

PREFIX: Final = "OPGRAFT_"
"""What a setting's name begins with in the environment."""


class UnknownSettingError(SettingError, AttributeError):
    """The error of `settings.NAME`: an AttributeError too, so that `hasattr` works."""


class Setting(NamedTuple, Generic[T]):
    """One row of the table.

    `convert` makes the value from what code or the environment gave (a str), or raises
    ValueError with a phrase that completes "NAME takes ...". `form` says the same for people.
    """

    name: str
    form: str
    default: T
    meaning: str
    convert: Callable[[object], T]
    family: bool = False
    """The name begins with `<DEVICE>_` and stands for one setting per device."""
    empty: bool = False
    """An empty string in the environment is a value; for others it is as if unset."""
    owner: str = "opgraft"
    """Who declared it: a plugin's name, or opgraft."""

    @property
    def value(self) -> T:
        """The value now, here. Of a family, ask `get("NAME_" + suffix)` instead."""
        return cast(T, get(self.name))


def one_of(*choices: str) -> Callable[[object], str]:
    """A converter for a setting that takes one of a few words (case does not matter)."""

    def convert(value: object) -> str:
        given = value.strip().lower() if isinstance(value, str) else value
        for choice in choices:
            if given == choice.lower():
                return choice
        near = forms.closest(str(value), choices, 1, 0.5)
        hint = f" (nearest: {near[0]})" if near else ""
        raise ValueError("one of " + ", ".join(choices) + hint)

    return convert


_CONVERTERS: Final[Mapping[type, tuple[str, Callable[[object], Any]]]] = {
    bool: ("0 or 1", forms.flag),
    int: ("a number", forms.count),
    str: ("text", forms.text),
}

_ROWS: Final[tuple[Setting[Any], ...]] = (
    Setting("DEBUG", "0..4", 0, "How much to print: 1 kernels and times, 2 and sources, "
            "3 and instructions, 4 and every rewrite.", forms.count),
    Setting("DEVICE", "a device", "", "The default device, such as CPU or CPU:0; empty: the "
            "first, by priority, that opens.", forms.word),
    Setting("OPTIMIZER", "a name", "auto", "Who simplifies: greedy, egraph or any that a plugin "
            "registers; auto: egraph where installed, else greedy.", forms.lower_word),
    Setting("EGRAPH", "0 or 1", None, "Short form: 1 is OPTIMIZER=egraph, 0 is "
            "OPTIMIZER=greedy; unset: OPTIMIZER decides.", forms.optional_flag),
    Setting("PLUGINS", "names", None, 'Which plugins may load, by entry point or distribution: '
            '"a,b" only these, "-a" all but this; empty: none; unset: all.', forms.names,
            empty=True),
    Setting("CACHE", "a folder", "", "Where compiled kernels are kept; empty: the platform's "
            "cache folder; off: nowhere.", forms.text),
    Setting("CACHE_SIZE", "bytes", 2 << 30, "The most that the cache folder may hold, such as "
            "512M or 2G; the least recently used goes first.", forms.size),
    Setting("CALIBRATION", "a file", "", "Where `opgraft calibrate` keeps what operations cost on "
            "a device; empty: the platform's configuration folder; off: nowhere.", forms.text),
    Setting("FLOAT", "a level", "strict", "What may be done to float arithmetic: strict, reassoc "
            "(rounding may differ), unsafe (identities that lose digits or nan).",
            one_of("strict", "reassoc", "unsafe")),
    Setting("SEARCH", "a number", 0, "Schedules that each round of a search keeps: new kernels are "
            "measured with many schedules; 0: no search, the heuristic's is taken.", forms.count),
    Setting("SPEC", "0 or 1", False, "Check the graph after every pass.", forms.flag),
    Setting("TRACE", "a file", "", "Write what was compiled and run, with times, to this file "
            "(Chrome trace JSON, for Perfetto).", forms.text),
    Setting("CPU_THREADS", "a number", 0, "Threads that run CPU kernels; 0: one per core that "
            "this process may use.", forms.count),
    Setting("CC", "a compiler", "", "The compiler of this device, by the name that `opgraft "
            "devices` shows; nothing else is tried. Empty: the first that works.", forms.word,
            family=True),
)  # fmt: skip

if TYPE_CHECKING:
    DEBUG: int
    DEVICE: str
    OPTIMIZER: str
    EGRAPH: bool | None
    PLUGINS: tuple[str, ...] | None
    CACHE: str
    CACHE_SIZE: int
    CALIBRATION: str
    FLOAT: Literal["strict", "reassoc", "unsafe"]
    SEARCH: int
    SPEC: bool
    TRACE: str
    CPU_THREADS: int

_lock: Final = ForkLock()
_table: Final[dict[str, Setting[Any]]] = {row.name: row for row in _ROWS if not row.family}
_families: Final[dict[str, Setting[Any]]] = {row.name: row for row in _ROWS if row.family}
_finders: Final[list[Callable[[str], object]]] = []
_parsed: Final[dict[tuple[str, str], Any]] = {}
_keys: Final[dict[str, Any]] = {}  # names as os.environ holds them
_NO_VALUES: Final[dict[str, Any]] = {}
_values: Final[ContextVar[dict[str, Any]]] = ContextVar("opgraft_settings", default=_NO_VALUES)


def declare(
    name: str,
    kind: type[T],
    default: T,
    meaning: str,
    *,
    convert: Callable[[object], T] | None = None,
    form: str = "",
    owner: str = "",
) -> Setting[T]:
    """Add a setting; for plugins, once, at the top of their module.

    The name must be upper case and begin with the plugin's entry-point name and `_`: opgraft
    loads the plugin of that name when `using` meets a setting it does not know. `kind` bool, int
    and str bring their own converter; any other kind needs `convert`.

    >>> retries = declare("DEMO_RETRIES", int, 3, "How often to try again.")
    >>> with using(DEMO_RETRIES=5):
    ...     retries.value
    5
    """
    if not re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+", name):
        raise SettingError(
            f"a declared setting is named PLUGIN_SOMETHING in upper case, not {name!r}"
        )
    stated, own = _CONVERTERS.get(kind, ("a value", None))
    chosen = convert or own
    if chosen is None:
        raise SettingError(f"setting {name}: values of {kind.__name__} need convert=...")
    row = Setting(
        name, form or stated, default, meaning, chosen, owner=owner or name.split("_")[0].lower()
    )
    with _lock:
        there = _table.get(name)
        if there is not None and (there.default, there.meaning) != (default, meaning):
            raise SettingError(f"setting {name} is declared already, by {there.owner}")
        _table[name] = row
    return row


def on_unknown(finder: Callable[[str], object]) -> None:
    """Have `finder(name)` called before an unknown name is refused: it may declare it."""
    with _lock:
        if finder not in _finders:
            _finders.append(finder)


def table() -> tuple[Setting[Any], ...]:
    """Every setting, families last; built-in ones first, then by name."""
    with _lock:
        own = [r for r in _ROWS if not r.family]
        added = sorted((r for r in _table.values() if r not in own), key=lambda r: r.name)
        return (*own, *added, *_families.values())


def _known(name: str) -> Setting[Any] | None:
    row = _table.get(name)
    if row is None:
        device, _, last = name.rpartition("_")
        if device and device.isidentifier() and device.isupper():
            row = _families.get(last)
    return row


def _row(name: str) -> Setting[Any]:
    row = _known(name)
    if row is None:
        for finder in tuple(_finders):
            finder(name)
            row = _known(name)
            if row is not None:
                break
        else:
            raise _unknown(name)
    return row


def nearest(name: str) -> list[str]:
    """Known names that are spelt like this one, the nearest first."""
    names = [*_table, *(f"CPU_{f}" for f in _families)]
    return forms.closest(name.upper(), names, 3, 0.6)


def _unknown(name: str) -> SettingError:
    near = nearest(name)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return SettingError(
        f"there is no setting {name}", remedy=f"{hint}`opgraft info --settings` lists them all."
    )


def _converted(row: Setting[Any], name: str, value: object, place: str) -> Any:
    try:
        return row.convert(value)
    except ValueError as refused:
        raise SettingError(
            f"{place} = {value!r}: {name} takes {refused}", remedy=row.meaning
        ) from None


def _raw(name: str) -> str | None:
    """`os.environ.get`, which for an absent name raises and catches twice: 1 us at every read."""
    table = getattr(os.environ, "_data", None)
    if table is None:
        return os.environ.get(PREFIX + name)
    key = _keys.get(name)
    if key is None:
        key = os.environ.encodekey(PREFIX + name)
        if len(_keys) < 256:
            _keys[name] = key
    return os.environ.get(PREFIX + name) if key in table else None


def _from_environment(row: Setting[Any], name: str) -> tuple[bool, Any]:
    raw = _raw(name)
    if raw is None or (not raw and not row.empty):
        return False, None
    key = (name, raw)
    found = _parsed.get(key, _parsed)
    if found is _parsed:
        found = _converted(row, name, raw, PREFIX + name)
        if len(_parsed) > 256:
            _parsed.clear()
        _parsed[key] = found  # one step, so without the lock: a fork may find that one held
    return True, found


def get(name: str) -> Any:
    """The value of a setting by name; the way to read a family: `get("CPU_CC")`."""
    values = _values.get()
    if name in values:
        return values[name]
    row = _table.get(name) or _row(name)
    there, value = _from_environment(row, name)
    return value if there else row.default


class Reading:
    """Some settings as they were when this was made, and whether they still are.

    For what runs many thousand times a second: `holds` is a third of a microsecond, whatever the
    number of names.

    >>> from opgraft import settings
    >>> known = settings.Reading("DEBUG", "FLOAT")
    >>> known.values, known.holds()
    ((0, 'strict'), True)
    >>> with settings.using(DEBUG=2):
    ...     known.holds()
    False
    """

    __slots__ = (
        "_code",
        "_environment",
        "_get",
        "_given",
        "_keys",
        "_names",
        "_none_of",
        "_raw",
        "values",
    )

    def __init__(self, *names: str) -> None:
        self._names: Final = names
        self._code: dict[str, Any] = _values.get()
        self._given: Final = self._in_code(self._code)
        self._environment: Final = os.environ
        inner = getattr(os.environ, "_data", None)
        self._get: Callable[[Any], object] = os.environ.get if inner is None else inner.get
        keys: list[Any] = [PREFIX + name for name in names]
        self._keys: Final = keys if inner is None else [*map(os.environ.encodekey, keys)]
        # before the values: one that changes meanwhile is seen at the next look
        self._raw: Final = [*map(self._get, self._keys)]
        self._none_of: Callable[[Any], bool] | None = None
        """Where the environment has none of them: tells whether that is still so."""
        if inner is not None and self._raw.count(None) == len(self._raw):
            self._none_of = inner.keys().isdisjoint
        self.values: Final = tuple([get(n) for n in names])

    def holds(self) -> bool:
        """Whether all of them have the same values, here and now."""
        code = _values.get()
        if code is not self._code:
            if self._in_code(code) != self._given:
                return False
            self._code = code
        if os.environ is not self._environment:
            return False
        none_of = self._none_of
        if none_of is not None:
            return none_of(self._keys)
        return [*map(self._get, self._keys)] == self._raw

    def _in_code(self, code: dict[str, Any]) -> list[Any]:
        return [code.get(n, _NO_VALUES) for n in self._names]


def source(name: str) -> Literal["code", "environment", "default"]:
    """Where the value of a setting comes from."""
    if name in _values.get():
        return "code"
    return "environment" if _from_environment(_row(name), name)[0] else "default"


def changed() -> dict[str, tuple[Any, str]]:
    """Settings that differ from their default: name to (value, source). Bad ones raise."""
    names = [r.name for r in table() if not r.family]
    names += sorted(n[len(PREFIX) :] for n in os.environ if n.startswith(PREFIX))
    names += sorted(_values.get())
    found: dict[str, tuple[Any, str]] = {}
    for name in dict.fromkeys(names):
        row = _known(name)
        if row is not None:
            value = get(name)
            if value != row.default:
                found[name] = (value, source(name))
    return found


def stray() -> dict[str, list[str]]:
    """Environment variables that look like settings but that nothing reads, with near names.

    A plugin that is not loaded may still be going to read one.
    """
    names = sorted(n for n in os.environ if n.startswith(PREFIX))
    plain = [n[len(PREFIX) :] for n in names]
    return {PREFIX + n: [PREFIX + c for c in nearest(n)] for n in plain if _known(n) is None}


class using:
    """Settings for a block, or as a decorator for every call of a function.

    Raises SettingError at once for a name or value that does not exist. `None` gives an optional
    setting back its unset state.

    >>> from opgraft import settings
    >>> @using(FLOAT="reassoc")
    ... def level():
    ...     return settings.FLOAT
    >>> level(), settings.FLOAT
    ('reassoc', 'strict')
    """

    __slots__ = ("_tokens", "values")

    def __init__(self, **values: Any) -> None:
        self.values: Final = {
            name: _converted(_row(name), name, value, f"using {name}")
            for name, value in values.items()
        }
        self._tokens: list[Token[dict[str, Any]]] = []

    def __enter__(self) -> using:
        self._tokens.append(_values.set({**_values.get(), **self.values}))
        return self

    def __exit__(self, *details: object) -> None:
        _values.reset(self._tokens.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        import inspect  # late, as above: it brings the tokenizer and the disassembler

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"using(...) cannot decorate the generator {function.__name__}: its body runs "
                "in its caller's context; write `with using(...)` around the work inside"
            )
        values = self.values
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                with using(**values):
                    return await function(*args, **kwargs)

            return cast(Callable[P, R], awaited)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with using(**values):
                return function(*args, **kwargs)

        return called


def __getattr__(name: str) -> Any:
    if name not in _table and not name.isupper():
        raise AttributeError(f"module 'opgraft.settings' has no attribute {name!r}")
    try:
        return get(name)
    except SettingError as error:
        if _known(name) is not None:
            raise
        raise UnknownSettingError(error.message, remedy=error.remedy) from None


def __dir__() -> list[str]:
    return sorted([*globals(), *_table])
