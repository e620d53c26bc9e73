"""Random programs of Tensor's methods equal NumPy on the devices; what fails can be cut down."""

from __future__ import annotations

import pytest

import statements
import tensor_programs
from statements import Program, Statement
from tested import COMPILED


@pytest.mark.sampled(2)
@pytest.mark.parametrize("block", range(5))
def test_random_programs_on_the_interpreter(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        made = tensor_programs.program(seed)
        assert statements.failure(made, "INTERP") is None, made.source("INTERP")


@pytest.mark.parametrize("seed", range(200, 210))
def test_random_programs_on_the_default_device(seed: int) -> None:
    made = tensor_programs.program(seed)
    assert statements.failure(made, COMPILED) is None, made.source(COMPILED)


def test_a_product_that_becomes_float_is_of_small_numbers() -> None:
    """uint64 with int32 is float64: of large numbers the order of a sum would show."""
    made = tensor_programs.program(88120096)
    assert any("uint64" in s.tensor for s in made.statements)
    assert statements.failure(made, "INTERP") is None


def test_a_program_is_the_same_for_its_seed() -> None:
    first, again = tensor_programs.program(7), tensor_programs.program(7)
    assert first.source("CPU") == again.source("CPU")


def test_a_failing_program_is_cut_down_to_what_fails() -> None:
    def both(name: str, text: str) -> Statement:
        return Statement(name, f"{name} = {text}", f"{name} = {text}")

    made = Program(
        0,
        [
            Statement("a", "a = Tensor([1, 2], device=DEVICE)", "a = np.array([1, 2])"),
            both("b", "a + a"),
            both("c", "a * 3"),
            Statement("d", "d = c + 1", "d = c + 2"),  # wrong on purpose
            both("e", "b * 2"),
        ],
        ["d", "e"],
    )
    small = statements.shrunk(made, "INTERP")
    assert [s.name for s in small.statements] == ["a", "c", "d"]
    assert small.outputs == ["d"]
    assert statements.failure(small, "INTERP") == "d differs"
    compile(small.source("INTERP"), "snippet", "exec")
