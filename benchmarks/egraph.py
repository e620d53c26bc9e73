"""The e-graph beside egglog (PyPI): the same workloads, in turns, in one run.

    python benchmarks/egraph.py [--runs 5] [--large]

Each figure is the least of several runs, each in a process of its own: seconds of the work alone
(wall time, and on the processor, which a busy machine disturbs least), the peak memory of the
process, and counts. The counts of both must agree, else the line says so.

- AC n: commutativity and association on a sum of n distinct terms, to saturation. "sorted" is
  ours with sorted operands, which is how opgraft's own sums work; "analyses" is that on integers
  of the IR with constants, intervals and remainders kept.
- math n: egg's 24 rules on its 7 start terms, n rounds.
- front door: a Python expression of 10 nodes, in, 3 rounds, and the cheapest tree out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT / "packages" / "egraph" / "tests"
BYTECODE = Path(tempfile.gettempdir()) / "opgraft-bytecode"

OURS_TERMS = """
from egraph_cases.workloads import AC, MATH, MATH_TERMS
from opgraft_egraph.terms import TermGraph, chain
def build(kind, n):
    if kind == "math":
        graph = TermGraph(MATH)
        for term in MATH_TERMS: graph.add(term)
        return graph, n
    graph = TermGraph(AC[1:], commutative=["+"]) if kind == "sorted" else TermGraph(AC)
    graph.add(chain("+", [f"x{i}" for i in range(n)]))
    return graph, 0
graph, rounds = build(KIND, N)
begin()
report = graph.run(rounds)
finish(nodes=report.nodes, classes=report.classes)
"""

OURS_ANALYSES = """
from opgraft.api import EqualitySet, UOp, UPat, dtypes
from opgraft_egraph import EGraph
x, y, z = UPat.var("x", dtypes.int32), UPat.var("y"), UPat.var("z")
rules = EqualitySet([(x + (y + z), lambda x, y, z: (x + y) + z, "associate")])
def chain(n):
    root = UOp.variable("v0", 0, 9, dtypes.int32)
    for i in range(1, n): root = UOp.variable(f"v{i}", 0, 9, dtypes.int32) + root
    return root
EGraph(chain(4), rules).run()
graph = EGraph(chain(N), rules)
begin()
report = graph.run()
finish(nodes=report.nodes, classes=report.classes)
"""

PEER_TERMS = """
from egglog.bindings import EGraph
from egraph_cases.workloads import AC, MATH, MATH_TERMS
from opgraft_egraph.terms import chain, parse_term, print_term
NAMES = {"+": "Add", "*": "Mul", "-": "Sub", "/": "Div", "^": "Pow", "D": "Diff", "I": "Integral",
         "sin": "Sin", "cos": "Cos", "ln": "Ln", "sqrt": "Sqrt"}
ARITY = dict.fromkeys(("Sin", "Cos", "Ln", "Sqrt"), 1)
def show(tree):
    if isinstance(tree, str):
        if tree.startswith("?"): return tree[1:] + "_"
        return f"(Num {tree})" if tree.lstrip("-").isdigit() else f'(Var "{tree}")'
    return f"({NAMES[tree[0]]} {' '.join(map(show, tree[1:]))})"
sorts = "(datatype E (Num i64) (Var String) " + " ".join(
    f"({n} {' '.join(['E'] * ARITY.get(n, 2))})" for n in NAMES.values()) + ")"
rules = MATH if KIND == "math" else AC
terms = [parse_term(t) for t in MATH_TERMS] if KIND == "math" else [
    chain("+", [f"x{i}" for i in range(N)])]
text = sorts + "".join(
    f"(rewrite {show(parse_term(r.left))} {show(parse_term(r.right))})" for r in rules)
text += "".join(f"(let t{i} {show(t)})" for i, t in enumerate(terms))
graph = EGraph()
graph.run_program(*graph.parse_program(text))
run = graph.parse_program(f"(run {N if KIND == 'math' else 100})")
begin()
graph.run_program(*run)
stop()
sizes = graph.run_program(*graph.parse_program("(print-size)"))
total = sum(int(w) for w in "".join(c for c in str(sizes) if c.isdigit() or c == " ").split())
finish(nodes=total)
"""

OURS_DOOR = """
from opgraft.api import EqualitySet, UOp, UPat, dtypes
from opgraft_egraph import EGraph, Schedule
x, y, z = UPat.var("x"), UPat.var("y"), UPat.var("z")
rules = EqualitySet([
    (x + (y + z), lambda x, y, z: (x + y) + z, "associate"),
    (x * (y + z), lambda x, y, z: x * y + x * z, "distribute"),
    (x * 1, lambda x: x, "one"), (x + 0, lambda x: x, "zero")])
three = Schedule(nodes=0, rounds=3, seconds=0, matches=0)
def once(i):
    a, b, c = (UOp.variable(n, 0, 9 + i) for n in "abc")
    root = (a * 1 + b) * (c + 0) + a * 2
    graph = EGraph(root, rules)
    graph.run(three)
    return graph.extract(cost="tree")[0]  # as egglog extracts
for i in range(30): once(i)
import time
begin()
times = []
for i in range(30, 230):
    start = time.perf_counter()
    once(i)
    times.append(time.perf_counter() - start)
finish(least=min(times))
"""

PEER_DOOR = """
import time
from egglog import EGraph, Expr, StringLike, i64Like, rewrite, ruleset, var, vars_
class Num(Expr):
    def __init__(self, value: i64Like) -> None: ...
    @classmethod
    def var(cls, name: StringLike) -> Num: ...
    def __add__(self, other: Num) -> Num: ...
    def __mul__(self, other: Num) -> Num: ...
x, y, z = vars_("x y z", Num)
rules = ruleset(
    rewrite(x + y).to(y + x), rewrite(x * y).to(y * x),
    rewrite(x + (y + z)).to((x + y) + z), rewrite(x * (y + z)).to(x * y + x * z),
    rewrite(x * Num(1)).to(x), rewrite(x + Num(0)).to(x))
def once(i):
    graph = EGraph()
    a, b, c = (Num.var(f"{n}{i}") for n in "abc")
    root = graph.let("root", (a * Num(1) + b) * (c + Num(0)) + a * Num(2))
    graph.run(rules * 3)
    return graph.extract(root)
for i in range(3): once(i)
begin()
times = []
for i in range(3, 23):
    start = time.perf_counter()
    once(i)
    times.append(time.perf_counter() - start)
finish(least=min(times))
"""

IMPORT = """
import opgraft.ir, opgraft.api
opgraft.api.EqualitySet, opgraft.api.CostModel, opgraft.api.errors
begin()
import {module}
{more}
finish()
"""

PRELUDE = """
import json, resource, sys, time
_marks = []
def begin(): _marks[:] = [time.perf_counter(), time.process_time()]
def stop(): _marks[2:] = [time.perf_counter() - _marks[0], time.process_time() - _marks[1]]
def finish(**counts):
    if len(_marks) == 2: stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"wall": _marks[2], "cpu": _marks[3], "mb": peak, **counts}))
"""


def once(program: str, **names: object) -> dict[str, Any]:
    # names in annotations that are not there yet, as egglog's users write them
    head = (
        "from __future__ import annotations\n"
        + PRELUDE
        + "".join(f"{name} = {value!r}\n" for name, value in names.items())
    )
    path = os.pathsep.join(filter(None, [str(SHARED), os.environ.get("PYTHONPATH", "")]))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(BYTECODE)}
    # both with their bytecode at hand, as an installed package has it
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    ran = subprocess.run(
        [sys.executable, "-c", head + program], capture_output=True, text=True, env=env
    )
    if ran.returncode:
        raise SystemExit(ran.stderr)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def least(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: min(run[key] for run in runs) for key in runs[0]}


def compare(name: str, ours: list[tuple[str, str, dict[str, Any]]], peer: str, runs: int) -> None:
    """Take turns, then print the least of each and what the peer's is to it."""
    names = dict(ours[0][2])
    taken: list[list[dict[str, Any]]] = [[] for _ in range(len(ours) + 1)]
    once(peer, **names)  # makes its bytecode
    for _ in range(runs):
        for place, (_, program, given) in enumerate(ours):
            taken[place].append(once(program, **given))
        taken[-1].append(once(peer, **names))
    theirs = least(taken[-1])
    for (kind, _, _), rows in zip(ours, taken):
        own = least(rows)
        key = "least" if "least" in own else "cpu"
        note = ""
        if kind == "plain" and own.get("nodes") != theirs.get("nodes"):
            note = f"  COUNTS DIFFER: {own['nodes']} and {theirs['nodes']} nodes"
        print(
            f"{name:<12} {kind:<9} {own[key] * 1e3:10.3f} ms {theirs[key] * 1e3:10.3f} ms "
            f"{theirs[key] / own[key]:7.1f} x   {own['mb']:7.1f} MB {theirs['mb']:7.1f} MB "
            f"{theirs['mb'] / own['mb']:6.1f} x{note}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="AC 11 and math 11 too")
    arguments = parser.parse_args()
    print(f"{'':12} {'':9} {'ours':>13} {'egglog':>13} {'':>9} {'ours':>12} {'egglog':>10}")
    for n in (10, 11) if arguments.large else (10,):
        ours = [
            ("plain", OURS_TERMS, {"KIND": "AC", "N": n}),
            ("sorted", OURS_TERMS, {"KIND": "sorted", "N": n}),
            ("analyses", OURS_ANALYSES, {"KIND": "sorted", "N": n}),
        ]
        compare(f"AC {n}", ours, PEER_TERMS, arguments.runs)
    for n in (10, 11) if arguments.large else (10,):
        ours = [("plain", OURS_TERMS, {"KIND": "math", "N": n})]
        compare(f"math {n}", ours, PEER_TERMS, arguments.runs)
    compare("front door", [("plain", OURS_DOOR, {})], PEER_DOOR, arguments.runs)
    own = IMPORT.format(module="opgraft_egraph", more="opgraft_egraph.EGraph")
    compare("import", [("plain", own, {})], IMPORT.format(module="egglog", more=""), arguments.runs)


if __name__ == "__main__":
    main()
