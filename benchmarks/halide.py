"""Proofs of Halide's statements: share decided, by what, and the time for each.

    python benchmarks/halide.py FILE.csv... [--each]

Published for the 197 that Halide's own simplifier cannot prove: 51 % by the best e-graph system.
"""

from __future__ import annotations

import argparse
import statistics
import time

from opgraft_egraph.proving import parse_statement, prove, read_statements
from opgraft_egraph.proving.values import value_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE.csv")
    parser.add_argument("--each", action="store_true", help="a line for each statement")
    arguments = parser.parse_args()
    for file in arguments.files:
        stops: dict[str, int] = {}
        times: list[float] = []
        decided = 0
        for identifier, text in read_statements(file):
            statement = parse_statement(text)
            begin = time.perf_counter()
            proof = prove(statement)
            times.append(time.perf_counter() - begin)
            if proof.values is not None:
                assert not value_of(statement, proof.values)
            decided += proof.verdict != "unknown"
            key = f"{proof.verdict} by {proof.stop}"
            stops[key] = stops.get(key, 0) + 1
            if arguments.each:
                print(f"{identifier:>6} {proof.verdict:<7} {times[-1]:8.3f} s  {proof.stop}")
        print(f"{file}: {decided} of {len(times)} decided ({100 * decided / len(times):.1f} %)")
        for key, count in sorted(stops.items()):
            print(f"  {count:>4} {key}")
        middle, most = statistics.median(times), max(times)
        print(f"  seconds: median {middle:.3f}, most {most:.3f}, all {sum(times):.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
