"""The short way into a replay does what the long way does, and is left where it would not."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from opgraft import catalog, journal, settings, using
from opgraft.runtime.buffer import Buffer
from opgraft_tensor import Tensor, Variable, jit, nn
from opgraft_tensor.jit import REPLAYS, Jit
from opgraft_tensor.shortcut import Shortcut
from opgraft_tensor.written import Text


def memory(*values: float) -> Tensor:
    return Tensor(list(values), device="CPU").realize()


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arguments of the calls that went the long way."""
    seen: list[Any] = []
    original = Jit._long_way

    def counted(self: Any, *arguments: Any) -> Any:
        seen.append(arguments[0])
        return original(self, *arguments)

    monkeypatch.setattr(Jit, "_long_way", counted)
    return seen


def test_calls_of_a_known_kind_take_the_short_way(long_ways: list[Any]) -> None:
    captured = jit(lambda x, by, *, y: x * by + y)
    known = len(long_ways)
    for n in range(3):  # as it stands, captured, and the first replay
        assert captured(memory(n), 2, y=memory(1)).tolist() == [2 * n + 1]
    assert len(long_ways) == known + 3
    for n in range(5):
        assert captured(memory(n), 2, y=memory(1)).tolist() == [2 * n + 1]
    assert len(long_ways) == known + 3
    assert captured.kernels == 1


def test_results_are_arguments_of_the_next_call(long_ways: list[Any]) -> None:
    captured = jit(lambda x: x + 1)
    x, seen = memory(0.0), []
    for _ in range(12):
        x = captured(x)
        seen.append(x)
    assert [t.item() for t in seen] == list(range(1, 13))
    assert len(long_ways) == 3


def test_no_two_live_results_share_memory() -> None:
    captured = jit(lambda x: (x + 1, x * 2))
    live = [captured(memory(float(n))) for n in range(20)]
    buffers = [t.memory().buffer for pair in live for t in pair]
    spans = sorted((b.handle, b.handle + b.nbytes) for b in buffers)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    live[3][0].assign(live[3][0] * 0 - 7)
    live[3][0].realize()
    for n, (more, twice) in enumerate(live):
        assert (more.item(), twice.item()) == (-7 if n == 3 else n + 1, 2 * n)


def test_memory_of_dead_results_is_used_again() -> None:
    captured = jit(lambda x: x + 1)
    x = memory(*range(1024))
    for _ in range(4):
        captured(x)
    gc.collect()
    base = catalog.Device["CPU"].allocator.usage.live
    addresses = {captured(x).memory().buffer.handle for _ in range(50)}
    assert len(addresses) <= 2
    assert catalog.Device["CPU"].allocator.usage.live == base


@pytest.mark.parametrize(
    "other",
    [
        lambda x: (x.reshape(2, 1), 2),
        lambda x: (x.cast("float64").realize(), 2),
        lambda x: (x, 2.0),
        lambda x: (x, True),
        lambda x: (x, 3),
        lambda x: (x.clone().requires_grad_(), 2),
    ],
    ids=["shape", "dtype", "float", "bool", "number", "leaf"],
)
def test_another_kind_is_not_mistaken(other: Any) -> None:
    captured = jit(lambda x, by: x * by)
    x = memory(1.0, 2.0)
    for _ in range(5):
        captured(x, 2)
    given = other(x)
    for _ in range(4):
        wanted, found = given[0] * given[1], captured(*given)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tolist() == wanted.tolist()
        assert captured(x, 2).tolist() == [2, 4]
    assert captured.captures == 2


def test_one_tensor_at_two_places_is_a_kind_of_its_own() -> None:
    def moved(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a += 1
        return a + b * 10 + c * 100

    captured = jit(moved)
    for n in range(6):
        for pattern in ((0, 1, 2), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 0)):
            given, plain = ([memory(n + i) for i in range(3)] for _ in range(2))
            found = captured(*[given[p] for p in pattern])
            assert found.item() == moved(*[plain[p] for p in pattern]).item()
            assert [t.item() for t in given] == [t.item() for t in plain]
    assert captured.captures == 5


def test_settings_that_change_between_calls_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded = jit(lambda x: (x + 1.0) - x)
    large = memory(1e10)
    for _ in range(5):
        assert rounded(large).item() == 0
    with using(FLOAT="unsafe"):
        assert [rounded(large).item() for _ in range(4)] == [1] * 4
    assert rounded(large).item() == 0
    monkeypatch.setenv("OPGRAFT_FLOAT", "unsafe")
    assert rounded(large).item() == 1
    monkeypatch.delenv("OPGRAFT_FLOAT")
    assert rounded(large).item() == 0
    assert rounded.captures == 2


def test_launches_are_told_to_whoever_begins_to_listen() -> None:
    captured = jit(lambda x: x + 1)
    x = memory(1.0)
    for _ in range(5):
        captured(x)
    told: list[str] = []
    with journal.listening(lambda event: told.append(event.kind)):
        captured(x)
    captured(x)
    assert told.count("launch") == 1


def test_a_tensor_that_was_assigned_to_is_read_as_it_is_now() -> None:
    captured = jit(lambda x: x * 2)
    x = memory(1.0)
    for n in range(6):
        assert captured(x).item() == 2 * (n + 1)
        x += 1
        if n % 2:
            x.realize()


def test_what_was_overwritten_in_place_is_not_read_by_its_old_memory() -> None:
    captured = jit(lambda x: x * 2)
    x = memory(*range(64))
    for _ in range(4):
        captured(x)
    old = x.clone().realize()
    x[3:5] = 7.0
    x.realize()
    assert captured(old)[3].item() == 6
    assert captured(x)[3].item() == 14


def test_objects_are_told_by_identity_and_values_by_value() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @jit
        def apply(self, x: Tensor) -> Tensor:
            return x * self.by

    two, three = Scale(2.0), Scale(3.0)
    for n in range(5):
        assert two.apply(memory(n)).item() == 2 * n
        assert three.apply(memory(n)).item() == 3 * n

    class Equal:
        """Equal to all others, and not the same."""

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    assert not Shortcut.serves((Equal(),))
    assert Shortcut.serves((two, 1, "name", None, memory(1.0)))
    assert not Shortcut.serves((np.ones(1),))


def test_variable_sizes_take_the_short_way(long_ways: list[Any]) -> None:
    n, other = Variable("n", 1, 8), Variable("other", 1, 8)
    captured = jit(lambda x, k, m: x[:k].sum() + x[:m].max())
    x = memory(*range(8))
    for size in (3, 5, 2):
        captured(x, n.bind(size), other.bind(4))
    known = len(long_ways)
    for size in range(1, 9):
        found = captured(x, n.bind(size), other.bind(9 - size))
        assert found.item() == size * (size - 1) / 2 + 8 - size
    assert len(long_ways) == known
    assert captured(x, other.bind(2), n.bind(3)).item() == 3  # the variables exchanged: a kind
    assert captured.captures == 1


def test_replays_of_one_kind_have_a_short_way_each(long_ways: list[Any]) -> None:
    weight = memory(1.0).requires_grad_()
    add = jit(lambda x: (weight * x).sum().backward())
    seen = []
    for _ in range(6):
        known = len(long_ways)
        weight.grad = None
        for _ in range(2):  # the first makes the gradient, the second adds to it
            add(memory(2.0))
        assert weight.grad is not None
        assert weight.grad.item() == 4
        seen.append(len(long_ways) - known)
    assert seen[-2:] == [0, 0]
    assert add.captures == 2


def test_a_short_way_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = jit(lambda x: x + 1)
    kinds = [memory(*range(n)) for n in range(1, 9)]
    for _ in range(3):
        for x in kinds:
            captured(x)
    written: list[int] = []
    original = Text.function
    monkeypatch.setattr(
        Text, "function", lambda self, head: (written.append(1), original(self, head))[1]
    )
    for _ in range(3):  # more kinds than are told without a key
        for x in kinds:
            assert captured(x).tolist() == [n + 1 for n in range(x.size)]
    for level in ("strict", "unsafe") * 3:
        with using(FLOAT=level):
            captured(kinds[0])
        captured(kinds[0])
    assert len(written) <= 8


def test_forgetting_forgets_the_short_way() -> None:
    captured = jit(lambda x: x + 1)
    for _ in range(5):
        captured(memory(1.0))
    captured.forget()
    assert (captured.captures, captured.kernels) == (0, 0)
    assert [captured(memory(float(n))).item() for n in range(4)] == [1, 2, 3, 4]


def test_a_replay_that_others_took_the_place_of_is_gone() -> None:
    known = {}
    captured = jit(lambda x: x + known["w"])
    made = {}
    for n in range(2 * REPLAYS):
        known["w"] = memory(float(n))  # and the last one is no more
        for _ in range(3):
            assert captured(memory(1.0)).item() == n + 1
        assert captured._last is not None
        replay = captured._last.replays[0]
        made[id(replay)] = weakref.ref(replay)
        del replay
    gc.collect()
    assert sum(r() is not None for r in made.values()) == REPLAYS


# ---- settings, read once


def test_a_reading_of_settings_holds_until_one_of_them_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPGRAFT_DEBUG", raising=False)
    known = settings.Reading("DEBUG", "CPU_THREADS")
    assert known.values == (0, 0)
    with using(FLOAT="unsafe"):
        assert known.holds()
        with using(CPU_THREADS=1):
            assert not known.holds()
    assert known.holds()
    monkeypatch.setenv("OPGRAFT_DEBUG", "1")
    assert not known.holds()
    assert settings.Reading("DEBUG").values == (1,)
    monkeypatch.delenv("OPGRAFT_DEBUG")
    assert known.holds()
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert not known.holds()


# ---- what a replay costs, in calls


def calls_of(work: Any, *arguments: Any) -> list[str]:
    """The names of the Python functions that a call of `work` goes through."""
    found: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        work(*arguments)
    finally:
        sys.setprofile(None)
    return found


def test_a_replay_goes_through_few_functions() -> None:
    a, b = memory(1, 2), memory(3, 4)
    captured = jit(lambda x, y: x + y)
    for _ in range(4):
        captured(a, b)
    names = calls_of(captured, a, b)
    assert len(names) <= 11, names
    assert names.count("holds") <= 2, names  # the settings of the kind, and those of the launches
    assert "for " not in captured.text


def test_further_kernels_cost_no_python() -> None:
    def chain(count: int) -> list[str]:
        @jit
        def run(x: Tensor) -> Tensor:
            for n in range(count):
                x = (x * 1.5 + float(n)).realize()
            return x

        x = memory(1, 2)
        for _ in range(4):
            run(x)
        return calls_of(run, x)

    assert len(chain(5)) == len(chain(1))


def test_a_size_that_stays_is_bound_once() -> None:
    n, x = Variable("n", 1, 8), memory(*range(8))
    captured = jit(lambda x, k: x[:k] + 1)
    for value in (3, 5, 5, 6):
        captured(x, n.bind(value))
    assert "_bind" in calls_of(captured, x, n.bind(7))
    assert "_bind" not in calls_of(captured, x, n.bind(7))
    assert captured(x, n.bind(2)).tolist() == [1, 2]
    assert captured(x, n.bind(7)).tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_a_shape_of_variable_size_is_worked_out_once() -> None:
    n, x = Variable("n", 1, 8), memory(*range(8))
    captured = jit(lambda x, k: x[:k] + 1)
    for value in (3, 5, 5, 6):
        captured(x, n.bind(value))
    assert "bound" in calls_of(captured, x, n.bind(7))
    assert "bound" not in calls_of(captured, x, n.bind(7))
    assert [captured(x, n.bind(value)).shape for value in (2, 7)] == [(n.bind(2),), (n.bind(7),)]


def test_a_rate_that_stays_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = memory(1.0).requires_grad_()
    optimizer = nn.SGD([weight], lr=0.5)

    @jit
    def step() -> None:
        weight.sum().backward()
        optimizer.step()

    for _ in range(4):
        step()
    copied = []
    original = Buffer.copy_in
    monkeypatch.setattr(
        Buffer, "copy_in", lambda self, data: (copied.append(1), original(self, data))[1]
    )
    for rate, more in ((0.5, 0), (0.25, 1), (0.25, 0), (0.0, 1), (-0.0, 1), (float("nan"), 1)):
        optimizer.lr, before = rate, len(copied)
        step()
        assert len(copied) - before == more, rate


def test_threads_that_replay_one_step_lose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    total = memory(0.0)

    @jit
    def step() -> None:
        total.assign(total + 1)

    for _ in range(4):
        step()
    original = Tensor._stand_for_memory

    def slowly(self: Tensor, storage: Any) -> None:
        time.sleep(0.002)  # in which another thread must not read what is there before
        original(self, storage)

    monkeypatch.setattr(Tensor, "_stand_for_memory", slowly)
    threads = [threading.Thread(target=lambda: [step() for _ in range(4)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.item() == 16


def test_the_text_of_a_replay_is_what_is_run() -> None:
    captured = jit(lambda x, y: x * y)
    assert captured.text == ""
    for n in range(4):
        assert captured(memory(n), memory(2)).item() == 2 * n
    assert captured.text.startswith("def replay(given, memories, values):")
    ((shortcut, _),) = captured._shortcuts
    own = captured.text.split("memory1 = memories[1]\n")[1]
    assert shortcut.text.endswith(own)  # and asks before whether the arguments are of its kind
    captured.forget()
    assert captured.text == ""


def test_a_rate_that_changes_and_comes_back_is_the_one_of_the_call() -> None:
    x = memory(0.0)
    optimizer = nn.SGD([x.requires_grad_()], lr=0.5)

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (x * 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    first, other = 0.5, 0.25
    seen = []
    for rate in (first, first, first, other, first, 1, 1.0, other):
        optimizer.lr = rate
        before = x.item()
        step()
        seen.append((before - x.item()) / 2)
    assert seen == [0.5, 0.5, 0.5, 0.25, 0.5, 1, 1, 0.25]
