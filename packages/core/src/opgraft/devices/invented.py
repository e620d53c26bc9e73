"""Two invented devices that launch grids: their targets, and pairs of INTERP and NULL for them.

`INTERP_CC=LANES32` has every kernel lowered for groups of threads with narrow limits, and INTERP
carries it out and says what went wrong; `NULL_CC=LANES32` shows what is generated. So all that
grids take is tested without a machine that has them. The two differ in all that a scheduler asks:
lanes, limits, vectors, atomics, dtypes.
"""

from __future__ import annotations

from typing import Final

from opgraft.api import (
    CompilerPair,
    DotUnit,
    GroupOp,
    LinearProgram,
    MatrixLayout,
    MatrixUnit,
    Ops,
    Renderer,
    Target,
    dtypes,
    errors,
    linear_to_text,
    over_limits,
)

_INTEGERS: Final = frozenset(
    (op, dtype) for op in GroupOp.ATOMIC for dtype in (dtypes.int32, dtypes.uint32)
)

# where each thread of a unit holds what, as real ones do: the digits of its number, the least first
_TILE8: Final = MatrixUnit(
    "tile8",
    (8, 8, 8),
    (dtypes.float32,) * 3,
    32,
    MatrixLayout((("k", 2, 2), ("m", 4, 1), ("k", 2, 4), ("m", 2, 4)), (("k", 2, 1),)),
    MatrixLayout((("n", 2, 2), ("k", 4, 1), ("n", 2, 4), ("k", 2, 4)), (("n", 2, 1),)),
    MatrixLayout((("n", 2, 2), ("m", 4, 1), ("n", 2, 4), ("m", 2, 4)), (("n", 2, 1),)),
)
_TALL16: Final = MatrixUnit(
    "tall16",
    (16, 8, 16),
    (dtypes.float16, dtypes.float16, dtypes.float32),
    32,
    MatrixLayout((("k", 4, 2), ("m", 8, 1)), (("k", 2, 1), ("m", 2, 8), ("k", 2, 8))),
    MatrixLayout((("k", 4, 2), ("n", 8, 1)), (("k", 2, 1), ("k", 2, 8))),
    MatrixLayout((("n", 4, 2), ("m", 8, 1)), (("n", 2, 1), ("m", 2, 8))),
)
_DOT4: Final = DotUnit("dot4", (dtypes.int8, dtypes.int8, dtypes.int32))
_FLAT16: Final = MatrixUnit(
    "flat16",
    (16, 16, 4),
    (dtypes.float32,) * 3,
    64,
    MatrixLayout((("m", 16, 1), ("k", 4, 1))),
    MatrixLayout((("n", 16, 1), ("k", 4, 1))),
    MatrixLayout((("n", 16, 1), ("m", 4, 4)), (("m", 4, 1),)),
)
_WIDE32: Final = MatrixUnit(
    "wide32",
    (32, 32, 8),
    (dtypes.bfloat16, dtypes.bfloat16, dtypes.float32),
    64,
    MatrixLayout((("m", 32, 1), ("k", 2, 4)), (("k", 4, 1),)),
    MatrixLayout((("n", 32, 1), ("k", 2, 4)), (("k", 4, 1),)),
    MatrixLayout((("n", 32, 1), ("m", 2, 4)), (("m", 4, 1), ("m", 4, 8))),
)
_TWICE16: Final = MatrixUnit(
    "twice16",
    (16, 16, 16),
    (dtypes.int8, dtypes.int8, dtypes.int32),
    32,
    MatrixLayout((("m", 16, 1), ("", 2, 0)), (("k", 16, 1),)),
    MatrixLayout((("n", 16, 1), ("", 2, 0)), (("k", 16, 1),)),
    MatrixLayout((("n", 16, 1), ("m", 2, 1)), (("m", 8, 2),)),
)

LANES32: Final = Target(
    name="LANES32",
    arch="invented",
    fma=frozenset((dtypes.float32,)),
    vector_bytes=16,
    vector_registers=64,
    max_lanes=4,
    cores=16,
    max_parallel_dims=3,
    max_parallel_size=65_535,
    threads_per_group=256,
    group_dims=3,
    lanes=32,
    atomics=_INTEGERS,
    matrix_units=(_TILE8, _TALL16),
    dot_units=(_DOT4,),
    cache_bytes=(16 << 10, 2 << 20),
    local_bytes=16 << 10,
    max_buffers=8,
)
LANES64: Final = Target(
    name="LANES64",
    arch="invented",
    compute=frozenset(dtypes.all) - {dtypes.bfloat16},
    fma=frozenset((dtypes.float32, dtypes.float64)),
    vector_bytes=0,
    vector_registers=128,
    max_lanes=1,
    cores=64,
    max_parallel_dims=3,
    max_parallel_size=1 << 31,
    threads_per_group=1024,
    group_dims=3,
    lanes=64,
    atomics=_INTEGERS | {(Ops.ADD, dtypes.float32), (Ops.MAX, dtypes.float32)},
    matrix_units=(_FLAT16, _WIDE32, _TWICE16),
    cache_bytes=(32 << 10, 8 << 20),
    local_bytes=32 << 10,
    max_buffers=31,
)


TARGETS: Final = {target.name: target for target in (LANES32, LANES64)}


class TextRenderer(Renderer):
    """Writes the text form, which INTERP reads back."""

    suffix = ".og"

    def render(self, program: LinearProgram) -> str:
        return linear_to_text(program)

    def entry(self, name: str) -> str:
        return name


class Lanes32Renderer(TextRenderer):
    """For LANES32, whatever the device itself can do."""

    def __init__(self, target: Target) -> None:
        super().__init__(LANES32)


class Lanes64Renderer(TextRenderer):
    """For LANES64, whatever the device itself can do."""

    def __init__(self, target: Target) -> None:
        super().__init__(LANES64)


def check_limits(program: LinearProgram, target: Target) -> None:
    """Raises DeviceError for a program that asks for more than the target has."""
    exceeded = over_limits(program, target)
    if exceeded:
        raise errors.DeviceError(
            f"kernel {program.name!r} needs {'; '.join(exceeded)} on {target.name}",
            remedy="A smaller schedule, or fewer buffers in one kernel.",
        )


def pairs_of(device: str) -> tuple[CompilerPair, ...]:
    """The two as pairs of a device; chosen by name only."""
    return (
        CompilerPair(
            "LANES32", device, Lanes32Renderer, None, -1, "invented: groups of 32-lane threads"
        ),
        CompilerPair(
            "LANES64", device, Lanes64Renderer, None, -2, "invented: groups of 64-lane threads"
        ),
    )
