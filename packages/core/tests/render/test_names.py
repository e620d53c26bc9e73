"""Kernel names: any text is a kernel's name in every dialect, and stays itself."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable

import pytest

from opgraft.dtype import dtypes
from opgraft.ir import UOp
from opgraft.render.c import CRenderer
from opgraft.render.names import LONGEST, identifier
from opgraft.render.writer import Writer
from opgraft.target import Target

from .kernels import elementwise, merged

# ahrefs/ocannl#686 and others: keywords, reserved names, names of functions and types
HARD = ["double", "half", "or", "asm", "kernel", "local", "thread", "data0", "__x", "a b", "if"]
HARD += ["og_if", "main", "memcpy", "sin", "d0", "v0", "i0", "f32x8", "", "Z", "ZZ", "aZ20zb", "é"]
HARD += ["_", "a_b", "a__b", "_a", "a_", "*/", '"', "\n", "x" * 300, "x" * 299 + "y", "_if"]


def test_names_stay_distinct_and_are_identifiers_everywhere() -> None:
    made = [identifier(name) for name in HARD]
    assert len(set(made)) == len(HARD)
    for text in made:
        assert re.fullmatch(r"og_[A-Za-z0-9][A-Za-z0-9_]*", text)
        assert "__" not in text
        assert len(text) <= LONGEST


def test_long_names_that_differ_at_the_end_differ() -> None:
    long = "fused_" + "mul_add_" * 75
    assert identifier(long + "exp") != identifier(long + "log")


def test_kernels_of_all_these_names_compile_together(
    compile_c: Callable[[str], ctypes.CDLL],
) -> None:
    def double(x: UOp) -> UOp:
        return x + x

    programs = [elementwise(double, [dtypes.float32], 8, 4, name) for name in HARD]
    renderer = CRenderer(Target("cpu"))
    library = compile_c(merged(renderer, programs))
    for name in HARD:
        assert getattr(library, renderer.entry(name))


def test_the_text_of_a_vector_type_is_written_once_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: Counter[str] = Counter()
    original = Writer.typedef

    def noted(self: Writer, name: str, text: str) -> str:
        written[name] += "may_alias" not in text  # those in memory are asked for by each access
        return original(self, name, text)

    monkeypatch.setattr(Writer, "typedef", noted)

    def steps(x: UOp) -> UOp:
        for i in range(20):
            x = (x * x + float(i)).maximum(x)
        return x

    renderer = CRenderer(Target(name="T", vector_bytes=32, vector_registers=16))
    renderer.render(elementwise(steps, [dtypes.float32], 64, 8))
    assert max(written.values()) == 1
