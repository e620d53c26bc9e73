"""The public extraction benchmark: every proved optimum is reached, every answer holds.

The files are not part of this repository: OPGRAFT_GYM names the folder that they are in, and
`expected.json` there says what is known of each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opgraft_egraph.exact.bottomup import cheapest_trees, greedy_dag
from opgraft_egraph.serialized import Serialized

FOLDER = os.environ.get("OPGRAFT_GYM", "")
EXPECTED = Path(FOLDER) / "expected.json"
KNOWN = json.loads(EXPECTED.read_text()) if FOLDER and EXPECTED.exists() else {}
DEADLINE = 120.0
"""Far beyond what a file takes: a busy machine is not to decide."""
SLACK = 1e-6
"""expected.json gives some optima in fewer digits than the files."""


@pytest.mark.skipif(not KNOWN, reason="OPGRAFT_GYM names no folder with an expected.json")
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_proved_optimum_is_reached(name: str) -> None:
    graph = Serialized.read(EXPECTED.with_name(name))
    found = graph.extract("dag", DEADLINE)
    # worked out anew: complete, without a circle, at this cost
    assert graph.price(found.choices) == found.cost
    assert found.cost == pytest.approx(KNOWN[name]["optimum"], abs=SLACK)
    assert found.cost <= KNOWN[name]["greedy_dag"] + SLACK
    assert found.proved

    trees, _ = cheapest_trees(graph.problem)
    greedy = graph.problem.price({**trees, **greedy_dag(graph.problem)})
    assert greedy is not None
    assert found.cost <= graph.problem.cost(greedy)

    tree = graph.extract("tree")
    assert graph.price(tree.choices, "tree") == tree.cost
    assert found.cost <= graph.price(tree.choices) <= tree.cost
