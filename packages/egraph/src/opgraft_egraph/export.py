"""An e-graph as text for other tools: JSON in the public extraction format, and DOT."""

from __future__ import annotations

import json
from typing import Any

from opgraft.api import UOp
from opgraft_egraph.graph import EGraph


def to_json(graph: EGraph, *roots: UOp) -> str:
    """The nodes with their classes and costs, as the public extraction benchmark writes them.

    `{"nodes": {id: {"op", "cost", "eclass", "children"}}, "root_eclasses": [...]}`; a child is
    named by one node of its class, the first.
    """
    with graph.turn:
        rows = [(row, graph.label(row), graph.price(row)) for row, _ in graph.nodes()]
        wanted = [str(graph.class_id(root)) for root in roots or graph.roots]
    first: dict[int, str] = {}
    for row, _, _ in rows:
        first.setdefault(row.cls, str(row.id))
    nodes: dict[str, Any] = {}
    for row, label, cost in rows:
        nodes[str(row.id)] = {
            "op": label,
            "cost": cost,
            "eclass": str(row.cls),
            "children": [first[kid] for kid in row.kids],
        }
    return json.dumps({"nodes": nodes, "root_eclasses": wanted}, indent=1)


def to_dot(graph: EGraph) -> str:
    """A picture for Graphviz: a box for each class, an arrow from each node to its children's."""
    lines = ["digraph egraph {", "  compound=true; node [shape=plaintext];"]
    classes: dict[int, list[tuple[int, str, tuple[int, ...]]]] = {}
    for row, _ in graph.nodes():
        classes.setdefault(row.cls, []).append((row.id, graph.label(row), row.kids))
    for cls, members in classes.items():
        lines.append(f"  subgraph cluster_{cls} {{ style=dotted;")
        lines += [f"    n{id} [label={json.dumps(label)}];" for id, label, _ in members]
        lines.append("  }")
    for members in classes.values():
        for id, _, kids in members:
            for place, kid in enumerate(kids):
                target = classes[kid][0][0]
                lines.append(f'  n{id} -> n{target} [lhead=cluster_{kid}, label="{place}"];')
    return "\n".join([*lines, "}"])
