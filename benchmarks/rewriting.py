"""How fast graphs are rewritten and nodes are made, beside tinygrad in the same process.

    python benchmarks/rewriting.py [--quick] [--profile]

Every run builds its graph anew under new names, so that no table, memo or cache of an earlier run
helps it. A figure is the best of several runs, in seconds of the processor: other programs can
only add to it. `k/s` counts the nodes of the graph before rewriting, `again` is the rate on a graph
that is in its final form already. The first run of opgraft, which also generates the code of
its matcher, stands in a column of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import opgraft.ir as ir
from opgraft.dtype import dtypes
from opgraft.rules.sets import sym

tiny: Any = None
tiny_rules: Any = None
tiny_dtypes: Any = None
with contextlib.suppress(ImportError):
    tiny_rules = importlib.import_module("tinygrad.uop.symbolic")
    tiny_dtypes = importlib.import_module("tinygrad.dtype").dtypes
    tiny = importlib.import_module("tinygrad.uop.ops")


@dataclass(frozen=True)
class Library:
    """What the graphs are built from: the operators are the same on both kinds of node."""

    name: str
    variable: Callable[[str, int], Any]
    load: Callable[[int, Any], Any]
    number: Callable[[Any, float], Any]
    sink: Callable[[list[Any]], Any]
    rewrite: Callable[[Any], Any]
    size: Callable[[Any], int]


def opgraft_library() -> Library:
    return Library(
        "opgraft",
        lambda name, high: ir.UOp.variable(name, 0, high),
        lambda slot, index: ir.UOp(ir.Ops.PARAM, dtypes.float32, (), (slot, 1 << 30)).load(index),
        lambda like, value: like.const_like(value),
        lambda nodes: ir.UOp.sink(*nodes),
        lambda sink: ir.graph_rewrite(sink, sym),
        lambda sink: len(sink.toposort()),
    )


def tinygrad_library() -> Library:
    def load(slot: int, index: Any) -> Any:
        buffer = tiny.UOp.placeholder((1 << 30,), tiny_dtypes.float32, slot)
        return buffer.index(index).load()

    return Library(
        "tinygrad",
        lambda name, high: tiny.UOp.variable(name, 0, high),
        load,
        lambda like, value: like.const_like(value),
        lambda nodes: tiny.UOp.sink(*nodes),
        lambda sink: tiny.graph_rewrite(sink, tiny_rules.sym),
        lambda sink: len(sink.toposort()),
    )


def chain(lib: Library, salt: str, length: int) -> Any:
    """One long chain of additions, multiplications and exclusive ors."""
    names = [lib.variable(f"{salt}v{i}", 9 + i) for i in range(6)]
    value = names[0]
    for i in range(length):
        other = names[i % 6]
        value = (value + other * (i % 5), value * 1 + i % 3, (value ^ other) + 0)[i % 3]
    return lib.sink([value])


INDEX_FORMS: list[Callable[[Any, Any, int], Any]] = [
    lambda a, b, c: a + b * c,
    lambda a, b, c: a // c + b % c,
    lambda a, b, c: (a * c + b) // c,
    lambda a, b, c: (a * c + b % c) % c,
    lambda a, b, c: (a < b).where(a, b + c),
    lambda a, b, c: a.maximum(b) + c,
    lambda a, b, c: ((a < c) & (b < c)).where(a, b),
    lambda a, b, c: (a + 0) * 1 + b,
]


def index_dag(lib: Library, salt: str, length: int) -> Any:
    """Shared index arithmetic: // and % by constants, selects, maxima, comparisons, masks."""
    choose = random.Random(length)
    names = [lib.variable(f"{salt}v{i}", 7 + 8 * i) for i in range(8)]
    pool = list(names)
    for i in range(length):
        if i % 24 == 23:  # an index expression is a dozen operations deep, not hundreds
            pool += names
        a, b = choose.choice(pool[-12:]), choose.choice(pool[-12:])
        c = choose.choice([2, 3, 4, 8, 12, 64])
        pool.append(choose.choice(INDEX_FORMS)(a % 4096, b % 4096, c))
    return lib.sink(pool[len(names) :])


def matmul(lib: Library, salt: str, tile: int) -> Any:
    """An unrolled tile of a matrix product, its addresses written out."""
    row, column = lib.variable(f"{salt}r", 63), lib.variable(f"{salt}c", 63)
    inner = lib.variable(f"{salt}k", 127)
    results = []
    for i in range(tile):
        for j in range(tile):
            total: Any = None
            for k in range(tile):
                a = lib.load(0, (row * tile + i) * 1024 + inner * tile + k)
                b = lib.load(1, (inner * tile + k) * 1024 + column * tile + j)
                total = a * b if total is None else total + a * b
            results.append(total)
    return lib.sink(results)


def attention(lib: Library, salt: str, tile: int) -> Any:
    """The body of an attention kernel: views through // and %, a causal mask, exponentials."""
    flat = lib.variable(f"{salt}g", 8 * 16 * 512 * 64 - 1)
    key = lib.variable(f"{salt}j", 512 // tile - 1)
    batch, head = flat // (16 * 512 * 64), flat // (512 * 64) % 16
    query, lane = flat // 64 % 512, flat % 64
    results = []
    for u in range(tile):
        j = key * tile + u
        score: Any = None
        for d in range(tile):
            q = lib.load(0, ((batch * 512 + query) * 16 + head) * 64 + (lane * 0 + d))
            k = lib.load(1, ((batch * 512 + j) * 16 + head) * 64 + d)
            term = q * k
            score = term if score is None else score + term
        masked = (query < j).where(lib.number(score, -1e30), score * 0.125)
        shifted = (masked - lib.load(3, (batch * 16 + head) * 512 + query)) * 1.4426950408889634
        weight = shifted.exp2()
        v = lib.load(2, ((batch * 512 + j) * 16 + head) * 64 + lane)
        results.append(weight * v)
    return lib.sink(results)


GRAPHS: list[tuple[str, Callable[[Library, str, int], Any], int]] = [
    ("chain of + * ^", chain, 3600),
    ("index DAG", index_dag, 600),
    ("index DAG, large", index_dag, 1600),
    ("unrolled matmul", matmul, 8),
    ("attention kernel", attention, 16),
]

_salt = iter(range(1 << 30))


def rewrite_once(lib: Library, graph: Callable[..., Any], size: int) -> tuple[float, int, Any]:
    """Seconds to rewrite a fresh graph, its nodes, and the result."""
    sink = graph(lib, f"x{next(_salt)}_", size)
    nodes = lib.size(sink)
    gc.collect()
    start = time.process_time()
    result = lib.rewrite(sink)
    return time.process_time() - start, nodes, result


def rewriting(runs: int) -> None:
    print(f"{'graph':<20}{'nodes':>7}{'after':>7}{'first ms':>10}{'k/s':>8}{'again':>8}", end="")
    print(f"{'tinygrad':>10}{'ratio':>7}")
    ours = opgraft_library()
    peer = tinygrad_library() if tiny is not None else None
    for title, graph, size in GRAPHS:
        first, nodes, result = rewrite_once(ours, graph, size)
        best = min(rewrite_once(ours, graph, size)[0] for _ in range(runs))
        after = ours.size(result)
        again = 1e9
        for _ in range(runs):
            start = time.process_time()
            ours.rewrite(result)
            again = min(again, time.process_time() - start)
        line = f"{title:<20}{nodes:>7}{after:>7}{first * 1e3:>10.0f}{nodes / best / 1e3:>8.0f}"
        line += f"{after / again / 1e3:>8.0f}"
        if peer is not None:
            tries = [rewrite_once(peer, graph, size) for _ in range(max(1, runs // 2))]
            theirs = max(size / seconds for seconds, size, _ in tries)
            line += f"{theirs / 1e3:>10.1f}{nodes / best / theirs:>7.1f}"
        print(line, flush=True)


def per_item(work: Callable[[int], object], count: int, runs: int = 7) -> tuple[float, float]:
    """Microseconds to make one of `count` and to free it, each the best of several runs."""
    made = freed = 1e9
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        kept = work(count)
        made = min(made, time.process_time() - start)
        start = time.process_time()
        del kept
        freed = min(freed, time.process_time() - start)
    return made / count * 1e6, freed / count * 1e6


def creation() -> None:
    x, y = ir.UOp.variable("x", 0, 9), ir.UOp.variable("y", 0, 9)
    add, index = ir.Ops.ADD, dtypes.index
    keep: list[Any] = [x + y, x + 3]

    def new(count: int) -> object:
        made = x
        for _ in range(count):
            made = made + y
        return made

    def new_call(count: int) -> object:
        made = x
        for _ in range(count):
            made = ir.UOp(add, index, (made, y))
        return made

    def found(count: int) -> None:
        for _ in range(count):
            x + y

    def found_number(count: int) -> None:
        for _ in range(count):
            x + 3

    def found_call(count: int) -> None:
        for _ in range(count):
            ir.UOp(add, index, (x, y))

    rows: list[tuple[str, Callable[[int], object], Callable[[int], object] | None]] = [
        ("new, operator", new, None),
        ("new, UOp(...)", new_call, None),
        ("found, operator", found, None),
        ("found, x + 3", found_number, None),
        ("found, UOp(...)", found_call, None),
    ]
    if tiny is not None:
        a, b = tiny.UOp.variable("x", 0, 9), tiny.UOp.variable("y", 0, 9)
        tiny_add = tiny.Ops.ADD
        keep += [a + b, a + 3, tiny.UOp(tiny_add, a.dtype, (a, b))]

        def peer_new(count: int) -> object:
            made = a
            for _ in range(count):
                made = made + b
            return made

        def peer_new_call(count: int) -> object:
            made, dtype = a, a.dtype
            for _ in range(count):
                made = tiny.UOp(tiny_add, dtype, (made, b))
            return made

        def peer_found(count: int) -> None:
            for _ in range(count):
                a + b

        def peer_found_number(count: int) -> None:
            for _ in range(count):
                a + 3

        def peer_found_call(count: int) -> None:
            dtype = a.dtype
            for _ in range(count):
                tiny.UOp(tiny_add, dtype, (a, b))

        peers = [peer_new, peer_new_call, peer_found, peer_found_number, peer_found_call]
        rows = [(title, work, peer) for (title, work, _), peer in zip(rows, peers)]
    print(f"\n{'one UOp, us':<20}{'opgraft':>9}{'gc off':>9}{'freed':>9}", end="")
    print(f"{'tinygrad':>10}{'ratio':>7}")
    # the collector's share should be that of these nodes, not of all that was imported before
    gc.collect()
    gc.freeze()
    for title, work, peer in rows:
        ours, freed = per_item(work, 50_000)
        gc.disable()
        paused, _ = per_item(work, 50_000)
        gc.enable()
        line = f"{title:<20}{ours:>9.2f}{paused:>9.2f}{freed:>9.2f}"
        if peer is not None:
            # a short chain: the peer frees its nodes by recursion
            theirs, _ = per_item(peer, 2_000)
            line += f"{theirs:>10.2f}{theirs / ours:>7.1f}"
        print(line, flush=True)
    gc.unfreeze()


def profile() -> None:
    """Where the time goes on the index DAG: the rules, by time."""
    ours = opgraft_library()
    sink = index_dag(ours, f"x{next(_salt)}_", 600)
    with ir.tracing() as trace:
        ours.rewrite(sink)
    print(f"\n{len(trace)} rewrites, interpreted")
    print(trace.table(25))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--profile", action="store_true", help="also trace the rules on one graph")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {len(sym)} rules", end="")
    print(f", tinygrad: {len(tiny_rules.sym.patterns)} rules" if tiny is not None else "")
    rewriting(2 if options.quick else 6)
    creation()
    if options.profile:
        profile()


if __name__ == "__main__":
    main()
