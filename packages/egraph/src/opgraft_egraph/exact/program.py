"""The choice as an integer program, where SciPy is installed: HiGHS solves what is left.

A variable for each node; a chosen node's children have chosen nodes. That no choice runs in a
circle is added where one does: of the nodes of a cut (see ascent.py) one must be chosen.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Sequence
from typing import Any, Final

from opgraft_egraph.exact.ascent import violated_cut
from opgraft_egraph.exact.effort import Meter
from opgraft_egraph.exact.reduction import Reduced

_EXACT: Final = 10**9
"""Sums up to here are exact enough in HiGHS for a bound to prove a whole number."""
_MOST_NODES: Final = 20_000


def available() -> bool:
    """Whether SciPy is installed."""
    return importlib.util.find_spec("scipy") is not None


def solve_program(here: Reduced, most: int, meter: Meter) -> tuple[Sequence[int] | None, bool]:
    """Nodes that solve what is left for less than `most`, and whether that is settled.

    (None, True): there are none. A branch that HiGHS looks at counts as a step for each node.
    """
    # late: SciPy is optional, and slow to import
    np: Any = importlib.import_module("numpy")
    optimize: Any = importlib.import_module("scipy.optimize")
    sparse: Any = importlib.import_module("scipy.sparse")

    nodes = here.nodes
    if most > _EXACT or len(nodes) > _MOST_NODES:
        return None, False
    place = {n: i for i, n in enumerate(nodes)}
    rows: list[dict[int, int]] = []
    lows: list[int] = []
    for root in here.roots:
        rows.append({place[n]: 1 for n in here.members[root]})
        lows.append(1)
    for n in nodes:
        for kid in here.children[n]:
            rows.append({**{place[m]: 1 for m in here.members[kid]}, place[n]: -1})
            lows.append(0)
    prices = np.array([here.prices[n] for n in nodes], dtype=float)
    while True:
        if meter.over:
            return None, False
        entries = [(i, j, f) for i, row in enumerate(rows) for j, f in row.items()]
        at, column, factor = (np.array(part) for part in zip(*entries))
        matrix = sparse.csr_array((factor, (at, column)), shape=(len(rows), len(nodes)))
        made: Any = optimize.milp(
            prices,
            integrality=np.ones(len(nodes)),
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, np.array(lows), np.inf),
            options={
                "time_limit": min(max(meter.seconds_left, 1e-3), 1e9),
                "node_limit": int(min(1 + meter.left / len(nodes), 1e9)),
                "mip_rel_gap": 0.0,
            },
        )
        meter.spend(len(nodes) * (1 + int(made.mip_node_count or 0)))
        if made.status == 2:
            return None, True
        bound = made.mip_dual_bound
        if bound is not None and math.ceil(bound - 1e-4) >= most:
            return None, True
        if made.x is None:
            return None, False
        chosen = [n for n, x in zip(nodes, made.x) if x > 0.5]
        cut = violated_cut(here, chosen)
        if cut is None:
            price = sum(here.prices[n] for n in chosen)
            return chosen, bound is not None and math.ceil(bound - 1e-4) >= price
        rows.append({place[n]: 1 for n in cut})
        lows.append(1)
