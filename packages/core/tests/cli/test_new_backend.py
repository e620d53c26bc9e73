"""`opgraft new-backend`: the package that it writes, and the names that it refuses."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import opgraft
from opgraft.cli import main, new_backend
from opgraft.plugins.discovery import EntryPoint
from opgraft.plugins.registry import Registry
from tested import sampled

FLAVOURS = ("plain", "grid")
SHORT, LONG = "x", "abcdefghijklmnop"
HAS_COMPILER = any(map(shutil.which, ("gcc", "clang", "cc")))

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(name, flavour)`: the command's package; its folder."""
    monkeypatch.setenv("OPGRAFT_PLUGINS", "")

    def call(name: str, flavour: str = "plain") -> Path:
        options = ["--grid"] if flavour == "grid" else []
        assert main(["new-backend", name, "--into", str(tmp_path), *options]) == 0
        return tmp_path / f"opgraft-{name}"

    return call


def texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """What the command says where it fails."""
    capsys.readouterr()
    assert main(["new-backend", *words]) == code
    return capsys.readouterr().err


# ---- the package


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_it_is_complete(write: Write, flavour: str) -> None:
    found = texts(write("zephyr", flavour))
    source = "src/opgraft_zephyr"
    modules = ("__init__", "plugin", "target", "renderer", "compiler", "memory", "device", "launch")
    wanted = {f"{source}/{name}.py" for name in modules} | {
        *("pyproject.toml", "README.md", "LICENSE", ".gitignore", "noxfile.py"),
        *(".github/workflows/tests.yml", "tests/test_zephyr.py", f"{source}/py.typed"),
        *([f"{source}/launch.c"] if flavour == "grid" else []),
    }
    assert set(found) == wanted


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nothing_of_the_template_is_left_in_it(write: Write, flavour: str) -> None:
    found = texts(write("zephyr", flavour))
    for name, text in found.items():
        assert not re.search("acme", name + text, re.IGNORECASE), name
        assert not re.search(r"\$\w", text), name
        assert text == "" or text.endswith("\n"), name
    assert "class ZephyrDevice(Device)" in found["src/opgraft_zephyr/device.py"]
    assert "${{ matrix.python }}" in found[".github/workflows/tests.yml"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_it_declares_one_plugin_and_this_core(write: Write, flavour: str) -> None:
    project = tomllib.loads(texts(write("zephyr", flavour))["pyproject.toml"])["project"]
    assert project["name"] == "opgraft-zephyr"
    assert project["entry-points"]["opgraft"] == {"zephyr": "opgraft_zephyr.plugin"}
    (needed,) = project["dependencies"]
    assert needed == f"opgraft-core>={opgraft.__version__.partition('+')[0]}"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_its_source_imports_the_plugin_interface_and_nothing_else(
    write: Write, flavour: str
) -> None:
    folder = write("zephyr", flavour) / "src"
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            for name in names:
                top = name.partition(".")[0]
                ours = name == "opgraft.api" or top == "opgraft_zephyr"
                assert ours or top in sys.stdlib_module_names, f"{path.name} imports {name}"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_module_says_what_is_to_be_replaced(write: Write, flavour: str) -> None:
    for path in (write("zephyr", flavour) / "src").rglob("*.py"):
        if path.stem != "__init__":
            assert "TO REPLACE: " in path.read_text(encoding="utf-8"), path.name


def test_it_is_small(write: Write) -> None:
    for flavour in FLAVOURS:
        folder = write(f"zephyr{flavour}", flavour) / "src"
        lines = sum(len(p.read_text().splitlines()) for p in folder.rglob("*.*"))
        assert lines < 700, "a backend is under 700 lines: see style"


@pytest.mark.parametrize("name", sampled([SHORT, LONG, "zephyr"], 3))
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_it_is_in_good_style_whatever_the_length_of_the_name(
    write: Write, flavour: str, name: str
) -> None:
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")
    folder = write(name, flavour)
    for words in (["check", "-q", "--no-cache", "."], ["format", "--no-cache", "--diff", "."]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_its_types_are_strict(write: Write, flavour: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "mypy")],
        cwd=write("zephyr", flavour),
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(Path(opgraft.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sampled(2)
@pytest.mark.skipif(not HAS_COMPILER, reason="the template's device needs gcc or clang")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_its_device_works_and_its_tests_pass(write: Write, flavour: str, tmp_path: Path) -> None:
    folder = write("zephyr", flavour)
    told = folder / "src" / "opgraft_zephyr-0.1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.4\nName: opgraft-zephyr\nVersion: 0.1.0\n")
    (told / "entry_points.txt").write_text("[opgraft]\nzephyr = opgraft_zephyr.plugin\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPGRAFT_")}
    source = str(Path(opgraft.__file__).parents[1])
    environment = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), source]),
        "OPGRAFT_CACHE": str(tmp_path / "cache"),
        "OPGRAFT_PLUGINS": "zephyr",
    }

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    out = run("opgraft", "devices", "ZEPHYR", "ZEPHYR:1")
    assert re.search(r"ZEPHYR +HOSTCC +works", out)
    assert re.search(r"ZEPHYR:1 +HOSTCC +works", out)
    assert re.search(r"\d+ passed", run("pytest", "-c", os.devnull, "-q", "tests"))


# ---- names


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Acme", "acme"),
        ("my-chip", "mychip"),
        ("my_chip", "mychip"),
        ("opgraft-acme", "acme"),
        ("9lives", "lives"),
        ("a" * 30, "a" * new_backend.LONGEST),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_with_the_nearest_that_can(
    name: str, near: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = refused(capsys, name, "--into", str(tmp_path))
    assert f"'{name}' cannot be the name of a backend: one word of small letters" in said
    assert f"Take {near!r}: the device is then {near.upper()}." in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "--", "..", "a/b", "ä", "a\n"])
def test_what_is_no_name_at_all_is_refused(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(opgraft.errors.OpgraftError, match="cannot be the name of a backend"):
        new_backend.checked(name)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("cpu", "the plugin cpu of opgraft-core"),
        ("core", "one of opgraft's own packages"),
        ("egraph", "one of opgraft's own packages"),
        ("devices", "`opgraft devices` is a command"),
    ],
)
def test_a_name_that_opgraft_has_is_refused_with_its_owner(
    name: str, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, name)
    assert f"the name {name!r} is taken: " in said
    assert owner in said


def test_names_of_plugins_packages_and_modules_that_are_installed_are_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    point = EntryPoint("quick", "opgraft_silver.plugin", "opgraft-silver", "1.0")
    monkeypatch.setattr(new_backend, "REGISTRY", Registry(read=lambda: [point]))
    (tmp_path / "opgraft_lonely.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, words in (
        ("quick", "the plugin quick of opgraft-silver"),
        ("silver", "the plugin quick of opgraft-silver"),
        ("lonely", "a package opgraft_lonely is installed"),
    ):
        with pytest.raises(opgraft.errors.OpgraftError, match=words):
            new_backend.checked(name)
    assert new_backend.checked("golden") == "golden"


# ---- where it goes


def test_nothing_is_written_over_what_is_there(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write("zephyr")
    (folder / "README.md").write_text("mine")
    before = texts(folder)
    said = refused(capsys, "zephyr", "--into", str(folder.parent), code=1)
    assert "is there already, and nothing is written over it" in said
    assert "--into FOLDER" in said
    assert texts(folder) == before


def test_the_folder_is_made_and_a_failure_leaves_nothing(
    write: Write,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["new-backend", "zephyr", "--into", str(tmp_path / "a" / "b")]) == 0
    assert (tmp_path / "a" / "b" / "opgraft-zephyr" / "pyproject.toml").is_file()
    (tmp_path / "file").write_text("")
    said = refused(capsys, "zephyr", "--into", str(tmp_path / "file"), code=1)
    assert "cannot be written" in said

    def fail(self: Path, target: Path) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Path, "rename", fail)
    (tmp_path / "empty").mkdir()
    assert "no space" in refused(capsys, "zephyr", "--into", str(tmp_path / "empty"), code=1)
    assert list((tmp_path / "empty").iterdir()) == []


def test_it_says_what_to_do_next(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("zephyr")
    out = capsys.readouterr().out
    assert f"cd {folder}" in out
    assert 'pip install -e ".[test]"' in out
    assert "opgraft devices ZEPHYR" in out
