"""Seed after seed of something random, each compared, with a line for what is refused or wrong."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable

from opgraft.errors import LoweringError, OpgraftError


def try_seeds(
    seeds: Iterable[int],
    compare: Callable[[int], str],
    refusal: type[OpgraftError] = LoweringError,
    what: str = "kernels",
) -> int:
    """How many seeds were at fault; `compare` says what is wrong with one, or nothing.

    What is refused with a reason (a `refusal`) is told and is no fault.
    """
    begin, tried, faults, refused = time.perf_counter(), 0, 0, 0
    for seed in seeds:
        tried += 1
        try:
            told = compare(seed)
        except refusal as error:
            refused += 1
            print(f"seed {seed}: refused: {error}", flush=True)
            continue
        except Exception as error:  # a fault of whatever kind is to be told with its seed
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        if told:
            faults += 1
            print(f"seed {seed}: {told}", flush=True)
    seconds = time.perf_counter() - begin
    print(f"{tried} {what}, {refused} refused, {faults} faults, {seconds:.0f} s")
    return faults
