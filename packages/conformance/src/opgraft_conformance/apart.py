"""Python in a process of its own: for what a row may not do to the process of the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from opgraft_conformance.fault import Fault

if TYPE_CHECKING:
    from opgraft.api import Device

SECONDS = 120.0
"""How long a process may take."""
_ANSWER = "opgraft-conformance-answer "


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, with its import path, so that the same packages are found there."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, **(more or {})}


def run(
    code: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> Any:
    """Run `code`, which calls `answer(...)` with what JSON can say; that is returned.

    In the code, `arguments` is the list of the strings given here. A process that crashes, hangs,
    raises or gives no answer is a `Fault` with what it wrote.
    """
    done = start(code, arguments, environment() if env is None else env, seconds)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_ANSWER) and done.returncode == 0:
            return json.loads(line.removeprefix(_ANSWER))
    facts = {"exit": how_it_ended(done.returncode), "written": _last(done.stdout + done.stderr)}
    raise Fault("a process of its own did not get to its end", {**facts, "code": code.strip()})


def start(
    code: str, arguments: Sequence[str], env: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """The process of `run`, when it is done; one that hangs is a `Fault`."""
    try:
        return subprocess.run(
            [sys.executable, "-c", _PRELUDE + code, *arguments],
            env=dict(env),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        # bytes, though the process was asked for text
        text = b"".join(part for part in (error.stdout, error.stderr) if part).decode(
            "utf-8", "replace"
        )
        raise Fault(
            f"a process of its own was not done within {seconds:.0f} s",
            {"written": _last(text), "code": code.strip()},
        ) from None


def begin(code: str, device: Device, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process of `code`, with `COMMON` before it, that goes on beside this one, in silence."""
    return subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + COMMON + code, device.name],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _last(text: str, lines: int = 20) -> str:
    return "\n".join(text.strip().splitlines()[-lines:]) or "nothing"


_PRELUDE = f"""\
import json, sys
arguments = sys.argv[1:]
def answer(value):
    sys.stdout.write("\\n{_ANSWER}" + json.dumps(value) + "\\n")
    sys.stdout.flush()
"""

COMMON: Final = """
import os, threading, time
import numpy as np
import opgraft
from opgraft.api import compile_kernel, errors
from opgraft.plugins.registry import REGISTRY
from opgraft_conformance.samples import *
name = arguments[0]
kind = name.partition(":")[0]
"""
"""What most pieces of code begin with. Their first argument is the name of a device."""


def told(code: str, device: Device, *more: str, env: Mapping[str, str] | None = None) -> Any:
    """What a process apart answers to `code`, with `COMMON` before it."""
    return run(COMMON + code, device.name, *more, env=env)
