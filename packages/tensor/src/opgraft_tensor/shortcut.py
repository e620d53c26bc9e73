"""The short way into a replay: a call like the last ones, told without a key.

A call's kind (jit.py) takes a form, the facts of its tensors and a look-up. A shortcut knows one
kind, of calls whose arguments are tensors, sizes and plain values, and compares the arguments with
it one by one. What does not fit, or is not as simple as that, goes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opgraft import settings
from opgraft_tensor.extents import in_use, is_variable
from opgraft_tensor.graph import shape
from opgraft_tensor.sizes import Bound
from opgraft_tensor.storage import Storage
from opgraft_tensor.tensor import Tensor

SETTINGS: Final = ("FLOAT", "DEVICE")
"""What arithmetic means, and where what the body makes anew is made: part of a kind."""


class Shortcut:
    """The kind of some arguments: `tensors` gives those of a call that is of it."""

    __slots__ = (
        "_count",
        "_names",
        "_others",
        "_places",
        "_reading",
        "_same",
        "_sizes",
        "_twins",
    )

    def __init__(self, arguments: Sequence[Any], names: tuple[str, ...]) -> None:
        """`names`: of the last arguments, where they are given by name."""
        self._names = names
        self._count = len(arguments)
        self._reading = settings.Reading(*SETTINGS)
        tensors = [(place, t) for place, t in enumerate(arguments) if isinstance(t, Tensor)]
        self._places = [(p, t.shape, t.dtype, t.device, t._leaf) for p, t in tensors]
        self._sizes = [(p, v.variable) for p, v in enumerate(arguments) if isinstance(v, Bound)]
        known = (Tensor, Bound)
        self._others = [(p, v) for p, v in enumerate(arguments) if not isinstance(v, known)]
        self._same = _same([t for _, t in tensors])
        self._twins = tensors[0][1] is tensors[1][1] if len(tensors) == 2 else None
        """Of two tensors: whether they are one."""

    def holds(self) -> bool:
        """Whether the settings are those of its kind."""
        return self._reading.holds()

    def tensors(
        self,
        arguments: Sequence[Any],
        names: tuple[str, ...],
        values: dict[str, int],
        memories: list[Storage],
    ) -> list[Tensor] | None:
        """The tensors of these arguments; None: they do not fit.

        The memory of each is put into `memories`, the values of variable sizes into `values`.
        """
        if len(arguments) != self._count or names != self._names:
            return None
        found: list[Tensor] = []
        for place, size, dtype, device, leaf in self._places:
            given = arguments[place]
            if type(given) is not Tensor:
                return None
            storage = given._storage
            if storage is None or storage.lost:
                storage = given._memory()
            if (
                storage is None
                or storage.shape != size
                or storage.dtype is not dtype
                or storage.device != device
                or given._leaf is not leaf
            ):
                return None
            found.append(given)
            memories.append(storage)
        for place, variable in self._sizes:
            given = arguments[place]
            if type(given) is not Bound or given.variable != variable:
                return None
            values[variable.name] = given.value
        for place, value in self._others:
            given = arguments[place]
            if given is not value and not _equal(given, value):
                return None
        if self._twins is not None:
            if (found[0] is found[1]) is not self._twins:
                return None
        elif len(found) > 2 and _same(found) != self._same:
            return None
        return found if self._reading.holds() else None

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
