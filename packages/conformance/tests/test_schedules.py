"""Every action of the scheduler prints, parses, and does the same again."""

from __future__ import annotations

import pytest

from opgraft.ir.argument import Line, format_value, read_value
from opgraft.ir.text import parse, to_text
from opgraft.lower.pipeline import prepared
from opgraft.opt.actions import apply_all
from opgraft_conformance.schedules import TRIALS, Trial

ROWS = [
    pytest.param(trial, id=f"{kind.__name__}-{number}")
    for kind, trials in TRIALS.items()
    for number, trial in enumerate(trials)
]


@pytest.mark.parametrize("trial", ROWS)
def test_a_schedule_is_text_that_reads_back_and_replays(trial: Trial) -> None:
    sink = trial.sink()
    again = parse(to_text(sink))
    assert again is sink
    assert read_value(Line(format_value(trial.actions), 1)) == trial.actions
    given = prepared(trial.meaning())
    assert apply_all(given, again.arg.schedule) is apply_all(given, trial.actions)
