"""What is generated for the corpus of kernels is what benchmarks/corpus/record.txt says.

The corpus lies in the checkout; installed alone, the package has nothing for these tests to read.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tested import at

FILE = Path(__file__).parents[3] / "benchmarks" / "corpus.py"
if not FILE.exists():
    pytest.skip("the corpus is part of the repository, not of a package", allow_module_level=True)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("opgraft_corpus", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses and tuples look themselves up
    spec.loader.exec_module(module)
    return module


corpus = load()
FOLDERS = sorted(path.name for path in corpus.FOLDER.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_generated_is_as_recorded(folder: str) -> None:
    record, rows, targets = corpus.recorded(folder), [], list(corpus.DEVICES)
    for number, (name, sink) in enumerate(corpus.kernels(folder)):
        # a quick run takes one target of a kernel, in turn, and none of every second three
        chosen = at(targets[number % (2 * len(targets)) :][:1], targets)
        rows += corpus.generated([(name, sink)], chosen)
        for target in set(targets) - set(chosen):
            del record[name, target]
    assert rows
    lines = corpus.changes(rows, record)
    if lines:
        listed = "\n".join(lines[: corpus.SHOWN])
        pytest.fail(f"{len(lines)} kernels are generated anew:\n{listed}\n\n{corpus.REMEDY}")


def test_every_kernel_is_recorded_on_every_target_and_none_is_refused() -> None:
    names = [name for name, _ in corpus.kernels()]
    rows = corpus.recorded()
    assert list(rows) == [(name, target) for name in names for target in corpus.DEVICES]
    assert not [row for row in rows.values() if "refused" in row.digest]


def test_a_change_is_named_with_its_kernel_its_target_and_its_size() -> None:
    before = corpus.Row("a/b", "AVX2", 10, 100.0, "d0")
    longer = before._replace(instructions=20, cost=150.0, digest="d1")
    record = {("a/b", "AVX2"): before, ("a/gone", "AVX2"): before}
    other = before._replace(kernel="a/new")
    assert corpus.changes([longer, other], record) == [
        "a/b on AVX2: 10 -> 20 instructions, cost 100 -> 150 (1.50 x)",
        "a/new on AVX2: not recorded",
        "a/gone on AVX2: gone",
    ]
    same = before._replace(digest="d2")
    (line,) = corpus.changes([same], {("a/b", "AVX2"): before})
    assert line == "a/b on AVX2: another source of the same instructions and cost"


def test_another_schedule_is_seen() -> None:
    """The record of a kernel is not met by the same kernel with a schedule of its own."""
    name = "workloads/matmul_512"
    (sink,) = [sink for found, sink in corpus.kernels("workloads") if found == name]
    sink = sink.replace(arg=type(sink.arg)(sink.arg.name, ()))
    record = {key: row for key, row in corpus.recorded().items() if key[0] == name}
    assert len(corpus.changes(corpus.generated([(name, sink)]), record)) == len(corpus.DEVICES)


@pytest.mark.thorough
def test_other_hashes_and_another_order_give_the_same_source() -> None:
    names = ("workloads/matmul_odd", "workloads/attention_causal", "networks/mlp_01")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import corpus\n"
        "found = dict(corpus.kernels())\n"
        "rows = corpus.generated((name, found[name]) for name in sys.argv[2:])\n"
        "print('\\n'.join(row.text() for row in rows))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(FILE.parent), *reversed(names)],
        env={**os.environ, "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wanted = corpus.recorded()
    assert len(found) == len(names) * len(corpus.DEVICES)
    for line in found:
        kernel, target = line.split("\t")[:2]
        assert line == wanted[kernel, target].text()
