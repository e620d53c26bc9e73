"""`import opgraft` is light, lazy, typed, and says its version."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opgraft
from opgraft import api

SOURCE = Path(opgraft.__file__).parent
HEAVY = ("numpy", "pluggy", "importlib.metadata", "rich", "cffi", "asyncio", "ctypes", "subprocess")


def loaded_after(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import opgraft",
        "import opgraft.ir",
        "from opgraft import UOp, Ops, UPat, PatternMatcher, EqualitySet, graph_rewrite, dtypes",
        "from opgraft import settings, errors, using, symbolic_simple, symbolic, sym, simplify",
        "import opgraft\nopgraft.simplify(opgraft.UOp.variable('x', 0, 9) * 1)",
    ],
)
def test_terms_are_rewritten_without_numpy_pluggy_and_the_like(code: str) -> None:
    found = loaded_after(code)
    plugins_needed = "simplify(" in code and any(m.startswith("opgraft_") for m in found)
    if not plugins_needed:  # a plugin that is installed here may need what it likes
        assert [name for name in HEAVY if name in found] == []


def test_importing_opgraft_alone_loads_no_room_of_it() -> None:
    found = [name for name in loaded_after("import opgraft") if name.startswith("opgraft.")]
    assert found == [
        "opgraft.errors",
        "opgraft.port",
        "opgraft.setting_forms",
        "opgraft.forking",
        "opgraft.settings",
    ]


def test_importing_opgraft_alone_leaves_the_slower_parts_of_the_library_alone() -> None:
    found = loaded_after("import opgraft")
    assert [name for name in ("inspect", "dataclasses", "difflib", "ast") if name in found] == []


PUBLIC = [
    "UOp",
    "Ops",
    "GroupOp",
    "UPat",
    "PatternMatcher",
    "EqualitySet",
    "graph_rewrite",
    "simplify",
    "symbolic_simple",
    "symbolic",
    "sym",
    "dtypes",
    "DType",
    "Device",
    "using",
    "settings",
    "errors",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_names_are_there(name: str) -> None:
    assert getattr(opgraft, name) is not None
    assert name in opgraft.__all__
    assert name in dir(opgraft)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'opgraft' has no attribute 'Tensor'"):
        _ = opgraft.Tensor


def test_the_version_is_a_string_that_begins_with_a_number() -> None:
    assert opgraft.__version__[0].isdigit()


@pytest.mark.parametrize("module", [opgraft, api])
def test_the_lazy_names_are_those_that_checkers_see(module: object) -> None:
    """The imports under TYPE_CHECKING and the table of homes say the same."""
    tree = ast.parse(Path(inspect.getfile(module)).read_text())  # type: ignore[arg-type]
    guarded = next(n for n in tree.body if isinstance(n, ast.If))
    declared = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = opgraft._HOMES if module is opgraft else api._home_of
    assert declared == dict(homes)
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)


def test_every_name_of_the_plugin_interface_resolves() -> None:
    assert api.API == (1, 0)
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert sorted(api.__all__) == sorted(set(api.__all__))
    with pytest.raises(AttributeError, match=r"opgraft.api 1.0 has no name 'nothing'"):
        _ = api.nothing


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()
