"""Dot instructions in C: one meaning, whichever builtin a compiler has for them, or none."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opgraft.dtype import dtypes
from opgraft.ir import Ops, UOp
from opgraft.ir.matrix import DotUnit
from opgraft.render.c import CRenderer
from opgraft.target import Target

from .kernels import elementwise

I32 = dtypes.int32
PAIRS16 = DotUnit("pairs16", (dtypes.int16, dtypes.int16, I32))
FOURS8 = DotUnit("fours8", (dtypes.uint8, dtypes.int8, I32))
OTHER = DotUnit("other", (dtypes.int8, dtypes.int8, I32))


def dot(unit: DotUnit) -> Callable[..., UOp]:
    return lambda a, b, c: UOp(Ops.DOT, a.dtype, (a, b, c), unit)


def parts(words: np.ndarray, name: str, depth: int) -> np.ndarray:
    return words.view(name).reshape(-1, depth).astype(np.int64)


@pytest.mark.parametrize("unit", [PAIRS16, FOURS8, OTHER], ids=lambda u: u.name)
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_products_of_parts_are_added_up(
    run_elementwise: Callable[..., np.ndarray], unit: DotUnit, lanes: int
) -> None:
    pick = np.random.default_rng(lanes)
    a, b, c = (pick.integers(-(1 << 31), 1 << 31, 64).astype(np.int32) for _ in range(3))
    a[:2], b[:2], c[:2] = -(1 << 31), 0x80008000 - (1 << 32), (1 << 31) - 1
    got = run_elementwise(dot(unit), [(I32, a), (I32, b), (I32, c)], lanes)
    first, second, _ = (d.name for d in unit.dtypes)
    exact = c + (parts(a, first, unit.depth) * parts(b, second, unit.depth)).sum(axis=1)
    assert np.array_equal(got, exact.astype(np.int32))


FORMS = [
    (PAIRS16, 4, "-msse2", "pmaddwd"),
    (PAIRS16, 8, "-mavx2", "vpmaddwd"),
    (PAIRS16, 16, "-mavx512bw", "vpmaddwd"),
    (FOURS8, 4, "-mavx512vnni -mavx512vl", "vpdpbusd"),
    (FOURS8, 8, "-mavx512vnni -mavx512vl", "vpdpbusd"),
    (FOURS8, 8, "-mavxvnni", "vpdpbusd"),
    (FOURS8, 16, "-mavx512vnni", "vpdpbusd"),
]


@pytest.mark.parametrize(("unit", "lanes", "flags", "instruction"), FORMS)
def test_compilers_have_the_instruction(
    compiler: list[str], tmp_path: Path, unit: DotUnit, lanes: int, flags: str, instruction: str
) -> None:
    machine = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True).stdout
    if not machine.startswith("x86_64"):
        pytest.skip("these are instructions of x86-64")
    target = Target("cpu", vector_bytes=4 * lanes)
    source = CRenderer(target).render(elementwise(dot(unit), [I32] * 3, lanes, lanes))
    path, made = tmp_path / "dot.c", tmp_path / "dot.s"
    path.write_text(source)
    done = subprocess.run(
        [*compiler, "-O1", "-w", *flags.split(), "-S", str(path), "-o", str(made)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert instruction in made.read_text()


def test_without_the_instruction_it_is_plain_c() -> None:
    source = CRenderer(Target("cpu")).render(elementwise(dot(OTHER), [I32] * 3, 4, 4))
    assert "pmadd" not in source
    assert "vpdp" not in source
