"""The corpus: kernels in the IR's text, and what is generated for them on three fixed targets.

    python benchmarks/corpus.py             what changed since then; exit code 1: some did
    python benchmarks/corpus.py --record    plan the kernels anew, record what is generated now
    python benchmarks/corpus.py --accept    record what is generated for the kernels as they are

The kernels lie in corpus/*/NAME.ir, as tensor planned them for the programs of corpus_kernels.py
(`opgraft explain benchmarks/corpus/workloads/softmax.ir` shows one). corpus/record.txt holds a line
for each kernel and target: instructions, cost, and a digest of the source. So a change in what is
generated is seen, and whoever makes it says that it is meant by recording it.

The targets are invented: any machine and any Python generates the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from opgraft import settings
from opgraft.devices.invented import LANES32, TextRenderer
from opgraft.devices.null import NullDevice
from opgraft.dtype import dtypes
from opgraft.errors import OpgraftError
from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import Ops
from opgraft.ir.text import parse, to_text
from opgraft.ir.uop import UOp
from opgraft.render.c import CRenderer
from opgraft.render.renderer import Renderer
from opgraft.rules.optimizer import CostModel
from opgraft.runtime import CompilerPair, CompilerSet, Device, compile_kernel
from opgraft.target import Target

FOLDER: Final = Path(__file__).resolve().parent / "corpus"
RECORD: Final = FOLDER / "record.txt"
SHOWN: Final = 40
"""Changes that are listed; there may be hundreds."""

_AVX2: Final = Target(
    name="AVX2",
    arch="x86-64 avx2 fma f16c",
    compute=frozenset(dtypes.all) - {dtypes.float16, dtypes.bfloat16},
    fma=frozenset((dtypes.float32, dtypes.float64)),
    vector_bytes=32,
    vector_registers=16,
    cores=4,
    cache_bytes=(32 << 10, 512 << 10, 32 << 20),
    prefetch=True,
)
_AVX512: Final = Target(
    name="AVX512",
    arch="x86-64 avx2 fma f16c avx512f avx512bw avx512dq avx512vl",
    compute=_AVX2.compute,
    fma=_AVX2.fma,
    vector_bytes=64,
    vector_registers=32,
    cores=2,
    cache_bytes=(32 << 10, 1 << 20, 32 << 20),
    prefetch=True,
)
_LANES32: Final = replace(LANES32, max_buffers=31)
"""The kernels were planned for a target that has no such limit."""


def _device(target: Target, renderer: Callable[[Target], Renderer]) -> Device:
    """A NULL for a target, whose kernels are text."""
    made = NullDevice(0, target)
    pair = CompilerPair("TEXT", "NULL", renderer, None, 0, "for the corpus")
    made.pairs = CompilerSet("NULL", target, [pair])
    return made


DEVICES: Final[dict[str, Device]] = {
    "AVX2": _device(_AVX2, CRenderer),
    "AVX512": _device(_AVX512, CRenderer),
    "LANES32": _device(_LANES32, TextRenderer),
}

FIXED: Final = {
    "OPTIMIZER": "greedy",
    "EGRAPH": None,
    "FLOAT": "strict",
    "PLUGINS": "",
    "CACHE": "off",
    "NULL_CC": "",
}
"""Settings that decide what is generated."""


class Row(NamedTuple):
    """What was generated for a kernel on a target."""

    kernel: str
    target: str
    instructions: int
    cost: float
    digest: str
    """Of the source; the reason where the kernel was refused."""

    def text(self) -> str:
        return "\t".join(map(str, (*self[:3], f"{self.cost:.6g}", self.digest)))


def kernels(folder: str = "*") -> Iterator[tuple[str, UOp]]:
    """The recorded kernels with their names, of one folder or of all."""
    for path in sorted(FOLDER.glob(f"{folder}/*.ir")):
        yield f"{path.parent.name}/{path.stem}", parse(path.read_text(encoding="utf-8"))


def generated(
    found: Iterable[tuple[str, UOp]], targets: Iterable[str] = tuple(DEVICES)
) -> Iterator[Row]:
    """What is generated now, for each kernel on each target."""
    for name, sink in found:
        for target in targets:
            device = DEVICES[target]
            with settings.using(**FIXED):
                yield _row(name, sink, target, device)


def _row(name: str, sink: UOp, target: str, device: Device) -> Row:
    try:
        program = compile_kernel(device, sink).program
    except OpgraftError as refused:
        return Row(name, target, 0, 0.0, f"refused: {' '.join(str(refused).split())}")
    finally:
        device.kernels.clear()
    assert program.linear is not None, "the cache is off"
    digest = blake2b(program.source.encode(), digest_size=10).hexdigest()
    return Row(name, target, len(program.linear.instructions), cost_of(program.linear), digest)


def cost_of(program: LinearProgram) -> float:
    """The price of one run: each instruction as often as its loops and the launch carry it out.

    A loop whose extent varies counts at the most that it can be.
    """
    model, total, times = CostModel(), 0.0, [1.0]
    for size in (*program.launch[0], *program.launch[1]):
        times[0] *= float(size.vmax if isinstance(size, UOp) else size)
    for n in program.instructions:
        if n.op is Ops.RANGE:
            times.append(times[-1] * float(n.src[0].vmax))
        elif n.op is Ops.END:
            times.pop()
        total += model.node(n) * times[-1]
    return total


# ---- the record


def recorded(folder: str = "*") -> dict[tuple[str, str], Row]:
    """The rows of the record, of one folder or of all."""
    rows = {}
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            kernel, target, instructions, cost, digest = line.split("\t")
            row = Row(kernel, target, int(instructions), float(cost), digest)
            if folder in ("*", kernel.partition("/")[0]):
                rows[kernel, target] = row
    return rows


def record(rows: Iterable[Row]) -> int:
    """Write the record; how many rows it has."""
    lines = ["# kernel, target, instructions, cost, digest of the source: see ../corpus.py"]
    lines += [row.text() for row in rows]
    RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines) - 1


def changes(rows: Iterable[Row], before: dict[tuple[str, str], Row]) -> list[str]:
    """A line for each kernel and target for which something else is generated now."""
    before, lines = dict(before), []
    for row in rows:
        old = before.pop((row.kernel, row.target), None)
        what = f"{row.kernel} on {row.target}"
        if old is None:
            lines.append(f"{what}: not recorded")
        elif old.text() != row.text():
            lines.append(f"{what}: {_difference(old, row)}")
    return lines + [f"{kernel} on {target}: gone" for kernel, target in before]


def _difference(old: Row, new: Row) -> str:
    if "refused" in old.digest + new.digest:
        return f"{old.digest} -> {new.digest}"
    parts = []
    if old.instructions != new.instructions:
        parts.append(f"{old.instructions} -> {new.instructions} instructions")
    if f"{old.cost:.6g}" != f"{new.cost:.6g}":
        ratio = new.cost / old.cost if old.cost else float("inf")
        parts.append(f"cost {old.cost:.6g} -> {new.cost:.6g} ({ratio:.2f} x)")
    return ", ".join(parts) or "another source of the same instructions and cost"


REMEDY: Final = (
    "Look at what changed: `opgraft explain benchmarks/corpus/NAME.ir` shows a kernel's source.\n"
    "If it is meant, run `python benchmarks/corpus.py --record` and commit what it writes."
)


def text_of(sink: UOp) -> str:
    """What a kernel's file holds."""
    return to_text(sink) + "\n"


def planned() -> dict[str, str]:
    """The texts of the kernels that tensor plans now."""
    # late: it needs tensor, the rest of this file the core alone
    from corpus_kernels import kernels as made

    return {name: text_of(sink) for name, sink in made()}


def replanned(after: dict[str, str], before: dict[str, str]) -> list[str]:
    """A line for each kernel that tensor plans otherwise than it is recorded."""
    changed = [name for name in after if after[name] != before.get(name)]
    lines = [f"{n}: {'another kernel' if n in before else 'not recorded'}" for n in changed]
    return lines + [f"{name}: gone" for name in before if name not in after]


def write(texts: dict[str, str]) -> None:
    """The files of these kernels, and no others."""
    for path in FOLDER.glob("*/*.ir"):
        if f"{path.parent.name}/{path.stem}" not in texts:
            path.unlink()
    for name, text in texts.items():
        path = FOLDER / f"{name}.ir"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="plan anew, record")
    parser.add_argument("--accept", action="store_true", help="record, the kernels as they are")
    arguments = parser.parse_args()
    if arguments.record:
        write(planned())
    rows = list(generated(kernels()))
    lines = changes(rows, recorded()) if RECORD.exists() else []
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"and {len(lines) - SHOWN} more"]
    print("\n".join(lines))
    if arguments.record or arguments.accept:
        print(f"recorded {record(rows)} rows")
        return 0
    print(f"\n{REMEDY}" if lines else f"{len(rows)} rows as recorded")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
