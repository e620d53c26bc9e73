"""Hand-made schedules as an adapter of the workloads' bench.py: C from a generator of templates.

The environment variable OPGRAFT_GENERATOR names a folder with its modules (`mm.py`, `ew.py`,
`heavy.py`, the harness `hz.py` and the runtime `rt.c`). They are written for vectors of 64 bytes.
On a processor without these, a copy of them is rewritten for vectors of 32 bytes: half the lanes,
the narrower instructions, and tiles that fit half as many registers. What has no narrower form
(products of bytes) is left out. bench.py compares every result with its reference.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Fn = Callable[[], Any]
Array = np.ndarray[Any, Any]

WIDE = "avx512f" in Path("/proc/cpuinfo").read_text()
"""Whether there are vectors of 64 bytes."""
NARROWER = {"15": "7", "16": "8", "32": "16", "48": "24", "64": "32"}
"""The numbers by which the templates count lanes and their bytes."""
INSTRUCTIONS = {
    "__builtin_ia32_vfmaddps512_mask(a,b,c,-1,4)": "__builtin_ia32_vfmaddps256(a,b,c)",
    "__builtin_ia32_vfmaddpd512_mask(a,b,c,-1,4)": "__builtin_ia32_vfmaddpd256(a,b,c)",
    "__builtin_ia32_movntps512": "__builtin_ia32_movntps256",
}
LOOPS = {
    'W=16 if dt=="f32" else 8': 'W=16 if dt=="f32" else 4',
    "int w=8;": "int w=4;",
    "for s_ in (8,4,2,1)": "for s_ in (4,2,1)",
    "for k in (1,2,4,8)": "for k in (1,2,4)",
}
"""Steps that halve or double the lanes, one fewer."""
FORMS: Any = None
"""The generator's modules, once `setup` has loaded them."""


class Forms:
    """The modules of the generator, out of a copy that is fit for this machine."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._copy = tempfile.TemporaryDirectory()
        copy = Path(self._copy.name)
        for path in folder.glob("*.py"):
            text = path.read_text()
            if not WIDE and path.stem in ("mm", "ew", "heavy"):
                text = narrowed(text)
            (copy / path.name).write_text(text)
        shutil.copy(folder / "rt.c", copy)
        (copy / "build").mkdir()
        command = ["gcc", "-O2", "-shared", "-fPIC", "-pthread", "rt.c", "-o", "build/rt.so"]
        subprocess.run(command, cwd=copy, check=True)
        sys.path.insert(0, str(copy))
        self.hz, self.mm, self.ew, self.heavy = (
            importlib.import_module(name) for name in ("hz", "mm", "ew", "heavy")
        )
        self.hz.init(threads, pin=0)


def narrowed(text: str) -> str:
    for table in (INSTRUCTIONS, LOOPS):
        for wide, narrow in table.items():
            text = text.replace(wide, narrow)
    return re.sub(r"(?<![\w.])(15|16|32|48|64)(?![\w.])", lambda n: NARROWER[n[0]], text)


def setup(threads: int) -> None:
    global FORMS
    folder = os.environ.get("OPGRAFT_GENERATOR", "")
    if not folder:
        raise SystemExit("generator: left out, OPGRAFT_GENERATOR names no folder")
    FORMS = Forms(Path(folder), threads)


def to_numpy(result: Array) -> Array:
    return result


def program(source: str, steps: list[tuple[str, list[Array], int, int]], result: Array) -> Fn:
    """A list of kernels (name, arrays, iterations, how they are shared out) in one call."""
    ready = FORMS.hz.Prog(source, steps)

    def run() -> Array:
        ready()
        return result

    return run


def put(*arrays: Array) -> list[Array]:
    return [FORMS.hz.put(np.ascontiguousarray(a)) for a in arrays]


def empty(*shape: int, dtype: Any = np.float32) -> Array:
    return FORMS.hz.empty(shape or (1,), dtype)


# ---- streams


def elementwise(expression: str) -> Callable[..., Fn]:
    def case(*arrays: Array) -> Fn:
        out = empty(arrays[0].size)
        source, chunks = FORMS.ew.elementwise(expression, len(arrays), out.size)
        return program(source, [("k", [*put(*arrays), out], chunks, 4)], out)

    return case


def reduce_all(op: str) -> Callable[..., Fn]:
    def case(a: Array) -> Fn:
        parts, out = empty(4096), empty(1)
        source, blocks = FORMS.ew.reduce_all(op, a.size, A=4 if op == "sum" else 8)
        arrays = [*put(a), parts, out]
        steps = [("k1", arrays, blocks, 1), ("k2", arrays, 1, 0)]
        return program(source, steps, out.reshape(()))

    return case


def reduce_row(op: str) -> Callable[..., Fn]:
    def case(a: Array) -> Fn:
        out = empty(a.shape[0])
        source, rows = FORMS.ew.reduce_row(op, *a.shape, A=8)
        return program(source, [("k1", [*put(a), out], rows, 16)], out)

    return case


def reduce_col(op: str) -> Callable[..., Fn]:
    def case(a: Array) -> Fn:
        blocks = 4
        out, parts = empty(a.shape[1]), empty(blocks, a.shape[1])
        source, count = FORMS.ew.reduce_col(op, *a.shape, form="two", RB=8, NB=blocks)
        arrays = [*put(a), out, parts]
        return program(source, [("k1", arrays, count, 1), ("k2", arrays, 1, 0)], out)

    return case


def softmax(x: Array) -> Fn:
    out = empty(*x.shape)
    source, rows = FORMS.ew.softmax(*x.shape, form="inplace", nt=0)
    return program(source, [("k1", [*put(x), out], rows, 16)], out)


def layernorm(x: Array, g: Array, b: Array) -> Fn:
    out = empty(*x.shape)
    source, rows = FORMS.ew.layernorm(*x.shape)
    return program(source, [("k1", [*put(x, g, b), out], rows, 16)], out)


def gather(table: Array, indices: Array) -> Fn:
    out = empty(indices.size, table.shape[1])
    source, rows = FORMS.ew.gather(indices.size, table.shape[1], pf=4)
    return program(source, [("k1", [*put(table, indices), out], rows, 64)], out)


def cumsum(a: Array) -> Fn:
    out = empty(a.size)
    source, _ = FORMS.ew.cumsum(a.size)
    return program(source, [("ks", [*put(a), out], 1, 0)], out)


def transpose(a: Array) -> Fn:
    out = empty(*a.shape[::-1])
    source, blocks = FORMS.ew.transpose(*a.shape, bi=16, bj=256, outer="ji")
    return program(source, [("k1", [*put(a), out], blocks, 2)], out)


# ---- products


def product(a: Array, b: Array) -> Fn:
    dtype = "f32" if a.dtype == np.float32 else "f64"
    (m, k), n = a.shape, b.shape[1]
    source, blocks, panels, _ = FORMS.mm.gemm(
        m, n, k, MR=6, NV=4 if WIDE else 2, KC=512, MC=96 if dtype == "f32" else 48,
        dt=dtype, packA="none", ku=2,
    )  # fmt: skip
    out, packed = empty(m, n, dtype=a.dtype), empty(k * n, dtype=a.dtype)
    steps = FORMS.mm.steps(None, *put(a, b), out, packed, blocks, panels, 1, 16)
    return program(source, steps, out)


def integer_product(a: Array, b: Array) -> Fn:
    (m, k), n = a.shape, b.shape[1]
    source, blocks, panels, size = FORMS.heavy.imm(m, n, k)
    out, packed = empty(m, n, dtype=np.int32), empty(panels * size, dtype=np.int8)
    arrays = [*put(a, b), out, packed]
    return program(source, [("pack", arrays, panels, 1), ("mm", arrays, blocks, 16)], out)


def convolution(x: Array, w: Array) -> Fn:
    (images, inner, height, width), (outer, _, high, wide) = x.shape, w.shape
    tile = {"WT": 7, "NV": 2} if WIDE else {"WT": 4, "NV": 2}
    source, sizes = FORMS.heavy.conv(images, inner, height, width, outer, high, wide, **tile)
    out = empty(images, outer, height, width)
    arrays = [*put(x, w), out, empty(sizes["px"] + 64), empty(w.size)]
    steps = [
        ("packx", arrays, sizes["nx"], 1),
        ("packw", arrays, sizes["nw"], 1),
        ("cv", arrays, sizes["n"], 8),
    ]
    return program(source, steps, out)


def attention(q: Array, k: Array, v: Array) -> Fn:
    *batch, length, depth = q.shape
    tile = {"MR": 6, "NV": 4} if WIDE else {"MR": 1, "NV": 8}
    heads = int(np.prod(batch))
    source, packs, blocks = FORMS.heavy.attn(
        heads, length, depth, QB=48, KB=256, scale=0.125, **tile
    )
    out = empty(*q.shape)
    arrays = [*put(q, k, v), out, empty(k.size)]
    return program(source, [("packk", arrays, packs, 1), ("at", arrays, blocks, 1)], out)


CASES: dict[str, Callable[..., Fn]] = {
    "fused": elementwise("(x0*x1+x2)*SPL(.5f)-x0/(SPL(1.f)+x1*x1)"),
    "sum_all": reduce_all("sum"),
    "max_all": reduce_all("max"),
    "sum_row": reduce_row("sum"),
    "max_row": reduce_row("max"),
    "sum_col": reduce_col("sum"),
    "max_col": reduce_col("max"),
    "softmax": softmax,
    "layernorm": layernorm,
    "mm256": product,
    "mm512": product,
    "mm1024": product,
    "mm2048": product,
    "mm1024d": product,
    "conv": convolution,
    "attn": attention,
    "gather": gather,
    "cumsum": cumsum,
    "transpose": transpose,
    "exp": elementwise("vexp(x0)"),
    "log": elementwise("vlog(x0)"),
    "sin": elementwise("vsin(x0)"),
}
if WIDE:
    CASES["imm512"] = integer_product
