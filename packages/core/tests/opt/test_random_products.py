"""Random sums of products are what they are without tiles, on targets of all sizes."""

from __future__ import annotations

import pytest

from kernel_forms.random_products import TARGETS, AnyProduct, compare
from opgraft import Device
from opgraft.ir import AxisKind, Ops
from opgraft.lower.pipeline import lower, prepared, schedule_of
from opgraft.opt.axes import Kernel
from opgraft.opt.heuristic import schedule
from opgraft.opt.pack import Pack
from opgraft.opt.tile import Tile
from opgraft.target import Target
from tested import COMPILED, sampled

SEEDS = (0, 3, 8, 11, 13)
SMALL = next(t for t in TARGETS if t.name == "small")
TINY = next(t for t in TARGETS if t.name == "tiny")


@pytest.mark.thorough
def test_many_of_these_kernels_are_tiled_and_packed() -> None:
    steps = [a for seed in range(24) for a in schedule_of(AnyProduct(seed).make().sink, TARGETS[1])]
    assert sum(isinstance(a, Tile) for a in steps) >= 5
    assert sum(isinstance(a, Pack) for a in steps) >= 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", sampled(SEEDS, 2))
def test_a_random_product_is_itself_on_every_target(seed: int) -> None:
    device = Device[COMPILED]
    assert compare(AnyProduct(seed).make(), [device], seed, TARGETS) == ""


@pytest.mark.parametrize(("seed", "target"), [(41, TINY), (205, SMALL)], ids=["41", "205"])
def test_packed_factors_of_several_products_fit_together(seed: int, target: Target) -> None:
    """A factor of another product that varies along the same loops, and is read once, is none."""
    sink = AnyProduct(seed).make().sink
    given = sum(n.arg[1] * n.dtype.itemsize for n in sink.toposort() if n.op is Ops.LOCAL)
    program = lower(sink, target)
    made = [n for n in program.instructions if n.op is Ops.LOCAL and n.arg[1] > 1]
    assert sum(n.arg[1] * n.dtype.itemsize for n in made) <= max(given, target.local_bytes)


@pytest.mark.parametrize(("seed", "target"), [(71, TINY), (167, TARGETS[0])], ids=["71", "167"])
def test_no_statement_gets_vectors_along_two_loops(seed: int, target: Target) -> None:
    """Copies of a tile's rows are no vectors of a statement beside it: its columns are."""
    sink = AnyProduct(seed).make().sink
    program = lower(sink, target)
    assert any(n.dtype.count > 1 for n in program.instructions)
    for n in Kernel(schedule(prepared(sink), target)).nodes:
        assert sum(r.arg[1] is AxisKind.VECTOR for r in n.ranges) <= 1
