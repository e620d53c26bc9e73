"""`python -m opgraft_conformance DEVICE`: the kit, told what a device's author wants to know.

Exit code: 0 where every row that decides passes (of must and should, or as --level says), 1 where
one fails or the expected failures are stale, 4 where the device cannot be used or an option is
wrong, 5 where no row was chosen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from opgraft_conformance.rows import Level

SUITE = Path(__file__).parent / "suite"


def areas() -> list[str]:
    """The names of the areas."""
    return sorted(p.stem.removeprefix("test_") for p in SUITE.glob("test_*.py"))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m opgraft_conformance",
        description="Say whether a device is right: opgraft's conformance kit.",
        epilog="Further options go to pytest: -n 4 (with pytest-xdist), -k WORD, -x, -v.",
    )
    made.add_argument("device", help="the device's name: MINE, or MINE:1")
    made.add_argument(
        "--level",
        choices=[level.word for level in Level],
        default=Level.SHOULD.word,
        help="failures up to this level make the exit code 1 (default: should)",
    )
    made.add_argument("--area", action="append", choices=areas(), help="only this one; repeatable")
    made.add_argument("--expected", metavar="FILE", help="rows that are known to fail")
    made.add_argument("--report", metavar="FILE", help="write the report as JSON")
    made.add_argument(
        "--absent",
        action="append",
        default=[],
        metavar="VAR=VALUE",
        help="a variable of an environment in which the device is absent; repeatable",
    )
    made.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="a row that takes longer hangs: its process is ended (default: 300; 0: never)",
    )
    made.add_argument("--seed", type=int, default=0, help="of everything random")
    made.add_argument("--effort", choices=["short", "long"], default="short")
    return made


def pytest_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments that pytest gets for ours."""
    given, rest = parser().parse_known_args(arguments)
    made = ["-p", "opgraft_conformance.plugin", "-c", str(SUITE / "pytest.ini")]
    made += [f"--rootdir={SUITE}", f"--opgraft-device={given.device}"]
    made += [f"--opgraft-level={given.level}", f"--opgraft-seed={given.seed}"]
    made += [f"--opgraft-effort={given.effort}", f"--opgraft-timeout={given.timeout}"]
    made += [f"--opgraft-absent={one}" for one in given.absent]
    if given.expected:
        made.append(f"--opgraft-expected={given.expected}")
    if given.report:
        made.append(f"--opgraft-report={given.report}")
    chosen = [str(SUITE / f"test_{area}.py") for area in given.area or []]
    return [*made, *rest, *(chosen or [str(SUITE)])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kit; the exit code."""
    return int(pytest.main(pytest_arguments(sys.argv[1:] if arguments is None else arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
