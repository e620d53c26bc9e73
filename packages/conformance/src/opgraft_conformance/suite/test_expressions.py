"""Operations after one another: widths kept, roundings kept, nothing fused, nothing reordered.

And constants: what stands in the source as text is read back as the same bits.
"""

from __future__ import annotations

import pytest

from opgraft.api import Device, Target
from opgraft.dtype import DType, dtypes
from opgraft_conformance import expressions
from opgraft_conformance.execution import agree
from opgraft_conformance.operations import SCALAR, SCHEDULED, Form, require

pytestmark = pytest.mark.must


@pytest.mark.parametrize("form", [SCALAR, SCHEDULED], ids=["scalars", "scheduled"])
@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_expressions(
    device: Device, reference: Device, capabilities: Target, dtype: DType, form: Form
) -> None:
    """The expressions of expressions.py on all pairs of edges."""
    require(capabilities, dtype)
    names = list(expressions.expressions(dtype))
    if dtype is dtypes.float32 and dtypes.float64 not in capabilities.compute:
        names.remove("(a * b) in another dtype")
    most = max(1, capabilities.max_buffers - 2)
    for first in range(0, len(names), most):
        part = names[first : first + most]
        sink, memory = expressions.of(dtype, part, form.info())
        meaning, _ = expressions.of(dtype, part, SCHEDULED.info())
        agree(
            device,
            reference,
            sink,
            memory,
            meaning=meaning,
            slots=part,
            slot_hints=[expressions.hint(dtype, name) for name in part],
        )


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_constants(device: Device, reference: Device, capabilities: Target, dtype: DType) -> None:
    """Every edge of a dtype as a constant."""
    require(capabilities, dtype)
    sink, memory = expressions.constants(dtype)
    agree(device, reference, sink, memory, hint="how the renderer writes constants of this dtype")
