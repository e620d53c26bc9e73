"""Life of a device: found, absent, opened, closed, opened again, forked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opgraft
from opgraft.api import Device
from opgraft_conformance import Fault, apart, not_claimed
from opgraft_conformance.apart import told
from opgraft_conformance.samples import equal, put, take

OBSERVE = """
def started():
    "What this process has going: open devices, threads, children."
    tasks = "/proc/self/task"
    threads = len(os.listdir(tasks)) if os.path.isdir(tasks) else threading.active_count()
    children = f"{tasks}/{os.getpid()}/children"
    count = len(open(children).read().split()) if os.path.exists(children) else 0
    return [opgraft.Device.opened(), threads, count]
"""


# ---- found


@pytest.mark.must
def test_name(device: Device) -> None:
    """The device has the name that it is asked for by, and the catalogue hands out the same one."""
    wanted = device.kind if device.index == 0 else f"{device.kind}:{device.index}"
    if device.name != wanted or device.kind != device.kind.upper():
        raise Fault("the device has another name", {"got": device.name, "expected": wanted})
    assert opgraft.Device[device.name.lower()] is device


@pytest.fixture(scope="module")
def look(device: Device) -> dict[str, Any]:
    """What a new process sees of the device without opening it."""
    code = """
before = started()
opgraft.Device.canonical(name), name in opgraft.Device, opgraft.Device.names()
opgraft.Device.listing(), opgraft.Device.pairs(name)
probe = REGISTRY.device(kind, name).item.probe
found = probe()
spent = []
for _ in range(5):
    begin = time.process_time()
    probe()
    spent.append(time.process_time() - begin)
answer(dict(before=before, after=started(), count=found.count, reason=found.reason,
            seconds=min(spent)))
"""
    found: dict[str, Any] = told(OBSERVE + code, device)
    return found


@pytest.mark.must
def test_listing_starts_nothing(look: dict[str, Any]) -> None:
    """Import, naming, listing and the probe open no device and start no thread or process."""
    if look["before"] != look["after"]:
        words = "devices open {}, threads {}, child processes {}"
        raise Fault(
            "naming or listing the device starts something",
            {which: words.format(*look[which]) for which in ("before", "after")},
            hint="the plugin's import, opgraft_devices(), or DeviceSpec.probe",
        )


@pytest.mark.must
def test_probe(device: Device, look: dict[str, Any]) -> None:
    """The probe finds the device that opens, and raises nothing."""
    if look["count"] <= device.index:
        raise Fault(
            f"{device.name} opens, and its probe says that it is not there",
            {"count": look["count"], "reason": look["reason"] or "none given"},
            hint="DeviceSpec.probe",
        )


@pytest.mark.should
def test_probe_is_quick(look: dict[str, Any]) -> None:
    """A probe takes well under 100 ms of the processor's time (10 ms are promised)."""
    if look["seconds"] > 0.1:
        raise Fault(
            "the probe is slow",
            {"takes": f"{look['seconds'] * 1e3:.0f} ms", "expected": "under 10 ms"},
            hint="DeviceSpec.probe: look for the driver, do not start it",
        )


@pytest.mark.should
def test_no_such_index(device: Device) -> None:
    """A device of an index that is not there is an error that names it."""
    name = f"{device.kind}:999"
    code = """
try:
    answer([True, opgraft.Device[arguments[1]].name])
except errors.DeviceError as error:
    answer([False, str(error)])
"""
    opens, text = told(code, device, name)
    if opens and text != name:
        raise Fault("another device was opened", {"asked": name, "got": text})
    if not opens:
        _check_words(text, device, name)


@pytest.mark.must
def test_absent(device: Device, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Case F04: where the driver is absent, listing works, and using it says what is missing.

    A device that opens all the same has to compile and run a kernel, or to say why it cannot: its
    driver may look for a compiler or a linker only then. The process gets an emptied environment:
    no PATH, no HOME, no variable but those that the author names with --opgraft-absent, under
    which the device must be absent.
    """
    given: list[str] = request.config.getoption("--opgraft-absent")
    env = {"PYTHONPATH": apart.environment()["PYTHONPATH"], "OPGRAFT_CACHE": str(tmp_path)}
    env |= {"PATH": "", **dict(one.split("=", 1) for one in given)}
    if "SYSTEMROOT" in os.environ:  # without it Windows starts no Python
        env["SYSTEMROOT"] = os.environ["SYSTEMROOT"]
    code = """
(listed,) = [row for row in opgraft.Device.listing() if row.name == kind]
check_works(opgraft.Device["INTERP"])
text = raw = ""
opened = False
try:
    device = opgraft.Device[name]
    opened = True
    check_works(device)
except errors.OpgraftError as error:
    text = str(error)
except Exception as error:
    raw = f"{type(error).__name__}: {error}"
answer([listed.count, listed.reason, text, raw, opened])
"""
    count, reason, text, raw, opened = told(code, device, env=env)
    if raw and not (given and opened):
        raise Fault(
            f"{'using it' if opened else 'opening'} raises an error that is not opgraft's",
            {"got": raw, "expected": "a DeviceError: what was looked for, where, what to do"},
            hint="DeviceSpec.open, and the factory of the compiler pair",
        )
    if not given and not text:
        return  # what it needs, it finds without any variable
    if not text:
        raise Fault(
            f"{device.name} opens in the environment in which it is declared to be absent",
            {"environment": " ".join(given)},
            hint="--opgraft-absent",
        )
    _check_words(text, device, device.kind)
    if count == 0 and not reason:
        raise Fault(
            "the probe finds no device and does not say why", hint="Probe(0, 'what was looked for')"
        )


def _check_words(text: str, device: Device, name: str) -> None:
    """An error that opening gave is one that the backend wrote, and names the device."""
    if text.startswith(f"{device.kind} does not open: "):
        raise Fault(
            "opening raises an error that the backend has not put into words",
            {"got": text, "expected": "a DeviceError: what was looked for, where, what to do"},
            hint="DeviceSpec.open, and the factory of the compiler pair",
        )
    if device.kind not in text.upper():
        raise Fault("the error does not name the device", {"got": text, "expected": name})


# ---- opened and closed


@pytest.mark.must
def test_open_close_open(device: Device) -> None:
    """A device can be closed and opened again, and works each time."""
    code = """
kept = []
for turn in range(3):
    device = opgraft.Device[name]
    assert opgraft.Device[name] is device
    check_works(device, turn)
    kept.append(device)
    opgraft.Device.close()
    assert opgraft.Device.opened() == []
assert len({id(device) for device in kept}) == 3, "a closed device was handed out again"
answer(True)
"""
    told(code, device)


@pytest.mark.should
def test_memory_outlives_close(device: Device) -> None:
    """Buffers that are alive when their device is closed keep their content, and can be freed."""
    code = """
device = opgraft.Device[name]
buffer = put(device, np.arange(1000, dtype=np.int32))
opgraft.Device.close()
content = take(buffer).tolist()
del buffer, device
answer(content == list(range(1000)))
"""
    if told(code, device) is not True:
        raise Fault("a buffer lost its content when its device was closed", hint="Device.close")


@pytest.mark.must
def test_end_of_process(device: Device) -> None:
    """A process ends with code 0 and in silence, whatever is alive: buffers, kernels, launches."""
    code = """
device = opgraft.Device[name]
executable = compile_kernel(device, affine())
buffers = [device.buffer(4 * SIZE) for _ in range(20)]
views = [b.view(4, 8) for b in buffers]
prepared = device.prepare([(executable, buffers[:2], ())], buffers[1:2])
executable.run(buffers[:2])
prepared.run(buffers[1:2])
cycle = [buffers]
cycle.append(cycle)
class Late:  # something that is finalised late and holds all of it
    def __init__(self): self.held = [device, buffers, views, executable, prepared]
    def __del__(self): self.held.clear()
import builtins
builtins.late = Late()
answer(True)
"""
    done = apart.start(apart.COMMON + code, [device.name], apart.environment(), apart.SECONDS)
    if done.returncode or done.stderr.strip():
        raise Fault(
            "a process that used the device does not end well",
            {"exit": apart.how_it_ended(done.returncode), "written": done.stderr.strip()[-2000:]},
            hint="Allocator.free and Device.close at the interpreter's exit",
        )


@pytest.mark.must
def test_second_device(device: Device) -> None:
    """Several devices of one kind: own names, own memory, kernels on each, copies between them."""
    code = """
spec = REGISTRY.device(kind, name).item
other = f"{kind}:{1 if name == kind else 0}"
if spec.probe().count < 2:
    answer("")
else:
    a, b = opgraft.Device[name], opgraft.Device[other]
    assert a is not b and a.name != b.name, (a.name, b.name)
    check_works(a)
    check_works(b)
    there = put(b, np.arange(SIZE, dtype=np.int32))
    here = a.buffer(there.nbytes)
    here.copy_from(there)
    equal("a copy between two devices", take(here), np.arange(SIZE))
    there.copy_in(np.zeros(SIZE, np.int32))
    equal("memory of two devices", take(here), np.arange(SIZE))
    answer(b.name)
"""
    if not told(code, device):
        not_claimed("a second device of the kind")


@pytest.mark.must
def test_copies_to_and_from_another_kind(device: Device, reference: Device) -> None:
    """Memory can be copied to and from another kind of device, parts of buffers too."""
    given = np.arange(1001, dtype=np.int32)
    for source, target in ((device, reference), (reference, device)):
        there = put(source, given)
        here = target.buffer(there.nbytes)
        here.copy_from(there)
        what = f"a copy from {source.name} to {target.name}"
        equal(what, take(here), given)
        here.view(4, 40).copy_from(there.view(400, 40))
        wanted = given.copy()
        wanted[1:11] = given[100:110]
        equal(f"{what}, of a part", take(here), wanted)


# ---- forked

FORK = """
def forked(work):
    "What `work` answers in a forked child; None where the child hangs."
    import json, select, signal
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = json.dumps(work())
        except BaseException as error:
            text = json.dumps([type(error).__name__, str(error)])
        os.write(writes, text.encode())
        os._exit(0)
    os.close(writes)
    ready, _, _ = select.select([reads], [], [], 30)
    found = os.read(reads, 1 << 16) if ready else b""
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready:
        return ["hang", "no answer within 30 s"]
    if not found:
        return ["crash", f"wait status {status}"]
    return json.loads(found)

def works(device, salt):
    def work():
        check_works(device() if callable(device) else device, salt)
        return ["", "works"]
    return work
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.mark.must
@needs_fork
def test_fork_before_open(device: Device) -> None:
    """Case F08: naming and listing start nothing; a child forked after them can open the device."""
    code = """
opgraft.Device.listing(), opgraft.Device.canonical(name)
answer(forked(works(lambda: opgraft.Device[name], 1)))
"""
    what, text = told(FORK + code, device)
    if what:
        raise Fault(
            "a child forked before the device was opened cannot use it",
            {"child": f"{what}: {text}"},
        )


@pytest.mark.must
@needs_fork
def test_fork_after_open(device: Device) -> None:
    """Case F08: the child of a process that used the device can use it (fork_safe), or is told so.

    It never hangs, never crashes, and the parent goes on.
    """
    code = """
device = opgraft.Device[name]
executable = compile_kernel(device, affine())
buffer = put(device, np.arange(SIZE, dtype=np.int32))
out = device.buffer(buffer.nbytes)
executable.run([out, buffer], wait=True)
def launch():
    executable.run([out, buffer], wait=True)
    return ["", "works"]
def allocate():
    device.buffer(64)
    return ["", "works"]
ways = {
    "Device[name]": works(lambda: opgraft.Device[name], 1),
    "a kernel compiled before, run": launch,
    "memory": allocate,
    "a device held since before": works(device, 2),
}
found = {way: forked(work) for way, work in ways.items()}
check_works(device, 3)
executable.run([out, buffer], wait=True)
equal("the parent, after it forked", take(out), np.arange(SIZE) * 3 + 7)
answer(found)
"""
    found = told(FORK + code, device)
    assert isinstance(found, dict)
    for way, (what, text) in found.items():
        facts = {"in the child": way, "got": f"{what}: {text}" if what else text}
        hint = "Device.fork_safe, and check_process() before the driver is touched"
        if device.fork_safe and what:
            raise Fault("the device says fork_safe, and a forked child fails", facts, hint=hint)
        if device.fork_safe:
            continue
        if what != "DeviceError" or "fork" not in text:
            facts["expected"] = "a DeviceError that says fork and what to do"
            raise Fault(
                "a forked child is not told that it cannot use the device", facts, hint=hint
            )
