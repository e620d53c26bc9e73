"""The short way into a replay: a call like the last ones, told without a key.

A call's kind (jit.py) takes a form, the facts of its tensors and a look-up. A shortcut knows one
kind, of calls whose arguments are tensors, sizes and plain values: a function written for it
compares the arguments one by one, and goes on with the replay. What does not fit, or is not as
simple as that, goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opgraft import settings
from opgraft_tensor.extents import in_use, is_variable
from opgraft_tensor.graph import shape
from opgraft_tensor.replay import Replay
from opgraft_tensor.sizes import Bound
from opgraft_tensor.tensor import Tensor
from opgraft_tensor.written import Text, listed

SETTINGS: Final = ("FLOAT", "DEVICE")
"""What arithmetic means, and where what the body makes anew is made: part of a kind."""

OTHER: Final = object()
"""What a shortcut gives for arguments of another kind."""


class Shortcut:
    """A replay for calls like one. `call(arguments, names)` gives its result, or OTHER for
    arguments that are not of that call's kind, or raises Stale; `text` is what it does."""

    call: Callable[[Sequence[Any], tuple[str, ...]], Any]

    def __init__(self, replay: Replay, arguments: Sequence[Any], names: tuple[str, ...]) -> None:
        """`names`: of the last arguments, where they are given by name."""
        self._reading = settings.Reading(*SETTINGS)
        text = replay.body.empty()
        self._other = text.name("other", OTHER)
        self._refuse(text, f"len(arguments) != {len(arguments)} or names != {names}")
        places = [f"a{number}" for number in range(len(arguments))]
        if places:
            text.add(f"[{', '.join(places)}] = arguments")
        tensors: dict[str, Tensor] = {}
        sizes: list[str] = []
        for given, value in zip(places, arguments):
            if isinstance(value, Tensor):
                self._tell_tensor(text, given, f"memory{len(tensors)}", value)
                tensors[given] = value
            elif isinstance(value, Bound):
                kind, variable = text.name("kind", Bound), text.name("variable", value.variable)
                self._refuse(text, f"type({given}) is not {kind}")
                its = f"{given}.variable"
                self._refuse(text, f"{its} is not {variable} and {its} != {variable}")
                sizes.append(f"{value.variable.name!r}: {given}.value")
            else:
                known, equal = text.name("known", value), text.name("equal", _equal)
                self._refuse(text, f"{given} is not {known} and not {equal}({given}, {known})")
        self._tell_twins(text, tensors)
        self._refuse(text, f"not {text.name('holds', self._reading.holds)}()")
        text.add(f"given = {listed([*tensors])}")
        text.add(
            f"values = {{{', '.join(sizes)}}}" if sizes else f"values = {text.name('none', {})}"
        )
        text.lines.extend(replay.body.lines)
        self.call, self.text = text.function("shortcut(arguments, names)")

    def holds(self) -> bool:
        """Whether the settings are those of its kind."""
        return self._reading.holds()

    def _refuse(self, text: Text, where: str) -> None:
        text.add(f"if {where}:", f"    return {self._other}")

    def _tell_tensor(self, text: Text, given: str, memory: str, known: Tensor) -> None:
        """Lines that find the memory of a tensor, and tell it from others than the known one's."""
        kind = text.name("kind", Tensor)
        leaf = "not " if known._leaf else ""
        self._refuse(text, f"type({given}) is not {kind} or {leaf}{given}._leaf")
        text.add(
            f"{memory} = {given}._storage",
            f"if {memory} is None or {memory}.lost:",
            f"    {memory} = {given}._memory()",
            f"    if {memory} is None:",
            f"        return {self._other}",
        )
        size, dtype = text.name("size", known.shape), text.name("dtype", known.dtype)
        self._refuse(
            text,
            f"{memory}.shape != {size} or {memory}.dtype is not {dtype}"
            f" or {memory}.device != {known.device!r}",
        )

    def _tell_twins(self, text: Text, tensors: Mapping[str, Tensor]) -> None:
        """Lines that tell which of the tensors are one."""
        if len(tensors) == 2:
            (one, first), (other, second) = tensors.items()
            self._refuse(text, f"{one} is {'not ' if first is second else ''}{other}")
        elif len(tensors) > 2:
            same, pattern = text.name("same", _same), text.name("same", _same([*tensors.values()]))
            self._refuse(text, f"{same}({listed([*tensors])}) != {pattern}")

    @staticmethod
    def serves(arguments: Sequence[Any]) -> bool:
        """Whether there is one for such arguments."""
        for given in arguments:
            if type(given) is Tensor:
                if in_use() and is_variable(shape(given.uop)):
                    return False
            elif not (type(given) in _PLAIN or type(given) is Bound or _is_opaque(given)):
                return False
        variables = [a.variable for a in arguments if type(a) is Bound]
        return len(set(variables)) == len(variables)


_PLAIN: Final = (int, str, bool, float, type(None), bytes)


def _is_opaque(value: Any) -> bool:
    """Whether equality is identity."""
    equality: object = type(value).__eq__
    return equality is object.__eq__


def _equal(given: Any, value: Any) -> bool:
    """Of one kind, though not one object; a float only where no sign is lost."""
    kind = type(value)
    if type(given) is not kind or kind not in _PLAIN:
        return False
    return bool(given == value) and (kind is not float or value != 0)


def _same(tensors: Sequence[Tensor]) -> int | list[int]:
    """Which of them are one: how many there are, where they are all different."""
    ids = [id(t) for t in tensors]
    different = len(set(ids))
    return different if different == len(ids) else [ids.index(i) for i in ids]
