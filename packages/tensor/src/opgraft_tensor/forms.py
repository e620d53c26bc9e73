"""Arguments and results as forms: what a value looks like with its tensors taken out.

A form is hashable, and part of the kind of a call: tuples, lists, dicts and slices keep their
structure, tensors and variable sizes leave a place, everything else stands for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final

from opgraft_tensor.devices import device_name
from opgraft_tensor.extents import Bindings
from opgraft_tensor.late import is_numpy
from opgraft_tensor.recording import CaptureError
from opgraft_tensor.sizes import Bound
from opgraft_tensor.tensor import Tensor


class _Place:
    """Where a tensor stands in the form of arguments or of a result."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<tensor>"


TENSOR: Final = _Place()
"""The form of a tensor."""


def taken_apart(
    value: Any, tensors: list[Tensor], sizes: Bindings | None = None, result: bool = False
) -> Any:
    """The form of a value, hashable; its tensors are added to `tensors` in order, and the values
    of its variable sizes to `sizes`, if there is one."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return TENSOR
    if type(value) in (tuple, list):
        return (type(value), *[taken_apart(v, tensors, sizes, result) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value), *[taken_apart(v, tensors, sizes, result) for v in value])
    if type(value) is dict:
        keys = tuple(value)
        told = tuple([_exact(k) for k in keys])
        return (dict, told, keys, *[taken_apart(value[k], tensors, sizes, result) for k in keys])
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        return (slice, *[taken_apart(v, tensors, sizes, result) for v in parts])
    if type(value) is Bound:
        extent = value.extent
        if sizes is None:
            return (Bound, value.variable, extent.value)
        sizes.add(extent)
        return (Bound, value.variable, value.variable.low)
    if type(value) is float:  # as bits: 0.0 and -0.0 are two, nan is one
        return (float, value.hex())
    if is_numpy(value) and not result:
        tensors.append(Tensor(value, device=device_name(None)))
        return TENSOR
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
    return (Value, _exact(value), value)


class Value:
    """Marks a Python value in a form, after what tells it from values that are equal to it."""


def _exact(value: Any) -> Any:
    """What tells a hashable value from equal ones that a function may treat in another way: 1, 1.0
    and True, or 0.0 and -0.0, also where they are inside of it. Who writes an `__eq__` of their own
    says with it what is one kind."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is frozenset:
        return kind, frozenset([_exact(v) for v in value])
    if isinstance(value, tuple):
        return (kind, *[_exact(v) for v in value])
    if kind is range:
        return kind, value.start, value.stop, value.step
    if (kind.__module__, kind.__name__) == ("decimal", "Decimal"):  # 1.0 and 1.00
        return kind, str(value)
    equality: object = kind.__eq__
    if is_dataclass(value) and equality is not object.__eq__:
        return (kind, *[_exact(getattr(value, f.name)) for f in fields(value) if f.compare])
    return kind


def put_together(
    form: Any, tensors: Sequence[Tensor], values: Mapping[str, int] = MappingProxyType({})
) -> Any:
    """The value of a form with these tensors in the places, and these values of the variables."""
    return _filled(form, iter(tensors), values)


def _filled(form: Any, tensors: Iterator[Tensor], values: Mapping[str, int]) -> Any:
    if form is TENSOR:
        return next(tensors)
    kind, *parts = form
    if kind is Value:
        return parts[1]
    if kind is float:
        return float.fromhex(parts[0])
    if kind is Bound:
        variable, usual = parts
        return variable.bind(values.get(variable.name, usual))
    if kind is dict:
        return dict(zip(parts[1], [_filled(p, tensors, values) for p in parts[2:]]))
    items = [_filled(p, tensors, values) for p in parts]
    return kind(*items) if kind is slice or hasattr(kind, "_fields") else kind(items)
