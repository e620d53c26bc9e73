"""Calls of compilers as programs: imported when one is really run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence

from opgraft.api import errors, settings


def run(arguments: Sequence[str], source: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a program, without a shell, with `source` as its standard input."""
    try:
        return subprocess.run(arguments, input=source, capture_output=True, check=False)
    except OSError as error:
        raise errors.DeviceError(f"{arguments[0]} cannot be run: {error.strerror}") from None


def macros(command: Sequence[str]) -> tuple[dict[str, str], str]:
    """The macros that a C compiler defines of itself, and its complaint where it fails."""
    done = run([*command, "-dM", "-E", "-x", "c", "-"], b"")
    found: dict[str, str] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        if word == "#define":
            name, _, value = rest.partition(" ")
            found[name] = value
    said = done.stderr.decode(errors="replace").strip() or "it says nothing"
    return ({}, said) if done.returncode else (found, said)


def build(name: str, command: Sequence[str], source: str) -> bytes:
    """What `command`, with `-o FILE` added, makes of a C source; raises `CompileError`."""
    with tempfile.TemporaryDirectory(prefix="opgraft-", ignore_cleanup_errors=True) as folder:
        made = os.path.join(folder, "made.so")
        done = run([*command, "-x", "c", "-", "-o", made], source.encode())
        if done.returncode == 0:
            with open(made, "rb") as file:
                return file.read()
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode < 0:
        said = f"it was ended by signal {-done.returncode}\n{said}"
    remedy = "The setting DEBUG=1 keeps the source."
    if settings.get("DEBUG"):
        with tempfile.NamedTemporaryFile("w", prefix="opgraft-", suffix=".c", delete=False) as kept:
            kept.write(source)
        remedy = f"The source is in {kept.name}"
    raise errors.CompileError(f"{name} ({command[0]}) refused a source:\n{said}", remedy=remedy)
