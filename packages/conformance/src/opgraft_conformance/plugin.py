"""The pytest plugin (`-p opgraft_conformance.plugin`): options, fixtures, markers, the report.

It is no entry point of pytest's: it would load into everybody's test runs. What a row tells is
noted in the process that runs it and travels in its reports; the report is written by the process
that steers (the only one without xdist), from `pytest_runtest_logreport`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import opgraft
from opgraft.api import Device, Target, errors
from opgraft_conformance import expected, report, table
from opgraft_conformance.fault import Fault
from opgraft_conformance.ledger import KEY, Ledger
from opgraft_conformance.opening import DeviceDoesNotOpen, Facts, open_apart, target_of
from opgraft_conformance.rows import Level, NotClaimed, row_of_item
from opgraft_conformance.watchdog import Watchdog

MARKERS: Final = (
    "must: a row without which programs give wrong results, or crash",
    "should: a row without which a user is worse off",
    "may: a row that is good to have",
    "claims(what, predicate): the row applies only where predicate(target) is true",
)
_EXPECTED: Final = pytest.StashKey[Mapping[str, expected.Expectation]]()
_TARGET: Final = pytest.StashKey[Target]()


# ---- options


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, each with the project's prefix."""
    group = parser.getgroup("opgraft", "the conformance kit of opgraft")
    add = group.addoption
    add("--opgraft-device", metavar="NAME", help="the device under test, as Device[NAME] takes it")
    add(
        "--opgraft-level",
        choices=[level.word for level in Level],
        default=Level.SHOULD.word,
        help="failures up to this level make the run fail; the others are shown (default: should)",
    )
    add("--opgraft-expected", metavar="FILE", help="rows that are known to fail, with reasons")
    add("--opgraft-report", metavar="FILE", help="where to write the report as JSON")
    add(
        "--opgraft-absent",
        action="append",
        default=[],
        metavar="VAR=VALUE",
        help="a variable of an environment in which the device is absent; repeatable",
    )
    add(
        "--opgraft-timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="a row that takes longer hangs: its process is ended (default: 300; 0: never)",
    )
    add("--opgraft-seed", type=int, default=0, help="of everything random (default: 0)")
    add(
        "--opgraft-effort",
        choices=["short", "long"],
        default="short",
        help="long: more random kernels and programs, for a night (default: short)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the options; where a device is named, open it in a process apart and begin a report."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    config.stash[_EXPECTED] = {}
    name: str | None = config.getoption("--opgraft-device")
    if name is None or config.option.collectonly or config.option.help:
        return
    if bad := [one for one in config.getoption("--opgraft-absent") if "=" not in one]:
        raise pytest.UsageError(f"--opgraft-absent takes VAR=VALUE, not {bad[0]!r}")
    listed: str | None = config.getoption("--opgraft-expected")
    if listed:
        try:
            config.stash[_EXPECTED] = expected.read(Path(listed))
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"--opgraft-expected: {error}") from None
    try:
        opgraft.Device.canonical(name)
    except errors.OpgraftError as error:
        raise pytest.UsageError(str(error)) from None
    seconds: float = config.getoption("--opgraft-timeout")
    if seconds > 0:
        config.pluginmanager.register(Watchdog(config, seconds), "opgraft-watchdog")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Worker(config), "opgraft-worker")
        return
    try:
        facts = open_apart(name)
    except DeviceDoesNotOpen as error:
        raise pytest.UsageError(str(error)) from None
    if not facts.executes:
        raise pytest.UsageError(
            f"{facts.device} compiles kernels and runs none: there is nothing to test"
        )
    config.pluginmanager.register(_Controller(config, facts), "opgraft-controller")


# ---- fixtures


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """The device under test, open. Rows share it; none may close it."""
    name: str | None = request.config.getoption("--opgraft-device")
    if name is None:
        raise pytest.UsageError("--opgraft-device=NAME says which device to test")
    return opgraft.Device[name]


@pytest.fixture(scope="session")
def reference() -> Device:
    """The device that is right by definition."""
    return opgraft.Device["INTERP"]


@pytest.fixture(scope="session")
def capabilities(request: pytest.FixtureRequest) -> Target:
    """What kernels are lowered for on the device under test: what it claims to do."""
    return _target(request.config)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Of everything random in a row; put the row's own name beside it."""
    value: int = request.config.getoption("--opgraft-seed")
    return value


@pytest.fixture(scope="session")
def effort(request: pytest.FixtureRequest) -> str:
    """How much random work to do: "short" or "long"."""
    value: str = request.config.getoption("--opgraft-effort")
    return value


def _target(config: pytest.Config) -> Target:
    found = config.stash.get(_TARGET, None)
    if found is None:
        found = target_of(opgraft.Device[config.getoption("--opgraft-device")])
        config.stash[_TARGET] = found
    return found


# ---- rows


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A row that asks for what the target does not claim ends here."""
    if item.config.getoption("--opgraft-device") is None:
        return
    for marker in item.iter_markers("claims"):
        what, predicate = _claim(*marker.args, **marker.kwargs)
        if not predicate(_target(item.config)):
            raise NotClaimed(what)


def _claim(
    what: str, predicate: Callable[[Target], object]
) -> tuple[str, Callable[[Target], object]]:
    return what, predicate


def level_of(item: pytest.Item) -> Level:
    """The level of a row: that of its nearest marker; must, where it has none."""
    for marker in item.iter_markers():
        if marker.name in ("must", "should", "may"):
            return Level.named(marker.name)
    return Level.MUST


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on the report what it means for the row."""
    made = yield
    if item.config.getoption("--opgraft-device") is None:
        return made
    row, area = row_of_item(item)
    noted: dict[str, Any] = {"row": row, "area": area, "level": level_of(item).word}
    raised = call.excinfo.value if call.excinfo is not None else None
    known = item.config.stash[_EXPECTED].get(row)
    if made.failed and raised is not None:
        noted["message"] = _message(item, call, raised)
        made.longrepr = noted["message"]
    if isinstance(raised, NotClaimed):
        noted |= {"result": "not claimed", "reason": raised.what}
    if known is not None:
        _expect(made, noted, known)
    setattr(made, KEY, noted)
    return made


def _message(item: pytest.Item, call: pytest.CallInfo[None], raised: BaseException) -> str:
    if isinstance(raised, Fault):
        return str(raised)
    assert call.excinfo is not None
    # from the row on: not the way through pytest
    call.excinfo.traceback = call.excinfo.traceback.cut(path=item.path)
    shown = str(call.excinfo.getrepr(style="short", funcargs=False, chain=False))
    return f"{type(raised).__name__}: {raised}\n{shown}"


def _expect(made: pytest.TestReport, noted: dict[str, Any], known: expected.Expectation) -> None:
    """A row of the file of expected failures: it must fail, or its entry is stale."""
    if made.failed:
        made.outcome = "skipped"
        made.longrepr = (str(made.location[0]), made.location[1] or 0, known.reason)
        noted |= {"result": "expected", "reason": known.reason}
    elif made.when == "call" or made.skipped:
        came = (noted.get("reason") and f"is not claimed ({noted['reason']})") or "passes"
        made.outcome = "failed"
        made.longrepr = (
            f"the entry in line {known.line} of the expected failures is stale: the row {came}.\n"
            f"Take it out. Its reason was: {known.reason}"
        )
        noted |= {"result": "failed", "message": made.longrepr, "reason": known.reason}


def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """Rows that are not claimed and those expected to fail have words of their own."""
    noted: dict[str, Any] = getattr(report, KEY, {})
    result = noted.get("result")
    if result == "not claimed":
        return "not claimed", "n", "NOT CLAIMED"
    if result == "expected":
        return "expected", "x", "EXPECTED"
    return None


# ---- the ends of a run


def unknown_entries(config: pytest.Config, items: list[pytest.Item]) -> dict[str, str]:
    """Entries of the expected failures that name no row, of areas that were collected whole."""
    given = config.stash[_EXPECTED]
    if not given or any("::" in argument for argument in config.args):
        return {}
    rows = [row_of_item(item) for item in items]
    known = {row for row, _ in rows}
    areas = {area for _, area in rows} | _areas_nowhere(given)
    place: str = config.getoption("--opgraft-expected")
    return {
        row: f"{place}:{entry.line}"
        for row, entry in given.items()
        if row not in known and row.partition("/")[0] in areas
    }


def _areas_nowhere(given: Mapping[str, expected.Expectation]) -> set[str]:
    """Areas of entries for which the suite has no file at all."""
    suite = Path(__file__).parent / "suite"
    named = {row.partition("/")[0] for row in given}
    return {area for area in named if not (suite / f"test_{area}.py").is_file()}


class _Worker:
    """A process of xdist's that runs rows; what it collected, it tells the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before any is deselected."""
        output: dict[str, Any] = self.config.workeroutput  # type: ignore[attr-defined]
        output[KEY] = unknown_entries(self.config, items)


class _Controller:
    """The process that steers the run, and its only one without xdist."""

    def __init__(self, config: pytest.Config, facts: Facts) -> None:
        self.config = config
        self.facts = facts
        self.ledger = Ledger(Level.named(config.getoption("--opgraft-level")))
        self.begin = time.monotonic()
        self.interrupted = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before any is deselected. Under xdist the workers collect."""
        self.ledger.unknown.update(unknown_entries(self.config, items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """xdist: a worker is done."""
        self.ledger.unknown.update(getattr(node, "workeroutput", {}).get(KEY, {}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a row is done, here or in a worker."""
        self.ledger.add(report)

    def pytest_report_header(self) -> str:
        """Which device, with what."""
        facts = self.facts
        pair = f", compiler pair {facts.pair}" if facts.pair else ""
        by = f" of {facts.provider}" if facts.provider else ""
        arch = facts.target.get("arch") or "no architecture named"
        return (
            f"opgraft {facts.versions['opgraft-core']}: {facts.device}{by}{pair} ({arch}), "
            f"seed {self.config.getoption('--opgraft-seed')}"
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge: only what the levels say makes the run fail."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            failed = self.ledger.fails()
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK
        target: str | None = self.config.getoption("--opgraft-report")
        if target:
            content = report.as_json(
                self.ledger,
                self.facts,
                seed=self.config.getoption("--opgraft-seed"),
                effort=self.config.getoption("--opgraft-effort"),
                status=int(session.exitstatus),
                seconds=time.monotonic() - self.begin,
            )
            report.write(Path(target), content)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table, what is not claimed, and the failures."""
        write = terminalreporter.write_line
        terminalreporter.section(f"conformance of {self.facts.device}")
        for line in table.table(self.ledger):
            write(line)
        for part in (table.not_claimed(self.ledger), table.others(self.ledger)):
            for line in part:
                write(line)
        write("")
        if self.config.option.tbstyle == "no" or self.ledger.unknown:
            for line in table.failures(self.ledger):
                write(line)
        write(table.verdict(self.ledger, self.facts))
