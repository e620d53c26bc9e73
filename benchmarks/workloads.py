"""The workloads of a bench folder, ours beside NumPy and tinygrad, in one run, with ratios.

    python benchmarks/workloads.py --folder ../shared/bench --case softmax,mm512 --threads 1

With `generator_` among the libraries, OPGRAFT_GENERATOR names the folder of the generator of C.
The folder holds `bench.py`, `cases.py` and `adapters/`; it may also be named by the environment
variable OPGRAFT_BENCH. It is copied, our adapters are put beside the others, and each library runs
in a process of its own, one after another.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARIES = ("opgraft_", "numpy_", "tinygrad_")
CASES = "fused,sum_all,max_all,sum_row,sum_col,softmax,layernorm,mm256,mm512,conv,gather,exp,add16"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--folder", default=os.environ.get("OPGRAFT_BENCH", ""))
    parser.add_argument("--case", default=CASES, help="names, or all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    arguments = parser.parse_args()
    folder = Path(arguments.folder)
    if not arguments.folder or not (folder / "bench.py").exists():
        print("workloads: skipped, no bench folder (give --folder or OPGRAFT_BENCH)")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "bench"
        shutil.copytree(folder, copy)
        shutil.copytree(HERE / "adapters", copy / "adapters", dirs_exist_ok=True)
        libraries = arguments.libraries.split(",")
        for library in libraries:
            command = [sys.executable, "bench.py", "--lib", library, "--case", arguments.case]
            subprocess.run([*command, "--threads", str(arguments.threads)], cwd=copy, check=False)
        report(copy / "results.jsonl", libraries)
    return 0


def report(results: Path, libraries: list[str]) -> None:
    """Milliseconds of each library, and the best peer's time over ours."""
    rows: dict[str, dict[str, dict[str, object]]] = {}
    for line in results.read_text().splitlines():
        record = json.loads(line)
        rows.setdefault(record["case"], {})[record["lib"]] = record
    print(f"\n{'case':12s}" + "".join(f"{lib.rstrip('_'):>14s}" for lib in libraries), end="")
    print(f"{'best peer/ours':>16s}   right")
    for case, found in rows.items():
        times = [cell_time(found.get(lib)) for lib in libraries]
        ours, peers = times[0], [t for t in times[1:] if t is not None]
        ratio = f"{min(peers) / ours:16.2f}" if ours and peers else f"{'':16s}"
        cells = "".join(f"{t:14.3f}" if t is not None else f"{'-':>14s}" for t in times)
        right = found.get(libraries[0], {}).get("ok", found.get(libraries[0], {}).get("error"))
        print(f"{case:12s}{cells}{ratio}   {right}")


def cell_time(record: dict[str, object] | None) -> float | None:
    median = (record or {}).get("median")
    return float(median) if isinstance(median, float) else None


if __name__ == "__main__":
    raise SystemExit(main())
