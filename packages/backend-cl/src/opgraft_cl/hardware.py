"""What an OpenCL device can do, asked of its driver: the device's `Target`."""

from __future__ import annotations

from typing import Final

from opgraft.api import DType, GroupOp, Ops, Target, dtypes, settings
from opgraft_cl import driver
from opgraft_cl.driver import Found

_DENORM, _FMA = 1, 32
_RESERVED: Final = 256
"""Bytes of a kernel's arguments that are left to variables."""
_LAUNCH: Final = 4e5
"""Of a processor, measured with PoCL: a launch takes some 20 microseconds."""
_WIDE_ATOMICS: Final = {"cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics"}
_ENABLED: Final = {"cl_khr_fp64", "cl_khr_fp16", *_WIDE_ATOMICS}
"""What a source has to ask for."""
_LOCKSTEP: Final = (
    (0x1067, None),  # CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE
    (0x4003, "cl_nv_device_attribute_query"),
    (0x4043, "cl_amd_device_attribute_query"),
)
"""Questions for the number of threads in lockstep, and the extension that knows each."""
FALLBACK: Final = Target(
    name="CL",
    arch="any",
    compute=frozenset(dtypes.all) - {dtypes.float16, dtypes.bfloat16},
    max_lanes=16,
    group_dims=3,
    max_parallel_dims=3,
    threads_per_group=256,
    local_bytes=32 << 10,
    max_buffers=32,
)
"""A usual device, to compile for one that is not there."""


def detect(found: Found, index: int) -> Target:
    """The facts of a device."""
    ask = found.library.clGetDeviceInfo

    def number(key: int) -> int:
        return driver.number(ask, found.device, key)

    extensions = set(driver.text(ask, found.device, 0x1030).split())
    chosen, single = int(settings.get("CL_LANES")), number(0x101B)
    is_cpu = chosen == 1 or (not chosen and not found.kind & 12)
    double = "cl_khr_fp64" in extensions or number(0x1032) != 0
    lacking = {dtypes.bfloat16}
    lacking |= set() if double else {dtypes.float64}
    lacking |= set() if "cl_khr_fp16" in extensions else {dtypes.float16}
    fused = {dtypes.float64} if double else set()
    fused |= {dtypes.float32} if single & _FMA else set()
    cache = number(0x101E)
    listed = driver.read(ask, found.device, 0x4108)  # CL_DEVICE_SUB_GROUP_SIZES_INTEL
    sizes = [size for size in memoryview(listed).cast("P") if size in (8, 16)]
    facts = {
        "extensions": tuple(sorted(extensions & _ENABLED)),
        "exact_division": bool(single & driver.EXACT_DIVISION),
        "subgroup_matrix": min(sizes, default=0) if MATRIX in extensions else 0,
        "index": index,
    }
    lanes = 32  # as most have; fewer in lockstep are served by it as well
    for key, asked in _LOCKSTEP:
        known = found.version >= (3, 0) if asked is None else asked in extensions
        lanes = (number(key) if known else 0) or lanes
    return Target(
        name="CL",
        arch=f"{found.platform_name}, {found.name}",
        compute=frozenset(dtypes.all) - lacking,
        storage=frozenset(dtypes.all) - (set() if double else {dtypes.float64}),
        ops=Target.ops | {Ops.SIN},  # the renderer branches round the reduction of large ones
        fma=frozenset(fused),
        flushes_subnormals=not single & _DENORM,
        vector_bytes=max(16, 4 * number(0x103A)) if is_cpu else 16,
        max_lanes=16,
        cores=max(1, number(0x1002)),
        max_parallel_dims=3,
        threads_per_group=max(1, number(0x1004)),
        group_dims=3,
        lanes=1 if is_cpu else chosen or lanes,
        atomics=_atomics(extensions),
        cache_bytes=(32 << 10, 512 << 10, cache) if is_cpu else (16 << 10, max(cache, 1 << 20)),
        local_bytes=number(0x1023),
        max_buffers=max(1, (number(0x1017) - _RESERVED) // 16),
        extra=tuple(sorted(facts.items())),
        dram_price=4.0 if is_cpu else 10.0,
        cache_price=0.25 if is_cpu else 1.0,
        launch_price=_LAUNCH if is_cpu else 1e6,
    )


MATRIX: Final = "cl_intel_subgroup_matrix_multiply_accumulate"


def _atomics(extensions: set[str]) -> frozenset[tuple[Ops, DType]]:
    """Core since 1.1 for 32 bits; more by extension; floats are added by compare-and-swap."""
    found = {(op, dtype) for op in GroupOp.ATOMIC for dtype in (dtypes.int32, dtypes.uint32)}
    found.add((Ops.ADD, dtypes.float32))
    if extensions >= _WIDE_ATOMICS:
        found |= {(op, dtype) for op in GroupOp.ATOMIC for dtype in (dtypes.int64, dtypes.uint64)}
        if "cl_khr_fp64" in extensions:
            found.add((Ops.ADD, dtypes.float64))
    return frozenset(found)
