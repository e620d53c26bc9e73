"""Fixtures that compile and run rendered programs."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from opgraft.dtype import DType
from opgraft.ir import UOp
from opgraft.ir.linear import LinearProgram
from opgraft.render.c import CRenderer
from opgraft.target import Target

from .kernels import NUMPY, call, elementwise

FLAGS = ["-O1", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"]
FLAGS += ["-fno-trapping-math", "-fno-strict-aliasing", "-w", "-shared", "-fPIC"]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def compiler() -> list[str]:
    """The command of a C compiler: one of the system's, or the clang in the ziglang wheel."""
    found = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    pytest.skip("no gcc, clang or cc on this machine, and no Python package ziglang")


@pytest.fixture
def compile_c(compiler: list[str], tmp_path: Path) -> Callable[..., ctypes.CDLL]:
    """Compiles a source, with further options if given."""

    def compile_source(source: str, *options: str) -> ctypes.CDLL:
        number = next(_numbers)
        path = tmp_path / f"k{number}.c"
        path.write_text(source)
        library = path.with_suffix(".so")
        done = subprocess.run(
            [*compiler, *FLAGS, *options, str(path), "-o", str(library), "-lm"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{done.stderr}\n{source}"
        return ctypes.CDLL(str(library))

    return compile_source


Runner = Callable[..., None]


@pytest.fixture
def run_program(compile_c: Callable[[str], ctypes.CDLL]) -> Runner:
    """Renders, compiles and runs a program on NumPy arrays in order of slots."""

    def run(
        program: LinearProgram,
        arrays: Sequence[np.ndarray],
        variables: Sequence[int] = (),
        part: tuple[int, int] = (0, 1),
        target: Target | None = None,
    ) -> None:
        renderer = CRenderer(target or Target("cpu"))
        entry = getattr(compile_c(renderer.render(program)), renderer.entry(program.name))
        call(entry, arrays, variables, part)

    return run


@pytest.fixture
def run_elementwise(run_program: Runner) -> Callable[..., np.ndarray]:
    """The values of a function of UOps over arrays, computed by compiled C."""

    def run(
        function: Callable[..., UOp],
        sources: Sequence[tuple[DType, np.ndarray]],
        lanes: int,
    ) -> np.ndarray:
        size = len(sources[0][1])
        assert size % lanes == 0
        program = elementwise(function, [d for d, _ in sources], size, lanes)
        arrays = [np.ascontiguousarray(a) for _, a in sources]
        out = np.zeros(size, NUMPY[program.params[0].dtype])
        run_program(program, [out, *arrays])
        return out

    return run
