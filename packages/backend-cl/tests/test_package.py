"""The package itself: its size, its table of OpenCL's functions, its renderer's own words."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import replace
from pathlib import Path

import pytest

from opgraft.api import Ops, UOp, dtypes
from opgraft.runtime import Device
from opgraft_cl import hardware
from opgraft_cl.plugin import opgraft_compiler_pairs
from opgraft_cl.renderer import SubgroupRenderer, renderer

from .abi import FOLDER, generate
from .programs import i32, load, param, program, store

MADE = ("_abi.py", "_version.py")
"""Not written by hand."""
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENDMARKER)  # fmt: skip


def lines_of_code(path: Path) -> int:
    """Lines that are neither empty nor comment nor docstring."""
    text = path.read_text()
    if path.suffix == ".h":
        return sum(bool(line.strip()) and not line.startswith("/*") for line in text.splitlines())
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - prose)


def test_the_backend_is_under_900_lines_of_code() -> None:
    files = [p for p in FOLDER.iterdir() if p.suffix in (".py", ".h") and p.name not in MADE]
    assert len(files) > 8
    assert sum(map(lines_of_code, files)) < 900


def test_it_imports_the_plugin_interface_alone() -> None:
    for path in FOLDER.glob("*.py"):
        for name in re.findall(r"^ *(?:from|import) (opgraft\S*)", path.read_text(), re.MULTILINE):
            assert name == "opgraft.api" or name.startswith("opgraft_cl"), path.name


def test_the_table_of_functions_is_what_the_header_says() -> None:
    assert (FOLDER / "_abi.py").read_text() == generate()


def test_pairs_need_what_they_say(cl: Device) -> None:
    assert [p.name for p in opgraft_compiler_pairs("cl")] == ["CL", "INTEL"]
    assert list(opgraft_compiler_pairs("CPU")) == []
    if not dict(cl.target.extra)["subgroup_matrix"]:
        with pytest.raises(Exception, match="lacks cl_intel_subgroup_matrix_multiply_accumulate"):
            cl.pairs.select("INTEL")


def test_devices_without_exact_division_divide_in_float64(cl: Device) -> None:
    facts = {**dict(cl.target.extra), "exact_division": False}
    inexact = replace(cl.target, extra=tuple(sorted(facts.items())))
    x, y, out = (param(k, dtypes.float32, 4) for k in range(3))
    for lanes in (1, 4):
        a, b = load(x, i32(0), lanes), load(y, i32(0), lanes)
        made = program([store(out, i32(0), UOp(Ops.FDIV, a.dtype, (a, b)))])
        kind = "double" if lanes == 1 else "double4"
        assert kind in renderer(inexact).render(made)
        assert kind not in renderer(cl.target).render(made)


def test_half_is_native_where_the_device_computes_in_it() -> None:
    native = replace(hardware.FALLBACK, compute=frozenset(dtypes.all) - {dtypes.bfloat16})
    x, out = param(0, dtypes.float16, 8), param(1, dtypes.float16, 8)
    value = load(x, i32(0), 8) * 0.1
    made = program([store(out, i32(0), value), store(out, i32(1), load(x, i32(2)) + float("inf"))])
    source = renderer(native).render(made)
    assert "half8" in source
    assert "((half)0.0999755859375f)" in source
    assert "((half)INFINITY)" in source
    assert "vload_half" not in source
    subgroups = replace(native, extra=(("subgroup_matrix", 16),))
    head = "__kernel __attribute__((intel_reqd_sub_group_size(16)))"
    assert head in SubgroupRenderer(subgroups).render(made)
