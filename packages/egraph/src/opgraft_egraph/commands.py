"""Commands for people with e-graphs of their own.

`python -m opgraft_egraph extract | prove | run`, and the same under `opgraft egraph`. What does the
work is imported by the command that needs it, so that listing commands costs nothing.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opgraft.api import Command, errors
from opgraft_egraph.progress import progress

if TYPE_CHECKING:
    from opgraft_egraph.extraction import CostKind


class Action(NamedTuple):
    """A subcommand."""

    name: str
    help: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


# ---- extract


def _configure_extract(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.json", help="in the public extraction format")
    parser.add_argument(
        "--cost",
        choices=("dag", "tree"),
        default="dag",
        help="dag (the default): a chosen node is paid once; tree: as often as it is used",
    )
    parser.add_argument(
        "--deadline", type=_seconds, default=10.0, metavar="S", help="seconds at most (10)"
    )
    parser.add_argument("--json", action="store_true", help="with time, lower bound and method")


def _extract(arguments: Namespace) -> int:
    from opgraft_egraph.serialized import Serialized

    graph = Serialized.read(arguments.file)
    with progress(f"extracting {arguments.file}") as say:
        answer = graph.extract(
            arguments.cost, arguments.deadline, lambda n: say(f"{n} branches looked at")
        )
    # what is printed has been worked out anew from the choices
    if graph.price(answer.choices, arguments.cost) != answer.cost:
        raise errors.OpgraftError(f"{arguments.file}: the choices do not cost what they should")
    found = answer.to_json()
    if arguments.json:
        found |= {"seconds": answer.seconds, "lower": answer.lower, "how": answer.how}
    print(json.dumps(found))
    return 0


# ---- prove


def _configure_prove(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.csv", help="columns ID and Expression")
    parser.add_argument(
        "--seconds", type=_seconds, default=10.0, metavar="S", help="for each at most (10)"
    )
    parser.add_argument(
        "--cases", type=int, default=20_000, metavar="N", help="for each at most (20000)"
    )
    parser.add_argument("--json", action="store_true", help="an object for each line")


def _prove(arguments: Namespace) -> int:
    from opgraft_egraph.proving import Proof, parse_statement, prove, read_statements

    verdicts = {"true": 0, "false": 0, "unknown": 0}
    lines, unread = list(read_statements(arguments.file)), 0
    for identifier, text in lines:
        with progress(f"{identifier}: {sum(verdicts.values())} of {len(lines)} done"):
            try:
                statement = parse_statement(text)
            except errors.ParseError as error:
                # the others are not to suffer for it
                proof = Proof("unknown", f"unreadable: {error}", 0.0)
                unread += 1
            else:
                proof = prove(statement, arguments.seconds, arguments.cases)
        verdicts[proof.verdict] += 1
        if arguments.json:
            print(json.dumps({"id": identifier, **proof.to_json()}), flush=True)
            continue
        where = ""
        if proof.values is not None:
            where = "  " + " ".join(f"{name}={value}" for name, value in proof.values.items())
        shown = f"{identifier:>6}  {proof.verdict:<7}  {proof.seconds:8.3f} s  {proof.stop}"
        print(shown + where, flush=True)
    if not arguments.json:
        print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
    return 1 if unread else 0


# ---- run


def _configure_run(parser: ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="a file: a rule a line, name: left => right")
    parser.add_argument("term", metavar="EXPR", help="such as '(+ x (* 2 y))'")
    parser.add_argument("--rounds", type=int, default=30, help="at most (30)")
    parser.add_argument("--nodes", type=int, default=10_000, help="at most (10000)")
    parser.add_argument("--seconds", type=_seconds, default=5.0, help="at most (5)")
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        type=_price,
        metavar="OPERATOR=COST",
        help="of an operator or a leaf; others cost 1",
    )
    parser.add_argument("--dag", action="store_true", help="a node that is used twice is paid once")
    parser.add_argument(
        "--symbols", action="store_true", help="numbers are names too: no arithmetic on them"
    )
    parser.add_argument("--explain", action="store_true", help="which rules led to the result")
    parser.add_argument("--json", action="store_true", help="with what every rule did")


def _run(arguments: Namespace) -> int:
    from opgraft_egraph.report import Schedule
    from opgraft_egraph.rulefile import read_rules
    from opgraft_egraph.terms import TermGraph

    graph = TermGraph(
        read_rules(arguments.rules), numbers=not arguments.symbols, explain=arguments.explain
    )
    root = graph.add(arguments.term)
    with progress("saturating"):
        report = graph.run(schedule=Schedule(arguments.nodes, arguments.rounds, arguments.seconds))
        prices = dict(arguments.price)
        cost: CostKind = "dag" if arguments.dag else "tree"
        made = graph.extract(root, lambda name: prices.get(name, 1.0), cost)
    way = graph.explain(arguments.term, made) if arguments.explain else []
    if arguments.json:
        found: dict[str, Any] = {
            "term": made,
            "stop": report.stop,
            "rounds": report.rounds,
            "nodes": report.nodes,
            "classes": report.classes,
            "seconds": report.seconds,
            "engine": report.engine,
            "rules": {
                name: {"matches": rule.matches, "added": rule.added, "united": rule.united}
                for name, rule in report.rules.items()
            },
        }
        if arguments.explain:
            found["explanation"] = way
        print(json.dumps(found))
        return 0
    print(made)
    for rule in way:
        print(f"  by {rule}")
    print(
        f"{report.stop} after {report.rounds} rounds: "
        f"{report.nodes} nodes in {report.classes} classes"
    )
    return 0


# ---- together


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError(text)
    return value


def _price(text: str) -> tuple[str, float]:
    name, _, cost = text.rpartition("=")
    if not name or not float(cost) >= 0:
        raise ValueError(text)
    return name, float(cost)


ACTIONS: Final = (
    Action("extract", "the cheapest terms of an e-graph in a file", _configure_extract, _extract),
    Action("prove", "whether statements about whole numbers are true", _configure_prove, _prove),
    Action("run", "saturate a term with rules, and print the cheapest", _configure_run, _run),
)


def configure(parser: ArgumentParser) -> None:
    """The subcommands and their arguments."""
    choices = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action in ACTIONS:
        made = choices.add_parser(action.name, help=action.help, description=action.help)
        action.configure(made)
        made.set_defaults(act=action.run)


def run(arguments: Namespace) -> int:
    """Do what was asked for; returns the exit code."""
    code: int = arguments.act(arguments)
    return code


COMMAND: Final = Command(
    "egraph", run, "extract from e-graphs, prove statements, run rules on terms", configure
)
