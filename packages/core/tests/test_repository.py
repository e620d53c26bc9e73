"""The repository agrees with itself: versions, lengths of files, links, tables, and examples.

These tests read the checkout; installed alone, the package has nothing for them to read.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import opgraft
import opgraft.devices.cpu  # declares its settings
from opgraft import settings

ROOT = Path(__file__).parents[3]
PACKAGES = sorted(path.parent for path in (ROOT / "packages").glob("*/pyproject.toml"))
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "changelog").glob("*.md")),
    *sorted((ROOT / "packages").glob("*/README.md")),
    *sorted((ROOT / "packages").glob("*/src/**/*.md")),
]
LONGEST = 600
"""Lines of a source file."""


def declared(package: Path) -> dict[str, dict[str, object]]:
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))


# ---- packages


def test_all_packages_take_their_version_from_the_same_tag() -> None:
    stated = []
    for package in PACKAGES:
        found = declared(package)
        assert found["project"]["dynamic"] == ["version"], package.name
        versioning = dict(found["tool"]["setuptools_scm"])  # type: ignore[call-overload]
        assert (package / versioning.pop("version_file")).parent.is_dir()
        stated.append(versioning)
    assert all(one == stated[0] for one in stated)
    assert stated[0]["root"] == "../.."


def test_versions_of_installed_packages_are_equal() -> None:
    from importlib import metadata

    found = {}
    for package in PACKAGES:
        name = str(declared(package)["project"]["name"])
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if len(found) < 2:
        pytest.skip("fewer than two of opgraft's packages are installed")
    assert len(set(found.values())) == 1, found


def test_packages_share_what_they_say_about_themselves() -> None:
    for package in PACKAGES:
        project = declared(package)["project"]
        assert str(project["name"]).startswith("opgraft-")
        assert project["requires-python"] == ">=3.11"
        assert project["license"] == "MIT"
        assert (package / str(project["readme"])).is_file()
        (source,) = [p for p in (package / "src").iterdir() if (p / "__init__.py").is_file()]
        assert (source / "py.typed").is_file(), f"{source.name} has no py.typed"


def test_no_source_file_is_long() -> None:
    counted = {
        path.relative_to(ROOT).as_posix(): len(path.read_bytes().splitlines())
        for package in PACKAGES
        for path in sorted((package / "src").rglob("*"))
        if path.suffix in (".py", ".c", ".h")
    }
    assert len(counted) > 100
    assert {name: lines for name, lines in counted.items() if lines > LONGEST} == {}


def test_nox_knows_every_package_each_after_those_it_needs() -> None:
    body = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body
    found = {ast.unparse(n.targets[0]): n.value for n in body if isinstance(n, ast.Assign)}
    order = ast.literal_eval(found["PACKAGES"])
    assert sorted(order) == [p.name for p in PACKAGES]
    names = {p.name: str(declared(p)["project"]["name"]) for p in PACKAGES}
    for place, folder in enumerate(order):
        needs = declared(ROOT / "packages" / folder)["project"]["dependencies"]
        needed = {line.partition(">")[0] for line in needs}
        earlier = {names[other] for other in order[:place]}
        assert needed & set(names.values()) <= earlier, folder


# ---- documentation


def links(text: str) -> list[str]:
    """The targets of a page's links, those in blocks of code left out."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "code", prose)
    return re.findall(r"\]\(([^)\s]+)\)", prose)


def anchors(text: str) -> set[str]:
    """The names under which a page's headings can be linked to."""
    heads = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (
            anchor and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    assert broken == []


def test_the_search_for_links_finds_them() -> None:
    assert links("see [a](b.md#c), ![d](e.svg)\n```\n[no](x)\n```\n`[no](y)`") == [
        "b.md#c",
        "e.svg",
    ]
    assert anchors("# A `b`, c\n## Settings of one's own") == {"a-b-c", "settings-of-ones-own"}


def test_the_index_lists_every_page() -> None:
    index = links((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    pages = [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.stem != "README"]
    assert [page for page in pages if page not in index] == []


def test_readme_names_every_package() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for package in PACKAGES:
        name = declared(package)["project"]["name"]
        assert f"[{name}](packages/{package.name})" in text, f"README has no row for {name}"


def settings_table() -> list[str]:
    """What docs/settings.md has to say, line by line."""
    lines = ["| setting | takes | default | meaning |", "|---|---|---|---|"]
    for row in settings.table():
        if row.owner not in ("opgraft", "cpu"):
            continue  # another test's, or a plugin's that is installed here
        name = f"<DEVICE>_{row.name}" if row.family else row.name
        plain = int(row.default) if isinstance(row.default, bool) else row.default
        default = "unset" if plain is None else "empty" if plain == "" else str(plain)
        lines.append(f"| `{name}` | {row.form} | {default} | {row.meaning} |")
    return lines


def test_the_table_of_settings_is_complete() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    wanted = settings_table()
    found = [line for line in text.splitlines() if line in wanted]
    assert found == wanted, "docs/settings.md wants:\n" + "\n".join(wanted)
    listed = re.findall(r"^\| `(?:<DEVICE>_)?([A-Z_]+)` \|", text, re.MULTILINE)
    assert listed == [row.split("`")[1].removeprefix("<DEVICE>_") for row in wanted[2:]]


def files_of_example() -> dict[str, str]:
    """The files that docs/backend.md spells out, by name."""
    text = (ROOT / "docs" / "backend.md").read_text(encoding="utf-8")
    found = re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return dict(found)


@pytest.mark.thorough
def test_the_backend_of_the_documentation_works_as_it_stands_there(tmp_path: Path) -> None:
    if not (shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("the example looks for gcc or clang, and there is neither")
    files = files_of_example()
    assert set(files) == {"pyproject.toml", "opgraft_mine.py"}
    project = tomllib.loads(files["pyproject.toml"])["project"]
    # as an installer would leave it
    (tmp_path / "opgraft_mine.py").write_text(files["opgraft_mine.py"])
    told = tmp_path / f"opgraft_mine-{project['version']}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    entries = [f"{name} = {value}" for name, value in project["entry-points"]["opgraft"].items()]
    (told / "entry_points.txt").write_text("\n".join(["[opgraft]", *entries, ""]))

    source = str(Path(opgraft.__file__).parents[1])
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("OPGRAFT_")},
        "PYTHONPATH": os.pathsep.join([str(tmp_path), source]),
        "OPGRAFT_CACHE": str(tmp_path / "cache"),
        "OPGRAFT_PLUGINS": "mine",
    }

    def opgraft_command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "opgraft", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert re.search(r"mine +opgraft-mine 1.0 +loaded", opgraft_command("plugins"))
    assert re.search(r"MINE +HOSTCC +works", opgraft_command("devices", "MINE"))
