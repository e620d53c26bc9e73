"""The kernels of benchmarks/corpus are those that tensor plans for its programs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
if not (FOLDER / "corpus_kernels.py").exists():
    pytest.skip("the corpus is part of the repository, not of a package", allow_module_level=True)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"opgraft_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its tuples look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_the_kernels_are_as_recorded() -> None:
    corpus = load("corpus")
    recorded = {name: corpus.text_of(sink) for name, sink in corpus.kernels()}
    planned = {name: corpus.text_of(sink) for name, sink in load("corpus_kernels").kernels()}
    lines = corpus.replanned(planned, recorded)
    if lines:
        listed = "\n".join(lines[: corpus.SHOWN])
        pytest.fail(f"{len(lines)} kernels are planned anew:\n{listed}\n\n{corpus.REMEDY}")


def test_a_kernel_that_is_planned_anew_is_named() -> None:
    corpus = load("corpus")
    before = {"a/one": "x", "a/two": "x", "a/gone": "x"}
    after = {"a/one": "x", "a/two": "y", "a/new": "x"}
    assert corpus.replanned(after, before) == [
        "a/two: another kernel",
        "a/new: not recorded",
        "a/gone: gone",
    ]
