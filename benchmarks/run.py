"""Run the benchmarks, all or those named: `python benchmarks/run.py [NAME ...]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = ("startup", "realize", "rewriting", "kernel_counts", "jit", "workloads")


def main() -> int:
    chosen = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    failed = 0
    for name in chosen:
        print(f"\n== {name}", flush=True)
        command = [sys.executable, str(HERE / f"{name}.py")]
        failed += subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
