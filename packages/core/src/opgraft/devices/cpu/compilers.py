"""The C compilers that the CPU device knows: how each is found, what it is, what it is told.

A compiler is asked once what it is, and the answer kept in the compile cache under its path,
size and time: a process that finds its kernels in the cache starts no compiler at all.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from opgraft.api import (
    Compiler,
    CompilerPair,
    Probe,
    Target,
    compile_cache,
    errors,
    settings,
)

if TYPE_CHECKING:
    from opgraft.api import Renderer

_STRICT: Final = ("-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
"""What docs/meaning.md asks of a C compiler."""
_COMMON: Final = (
    "-O2",
    "-std=gnu11",
    "-w",
    "-fPIC",
    "-shared",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    *_STRICT,
)
_LINK: Final = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-nostdlib",)
"""Linked to nothing: what a kernel may call (memcpy, fmaf), and the runtime, the process has."""
_FAMILY: Final = {
    # gcc 12 makes of a loop whose stores all wait for one condition vectors that store nothing
    # and, in looking for loops to make vectors of, spills the sums of those that are vectors
    "gcc": ("-pipe", "-fno-tree-loop-if-convert", "-fno-tree-loop-vectorize"),
    # explicit vectors are there already: clang's own loops cost compile time and gain nothing
    "clang": ("-fno-unroll-loops", "-fno-vectorize", "-fno-slp-vectorize"),
}
_WHEEL: Final = 'pip install "opgraft-core[cc]"'
_INSTALL: Final = f"Install one: apt install gcc, xcode-select --install, or {_WHEEL}."


class Identity(NamedTuple):
    """What a compiler says that it is."""

    family: str
    """"gcc" or "clang"."""
    version: str
    native: str
    """The option that means "for this processor"; empty if it takes none."""


def which(program: str) -> str | None:
    """The executable file that a command name or a path stands for."""
    folders = [""] if os.sep in program else os.environ.get("PATH", "").split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, program)
        if os.path.isfile(path) and os.access(path, os.X_OK) and (folder or os.sep in program):
            return path
    return None


def find(program: str) -> str:
    """As `which`; raises `DeviceError` that says where it was looked for."""
    found = which(program)
    if found is not None:
        return found
    where = "is no program" if os.sep in program else f"is not in PATH={os.environ.get('PATH', '')}"
    raise errors.DeviceError(f"{program} {where}", remedy=_INSTALL)


def find_zig() -> str:
    """The program of the `ziglang` wheel; raises `DeviceError` where it is not installed."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "zig.exe" if sys.platform == "win32" else "zig")
        if os.path.isfile(path):
            return path
    raise errors.DeviceError(
        "the Python package ziglang is not installed", remedy=f"Install it with: {_WHEEL}"
    )


def identify(command: Sequence[str]) -> Identity:
    """What a compiler is. Raises `DeviceError` where it is none that can be used."""
    stat = os.stat(os.path.realpath(command[0]))
    key = f"identity {' '.join(command)} {stat.st_size} {stat.st_mtime_ns}"
    known = compile_cache().get(key)
    if known is not None:
        return Identity(*known.data.decode().split("\n"))
    made = _ask(command)
    compile_cache().put(key, "\n".join((made.family, made.version, made.native)).encode())
    return made


def _ask(command: Sequence[str]) -> Identity:
    """By the macros that it defines: the names of programs say little."""
    from opgraft.devices.cpu import invoke  # late: most processes run no compiler

    said = ""
    for native in ("-march=native", "-mcpu=native", ""):
        macros, complaint = invoke.macros([*command, *([native] if native else [])])
        if "__TINYC__" in macros:
            raise errors.DeviceError(
                f"{command[0]} is tcc, which miscompiles vectors without a word", remedy=_INSTALL
            )
        if "__GNUC__" in macros:
            version = macros.get("__VERSION__", "unknown").strip('"')
            return Identity("clang" if "__clang__" in macros else "gcc", version, native)
        said = complaint
    raise errors.DeviceError(
        f"{' '.join(command)} does not work as a C compiler of the GNU kind",
        tried=((command[0], said.splitlines()[-1]),),
        remedy=_INSTALL,
    )


class CCompiler(Compiler):
    """A C compiler of the GNU kind, called as a program."""

    def __init__(self, name: str, command: Sequence[str], arch: str = "") -> None:
        self.name = name
        self.command = tuple(command)
        self.identity = identify(self.command)
        level = arch.partition(" ")[0]
        native = f"-march={level}" if level.startswith("x86-64-v") else self.identity.native
        self.options = (
            *_COMMON,
            *_LINK,
            *([native] if native else []),
            *_FAMILY[self.identity.family],
        )
        # "native" means this processor: its name and extensions stand for it in the key
        self.key = " ".join(
            (self.identity.family, self.identity.version, arch, *self.command[1:], *self.options)
        )

    def compile(self, source: str) -> bytes:
        """A shared library of what the source defines."""
        return self.build(source, ())

    def build(self, source: str, options: Sequence[str]) -> bytes:
        """A shared library; `options` come behind the compiler's own."""
        from opgraft.devices.cpu import invoke  # late: most processes run no compiler

        return invoke.build(self.name, [*self.command, *self.options, *options], source)


def renderer(target: Target) -> Renderer:
    """GNU C, for all of them."""
    from opgraft.api import CRenderer  # late: kernels from the cache need no renderer

    return CRenderer(target)


def gcc(target: Target) -> Compiler:
    """The `gcc` in PATH."""
    return CCompiler("GCC", [find("gcc")], target.arch)


def clang(target: Target) -> Compiler:
    """The `clang` in PATH."""
    return CCompiler("CLANG", [find("clang")], target.arch)


def cc(target: Target) -> Compiler:
    """The `cc` in PATH."""
    return CCompiler("CC", [find("cc")], target.arch)


def zig(target: Target) -> Compiler:
    """The clang inside the `ziglang` wheel."""
    return CCompiler("ZIG", [find_zig(), "cc"], target.arch)


# gcc first. What they make of explicit vectors runs alike (within a tenth, but for single kernels
# either way); gcc 12 takes 65 to 140 ms for a kernel where clang 14 takes 160 to 240 and zig 105
# to 165, and zig keeps a cache of its own that nobody bounds.
PAIRS: Final = (
    CompilerPair("GCC", "CPU", renderer, gcc, 40, "GNU C: apt install gcc"),
    CompilerPair("CLANG", "CPU", renderer, clang, 30, "LLVM: apt install clang"),
    CompilerPair("CC", "CPU", renderer, cc, 20, "the system's own C compiler"),
    CompilerPair("ZIG", "CPU", renderer, zig, 10, f"clang as a Python package: {_WHEEL}"),
)


def custom(choice: str) -> CompilerPair | None:
    """A pair of a command that is none of the names: a path, perhaps with options behind it."""
    import shlex  # late: rarely needed

    words = shlex.split(choice) or [choice]
    by_setting = bool(settings.get("CPU_CC"))
    if by_setting and os.sep not in words[0] and which(words[0]) is None:
        return None  # a name misspelt: the names there are will be listed
    origin = "the setting CPU_CC" if by_setting else "CC in the environment"

    def compiler(target: Target) -> Compiler:
        if which(words[0]) is None:
            raise errors.DeviceError(
                f"{origin} names {words[0]}, which is no program here",
                remedy=f"Name a C compiler there, or nothing. {_INSTALL}",
            )
        return CCompiler(words[0], [find(words[0]), *words[1:]], target.arch)

    return CompilerPair(choice, "CPU", renderer, compiler, note=f"named by {origin}")


def preferred() -> str:
    """What the environment's CC names, as for any build; empty: the first that works."""
    return os.environ.get("CC", "")


def probe() -> Probe:
    """Whether a C compiler seems to be there; none is started."""
    chosen = settings.get("CPU_CC") or preferred()
    names = ("gcc", "clang", "cc")
    if chosen or any(which(name) for name in names):
        return Probe(1)
    try:
        find_zig()
    except errors.DeviceError as error:
        where = os.environ.get("PATH", "")
        return Probe(0, f"no {', '.join(names)} in PATH={where}, and {error.message}")
    return Probe(1)
