"""Groups of threads: what each promise of a group means by itself, so that a message can say it.

Barriers make threads wait and see each other's stores; group memory is one group's own; a launch
may be as large as the target says and no larger. test_programs.py puts all of it together.
"""

from __future__ import annotations

import numpy as np
import pytest

from opgraft.api import Device, LinearProgram, Target, compile_linear, errors, parse_linear
from opgraft_conformance import Fault, not_claimed
from opgraft_conformance.samples import Array, check_works, equal, put, take

pytestmark = [
    pytest.mark.must,
    pytest.mark.claims("launches of groups of threads", lambda target: target.group_dims > 0),
]
BARRIER = "Renderer.barrier, and what it becomes on the device"
MEMORY = "how Space.GROUP is declared, and who else has that memory"


def program(name: str, groups: int, threads: int, size: int, body: str) -> LinearProgram:
    """A program of one dimension: slot 0 is written, slot 1 is read, both int32 of `size`."""
    return parse_linear(
        f"""linear["{name}"]
%out: int32 = param[0, {size}]
%x: int32 = param[1, {size}]
params %out %x
%g: int32 = special["group0", {groups}]
%t: int32 = special["thread0", {threads}]
body
  %m: int32 = local["m", {threads}, group]
  %first: int32 = mul(%g, {threads})
  %at: int32 = add(%first, %t)
{body}
launch[({groups},), ({threads},)]
written[0,]
"""
    )


def launched(device: Device, made: LinearProgram, given: Array) -> Array:
    """What the program leaves in slot 0, which held -1."""
    out = put(device, np.full(len(given), -1, np.int32))
    kernel = compile_linear(device, made)
    kernel.run([out, put(device, given.astype(np.int32))], wait=True)
    return take(out)


def threads_of(target: Target, most: int) -> int:
    """As many threads as the target has for a group, a power of two up to `most`."""
    if target.threads_per_group < 2:
        not_claimed("groups of more than one thread")
    return min(most, 1 << (target.threads_per_group.bit_length() - 1))


NEIGHBOUR = """
  %v: int32 = load(%x, %at)
  store(%m, %t, %v)
  barrier
  %next: int32 = add(%t, {distance})
  %less: int32 = add(%next, {minus})
  %inside: bool = cmplt(%next, {threads})
  %other: int32 = where(%inside, %next, %less)
  %u: int32 = load(%m, %other)
  store(%out, %at, %u)
"""


def neighbour(distance: int, threads: int) -> str:
    """The body in which each thread reads what the one `distance` further stored."""
    return NEIGHBOUR.format(distance=distance % threads, threads=threads, minus=-threads)


@pytest.mark.parametrize("distance", [1, -1])
def test_barrier(device: Device, capabilities: Target, distance: int) -> None:
    """After a barrier each thread sees what its neighbour stored before it."""
    threads = threads_of(capabilities, 32)
    body = neighbour(distance, threads)
    made = program("neighbour", 1, threads, threads, body)
    for turn in range(4):
        given = np.arange(threads) * 7 + 1000 * (turn + 1)
        got = launched(device, made, given)
        wanted = np.roll(given, -distance)
        for thread in np.flatnonzero(got != wanted)[:1].tolist():
            raise Fault(
                "a barrier does not make the threads of a group wait for each other",
                {
                    "thread": thread,
                    "reads": f"what thread {(thread + distance) % threads} stored before the "
                    "barrier, in group memory",
                    "got": got[thread],
                    "expected": wanted[thread],
                    "threads wrong": f"{(got != wanted).sum()} of {threads}",
                },
                kernel=compile_linear(device, made),
                hint=BARRIER,
            )


def test_barrier_in_a_loop(device: Device, capabilities: Target) -> None:
    """Values that go from thread to thread, two barriers for each step."""
    threads = threads_of(capabilities, 32)
    body = f"""
  %r: int32 = local["r", 1, register]
  %v: int32 = load(%x, %at)
  store(%r, 0:int32, %v)
  %s: int32 = range["s", loop](9)
    %mine: int32 = load(%r, 0:int32)
    store(%m, %t, %mine)
    barrier
    %next: int32 = add(%t, 1)
    %other: int32 = and(%next, {threads - 1})
    %u: int32 = load(%m, %other)
    store(%r, 0:int32, %u)
    barrier
  end(%s)
  %last: int32 = load(%r, 0:int32)
  store(%out, %at, %last)
"""
    made = program("rotation", 2, threads, 2 * threads, body)
    given = np.arange(2 * threads) + 500
    wanted = np.concatenate([np.roll(part, -9) for part in np.split(given, 2)])
    what = "values that are handed from thread to thread nine times, with barriers, are lost"
    equal(what, launched(device, made, given), wanted, compile_linear(device, made), BARRIER)


def test_group_memory_is_one_groups_own(device: Device, capabilities: Target) -> None:
    """Groups that run at the same time do not share their group memory."""
    threads, groups = threads_of(capabilities, 32), 24
    one = program("alone", 1, threads, threads, neighbour(1, threads))
    first = np.arange(threads) + 77
    alone = launched(device, one, first)
    equal(
        "a group that runs alone", alone, np.roll(first, -1), compile_linear(device, one), BARRIER
    )
    body = neighbour(1, threads)
    made = program("own_memory", groups, threads, groups * threads, body)
    given = np.repeat(np.arange(groups) * 1000, threads) + np.tile(np.arange(threads), groups)
    got = launched(device, made, given)
    wanted = np.concatenate([np.roll(part, -1) for part in np.split(given, groups)])
    for place in np.flatnonzero(got != wanted)[:1].tolist():
        group, thread = divmod(place, threads)
        raise Fault(
            "group memory is shared by groups that ought to have one each: a race between groups",
            {
                "thread": f"{thread} of group {group}",
                "reads": f"what thread {(thread + 1) % threads} of its group stored before a "
                "barrier",
                "got": f"{got[place]}, which a thread of group {got[place] // 1000} stored",
                "expected": wanted[place],
                "threads wrong": f"{(got != wanted).sum()} of {groups * threads}; "
                "a group that runs alone is right",
            },
            kernel=compile_linear(device, made),
            hint=MEMORY,
        )


SUM = """
  %n: bool = cmplt(%at, 10)
  %v: int32 = load(%x, %at, %n, 0)
  store(%m, %t, %v)
  barrier
  %s: int32 = range["s", loop](3)
    %stride: int32 = shr(4, %s)
    %low: bool = cmplt(%t, %stride)
    %c: void = if(%low)
      %partner: int32 = add(%t, %stride)
      %mine: int32 = load(%m, %t)
      %yours: int32 = load(%m, %partner)
      %sum: int32 = add(%mine, %yours)
      store(%m, %t, %sum)
    endif(%c)
    barrier
  end(%s)
  %zero: bool = cmpeq(%t, 0)
  %total: int32 = load(%m, 0:int32)
  store(%out, %g, %total, %zero)
"""


def test_sums_of_a_last_group_that_is_half_empty(device: Device, capabilities: Target) -> None:
    """Case E06: sums of ten numbers in groups of eight; all threads reach every barrier."""
    if threads_of(capabilities, 8) < 8:
        not_claimed("groups of eight threads")
    made = program("sums", 2, 8, 10, SUM)
    got = launched(device, made, np.arange(10))
    what = "the sums of 0 .. 9 in groups of eight"
    equal(what, got[:2], np.array([28, 17]), compile_linear(device, made), BARRIER)


def test_threads_that_store_nothing_wait_too(device: Device, capabilities: Target) -> None:
    """Case E06: only even threads store; they read what the next but one stored."""
    if threads_of(capabilities, 8) < 8:
        not_claimed("groups of eight threads")
    body = """
  %bit: int32 = and(%t, 1)
  %even: bool = cmpeq(%bit, 0)
  %v: int32 = load(%x, %at)
  store(%m, %t, %v, %even)
  barrier
  %next: int32 = add(%t, 2)
  %other: int32 = and(%next, 7)
  %u: int32 = load(%m, %other, %even, -5)
  store(%out, %at, %u)
"""
    made = program("even", 1, 8, 8, body)
    given = np.arange(8) * 11
    wanted = np.where(np.arange(8) % 2 == 0, np.roll(given, -2), -5)
    what = "what even threads read that even threads stored before a barrier"
    equal(what, launched(device, made, given), wanted, compile_linear(device, made), BARRIER)


def test_the_largest_group(device: Device, capabilities: Target) -> None:
    """A group of as many threads as the target says, the last of which is heard by the first."""
    threads = min(capabilities.threads_per_group, capabilities.local_bytes // 4)
    if threads < 2:
        not_claimed("groups of more than one thread")
    body = neighbour(-1, threads)
    made = program("largest", 2, threads, 2 * threads, body)
    given = np.arange(2 * threads) * 3
    wanted = np.concatenate([np.roll(part, 1) for part in np.split(given, 2)])
    what = f"a group of {threads} threads, as many as Target.threads_per_group"
    equal(what, launched(device, made, given), wanted, compile_linear(device, made))


def test_a_group_beyond_the_limit(device: Device, capabilities: Target) -> None:
    """Case E02: a group of too many threads is refused in words, and the device stays usable."""
    threads = 2 * capabilities.threads_per_group
    made = program("too_many", 1, threads, threads, "  store(%out, %at, %g)")
    try:
        launched(device, made, np.arange(threads))
    except errors.OpgraftError as error:
        for number in (threads, capabilities.threads_per_group):
            if str(number) not in str(error):
                expected = f"what it takes, {threads}, and the limit"
                raise Fault(
                    "the error has no numbers", {"got": error, "expected": expected}
                ) from None
    else:
        raise Fault(
            f"a group of {threads} threads was launched",
            {"Target.threads_per_group": capabilities.threads_per_group},
        )
    check_works(device)
