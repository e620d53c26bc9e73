"""Lists of launches that run again on other inputs."""

from __future__ import annotations

import threading
import weakref

import pytest

from opgraft import journal, settings
from opgraft.ir import UOp
from opgraft.runtime import Executable

from .host_device import HostDevice


def add_one(target: memoryview, source: memoryview) -> None:
    for place, value in enumerate(source):
        target[place] = value + 1


def fill(target: memoryview, value: int) -> None:
    target[:] = bytes([value] * target.nbytes)


@pytest.fixture
def device() -> HostDevice:
    return HostDevice()


@pytest.fixture
def adder(device: HostDevice) -> Executable:
    return device.kernel(add_one, 2)


def test_steps_run_in_order_and_their_times_add_up(device: HostDevice, adder: Executable) -> None:
    a, b = device.buffer(1), device.buffer(1)
    a.copy_in(b"\0")
    assert device.run_list([(adder, [b, a], ()), (adder, [a, b], ())], wait=True) == 1.0
    assert a.bytes() == b"\2"
    assert device.run_list([(adder, [b, a], ())]) is None


def test_inputs_are_exchanged_and_parts_of_them_too(device: HostDevice, adder: Executable) -> None:
    given, out = device.buffer(4), device.buffer(2)
    steps = [(adder, [out, given.view(1, 2)], ()), (adder, [given.view(3, 1), out.view(0, 1)], ())]
    prepared = device.prepare(steps, [given])
    for start in (10, 20):
        fresh = device.buffer(4)
        fresh.copy_in(bytes(range(start, start + 4)))
        prepared.run([fresh])
        assert out.bytes() == bytes([start + 2, start + 3])
        assert fresh.bytes() == bytes([start, start + 1, start + 2, start + 3])
        fresh = device.buffer(4)


def test_a_list_keeps_no_input_alive(device: HostDevice, adder: Executable) -> None:
    given, out = device.buffer(1), device.buffer(1)
    prepared = device.prepare([(adder, [out, given], ())], [given])
    first = weakref.ref(given)
    del given
    assert first() is None
    later = device.buffer(1)
    prepared.run([later])
    second = weakref.ref(later)
    del later
    assert second() is None


def test_other_inputs_than_the_list_takes_are_refused(
    device: HostDevice, adder: Executable
) -> None:
    given, out = device.buffer(1), device.buffer(1)
    prepared = device.prepare([(adder, [out, given], ())], [given])
    with pytest.raises(ValueError, match="takes 1 inputs, not 0"):
        prepared.run()
    with pytest.raises(ValueError, match="input 0 takes 1 bytes, not 2"):
        prepared.run([device.buffer(2)])


def test_variables_are_exchanged_by_name_and_stay(device: HostDevice) -> None:
    kernel = device.kernel(fill, 1, variables=(UOp.variable("n", 0, 255),))
    a, b = device.buffer(2), device.buffer(1)
    prepared = device.prepare([(kernel, [a], (1,)), (kernel, [b], (2,))])
    prepared.run()
    assert a.bytes() + b.bytes() == b"\1\1\2"
    prepared.run(variables={"n": 7, "unknown": 3})
    assert a.bytes() + b.bytes() == b"\7\7\7"
    prepared.run()
    assert a.bytes() + b.bytes() == b"\7\7\7"


def test_one_thread_at_a_time_runs_a_list(device: HostDevice) -> None:
    between = device.buffer(1)
    begun, went_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def first(target: memoryview, value: int) -> None:
        target[0] = value
        if not begun.is_set():
            begun.set()
            went_on.wait(0.2)  # for ever, if the other thread could go on

    def second(source: memoryview) -> None:
        seen.append(source[0])
        went_on.set()

    kernel = device.kernel(first, 1, variables=(UOp.variable("n", 0, 255),))
    prepared = device.prepare(
        [(kernel, [between], (0,)), (device.kernel(second, 1), [between], ())]
    )
    thread = threading.Thread(target=prepared.run, kwargs={"variables": {"n": 1}})
    thread.start()
    begun.wait()
    prepared.run(variables={"n": 2})
    thread.join()
    assert seen == [1, 2]


def test_launches_are_timed_one_by_one_for_those_who_watch(
    device: HostDevice, adder: Executable, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = device.buffer(1), device.buffer(1)
    prepared = device.prepare([(adder, [b, a], ()), (adder, [a, b], ())])
    with settings.using(DEBUG=1):
        assert prepared.run() is None
    assert capsys.readouterr().err == "add_one: 500.000 ms\n" * 2
    events: list[journal.Event] = []
    with journal.listening(events.append):
        prepared.run()
    assert [(event.kind, event.name) for event in events] == [("launch", "add_one")] * 2
