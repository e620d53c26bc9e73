"""Lists of launches, captured once and replayed with other inputs and variables."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from opgraft.api import Device, Step, compile_kernel
from opgraft_conformance import Fault
from opgraft_conformance.samples import SIZE, affine, equal, prefix, put, step, sum_of, take

HINT = "Device.prepare and its LaunchList"


def ints(*values: int) -> np.ndarray:
    """A constant array for each value, one behind the other."""
    return np.repeat(np.array(values, np.int32), SIZE)


@pytest.mark.must
def test_a_list_is_its_steps(device: Device) -> None:
    """A list gives what its launches give one by one, however often it is run."""
    kernels = [compile_kernel(device, step(SIZE, times, plus)) for times, plus in ((3, 1), (2, -5))]
    one, other = put(device, ints(1)), put(device, ints(1))
    prepared = device.prepare([(kernels[turn % 2], [one], ()) for turn in range(6)])
    for _ in range(3):
        prepared.run()
        for turn in range(6):
            kernels[turn % 2].run([other])
    equal("a list of six, run three times", take(one), take(other), kernels[0], HINT)


@pytest.mark.must
def test_no_steps(device: Device) -> None:
    """An empty list may be run."""
    prepared = device.prepare([])
    assert prepared.run() is None
    seconds = prepared.run(wait=True)
    assert seconds is not None
    assert seconds >= 0


@pytest.mark.must
def test_inputs_are_exchanged(device: Device) -> None:
    """Each run takes its own inputs; results that were read stay what they were."""
    add = compile_kernel(device, sum_of(2))
    a, b, out = put(device, ints(1)), put(device, ints(2)), device.buffer(4 * SIZE)
    prepared = device.prepare([(add, [out, a, b], ())], [a, b])
    seen = []
    for turn in range(6):
        prepared.run([put(device, ints(turn)), put(device, ints(10 * turn))])
        seen.append(take(out))
    for turn, got in enumerate(seen):
        equal(f"replay {turn}, with inputs of its own", got, ints(11 * turn), add, HINT)
    prepared.run([b, b])
    equal("a replay with one buffer for two inputs", take(out), ints(4), add, HINT)
    prepared.run([b, a])
    equal("a replay with the inputs changed over", take(out), ints(3), add, HINT)


@pytest.mark.must
def test_inputs_that_are_written(device: Device) -> None:
    """An input may be what the list writes to."""
    kernel = compile_kernel(device, step())
    first = put(device, ints(0))
    prepared = device.prepare([(kernel, [first], ())] * 3, [first])
    other = put(device, ints(5))
    prepared.run([other])
    equal("an input that the list writes to", take(other), ints(((5 * 3 + 1) * 3 + 1) * 3 + 1))
    equal("the buffer it was prepared with", take(first), ints(0), kernel, HINT)


@pytest.mark.must
def test_views_of_inputs(device: Device) -> None:
    """A step's view of an input is exchanged for the same part of the new one."""
    add = compile_kernel(device, sum_of(2))
    given, out = put(device, ints(1, 2, 3)), put(device, ints(0, 0))
    part = 4 * SIZE
    steps: list[Step] = [
        (add, [out.view(0, part), given.view(0, part), given.view(2 * part, part)], ()),
        (add, [out.view(part, part), given.view(part, part), out.view(0, part)], ()),
    ]
    prepared = device.prepare(steps, [given])
    for turn in range(3):
        fresh = put(device, ints(10 * turn, 20 * turn, 30 * turn))
        prepared.run([fresh])
        wanted = ints(40 * turn, 60 * turn)
        equal(f"replay {turn}, of views of an input", take(out), wanted, add, HINT)
    middle = put(device, ints(9, 7, 8, 6, 9))
    prepared.run([middle.view(part, 3 * part)])
    equal("a replay whose input is a view itself", take(out), ints(13, 21), add, HINT)


@pytest.mark.must
def test_variables_are_exchanged(device: Device) -> None:
    """Variables are given by name; one that is not keeps its value; extents follow them."""
    size = 200
    kernel = compile_kernel(device, prefix(size, size))
    out = put(device, np.zeros(size, np.int32))
    prepared = device.prepare([(kernel, [out], (3,))])
    places = np.arange(size)
    for given, count in ((None, 3), ({"n": 7}, 7), (None, 7), ({"n": 0}, 0), ({"n": 200}, 200)):
        out.copy_in(np.full(size, -1, np.int32))
        prepared.run((), given)
        wanted = np.where(places < count, places + 1, -1)
        equal(f"a replay with the variables {given}", take(out), wanted, kernel, HINT)
    prepared.run((), {"of nobody": 1})
    equal("a replay with a variable of no kernel", take(out), places + 1, kernel, HINT)


@pytest.mark.must
def test_a_long_list(device: Device) -> None:
    """Two hundred launches that depend on each other, replayed."""
    kernels = [compile_kernel(device, affine(times=1, plus=plus)) for plus in (1, 2, 3)]
    held = [put(device, ints(0)) for _ in range(7)]
    steps: list[Step] = [
        (kernels[turn % 3], [held[(turn + 1) % 7], held[turn % 7]], ()) for turn in range(200)
    ]
    added = sum(turn % 3 + 1 for turn in range(200))
    prepared = device.prepare(steps, [held[0]])
    for turn in range(3):
        given = put(device, ints(1000 * turn))
        prepared.run([given], wait=turn == 1)
        last = held[200 % 7]
        equal(f"replay {turn} of 200 launches", take(last), ints(1000 * turn + added), None, HINT)


@pytest.mark.must
def test_a_list_keeps_what_it_needs(device: Device) -> None:
    """A list keeps its kernels and its other buffers alive, and no input beyond a run."""
    kernel = compile_kernel(device, sum_of(2, name="kept"))
    given, fixed, out = put(device, ints(1)), put(device, ints(40)), put(device, ints(0))
    prepared = device.prepare([(kernel, [out, given, fixed], ())], [given])
    first = weakref.ref(given)
    del given, fixed, kernel
    device.kernels.clear()
    gc.collect()
    taken = [put(device, ints(-1)) for _ in range(10)]
    later = put(device, ints(2))
    prepared.run([later])
    equal("a list whose buffers nobody else has", take(out), ints(42), None, HINT)
    second = weakref.ref(later)
    del later
    device.synchronize()
    gc.collect()
    for which, reference in (("it was prepared with", first), ("of its last run", second)):
        if reference() is not None:
            raise Fault(f"a list keeps the input alive that {which}", hint=HINT)
    del taken


@pytest.mark.must
def test_wrong_inputs(device: Device) -> None:
    """Too few inputs, and inputs of another size, are refused; nothing runs."""
    kernel = compile_kernel(device, affine())
    given, out = put(device, ints(1)), put(device, ints(0))
    prepared = device.prepare([(kernel, [out, given], ())], [given])
    wrong = {"none": [], "two": [given, given], "a shorter one": [device.buffer(4)]}
    for what, inputs in wrong.items():
        with pytest.raises(ValueError, match=r"input|takes"):
            prepared.run(inputs)
        equal(f"the output after a run with {what} was refused", take(out), ints(0))
    prepared.run([given])
    equal("a run after that", take(out), ints(10), kernel, HINT)


@pytest.mark.must
def test_lists_and_launches_in_order(device: Device) -> None:
    """Lists, single launches and copies happen in the order of their calls."""
    add, double = (compile_kernel(device, step(SIZE, t, p)) for t, p in ((1, 1), (2, 0)))
    buffer = put(device, ints(0))
    lists = [device.prepare([(add, [buffer], ())] * 3), device.prepare([(double, [buffer], ())])]
    wanted = 0
    for turn in range(12):
        lists[0].run()
        lists[1].run()
        add.run([buffer])
        wanted = (wanted + 3) * 2 + 1
        if turn % 4 == 3:
            equal(f"lists and launches in turn, {turn}", take(buffer), ints(wanted), add, HINT)
            wanted = turn
            buffer.copy_in(ints(wanted))


@pytest.mark.must
def test_lists_in_threads(device: Device) -> None:
    """Four threads replay lists of their own at once."""
    kernel = compile_kernel(device, affine(times=2, plus=1))
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        given, between, out = put(device, ints(0)), put(device, ints(0)), put(device, ints(0))
        prepared = device.prepare(
            [(kernel, [between, given], ()), (kernel, [out, between], ())], [given]
        )
        barrier.wait(60)
        for turn in range(8):
            value = 100 * number + turn
            prepared.run([put(device, ints(value))])
            what = f"replay {turn} in thread {number}"
            equal(what, take(out), ints(value * 4 + 3), kernel, HINT)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
