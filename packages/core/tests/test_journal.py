"""The journal: what was done is told to those who listen, and written where TRACE says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opgraft import Device, journal
from opgraft.cli.trial import tiny_kernel
from opgraft.runtime import compile_kernel


def test_with_nobody_listening_nothing_is_heard() -> None:
    assert not journal.heard()
    with journal.listening(lambda event: None):
        assert journal.heard()
        assert journal.watched()
    assert not journal.heard()


def test_every_listener_is_told_what_any_thread_does() -> None:
    one: list[journal.Event] = []
    two: list[journal.Event] = []
    with journal.listening(one.append), journal.listening(two.append):
        begin = time.perf_counter()
        thread = threading.Thread(target=journal.tell, args=("plan", "told", begin))
        thread.start()
        thread.join()
    journal.tell("plan", "not heard", begin)
    assert [e.name for e in one] == [e.name for e in two] == ["told"]
    assert one[0].seconds >= 0
    assert one[0].thread != threading.get_native_id()


def test_a_kernel_that_is_made_is_told_with_its_sink_and_executable() -> None:
    device = Device["NULL"]
    device.kernels.clear()
    told: list[journal.Event] = []
    with journal.listening(told.append):
        executable = compile_kernel(device, tiny_kernel())
        compile_kernel(device, tiny_kernel())
    (event,) = [e for e in told if e.kind == "kernel"]
    assert event.name == "trial"
    assert event.details["sink"] is tiny_kernel()
    assert event.details["executable"] is executable
    assert event.details["on"] is device
    assert (event.details["device"], event.details["pair"]) == ("NULL", "C")
    assert executable.program.linear is not None  # whoever listens wants to see the passes run


ONE_KERNEL = (
    "from opgraft import Device\n"
    "from opgraft.cli.trial import tiny_kernel\n"
    "from opgraft.runtime import compile_kernel\n"
    "compile_kernel(Device['NULL'], tiny_kernel())\n"
)


def run_traced(code: str, path: Path) -> None:
    """A process of its own with the setting TRACE."""
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=60,
        env={
            **os.environ,
            "OPGRAFT_TRACE": str(path),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
    )


def test_trace_is_a_file_for_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    run_traced(ONE_KERNEL, path)
    (row,) = json.loads(path.read_text())["traceEvents"]
    assert (row["name"], row["cat"], row["ph"]) == ("trial", "kernel", "X")
    assert row["dur"] > 0
    assert row["args"]["device"] == "NULL"
    assert "sink" not in row["args"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_leaves_the_trace_of_its_parent_alone(tmp_path: Path) -> None:
    """Its own goes to a file named for it; with nothing to tell there is none."""
    path = tmp_path / "trace.json"
    code = (
        "import os, sys, time\n"
        f"{ONE_KERNEL}"
        "def child(work):\n"
        "    if os.fork() == 0:\n"
        "        work()\n"
        "        sys.exit()\n"
        "    assert os.wait()[1] == 0\n"
        "from opgraft import journal\n"
        "child(lambda: None)\n"
        "child(lambda: journal.tell('plan', 'in the child', time.perf_counter()))\n"
        "journal.tell('plan', 'in the parent', time.perf_counter())\n"
    )
    run_traced(code, path)
    told = {
        file.name: [row["name"] for row in json.loads(file.read_text())["traceEvents"]]
        for file in tmp_path.iterdir()
    }
    assert told.pop("trace.json") == ["trial", "in the parent"]
    assert list(told.values()) == [["in the child"]]
