"""What a program that is launched as groups of threads may hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opgraft import dtypes
from opgraft.errors import ParseError, SpecError
from opgraft.ir import Ops, Space, UOp
from opgraft.ir.launch import over_limits, varies_in_group
from opgraft.ir.laws import broken_law
from opgraft.ir.linear import LinearProgram
from opgraft.ir.spec import check
from opgraft.ir.text import linear_to_text, parse_linear
from opgraft.target import Target

I32, F32 = dtypes.int32, dtypes.float32
OUT = UOp(Ops.PARAM, I32, (), (0, 64))
GROUP = UOp(Ops.SPECIAL, I32, (), ("group0", 4))
THREAD = UOp(Ops.SPECIAL, I32, (), ("thread0", 16))
BARRIER = UOp(Ops.BARRIER, dtypes.void)
GRID = Target("GRID", group_dims=2, threads_per_group=64, local_bytes=64, max_buffers=2)
GRID = replace(GRID, max_parallel_size=100, atomics=frozenset({(Ops.ADD, I32)}))


def program(*items: UOp, **changes: object) -> LinearProgram:
    fields = {"launch": ((4,), (16,)), "written": ()}
    return LinearProgram("p", items, (OUT,), **{**fields, **changes})  # type: ignore[arg-type]


def test_a_program_with_a_launch_is_legal() -> None:
    check(program(OUT.store(GROUP, THREAD), BARRIER, written=(0,)), "linear", GRID)


def under(condition: UOp) -> tuple[UOp, ...]:
    test = UOp(Ops.IF, dtypes.void, (condition,))
    return (condition, test, BARRIER, UOp(Ops.ENDIF, dtypes.void, (test,)))


BROKEN = [
    (program(launch=((4,), ())), "as many numbers of groups as of threads"),
    (program(launch=((1,) * 4, (1,) * 4)), "at most 3"),
    (program(launch=((4,), (0,))), "numbers of threads are 1 or more"),
    (program(launch=((-1,), (1,))), "numbers of groups are 0 or more"),
    (program(GROUP + 1, launch=((), ())), "dimensions, so no group0"),
    (program(THREAD + 1, launch=((4,), (32,))), "the launch has 32 threads there"),
    (program(GROUP + 1, launch=((5,), (16,))), "up to 5 groups there"),
    (program(UOp(Ops.SPECIAL, I32, (), ("begin", 9)) + 1), "has no begin"),
    (program(*under(THREAD < 8)), "in a condition that differs between threads"),
    (program(launch=((4, 1, 1), (16, 1, 1))), "3 dimensions, where 2 is the most"),
    (program(launch=((4,), (65,))), "65 threads of a group, where 64"),
    (program(launch=((101,), (16,))), "101 groups in a dimension, where 100"),
    (program(UOp(Ops.LOCAL, F32, (), ("s", 17, Space.GROUP))), "68 bytes of group memory"),
    (program(UOp(Ops.ATOMIC, dtypes.void, (OUT, GROUP, THREAD), Ops.MAX), written=(0,)), "MAX"),
    (program(UOp(Ops.ATOMIC, dtypes.void, (OUT, GROUP, THREAD), Ops.ADD)), "writes slots []"),
]


@pytest.mark.parametrize(("given", "says"), BROKEN, ids=[says for _, says in BROKEN])
def test_a_program_that_is_not_is_refused(given: LinearProgram, says: str) -> None:
    with pytest.raises(SpecError) as raised:
        check(given, "linear", GRID)
    assert says in str(raised.value)


def test_conditions_that_are_the_same_for_a_group_may_hold_barriers() -> None:
    check(program(*under(GROUP < 2)), "linear", GRID)
    assert not varies_in_group(GROUP < 2)
    assert varies_in_group(THREAD < 2)
    assert not varies_in_group(THREAD < 16)


def test_limits_are_named_all_at_once() -> None:
    three = (OUT, *(UOp(Ops.PARAM, I32, (), (slot, 4)) for slot in (1, 2)))
    found = over_limits(replace(program(launch=((4,), (65,))), params=three), GRID)
    assert found == (
        "3 buffers, where 2 is the most",
        "65 threads of a group, where 64 is the most",
    )


def test_an_atomic_is_lawful() -> None:
    memory = UOp(Ops.LOCAL, I32, (), ("s", 4, Space.GROUP))
    value, floats = UOp.const(I32, 1), UOp(Ops.PARAM, F32, (), (1, 4))

    def atomic(*src: UOp, op: object = Ops.ADD) -> UOp:
        return UOp(Ops.ATOMIC, dtypes.void, src, op)

    gate = UOp.const(dtypes.bool, True)
    for good in (atomic(OUT, value, value), atomic(memory, value, value, gate, op=Ops.XOR)):
        assert broken_law(good) is None
    for bad, says in (
        (atomic(OUT, value, value, op=Ops.MUL), "its arg is ADD, MAX"),
        (atomic(OUT, value), "3 or 4 sources"),
        (atomic(OUT, value, UOp.const(F32, 1.0)), "elements of its buffer's dtype"),
        (atomic(OUT, value, value.broadcast(2)), "changes one element"),
        (atomic(floats, value, UOp.const(F32, 1.0), op=Ops.XOR), "integers or bool"),
        (atomic(OUT, value, value, value), "gate is bool"),
        (atomic(UOp(Ops.LOCAL, I32, (), ("r", 1, Space.REGISTER)), value, value), "registers"),
    ):
        law = broken_law(bad)
        assert law is not None
        assert says in law.says


def test_a_launch_with_variables_is_text_that_reads_back() -> None:
    n = UOp.variable("n", 1, 9, I32)
    doubled = n * 2
    given = program(
        doubled,
        OUT.store(GROUP, doubled),
        written=(0,),
        variables=(n,),
        launch=((doubled, 3), (8, 2)),
    )
    text = linear_to_text(given)
    assert parse_linear(text) == given
    assert text.count("launch[(%") == text.count(", 3), (8, 2)]") == 1
    for bad in ("launch[(4,)]", "launch[(4,), (%0,)]", "launch[(1.5,), (1,)]", "launch[4, 1]"):
        with pytest.raises(ParseError):
            parse_linear('linear["x"]\n%0: int32 = var["n", 0, 9]\nbody\n' + bad)


def test_an_atomic_is_text_that_reads_back() -> None:
    given = program(
        UOp(Ops.ATOMIC, dtypes.void, (OUT, GROUP, UOp.const(I32, 1)), Ops.ADD), written=(0,)
    )
    assert parse_linear(linear_to_text(given)) == given
    assert "atomic[add](%0, %1, 1)" in linear_to_text(given)
