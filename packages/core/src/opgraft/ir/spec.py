"""What a legal graph is at each stage of compilation, and an error that says what is not.

| stage | what it is |
|---|---|
| array | the tensor graph: nodes are functions of an index |
| kernel | what `lower` is handed: a SINK of stores, scalar, indices of dtype `index` |
| lowered | after index lowering and decompositions: what the target has, and no more |
| linear | a LinearProgram: instructions in the order of their execution |

Every stage demands the laws of ir/laws.py of every node as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from opgraft.errors import SpecError
from opgraft.ir.launch import broken_launch, over_limits
from opgraft.ir.laws import broken_law
from opgraft.ir.linear import KernelInfo, LinearProgram
from opgraft.ir.ops import AxisKind, GroupOp, Ops, Space
from opgraft.ir.text import node_to_text
from opgraft.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from opgraft.target import Target

Stage = Literal["array", "kernel", "lowered", "linear"]


@dataclass(frozen=True)
class _Rules:
    """Which ops a stage has, and what to do about the others."""

    ops: frozenset[Ops]
    remedy: str


_MACHINE: Final = frozenset({Ops.CDIV, Ops.CMOD})
_FRAGMENTS: Final = frozenset(
    {Ops.MATRIX, Ops.REDUCE, Ops.STACK, Ops.BROADCAST, Ops.LOAD, Ops.STORE, Ops.LOCAL}
)
"""What moves the registers of a matrix unit, which are a vector where others have none."""
_LEAVES: Final = frozenset({Ops.CONST, Ops.VAR, Ops.PARAM, Ops.IOTA, Ops.SPECIAL})
_VECTORS: Final = frozenset({Ops.STACK, Ops.BROADCAST, Ops.EXTRACT, Ops.HREDUCE, Ops.IOTA})
_EFFECTS: Final = frozenset({Ops.LOAD, Ops.STORE, Ops.ATOMIC, Ops.PREFETCH, Ops.END, Ops.BARRIER})

_STAGES: Final[dict[str, _Rules]] = {
    "array": _Rules(
        (GroupOp.ALU - _MACHINE) | GroupOp.ARRAY | {Ops.CONST, Ops.VAR, Ops.SINK},
        "loops and memory accesses arise when the graph is planned into kernels",
    ),
    "kernel": _Rules(
        (GroupOp.ALU - _MACHINE)
        | {Ops.CONST, Ops.VAR, Ops.PARAM, Ops.LOCAL, Ops.RANGE, Ops.REDUCE, Ops.SCAN}
        | {Ops.LOAD, Ops.STORE, Ops.END, Ops.AFTER, Ops.SINK},
        "array ops are planned into kernels first; vectors and machine ops come of lowering",
    ),
    "lowered": _Rules(
        GroupOp.ALU
        | _LEAVES
        | _VECTORS
        | _EFFECTS
        | {Ops.DOT, Ops.MATRIX, Ops.LOCAL, Ops.RANGE, Ops.REDUCE, Ops.SCAN, Ops.AFTER, Ops.SINK},
        "array ops are planned into kernels long before; see lower/pipeline.py",
    ),
    "linear": _Rules(
        GroupOp.ALU
        | _LEAVES
        | _VECTORS
        | _EFFECTS
        | {Ops.DOT, Ops.MATRIX, Ops.LOCAL, Ops.RANGE, Ops.IF, Ops.ENDIF},
        "a linear program orders by place: AFTER and SINK are gone, REDUCE and SCAN are registers",
    ),
}


def check(program: UOp | LinearProgram, stage: Stage, target: Target | None = None) -> None:
    """Raise `SpecError` if the program is not legal at this stage.

    The error names the node, the rule it breaks and what to do. With a target, "lowered" and
    "linear" also demand that the target has every op and dtype.
    """
    if stage not in _STAGES:
        raise ValueError(f"no stage is named {stage!r}; there are {', '.join(_STAGES)}")
    if isinstance(program, LinearProgram) != (stage == "linear"):
        raise TypeError(f"stage {stage} is not checked on a {type(program).__name__}")
    if isinstance(program, LinearProgram):
        _check_linear(program, target)
        return
    nodes = toposort((program,))
    _check_nodes(nodes, stage, target)
    if stage == "kernel":
        _check_kernel(program, nodes)


def _fail(stage: str, n: UOp, rule: str, remedy: str = "") -> NoReturn:
    raise SpecError(
        f"not legal at stage {stage!r}: {n.dtype} {node_to_text(n)}",
        tried=(("rule", rule), ("sources", ", ".join(f"{s.dtype}" for s in n.src) or "none")),
        remedy=remedy,
    )


def _check_nodes(nodes: Iterable[UOp], stage: str, target: Target | None) -> None:
    rules = _STAGES[stage]
    demands = _DEMANDS[stage]
    for n in nodes:
        law = broken_law(n)
        if law is not None:
            _fail(stage, n, f"{n.op.name}: {law.says}")
        if n.op not in rules.ops:
            _fail(stage, n, f"there is no {n.op.name} at this stage", rules.remedy)
        for says, holds, remedy in demands:
            if not holds(n):
                _fail(stage, n, says, remedy)
        if target is not None and stage in ("lowered", "linear"):
            _check_target(n, stage, target)


_Demand = tuple[str, Callable[[UOp], bool], str]

_SCALAR: Final[_Demand] = (
    "values are scalar",
    lambda n: n.dtype.count == 1,
    "vectors are made by lowering, from RANGEs of kind VECTOR",
)
_INDICES: Final[_Demand] = (
    "sizes of ranges and places in memory have dtype index",
    lambda n: (
        n.op not in (Ops.RANGE, Ops.LOAD, Ops.STORE) or n.src[n.op is not Ops.RANGE].dtype.is_index
    ),
    "cast the loaded integer to index",
)
_NO_INDEX: Final[_Demand] = (
    "no value has dtype index",
    lambda n: not n.dtype.is_index,
    "lower/index.py replaces it by int32 or int64",
)
_REGISTER: Final[_Demand] = (
    "a LOCAL in a register has size 1 or more",
    lambda n: n.op is not Ops.LOCAL or n.arg[2] is not Space.REGISTER or n.arg[1] >= 1,
    "",
)

_DEMANDS: Final[dict[str, tuple[_Demand, ...]]] = {
    "array": (_SCALAR,),
    "kernel": (_SCALAR, _INDICES),
    "lowered": (_NO_INDEX, _REGISTER),
    "linear": (_NO_INDEX, _REGISTER),
}


def _check_target(n: UOp, stage: str, target: Target) -> None:
    """That the target has the op and the dtypes of this node."""
    if n.op in GroupOp.ALU:
        if n.op not in target.ops and not (n.op is Ops.MULACC and n.dtype.scalar in target.fma):
            _fail(stage, n, f"{target.name} has no {n.op.name}", "lower/decompose must rewrite it")
        moved = n.op in (Ops.BITCAST, Ops.CAST, Ops.WHERE)
        known = target.compute | target.storage if moved else target.compute
        for dtype in (n.dtype, *(s.dtype for s in n.src)):
            if dtype.scalar not in known:
                _fail(
                    stage,
                    n,
                    f"{target.name} does not compute in {dtype.scalar}",
                    "lower/decompose must rewrite it in a dtype that is there",
                )
    elif n.op in (Ops.LOAD, Ops.STORE):
        if n.src[0].dtype.scalar not in target.storage:
            _fail(stage, n, f"{target.name} does not load or store {n.src[0].dtype.scalar}")
        if n.src[1].dtype.count > 1 and not target.gather:
            _fail(
                stage,
                n,
                f"{target.name} takes no vector of indices",
                "access the lanes one by one, or consecutive ones from a scalar index on",
            )
    elif n.op is Ops.ATOMIC and (n.arg, n.src[0].dtype) not in target.atomics:
        _fail(
            stage,
            n,
            f"{target.name} has no atomic {n.arg.name} of {n.src[0].dtype}",
            "Target.atomics names those that it has",
        )
    elif n.op is Ops.PREFETCH and not target.prefetch:
        _fail(stage, n, f"{target.name} fetches nothing ahead", "lower/prefetch.py must drop it")
    elif n.op is Ops.DOT and n.arg not in target.dot_units:
        _fail(
            stage,
            n,
            f"{target.name} has no dot instruction {n.arg.name}",
            "lower/decompose must rewrite it",
        )
    elif n.op is Ops.MATRIX and n.arg not in target.matrix_units:
        _fail(
            stage,
            n,
            f"{target.name} has no matrix unit {n.arg.name}",
            "Target.matrix_units lists those that it has",
        )
    fragment = n.op in _FRAGMENTS and bool(target.matrix_units)
    if n.dtype.count > 1 and target.vector_bytes == 0 and not fragment:
        _fail(stage, n, f"{target.name} has no vectors")


# ---- kernels


def _check_kernel(sink: UOp, nodes: list[UOp]) -> None:
    if sink.op is not Ops.SINK or not isinstance(sink.arg, KernelInfo):
        _fail("kernel", sink, "a kernel is a SINK with a KernelInfo as its arg")
    for effect in sink.src:
        if effect.op not in (Ops.STORE, Ops.END):
            _fail("kernel", effect, "the sources of a kernel's SINK are STOREs and ENDs")
        if effect.ranges:
            names = ", ".join(str(r.arg[0]) for r in effect.ranges)
            _fail("kernel", effect, f"it leaves ranges open: {names}", "close them: .end(...)")
    params: dict[int, UOp] = {}
    for n in nodes:
        if n.op is Ops.PARAM and params.setdefault(n.arg[0], n) is not n:
            _fail("kernel", n, f"slot {n.arg[0]} is another buffer: {params[n.arg[0]]!r}")
        if n.op in (Ops.REDUCE, Ops.SCAN, Ops.END):
            for r in n.src[1:]:
                if r.arg[1] is AxisKind.REDUCE and n.op is Ops.END:
                    _fail("kernel", n, f"END closes {r.arg[0]}, a range of kind REDUCE")
    if sorted(params) != list(range(len(params))):
        _fail("kernel", sink, f"slots are 0, 1, 2, ... without a gap; these are {sorted(params)}")


# ---- linear programs


def _check_linear(program: LinearProgram, target: Target | None) -> None:
    _check_nodes(toposort(program.instructions), "linear", target)
    _check_declarations(program)
    _Order(program).check()
    broken = broken_launch(program)
    if broken is not None:
        node, says = broken
        if node is None:
            raise SpecError(f"the launch of {program.name!r} is not legal: {says}")
        _fail("linear", node, says)
    if target is not None and program.launch[0] and (exceeded := over_limits(program, target)):
        raise SpecError(f"{program.name!r} needs {'; '.join(exceeded)} on {target.name}")


def _check_declarations(program: LinearProgram) -> None:
    slots = [p.arg[0] for p in program.params]
    if slots != list(range(len(slots))):
        raise SpecError(f"the params of {program.name!r} have slots {slots}, not 0, 1, 2, ...")
    names = [v.arg[0] for v in program.variables]
    if names != sorted(set(names)):
        raise SpecError(f"the variables of {program.name!r} are not in the order of names: {names}")
    params, variables = dict.fromkeys(program.params), dict.fromkeys(program.variables)
    stored: dict[int, None] = {}
    for n in toposort(program.instructions):
        if n.op is Ops.PARAM and n not in params:
            _fail("linear", n, "it is not among the program's params")
        if n.op is Ops.VAR and n not in variables:
            _fail("linear", n, "it is not among the program's variables")
        if n.op in (Ops.STORE, Ops.ATOMIC) and n.src[0].op is Ops.PARAM:
            stored[n.src[0].arg[0]] = None
    if sorted(stored) != sorted(program.written):
        raise SpecError(
            f"{program.name!r} says that it writes slots {sorted(program.written)}, "
            f"but stores to {sorted(stored)}"
        )


class _Order:
    """A walk over the instructions that knows what is in scope."""

    def __init__(self, program: LinearProgram) -> None:
        self.program = program
        self.scopes: list[tuple[UOp | None, dict[UOp, None]]] = [(None, {})]
        self.visible: dict[UOp, int] = {}

    def check(self) -> None:
        self._parallel()
        for n in self.program.instructions:
            if n.op in _LEAVES:
                _fail("linear", n, "leaves are not instructions", "leave it out of the list")
            if n.op in (Ops.END, Ops.ENDIF):
                self._close(n)
                continue
            for source in n.src:
                if source.op not in _LEAVES and not self.visible.get(source):
                    _fail(
                        "linear",
                        n,
                        f"its source {source!r} was not computed before it, in an open scope",
                    )
            self._define(n)
            if n.op in (Ops.RANGE, Ops.IF):
                self.scopes.append((n, {}))
        opener = self.scopes[-1][0]
        if opener is not None:
            _fail("linear", opener, "it is never closed", "END closes a RANGE, ENDIF an IF")

    def _define(self, n: UOp) -> None:
        inside = self.scopes[-1][1]
        if n not in inside:
            inside[n] = None
            self.visible[n] = self.visible.get(n, 0) + 1

    def _close(self, n: UOp) -> None:
        opener, inside = self.scopes[-1]
        if opener is not n.src[0] or len(n.src) != 1:
            what = "nothing is open" if opener is None else f"the innermost open one is {opener!r}"
            _fail("linear", n, f"it closes {n.src[0]!r}, but {what}")
        self.scopes.pop()
        for inner in inside:
            self.visible[inner] -= 1

    def _parallel(self) -> None:
        loops = [n for n in self.program.instructions if n.op is Ops.RANGE]
        spread = [r for r in loops if r.arg[1] is AxisKind.PARALLEL]
        expected = self.program.parallel
        if expected is None and spread:
            _fail("linear", spread[0], "it is a PARALLEL range, but the program names none")
        if expected is None:
            return
        if spread != [expected]:
            _fail("linear", expected, "the parallel range stands in the program once")
        depth = 0
        for n in self.program.instructions:
            if n is expected:
                break
            depth += (n.op in (Ops.RANGE, Ops.IF)) - (n.op in (Ops.END, Ops.ENDIF))
            if n.op is Ops.STORE and n.src[0].op is not Ops.LOCAL:
                _fail("linear", n, "what every core does before the parallel range stays its own")
        if depth:
            _fail("linear", expected, "the parallel range stands in no other loop")
