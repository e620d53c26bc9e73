"""Many to one: REDUCE along and across memory, over a variable number of elements, and SCAN.

The values make every order of a sum exact, so the comparison is, too.
"""

from __future__ import annotations

import pytest

from opgraft.api import Device, Target
from opgraft.dtype import DType, dtypes
from opgraft_conformance import reductions
from opgraft_conformance.execution import agree
from opgraft_conformance.operations import require

pytestmark = pytest.mark.must


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
@pytest.mark.parametrize("form", reductions.FORMS)
def test_reductions(
    device: Device, reference: Device, capabilities: Target, form: str, dtype: DType
) -> None:
    """Every operation that combines, on a dtype."""
    require(capabilities, dtype)
    sink, memory = reductions.FORMS[form](dtype)
    names = [f"{op.name} of {dtype}" for op in reductions.ops_of(dtype)]
    for values in ((0,), (1,), (reductions.WIDTH,)) if form == "of_some" else ((),):
        agree(
            device,
            reference,
            sink,
            memory,
            values,
            slots=() if form == "counts" else names,
            hint="one nan makes the result nan; float16 and bfloat16 accumulate in float32",
        )
