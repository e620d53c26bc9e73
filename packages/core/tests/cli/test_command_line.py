"""The command line, as a user meets it: output, JSON, exit codes, help."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_forms import kernels
from opgraft import __version__
from opgraft.cli import main
from opgraft.cli.cache import readable
from opgraft.cli.main import OWN
from opgraft.cli.screen import Plain, Rich, screen
from opgraft.cli.trial import Trial, _read, tiny_kernel
from opgraft.ir.argument import Line, read_value
from opgraft.ir.linear import KernelInfo
from opgraft.ir.text import to_text
from opgraft.opt.actions import Parallel
from opgraft.plugins.command import RESERVED

Run = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(words)`: exit code, stdout and stderr of a command, with no plugin but the built-in."""
    monkeypatch.setenv("OPGRAFT_PLUGINS", "")
    for name in list(os.environ):
        if name.startswith("OPGRAFT_") and name not in ("OPGRAFT_PLUGINS", "OPGRAFT_CACHE"):
            monkeypatch.delenv(name)

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    """A file with a kernel in text form."""
    path = tmp_path / "kernel.ir"
    path.write_text(to_text(tiny_kernel()) + "\n")
    return str(path)


# ---- usage


def test_without_a_command_it_shows_its_help_and_exits_with_2(run: Run) -> None:
    code, out, _ = run()
    assert code == 2
    assert all(name in out for name in OWN)


@pytest.mark.parametrize("name", RESERVED)
def test_every_command_has_a_help_that_tells_its_exit_codes(name: str, run: Run) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0
    assert f"usage: opgraft {name}" in out
    assert "exit codes: 0 " in " ".join(out.split())
    assert OWN[name].help in " ".join(run("--help")[1].split())


def test_the_version_is_the_packages(run: Run) -> None:
    assert run("--version")[:2] == (0, f"opgraft {__version__}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("devices", "--nonsense"),
        ("cache", "explode"),
        ("compile",),
        ("compile", "x.ir", "--binary"),
    ],
)
def test_wrong_usage_exits_with_2(words: tuple[str, ...], run: Run) -> None:
    code, out, complaint = run(*words)
    assert code == 2
    assert out == ""
    assert "opgraft" in complaint


def test_a_bad_setting_is_wrong_usage(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGRAFT_CACHE_SIZE", "huge")
    code, _, complaint = run("cache")
    assert code == 2
    assert "OPGRAFT_CACHE_SIZE = 'huge'" in complaint


def test_an_error_is_told_without_a_traceback_unless_debug_asks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, complaint = run("devices", "CPV")
    assert (code, out) == (1, "")
    assert complaint.startswith("opgraft: there is no device 'CPV'; known: CPU, INTERP, NULL\n")
    assert "Did you mean CPU?" in complaint
    assert "Traceback" not in complaint
    monkeypatch.setenv("OPGRAFT_DEBUG", "1")
    assert "Traceback" in run("devices", "CPV")[2]


# ---- devices


def test_devices_runs_a_kernel_on_each_and_says_how_to_select_it(run: Run) -> None:
    code, out, _ = run("devices")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:4] == ["DEVICE", "COMPILER", "STATE", "TIME"]
    states = {(line[0], line[1].rstrip("*")): line[2] for line in lines[1:] if len(line) > 3}
    assert states["INTERP", "NUMPY"] == "works"
    assert states["NULL", "C"] == "compiles"
    cpu = {pair: state for (device, pair), state in states.items() if device == "CPU"}
    assert set(cpu.values()) <= {"works", "absent"}
    assert "OPGRAFT_DEVICE=INTERP" in out
    if "works" in cpu.values():
        assert code == 0
        working = next(pair for pair, state in cpu.items() if state == "works")
        assert f"OPGRAFT_DEVICE=CPU OPGRAFT_CPU_CC={working}" in out
        assert "The default device is CPU" in out
    else:
        assert code == 1
        assert "The default device is INTERP" in out


def test_devices_as_json_holds_pairs_and_plugins(run: Run) -> None:
    code, out, _ = run("devices", "interp:0", "--json", "--here")
    told = json.loads(out)
    assert code == 0
    assert [device["name"] for device in told["devices"]] == ["INTERP"]
    pairs = {pair["pair"]: pair for pair in told["devices"][0]["pairs"]}
    assert list(pairs) == ["NUMPY", "LANES32", "LANES64"]
    assert all(pair["state"] == "works" for pair in pairs.values())
    assert pairs["LANES32"]["select"] == "OPGRAFT_DEVICE=INTERP OPGRAFT_INTERP_CC=LANES32"
    assert [p["name"] for p in told["plugins"]][:3] == ["cpu", "interp", "null"]


def test_devices_list_only_looks(run: Run) -> None:
    code, out, _ = run("devices", "--list")
    assert code == 0
    states = {line.split()[0]: line.split()[1] for line in out.splitlines()[1:] if line}
    assert states["INTERP"] == "found"
    assert states["CPU"] in ("found", "absent")
    assert " ms" not in out


def test_devices_tries_the_compiler_that_the_setting_names(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPGRAFT_NULL_CC", "nope")
    code, out, _ = run("devices", "NULL:1", "--here", "--json")
    first, second, *_ = json.loads(out)["devices"][0]["pairs"]
    assert (first["device"], first["pair"], first["state"]) == ("NULL:1", "nope", "absent")
    assert first["chosen"]
    assert "NULL_CC takes one of: C, " in first["remedy"]
    assert (second["pair"], second["state"], second["chosen"]) == ("C", "compiles", False)
    assert code == 1  # what the setting asks for does not work, whatever else does
    monkeypatch.setenv("OPGRAFT_NULL_CC", "c")
    assert run("devices", "NULL:1", "--here", "--json")[0] == 0


def test_devices_tells_that_the_setting_device_names_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPGRAFT_DEVICE", "CPV")
    code, out, _ = run("devices", "--list")
    assert code == 1
    assert "The setting DEVICE: there is no device 'CPV'" in out


def test_a_device_whose_process_crashes_is_told_with_the_signal() -> None:
    (trial,) = _read("MINE", -11, "", "first\nSegmentation fault\n")
    assert (trial.device, trial.state) == ("MINE", "crashed")
    assert trial.reason == "its process ended with SIGSEGV: Segmentation fault"
    assert trial.select == ""
    (trial,) = _read("MINE", 3, "noise", "")
    assert trial.reason == "its process ended with exit code 3: without a word"
    (trial,) = _read("MINE", 0, "no json", "")
    assert trial.state == "crashed"
    assert _read("MINE", 0, 'noise\n[{"device": "MINE", "pair": "", "state": "works"}]\n', "") == [
        Trial("MINE", "", "works")
    ]


# ---- plugins, info, cache


def test_plugins_lists_the_built_in_ones_with_what_they_offer(run: Run) -> None:
    code, out, _ = run("plugins")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()[1:4]}
    assert list(rows) == ["cpu", "interp", "null"]
    assert "device CPU" in rows["cpu"]
    assert all("loaded" in row and "opgraft-core" in row for row in rows.values())
    told = json.loads(run("plugins", "--json")[1])
    assert told[0]["name"] == "cpu"
    assert told[0]["api"] == [1, 0]


def test_plugins_tells_names_in_the_setting_that_fit_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPGRAFT_PLUGINS", "cqu")
    assert "The setting PLUGINS names 'cqu'; no plugin of that name" in run("plugins")[1]


def test_info_holds_what_a_bug_report_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGRAFT_DEBGU", "1")
    monkeypatch.setenv("OPGRAFT_CPU_CC", "GCC")
    code, out, _ = run("info", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["versions"]["opgraft"] == __version__
    assert told["versions"]["API"] == "1.0"
    assert told["versions"]["Python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert set(told["compilers"]) == {"clang", "gcc", "cc", "zig"}
    assert told["settings"]["CPU_CC"] == "'GCC' (environment)"
    assert told["settings"]["OPGRAFT_DEBGU"] == "is no setting; did you mean OPGRAFT_DEBUG?"
    assert [p["name"] for p in told["plugins"]][:3] == ["cpu", "interp", "null"]
    assert {d["name"] for d in told["devices"]} >= {"CPU", "INTERP", "NULL"}
    assert {"folder", "entries", "size"} <= set(told["cache"])
    plain = run("info")[1]
    assert plain.startswith("VERSIONS\nopgraft")
    assert "MACHINE" in plain


def test_info_finds_the_zig_of_the_wheel(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    program = package / "zig"
    program.write_text("#!/bin/sh\necho 0.99.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    importlib.invalidate_caches()
    told = json.loads(run("info", "--json")[1])
    assert told["compilers"]["zig"] == f"0.99.0 ({program})"


def test_info_works_though_a_setting_is_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGRAFT_FLOAT", "fast")
    code, out, _ = run("info", "--json")
    assert code == 0
    assert "OPGRAFT_FLOAT = 'fast'" in json.loads(out)["settings"]["invalid"]


def test_info_lists_every_setting_with_its_meaning(run: Run) -> None:
    rows = {row["name"]: row for row in json.loads(run("info", "--settings", "--json")[1])}
    assert rows["FLOAT"]["default"] == "strict"
    assert rows["<DEVICE>_CC"]["meaning"]
    assert "NAME" in run("info", "--settings")[1].splitlines()[0]


def test_cache_shows_and_clears(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGRAFT_CACHE", str(tmp_path / "kept"))
    monkeypatch.setenv("OPGRAFT_CACHE_SIZE", "5M")
    told = json.loads(run("cache", "--json")[1])
    assert (told["folder"], told["entries"], told["limit"]) == (str(tmp_path / "kept"), 0, 5 << 20)
    run("devices", "NULL", "--here")
    held = json.loads(run("cache", "--json")[1])
    assert held["entries"] > 0
    assert held["bytes"] > 0
    assert "5.0 MiB" in run("cache")[1]
    assert "hits" in run("cache")[1]
    assert {"hits", "misses"} <= set(held)
    code, out, _ = run("cache", "clear")
    assert (code, out) == (0, f"removed {held['entries']} entries\n")
    assert json.loads(run("cache", "--json")[1])["entries"] == 0


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_written_for_people(nbytes: int, text: str) -> None:
    assert readable(nbytes) == text


# ---- explain


def test_explain_shows_each_rewrite_of_an_expression_the_costs_and_the_source(run: Run) -> None:
    code, out, _ = run("explain", "(x*4 + 3)//4 where x in [0, 9]")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "(x*4 + 3)//4"
    assert lines[1].split() == ["RULE", "WHERE", "BEFORE", "AFTER"]
    rule = lines[2].split()
    assert rule[0] == "1"
    assert rule[2].startswith("rules/")
    assert rule[2].rpartition(":")[2].isdigit()
    assert "x" in lines
    assert "-> 0, 1 rewrites by greedy (fixed point)" in out
    assert "og_expression" in out


def test_explain_says_where_an_expression_does_not_parse(run: Run) -> None:
    code, out, complaint = run("explain", "(x*4 +")
    assert (code, out) == (1, "")
    assert "(x*4 +" in complaint


def test_explain_takes_ir_from_a_file(run: Run, kernel: str) -> None:
    code, out, _ = run("explain", "--no-source", kernel)
    assert code == 0
    assert out.count('sink[KernelInfo("trial", none)]') == 2
    assert "og_trial" not in out


def test_explain_shows_the_schedule_that_made_a_kernel(run: Run, tmp_path: Path) -> None:
    """As actions, a line each: given to the kernel as its own, they make the same source."""
    sink = kernels.matmul(32, 32, 16)
    file = tmp_path / "matmul.ir"
    file.write_text(to_text(sink))
    _, out, _ = run("explain", str(file))
    shown, source = out.partition("\nschedule\n")[2].split("\n\n", 1)
    steps = tuple([read_value(Line(line, 1)) for line in shown.splitlines()])
    assert Parallel in map(type, steps)
    file.write_text(to_text(sink.replace(arg=KernelInfo("matmul", steps))))
    _, again, _ = run("explain", str(file))
    assert again.partition("\nschedule\n")[2] == f"{shown}\n\n{source}"


SCRIPT = """\
import sys
from opgraft import Device
from opgraft.cli.trial import tiny_kernel
from opgraft.runtime import compile_kernel
print("arguments", sys.argv[1:], __name__)
device = Device["INTERP"]
compile_kernel(device, tiny_kernel())
raise SystemExit(int(sys.argv[1]))
"""


def test_explain_runs_a_script_and_shows_its_kernels(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    before = list(sys.path), list(sys.argv)
    from opgraft import Device

    Device["INTERP"].kernels.clear()
    code, out, _ = run("explain", str(script), "0", "--other")
    assert code == 0
    assert out.startswith("arguments ['0', '--other'] __main__\n")
    assert "kernel trial on INTERP by NUMPY" in out
    assert 'sink[KernelInfo("trial", none)]' in out
    assert 'linear["trial"]' in out
    assert "\nschedule\nCover(0, " in out
    last = out.splitlines()[-1].split()
    assert last[:3] == ["trial", "INTERP", "NUMPY"]
    assert last[-1] == "us"
    assert (sys.path, sys.argv) == before
    code, out, _ = run("explain", str(script), "3")
    assert code == 1
    assert "the script ended with exit code 3" in out
    assert "no kernel was compiled" in out  # it is known already


def test_explain_of_a_script_that_is_not_there(run: Run) -> None:
    code, _, complaint = run("explain", "no_such_script.py")
    assert code == 1
    assert "there is no file no_such_script.py" in complaint


# ---- compile


def test_compile_prints_the_source_for_a_device_that_is_not_opened(run: Run, kernel: str) -> None:
    code, out, _ = run("compile", kernel, "--device", "null")
    assert code == 0
    assert "og_trial" in out
    assert run("compile", kernel, "--pair", "C")[1] == out


def test_compile_prints_the_instructions_and_takes_them_again(
    run: Run, kernel: str, tmp_path: Path
) -> None:
    code, linear, _ = run("compile", kernel, "--device", "NULL", "--linear")
    assert code == 0
    assert linear.startswith('linear["trial"]')
    again = tmp_path / "linear.ir"
    again.write_text("# lowered\n" + linear)
    assert (
        run("compile", str(again), "--device", "NULL")[1]
        == (run("compile", kernel, "--device", "NULL")[1])
    )


def test_compile_reads_standard_input_and_writes_a_file(
    run: Run, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(Path(kernel).read_text()))
    target = tmp_path / "out.c"
    assert run("compile", "-", "--device", "NULL", "-o", str(target))[:2] == (0, "")
    assert target.read_text() == run("compile", kernel, "--device", "NULL")[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("no_such.ir",), "cannot be read"),
        (("KERNEL", "--pair", "NVC"), "no compiler pair 'NVC'"),
        (("KERNEL", "--device", "CPV"), "Did you mean CPU?"),
        (("KERNEL", "--device", "NULL", "--binary", "-o", "OUT"), "has no compiler"),
    ],
)
def test_compile_says_what_is_wrong(
    words: tuple[str, ...], why: str, run: Run, kernel: str, tmp_path: Path
) -> None:
    named = {"KERNEL": kernel, "OUT": str(tmp_path / "out")}
    code, out, complaint = run("compile", *(named.get(w, w) for w in words))
    assert (code, out) == (1, "")
    assert why in complaint


def test_compile_refuses_what_is_no_kernel(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "node.ir"
    path.write_text('%0: index = var["x", 0, 9]\n%1: index = mul(%0, 4)\n')
    code, _, complaint = run("compile", str(path), "--device", "NULL")
    assert code == 1
    assert "not a kernel" in complaint
    assert "opgraft explain" in complaint
    path.write_text("this is no IR\n")
    code, _, complaint = run("compile", str(path), "--device", "NULL")
    assert code == 1
    assert "Traceback" not in complaint


# ---- the screen


def test_plain_text_is_for_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(screen(), Plain)
    Plain().table(("name", "why"), [("a", "x\ny"), ("longer", "")])
    assert capsys.readouterr().out == "NAME    WHY\na       x y\nlonger\n"


def test_rich_is_used_on_a_terminal_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    found = screen()
    assert isinstance(found, Rich)
    found.heading("Title")
    found.table(("name", "state"), [("[red]", "works")])
    found.code("int x;", "c")
    out = capsys.readouterr().out
    assert "[red]" in out  # text is no markup
    assert "works" in out
    assert "int" in out


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    import subprocess

    done = subprocess.run(
        f"{sys.executable} -m opgraft info --settings | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert "Traceback" not in done.stderr
    assert "NAME" in done.stdout
