"""Lowered kernels in the cache: a process that finds its kernels there imports no pass and no rule.

What a sink is lowered to depends on the passes and rules, core's and those of plugins. So the
key names versions, and the files of opgraft and of every plugin by size and time: an edited
checkout, or a plugin that comes or goes, makes other keys.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from opgraft import port
from opgraft.digest import blake2b
from opgraft.dtype import to_dtype
from opgraft.ir.uop import UOp
from opgraft.runtime.cache import compile_cache
from opgraft.runtime.program import Program

_CODE: Final = (".py", ".so", ".pyd", ".c")


def recall(key: str) -> Program | None:
    """The program (without its binary) under this key; None where there is none."""
    found = compile_cache().get(key)
    return None if found is None else unpack(found.data)


def remember(key: str, program: Program) -> None:
    """Keep a program, without its binary."""
    compile_cache().put(key, pack(program))


def pack(program: Program) -> bytes:
    """A program without binary and linear program, as a text."""
    parallel = program.parallel
    return json.dumps(
        {
            "name": program.name,
            "source": program.source,
            "entry": program.entry,
            "params": [(dtype.name, size) for dtype, size in program.params],
            "variables": [(*v.arg, v.dtype.name) for v in program.variables],
            "parallel": _written(parallel),
            "launch": [[_written(n) for n in sizes] for sizes in program.launch],
            "written": program.written,
            "operations": program.operations,
            "stack": program.stack,
        }
    ).encode()


def unpack(data: bytes) -> Program:
    """What `pack` packed."""
    facts: dict[str, Any] = json.loads(data)
    groups, threads = facts["launch"]
    return Program(
        name=facts["name"],
        source=facts["source"],
        entry=facts["entry"],
        params=tuple((to_dtype(dtype), size) for dtype, size in facts["params"]),
        variables=tuple(
            UOp.variable(name, least, greatest, to_dtype(dtype))
            for name, least, greatest, dtype in facts["variables"]
        ),
        parallel=_read(facts["parallel"]),
        launch=(tuple([_read(n) for n in groups]), tuple(threads)),
        written=tuple(facts["written"]),
        operations=facts["operations"],
        stack=facts["stack"],
    )


def _written(extent: UOp | int | None) -> str | int | None:
    if not isinstance(extent, UOp):
        return extent
    from opgraft.ir.text import to_text  # late: few kernels have an extent that varies

    return to_text(extent)


def _read(extent: Any) -> Any:
    if not isinstance(extent, str):
        return extent
    from opgraft.ir.text import parse  # late, as above

    return parse(extent)


@cache
def fingerprint() -> str:
    """A digest of the code that lowers, looked up once per process."""
    plugins = port.installed_plugins()
    packages = dict.fromkeys(["opgraft", *(value.split(".")[0] for value, _, _ in plugins)])
    digest = blake2b(repr(sorted(plugins)).encode(), digest_size=20)
    for line in files(packages):
        digest.update(line.encode())
    return digest.hexdigest()


def files(packages: Iterable[str]) -> Iterator[str]:
    """Name, size and time of every file with code in these packages, in a fixed order."""
    for package in packages:
        spec = importlib.util.find_spec(package.partition(":")[0])
        places = list(spec.submodule_search_locations or ()) if spec else []
        if spec and spec.origin and not places:
            stat = os.stat(spec.origin)
            yield f"{package} {stat.st_size} {stat.st_mtime_ns}\n"
        while places:
            folder = places.pop()
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            for entry in entries:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        places.append(entry.path)
                elif entry.name.endswith(_CODE):
                    stat = entry.stat()
                    yield f"{entry.name} {stat.st_size} {stat.st_mtime_ns}\n"
