"""Planning in tests: make a plan, verify it, carry it out by NumPy, compare with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernel_numpy import run_plan
from opgraft.dtype import DType, dtypes
from opgraft.ir.ops import Ops
from opgraft.ir.uop import UOp
from opgraft_tensor.assemble import assemble
from opgraft_tensor.facts import Prices
from opgraft_tensor.normalise import canonical
from opgraft_tensor.plan import Draft, draft
from opgraft_tensor.storage import Storage, buffer_node
from opgraft_tensor.verify import verify
from oracle import evaluate_numpy
from tested import COMPILED

CPU = Prices()


def array(values: Any, dtype: DType = dtypes.float32) -> UOp:
    """A BUFFER with these values."""
    from opgraft_tensor.exchange import host_values

    host = host_values(np.asarray(values), dtype)
    return buffer_node(Storage(host.shape, dtype, COMPILED, host))


def plan_of(outputs: Sequence[UOp], prices: Prices = CPU, live: Sequence[UOp] = ()) -> Draft:
    """The verified draft; every BUFFER but those of `live` may be overwritten."""
    graph = canonical(list(outputs), lambda b: b not in live)
    made = draft(graph.outputs, prices)
    verify(made)
    return made


def check(
    outputs: Sequence[UOp],
    prices: Prices = CPU,
    live: Sequence[UOp] = (),
    tolerance: float = 2e-5,
) -> Draft:
    """Plan, verify, run and compare; live buffers must be unchanged."""
    graph = canonical(list(outputs), lambda b: b not in live)
    made = draft(graph.outputs, prices)
    verify(made)
    plan = assemble(made)
    inputs = [s.host for s in graph.storages]
    found = run_plan(plan, inputs)
    expected = [evaluate_numpy(o) for o in outputs]
    for got, want, output in zip(found, expected, outputs):
        want = np.asarray(want)
        assert got.shape == want.shape
        if output.dtype.is_float:
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
            )
        else:
            np.testing.assert_array_equal(got, want)
    after: list[np.ndarray] = run_plan.inputs_after  # type: ignore[attr-defined]
    for storage, now in zip(graph.storages, after):
        if any(b.arg is storage for b in live):
            np.testing.assert_array_equal(now, storage.host)
    return made


def in_place(made: Draft) -> list[bool]:
    """For each stored WRITE, in order of kernels, whether it took the memory of the old version."""
    home = made.placement.home
    return [home.get(v, v) is not v for k in made.kernels for v in k.stored if v.op is Ops.WRITE]
