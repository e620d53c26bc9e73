"""Errors say what was asked, what was tried and what to do; they pickle."""

from __future__ import annotations

import inspect
import pickle

import pytest

from opgraft import errors

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.OpgraftError)
]


def test_a_message_holds_what_was_tried_and_the_remedy() -> None:
    error = errors.DeviceError(
        "no compiler works",
        tried=(("gcc", "not in PATH"), ("clang", "exit code 1")),
        remedy="Install one.",
    )
    assert str(error).splitlines() == [
        "no compiler works",
        "  gcc: not in PATH",
        "  clang: exit code 1",
        "Install one.",
    ]
    assert str(errors.DeviceError("just this")) == "just this"


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_an_opgraft_error_and_pickles_whole(
    kind: type[errors.OpgraftError],
) -> None:
    error = kind("message", tried=(("a", "b"),), remedy="do")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (back.message, back.tried, back.remedy) == ("message", (("a", "b"),), "do")
    assert str(back) == str(error)
    assert kind.__doc__


def test_out_of_memory_is_an_error_of_the_device() -> None:
    assert issubclass(errors.DeviceMemoryError, errors.DeviceError)
