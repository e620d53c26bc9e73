"""`opgraft compile`: a kernel in text form to source, for any device or compiler pair."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from opgraft import settings
from opgraft.catalog import Device, look
from opgraft.cli.screen import screen
from opgraft.errors import DeviceError, OpgraftError
from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import Ops
from opgraft.ir.parse import parse, parse_linear
from opgraft.ir.text import linear_to_text
from opgraft.ir.uop import UOp
from opgraft.lower.pipeline import lower
from opgraft.plugins.command import Command, UsageError
from opgraft.plugins.registry import REGISTRY
from opgraft.runtime.compiler import CompilerPair, Selected
from opgraft.runtime.kernels import compiled
from opgraft.target import Target


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft compile`."""
    parser.add_argument("file", help='a kernel in text form; "-" reads standard input')
    parser.add_argument("--device", default="", help="render for this device (default: the one "
                        "that --pair belongs to, else the default device)")  # fmt: skip
    parser.add_argument("--pair", default="", help="with this compiler pair's renderer")
    parser.add_argument("-o", "--output", default="", help="write to a file")
    parser.add_argument("--linear", action="store_true", help="the lowered IR instead of source")
    parser.add_argument(
        "--binary", action="store_true", help="run the pair's compiler too; needs --output"
    )


def run(arguments: Namespace) -> int:
    """Lower and render (and compile) one kernel."""
    if arguments.binary and not arguments.output:
        raise UsageError("--binary needs --output FILE: a binary is not for the terminal")
    text = sys.stdin.read() if arguments.file == "-" else _read(arguments.file)
    kind, pair = choose(arguments.device, arguments.pair)
    renderer = pair.renderer(target_of(kind))
    program = program_of(text, renderer.target)
    if arguments.binary:
        compiler = None if pair.compiler is None else pair.compiler(renderer.target)
        if compiler is None:
            raise DeviceError(f"pair {pair.name} of {kind} has no compiler: the driver is one")
        entry = compiled(Selected(pair, renderer.target, compiler), renderer.render(program))
        Path(arguments.output).write_bytes(entry.data)
        return 0
    result = linear_to_text(program) if arguments.linear else renderer.render(program)
    if arguments.output:
        Path(arguments.output).write_text(result.rstrip("\n") + "\n", encoding="utf-8")
    else:
        screen().code(result, "text" if arguments.linear else "c")
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OpgraftError(f"{path} cannot be read: {error}") from error


def choose(device: str, pair: str) -> tuple[str, CompilerPair]:
    """The kind of device, and its pair by name, else the setting's, else the first."""
    kinds = [Device.canonical(device).partition(":")[0]] if device else Device.names()
    named = {kind: Device.pairs(kind) for kind in kinds}
    if pair:
        for kind, pairs in named.items():
            for candidate in pairs:
                if candidate.name.upper() == pair.upper():
                    return kind, candidate
        known = ", ".join(f"{k}: {p.name}" for k, ps in named.items() for p in ps)
        raise DeviceError(f"there is no compiler pair {pair!r}", remedy=f"Known are {known}.")
    if not device:
        kinds = [Device.default.kind, *kinds]
    for kind in kinds:
        wanted = settings.get(f"{kind}_CC").upper()
        for candidate in named[kind]:
            if not wanted or candidate.name.upper() == wanted:
                return kind, candidate
    raise DeviceError(
        f"{device or 'no device'} has no compiler pair: it compiles nothing",
        remedy="Choose another with --device or --pair.",
    )


def target_of(kind: str) -> Target:
    """What the device here can do; where there is none, what a usual one can."""
    spec = REGISTRY.device(kind, kind).item
    if spec.target is not None and look(spec).count == 0:
        return spec.target()
    try:
        return Device[kind].target
    except OpgraftError:
        if spec.target is None:
            raise
        return spec.target()


def program_of(text: str, target: Target) -> LinearProgram:
    """The lowered program of a text: of a kernel, or of a program that is lowered already."""
    rows = [row.strip() for row in text.splitlines()]
    if next((row for row in rows if row and row[0] != "#"), "").startswith("linear"):
        return parse_linear(text)
    kernel: UOp = parse(text)
    if kernel.op is not Ops.SINK:
        raise OpgraftError(
            f"the text is a {kernel.op.name}, not a kernel",
            remedy="A kernel ends in a sink of stores; `opgraft explain` takes expressions.",
        )
    return lower(kernel, target)


COMMAND: Final = Command(
    "compile",
    run,
    "a kernel in text form to source for a device",
    configure,
    """Lower a kernel in the IR's text form and print the source that a compiler pair renders.
No device is needed: where it is absent, a usual one of its kind is assumed.

  opgraft compile kernel.ir                      for the default device
  opgraft compile kernel.ir --device CPU --pair CLANG
  opgraft compile kernel.ir --linear             the instructions, before rendering
  opgraft compile kernel.ir --binary -o out.so   compiled

exit codes: 0 done; 1 it does not parse, lower or compile; 2 wrong usage.""",
)
