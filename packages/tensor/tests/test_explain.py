"""A plan says of each placement what it cost and what else it would have cost."""

from __future__ import annotations

import numpy as np

import programs
from opgraft import journal
from opgraft.ir.ops import Ops
from opgraft_tensor import Tensor, graph
from opgraft_tensor.explain import explain
from opgraft_tensor.normalise import canonical
from opgraft_tensor.plan import schedule
from planning import CPU, array


def text_of(*outputs: object) -> str:
    found = canonical(list(outputs), lambda _: True)  # type: ignore[arg-type]
    return explain(schedule(found.outputs, CPU))


def test_the_row_of_a_softmax_is_local_and_its_costs_are_there() -> None:
    text = text_of(*[o.uop for o in programs.softmax(programs.Nodes)])
    assert text.startswith("1 kernel, 33.55 MB touched, 0 bytes of temporaries")
    (line,) = [x for x in text.splitlines() if "EXP2[4096, 1024]" in x]
    place, inline, local, root, _, _ = line.split()
    assert place == "local"
    assert float(local) < min(float(inline), float(root))


def test_a_float_sum_with_two_readers_is_never_inline() -> None:
    text = text_of(*[o.uop for o in programs.two_consumers(programs.Nodes)])
    (line,) = [x for x in text.splitlines() if "REDUCE.ADD[1024]" in x and "takes in" not in x]
    assert line.split()[:3] == ["root", "never", "-"]
    assert "takes in" in text


def test_assignments_say_where_they_went() -> None:
    x = array(np.ones(8))
    text = text_of(graph.write(x, ((0, 3, 1),), graph.full((3,), x.dtype, 2.0)))
    assert "WRITE[8]: in place" in text
    text = text_of(graph.write(x, ((1, 7, 1),), graph.slice_(x, ((0, 7, 1),))))
    assert "WRITE[8]: fresh memory, its kernel reads the old version elsewhere" in text


def test_fills_and_copies_are_steps() -> None:
    x = array(np.ones(8))
    text = text_of(graph.full((4,), x.dtype, 2.5), graph.reshape(x, (2, 4)))
    assert "fill result float32[4] with 2.5" in text
    assert "copy input 0 float32[8] to result float32[2, 4]" in text


def test_plans_are_told_to_who_listens() -> None:
    heard: list[journal.Event] = []
    x = Tensor(np.arange(7, dtype=np.float32))
    with journal.listening(heard.append):
        (x * 3 + 0.125).realize()
    plans = [e for e in heard if e.kind == "plan"]
    assert len(plans) == 1
    assert plans[0].name.startswith("1 kernel")
    assert "result float32[7]" in plans[0].details["text"]
    assert x.uop.op is Ops.BUFFER
