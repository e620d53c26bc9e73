"""`jit`: a function of tensors that runs its Python once per kind of arguments, then its kernels.

    @jit
    def step(x, y):
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step(loss)
        return loss

The first call with arguments of a kind runs as it stands. The second one is captured: whatever it
computes, realized inside or not, and whatever it leaves behind. All later ones replay the captured
kernels, most of them in one call of the device's runtime.

A *kind* is: shapes, dtypes and devices of the tensors, which of them are one tensor, and the
values of everything else that is passed. Another kind is captured by itself. A size that varies
is no kind of its own where it is a variable (sizes.py): `step(x[: n.bind(5)])`, or the bound size
as an argument, replays the same kernels for every value.

What a replay does: it reads the tensors that the function knows from elsewhere (parameters,
running statistics) as they are now, and moves those that the function moved (assignments,
gradients, tensors that it put elsewhere). Random numbers are drawn anew; rates of optimizers are
asked for anew. What it does not do: run Python. Numbers that the body reads from elsewhere, and
which way an `if` went, are those of the capture; pass them as arguments.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from opgraft import settings
from opgraft.forking import ForkLock
from opgraft_tensor.capture import Capture
from opgraft_tensor.extents import Bindings, free, in_use
from opgraft_tensor.forms import put_together, taken_apart
from opgraft_tensor.graph import shape
from opgraft_tensor.recording import CaptureError, captures, recorder
from opgraft_tensor.replay import Replay, Stale
from opgraft_tensor.shortcut import OTHER, SETTINGS, Shortcut
from opgraft_tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

KINDS: Final = 64
"""Kinds of arguments that a captured function keeps, the most recently used ones."""
REPLAYS: Final = 4
"""Captures of one kind that are kept: with gradients to add to, and without, for instance."""


SHORTCUTS: Final = 4
"""Replays that are found without a key."""


class Jit(Generic[P, R]):
    """A captured function; made by `jit`. Called like the function itself, from any thread."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._lock = ForkLock()
        self._kinds: OrderedDict[Any, _Kind[R]] = OrderedDict()
        self._shortcuts: tuple[tuple[Shortcut, _Kind[R]], ...] = ()
        """Of kinds that were called lately, the last ones first."""
        self._last: _Kind[R] | None = None

    @property
    def captures(self) -> int:
        """How many captures are kept."""
        with self._lock:
            return sum(len(kind.replays) for kind in self._kinds.values())

    @property
    def kernels(self) -> int:
        """How many kernels a replay of the last used kind launches; 0: none is captured."""
        with self._lock:
            last = self._last
            return last.replays[0].kernels if last is not None and last.replays else 0

    @property
    def text(self) -> str:
        """What a replay of the last used kind does, as the Python that is run; "": none is
        captured."""
        with self._lock:
            last = self._last
            return last.replays[0].text if last is not None and last.replays else ""

    def forget(self) -> None:
        """Let go of everything that was captured; the next calls begin anew."""
        with self._lock:
            self._kinds.clear()
            self._shortcuts, self._last = (), None

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A method: the instance is its first argument."""
        call: Callable[..., R] = self
        return self if instance is None else functools.partial(call, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if captures and recorder() is not None:  # inside of a captured function: a part of it
            return self._function(*args, **kwargs)
        names: tuple[str, ...] = ()
        flat: tuple[Any, ...] = args
        if kwargs:
            names, flat = tuple(kwargs), (*args, *kwargs.values())
        for shortcut, kind in self._shortcuts:
            try:
                found = shortcut.call(flat, names)
            except Stale:
                continue
            if found is not OTHER:
                self._last = kind
                return found  # type: ignore[no-any-return]
        return self._long_way(args, kwargs, flat, names)

    def _long_way(self, args: Any, kwargs: Any, flat: tuple[Any, ...], names: tuple[str, ...]) -> R:
        tensors: list[Tensor] = []
        sizes = Bindings()
        form = taken_apart((args, kwargs), tensors, sizes)
        facts = [_facts(t, sizes) for t in tensors]
        key = (form, *[settings.get(n) for n in SETTINGS], *facts)
        if len(tensors) > 1:
            first: dict[int, int] = {}
            key = (*key, *[first.setdefault(id(t), i) for i, t in enumerate(tensors)])
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind()
                if len(self._kinds) > KINDS:
                    self._forget_oldest()
            else:
                self._kinds.move_to_end(key)
            self._last = kind
            values = sizes.values
            if kind.replays and Shortcut.serves(flat):
                self._add_shortcuts(kind, flat, names)
        return kind.call(self._function, form, tensors, values)

    def _forget_oldest(self) -> None:
        lately = [kind for _, kind in self._shortcuts]
        oldest = next(key for key, kind in self._kinds.items() if kind not in lately)
        del self._kinds[oldest]

    def _add_shortcuts(self, kind: _Kind[R], flat: tuple[Any, ...], names: tuple[str, ...]) -> None:
        found = kind.shortcuts(flat, names)
        others = [(s, k) for s, k in self._shortcuts if s not in found]
        self._shortcuts = (*[(s, kind) for s in found], *others)[:SHORTCUTS]


class _Kind(Generic[R]):
    """Calls with one kind of arguments: the first as it stands, the second captured."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._warm = False
        self.replays: tuple[Replay, ...] = ()
        """The last ones made; they differ in what the function knows from elsewhere."""
        self._shortcuts: tuple[tuple[Replay, Shortcut], ...] = ()

    def shortcuts(self, flat: tuple[Any, ...], names: tuple[str, ...]) -> list[Shortcut]:
        """One for each replay, made the first time that it is asked for with these settings."""
        found: list[Shortcut] = []
        self._shortcuts = tuple([(r, s) for r, s in self._shortcuts if r in self.replays])
        for replay in self.replays:
            known = [s for r, s in self._shortcuts if r is replay and s.holds()]
            if not known:
                known = [Shortcut(replay, flat, names)]
                self._shortcuts = ((replay, known[0]), *self._shortcuts)[: 2 * REPLAYS]
            found += known[:1]
        return found

    def replayed(self, given: Sequence[Tensor], values: Mapping[str, int]) -> Any:
        """The result of a replay with these values of variable sizes; OTHER where none of them
        fits."""
        for replay in self.replays:
            try:
                return replay.call(given, replay.memories(given), values)
            except Stale:
                continue
        return OTHER

    def call(
        self,
        function: Callable[..., R],
        form: Any,
        tensors: list[Tensor],
        values: Mapping[str, int],
    ) -> R:
        tried: tuple[Any, ...] | None = None
        while tried is not self.replays:
            tried = self.replays
            found = self.replayed(tensors, values)
            if found is not OTHER:
                return found  # type: ignore[no-any-return]
            with self._lock:
                if not self._warm:
                    # what the function makes once and keeps (state, caches) is there afterwards
                    args, kwargs = put_together(form, tensors, values)
                    first = function(*args, **kwargs)
                    self._warm = True
                    return _detached(first)  # type: ignore[no-any-return]
                if tried is self.replays:
                    return self._captured(function, form, tensors, values)
        raise AssertionError("either a replay fits or the function is captured")

    def _captured(
        self,
        function: Callable[..., R],
        form: Any,
        tensors: list[Tensor],
        values: Mapping[str, int],
    ) -> R:
        capture = Capture(tensors)
        forms: list[Any] = []

        def call(inner: Sequence[Tensor]) -> list[Tensor]:
            args, kwargs = put_together(form, inner, values)
            found: list[Tensor] = []
            forms.append(taken_apart(function(*args, **kwargs), found, result=True))
            return found

        returned = capture.run(call)
        self.replays = (Replay(capture.recording, forms[0]), *self.replays)[:REPLAYS]
        return put_together(forms[0], returned, values)  # type: ignore[no-any-return]


@overload
def jit(function: Callable[P, R]) -> Jit[P, R]: ...
@overload
def jit(function: None = None) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
def jit(function: Callable[P, R] | None = None) -> Any:
    """Capture a function of tensors: see the module. Use it as a decorator, or call it.

    Arguments may be tensors, NumPy arrays (copied in each time), lists, tuples and dicts of them,
    and anything hashable, which is part of the kind. Results are tensors, lists, tuples and dicts
    of them, and what Python values the captured call gave. They carry no gradient: call
    `backward` inside. Raises `CaptureError` where the body asks for values of tensors.

    >>> @jit
    ... def double(x):
    ...     return x * 2 + 1
    >>> [double(Tensor([n])).tolist() for n in (1, 2, 3, 4)]
    [[3], [5], [7], [9]]
    """
    return Jit if function is None else Jit(function)


def _facts(tensor: Tensor, sizes: Bindings) -> tuple[Any, ...]:
    size = tensor.shape
    if in_use():
        size = shape(tensor.uop)
        sizes.of(size)
        size = free(size)
    return size, tensor.dtype, tensor.device, tensor._leaf


def _detached(result: Any) -> Any:
    """The result of a call that was not captured, as one that was would give it."""
    tensors: list[Tensor] = []
    form = taken_apart(result, tensors, result=True)
    return put_together(form, [_without_gradient(t) for t in tensors])


def _without_gradient(tensor: Tensor) -> Tensor:
    if tensor.is_leaf or not tensor.requires_grad:
        return tensor
    return tensor.detach()


__all__ = ["CaptureError", "Jit", "jit"]
