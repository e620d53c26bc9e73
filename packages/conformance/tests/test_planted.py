"""Faults planted in copies of the template's backend: the kit catches each and leads to it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from opgraft.cli import new_backend
from running import Done, run_kit

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("gcc", "clang", "cc"))),
    reason="the template's device needs a C compiler",
)


def backend(folder: Path, kind: str, *changes: tuple[str, str, str]) -> Path:
    """The template's package as an installer leaves it, with changes (file, old, new)."""
    made = new_backend.write("acme", folder / "source", kind)
    site = folder / "site"
    shutil.copytree(made / "src", site)
    project = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    told = site / "opgraft_acme-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.4\nName: opgraft-acme\nVersion: 1.0\n")
    lines = [f"{k} = {v}" for k, v in project["entry-points"]["opgraft"].items()]
    (told / "entry_points.txt").write_text("\n".join(["[opgraft]", *lines, ""]))
    for name, old, new in changes:
        file = site / "opgraft_acme" / name
        text = file.read_text()
        assert text.count(old) == 1, f"the template's {name} has changed: {old!r}"
        file.write_text(text.replace(old, new))
    return site


def try_kit(folder: Path, site: Path, *arguments: str) -> Done:
    """The kit's run on the device of such a package."""
    env = {"PYTHONPATH": str(site), "OPGRAFT_CACHE": str(folder / "cache")}
    return run_kit(folder, "acme", *arguments, env=env)


def failures(done: Done) -> dict[str, str]:
    """The messages of the rows that failed; the run has failed with them."""
    found = {n: row["message"] for n, row in done.rows().items() if row["result"] == "failed"}
    assert done.code == (1 if found else 0), done.text
    return found


GROUPS = ("--area", "groups", "--area", "programs", "-k", "groups or texts")
OPERATIONS = ("--area", "operations", "-k", "scalars and (TRUNC or uint8)")
ORDER = ("--area", "buffers", "--area", "launches", "-k", "order or running or between")


@pytest.mark.parametrize(("kind", "rows"), [("grid", GROUPS), ("plain", OPERATIONS)])
def test_the_template_as_it_is_has_none_of_the_faults(
    tmp_path: Path, kind: str, rows: tuple[str, ...]
) -> None:
    done = try_kit(tmp_path, backend(tmp_path, kind), *rows)
    assert failures(done) == {}
    assert sum(result == "passed" for result in done.results().values()) >= 10


def test_a_barrier_that_does_not_wait(tmp_path: Path) -> None:
    planted = (
        "launch.c",
        "  group.now->waits = 1;\n  swapcontext(&group.now->context, &group.others);\n}\n\n"
        "/* a thread of each group",
        "}\n\n/* a thread of each group",
    )
    found = failures(try_kit(tmp_path, backend(tmp_path, "grid", planted), *GROUPS))
    message = found["groups/barrier[1]"]
    assert message.startswith("a barrier does not make the threads of a group wait for each other")
    assert "stored before the barrier, in group memory" in message
    assert "look at: Renderer.barrier" in message
    assert " barrier();" in message, "the kernel's source is shown"
    assert "acme_og_neighbour_thread(" in message, "all of it, and not its runtime alone"
    assert "lines before, and" in message
    # it is not taken for groups that share their memory
    assert "race between groups" not in found["groups/group_memory_is_one_groups_own"]
    # and programs that are more than one barrier are wrong as well
    assert {"programs/texts[group_sum]", "programs/texts[group_scan]"} <= set(found)
    assert "all threads reach it" in found["programs/texts[group_sum]"]
    # programs without barriers are right
    assert not [row for row in found if "grid_of" in row or "lanes" in row]


SIDE_BY_SIDE = (
    ("launch.c", "int count = size[0] * size[1] * size[2], fault = 0;",
     "int count = 2 * size[0] * size[1] * size[2], fault = 0;"),
    ("launch.c", "begin_threads(threads, stacks, size);\n",
     "begin_threads(threads, stacks, size);\n"
     "    begin_threads(threads + count / 2, stacks + (size_t)STACK * (count / 2), size);\n"),
    ("launch.c", "x < groups[0] && !fault; x++) {\n          for",
     "x < groups[0] && !fault; x += 2) {\n          for"),
    ("launch.c", "threads[i].at.group[0] = x,",
     "threads[i].at.group[0] = x + (i >= count / 2 && x + 1 < groups[0]),"),
)  # fmt: skip
"""Two groups run side by side, as on a device of several cores, and have one group memory."""


def test_a_race_between_groups_for_their_memory(tmp_path: Path) -> None:
    found = failures(try_kit(tmp_path, backend(tmp_path, "grid", *SIDE_BY_SIDE), *GROUPS))
    message = found["groups/group_memory_is_one_groups_own"]
    assert "a race between groups" in message.splitlines()[0]
    assert "which a thread of group 1 stored" in message
    assert "a group that runs alone is right" in message
    assert "look at: how Space.GROUP is declared" in message
    assert "groups/barrier[1]" not in found, "barriers are right"


def test_a_race_between_a_launch_and_a_copy(tmp_path: Path) -> None:
    planted = (
        "device.py",
        "        launch.launch(self._function, self.program, handles, values, variables)\n",
        "        import threading\n"
        "        def late(kept=tuple(buffers)):\n"
        "            time.sleep(0.3)\n"
        "            launch.launch(self._function, self.program, handles, values, variables)\n"
        "        thread = threading.Thread(target=late)\n"
        "        thread.start()\n"
        "        if wait: thread.join()\n",
    )
    found = failures(try_kit(tmp_path, backend(tmp_path, "plain", planted), *ORDER))
    message = found["buffers/copies_are_in_order_with_launches"]
    assert message.startswith("a copy between two launches")
    assert "source of kernel 'affine'" in message
    assert "launches of a device happen in order" in found["launches/launches_in_order"]


def test_a_wrong_operation(tmp_path: Path) -> None:
    planted = ("renderer.py", 'dtypes.float32): "truncf"', 'dtypes.float32): "roundf"')
    found = failures(try_kit(tmp_path, backend(tmp_path, "plain", planted), *OPERATIONS))
    message = found["operations/scalars[TRUNC-float32]"]
    assert "TRUNC of float32" in message
    assert "gave" in message
    assert "toward zero" in message, "what is right is said"
    assert "roundf(" in message, "the source shows where it comes from"
    assert all("TRUNC" in row for row in found)


def test_an_ignored_dtype(tmp_path: Path) -> None:
    planted = (
        "renderer.py",
        '        dtypes.float16: "unsigned short",',
        '        dtypes.uint8: "signed char",\n        dtypes.float16: "unsigned short",',
    )
    found = failures(try_kit(tmp_path, backend(tmp_path, "plain", planted), *OPERATIONS))
    message = found["operations/scalars[MAX-uint8]"]
    assert "MAX of uint8" in message
    assert "signed char" in message
    assert "the highest bit of an unsigned number is set: is it taken as signed?" in message
    assert all("uint8" in row for row in found), "every message names the dtype"
    assert len(found) >= 5


ABSENT = ("--area", "life", "-k", "absent", "--absent", "PATH=/nonexistent")


def test_a_device_that_is_absent_in_its_own_words(tmp_path: Path) -> None:
    done = try_kit(tmp_path, backend(tmp_path, "plain"), *ABSENT)
    assert failures(done) == {}
    assert done.results() == {"life/absent": "passed"}


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        ("gcc", "opening raises an error that is not opgraft's"),
        (shutil.which("true"), "ACME opens in the environment in which it is declared"),
    ],
    ids=["an error of Python's", "no error"],
)
def test_a_device_that_does_not_say_what_it_lacks(
    tmp_path: Path, instead: str, message: str
) -> None:
    old = "        if not found:\n"
    planted = ("compiler.py", old, f"        found = found or [{instead!r}]\n{old}")
    found = failures(try_kit(tmp_path, backend(tmp_path, "plain", planted), *ABSENT))
    assert found["life/absent"].startswith(message)
