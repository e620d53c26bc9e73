"""Optimizers: how parameters follow their gradients.

A step is one plan: the losses whose `backward` filled the gradients, the gradients, the new
parameters and the optimizer's own state are computed together, each parameter's update in place
where nobody needs the old one. It uses the gradients up: `grad` is None afterwards. Rates are
data, not part of kernels, so changing `lr` compiles nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from opgraft.dtype import DType
from opgraft_tensor.nn.module import take_updates
from opgraft_tensor.recording import host_supplied
from opgraft_tensor.storage import buffer_node
from opgraft_tensor.tensor import Tensor, realize_all


class Optimizer(ABC):
    """`parameters`: leaves (requires_grad=True); `lr` may be changed at any time."""

    rate_count: int
    """How many numbers `_rates` gives."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self.parameters = list({id(p): p for p in parameters}.values())
        if not self.parameters:
            raise ValueError("an optimizer needs parameters")
        for p in self.parameters:
            if not p.is_leaf:
                raise ValueError(f"{p!r} does not require a gradient")
        self.lr = lr
        realize_all(self.parameters)

    def zero_grad(self) -> None:
        """Forget the gradients. A step has done so already."""
        for p in self.parameters:
            p.grad = None

    def step(self, *also: Tensor) -> None:
        """Move every parameter that has a gradient, and compute `also` with it."""
        moved = [(i, p) for i, p in enumerate(self.parameters) if p.grad is not None]
        together = [*also, *take_updates()]
        for _, p in moved:
            assert p.grad is not None
            together += p.grad.origins()
        numbers = self._numbers([p for _, p in moved])
        for i, p in moved:
            assert p.grad is not None
            together += self._update(i, p, p.grad.detach(), numbers[p.dtype, p.device])
            together.append(p)
        self.zero_grad()
        realize_all(list({id(t): t for t in together}.values()))

    def _numbers(self, moved: list[Tensor]) -> dict[tuple[DType, str], list[Tensor]]:
        """The rates of a step as data, once for each dtype and device of the parameters."""
        places = list(dict.fromkeys((p.dtype, p.device) for p in moved))
        count = self.rate_count

        def make() -> list[float]:
            return [*self._rates()] * len(places)

        storages = host_supplied(make, [place for place in places for _ in range(count)])
        made = [Tensor._handle(buffer_node(s), s.device) for s in storages]
        return {place: made[i * count : (i + 1) * count] for i, place in enumerate(places)}

    @abstractmethod
    def _rates(self) -> tuple[float, ...]:
        """Numbers that change from step to step."""

    @abstractmethod
    def _update(self, index: int, p: Tensor, gradient: Tensor, rates: list[Tensor]) -> list[Tensor]:
        """Assign the parameter and its state; the tensors of the state."""

    def state(self) -> list[Tensor]:
        """The tensors that the optimizer keeps between steps."""
        return []


def _zeros_like(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [p.zeros_like().realize() for p in parameters]


class SGD(Optimizer):
    """Gradient descent; with `momentum` along a running sum of gradients.

    `weight_decay` is added to the gradient, times the parameter.
    """

    rate_count = 1

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(parameters, lr)
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self._speed = _zeros_like(self.parameters) if momentum else []

    def _rates(self) -> tuple[float, ...]:
        return (self.lr,)

    def _update(self, index: int, p: Tensor, gradient: Tensor, rates: list[Tensor]) -> list[Tensor]:
        (rate,) = rates
        old = p.detach()
        if self.weight_decay:
            gradient = gradient + old * self.weight_decay
        if not self.momentum:
            p.assign(old - gradient * rate)
            return []
        speed = self._speed[index]
        speed.assign(speed * self.momentum + gradient)
        step = gradient + speed * self.momentum if self.nesterov else speed
        p.assign(old - step * rate)
        return [speed]

    def state(self) -> list[Tensor]:
        return list(self._speed)


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient (Kingma and Ba, ICLR 2015, algorithm 1).

    `weight_decay` is added to the gradient, times the parameter (see AdamW).
    """

    rate_count = 3
    decoupled = False

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.steps = 0
        self._first = _zeros_like(self.parameters)
        self._second = _zeros_like(self.parameters)

    def _rates(self) -> tuple[float, ...]:
        self.steps += 1
        first, second = [1 - b**self.steps for b in self.betas]
        return self.lr / first, 1 / second, 1 - self.lr * self.weight_decay

    def _update(self, index: int, p: Tensor, gradient: Tensor, rates: list[Tensor]) -> list[Tensor]:
        rate, correction, decay = rates
        old = p.detach()
        if self.weight_decay:
            if self.decoupled:
                old = old * decay
            else:
                gradient = gradient + old * self.weight_decay
        m, v = self._first[index], self._second[index]
        first, second = self.betas
        m.assign(m * first + gradient * (1 - first))
        v.assign(v * second + gradient.square() * (1 - second))
        p.assign(old - m * rate / ((v * correction).sqrt() + self.eps))
        return [m, v]

    def state(self) -> list[Tensor]:
        return [*self._first, *self._second]


class AdamW(Adam):
    """Adam with the decay of weights apart from the gradient (Loshchilov and Hutter, ICLR 2019)."""

    decoupled = True

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)
