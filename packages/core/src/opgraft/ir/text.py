"""The text form of graphs and linear programs: readable, and `parse` gives the same node back.

One node a line, sources before their users, the last line is the node itself:

    %0: index = var["x", 0, 9]
    %1: index = mul(%0, 4)
    %2: index = add(%1, 3)

A line is `%name: dtype = op[arg](sources) tag[tag]`; what a node lacks is left out, and an
effect (dtype void) that nothing uses has no name. A constant is written in the place of its
use, with its dtype (`4:int32`) where the operation does not imply it; a constant vector is
written as its number. `#` starts a comment. Arguments: see ir/argument.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from opgraft.dtype import DType, dtypes
from opgraft.ir import infix  # noqa: F401  (it writes the repr of nodes)
from opgraft.ir.argument import format_argument, format_value
from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import Ops
from opgraft.ir.parse import expected_dtype, parse, parse_linear
from opgraft.ir.uop import UOp, toposort

__all__ = ["linear_to_text", "node_to_text", "parse", "parse_linear", "to_text"]


def to_text(root: UOp) -> str:
    """The graph below and with `root`, one node a line.

    >>> print(to_text(UOp.variable("x", 0, 9) * 4 + 3))
    %0: index = var["x", 0, 9]
    %1: index = mul(%0, 4)
    %2: index = add(%1, 3)
    """
    nodes = toposort((root,))
    inline = _inline(nodes)
    inline.pop(root, None)
    names: dict[UOp, str] = {}
    for n in nodes:
        if n not in inline:
            names[n] = f"%{len(names)}"
    used = {s for n in names for s in n.src}
    return "\n".join(_row(n, names, n in used or n.dtype is not dtypes.void) for n in names)


def _inline(nodes: Iterable[UOp]) -> dict[UOp, UOp]:
    """The constants, scalar or of equal lanes, that are written where they are used.

    Each with the CONST that holds its value. A CONST that is used only as such a lane is not
    written at all.
    """
    found: dict[UOp, UOp] = {}
    for n in nodes:
        if n.tag is not None:
            continue
        if n.op is Ops.CONST and n.dtype.base is None and not n.src:
            found[n] = n
        elif n.op is Ops.BROADCAST and n.dtype.base is not None and n.arg is None:
            source = n.src[0]
            if source.op is Ops.CONST and source.tag is None and source.dtype is n.dtype.base:
                found[n] = source
    return found


def node_to_text(n: UOp, names: Mapping[UOp, str] | None = None) -> str:
    """The operation of one node as a line writes it, its sources by their names.

    Without names, a source is written as its operation with `...` for its own sources.
    """
    parts: list[str] = []
    sources: list[UOp] = []
    for source in n.src:
        name = None if names is None else names.get(source)
        if name is None and source in (held := _inline((source,))):
            name = _constant(held[source], source.dtype, expected_dtype(n.op, n.dtype, sources))
        if name is None:
            more = "(...)" if source.src else ""
            arg = "" if source.arg is None else format_argument(source.arg)
            name = f"{source.op.name.lower()}{arg}{more}"
        parts.append(name)
        sources.append(source)
    arg = "" if n.arg is None else format_argument(n.arg)
    tag = "" if n.tag is None else f" tag{format_argument(n.tag)}"
    listed = f"({', '.join(parts)})" if parts else ""
    return f"{n.op.name.lower()}{arg}{listed}{tag}"


def _constant(held: UOp, dtype: DType, expected: DType | None) -> str:
    value = format_value(held.arg)
    implied = expected if held.dtype is not dtypes.bool or _is_bool(expected) else dtypes.bool
    return value if dtype is implied else f"{value}:{dtype}"


def _is_bool(dtype: DType | None) -> bool:
    return dtype is not None and dtype.is_bool


def _row(n: UOp, names: Mapping[UOp, str], named: bool) -> str:
    operation = node_to_text(n, names)
    return f"{names[n]}: {n.dtype} = {operation}" if named else operation


def linear_to_text(program: LinearProgram) -> str:
    """The program as text that `parse_linear` reads, and that the INTERP device runs.

    First the leaves (parameters, variables and so on), then, after `body`, the instructions in
    order, indented by loops. `again %5` is an instruction that stands in the list once more, or
    that is also part of an expression in the line `launch`, which the leaves hold.
    """
    times = Counter(program.instructions)  # in order of first occurrence
    counts = [size for size in program.launch[0] if isinstance(size, UOp)]
    above = dict.fromkeys(toposort(counts))
    leaves = [
        n
        for n in toposort((*program.params, *program.variables, *counts, *program.instructions))
        if n not in times or n in above
    ]
    inline = _inline(leaves)
    leaves = [n for n in leaves if n not in inline]
    names = {n: f"%{i}" for i, n in enumerate(dict.fromkeys((*leaves, *times)))}
    named = {s for n in names for s in n.src}
    named.update(n for n in names if times[n] > 1 or n.dtype is not dtypes.void)
    rows = [f"linear[{format_value(program.name)}]"]
    rows += [_row(n, names, True) for n in leaves]
    for word, nodes in (("params", program.params), ("variables", program.variables)):
        if nodes:
            rows.append(" ".join([word, *(names[n] for n in nodes)]))
    rows.append("body")
    rows += _body(program, names, named, set(leaves))
    if program.parallel is not None:
        rows.append(f"parallel {names[program.parallel]}")
    rows.append(f"launch[{_sizes(program.launch[0], names)}, {_sizes(program.launch[1], names)}]")
    rows.append(f"written{format_argument(program.written)}")
    rows.append(f"operations[{program.operations}]")
    return "\n".join(rows) + "\n"


def _sizes(sizes: tuple[int | UOp, ...], names: Mapping[UOp, str]) -> str:
    """Groups or threads of a launch, as a tuple; expressions by their names."""
    parts = [names[size] if isinstance(size, UOp) else str(size) for size in sizes]
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _body(
    program: LinearProgram, names: Mapping[UOp, str], named: Container[UOp], seen: set[UOp]
) -> list[str]:
    rows: list[str] = []
    depth = 1
    for n in program.instructions:
        if n.op in (Ops.END, Ops.ENDIF):
            depth = max(depth - 1, 1)
        row = f"again {names[n]}" if n in seen else _row(n, names, n in named)
        seen.add(n)
        rows.append("  " * depth + row)
        if n.op in (Ops.RANGE, Ops.IF):
            depth += 1
    return rows
