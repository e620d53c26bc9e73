"""Pairs of renderer and compiler: which one is taken, and what is said where none is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opgraft.errors import DeviceError, OpgraftError, PluginError
from opgraft.ir.linear import LinearProgram
from opgraft.render.renderer import Renderer
from opgraft.runtime import Compiler, CompilerPair, CompilerSet
from opgraft.target import Target

TARGET = Target("TOY")


class Text(Renderer):
    def render(self, program: LinearProgram) -> str:
        return program.name


class Echo(Compiler):
    key = "echo 1"

    def __init__(self, target: Target) -> None:
        self.target = target

    def compile(self, source: str) -> bytes:
        return source.encode()


def absent(target: Target) -> Compiler:
    raise DeviceError("libtoy.so is not there")


def pair(
    name: str, priority: int = 0, compiler: Callable[[Target], Compiler] | None = Echo
) -> CompilerPair:
    return CompilerPair(name, "TOY", Text, compiler, priority, f"note on {name}")


def test_the_first_in_priority_that_initialises_wins_and_failures_are_kept() -> None:
    pairs = CompilerSet("TOY", TARGET, [pair("B", 1), pair("A", 1), pair("BEST", 9, absent)])
    assert pairs.select().pair.name == "A"
    assert {name: str(error) for name, error in pairs.failures.items()} == {
        "BEST": "libtoy.so is not there"
    }
    assert pairs.select() is pairs.select("")


def test_a_named_pair_is_the_only_one_tried() -> None:
    pairs = CompilerSet("TOY", TARGET, [pair("GOOD", 5), pair("BAD", 1, absent)])
    assert pairs.select("good").pair.name == "GOOD"
    with pytest.raises(DeviceError, match="libtoy"):
        pairs.select("BAD")
    with pytest.raises(DeviceError, match="TOY_CC takes one of: GOOD, BAD"):
        pairs.select("GOD")


def test_where_none_works_the_error_lists_each_reason() -> None:
    pairs = CompilerSet("TOY", TARGET, [pair("X", 2, absent), pair("Y", 1, absent)])
    with pytest.raises(DeviceError) as caught:
        pairs.select()
    assert [name for name, _ in caught.value.tried] == ["X", "Y"]
    assert "note on X" in caught.value.remedy
    assert "TOY_CC" in caught.value.remedy


def test_a_failure_is_not_for_ever() -> None:
    there: list[bool] = []

    def sometimes(target: Target) -> Compiler:
        return Echo(target) if there else absent(target)

    pairs = CompilerSet("TOY", TARGET, [pair("X", 2, sometimes)])
    with pytest.raises(DeviceError):
        pairs.select()
    there.append(True)
    assert pairs.select().pair.name == "X"
    assert pairs.failures == {}


def test_a_pair_is_added_once_and_a_taken_name_is_an_error() -> None:
    pairs = CompilerSet("TOY", TARGET, [pair("A")])
    assert pairs.select().pair.name == "A"
    pairs.extend([pair("A"), pair("LLVM", 7)])
    assert pairs.select().pair.name == "LLVM"
    with pytest.raises(PluginError, match="two compiler pairs for TOY are named A"):
        pairs.extend([pair("A", 3)])


def test_a_name_that_two_claim_is_passed_over_and_raises_when_selected() -> None:
    clash = PluginError("a and b both bring X")
    pairs = CompilerSet("TOY", TARGET, [pair("X", 9), pair("Y")])
    pairs.refuse("X", clash)
    pairs.refuse("NEW", clash)
    assert pairs.select().pair.name == "Y"
    for name in ("X", "NEW"):
        with pytest.raises(PluginError, match="both bring X"):
            pairs.select(name)
    assert pairs.failures["X"] is clash


def test_a_driver_that_takes_source_has_no_compiler() -> None:
    selected = CompilerSet("TOY", TARGET, [pair("SRC", 0, None)]).select()
    assert selected.compiler is None
    assert selected.renderer.target is TARGET


def test_a_value_that_names_no_pair_may_make_one() -> None:
    def custom(choice: str) -> CompilerPair | None:
        return pair(choice) if choice.startswith("/") else None

    pairs = CompilerSet("TOY", TARGET, [pair("A")], custom, preferred=lambda: "/usr/bin/toy")
    assert pairs.select("/opt/toy").pair.name == "/opt/toy"
    assert pairs.select().pair.name == "/usr/bin/toy"
    with pytest.raises(OpgraftError, match="no compiler pair named 'toy'"):
        pairs.select("toy")
