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
values of everything else that is passed. Another kind is captured by itself.

What a replay does: it reads the tensors that the function knows from elsewhere (parameters,
running statistics) as they are now, and moves those that the function moved (assignments,
gradients, tensors that it put elsewhere). Random numbers are drawn anew; rates of optimizers are
asked for anew. What it does not do: run Python. Numbers that the body reads from elsewhere, and
which way an `if` went, are those of the capture; pass them as arguments.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from opgraft import settings
from opgraft.forking import ForkLock
from opgraft_tensor.capture import Address, Capture, Gradient
from opgraft_tensor.devices import device_name
from opgraft_tensor.late import is_numpy
from opgraft_tensor.recording import CaptureError, recorder
from opgraft_tensor.replay import Replay, Stale
from opgraft_tensor.storage import buffer_node
from opgraft_tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

KINDS: Final = 64
"""Kinds of arguments that a captured function keeps, the most recently used ones."""
REPLAYS: Final = 4
"""Captures of one kind that are kept: with gradients to add to, and without, for instance."""


class Jit(Generic[P, R]):
    """A captured function; made by `jit`. Called like the function itself, from any thread."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._lock = ForkLock()
        self._kinds: OrderedDict[Any, _Kind[R]] = OrderedDict()

    @property
    def captures(self) -> int:
        """How many captures are kept."""
        with self._lock:
            return sum(len(kind.replays) for kind in self._kinds.values())

    @property
    def kernels(self) -> int:
        """How many kernels a replay of the last used kind launches; 0: none is captured."""
        with self._lock:
            last = next(reversed(self._kinds.values()), None)
            return last.replays[0][0].kernels if last is not None and last.replays else 0

    def forget(self) -> None:
        """Let go of everything that was captured; the next calls begin anew."""
        with self._lock:
            self._kinds.clear()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A method: the instance is its first argument."""
        call: Callable[..., R] = self
        return self if instance is None else functools.partial(call, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if recorder() is not None:  # inside another captured function: a part of that one
            return self._function(*args, **kwargs)
        tensors: list[Tensor] = []
        form = _taken_apart((args, kwargs), tensors)
        # FLOAT says what arithmetic means, DEVICE where what the body makes anew is made
        key = (form, settings.FLOAT, settings.DEVICE, *[_facts(t) for t in tensors])
        if len(tensors) > 1:
            first: dict[int, int] = {}
            key = (*key, *[first.setdefault(id(t), i) for i, t in enumerate(tensors)])
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind()
                if len(self._kinds) > KINDS:
                    self._kinds.popitem(last=False)
            else:
                self._kinds.move_to_end(key)
        return kind.call(self._function, form, tensors)


class _Kind(Generic[R]):
    """Calls with one kind of arguments: the first as it stands, the second captured."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._warm = False
        self.replays: tuple[tuple[Replay, Any], ...] = ()
        """The last ones made, each with the form of its result; they differ in what the function
        knows from elsewhere."""

    def call(self, function: Callable[..., R], form: Any, tensors: list[Tensor]) -> R:
        tried: tuple[Any, ...] | None = None
        while tried is not self.replays:
            tried = self.replays
            for replay, result in tried:
                try:
                    return _replayed(replay, result, tensors)  # type: ignore[no-any-return]
                except Stale:
                    continue
            with self._lock:
                if not self._warm:
                    # what the function makes once and keeps (state, caches) is there afterwards
                    args, kwargs = _put_together(form, tensors)
                    found = function(*args, **kwargs)
                    self._warm = True
                    return _detached(found)  # type: ignore[no-any-return]
                if tried is self.replays:
                    return self._captured(function, form, tensors)
        raise AssertionError("either a replay fits or the function is captured")

    def _captured(self, function: Callable[..., R], form: Any, tensors: list[Tensor]) -> R:
        capture = Capture(tensors)
        forms: list[Any] = []

        def call(inner: Sequence[Tensor]) -> list[Tensor]:
            args, kwargs = _put_together(form, inner)
            found: list[Tensor] = []
            forms.append(_taken_apart(function(*args, **kwargs), found, result=True))
            return found

        returned = capture.run(call)
        self.replays = ((Replay(capture.recording), forms[0]), *self.replays)[:REPLAYS]
        return _put_together(forms[0], returned)  # type: ignore[no-any-return]


def _replayed(replay: Replay, form: Any, tensors: list[Tensor]) -> Any:
    """The result of a replay, once everything that it moves is moved."""
    new: list[Tensor] = []
    for number, (storage, address) in enumerate(replay.run(tensors)):
        if address is None:
            made = Tensor._of_memory(storage)
            new.append(made.detach() if number in replay.passed else made)
        elif isinstance(address, Gradient):
            owner = address.of.tensor(tensors)
            if owner is not None:
                owner.grad = Tensor._of_memory(storage)
        else:
            moved = address.tensor(tensors)
            if moved is not None:
                moved._move(buffer_node(storage))
    for address in replay.cleared:
        owner = address.tensor(tensors)
        if owner is not None:
            owner.grad = None
    results = [new[r] if isinstance(r, int) else _alive(r, tensors) for r in replay.results]
    return _put_together(form, results)


def _alive(address: Address, tensors: Sequence[Tensor]) -> Tensor:
    found = address.tensor(tensors)
    if found is None:
        raise CaptureError("a tensor that the captured function returned is gone")
    return found


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


# ---- arguments and results, taken apart


class _Place:
    """Where a tensor stands in the form of arguments or of a result."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<tensor>"


_TENSOR: Final = _Place()


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor._leaf


def _taken_apart(value: Any, tensors: list[Tensor], result: bool = False) -> Any:
    """The form of a value, hashable; its tensors are added to `tensors` in order."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _TENSOR
    if type(value) in (tuple, list):
        return (type(value), *[_taken_apart(v, tensors, result) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value), *[_taken_apart(v, tensors, result) for v in value])
    if type(value) is dict:
        keys = tuple(value)
        return (dict, keys, *[_taken_apart(value[k], tensors, result) for k in keys])
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        return (slice, *[_taken_apart(v, tensors, result) for v in parts])
    if type(value) is float:  # as bits: 0.0 and -0.0 are two, nan is one
        return (float, value.hex())
    if is_numpy(value) and not result:
        tensors.append(Tensor(value, device=device_name(None)))
        return _TENSOR
    what = "returns" if result else "is given"
    if isinstance(value, (Iterator, Awaitable)):
        raise CaptureError(
            f"a captured function {what} a {type(value).__name__}, which can be gone through once",
            remedy="Make a list of it.",
        )
    try:
        hash(value)
    except TypeError:
        raise CaptureError(
            f"a captured function {what} a {type(value).__name__}, which is no tensor, no list, "
            "tuple or dict of such, and not hashable",
            remedy="Take what it holds apart, or give an object that is compared by identity.",
        ) from None
    return (_Value, type(value), value)


class _Value:
    """Marks a Python value in a form: 1, 1.0 and True are equal, but not of one kind."""


def _put_together(form: Any, tensors: Sequence[Tensor]) -> Any:
    """The value of a form with these tensors in the places."""
    return _filled(form, iter(tensors))


def _filled(form: Any, tensors: Any) -> Any:
    if form is _TENSOR:
        return next(tensors)
    kind, *parts = form
    if kind is _Value:
        return parts[1]
    if kind is float:
        return float.fromhex(parts[0])
    if kind is dict:
        return dict(zip(parts[0], [_filled(p, tensors) for p in parts[1:]]))
    items = [_filled(p, tensors) for p in parts]
    return kind(*items) if kind is slice or hasattr(kind, "_fields") else kind(items)


def _detached(result: Any) -> Any:
    """The result of a call that was not captured, as one that was would give it."""
    tensors: list[Tensor] = []
    form = _taken_apart(result, tensors, result=True)
    return _put_together(form, [_without_gradient(t) for t in tensors])


def _without_gradient(tensor: Tensor) -> Tensor:
    if tensor.is_leaf or not tensor.requires_grad:
        return tensor
    return tensor.detach()


__all__ = ["CaptureError", "Jit", "jit"]
