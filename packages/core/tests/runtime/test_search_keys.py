"""What a search keeps holds for one kernel, device, compiler and code; a source is timed once."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kernel_forms import kernels
from opgraft import Device, using
from opgraft.ir import UOp
from opgraft.lower.pipeline import prepared
from opgraft.opt.actions import Parallel
from opgraft.opt.changes import Steps
from opgraft.opt.search import Trials, search
from opgraft.runtime import lowered
from opgraft.runtime import search as searching
from opgraft.runtime.search import Found, progress, searched
from opgraft.target import Target

SINK = kernels.rows(4, 20)


@pytest.fixture
def searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[UOp]]:
    """The kernels that are searched, none of which gains by it; nothing is kept from before."""
    found: list[UOp] = []

    def find(sink: UOp, *rest: object) -> Found:
        found.append(sink)
        return Found(None)

    monkeypatch.setattr(searching, "find", find)
    with using(CACHE=tmp_path, OPTIMIZER="greedy"):
        yield found


def test_a_device_of_another_name_is_searched_by_itself(searches: list[UOp]) -> None:
    selected = Device["INTERP"].pairs.select("")
    for name in ("INTERP", "NULL", "INTERP", "NULL"):
        searched(Device[name], SINK, selected, 1)
    assert searches == [SINK, SINK]


def test_code_that_lowers_in_another_way_is_searched_anew(
    searches: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device["INTERP"]
    selected = device.pairs.select("")
    searched(device, SINK, selected, 1)
    monkeypatch.setattr(lowered, "fingerprint", lambda: "another version")
    for _ in range(2):
        searched(device, SINK, selected, 1)
    assert len(searches) == 2


def test_schedules_of_one_source_are_measured_once() -> None:
    measured: list[Steps] = []

    def measure(steps: Steps, enough: float) -> float:
        measured.append(steps)
        return 1.0 / len(measured)

    trials = Trials(lambda steps: "the same for all", measure)
    start: Steps = (Parallel("i"),)
    assert search(prepared(SINK), Target("test"), start, 4, trials) == start
    assert measured == [start]


@pytest.mark.parametrize("absent", [(), ("rich.progress",)])
def test_nothing_is_shown_where_nobody_looks(
    absent: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress("a_kernel") as watch:
        watch(3, 0.002)
    assert screen.getvalue() == ""
