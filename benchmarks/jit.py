"""What a replay costs around its kernels, beside NumPy and tinygrad in one run.

    python benchmarks/jit.py [--quick]

Microseconds of this thread on the processor, the least of many short runs: a tiny addition, lists
of tiny kernels, a tiny kernel of variable size, and a training step so small that its kernels take
no time; then kernels of a variable size beside those of a fixed one. Kernels run on one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from opgraft import using
from opgraft_tensor import Tensor, Variable, jit, nn

tiny: Any = None
with contextlib.suppress(ImportError, RuntimeError):  # not installed; no device that it can use
    found = importlib.import_module("tinygrad")
    (found.Tensor([1.0]) + 1.0).realize()
    tiny = found

WARM = 6
"""Calls before the clock: as it stands, captured, and replayed."""


def least(work: Callable[[], object], rounds: int, calls: int) -> float:
    """Microseconds of one call: the least over the rounds."""
    for _ in range(WARM):
        work()
    best = float("inf")
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(calls):
            work()
        best = min(best, (time.thread_time() - begin) / calls)
    return best * 1e6


def chain(count: int) -> Callable[[], object]:
    """A replay of so many tiny kernels."""
    x = Tensor(np.arange(16, dtype=np.float32)).realize()

    @jit
    def run(a: Tensor) -> Tensor:
        for n in range(count):
            a = (a * 1.5 + float(n)).realize()
        return a

    return lambda: run(x)


def step() -> Callable[[], object]:
    """A training step of a network with two layers of a few neurons."""
    draw = np.random.default_rng(0)
    x, y = Tensor(draw.random((4, 8), np.float32)), Tensor(draw.integers(0, 3, 4))
    net = [nn.Linear(8, 4), nn.Linear(4, 3)]
    optimizer = nn.SGD([p for layer in net for p in layer.parameters()], lr=0.1)

    @jit
    def run() -> Tensor:
        optimizer.zero_grad()
        loss = nn.cross_entropy(net[1](net[0](x).relu()), y)
        loss.backward()
        optimizer.step()
        return loss

    return run


def replays(rounds: int) -> None:
    a, b = (Tensor(np.arange(16, dtype=np.float32)).realize() for _ in range(2))
    added = jit(lambda x, y: x + y)
    sized, n = jit(lambda x, k: x[:k] + 1), Variable("n", 1, 16).bind(7)
    left, right = (np.arange(16, dtype=np.float32) for _ in range(2))
    print(f"{'replay':<44}{'us':>8}")
    rows: list[tuple[str, Callable[[], object]]] = [
        ("numpy    a + b, 16 elements", lambda: left + right),
        ("opgraft  a + b, 16 elements", lambda: added(a, b)),
        ("opgraft  x[:n] + 1, n at most 16", lambda: sized(a, n)),
        ("opgraft  a training step of tiny layers", step()),
    ]
    if tiny is not None:
        x, y = tiny.Tensor(left).realize(), tiny.Tensor(right).realize()
        theirs = tiny.TinyJit(lambda p, q: (p + q).realize())
        rows.insert(2, ("tinygrad a + b, 16 elements", lambda: theirs(x, y)))
    for title, work in rows:
        print(f"{title:<44}{least(work, rounds, 50):>8.2f}", flush=True)
    one, many = (least(chain(count), rounds, 50) for count in (1, 101))
    print(f"{'opgraft  each further kernel of a list':<44}{(many - one) / 100:>8.3f}")


def in_part(program: Callable[[Tensor], Tensor], x: Tensor, size: Any) -> Tensor:
    return program(x[:size])


def sizes(rounds: int) -> None:
    """A kernel for every size up to 4096 rows beside one for 2000."""
    draw = np.random.default_rng(0)
    whole, part = (Tensor(draw.random((rows, 512), np.float32)) for rows in (4096, 2000))
    weight = Tensor(draw.random((512, 256), np.float32))
    n = Variable("n", 1, 4096).bind(2000)
    programs: dict[str, Callable[[Tensor], Tensor]] = {
        "x * 2 + 1": lambda x: x * 2 + 1,
        "x.sum(0)": lambda x: x.sum(0),
        "x.sum(1)": lambda x: x.sum(1),
        "x.softmax(1)": lambda x: x.softmax(1),
        "x @ w": lambda x: x @ weight,
        "x.T @ x": lambda x: x.T @ x,
    }
    print(f"\n{'2000 x 512, us':<24}{'variable':>12}{'fixed':>12}{'ratio':>8}")
    for title, program in programs.items():
        variable = least(partial(jit(partial(in_part, program)), whole, n), rounds, 1)
        fixed = least(partial(jit(program), part), rounds, 1)
        print(f"{title:<24}{variable:>12.0f}{fixed:>12.0f}{variable / fixed:>8.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    quick = parser.parse_args().quick
    with using(CPU_THREADS=1):
        replays(10 if quick else 200)
        sizes(3 if quick else 30)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
