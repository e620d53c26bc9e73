"""The setting SEARCH: candidates run in a process of their own, results are kept on disk."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_forms import kernels
from kernel_forms.execute import execute
from kernel_forms.memory import expected, fill
from opgraft import Device, settings, using
from opgraft.cli import measure
from opgraft.errors import DeviceError
from opgraft.ir import UOp
from opgraft.ir.argument import format_value
from opgraft.ir.text import parse, to_text
from opgraft.lower.pipeline import prepared, schedule_of
from opgraft.opt.actions import Split
from opgraft.opt.changes import Steps, changed
from opgraft.runtime import Selected, compile_kernel
from opgraft.runtime import search as searching
from opgraft.runtime.search import Found, Measuring, find, progress, searched, with_schedule
from opgraft.target import Target

SINK = kernels.rows(4, 20)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    with using(CACHE=tmp_path, OPTIMIZER="greedy"):
        yield tmp_path


class Timed:
    """Stands for the process that measures: `price` says how long a schedule takes."""

    made = 0

    def __init__(self, price: Callable[[Steps, int], float]) -> None:
        self.price = price
        self.asked: list[list[Steps]] = []

    def __call__(self, device: str) -> Timed:
        Timed.made += 1
        return self

    def __enter__(self) -> Timed:
        return self

    def __exit__(self, *details: object) -> None:
        return

    def seconds(
        self, texts: list[str], spend: tuple[float, float] = (0, 0), enough: float = 0.0
    ) -> list[float]:
        schedules = [parse(text).arg.schedule for text in texts]
        self.asked.append(schedules)
        return [self.price(steps, len(texts)) for steps in schedules]


def selected() -> Selected:
    return Device["INTERP"].pairs.select("")


def target() -> Target:
    return selected().renderer.target


def usual(sink: UOp = SINK) -> Steps:
    """The heuristic's schedule."""
    return schedule_of(sink, target())


def other(sink: UOp = SINK) -> Steps:
    """A schedule that a search looks at first."""
    return next(changed(prepared(sink), target(), usual(sink)))


# ---- the process


def worker(body: str) -> tuple[str, ...]:
    """A process that says it is ready and then does `body` with each `line` that it reads."""
    code = (
        "import json, os, sys, time\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    kernel = json.loads(line)['kernels'][0]\n"
        f"    {body}\n"
        "    print(json.dumps({'seconds': [os.getpid()]}), flush=True)\n"
    )
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if kernel == 'bad': time.sleep(1000)", "longer than"),
        ("if kernel == 'bad': os._exit(7)", "ended with code 7"),
        ("if kernel == 'bad': os.kill(os.getpid(), 11)", "ended with code -11"),
    ],
    ids=["hangs", "exits", "crashes"],
)
def test_what_a_candidate_does_to_its_process_is_its_own_loss(body: str, reason: str) -> None:
    with Measuring("CPU", limit=1.0, command=worker(body)) as measuring:
        first = measuring.seconds(["good"])
        assert measuring.seconds(["good"]) == first  # the same process
        with pytest.raises(DeviceError, match=reason):
            measuring.seconds(["bad"])
        assert measuring.seconds(["good"]) != first  # another


def test_a_process_that_does_not_start_is_reported() -> None:
    with (
        Measuring("CPU", command=(sys.executable, "-c", "raise SystemExit(3)")) as measuring,
        pytest.raises(DeviceError, match="ended with code 3"),
    ):
        measuring.seconds(["any"])


def test_the_last_words_of_a_process_are_part_of_the_error() -> None:
    code = "raise RuntimeError('the driver is too old')"
    with (
        Measuring("CPU", command=(sys.executable, "-c", code)) as measuring,
        pytest.raises(DeviceError, match="code 1: RuntimeError: the driver is too old"),
    ):
        measuring.seconds(["any"])
    with Measuring("NOWHERE") as measuring, pytest.raises(DeviceError, match=r"code 1: .*NOWHERE"):
        measuring.seconds(["any"])


def test_the_process_imports_what_this_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a file of the current folder that is called as one of Python's modules."""
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    (tmp_path / "opgraft.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    elsewhere = str(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [*sys.path, elsewhere])
    assert elsewhere in searching.worker("INTERP")
    with Measuring("INTERP") as measuring:
        assert len(measuring.seconds([to_text(with_schedule(SINK, ()))], (0.0, 0.1))) == 1


def test_an_error_that_is_not_opgraft_s_is_the_candidates_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*args: object, **more: object) -> list[float]:
        raise MemoryError("no room")

    monkeypatch.setattr(measure, "measured", full)
    answers = io.StringIO()
    measure.serve(Device["INTERP"], io.StringIO("{}\n{}\n"), answers)
    assert answers.getvalue().splitlines() == ["ready", *['{"lost": "MemoryError: no room"}'] * 2]


def test_the_process_is_ended_with_the_search() -> None:
    with Measuring("CPU", command=worker("pass")) as measuring:
        measuring.seconds(["good"])
        process = measuring._process
        assert process is not None
        assert process.poll() is None
    assert process.poll() is not None


def test_a_kernel_is_measured_on_its_device_and_a_bad_one_says_why() -> None:
    with Measuring("INTERP") as measuring:
        both = [to_text(with_schedule(SINK, ())), to_text(SINK)]
        seconds = measuring.seconds(both, (0.0, 0.1))
        assert len(seconds) == 2
        assert all(0 < took < 60 for took in seconds)
        refused = with_schedule(SINK, (Split("i", 1000),))
        with pytest.raises(DeviceError, match="can't be split by 1000"):
            measuring.seconds([to_text(refused)])


# ---- what is chosen


def test_a_faster_schedule_is_found_and_measured_beside_the_heuristic_s() -> None:
    timed = Timed(lambda steps, together: 0.5 if steps == other() else 1.0)
    assert find(SINK, selected(), 1, timed) == Found(other())  # type: ignore[arg-type]
    assert timed.asked[-1] == [usual(), other()]


def test_a_lucky_measurement_does_not_replace_the_heuristic_s_choice() -> None:
    def price(steps: Steps, together: int) -> float:
        return 1.0 if steps == usual() or together > 1 else 0.5

    timed = Timed(price)
    assert find(SINK, selected(), 1, timed) == Found(None)  # type: ignore[arg-type]
    assert len(timed.asked[-1]) == 1 + searching.RIVALS
    assert timed.asked[-1][0] == usual()


def test_the_second_best_is_taken_where_the_best_was_lucky() -> None:
    one, two = list(changed(prepared(SINK), target(), usual()))[:2]
    times = {one: (0.4, 1.0), two: (0.5, 0.6)}  # alone, and in turns with others
    timed = Timed(lambda steps, together: times.get(steps, (1.0, 1.0))[together > 1])
    assert find(SINK, selected(), 1, timed) == Found(two)  # type: ignore[arg-type]


def test_a_rival_that_fails_in_the_end_leaves_the_heuristic_s_choice() -> None:
    def price(steps: Steps, together: int) -> float:
        if together > 1:
            raise DeviceError("it crashed")
        return 1.0 if steps == usual() else 0.5

    assert find(SINK, selected(), 1, Timed(price)) == Found(None)  # type: ignore[arg-type]


def test_a_schedule_as_good_as_the_heuristic_s_is_not_taken() -> None:
    timed = Timed(lambda steps, together: 1.0)
    assert find(SINK, selected(), 2, timed) == Found(None)  # type: ignore[arg-type]


# ---- what is kept


def preferring(choice: Steps, monkeypatch: pytest.MonkeyPatch) -> Timed:
    timed = Timed(lambda steps, together: 0.5 if steps == choice else 1.0)
    monkeypatch.setattr(searching, "Measuring", timed)
    Timed.made = 0
    return timed


def test_a_result_is_kept_for_the_kernel_the_device_and_the_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preferring(other(), monkeypatch)
    device = Device["INTERP"]
    found = searched(device, SINK, selected(), 2)
    assert found.arg.schedule == other()
    assert Timed.made == 1
    assert searched(device, SINK, selected(), 2) is found
    assert searched(device, SINK, selected(), 1) is found
    assert Timed.made == 1
    searched(device, SINK, selected(), 3)  # a wider search was not done before
    searched(device, kernels.rows(5, 20), selected(), 2)
    lanes = device.pairs.select("LANES32")
    searched(device, SINK, lanes, 2)
    assert Timed.made == 4


def test_that_nothing_is_better_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    preferring(usual(), monkeypatch)
    for _ in range(2):
        assert searched(Device["INTERP"], SINK, selected(), 1) is SINK
    assert Timed.made == 1


def test_a_result_that_was_damaged_is_searched_again(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    preferring(other(), monkeypatch)
    found = searched(Device["INTERP"], SINK, selected(), 1)
    (entry,) = cache.glob("*.entry")
    data = entry.read_bytes()
    text = f"1\n{format_value(other())}".encode()
    assert data.startswith(text)  # no pickle
    entry.write_bytes(b"9" + data[1:])
    assert searched(Device["INTERP"], SINK, selected(), 1) is found
    assert Timed.made == 2


def test_a_device_that_cannot_measure_keeps_the_heuristic_s_choice_and_says_so(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    def lost(steps: Steps, together: int) -> float:
        raise DeviceError("its process ended with code 3")

    monkeypatch.setattr(searching, "Measuring", Timed(lost))
    with pytest.warns(RuntimeWarning, match="rows is not searched on INTERP: .*code 3"):
        assert searched(Device["INTERP"], SINK, selected(), 1) is SINK
    assert not list(cache.glob("*.entry"))  # another time it may


def test_a_kernel_with_a_schedule_of_its_own_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    preferring(other(), monkeypatch)
    given = with_schedule(SINK, (Split("j", 4),))
    assert searched(Device["INTERP"], given, selected(), 1) is given
    assert Timed.made == 0


# ---- the setting


def test_search_is_off_by_default_and_never_done_where_nothing_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preferring(other(), monkeypatch)
    assert settings.SEARCH == 0
    compile_kernel(Device["INTERP"], kernels.rows(4, 21))
    with using(SEARCH=1):
        compile_kernel(Device["NULL"], kernels.rows(4, 21))
    assert Timed.made == 0


def test_a_kernel_made_under_the_setting_has_the_schedule_that_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink, device = kernels.rows(4, 22), Device["INTERP"]
    preferring(other(sink), monkeypatch)
    before = compile_kernel(device, sink)
    with using(SEARCH=1):
        made = compile_kernel(device, sink)
    wanted = compile_kernel(device, with_schedule(sink, other(sink)))
    assert made.program.source == wanted.program.source != before.program.source
    assert compile_kernel(device, sink) is before


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["INTERP", "CPU"])
def test_a_search_on_a_device_gives_a_kernel_with_the_right_result(name: str) -> None:
    sink: UOp = kernels.full_sum(50)
    memory = fill(sink)
    try:
        device = Device[name]
        device.pairs.select("")
    except DeviceError as absent:
        pytest.skip(f"no compiler for this device here: {absent.message}")
    with using(SEARCH=1):
        assert execute(device, sink, memory) == expected(sink, memory)


# ---- the bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for screen, shown in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", screen)
        with progress("a_kernel") as watch:
            watch(3, 0.002)
        assert ("search a_kernel: 3 candidates, best 2.000 ms" in screen.getvalue()) is shown


def test_progress_without_rich_is_a_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress("a_kernel") as watch:
        watch(1, 0.5)
    assert screen.getvalue() == "\rsearch a_kernel: 1 candidates, best 500.000 ms \n"
