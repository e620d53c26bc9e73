"""Extraction on the public benchmark: per file, cost and time beside greedy-DAG and the optimum.

    python benchmarks/extraction.py FOLDER [--deadline S]

FOLDER (or OPGRAFT_GYM) holds the JSON files and, if optima are known, `expected.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from opgraft_egraph.exact.bottomup import cheapest_trees, greedy_dag
from opgraft_egraph.serialized import Serialized


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.environ.get("OPGRAFT_GYM"))
    parser.add_argument("--deadline", type=float, default=10.0)
    arguments = parser.parse_args()
    if arguments.folder is None:
        parser.error("say where the files are")
    folder = Path(arguments.folder)
    known = {}
    if (folder / "expected.json").exists():
        known = json.loads((folder / "expected.json").read_text())
    head = ("nodes", "greedy", "ours", "known", "proved", "seconds", "by")
    print("{:>7} {:>12} {:>12} {:>12} {:>7} {:>8} {:<17} file".format(*head))
    behind = proved = count = 0
    for file in sorted(folder.glob("*.json")):
        if file.name == "expected.json":
            continue
        graph = Serialized.read(file)
        problem = graph.problem
        trees, _ = cheapest_trees(problem)
        choices = (problem.price({**trees, **greedy_dag(problem)}), problem.price(trees))
        greedy = min(price for price in choices if price is not None)
        begin = time.perf_counter()
        found = graph.extract("dag", arguments.deadline)
        seconds = time.perf_counter() - begin
        # complete, without a circle, and at this cost: worked out anew
        assert graph.price(found.choices) == found.cost
        optimum = known.get(file.name, {}).get("optimum")
        count += 1
        proved += found.proved
        behind += optimum is not None and found.cost > optimum + 1e-6
        shown = "" if optimum is None else f"{optimum:.6g}"
        print(
            f"{len(graph.ids):>7} {problem.cost(greedy):>12.8g} {found.cost:>12.8g} {shown:>12} "
            f"{'yes' if found.proved else 'no':>7} {seconds:>8.3f} {found.how:<17} {file.name}"
        )
    print(f"{count} files, {proved} proved, {behind} above a known optimum")
    return 1 if behind else 0


if __name__ == "__main__":
    raise SystemExit(main())
