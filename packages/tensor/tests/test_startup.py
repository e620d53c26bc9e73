"""What a process imports on the way to its first result, and lists without NumPy: by counts."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opgraft.dtype import DType, dtypes
from opgraft_tensor import Tensor, lists

FIRST = """
import sys
from opgraft_tensor import Tensor
assert (Tensor([1.0, 2.0], device="CPU") + 1.0).tolist() == [2.0, 3.0]
print(*sys.modules)
"""
UNNEEDED = (
    "numpy",
    "hashlib",
    "fractions",
    "decimal",
    "difflib",
    "importlib.metadata",
    "pluggy",
    "subprocess",
    "opgraft.ir.bounds",
    "opgraft.ir.codegen",
    "opgraft.ir.matcher",
    "opgraft.ir.parse",
    "opgraft.ir.pattern",
    "opgraft.ir.rewrite",
    "opgraft.ir.rule",
    "opgraft.ir.steps",
    "opgraft.ir.text",
    "opgraft.ir.trace",
    "opgraft.lower",
    "opgraft.opt",
    "opgraft.render",
    "opgraft.rules",
    "opgraft_tensor.nn",
)


def imported(program: str, cache: Path) -> list[str]:
    """The modules that a new process has in the end."""
    environment = {**os.environ, "OPGRAFT_CACHE": str(cache), "OPGRAFT_PLUGINS": ""}
    for name in ("DEVICE", "EGRAPH", "OPTIMIZER"):  # whatever the other tests run with
        environment.pop(f"OPGRAFT_{name}", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Modules of a process that finds its kernel in the cache."""
    cache = tmp_path_factory.mktemp("cache")
    assert "opgraft.lower.pipeline" in imported(FIRST, cache)
    return imported(FIRST, cache)


@pytest.mark.parametrize("name", UNNEEDED)
def test_a_process_that_finds_its_kernel_in_the_cache_does_not_import(
    warm: list[str], name: str
) -> None:
    assert not [m for m in warm if m == name or m.startswith(name + ".")]


def test_the_first_result_takes_few_modules(warm: list[str]) -> None:
    """188 when this was written, of which Python has 33 by itself; 331 with NumPy and the rules."""
    assert len(warm) < 240


def test_making_a_tensor_of_an_array_is_what_imports_numpy(tmp_path: Path) -> None:
    program = FIRST.replace("print(", "Tensor([1.0]).numpy()\nprint(")
    assert "numpy" in imported(program, tmp_path)


# ---- lists without NumPy

NUMBERS: list[list[Any]] = [
    [True, False],
    [1, -2, 3],
    [0.1, -0.0, 1e30, 1e-45, math.inf, -math.inf],
    [1, 2.5, True],
    [1e300, -1e300],
    [(1 << 63) - 1, -(1 << 63)],
]


@pytest.mark.parametrize("numbers", NUMBERS, ids=repr)
def test_a_list_is_stored_as_numpy_would_convert_it(numbers: list[Any]) -> None:
    made = Tensor(numbers, device="CPU")
    with np.errstate(over="ignore"):
        expected = np.array(numbers)
        if expected.dtype == np.float64:
            expected = expected.astype(np.float32)
    assert made.dtype.name == expected.dtype.name
    assert made.numpy().tobytes() == expected.tobytes()
    assert made.tolist() == expected.tolist()
    assert lists.packed(numbers, None) is not None, "this went by way of NumPy"


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
@pytest.mark.parametrize("numbers", [[0, 1, 100], [0.5, 3.0], [True, False], [300, -1, 1 << 33]])
def test_a_list_and_an_array_give_the_same_bits_in_every_dtype(
    numbers: list[Any], dtype: DType
) -> None:
    listed = Tensor(numbers, dtype=dtype, device="CPU")
    array = Tensor(np.array(numbers), dtype=dtype, device="CPU")
    assert listed.numpy().tobytes() == array.numpy().tobytes()
    assert listed.tolist() == array.numpy().tolist()


def test_an_integer_that_becomes_a_float_is_rounded_once() -> None:
    number = (1 << 62) + (1 << 38) + 1  # by way of float64 it would be a tie, and go down
    (made,) = Tensor([number], dtype=dtypes.float32).tolist()
    assert made == float((1 << 62) + (1 << 39))


def test_integers_too_large_for_int64_are_unsigned() -> None:
    made = Tensor([1 << 63])
    assert made.dtype is dtypes.uint64
    assert made.tolist() == [1 << 63]


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 3), (0,), (2, 0)])
def test_lists_have_the_nesting_of_the_shape(shape: tuple[int, ...]) -> None:
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    assert Tensor(values, device="CPU").tolist() == values.tolist()
    assert (Tensor(values, device="CPU") + 1.0).tolist() == (values + 1.0).tolist()


def test_what_is_read_is_a_copy() -> None:
    made = Tensor([1.0, 2.0], device="CPU")
    values = made.numpy()
    values[0] = 9.0
    assert made.tolist() == [1.0, 2.0]
