"""`Module`: something with parameters. They are found by walking its attributes, nothing else."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from opgraft.forking import ForkLock
from opgraft_tensor.tensor import Tensor

if TYPE_CHECKING:
    from typing import Self


class Module:
    """A base for layers and models: `forward` computes, attributes hold tensors and modules.

    Tensors that require a gradient are its parameters; the others (running statistics) belong to
    its state only. Lists, tuples and dicts of tensors and modules are walked, too.
    """

    training: bool = True

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of the module with its path ("layers.0.weight"), each once."""
        seen: set[int] = set()
        for path, found in _walk(self):
            if isinstance(found, Tensor) and id(found) not in seen:
                seen.add(id(found))
                yield path, found

    def modules(self) -> list[Module]:
        """This module and all below it."""
        found = [m for _, m in _walk(self) if isinstance(m, Module)]
        return list({id(m): m for m in found}.values())

    def parameters(self) -> list[Tensor]:
        """The tensors that require a gradient, in a fixed order."""
        return [t for _, t in self.named_tensors() if t.is_leaf]

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor of the module, by its path."""
        return dict(self.named_tensors())

    def load_state_dict(self, state: dict[str, Tensor], strict: bool = True) -> Self:
        """Assign the tensors of `state` to those of the same path.

        Raises `KeyError` where the paths differ (unless not strict), `ValueError` for a shape.
        """
        own = self.state_dict()
        if strict and own.keys() != state.keys():
            missing = [name for name in own if name not in state]
            unknown = [name for name in state if name not in own]
            raise KeyError(f"the state lacks {missing} and has {unknown} that the module lacks")
        for name, tensor in own.items():
            if name in state:
                value = state[name]
                if value.shape != tensor.shape:
                    raise ValueError(f"{name} has shape {tensor.shape}, the state {value.shape}")
                tensor.assign(value.detach().to(tensor.device))
        return self

    def train(self, training: bool = True) -> Self:
        """Let layers behave as in training (dropout, statistics of the batch)."""
        for module in self.modules():
            module.training = training
        return self

    def eval(self) -> Self:
        """Let layers behave as in use."""
        return self.train(False)


def _walk(root: object) -> Iterator[tuple[str, object]]:
    """Modules and tensors below a module with their paths, in order of definition."""
    stack: list[tuple[str, object]] = [("", root)]
    while stack:
        path, top = stack.pop()
        if isinstance(top, (Module, Tensor)):
            yield path, top
        parts: Iterable[tuple[object, object]] = ()
        if isinstance(top, Module):
            parts = vars(top).items()
        elif isinstance(top, dict):
            parts = top.items()
        elif isinstance(top, (list, tuple)):
            parts = enumerate(top)
        below = [(f"{path}.{name}" if path else str(name), part) for name, part in parts]
        stack.extend(reversed(below))


class Sequential(Module):
    """Layers one after another; a layer is a module or any function of a tensor."""

    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)

    def forward(self, *inputs: Any) -> Any:
        (result,) = inputs
        for layer in self.layers:
            result = layer(result)
        return result


# Statistics with an update that nobody has computed yet. The next step of an optimizer computes
# them with its own; otherwise the graph of updates would grow from step to step.
_updated: Final[weakref.WeakValueDictionary[int, Tensor]] = weakref.WeakValueDictionary()
_lock: Final = ForkLock()


def note_update(tensor: Tensor) -> None:
    """Have the next step of an optimizer compute this tensor, too."""
    with _lock:
        _updated[id(tensor)] = tensor


def take_updates() -> list[Tensor]:
    """The tensors noted since the last call."""
    with _lock:
        found = list(_updated.values())
        _updated.clear()
    return found
