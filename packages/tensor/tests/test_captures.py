"""What a captured function must not get wrong: kinds that look alike, names of one tensor, what is
kept, and what it refuses since a replay could not give it again."""

from __future__ import annotations

import copy
import dataclasses
import decimal
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opgraft import using
from opgraft_tensor import Tensor, Variable, jit, manual_seed, storage
from opgraft_tensor.jit import CaptureError
from random_captures import compare
from tested import at

CALLS = 5


def test_random_functions_captured_are_the_functions() -> None:
    wrong = {seed: told for seed in range(at(2, 6)) if (told := compare(seed, "INTERP"))}
    assert not wrong


def test_zeros_of_both_signs_are_two_kinds_and_nan_is_one() -> None:
    captured = jit(lambda x, by: x * by)
    for by, sign in ((0.0, False), (0.0, False), (0.0, False), (-0.0, True), (-0.0, True)):
        assert np.signbit(captured(Tensor([1.0]), by).numpy()[0]) == sign
    for _ in range(3):
        assert np.isnan(captured(Tensor([1.0]), float("nan")).item())
    assert captured.captures == 3


def test_float_levels_and_default_devices_are_kinds() -> None:
    made = jit(lambda: Tensor([1.0, 2.0]) * 2)
    rounded = jit(lambda x: (x + 1.0) - x)
    large = Tensor([1e10])
    with using(FLOAT="strict"):
        for _ in range(3):
            made()
            assert rounded(large).item() == 0
        with using(DEVICE="INTERP", FLOAT="unsafe"):
            assert made().device == "INTERP"
            assert rounded(large).item() == ((large + 1.0) - large).item() == 1
        assert ((large + 1.0) - large).item() == 0


def test_slices_are_arguments_and_what_is_gone_through_once_is_none() -> None:
    part = jit(lambda x, which: x[which])
    for n in range(4):
        assert part(Tensor([n, 1, 2, 3]), slice(0, 3, 2)).tolist() == [n, 2]
    with pytest.raises(CaptureError, match="generator"):
        jit(lambda x, g: x + sum(g))(Tensor([1]), (i for i in range(3)))
    with pytest.raises(CaptureError, match="returns a generator"):
        jit(lambda x: (t for t in (x,)))(Tensor([1]))


def test_a_gradient_that_is_returned_is_added_to_all_the_same() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        weight = Tensor([2.0], requires_grad=True)

        def forward(x: Tensor) -> Tensor | None:
            (x * weight).sum().backward()
            return weight.grad

        step, found = wrap(forward), []
        for n in range(CALLS):
            found.append(step(Tensor([float(n)])).tolist())
            assert weight.grad is not None
            found.append(weight.grad.tolist())
        return found

    assert run(jit) == run(lambda f: f)


def test_a_result_that_is_kept_elsewhere_follows_there_and_stays_with_the_caller() -> None:
    kept: dict[str, Tensor] = {}

    @jit
    def last(x: Tensor) -> Tensor:
        kept["last"] = x + 1
        return kept["last"]

    found = []
    for n in range(CALLS):
        found.append(last(Tensor([n])))
        assert kept["last"].tolist() == [n + 1]
    assert [t.tolist() for t in found] == [[n + 1] for n in range(CALLS)]


def test_what_two_kinds_keep_at_one_place_follows_both() -> None:
    kept: dict[str, Tensor] = {}

    @jit
    def last(x: Tensor) -> Tensor:
        kept["last"] = x + 1
        return x * 2

    for n in range(4):
        for size in (1, 2, 1, 1):
            last(Tensor([n] * size))
            assert kept["last"].tolist() == [n + 1] * size


def test_an_argument_that_is_known_and_assigned_to_is_refused() -> None:
    known = Tensor([1.0])

    @jit
    def add(x: Tensor) -> Tensor:
        nonlocal known
        known += 1
        return x * 10

    for n in range(4):
        assert add(Tensor([float(n)])).item() == 10 * n
    for _ in range(2):
        with pytest.raises(CaptureError, match="knows from elsewhere"):
            add(known)
        assert known.item() == 5
    changed = jit(lambda x: x.assign(x + 1) + known)
    changed(known)
    with pytest.raises(CaptureError, match="knows from elsewhere"):
        changed(known)
    assert known.item() == 6
    read = jit(lambda x: x + known)
    assert [read(known).item() for _ in range(4)] == [12] * 4


def test_a_gradient_through_what_was_made_outside_is_refused_not_lost() -> None:
    weight, other = (Tensor([n], requires_grad=True) for n in (2.0, 3.0))

    @jit
    def forward(hidden: Tensor) -> Tensor:
        loss = (hidden * other).sum()
        loss.backward()
        return loss

    forward(weight * 2)
    assert weight.grad is not None
    assert weight.grad.tolist() == [6]
    with pytest.raises(CaptureError, match="made outside"):
        forward(weight * 2)
    assert [forward((weight * 2).detach()).item() for _ in range(4)] == [12] * 4


def test_results_that_are_arguments_without_change_carry_no_gradient() -> None:
    captured = jit(lambda x: x * 1)
    given = Tensor([1.0], requires_grad=True)
    for _ in range(CALLS):
        assert not captured(given).requires_grad


def test_values_that_are_arguments_or_known_as_they_are_follow_each_call() -> None:
    """They were those of the captured call, where no kernel read the argument."""
    known = Tensor([0.0])
    captured = jit(lambda x: (x * 1, x, known * 1, x.clone()))
    for n in range(CALLS):
        known += 1
        once, same, outside, copied = captured(Tensor([float(n)]))
        assert [t.item() for t in (once, same, outside, copied)] == [n, n, n + 1, n]
        once += 5
        outside *= 3
        copied -= 1
        assert (same.item(), known.item()) == (n, n + 1)


def test_seeding_inside_is_refused() -> None:
    def seeded(x: Tensor) -> Tensor:
        manual_seed(5)
        return x + Tensor.rand(1)

    captured = jit(seeded)
    captured(Tensor([0.0]))
    with pytest.raises(CaptureError, match="begin again"):
        captured(Tensor([0.0]))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_what_a_replay_returns_is_copied_and_pickled_as_any_tensor(
    way: Callable[[Tensor], Tensor],
) -> None:
    captured = jit(lambda x: x + 1)
    made = [Tensor([1.0, 2.0]), *[captured(Tensor([0.0, 1.0])) for _ in range(CALLS)]]
    for one in made:
        same = way(one)
        one += 1
        one.realize()
        assert same.tolist() == [1, 2]
        same += 10
        assert one.tolist() == [2, 3]
        assert (same.dtype, same.device) == (one.dtype, one.device)
    leaf = way(Tensor([True]))
    assert leaf.dtype.is_bool


# ---- what looks alike inside of a value, what is left behind by an error, other threads


@dataclasses.dataclass(frozen=True)
class Rate:
    by: Any


def test_values_that_are_equal_inside_only_are_kinds_of_their_own() -> None:
    captured = jit(lambda x, given: x * _first(given))
    alike: list[tuple[Any, Any]] = [
        ({1: 0}, {True: 0}),
        (frozenset([1]), frozenset([True])),
        (Rate(0.0), Rate(-0.0)),
        (complex(0, 0.0), complex(0, -0.0)),
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    ]
    for pair in alike:
        for given in pair:
            for _ in range(3):
                x = Tensor([2.0])
                found, wanted = captured(x, given), x * _first(given)
                assert str(found.tolist()) == str(wanted.tolist())
    assert captured.captures == 2 * len(alike)


def _first(given: Any) -> float:
    """A number that tells values apart which are equal."""
    if isinstance(given, complex):
        return given.imag
    if isinstance(given, decimal.Decimal):
        return float(len(str(given)))
    value = given.by if isinstance(given, Rate) else next(iter(given))
    return 5.0 if value is True else float(value)


def test_what_was_assigned_to_an_argument_before_an_error_stays() -> None:
    def step(x: Tensor) -> Tensor:
        x += 1
        if failing:
            raise KeyError("no such thing")
        return x * 2

    failing: list[bool] = []
    captured = jit(step)
    for turn in range(6):
        failing[:] = [True] if turn in (1, 3) else []  # the second call is captured
        x = Tensor([float(turn)])
        try:
            assert captured(x).tolist() == [2 * turn + 2]
        except KeyError:
            assert turn == 1
        assert x.tolist() == [turn + 1]


def test_a_thread_that_looks_at_all_tensors_keeps_none_for_a_capture() -> None:
    """A result that another thread holds for a moment is not one that the function kept."""
    made, seen = threading.Event(), threading.Event()

    def look() -> None:
        made.wait(10)
        with storage.looking:
            held = storage.live_holders()
            seen.set()
            time.sleep(0.05)
            del held

    def part(x: Tensor, n: Any) -> Tensor:
        found = x[:n] * 2
        if calls:
            made.set()
            seen.wait(10)
        return found

    calls: list[int] = []
    captured, size = jit(part), Variable("n", 1, 4)
    thread = threading.Thread(target=look)
    thread.start()
    for n in (2, 3, 4):
        assert captured(Tensor([1.0, 2, 3, 4]), size.bind(n)).tolist() == [2, 4, 6, 8][:n]
        calls.append(n)
    thread.join()


@pytest.mark.parametrize("place", [0, 1], ids=["begins", "ends"])
def test_what_another_thread_assigns_when_a_capture_begins_or_ends_stays(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    x = Tensor([1.0]).realize()
    threads: list[threading.Thread] = []
    moves: list[Any] = []
    move = Tensor._move

    def moved(self: Tensor, uop: Any) -> None:
        here = self is x and threading.current_thread() is threading.main_thread()
        if here:
            moves.append(uop)
        if here and len(moves) == place + 1:
            thread = threading.Thread(target=lambda: x.assign(x + 1))
            threads.append(thread)
            thread.start()
            thread.join(0.05)  # it waits for the move to be done, or else is done before
        move(self, uop)

    monkeypatch.setattr(Tensor, "_move", moved)
    captured = jit(lambda t: t * 2)
    for n in range(3):
        assert captured(Tensor([float(n)])).tolist() == [2.0 * n]
    for thread in threads:
        thread.join()
    assert len(threads) == 1
    assert x.tolist() == [2.0]
