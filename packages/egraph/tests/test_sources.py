"""The engine's C: every compiler at hand takes it without a warning, with plain memory too."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CSRC = Path(__file__).parent.parent / "src" / "opgraft_egraph" / "csrc"
COMPILERS = {name: [name] for name in ("gcc", "clang") if shutil.which(name)}
if os.environ.get("OPGRAFT_CHECK") == "long" and importlib.util.find_spec("ziglang") is not None:
    COMPILERS["zig"] = [sys.executable, "-m", "ziglang", "cc"]


@pytest.mark.skipif(not COMPILERS, reason="no C compiler here")
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("compiler", sorted(COMPILERS))
def test_it_compiles_without_a_warning(compiler: str, plain: bool, tmp_path: Path) -> None:
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O0"]
    if plain:
        options.append("-DEGRAPH_PLAIN_MEMORY")
    ran = subprocess.run(
        [*COMPILERS[compiler], *options, "-c", str(CSRC / "engine.c"), "-o", str(tmp_path / "o")],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr.strip()


def test_each_file_is_one_concept_that_the_header_lists() -> None:
    header = (CSRC / "egraph.h").read_text()
    included = [
        line.split('"')[1]
        for line in (CSRC / "engine.c").read_text().splitlines()
        if line.startswith("#include")
    ]
    files = sorted(path.name for path in CSRC.glob("*.c") if path.name != "engine.c")
    assert sorted(included) == files
    for name in files:
        assert f"//   {name} " in header, f"{name} is not in the list of egraph.h"
        assert len((CSRC / name).read_text().splitlines()) < 600
