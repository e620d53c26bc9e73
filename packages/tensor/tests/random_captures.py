"""Random functions of tensors with all that they may leave behind, captured and as they stand.

A function is a list of steps drawn from a seed; it works on its arguments, on tensors that it knows
from elsewhere, on parts of them, with assignments, gradients, tensors kept outside and results in
containers. Both worlds get the same calls, and the same changes between calls; whatever any name
holds is compared after each. With core's tests on the path (PYTHONPATH=packages/core/tests):
`python random_captures.py --seeds 0:500 [--device CPU]`.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kernel_forms.seeds import try_seeds
from opgraft_tensor import Tensor, jit
from opgraft_tensor.jit import CaptureError

SIZES: Final = ((3,), (2, 3), (4,), (1,), (), (0, 2))
KNOWN: Final = 3
CALLS: Final = 7


class World:
    """The tensors that a function knows, and what it keeps; one for each way of calling it."""

    def __init__(self, seed: int, device: str) -> None:
        draw = np.random.default_rng(seed)
        self.device = device
        self.known = [self.tensor(draw.integers(-3, 4, (2, 3))) for _ in range(KNOWN)]
        self.leaf = self.tensor(draw.integers(-3, 4, (2, 3))).requires_grad_()
        self.kept: dict[str, Tensor] = {}
        self.results: list[Tensor] = []

    def tensor(self, values: Any) -> Tensor:
        return Tensor(np.asarray(values, np.float32), device=self.device)

    def all(self) -> list[np.ndarray[Any, Any] | None]:
        grad = self.leaf.grad
        held = [*self.known, self.leaf, *[self.kept[k] for k in sorted(self.kept)], *self.results]
        return [*[t.numpy() for t in held], None if grad is None else grad.numpy()]


def small(t: Tensor) -> Tensor:
    return t.minimum(8.0).maximum(-8.0)


def body_of(seed: int) -> Callable[[World], Callable[..., Any]]:
    """The function of a seed, for a world."""
    pick = random.Random(seed)
    plan = [(pick.randrange(17), pick.random(), pick.random()) for _ in range(pick.randint(2, 8))]
    form = pick.randrange(5)
    gradient = pick.random()

    def make(world: World) -> Callable[..., Any]:
        def body(x: Tensor, y: Tensor, by: float = 1.0) -> Any:
            pool = [x, y, *world.known, world.leaf.detach()]
            for kind, a, b in plan:
                one, two = pool[int(a * len(pool))], pool[int(b * len(pool))]
                known = world.known[int(a * KNOWN)]
                if kind <= 2:
                    pool.append(small(one * 2 - two))
                elif kind == 3:
                    pool.append(small(one.sum(0, keepdims=True) + two))
                elif kind == 4:
                    known += two * by
                    known.assign(small(known))
                elif kind == 5:
                    known[0] = two[1]
                elif kind == 6:
                    known[:, 1:] = small(two[:, :2] + 1)
                elif kind == 7:
                    x.assign(small(x + two))
                elif kind == 8:
                    pool.append(small(one + 1).realize())
                elif kind == 9:
                    world.kept["k"] = small(one + two)
                elif kind == 10:
                    world.kept["v"] = one.reshape(3, 2).transpose(0, 1)
                elif kind == 11:
                    made = Tensor.zeros(2, 3, device=world.device).contiguous()
                    made[1] = one[0]
                    pool.append(made)
                elif kind == 12:
                    known.assign(two)
                elif kind == 13:
                    other = one.clone()
                    other += 1
                    pool.append(small(other))
                elif kind == 14:
                    pool.append(one.flip(0).contiguous())
                elif kind == 15:
                    known, next_ = world.known[0], world.known[1]
                    swapped = known.clone()
                    known.assign(next_)
                    next_.assign(swapped)
                elif kind == 16:
                    pool.append((one > two).where(one, two + by))
            if gradient < 0.4:
                loss = (world.leaf * pool[-1].detach()).sum()
                loss.backward()
                if gradient < 0.15:
                    assert world.leaf.grad is not None
                    world.leaf.assign(small(world.leaf.detach() - world.leaf.grad))
                    world.leaf.grad = None
            last = pool[-1]
            if form == 0:
                return last
            if form == 1:
                return {"a": last, "b": [pool[-2], (x, 3)]}
            if form == 2:
                return last.reshape(6), last[0], last
            if form == 3:
                as_it_is = pool[int(gradient * len(pool))].clone()
                return (last * 1, as_it_is, world.known[0], y)
            world.kept["last"] = last + 0
            return world.kept["last"]

        return body

    return make


def flat(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        return [t for v in result.values() for t in flat(v)]
    if isinstance(result, (list, tuple)):
        return [t for v in result for t in flat(v)]
    return []


def compare(seed: int, device: str = "CPU") -> str:
    """What is wrong with the captured function of this seed; empty if nothing is."""
    worlds = [World(seed, device) for _ in range(2)]
    make = body_of(seed)
    calls = [make(worlds[0]), jit(make(worlds[1]))]
    pick = random.Random(seed + 1)
    for call in range(CALLS):
        draw = np.random.default_rng(call)
        x, y = (draw.integers(-3, 4, (2, 3)) for _ in range(2))
        how, between, by = pick.random(), pick.randrange(8), pick.choice((1.0, 1.0, 1.0, 2.0))
        place, kept = pick.randrange(KNOWN), pick.random()
        for world, function in zip(worlds, calls, strict=True):
            first = world.tensor(x)
            second = first if how < 0.1 else world.tensor(y)
            if how > 0.8:
                first = (first * 2).realize()
            elif how > 0.7:
                second = (second.reshape(3, 2) + 1).reshape(2, 3)
            found = flat(function(first, second, by))
            # only without capture a result is the very tensor that is kept; and a name that is
            # bound to another tensor is not seen by replays as long as the old one lives
            there = [*world.kept.values(), *world.known]
            found = [t.clone() if any(t is k for k in there) else t for t in found]
            world.results = [*(world.results if kept < 0.5 else []), *found, first, second][-9:]
            if between == 0:
                world.known[place] += 1
            elif between == 1 and world.results:
                world.results[0] += 2
            elif between == 2:
                world.known[place].realize()
            elif between == 3:
                world.leaf.grad = None
            elif between == 4:
                world.known[place] = world.tensor(x) + 1
            elif between == 5:
                gc.collect()
            elif between == 6 and world.results:
                world.results[-1].assign(world.results[-1] * 2)
                world.results[-1].realize()
        if between == 7 and kept < 0.5:
            continue  # not looked at: what is lazy stays lazy
        for number, (wanted, got) in enumerate(zip(*[w.all() for w in worlds], strict=True)):
            if (wanted is None) != (got is None) or (
                wanted is not None and not np.array_equal(wanted, got)
            ):
                return f"call {call}, value {number}: {got} should be {wanted}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:200")
    parser.add_argument("--device", default="CPU")
    given = parser.parse_args(arguments)
    first, last = map(int, given.seeds.split(":"))
    faults = try_seeds(
        range(first, last),
        lambda seed: compare(seed, given.device),
        refusal=CaptureError,
        what="functions",
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
