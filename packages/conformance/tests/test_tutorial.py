"""docs/new-backend.md works as it stands: its commands and edits, and what they print.

On the page a comment before a block says what the block is:

    <!-- run -->, <!-- run: fails -->, <!-- run: the whole kit -->   commands for a shell
    <!-- prints -->       lines that the commands before must have printed, in this order;
                          "..." stands for anything, and runs of blanks are one
    <!-- edit: PATH -->   a change: what has "-" and " " is looked for, what has "+" and " " put
    <!-- file: PATH -->   a file
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "new-backend.md"
BLOCK = re.compile(
    r"^<!-- (?P<kind>run|prints|edit|file)(?:: (?P<what>[^\n]+?))? -->\n"
    r"```\w*\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A marked block of the page."""

    kind: str
    what: str
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(m["kind"], m["what"] or "", m["text"]) for m in BLOCK.finditer(page)]


def edited(source: str, change: str) -> str:
    """A text with a change of a page made in it."""
    lines = [(line[:1] or " ", line[1:]) for line in change.splitlines()]
    old = "".join(f"{text}\n" for mark, text in lines if mark in " -")
    new = "".join(f"{text}\n" for mark, text in lines if mark in " +")
    assert source.count(old) == 1, f"{source.count(old)} times in the file:\n{old}"
    return source.replace(old, new)


def missing(wanted: str, out: str) -> str:
    """The first line of `wanted` that was not printed after those before it; empty: none."""
    rows = [" ".join(line.split()) for line in out.splitlines()]
    for line in filter(None, (" ".join(line.split()) for line in wanted.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        place = next((i for i, row in enumerate(rows) if pattern.search(row)), None)
        if place is None:
            return line
        rows = rows[place + 1 :]
    return ""


class Reader:
    """Somebody who does what the page says, in an environment and a folder of their own."""

    def __init__(self, home: Path) -> None:
        self.home = self.folder = home
        self.printed = ""
        clean = home / "environment"
        venv.create(clean, with_pip=True)
        # beside what the page installs there is what is installed here, so that pip finds all
        # that the package needs and asks no index
        (site,) = clean.glob("lib/python*/site-packages")
        for old in (*site.glob("*setuptools*"), *site.glob("*distutils*")):
            # Python 3.11 puts one there that would hide the one here, and is too old
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        here = sysconfig.get_path("purelib")
        (site / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
        for name in ("opgraft", "pytest", "pip"):
            # builds are made with the tools that are here, as there is no index to fetch others
            more = 'way=$1; shift; set -- "$way" --no-build-isolation "$@"; ' * (name == "pip")
            command = clean / "bin" / name
            command.write_text(f'#!/bin/sh\n{more}exec "{clean}/bin/python" -m {name} "$@"\n')
            command.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPGRAFT_", "PYTHON"))}
        self.environment = {
            **kept,
            "PATH": os.pathsep.join([str(clean / "bin"), kept.get("PATH", "")]),
            "OPGRAFT_CACHE": str(home / "cache"),
            "OPGRAFT_PLUGINS": "acme",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def run(self, commands: str, fails: bool) -> None:
        """Commands as a shell takes them; the next ones begin where these end."""
        script = f"set -e\n{commands}pwd >{self.home}/where\n"
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert (done.returncode != 0) == fails, f"{commands}\n{done.stdout}"
        self.printed = done.stdout
        if not fails:
            self.folder = Path((self.home / "where").read_text().strip())

    def do(self, block: Block) -> None:
        """What a block of the page asks for."""
        if block.kind == "run":
            commands = block.text
            if block.what == "the whole kit":
                # of which test_acme.py runs all
                commands = commands.rstrip("\n") + " --area life\n"
            self.run(commands, fails=block.what == "fails")
        elif block.kind == "prints":
            line = missing(block.text, self.printed)
            assert not line, f"not printed: {line}\n{self.printed}"
        else:
            path = self.folder / block.what
            made = edited(path.read_text(), block.text) if block.kind == "edit" else block.text
            path.write_text(made)


@pytest.mark.skipif(
    not any(map(shutil.which, ("gcc", "clang", "cc"))), reason="the page needs a C compiler"
)
def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    for name in ("opgraft-core", "opgraft-tensor", "opgraft-conformance"):
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is on the path and not installed: pip would not find it")
    found = blocks(PAGE.read_text(encoding="utf-8"))
    assert [sum(b.kind == kind for b in found) > 0 for kind in ("run", "prints", "edit", "file")]
    reader = Reader(tmp_path)
    for block in found:
        reader.do(block)
    package = tmp_path / "opgraft-acme"
    assert "ACME_OPTIMIZE" in (package / "src" / "opgraft_acme" / "plugin.py").read_text()
    for tool in (["ruff", "check", "-q", "."], ["mypy"]):
        if shutil.which(tool[0], path=os.path.dirname(sys.executable)):
            words = [sys.executable, "-m", *tool]
            done = subprocess.run(
                words, cwd=package, capture_output=True, text=True, env=reader.environment
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_an_edit_that_does_not_fit_is_noticed() -> None:
    assert edited("a\nb\nc\n", " a\n-b\n+d\n") == "a\nd\nc\n"
    with pytest.raises(AssertionError, match="0 times"):
        edited("a\nb\n", " a\n-c\n+d\n")
    with pytest.raises(AssertionError, match="2 times"):
        edited("a\na\n", "-a\n+d\n")


def test_a_line_that_is_not_printed_is_noticed() -> None:
    assert missing("a ... c\nd", "a  b  c\nx\nd e") == ""
    assert missing("d\na", "a\nd") == "a"
    assert missing("a\nb", "a\nc") == "b"
