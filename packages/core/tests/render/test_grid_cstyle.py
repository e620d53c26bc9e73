"""The C family writes programs for grids through the hooks of a dialect."""

from __future__ import annotations

from typing import ClassVar

import pytest

from opgraft import dtypes
from opgraft.devices.invented import LANES64
from opgraft.errors import LoweringError
from opgraft.ir import Ops, Space, UOp
from opgraft.ir.text import parse_linear
from opgraft.render.c import CRenderer
from opgraft.render.cstyle import CStyleRenderer
from opgraft.render.writer import Writer


class Toy(CStyleRenderer):
    """A dialect of three words."""

    spaces: ClassVar = {Space.PRIVATE: "", Space.GROUP: "shared "}

    def begin(self, w: Writer) -> str:
        for slot, given in enumerate(w.program.params):
            w.bind(given, f"p{slot}")
        return f"kernel {w.program.name}{{"

    def special(self, w: Writer, u: UOp) -> str:
        return f"{u.arg[0]}()"

    def barrier(self, w: Writer, u: UOp) -> str:
        return "wait();"

    def atomic(self, w: Writer, u: UOp) -> str:
        buffer, index, value = map(w.ref, u.src[:3])
        return f"atomic_{u.arg.name.lower()}(&{buffer}[{index}],{value});"


TEXT = """linear["toy"]
%0: int32 = param[0, 8]
%1: int32 = special["group0", 2]
%2: int32 = special["thread0", 4]
params %0
body
  %3: bool = cmplt(%1, 1)
  %4: void = if(%3)
    %5: int32 = local["s", 4, group]
    store(%5, %2, %1)
    barrier
    %6: int32 = load(%5, 0)
    %7: bool = cmpeq(%2, 0)
    atomic[add](%0, %1, %6, %7)
  endif(%4)
launch[(2,), (4,)]
written[0,]
"""


def test_indices_barriers_atomics_and_group_memory_are_the_dialects() -> None:
    lines = Toy(LANES64).render(parse_linear(TEXT)).splitlines()
    # group memory is declared at the head, wherever it stands
    assert lines[1] == " shared int m0[4];"
    text = "\\n".join(lines)
    assert "m0[thread0()]=group0();" in text
    assert "wait();" in text
    assert "if((thread0()==0))atomic_add(&p0[group0()]," in text


def test_a_dialect_without_them_says_so() -> None:
    class Bare(Toy):
        special = CStyleRenderer.special
        atomic = CStyleRenderer.atomic

    with pytest.raises(LoweringError, match="Bare has no launch indices"):
        Bare(LANES64).render(parse_linear(TEXT))
    with pytest.raises(LoweringError, match="the CPU has no launches"):
        CRenderer(LANES64).render(parse_linear(TEXT))
    value = UOp.const(dtypes.int32, 1)
    node = UOp(
        Ops.ATOMIC, dtypes.void, (UOp(Ops.PARAM, dtypes.int32, (), (0, 1)), value, value), Ops.ADD
    )
    with pytest.raises(LoweringError, match="CRenderer has no atomics"):
        CRenderer(LANES64).atomic(None, node)  # type: ignore[arg-type]
