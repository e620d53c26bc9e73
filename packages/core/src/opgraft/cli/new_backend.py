"""`opgraft new-backend`: a package for a device of one's own, complete, to begin from.

The package lies under `template/` as it would be for a device called ACME. Writing it means to
copy it with that name exchanged, in its three forms: acme, Acme, ACME.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from opgraft import __version__
from opgraft.errors import OpgraftError
from opgraft.plugins.command import RESERVED, Command, UsageError
from opgraft.plugins.discovery import normalized
from opgraft.plugins.registry import REGISTRY

TEMPLATE: Final = Path(__file__).with_name("template")
LONGEST: Final = 16
"""Characters of a name: it stands in the names of packages, classes and settings."""
_FORM: Final = re.compile(r"[a-z][a-z0-9]*")
_OURS: Final = ("core", "tensor", "egraph", "conformance", "api", "opgraft")
"""Names of this project's own packages, installed or not."""
_KINDS: Final = {
    "plain": "kernels in C, run in this process",
    "grid": "kernels in C for groups of threads, played in this process",
}
"""By the flavour of the template: what its device is, for a listing."""


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft new-backend`."""
    parser.add_argument("name", help="what the device is called: one word, such as acme")
    parser.add_argument("--into", default=".", metavar="FOLDER",
                        help="where to write the package's folder (default: here)")  # fmt: skip
    parser.add_argument("--grid", action="store_true",
                        help="for a device that launches groups of threads, with memory that a "
                        "group shares, barriers and atomics")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Write the package and say what to do with it."""
    name = checked(arguments.name)
    folder = write(name, Path(arguments.into), "grid" if arguments.grid else "plain")
    count = sum(path.is_file() for path in folder.rglob("*"))
    print(f"{folder}: {count} files of a package opgraft-{name}, with a device {name.upper()}.")
    print(_filled((TEMPLATE / "next.txt.in").read_text(encoding="utf-8"), name, "plain", folder))
    return 0


def checked(name: str) -> str:
    """The name, if a backend can have it; else raises an error that says what to do."""
    if not _FORM.fullmatch(name) or len(name) > LONGEST:
        raise UsageError(
            f"{name!r} cannot be the name of a backend: one word of small letters and digits, a "
            f"letter first, {LONGEST} characters at most",
            remedy=_nearest(name),
        )
    taken = _owner(name)
    if taken:
        raise UsageError(
            f"the name {name!r} is taken: {taken}",
            remedy="Choose another: two packages of one name cannot be installed together.",
        )
    return name


def _nearest(name: str) -> str:
    """A name like this one that can be had."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("opgraft"))
    near = plain.lstrip("0123456789")[:LONGEST]
    return f"Take {near!r}: the device is then {near.upper()}." if near else ""


def _owner(name: str) -> str:
    """What has this name already, as far as this environment knows; else nothing."""
    if name in _OURS:
        return f"opgraft-{name} is one of opgraft's own packages"
    if name in RESERVED:
        return f"`opgraft {name}` is a command"
    for status in REGISTRY.status():
        if normalized(status.name) == name or normalized(status.distribution) == f"opgraft-{name}":
            return f"it is that of the plugin {status.name} of {status.distribution}"
    if name.upper() in REGISTRY.device_names():
        claim = REGISTRY.device(name.upper(), name)
        return f"{claim.plugin.owner} has a device {name.upper()}"
    if importlib.util.find_spec(f"opgraft_{name}") is not None:
        return f"a package opgraft_{name} is installed"
    return ""


def write(name: str, into: Path, kind: str = "plain") -> Path:
    """Write the package `opgraft-NAME` in a folder of that name under `into`; that folder.

    All of it or nothing: files that are there already are never touched.
    """
    folder = into / f"opgraft-{name}"
    if folder.exists() or folder.is_symlink():
        raise OpgraftError(
            f"{folder} is there already, and nothing is written over it",
            remedy="Remove it, or have the package written elsewhere: --into FOLDER.",
        )
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=into) as made:
            for source, place in files(kind):
                target = Path(made, "new", _named(place, name))
                target.parent.mkdir(parents=True, exist_ok=True)
                text = _filled(source.read_text(encoding="utf-8"), name, kind, folder)
                target.write_text(text, encoding="utf-8", newline="\n")
            Path(made, "new").rename(folder)
    except OSError as error:
        raise OpgraftError(f"{folder} cannot be written: {error}") from error
    return folder


def files(kind: str) -> Iterator[tuple[Path, str]]:
    """The files of a flavour of the template, each with its place in the package."""
    for part in ("common", kind):
        for path in sorted((TEMPLATE / part).rglob("*.in")):
            place = path.relative_to(TEMPLATE / part).as_posix().removesuffix(".in")
            # installers and tools look past what begins with a dot, so here it does not
            yield path, re.sub(r"(^|/)dot-", r"\1.", place)


def _named(text: str, name: str) -> str:
    """The name of a device instead of the template's, in each of its forms."""
    forms = {"acme": name, "Acme": name.capitalize(), "ACME": name.upper()}
    return re.sub("acme|Acme|ACME", lambda found: forms[found[0]], text)


def _filled(text: str, name: str, kind: str, folder: Path) -> str:
    facts = {
        "core": __version__.partition("+")[0],
        "folder": str(folder),
        "what": _KINDS[kind],
        "year": str(time.localtime().tm_year),
    }
    named = _named(text, name)
    return re.sub(r"\$(core|folder|what|year)\b", lambda found: facts[found[1]], named)


COMMAND: Final = Command(
    "new-backend",
    run,
    "a package for a device of your own, complete, to begin from",
    configure,
    """Write a package that brings opgraft a new device: plugin, device, renderer, compiler, tests,
README, CI. Its device is a stand-in that works at once on this machine and passes the conformance
kit; replace its parts by your own, one by one.

  opgraft new-backend acme                a device that runs kernels one after another
  opgraft new-backend acme --grid         a device that launches groups of threads
  opgraft new-backend acme --into ~/src   written to ~/src/opgraft-acme

exit codes: 0 done; 1 it could not be written; 2 wrong usage, or a name that cannot be had.""",
)
