"""What this machine's processor can do, read from the system: the CPU's `Target`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from opgraft.api import (
    DotUnit,
    DType,
    Ops,
    Target,
    dtypes,
    errors,
    measured_prices,
    settings,
)

_ARCHES: Final = {"amd64": "x86-64", "x86_64": "x86-64", "arm64": "aarch64"}
_X86_FLAGS: Final = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
)
"""The flags of /proc/cpuinfo that change what a kernel is made of."""
_ARM_FLAGS: Final = ("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve")
_FOURS8: Final = DotUnit("fours8", (dtypes.uint8, dtypes.int8, dtypes.int32))
"""Four products of bytes at once."""
_PAIRS16: Final = DotUnit("pairs16", (dtypes.int16, dtypes.int16, dtypes.int32))
"""Two products of 16-bit numbers: exact, the sum of both too but for the greatest, which wraps."""
_CACHES: Final = (32 << 10, 512 << 10, 8 << 20)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def machine() -> str:
    """The instruction set's name: "x86-64", "aarch64", ..."""
    found = os.uname().machine.lower() if hasattr(os, "uname") else "unknown"
    return _ARCHES.get(found, found)


def flags(read: Callable[[str], str] = _read) -> tuple[str, ...]:
    """The instruction set's extensions that matter here, in a fixed order."""
    arch = machine()
    wanted = _X86_FLAGS if arch == "x86-64" else _ARM_FLAGS if arch == "aarch64" else ()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", read("/proc/cpuinfo"), re.MULTILINE)
    if found is None:
        # without the list, only what every processor of the kind has
        return ("asimd",) if arch == "aarch64" else ()
    words = frozenset(found[1].split())
    return tuple(flag for flag in wanted if flag in words)


LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "x86-64-v2": _X86_FLAGS[:1],
    "x86-64-v3": _X86_FLAGS[:5],
    "x86-64-v4": _X86_FLAGS[:9],
}
"""What compilers mean by these names, in the flags above."""


def cores(read: Callable[[str], str] = _read) -> int:
    """Cores that this process may use: its affinity, and the CPU time that its group is given."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota, _, period = read("/sys/fs/cgroup/cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        count = min(count, -(-int(quota) // int(period)))
    return max(count, 1)


def caches(read: Callable[[str], str] = _read) -> tuple[int, ...]:
    """Bytes of the data caches of a core, the nearest first."""
    found: dict[int, int] = {}
    for index in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        size = re.fullmatch(r"(\d+)([KM]?)", read(f"{folder}/size").strip())
        level = read(f"{folder}/level").strip()
        if size and level.isdigit() and read(f"{folder}/type").strip() != "Instruction":
            found[int(level)] = int(size[1]) << {"": 0, "K": 10, "M": 20}[size[2]]
    if 1 not in found:
        return _CACHES
    return tuple(found[level] for level in sorted(found))


def line(read: Callable[[str], str] = _read) -> int:
    """Bytes of a line of the first cache."""
    size = read("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size").strip()
    return int(size) if size.isdigit() and int(size) else Target.line_bytes


def memory(read: Callable[[str], str] = _read) -> int:
    """Bytes of memory that this process may use; half the address space where unknown."""
    bounds = [sys.maxsize]
    with suppress(AttributeError, OSError, ValueError):
        bounds.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = read(path).strip()
        if limit.isdigit():
            bounds.append(int(limit))
    return min(b for b in bounds if b > 0)


def detect(read: Callable[[str], str] = _read) -> Target:
    """The facts of this machine."""
    arch, extensions, level = machine(), flags(read), settings.get("CPU_ARCH")
    if level != "native":
        missing = [flag for flag in LEVELS[level] if flag not in extensions]
        if arch != "x86-64" or missing:
            raise errors.DeviceError(
                f"CPU_ARCH is {level}, but this {arch} processor lacks {' '.join(missing)}",
                remedy="CPU_ARCH=native takes what is there.",
            )
        arch, extensions = level, LEVELS[level]
    wide = "avx512f" in extensions and "avx512vl" in extensions
    if wide:
        vector = 64
    elif "avx2" in extensions:
        vector = 32
    else:
        vector = 16
    fused: frozenset[DType] = frozenset()
    if "fma" in extensions or wide or machine() == "aarch64":
        fused = frozenset((dtypes.float32, dtypes.float64))
    dots: list[DotUnit] = []
    if ("avx512_vnni" in extensions and wide) or "avx_vnni" in extensions:
        dots.append(_FOURS8)
    if machine() == "x86-64":
        dots.append(_PAIRS16)
    count = cores(read)
    return Target(
        name="CPU",
        arch=" ".join((arch, *extensions)),
        # 16-bit floats are stored, and computed with in float32
        compute=frozenset(dtypes.all) - {dtypes.float16, dtypes.bfloat16},
        # C branches round the reduction of large arguments
        ops=Target.ops | {Ops.SIN},
        fma=fused,
        vector_bytes=vector,
        vector_registers=32 if wide or machine() == "aarch64" else 16,
        dot_units=tuple(dots),
        prefetch=True,
        cores=count,
        cache_bytes=caches(read),
        line_bytes=line(read),
        # on the stack: of 8 MB in most threads; see runtime.c about others
        local_bytes=2 << 20,
        op_prices=measured_prices("CPU"),
    )
