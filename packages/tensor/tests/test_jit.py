"""A captured function gives what the function itself gives, call after call."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opgraft import catalog, errors
from opgraft_tensor import Tensor, jit, manual_seed, nn
from opgraft_tensor.jit import CaptureError

CALLS = 5


def both(function: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    """The function and its captured self give the same, bit for bit, in each of the calls."""
    captured = jit(function)
    for arguments in calls:
        wanted = function(*[Tensor(a) for a in arguments])
        found = captured(*[Tensor(a) for a in arguments])
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    assert captured.captures == 1


# ---- values


def test_the_first_calls_agree_and_results_share_no_memory() -> None:
    captured = jit(lambda x: x * 2 + 1)
    results = [captured(Tensor([n])) for n in (1, 2, 3, 4)]
    assert [r.tolist() for r in results] == [[3], [5], [7], [9]]
    assert len({id(r.memory().buffer) for r in results}) == 4


def test_every_length_is_a_kind_of_its_own() -> None:
    captured = jit(lambda t: t * 3)
    for _ in range(3):
        for n in (2, 3, 4, 5):
            assert captured(Tensor(np.arange(n))).tolist() == [3 * i for i in range(n)]
    assert captured.captures == 4


def test_a_number_is_part_of_the_kind() -> None:
    @jit
    def scaled(x: Tensor, by: float) -> Tensor:
        return x * by

    found = [scaled(Tensor([1.0]), by).item() for by in (2, 2, 2, 3, 3, 3, 2.5, True)]
    assert found == [2, 2, 2, 3, 3, 3, 2.5, 1]
    assert scaled.captures == 2


def test_what_a_name_outside_holds_is_looked_up_at_each_replay() -> None:
    weight = Tensor([1.0, 2.0])
    captured = jit(lambda x: x * weight)
    for n in range(CALLS):
        weight += 1
        assert captured(Tensor([1.0, 1.0])).tolist() == [2.0 + n, 3.0 + n]


def test_two_names_of_one_memory_outside_are_told_apart() -> None:
    first = Tensor([1.0, 2.0]).realize()
    second = first.clone()
    captured = jit(lambda x: x + second)
    for n in range(CALLS):
        assert captured(Tensor([0.0, 0.0])).tolist() == [1.0, 2.0], n
        first += 10


def test_a_lazy_tensor_outside_is_not_computed_again_from_what_it_was_made_of() -> None:
    base = Tensor([1.0])
    lazy = base + 1
    captured = jit(lambda x: x + lazy)
    for _ in range(CALLS):
        assert captured(Tensor([0.0])).tolist() == [2.0]
        base += 5


def test_numpy_arrays_are_copied_in_at_each_call() -> None:
    captured = jit(lambda x: x.sum())
    data = np.arange(4.0, dtype=np.float32)
    for n in range(CALLS):
        data[0] = n
        assert captured(data).item() == 6 + n


def test_containers_come_and_go() -> None:
    @jit
    def split(pair: dict[str, Any]) -> dict[str, Any]:
        x, (y, z) = pair["x"], pair["rest"]
        return {"sum": x + y, "both": [x * z, (y, "name", None)]}

    for n in range(CALLS):
        given = {"x": Tensor([n]), "rest": (Tensor([2]), Tensor([3]))}
        found = split(given)
        assert found["sum"].tolist() == [n + 2]
        assert found["both"][0].tolist() == [3 * n]
        assert found["both"][1][0].tolist() == [2]
        assert found["both"][1][1:] == ("name", None)


def test_one_tensor_twice_is_another_kind_than_two() -> None:
    captured = jit(lambda a, b: a - b)
    for n in range(CALLS):
        a, b = Tensor([float(n)]), Tensor([1.0])
        assert captured(a, a).item() == 0
        assert captured(a, b).item() == n - 1
    assert captured.captures == 2


def test_results_that_are_arguments_or_constants() -> None:
    outside = Tensor([7.0])

    @jit
    def same(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return x, outside, Tensor([1.0, 2.0]), Tensor.ones(3)

    for n in range(CALLS):
        given = Tensor([float(n)])
        a, b, c, d = same(given)
        assert a is given
        assert b is outside
        assert (a.tolist(), b.tolist()) == ([n], [7.0])
        assert (c.tolist(), d.tolist()) == ([1, 2], [1, 1, 1])
        c += 5
        d *= 2


def test_one_result_twice_is_one_tensor_twice() -> None:
    @jit
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        return y, y

    for n in range(CALLS):
        a, b = twice(Tensor([n]))
        assert a is b
        assert a.item() == n + 1


# ---- what a function leaves behind


def test_a_tensor_kept_elsewhere_follows_each_call() -> None:
    kept: list[Tensor] = []

    @jit
    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        t1 = x + 1
        kept[:] = [t1 * 10]
        t2 = t1 * 2
        return t1.reshape(1, 1), t2 + 3

    found = []
    for n in (1.0, 5.0, 9.0):
        a, b = parts(Tensor([n]))
        found.append((a.item(), b.item(), kept[0].item()))
    assert found == [(2, 7, 20), (6, 15, 60), (10, 23, 100)]


def test_a_loop_with_a_temporary() -> None:
    @jit
    def loop(x: Tensor) -> Tensor:
        acc = Tensor.zeros(1)
        for _ in range(4):
            _ = (x * 5).realize()
            acc = acc * x + 1
        return acc

    assert [loop(Tensor([3.0])).item() for _ in range(CALLS)] == [40] * CALLS


def test_assignments_to_known_tensors_and_to_arguments_are_done_again() -> None:
    total = Tensor([0.0])

    @jit
    def add(x: Tensor) -> Tensor:
        nonlocal total
        total += x
        x *= 2
        return total * 10

    wanted = 0.0
    for n in range(1, CALLS + 1):
        given = Tensor([float(n)])
        wanted += n
        assert add(given).item() == 10 * wanted
        assert total.item() == wanted
        assert given.item() == 2 * n


def test_memory_made_inside_begins_anew_at_each_replay() -> None:
    @jit
    def stored(x: Tensor) -> Tensor:
        scratch = Tensor([0.0] * 64).realize()
        scratch[1:3] = x
        scratch.realize()
        scratch[3:5] += x
        return scratch.sum()

    for n in range(CALLS):
        assert stored(Tensor([float(n)] * 2)).item() == 4 * n


def test_gradients_accumulate_as_without_capture() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[list[float]]:
        weight = Tensor([1.0, 2.0], requires_grad=True)

        def forward(x: Tensor) -> Tensor:
            loss = (x * weight).sum()
            loss.backward()
            return loss

        step, found = wrap(forward), []
        for n in range(CALLS):
            step(Tensor([float(n), 1.0]))
            assert weight.grad is not None
            found.append(weight.grad.tolist())
            if n == 2:
                weight.grad = None
                step(Tensor([1.0, 1.0]))
        return found

    assert run(jit) == run(lambda f: f)


def test_gradients_of_arguments_arrive_at_what_was_passed() -> None:
    @jit
    def forward(x: Tensor) -> Tensor:
        loss = x.square().sum()
        loss.backward()
        return loss

    for n in range(CALLS):
        given = Tensor([float(n), 2.0], requires_grad=True)
        assert forward(given).item() == n * n + 4
        assert given.grad is not None
        assert given.grad.tolist() == [2 * n, 4]


def test_what_is_returned_carries_no_gradient() -> None:
    weight = Tensor([2.0], requires_grad=True)
    captured = jit(lambda x: x * weight)
    for _ in range(CALLS):
        assert not captured(Tensor([1.0])).requires_grad


# ---- training


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm(8)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(x)).relu()))


OPTIMIZERS: dict[str, Callable[[list[Tensor]], Any]] = {
    "sgd": lambda p: nn.SGD(p, lr=0.1),
    "momentum": lambda p: nn.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: nn.Adam(p, lr=0.01),
    "adamw": lambda p: nn.AdamW(p, lr=0.01),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_captured_is_training(name: str) -> None:
    """Batch statistics, dropout, state of the optimizer, a rate that changes on the way."""

    def run(wrap: Callable[[Any], Any]) -> tuple[list[float], list[np.ndarray]]:
        manual_seed(3)
        net = Net()
        optimizer = OPTIMIZERS[name](net.parameters())

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = nn.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step(loss)
            return loss

        taken = wrap(step)
        draw = np.random.default_rng(0)
        losses = []
        for n in range(8):
            x = Tensor(draw.standard_normal((16, 6), dtype=np.float32))
            y = Tensor(draw.integers(0, 3, 16))
            if n == 5:
                optimizer.lr *= 0.5
            losses.append(taken(x, y).item())
        return losses, [t.numpy() for t in net.state_dict().values()]

    losses, state = run(jit)
    wanted, wanted_state = run(lambda f: f)
    assert losses == wanted
    for found, right in zip(state, wanted_state, strict=True):
        np.testing.assert_array_equal(found, right)


def test_a_replay_takes_no_more_kernels_than_the_call() -> None:
    captured = jit(lambda x: (x * 2).sum() + x.max())
    for n in range(3):
        captured(Tensor(np.arange(8.0) + n))
    assert captured.kernels == 1


def test_random_numbers_are_drawn_anew() -> None:
    def three(wrap: Callable[[Any], Any]) -> list[Any]:
        manual_seed(11)
        draw = wrap(lambda x: (x + Tensor.rand(3), Tensor.permutation(5)))
        return [[t.tolist() for t in draw(Tensor([0.0]))] for _ in range(CALLS)]

    assert three(jit) == three(lambda f: f)


# ---- other devices, methods, nesting


def test_on_the_interpreter_and_across_devices() -> None:
    @jit
    def across(x: Tensor) -> Tensor:
        there = (x * 2).to("INTERP") + 1
        return there.to(x.device) * 10

    for n in range(CALLS):
        assert across(Tensor([n])).tolist() == [20 * n + 10]
    other = jit(lambda x: x.cumsum(0))
    for n in range(CALLS):
        assert other(Tensor([n, 1], device="INTERP")).tolist() == [n, n + 1]


def test_a_method_and_a_captured_function_inside_another() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = Tensor([by])

        @jit
        def apply(self, x: Tensor) -> Tensor:
            return x * self.by

    two, three = Scale(2), Scale(3)
    outer = jit(lambda x: two.apply(x) + three.apply(x))
    for n in range(CALLS):
        assert two.apply(Tensor([float(n)])).item() == 2 * n
        assert three.apply(Tensor([float(n)])).item() == 3 * n
        assert outer(Tensor([float(n)])).item() == 5 * n


# ---- errors


def test_asking_for_values_inside_is_refused() -> None:
    @jit
    def peeks(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 1 else x

    assert peeks(Tensor([1.0])).item() == 1
    with pytest.raises(CaptureError, match="being captured") as caught:
        peeks(Tensor([1.0]))
    assert "where()" in str(caught.value)
    assert Tensor([2.0]).item() == 2


def test_an_error_inside_leaves_everything_as_it_was() -> None:
    weight = Tensor([3.0], requires_grad=True)
    calls = 0

    @jit
    def fails(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("once")
        return x * weight

    assert fails(Tensor([1.0])).item() == 3
    with pytest.raises(RuntimeError, match="once"):
        fails(Tensor([1.0]))
    assert weight.tolist() == [3]
    (weight * 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2]
    assert [fails(Tensor([float(n)])).item() for n in range(3)] == [0, 3, 6]


def test_what_is_not_hashable_is_named() -> None:
    with pytest.raises(CaptureError, match="bytearray"):
        jit(lambda x: x)(bytearray(b"x"))
    assert issubclass(CaptureError, errors.OpgraftError)


def test_a_known_tensor_that_is_replaced_is_found_again() -> None:
    class Box:
        value = Tensor([1.0])

    captured = jit(lambda x: x + Box.value)
    for n in range(CALLS):
        Box.value = Tensor([float(n)])
        assert captured(Tensor([0.0])).item() == n


def test_a_known_tensor_that_is_returned_and_replaced_is_found_again() -> None:
    class Box:
        value = Tensor([1.0])

    captured = jit(lambda x: (x + 1, Box.value))
    for n in range(CALLS):
        Box.value = Tensor([float(n)])
        assert [t.item() for t in captured(Tensor([0.0]))] == [1, n]
        assert captured(Tensor([0.0]))[1] is Box.value


# ---- threads and memory


def test_threads_get_their_own_values() -> None:
    captured = jit(lambda x: x * 2)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for n in range(20):
            data = np.full(20_000, seed * 100 + n, np.float32)
            if not np.array_equal(captured(Tensor(data)).numpy(), data * 2):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert captured.captures == 1


def test_other_threads_go_on_during_a_capture() -> None:
    """What they make and move is theirs, and no replay does it again."""
    theirs = Tensor([0.0])
    ready, done = threading.Event(), threading.Event()

    def other() -> None:
        nonlocal theirs
        ready.wait()
        theirs += 1
        assert (theirs * 2).item() == 2
        done.set()

    calls = 0

    @jit
    def captured(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            ready.set()
            assert done.wait(30)
        return x + 1

    thread = threading.Thread(target=other)
    thread.start()
    for n in range(CALLS):
        assert captured(Tensor([n])).item() == n + 1
    thread.join()
    theirs += 5
    captured(Tensor([0]))
    assert theirs.item() == 6


def test_replays_keep_nothing_alive() -> None:
    captured = jit(lambda x: (x * 2).sum())
    usage = catalog.Device["CPU"].allocator.usage
    for _ in range(3):
        captured(Tensor(np.ones(1 << 18, np.float32), device="CPU"))
    gc.collect()
    base, references = usage.bytes, []
    gc.disable()
    try:
        for n in range(200):
            given = Tensor(np.full(1 << 18, n, np.float32), device="CPU")
            assert captured(given).item() == 2 * n * (1 << 18)
            references.append(weakref.ref(given))
            del given
            assert usage.bytes <= base + (3 << 20)
        assert not [r for r in references if r() is not None]
        assert usage.bytes <= base
    finally:
        gc.enable()


def test_what_lives_inside_only_shares_an_arena() -> None:
    @jit
    def chain(x: Tensor) -> Tensor:
        for _ in range(12):
            x = (x + 1).realize()
        return x

    for n in range(3):
        assert chain(Tensor(np.full(1 << 16, n, np.float32), device="CPU"))[0].item() == n + 12
    usage = catalog.Device["CPU"].allocator.usage
    gc.collect()
    before = usage.bytes
    chain.forget()
    gc.collect()
    # 11 intermediate values of 256 KiB, two of which live at one time
    assert 2 * (1 << 18) <= before - usage.bytes < 4 * (1 << 18)
