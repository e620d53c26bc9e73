"""The handshake over versions of the interface: case F03 of the public reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from opgraft.errors import PluginError
from opgraft.plugins.handshake import check, stated


@pytest.mark.parametrize("said", [(2, 0), (2, 3)])
def test_the_same_major_and_a_minor_that_core_has_is_let_in(said: tuple[int, int]) -> None:
    assert check(said, "x", "opgraft-x", core=(2, 3)) == said


@pytest.mark.parametrize(
    ("said", "shown", "upgrade"),
    [
        ((1, 0), "API 1.0", "opgraft-x"),
        ((1, 99), "API 1.99", "opgraft-x"),
        ((3, 0), "API 3.0", "opgraft-core"),
        ((2, 4), "API 2.4", "opgraft-core"),
        (None, "says no API version", "opgraft-x"),
        ("two", "says API = 'two'", "opgraft-x"),
        (2, "says API = 2", "opgraft-x"),
        ((2,), "says API = (2,)", "opgraft-x"),
        ((2, 0, 0), "says API = (2, 0, 0)", "opgraft-x"),
        ((True, False), "says API = (True, False)", "opgraft-x"),
        ([2, 0], "says API = [2, 0]", "opgraft-x"),
        ((2.0, 0), "says API = (2.0, 0)", "opgraft-x"),
    ],
)
def test_any_other_is_refused_with_both_versions_and_a_way_out(
    said: object, shown: str, upgrade: str
) -> None:
    with pytest.raises(PluginError) as caught:
        check(said, "x", "opgraft-x", core=(2, 3))
    text = str(caught.value)
    assert shown in text
    assert "API 2.3" in text
    assert f"pip install --upgrade {upgrade}" in text
    assert "OPGRAFT_PLUGINS=-x" in text
    assert "pip uninstall opgraft-x" in text


def module(folder: Path, name: str, text: str) -> None:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("API = (1, 0)\n", (1, 0)),
        ("API: tuple[int, int] = (1, 2)\nraise RuntimeError\n", (1, 2)),
        ('"""\nAPI = (9, 9)\n"""\nAPI = (1, 3)\n', (1, 3)),
        ("API = 'two'\n", "two"),
        ("API = tuple([1, 0])\n", None),
        ("from elsewhere import API\n", None),
        ("def f():\n    API = (1, 0)\n", None),
        ("API = (1, 0\n", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_the_source_without_running_it(
    text: str, found: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("raise RuntimeError('not to be run')\n")
    module(tmp_path, "pack.plugin", text)
    assert stated("pack.plugin") == found


def test_which_hooks_there_are_is_read_from_the_source_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module(tmp_path, "plain", "API = (1, 0)\nHOOKS = ('opgraft_commands',)\nraise RuntimeError\n")
    assert stated("plain", "HOOKS") == ("opgraft_commands",)
    assert stated("math", "HOOKS") is None


def test_modules_that_have_no_source_say_nothing() -> None:
    assert stated("no_such_module.at.all") is None
    assert stated("math") is None
