"""A device used by many threads and processes at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from opgraft.api import Device, compile_kernel
from opgraft_conformance import Fault, apart
from opgraft_conformance.apart import told
from opgraft_conformance.samples import affine, check_works, equal, put, run_affine, take

THREADS = 8


def in_threads(work: Callable[[int], None]) -> None:
    """`work` in eight threads that begin together."""
    barrier = threading.Barrier(THREADS)

    def begin(number: int) -> None:
        barrier.wait(60)
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(begin, number) for number in range(THREADS)]:
            future.result()


@pytest.mark.must
def test_threads_open_one_device(device: Device) -> None:
    """Eight threads that ask for the device at once get one and the same, and can use it."""
    code = """
from concurrent.futures import ThreadPoolExecutor
barrier = threading.Barrier(8)
def work(number):
    barrier.wait(60)
    device = opgraft.Device[name]
    check_works(device, number)
    return id(device)
with ThreadPoolExecutor(8) as pool:
    answer(len(set(pool.map(work, range(8)))))
"""
    if (count := told(code, device)) != 1:
        raise Fault("eight threads opened several devices", {"got": count, "expected": 1})


@pytest.mark.must
def test_threads_with_kernels_of_their_own(device: Device) -> None:
    """Eight threads compile and run different kernels at once."""

    def work(number: int) -> None:
        for turn in range(4):
            salt = 100_000 + number * 1000 + turn
            check_works(device, salt, f"kernel {turn} of thread {number}")

    in_threads(work)


@pytest.mark.must
def test_threads_with_one_kernel(device: Device) -> None:
    """Eight threads run one kernel at once, each on its own data."""
    executable = compile_kernel(device, affine(5000))

    def work(number: int) -> None:
        for turn in range(8):
            given = np.arange(5000, dtype=np.int32) * (number + 1) + turn
            got = run_affine(device, executable, given)
            equal(f"launch {turn} of thread {number}", got, given * 3 + 7, executable)

    in_threads(work)


@pytest.mark.must
def test_memory_from_many_threads(device: Device) -> None:
    """Eight threads allocate, fill, read and free at once; no buffer is handed out twice."""

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for _ in range(10):
            sizes = random.integers(1, 20_000, 4)
            held = [put(device, np.full(size, number, np.int32)) for size in sizes]
            for buffer, size in zip(held, sizes):
                equal(f"memory of thread {number}", take(buffer), np.full(size, number))

    in_threads(work)


@pytest.mark.should
def test_processes_at_once(device: Device, tmp_path: Path, effort: str) -> None:
    """Case F06: processes share one empty cache folder and are right, though one is killed."""
    count = 16 if effort == "long" else 3
    code = """
device = opgraft.Device[name]
for salt in range(4):
    check_works(device, salt)
answer(True)
"""
    endless = """
salt = 0
while True:
    check_works(opgraft.Device[name], salt)
    salt += 1
"""
    env = apart.environment({"OPGRAFT_CACHE": str(tmp_path)})
    killed = apart.begin(endless, device, env)
    try:
        with ThreadPoolExecutor(count) as pool:
            assert all(pool.map(lambda _: told(code, device, env=env), range(count)))
    finally:
        killed.kill()  # in the middle of something
        killed.wait()
    assert told(code, device, env=env)


@pytest.mark.should
def test_spawned_child(device: Device, tmp_path: Path) -> None:
    """A spawned child (multiprocessing) can use the device."""
    script = tmp_path / "spawning.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "def work(name):\n"
        "    import opgraft\n"
        "    from opgraft_conformance.samples import check_works\n"
        "    check_works(opgraft.Device[name])\n"
        "    return 'right'\n"
        "if __name__ == '__main__':\n"
        "    import opgraft\n"
        "    from opgraft_conformance.samples import check_works\n"
        "    check_works(opgraft.Device[sys.argv[1]])\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(work, (sys.argv[1],)))\n"
    )
    code = f"""
import subprocess
done = subprocess.run([{sys.executable!r}, arguments[1], name], capture_output=True, text=True)
answer([done.stdout.strip(), done.stderr[-1000:]])
"""
    out, complaint = told(code, device, str(script))
    if out != "right":
        raise Fault("a spawned child cannot use the device", {"written": complaint})
