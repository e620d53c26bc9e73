"""Vectors of narrow integers in wider ones: every sign and width, by one instruction of x86."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp
from opgraft.render.c import CRenderer
from opgraft.target import Target
from tested import sampled

from .kernels import elementwise

NARROW = [
    dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32,
]  # fmt: skip


def to(dtype: DType) -> Callable[[UOp], UOp]:
    return lambda x: x.cast(dtype.vec(x.dtype.count))


@pytest.mark.parametrize("source", sampled(NARROW, 3), ids=str)
def test_numbers_stay_what_they_are(
    run_elementwise: Callable[..., np.ndarray], source: DType
) -> None:
    wider = [d for d in (dtypes.int16, dtypes.uint32, dtypes.int64) if d.bits > source.bits]
    values = np.random.default_rng(source.bits).integers(
        source.min, source.max, 64, source.name, endpoint=True
    )
    for target in sampled(wider, 2):
        for lanes in (2, 8, 16):
            found = run_elementwise(to(target), [(source, values)], lanes)
            assert np.array_equal(found, values.astype(target.name)), (target, lanes)


FORMS = [
    (dtypes.uint16, dtypes.uint32, 8, "vpmovzxwd"),
    (dtypes.int8, dtypes.int16, 16, "vpmovsxbw"),
    (dtypes.uint8, dtypes.int32, 8, "vpmovzxbd"),
    (dtypes.int32, dtypes.int64, 4, "vpmovsxdq"),
    (dtypes.float32, dtypes.float64, 4, "vcvtps2pd"),
    (dtypes.int32, dtypes.float64, 4, "vcvtdq2pd"),
]


@pytest.mark.parametrize(("source", "target", "lanes", "instruction"), FORMS, ids=str)
def test_one_instruction_loads_and_widens(
    tmp_path: Path,
    compiler: list[str],
    source: DType,
    target: DType,
    lanes: int,
    instruction: str,
) -> None:
    machine = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True).stdout
    if not machine.startswith("x86_64"):
        pytest.skip("these are instructions of x86-64")
    renderer = CRenderer(Target("cpu", vector_bytes=32))
    path, made = tmp_path / "k.c", tmp_path / "k.s"
    path.write_text(renderer.render(elementwise(to(target), [source], lanes, lanes)))
    command = [*compiler, "-O2", "-w", "-mavx2", "-S", str(path), "-o", str(made)]
    subprocess.run(command, check=True)
    lines = [line for line in made.read_text().splitlines() if instruction in line]
    assert lines
    assert all("ymm" in line for line in lines)
