"""Products of which a size is known only when the kernel runs are tiled as others are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_forms import kernels
from kernel_forms.execute import execute, interpret
from kernel_forms.memory import fill
from kernel_forms.oracle import Oracle
from opgraft import Device, dtypes
from opgraft.ir import AxisKind, Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.opt.actions import Action, Fuse, Parallel, Refused, apply_all
from opgraft.opt.axes import Kernel
from opgraft.opt.blocks import Blocks, SumInBlocks
from opgraft.opt.pack import Pack
from opgraft.opt.tile import Outermost, Tile
from opgraft.target import Target
from tested import COMPILED, at, sampled

SMALL = Target("small", vector_bytes=16, cores=2, cache_bytes=(1024, 4096, 1 << 20))
"""Caches so small that sums of a few dozen products are carried out in blocks."""
MOST = 24


def number(least: int = 1, most: int = MOST) -> UOp:
    return UOp.variable("n", least, most)


def product(
    rows: int | UOp, columns: int | UOp, depth: int | UOp, blocked: int = 0, batch: int | UOp = 1
) -> UOp:
    """out[b, i, j] = relu(bias[j] + sum over k of x[b, i, k] * w[k, j]); memory is laid out for the
    greatest sizes. With `blocked`, rows come in blocks of so many."""

    def most(size: int | UOp) -> int:
        return size if isinstance(size, int) else int(size.vmax)

    b, j = UOp.range(batch, "b"), UOp.range(columns, "j")
    k = UOp.range(depth, "k", AxisKind.REDUCE)
    i, loops = UOp.range(rows, "i"), (UOp.range(rows, "i"),)
    if blocked:
        outer = UOp.range((rows + (blocked - 1)) // blocked, "o")
        inner = UOp.range(blocked, "i")
        i, loops = outer * blocked + inner, (outer, inner)
    height, width, length = most(rows), most(columns), most(depth)
    x = kernels.param(1, most(batch) * height * length)
    w, bias = kernels.param(2, length * width), kernels.param(3, width)
    out = kernels.param(0, most(batch) * height * width)
    total = (x.load((b * height + i) * length + k) * w.load(k * width + j)).reduce(Ops.ADD, k)
    value = (total + bias.load(j)).maximum(0.0)
    store = out.store((b * height + i) * width + j, value)
    return kernels.kernel("varying", store.end(b, *loops, j))


KERNELS = {
    "rows": product(number(), 24, 40),
    "blocks of rows": product(number(), 24, 40, 8),
    "depth": product(20, 24, number()),
    "rows and depth": product(number(), 24, UOp.variable("m", 1, 33)),
    "batch": product(12, 16, 10, batch=number(1, 6)),
    "columns": product(20, number(), 24),
    "no fewer than a tile": product(number(8), 17, 40),
    "packed": product(number(1, 120), 24, 9),
    "possibly none": product(number(0), 24, 40),
}


def same(sink: UOp, *actions: Action) -> None:
    """The kernel after actions is what it was, for the least, some and the most iterations."""
    made = apply_all(sink, actions)
    memory = fill(sink)
    for size in at((7,), (1, 7, 12)):
        sizes = {"n": size}
        held = [{s: list(v) for s, v in memory.items()} for _ in range(2)]
        assert Oracle(made, held[0], sizes).run() == Oracle(sink, held[1], sizes).run()


@pytest.mark.parametrize("name", sampled(KERNELS, 3))
def test_every_size_gives_what_it_gives_without_tiles(name: str) -> None:
    sink = KERNELS[name]
    memory = fill(sink)
    program = lower(sink, SMALL)
    variables = {n.arg[0]: n.arg[1:] for n in sink.toposort() if n.op is Ops.VAR}
    plain = sink.replace(arg=KernelInfo("plain", ()))
    for share in at((0.4,), (0.0, 0.4, 1.0)):
        sizes = {v: int(low + share * (high - low)) for v, (low, high) in variables.items()}
        wanted = execute(Device["INTERP"], plain, memory, sizes)
        assert interpret(program, memory, sizes) == wanted
        assert execute(Device[COMPILED], sink, memory, sizes) == wanted


def kinds(sink: UOp, target: Target = SMALL) -> dict[type[Action], int]:
    found: dict[type[Action], int] = {}
    for action in schedule_of(sink, target):
        found[type(action)] = found.get(type(action), 0) + 1
    return found


def test_they_have_the_tiles_of_the_greatest_size() -> None:
    """Registers, packed factors, blocks of a long sum, and cores that share rows."""
    many = number(1, 120)
    for sink in (product(many, 40, 40), product(many, 40, 40, 8), product(100, 40, many)):
        found = kinds(sink)
        assert found[Tile] >= 1
        assert found[Pack] >= 1
        assert found[SumInBlocks] == found[Parallel] == 1
    assert kinds(product(many, 40, 40, 8))[Fuse] >= 1
    # the last tile repeats what it holds itself, so cores may share the tiles out
    assert Parallel("i.o.o") in schedule_of(product(many, 8, 40), SMALL)
    for name in ("possibly none", "columns"):
        assert Tile not in kinds(KERNELS[name]), name


def test_a_fixed_size_and_the_greatest_one_have_one_schedule() -> None:
    for varying, fixed in (
        (product(number(), 24, 40), product(MOST, 24, 40)),
        (product(100, 40, number()), product(100, 40, MOST)),
    ):
        assert schedule_of(varying, SMALL) == schedule_of(fixed, SMALL)


def test_steps_over_a_varying_range_keep_the_meaning() -> None:
    rows, depth = product(number(1, 12), 9, 7), product(6, 9, number(1, 12))
    same(rows, Tile((("i", 5, 1),)))
    same(rows, Tile((("i", 3, 1), ("j", 1, 4))), Blocks("i.o", 2), Parallel("i.o.o"))
    same(rows, Blocks("i", 5), Outermost(("i.o",)))
    same(rows, Tile((("i", 12, 1),)))
    same(depth, Blocks("k", 5), SumInBlocks("k.o", ("i", "j")))
    same(depth, Blocks("k", 5), SumInBlocks("k.o", ("i", "j")), Pack(("sums0.j",), ("sums0.k.o",)))
    same(product(number(1, 12), 9, 7, 4), Fuse("o", "i"))


def test_what_a_block_needs_stands_before_its_loop() -> None:
    """A block is not empty, so its packed factor is filled once and not for each step."""
    sink = product(12, 16, number(1, 20))
    steps = (
        Tile((("i", 3, 1), ("j", 1, 8))),
        Blocks("k", 7),
        SumInBlocks("k.o", ("i.o", "j.o", "i.u", "j.v")),
        Pack(("sums0.j.v",), ("sums0.k.o",)),
    )
    made = Kernel(apply_all(sink, steps))
    (block,) = (r for r in made.ranges if r.arg[0] == "k.i")
    assert block.src[0].vmin == 1
    program = lower(sink.replace(arg=KernelInfo("packed", steps)), replace(SMALL, max_lanes=8))
    opened = [n.arg[0] for n in program.instructions if n.op is Ops.RANGE]
    assert opened.index("pack0.k.i") < opened.index("k.i")


def test_varying_ranges_are_refused_with_a_reason() -> None:
    rows = product(number(), 9, 7)
    with pytest.raises(Refused, match="may be shorter than a vector"):
        Tile((("i", 1, 4),)).apply(rows)
    with pytest.raises(Refused, match="no tiles of 64"):
        Tile((("i", 64, 1),)).apply(rows)
    with pytest.raises(Refused, match="of known extent"):
        Tile((("i", 2, 1),)).apply(product(number(0), 9, 7))
    with pytest.raises(Refused, match="no known extent"):
        Blocks("i", 2).apply(product(number(0), 9, 7))
    with pytest.raises(Refused, match="no blocks of 24"):
        Blocks("i", MOST).apply(rows)
    i = UOp.range(number(), "i")
    out = kernels.param(0, MOST)
    sink = kernels.kernel("in_place", out.store(i, out.load(i) + 1.0).end(i))
    with pytest.raises(Refused, match="reads what it"):
        Tile((("i", 4, 1),)).apply(sink)
    j = UOp.range(i + 1, "j")
    lower_half = kernels.param(1, MOST * MOST, dtypes.float32)
    sink = kernels.kernel("half", lower_half.store(i * MOST + j, i.cast(dtypes.float32)).end(i, j))
    with pytest.raises(Refused, match="of known extent"):
        Tile((("j", 2, 1),)).apply(sink)
