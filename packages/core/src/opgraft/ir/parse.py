"""Reads the text form of graphs and of linear programs (ir/text.py says how it looks)."""

from __future__ import annotations

import re
from typing import Any, Final

from opgraft.dtype import DType, dtypes
from opgraft.errors import ParseError
from opgraft.ir.argument import Line, read_argument, read_dtype, read_number
from opgraft.ir.linear import Launch, LinearProgram
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp

_OPS: Final = {op.name.lower(): op for op in Ops}


def expected_dtype(op: Ops, dtype: DType, sources: list[UOp] | tuple[UOp, ...]) -> DType | None:
    """The dtype of a constant written without one, as the next source after `sources`.

    None where nothing is expected and the dtype must be written.
    """
    place = len(sources)
    if op in GroupOp.COMPARISON:
        return sources[0].dtype if place else None
    if op is Ops.WHERE and place == 0:
        return dtypes.bool.vec(dtype.count)
    if op in GroupOp.ALU and op not in (Ops.CAST, Ops.BITCAST):
        return dtype
    if op in (Ops.STACK, Ops.BROADCAST):
        return dtype.scalar
    if op is Ops.RANGE:
        return dtype
    if op in (Ops.LOAD, Ops.STORE, Ops.ATOMIC, Ops.PREFETCH) and place:
        if place == 1:
            return dtypes.index
        if op is Ops.PREFETCH:
            return dtypes.bool
        if op is Ops.LOAD:
            return dtypes.bool.vec(sources[1].dtype.count) if place == 2 else dtype
        return sources[0].dtype if place == 2 else dtypes.bool
    return None


class _Reader:
    """Reads lines and keeps the nodes that they name."""

    def __init__(self) -> None:
        self.named: dict[str, UOp] = {}
        self.last: UOp | None = None

    def node(self, line: Line) -> UOp:
        """One line `%name: dtype = op[arg](sources) tag[tag]`, the part up to `=` optional."""
        name, dtype = None, dtypes.void
        if line.token.startswith("%"):
            name = line.take()
            line.expect(":")
            dtype = read_dtype(line)
            line.expect("=")
        made = self._operation(line, dtype)
        line.finish()
        if name is not None:
            self.named[name] = made
        self.last = made
        return made

    def _operation(self, line: Line, dtype: DType) -> UOp:
        op = _OPS.get(line.token)
        if op is None or line.kind != "name":
            line.fail("an operation")
        line.take()
        arg = read_argument(line) if line.accept("[") else None
        sources: list[UOp] = []
        if line.accept("("):
            while not line.accept(")"):
                sources.append(self._source(line, expected_dtype(op, dtype, sources)))
                if not line.accept(","):
                    line.expect(")")
                    break
        tag = None
        if line.accept("tag"):
            line.expect("[")
            tag = read_argument(line)
        if op is Ops.CONST and not isinstance(arg, (bool, int, float)):
            line.fail("the value of the constant in brackets before")
        return UOp(op, dtype, tuple(sources), arg, tag)

    def _source(self, line: Line, expected: DType | None) -> UOp:
        if line.token.startswith("%"):
            return self.known(line)
        if line.kind == "number":
            value: Any = read_number(line)
        elif line.token in ("true", "false"):
            value = line.take() == "true"
            if expected is None or not expected.is_bool:
                expected = dtypes.bool
        else:
            line.fail("a node such as %0, or a number")
        dtype = read_dtype(line) if line.accept(":") else expected
        if dtype is None:
            line.fail("the dtype of the number, such as 4:int32")
        return UOp.const(dtype, value)

    def known(self, line: Line) -> UOp:
        found = self.named.get(line.token)
        if found is None:
            line.fail("a node that a line above names")
        line.take()
        return found

    def launch(self, line: Line) -> Launch:
        """`[(groups, ...), (threads, ...)]`; a number of groups may be a node."""
        line.expect("[")
        groups = self._sizes(line)
        line.expect(",")
        threads = self._sizes(line)
        line.expect("]")
        known = tuple([size for size in threads if isinstance(size, int)])
        if len(known) != len(threads):
            line.fail("numbers of threads that are constants")
        return groups, known

    def _sizes(self, line: Line) -> tuple[int | UOp, ...]:
        line.expect("(")
        sizes: list[int | UOp] = []
        while not line.accept(")"):
            if line.token.startswith("%"):
                sizes.append(self.known(line))
            else:
                number = read_number(line)
                if isinstance(number, float):
                    line.fail("a whole number")
                sizes.append(number)
            if not line.accept(","):
                line.expect(")")
                break
        return tuple(sizes)

    def plain(self, row: str) -> bool:
        """Read a row of the commonest kind without tokens; false where it is of another."""
        found = _PLAIN.match(row)
        if found is None:
            return False
        name, dtype_name, op_name, listed = found.groups()
        op, dtype = _OPS.get(op_name), _DTYPES.get(dtype_name)
        if op is None or dtype is None or op is Ops.CONST:
            return False
        sources: list[UOp] = []
        for part in listed.split(", "):
            source = self.named.get(part)
            if source is None:
                expected = expected_dtype(op, dtype, sources)
                if expected is None or expected.is_bool or not _WHOLE.match(part):
                    return False
                source = UOp.const(expected, int(part))
            sources.append(source)
        self.last = self.named[name] = UOp(op, dtype, tuple(sources))
        return True


_PLAIN: Final = re.compile(r"\s*(%\w+): (\w+) = (\w+)\(([^()\[\]\"#]+)\)$")
_WHOLE: Final = re.compile(r"-?\d+$")
_DTYPES: Final = {str(d): d for d in (dtypes.void, dtypes.index, *dtypes.all)}


def parse(text: str) -> UOp:
    """The node of the last line; the same object that `to_text` was given.

    Raises `ParseError` with the line, the column, what was expected and what was found.

    >>> parse('''
    ... %0: index = var["x", 0, 9]   # a comment
    ... %1: index = mul(%0, 4)
    ... ''').vmax
    36
    """
    reader = _Reader()
    for number, row in enumerate(text.splitlines(), 1):
        if not reader.plain(row):
            line = Line(row, number)
            if line.kind != "end":
                reader.node(line)
    if reader.last is None:
        raise ParseError("the text holds no node", remedy="write one node a line: see ir/text.py")
    return reader.last


def parse_linear(text: str) -> LinearProgram:
    """The program that `linear_to_text` wrote."""
    reader = _Reader()
    fields: dict[str, Any] = {"params": (), "variables": (), "instructions": ()}
    body: list[UOp] | None = None
    for number, row in enumerate(text.splitlines(), 1):
        line = Line(row, number)
        if line.kind == "end":
            continue
        word = line.token if line.kind == "name" else ""
        if word == "body":
            line.take()
            body = []
        elif word == "again" and body is not None:
            line.take()
            body.append(reader.known(line))
        elif word in ("params", "variables"):
            line.take()
            found = []
            while line.kind != "end":
                found.append(reader.known(line))
            fields[word] = tuple(found)
        elif word == "parallel":
            line.take()
            fields["parallel"] = reader.known(line)
        elif word == "launch":
            line.take()
            fields["launch"] = reader.launch(line)
        elif word in ("linear", "written", "operations"):
            line.take()
            line.expect("[")
            fields["name" if word == "linear" else word] = read_argument(line)
        else:
            made = reader.node(line)
            if body is not None:
                body.append(made)
        line.finish()
    if body is None or "name" not in fields:
        missing = "body" if body is None else 'linear["name"]'
        raise ParseError(f"a linear program has a line that says {missing}; this text has none")
    fields["instructions"] = tuple(body)
    return LinearProgram(**fields)
