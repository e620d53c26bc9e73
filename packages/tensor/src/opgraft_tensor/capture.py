"""One call of a function, recorded: what it computes, from what, and what it changes.

While a function is captured every live tensor stands for a memory of its own (a *placeholder*), so
that what the kernels read can be told by name: an argument, a tensor that the function knows from
elsewhere, memory that it made. Afterwards each stands for what it stood for before, unless the
function moved it. Other threads may go on meanwhile: a placeholder has the same value.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from opgraft.forking import ForkLock
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor import autograd, graph
from opgraft_tensor.exchange import fill_buffer
from opgraft_tensor.realize import realize
from opgraft_tensor.recording import CaptureError, recording
from opgraft_tensor.storage import (
    Storage,
    buffer_node,
    hold,
    live_holders,
    looking,
    moving,
    watch,
)
from opgraft_tensor.tensor import Tensor

if TYPE_CHECKING:
    from opgraft.runtime.buffer import Buffer
    from opgraft.runtime.device import Device
    from opgraft.runtime.program import Step

_capturing: Final = ForkLock()
"""One capture at a time: it changes what every tensor of the process stands for."""

Make: TypeAlias = Callable[[], Sequence[Any]]


# ---- where a tensor is found again


@dataclass(frozen=True)
class Argument:
    """The tensor at a place of the arguments."""

    place: int

    def tensor(self, arguments: Sequence[Tensor]) -> Tensor | None:
        return arguments[self.place]


@dataclass(frozen=True)
class Known:
    """A tensor that the function knows from elsewhere; None where it is gone."""

    reference: weakref.ref[Tensor]

    def tensor(self, arguments: Sequence[Tensor]) -> Tensor | None:
        return self.reference()


@dataclass(frozen=True)
class Gradient:
    """The `grad` of another tensor."""

    of: Argument | Known

    def tensor(self, arguments: Sequence[Tensor]) -> Tensor | None:
        owner = self.of.tensor(arguments)
        return None if owner is None else owner.grad


Address: TypeAlias = Argument | Known | Gradient


# ---- what a call does


@dataclass(frozen=True)
class Launched:
    """Kernels on one device, in order."""

    device: Device
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Copied:
    """One buffer's content into another."""

    target: Buffer
    source: Buffer


@dataclass(frozen=True)
class Filled:
    """The same bytes into a buffer each time."""

    target: Buffer
    content: Any


@dataclass(frozen=True)
class Supplied:
    """What the host made and will make anew each time."""

    storages: tuple[Storage, ...]
    make: Make


Event: TypeAlias = Launched | Copied | Filled


Value: TypeAlias = "tuple[Storage, Address | None]"
"""What a call leaves behind, and the tensor that it is for; None: a new one."""


@dataclass
class Recording:
    """A call, as data."""

    events: list[Event] = field(default_factory=list)
    supplied: list[Supplied] = field(default_factory=list)
    inputs: dict[Storage, Address] = field(default_factory=dict)
    """What is read from outside, by the memory that stood for it."""
    constants: dict[Storage, None] = field(default_factory=dict)
    """Other memory that is read and was not made by the call."""
    made: dict[Storage, None] = field(default_factory=dict)
    """Memory that the call gave values."""
    values: list[Value] = field(default_factory=list)
    """The memory of each new tensor of the result (no address), and of each tensor that stands
    for another value afterwards."""
    results: list[int | Address] = field(default_factory=list)
    """Each tensor of the result: the number of its value, or where the tensor itself is."""
    cleared: list[Argument | Known] = field(default_factory=list)
    """Tensors whose gradient is gone."""
    apart: list[Known] = field(default_factory=list)
    """Tensors that no argument may be: what is assigned to one of them would be seen in both."""
    bare: list[Argument | Known] = field(default_factory=list)
    """Tensors that had no gradient, and have one now: nothing was added to it."""


@dataclass(eq=False)
class _Original:
    """What a live tensor stood for before; registered as a holder, so nobody overwrites it."""

    reference: weakref.ref[Tensor]
    uop: UOp
    grad: Tensor | None
    placeholder: UOp


class Capture:
    """A capture under way, and the recorder of its thread."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self.recording = Recording()
        self._addresses: dict[Storage, Address] = {}
        self._outside: dict[Storage, UOp] = {}
        """What each placeholder stands for."""
        self._roots: dict[int, Storage] = {}
        self._arguments = arguments
        self._originals: list[_Original] = []
        self._assigned: list[Argument | Known] = []
        self._inner: list[Tensor] = []
        """The tensors that the function gets in the place of its arguments."""
        self._entered: list[tuple[Tensor, UOp, Tensor | None, Argument]] = []
        """They, once each, as they are given to it: the node, the gradient, where."""

    # ---- what the recorder is told

    def may_write(self, storage: Storage) -> bool:
        return storage in self.recording.made

    def reads(self, storages: Sequence[Storage]) -> None:
        for storage in storages:
            if storage in self.recording.made:
                continue
            address = self._addresses.get(storage)
            if address is None:
                storage.pinned = True  # each replay reads it again
                self.recording.constants[storage] = None
            else:
                self.recording.inputs[storage] = address
            with recording(None):
                fill_buffer(storage)

    def made(self, storages: Sequence[Storage]) -> None:
        self.recording.made.update(dict.fromkeys(storages))

    def differentiates(self, nodes: Sequence[UOp]) -> None:
        for node in nodes:
            before = self._outside.get(node.arg) if node.op is Ops.BUFFER else None
            if (
                before is not None
                and not autograd.leaf_owners(node)
                and autograd.depends_on_leaf(before)
            ):
                raise CaptureError(
                    "a gradient would go back through a tensor that was made outside of the "
                    f"captured function: {Storage.__repr__(node.arg)}",
                    remedy="Make it inside, or detach() it.",
                )

    def launched(self, device: Device, steps: Sequence[Step]) -> None:
        self.recording.events.append(Launched(device, tuple(steps)))

    def copied(self, target: Buffer, source: Buffer) -> None:
        self.recording.events.append(Copied(target, source))

    def filled(self, target: Buffer, content: Any) -> None:
        self.recording.events.append(Filled(target, content))

    def supplied(self, storages: Sequence[Storage], make: Make) -> None:
        self.recording.supplied.append(Supplied(tuple(storages), make))

    # ---- placeholders

    def _placeholder(self, tensor: Tensor, uop: UOp, address: Address) -> UOp:
        storage = Storage(graph.shape(uop), uop.dtype, tensor.device)
        storage.pinned = True
        storage.source = partial(self._memory_of, uop, storage)
        self._addresses[storage] = address
        self._outside[storage] = uop
        return buffer_node(storage)

    def _memory_of(self, uop: UOp, placeholder: Storage) -> Buffer:
        """The memory of a node, for its placeholder; a copy where another one has it already."""
        found: Buffer = fill_buffer(realize([uop], placeholder.device)[0].arg)
        if self._roots.setdefault(id(found.root), placeholder) is placeholder:
            return found
        copied = found.device.buffer(found.nbytes)
        copied.copy_from(found)
        return copied

    def _replace_all(self) -> None:
        for holder in live_holders():
            if isinstance(holder, Tensor):
                address = Known(weakref.ref(holder))
                with moving:  # another thread may be about to assign to it
                    uop = holder.uop
                    made = self._placeholder(holder, uop, address)
                    original = _Original(address.reference, uop, holder.grad, made)
                    hold(original)
                    self._originals.append(original)
                    holder._move(made)
        for _, original in self._alive():
            if original.grad is not None:
                owner = Known(original.reference)
                self._addresses[original.grad.uop.arg] = Gradient(owner)

    def _alive(self) -> Iterator[tuple[Tensor, _Original]]:
        for original in self._originals:
            holder = original.reference()
            if holder is not None:
                yield holder, original

    def _restore(self) -> None:
        for holder, original in self._alive():
            with moving:
                if holder.uop is original.placeholder:
                    holder._move(original.uop)
            storage = original.placeholder.arg
            if storage.source is None and original.uop.arg is not storage:
                # another thread may have made something of the placeholder, which shares memory
                # with what it stands for: nobody may write that in place while it lives
                _pin(original, storage)

    # ---- the call

    def run(self, call: Callable[[Sequence[Tensor]], list[Tensor]]) -> list[Tensor]:
        """Call the function once, and give the tensors of its result.

        `call` takes the inner arguments and gives the tensors of the result. What it raises goes
        on; the tensors that it moved before stay moved, as without a capture.
        """
        with _capturing:
            self._replace_all()
            try:
                self._enter()
                with recording(self), _watched() as (born, moved):
                    returned = call(self._inner)
                    values = self._effects(self._told_apart(returned), born, moved)
                    tensors = [t for t, _ in values]
                    for tensor, node in zip(tensors, self._realized(tensors)):
                        tensor._move(node)
                    # an argument that is a value as it is, or what the function knew, is read, too
                    self.reads([t.uop.arg for t in tensors])
                    self._refuse_known_arguments()
            except BaseException:
                self._leave()
                raise
            finally:
                self._restore()
        self.recording.values = [(t.uop.arg, address) for t, address in values]
        self._leave()
        # the function's own handles follow later calls, where it keeps them: these don't
        given = {id(inner): t for inner, t in zip(self._inner, self._arguments)}
        for tensor, address in values:
            if address is None:
                given[id(tensor)] = Tensor._handle(graph.mark(tensor.uop, "detach"), tensor.device)
        return [given.get(id(t), t) for t in returned]

    def _refuse_known_arguments(self) -> None:
        """An argument that the function knows from elsewhere, too, is one tensor by two names: a
        replay could not tell which of them is meant. Harmless as long as both are only read."""
        record = self.recording
        apart = [a for a in self._assigned if isinstance(a, Known)]
        if any(isinstance(a, Argument) for a in self._assigned):
            apart += [a for a in record.inputs.values() if isinstance(a, Known)]
        record.apart = apart
        given = {id(t) for t in self._arguments}
        for known in apart:
            tensor = known.reference()
            if tensor is not None and id(tensor) in given:
                for holder, original in self._alive():
                    holder._move(original.placeholder)
                    holder.grad = original.grad
                self._entered = []  # nor is anything done to an argument
                raise known_argument()

    def _enter(self) -> None:
        """A tensor of its own for each argument; the same one twice is one tensor twice."""
        before = {id(holder): original for holder, original in self._alive()}
        inner: dict[int, Tensor] = {}
        for place, given in enumerate(self._arguments):
            if id(given) not in inner:
                address = Argument(place)
                node = self._placeholder(given, before[id(given)].uop, address)
                made = inner[id(given)] = Tensor._handle(node, given.device)
                if given.is_leaf:
                    made._leaf = True
                    autograd.mark_leaf(node, made)
                if given.grad is not None:
                    made.grad = given.grad
                    self._addresses[given.grad.uop.arg] = Gradient(address)
            self._inner.append(inner[id(given)])
        self._entered = [
            (t, t.uop, t.grad, Argument(place))
            for place, t in enumerate(self._inner)
            if all(t is not earlier for earlier in self._inner[:place])
        ]

    def _leave(self) -> None:
        """What the function did to its inner arguments happened to those that were given."""
        for given, inner in zip(self._arguments, self._inner):
            for tensor, node, grad, _ in self._entered:
                if tensor is inner:
                    if inner.uop is not node:
                        given._move(inner.uop)
                    if inner.grad is not grad:
                        given.grad = inner.grad

    def _told_apart(self, returned: list[Tensor]) -> list[Tensor]:
        """The new tensors of a result; those that were there before are told by address."""
        there: dict[int, Address] = {
            id(holder): Known(original.reference) for holder, original in self._alive()
        }
        for place, inner in enumerate(self._inner):
            there.setdefault(id(inner), Argument(place))
        new: dict[int, int] = {}
        found: list[Tensor] = []
        for tensor in returned:
            address = there.get(id(tensor))
            if address is None:
                if id(tensor) not in new:
                    new[id(tensor)] = len(found)
                    found.append(tensor)
                self.recording.results.append(new[id(tensor)])
            else:
                self.recording.results.append(address)
        return found

    def _effects(
        self,
        results: list[Tensor],
        born: list[weakref.ref[Tensor]],
        moved: dict[int, None],
    ) -> list[tuple[Tensor, Address | None]]:
        """All that the call leaves behind: its results, what it moved, gradients, new tensors."""
        values: list[tuple[Tensor, Address | None]] = [(t, None) for t in results]
        # what is returned may be kept elsewhere, too: there it follows each call
        seen: set[int] = set()

        def found(tensor: Tensor, address: Address) -> None:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                values.append((tensor, address))

        owners: list[tuple[Tensor, UOp, Tensor | None, Argument | Known]] = [
            (tensor, node, grad, address) for tensor, node, grad, address in self._entered
        ]
        owners += [
            (holder, original.placeholder, original.grad, Known(original.reference))
            for holder, original in self._alive()
            if id(holder) in moved or holder.grad is not original.grad
        ]
        with looking:
            fresh = {id(t): t for t in [r() for r in born] if t is not None}
        for owner, node, grad, address in owners:
            if owner.uop is not node or owner.grad is not grad:
                self._assigned.append(address)
            if owner.uop is not node:
                values.append((owner, address))
                seen.add(id(owner))
            if owner.grad is None and grad is not None:
                self.recording.cleared.append(address)
            elif owner.grad is not grad and owner.grad is not None and id(owner.grad) in fresh:
                found(owner.grad, Gradient(address))
                if grad is None:
                    self.recording.bare.append(address)
        for tensor in fresh.values():
            found(tensor, Known(weakref.ref(tensor)))
        return values

    def _realized(self, tensors: Sequence[Tensor]) -> list[UOp]:
        groups: dict[str, list[int]] = {}
        for place, tensor in enumerate(tensors):
            groups.setdefault(tensor.device, []).append(place)
        nodes: dict[int, UOp] = {}
        for device, places in groups.items():
            nodes.update(zip(places, realize([tensors[p].uop for p in places], device)))
        return [nodes[place] for place in range(len(tensors))]


def known_argument() -> CaptureError:
    """The error for an argument that the function knows from elsewhere and assigns to."""
    return CaptureError(
        "a captured function is given a tensor that it knows from elsewhere, and assigns to it",
        remedy="Let it have the tensor one way: as an argument, or from elsewhere.",
    )


@contextmanager
def undisturbed() -> Iterator[None]:
    """No other thread keeps tensors alive by looking at all of them: who is alive is wanted."""
    with _capturing, looking:
        yield


@contextmanager
def _watched() -> Iterator[tuple[list[weakref.ref[Any]], dict[int, None]]]:
    """The tensors that this thread makes and moves."""
    born: list[weakref.ref[Any]] = []
    moved: dict[int, None] = {}
    watch.born, watch.moved = born, moved
    try:
        yield born, moved
    finally:
        watch.born = watch.moved = None


def _pin(original: _Original, placeholder: Storage) -> None:
    for node in (original.uop, (original.uop._memo or {}).get("kept")):
        if node is not None and isinstance(node.arg, Storage):
            memory = node.arg.buffer
            if memory is not None and memory is placeholder.buffer:
                node.arg.pinned = True
