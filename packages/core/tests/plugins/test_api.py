"""What `opgraft.api` exports is a promise: it is recorded, documented, and changes with its number.

These tests read the checkout: see interface.py beside this file.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import opgraft
from opgraft import api
from opgraft.plugins import hookspecs

sys.path.insert(0, str(Path(__file__).parent))
interface = importlib.import_module("interface")
interface_page = importlib.import_module("interface_page")

NOW = interface.describe()


# ---- the record


def test_the_interface_is_the_recorded_one() -> None:
    recorded = interface.RECORD.read_text(encoding="utf-8")
    assert recorded == NOW, (
        f"the plugin interface has changed:\n{interface.difference(recorded, NOW)}\n"
        f"If that is meant, raise API in opgraft/plugins/handshake.py where it was released, and "
        f"record it: {interface.ADVICE}"
    )


def test_the_recorded_interface_is_that_of_the_api_number() -> None:
    assert interface.number(interface.RECORD.read_text(encoding="utf-8")) == api.API


def test_the_description_is_the_same_in_every_process() -> None:
    code = "import interface; print(interface.describe(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={
            "PYTHONPATH": f"{Path(__file__).parent}:{Path(opgraft.__file__).parents[1]}",
            "PYTHONHASHSEED": "7",
        },
        check=True,
    )
    assert done.stdout == NOW


def test_the_description_holds_hooks_exports_members_and_defaults() -> None:
    rows = NOW.splitlines()
    for hook in hookspecs.HOOKS:
        assert any(row.startswith(f"hook {hook}(") for row in rows), hook
    assert "class Target" in rows
    assert "  field cores: int = 1" in rows
    assert "  abstract method alloc(nbytes: int) -> Any" in rows
    assert "  field install: str = ''" in rows
    assert "  attribute usage" in rows
    assert any(row.startswith("function compile_kernel(device: Device, sink: UOp)") for row in rows)
    assert "  class DeviceMemoryError(DeviceError, OpgraftError)" in rows
    for name in api.__all__:
        if name != "API":
            assert any(row.split("(")[0].split(":")[0].endswith(f" {name}") for row in rows), name


class Changed:
    """A class whose interface the tests below change."""

    def first(self, count: int = 1) -> str:
        return "x" * count


@pytest.mark.parametrize(
    "change",
    [
        {"first": lambda self, count=2: ""},
        {"first": lambda self, number=1: ""},
        {"first": property(lambda self: "")},
        {"second": lambda self: ""},
        {"__annotations__": {"size": "int"}},
    ],
    ids=["default", "argument", "kind", "new method", "new field"],
)
def test_every_kind_of_change_changes_the_description(change: dict) -> None:
    module = {"__module__": "opgraft.sample"}
    before = type("Changed", (), {**vars(Changed), **module})
    after = type("Changed", (), {**vars(Changed), **module, **change})
    for made in (before, after):
        for thing in vars(made).values():
            if hasattr(thing, "__code__"):
                thing.__module__ = "opgraft.sample"
    assert list(interface.export("Changed", before)) != list(interface.export("Changed", after))


# ---- what may be recorded


TEXT = "API 1.0\n\nclass A\n  field a: int\n  method m() -> int\n"


def test_an_interface_that_no_tag_holds_may_be_recorded_anew() -> None:
    assert interface.refusal(TEXT.replace("int", "str"), {}) == ""


def test_a_released_interface_is_not_recorded_anew_under_its_number() -> None:
    before = {(1, 0): TEXT}
    assert interface.refusal(TEXT, before) == ""
    assert "released with another interface" in interface.refusal(TEXT + "\nclass B\n", before)


def test_a_greater_minor_number_may_add_and_not_take_away() -> None:
    before = {(1, 0): TEXT}
    more = TEXT.replace("1.0", "1.1") + "  field b: int\n\nclass B\n"
    assert interface.refusal(more, before) == ""
    less = "API 1.1\n\nclass A\n  field a: int\n"
    assert "A.m: taking away needs a greater major" in interface.refusal(less, before)
    assert interface.refusal(less.replace("1.1", "2.0"), before) == ""


def test_what_was_released_is_what_the_tags_hold(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    place = tmp_path / "packages" / "core" / "tests" / "plugins" / "interface.txt"
    place.parent.mkdir(parents=True)
    git("init", "-q")
    place.write_text(TEXT)
    git("add", ".")
    git("commit", "-qm", "one")
    assert interface.released(tmp_path) == {}
    git("tag", "v1.0.0")
    place.write_text(TEXT + "class C\n")
    git("commit", "-qam", "two")
    assert interface.released(tmp_path) == {(1, 0): TEXT}


# ---- the page


def test_the_page_of_the_interface_is_that_of_its_docstrings() -> None:
    told = interface_page.PAGE.read_text(encoding="utf-8")
    assert interface_page.page(told) == told, f"docs/api.md is out of date: {interface.ADVICE}"


def test_the_page_has_every_export_and_every_hook_with_its_since() -> None:
    since = interface_page.since(interface_page.PAGE.read_text(encoding="utf-8"))
    for name in (*hookspecs.HOOKS, *api.__all__):
        if name != "API":
            version = tuple(map(int, since["", name].split(".")))
            assert (1, 0) <= version <= api.API, name


def test_every_member_of_a_class_that_a_plugin_subclasses_has_a_row() -> None:
    since = interface_page.since(interface_page.PAGE.read_text(encoding="utf-8"))
    for name in ("Allocator", "Compiler", "Device", "Executable", "Renderer", "CStyleRenderer"):
        for member in vars(getattr(api, name)):
            if not member.startswith("_"):
                assert (name, member) in since, f"{name}.{member}"


@pytest.mark.thorough
def test_a_new_name_is_as_old_as_the_api_and_an_old_one_stays_as_old_as_it_was() -> None:
    told = interface_page.PAGE.read_text(encoding="utf-8")
    older = told.replace("| `is_watched() -> bool` | 1.0 |", "| `is_watched() -> bool` | 0.9 |")
    assert older != told
    again = interface_page.page(older)
    assert "| `is_watched() -> bool` | 0.9 |" in again
    assert "| `is_watched() -> bool` | 1.0 |" in interface_page.page("")


def test_every_export_has_a_place_on_the_page_and_words() -> None:
    placed = [name for names in interface_page.AREAS.values() for name in names]
    assert sorted(placed) == sorted(set(placed))
    assert set(placed) == set(api.__all__) - {"API"}, "give it a place in interface_page.AREAS"
    for name in placed:
        assert interface_page.OWN_WORDS.get(name) or interface_page.words(getattr(api, name)), name
