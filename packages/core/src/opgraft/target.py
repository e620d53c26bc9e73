"""What a device can do, as data. Lowering and scheduling ask this, never a device's name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opgraft.dtype import DType, dtypes
from opgraft.ir.matrix import DotUnit, MatrixUnit
from opgraft.ir.ops import AxisKind, GroupOp, Ops


@dataclass(frozen=True)
class Target:
    """The facts that shape a kernel. Hashable, printable and part of a kernel's cache key."""

    name: str
    """For messages and cache keys; no code may branch on it."""
    arch: str = ""
    """What the compiler generates code for: "x86-64 avx2 fma", "sm_90", ..."""

    # what arithmetic is there
    compute: frozenset[DType] = frozenset(dtypes.all)
    """Dtypes that the device computes in; others are decomposed."""
    storage: frozenset[DType] = frozenset(dtypes.all)
    """Dtypes that its loads and stores handle, even where it can't compute in them."""
    ops: frozenset[Ops] = GroupOp.ALU - GroupOp.ELEMENTARY - {Ops.THREEFRY}
    """Elementwise ops that the renderer honours natively, at the meaning of docs/meaning.md."""
    fma: frozenset[DType] = frozenset()
    """Dtypes with a fused multiply-add as cheap as a multiply."""
    flushes_subnormals: bool = False

    # vectors
    vector_bytes: int = 16
    """Width of a vector register; 0: the renderer has no vectors."""
    vector_registers: int = 16
    max_lanes: int = 64
    """The most lanes that a rendered vector may have."""
    gather: bool = False
    """Whether LOAD and STORE take a vector of indices."""
    prefetch: bool = False
    """Whether PREFETCH brings anything nearer; where it does not, lowering drops it."""

    # parallelism
    cores: int = 1
    parallel: AxisKind | None = AxisKind.PARALLEL
    """How the outermost axis is spread; None: not at all."""
    max_parallel_dims: int = 1
    max_parallel_size: int = 1 << 31
    threads_per_group: int = 1
    """The most threads of a group, over all dimensions."""
    group_dims: int = 0
    """Dimensions of a launch, 1 to 3; 0: kernels are called with a part of a parallel range."""
    lanes: int = 1
    """Threads that a core carries out in lockstep: groups are multiples of it where they can."""
    atomics: frozenset[tuple[Ops, DType]] = frozenset()
    """The operations that ATOMIC does on elements of which dtype."""

    matrix_units: tuple[MatrixUnit, ...] = ()
    """Instructions by which threads multiply matrices together; of equal ones the best first."""
    dot_units: tuple[DotUnit, ...] = ()
    """Instructions that add up products of narrow numbers in words; the best first."""

    # memory
    cache_bytes: tuple[int, ...] = (32 << 10, 512 << 10, 8 << 20)
    """Per core L1, L2, then shared; or a GPU's equivalents."""
    line_bytes: int = 64
    """What caches take from memory at once."""
    local_bytes: int = 256 << 10
    """The most that the LOCAL buffers of one kernel may take (per thread or group)."""
    max_buffers: int = 127
    index_bits: int = 64

    # prices for the planners, in flops (facts: tensor graph to kernels)
    dram_price: float = 4.0
    cache_price: float = 0.25
    launch_price: float = 4000.0
    op_prices: tuple[tuple[str, float], ...] = ()
    """What operations cost an optimizer, in additions of integers, as `opgraft calibrate` measured
    them (docs/optimizers.md has their names); those that are missing are the optimizer's own."""
    extra: tuple[tuple[str, Any], ...] = field(default=())
    """Further facts of a plugin for its own renderer."""
