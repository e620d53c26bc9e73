"""`opgraft explain`: what opgraft makes of an expression or of a script, step by step."""

from __future__ import annotations

import os
import runpy
import sys
import threading
from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final

from opgraft import journal, settings
from opgraft.cli.compile import choose, target_of
from opgraft.cli.screen import Screen, screen
from opgraft.dtype import dtypes
from opgraft.errors import OpgraftError
from opgraft.ir.argument import format_value
from opgraft.ir.expression import parse_expression
from opgraft.ir.infix import to_expression
from opgraft.ir.linear import KernelInfo
from opgraft.ir.ops import Ops
from opgraft.ir.parse import parse
from opgraft.ir.rule import Rule
from opgraft.ir.text import linear_to_text, to_text
from opgraft.ir.trace import tracing
from opgraft.ir.uop import UOp
from opgraft.lower.pipeline import lower, schedule_of
from opgraft.plugins.command import Command
from opgraft.rules.optimizer import CostModel, Stage
from opgraft.rules.reasons import reasons
from opgraft.rules.simplify import chosen_optimizer, optimize
from opgraft.runtime import Device, Executable
from opgraft.target import Target

_KERNEL_STAGES: Final[tuple[Stage, ...]] = ("index", "scalar")
RUNS: Final = 3
"""A kernel's time is the best of so many runs."""


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft explain`."""
    parser.add_argument(
        "what",
        metavar="FILE|EXPRESSION",
        help="a Python script, a file with IR in text form, or an expression",
    )
    parser.add_argument("arguments", nargs=REMAINDER, help="for the script")
    parser.add_argument("--stage", choices=("index", "scalar", "tensor"), default="index",
                        help="of the rewriting of an expression")  # fmt: skip
    parser.add_argument(
        "--egraph",
        action="store_true",
        help="with the optimizer egraph (as EGRAPH=1), and the chains of rules that led to what it "
        "changed, each of them replayed",
    )
    parser.add_argument("--no-source", action="store_true", help="leave the generated source out")
    parser.add_argument("--no-ir", action="store_true", help="leave the IR of kernels out")


def run(arguments: Namespace) -> int:
    """Explain an expression, or run a script and explain its kernels."""
    if arguments.egraph:
        with settings.using(EGRAPH=True):
            return _explain(screen(), arguments)
    return _explain(screen(), arguments)


def _explain(out: Screen, arguments: Namespace) -> int:
    what: str = arguments.what
    if not os.path.exists(what):
        if what.endswith(".py"):
            raise OpgraftError(f"there is no file {what}")
        return explain_node(out, parse_expression(what), arguments)
    if what.endswith(".py"):
        return explain_script(out, what, arguments)
    return explain_node(out, parse(Path(what).read_text(encoding="utf-8")), arguments)


# ---- expressions


def explain_node(out: Screen, root: UOp, arguments: Namespace) -> int:
    """The rewrites of a node, the costs, and the source of a kernel that computes it."""
    out.line(_written(root))
    with tracing() as trace:
        made = optimize(root, stage=arguments.stage)
    rows = [
        (str(number), *_rule(step.rule), _written(step.before), _written(step.after))
        for number, step in enumerate(trace.steps, 1)
    ]
    if rows:
        out.table(("", "rule", "where", "before", "after"), rows)
    out.line()
    out.heading(_written(made.sink))
    out.line(
        f"cost {made.cost_before:g} -> {made.cost_after:g}, {len(rows)} rewrites by "
        f"{chosen_optimizer().name} ({made.stop}) in {made.seconds * 1e3:.2f} ms"
    )
    if arguments.egraph:
        _reasons(out, root, made.sink, arguments.stage)
    if not arguments.no_source:
        kind, pair = choose("", "")
        renderer = pair.renderer(target_of(kind))
        sink = _as_kernel(root)
        source = renderer.render(lower(sink, renderer.target))
        _schedule(out, sink, renderer.target)
        out.line()
        out.heading(f"as a kernel for {kind} by {pair.name}")
        out.code(source, "c")
    return 0


def _schedule(out: Screen, sink: UOp, target: Target) -> None:
    """The actions that made the loops of a kernel what they are; nothing where there are none."""
    steps = schedule_of(sink, target)
    if steps:
        out.line()
        out.heading("schedule")
        out.code("\n".join(map(format_value, steps)), "text")


def _reasons(out: Screen, before: UOp, after: UOp, stage: Stage) -> None:
    """The chain of rules for each expression that the optimizer changed, and whether it holds."""
    found = reasons(before, after, stage=stage)
    if not found:
        silent = f"{chosen_optimizer().name} gives no reasons for what it does"
        out.line()
        out.line(silent if found is None else f"{stage}: nothing was changed")
    for number, reason in enumerate(found or (), 1):
        out.line()
        out.heading(f"{stage} {number}: why {_written(reason.start)} is {_written(reason.end)}")
        out.line(_written(reason.start))
        for step in reason.steps:
            out.line(f"  = {_written(step.after)}  by {step}")
        faults = reason.check()
        out.line("replayed: each step holds" if not faults else f"NOT SHOWN: {'; '.join(faults)}")


def _rule(rule: Rule) -> tuple[str, str]:
    """Its name, and the place of its definition, short where that is in opgraft."""
    place = rule.file.replace("\\", "/")
    _, ours, short = place.rpartition("/opgraft/")
    return rule.name, f"{short if ours else place}:{rule.line}"


def _as_kernel(root: UOp) -> UOp:
    """A kernel that stores the value, unless it is one already."""
    if root.op is Ops.SINK:
        return root
    value = root.cast(dtypes.int64) if root.dtype is dtypes.index else root
    place = UOp(Ops.PARAM, value.dtype.scalar, (), (0, value.dtype.count))
    return UOp.sink(place.store(0, value), arg=KernelInfo("expression"))


def _written(n: UOp) -> str:
    return to_text(n) if n.op is Ops.SINK else to_expression(n)


# ---- scripts


class _Recorder:
    """Keeps what a script's threads tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.events: list[journal.Event] = []

    def __call__(self, event: journal.Event) -> None:
        with self._lock:
            self.events.append(event)


def explain_script(out: Screen, path: str, arguments: Namespace) -> int:
    """Run a script as `python FILE` would, then show each kernel that it made."""
    recorder = _Recorder()
    code = 0
    before = sys.argv, list(sys.path)
    sys.argv = [path, *arguments.arguments]
    sys.path[0:0] = [os.path.dirname(os.path.abspath(path))]
    try:
        with journal.listening(recorder):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
        sys.stdout.flush()
    kernels = [event for event in recorder.events if event.kind == "kernel"]
    for event in recorder.events:
        if event.kind == "kernel":
            _kernel(out, event, arguments)
        elif "text" in event.details:
            text = str(event.details["text"])
            out.line()
            out.heading(event.kind if text.startswith(event.name) else f"{event.kind} {event.name}")
            out.line(text)
    out.line()
    launches: dict[int, list[float]] = {}
    for event in recorder.events:
        if event.kind == "launch":
            launches.setdefault(id(event.details["program"]), []).append(event.details["took"])
    _summary(out, kernels, launches)
    if code:
        out.line(f"the script ended with exit code {code}")
    return int(code != 0)


def _kernel(out: Screen, event: journal.Event, arguments: Namespace) -> None:
    held = event.details
    program = held["executable"].program
    out.line()
    out.heading(f"kernel {event.name} on {held['device']} by {held['pair'] or 'no compiler'}")
    if not arguments.no_ir:
        out.code(to_text(held["sink"]), "text")
    _schedule(out, held["sink"], held["target"])
    if arguments.egraph:
        here, cost = held["sink"], CostModel(target=held["target"])
        for stage in _KERNEL_STAGES:
            made = optimize(here, cost=cost, stage=stage).sink
            _reasons(out, here, made, stage)
            here = made
    if not arguments.no_ir and program.linear is not None:
        out.line()
        out.code(linear_to_text(program.linear), "text")
    if not arguments.no_source and program.source:
        out.line()
        out.code(program.source, "c")


def _summary(out: Screen, kernels: list[journal.Event], launches: dict[int, list[float]]) -> None:
    """A row per kernel. Its best time is that of the script's launches, where they were timed;
    else it is run on zeros."""
    rows = []
    for event in kernels:
        held: Any = event.details
        took = launches.get(id(held["executable"].program), [])
        seconds = min(took) if took else _time(held["on"], held["executable"])
        rows.append(
            (
                event.name,
                str(held["device"]),
                str(held["pair"]),
                str(held["executable"].program.operations),
                f"{held['lowering'] * 1e3:.1f} ms",
                f"{held['compiling'] * 1e3:.1f} ms",
                str(len(took)),
                "" if seconds is None else f"{seconds * 1e6:.1f} us",
            )
        )
    if rows:
        head = (
            "kernel",
            "device",
            "compiler",
            "operations",
            "lowering",
            "compiling",
            "runs",
            "best",
        )
        out.table(head, rows)
    else:
        out.line("no kernel was compiled")


def _time(device: Device, executable: Executable) -> float | None:
    """The best of a few runs on zeros; None where it takes variables, or cannot be run so."""
    program = executable.program
    if program.variables or not device.executes:
        return None
    try:
        buffers = []
        for dtype, size in program.params:
            buffer = device.buffer(size * dtype.itemsize)
            buffer.copy_in(bytes(buffer.nbytes))  # zeros: as indices they are in range
            buffers.append(buffer)
        times = [executable.run(buffers, wait=True) for _ in range(RUNS)]
    except OpgraftError:
        return None  # out of memory, say: the kernel is shown without a time
    return min((t for t in times if t is not None), default=None)


COMMAND: Final = Command(
    "explain",
    run,
    "the rewrites, costs and source of an expression, or of a script's kernels",
    configure,
    """Of an expression: each rewrite with its rule and where that stands, the result, the costs,
and the source of a kernel that computes it. Of a Python script: run it, then show each kernel
that it made, in its stages, with the times. Of a file with IR: as of an expression.

  opgraft explain "(x*4 + 3)//4 where x in [0, 9]"
  opgraft explain --egraph "((i*4 + j)//4)*4 + (i*4 + j)%4 where i in [0, 7], j in [0, 3]"
  opgraft explain --no-ir train.py --epochs 1
  OPGRAFT_OPTIMIZER=greedy opgraft explain "x*2 + x where x in [0, 9]"

exit codes: 0 done; 1 it does not parse, or the script failed; 2 wrong usage.""",
)
