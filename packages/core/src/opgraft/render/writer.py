"""The statements of one kernel in a language of the C family: names, scopes, declarations.

A `Writer` lives for one rendering. It walks the instructions of a linear program once and asks
the dialect (`CStyleRenderer`) for the text of each operation. Every value becomes a variable of
its own, or, when it is used once in the scope where it is made, a part of the expression that
uses it. So a chain of 100,000 operations is as many statements, never one nested expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from opgraft.dtype import DType
from opgraft.errors import LoweringError
from opgraft.ir.linear import LinearProgram
from opgraft.ir.ops import GroupOp, Ops, Space
from opgraft.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from opgraft.render.cstyle import CStyleRenderer

INLINE_LENGTH: Final = 120
"""A longer expression gets a variable."""

_INLINE: Final = GroupOp.ALU | {Ops.EXTRACT, Ops.BROADCAST, Ops.STACK}
_LEAVES: Final = frozenset({Ops.CONST, Ops.VAR, Ops.PARAM, Ops.IOTA, Ops.SPECIAL})

Key = UOp | tuple[UOp, int]


class Writer:
    """The text of a kernel as it grows."""

    def __init__(self, style: CStyleRenderer, program: LinearProgram) -> None:
        self.style = style
        self.program = program
        self.lines: list[str] = []
        self.typedefs: dict[str, str] = {}
        self.types: dict[tuple[DType, int], str] = {}
        """The names of vector types, by their scalar and lanes."""
        self.helpers: dict[str, str] = {}
        self.bound: dict[Key, str] = {}
        self.masks: dict[UOp, int] = {}
        """Lane width in bits of each vector of bool; see render/gnu.py."""
        self.shared: set[UOp] = set()
        """Vectors that stay in registers from where they are read; see render/c.py."""
        self._scopes: list[list[tuple[Key, str | None]]] = [[]]
        self._counters: dict[str, int] = {}
        self._inline: set[UOp] = _used_once(program.instructions)
        self._indent = 1

    # ---- the text

    def line(self, text: str) -> None:
        """One statement, at the present depth."""
        self.lines.append(" " * self._indent + text)

    def open(self, text: str) -> None:
        """The head of a block; what is bound in it is forgotten when it closes."""
        self.line(text)
        self._indent += 1
        self._scopes.append([])

    def close(self, text: str = "}") -> None:
        """The end of a block."""
        if len(self._scopes) == 1:
            raise LoweringError(f"{self.program.name}: a loop or condition ends that never began")
        for key, before in reversed(self._scopes.pop()):
            if before is None:
                self.bound.pop(key, None)
            else:
                self.bound[key] = before
        self._indent -= 1
        self.line(text)

    def name(self, prefix: str) -> str:
        """A fresh name: the prefix and a number."""
        number = self._counters.get(prefix, 0)
        self._counters[prefix] = number + 1
        return f"{prefix}{number}"

    def bind(self, key: Key, text: str) -> str:
        """From here to the end of the scope, `key` is written as `text`."""
        self._scopes[-1].append((key, self.bound.get(key)))
        self.bound[key] = text
        return text

    def declare(self, type_name: str, text: str, prefix: str = "v") -> str:
        """A new variable with this value; its name."""
        fresh = self.name(prefix)
        self.line(f"{type_name} {fresh}={text};")
        return fresh

    def typedef(self, name: str, text: str) -> str:
        """A type written before the kernel, once; its name."""
        self.typedefs.setdefault(name, text)
        return name

    def helper(self, name: str, text: str) -> str:
        """A function or macro written before the kernel, once; its name."""
        self.helpers.setdefault(name, text)
        return name

    # ---- values

    def ref(self, u: UOp) -> str:
        """How the value of `u` is written here; computed first where it is not there yet."""
        text = self.bound.get(u)
        if text is not None:
            return text
        if u.op in _LEAVES or u.is_const:
            return self.style.leaf(self, u)
        return self.graph(u)

    def atom(self, u: UOp) -> str:
        """As `ref`, but cheap and safe to write twice: a name or a literal."""
        text = self.ref(u)
        if u.op is Ops.CONST or is_name(text):
            return text
        return self.bind(u, self.style.declare_value(self, u, text))

    def graph(self, root: UOp) -> str:
        """The value of a graph whose leaves are bound or constant; computed here."""
        nodes = toposort((root,), lambda n: n not in self.bound)
        uses: dict[UOp, int] = {}
        for n in nodes:
            for source in n.src:
                uses[source] = uses.get(source, 0) + 1
        for n in nodes:
            if n in self.bound or n.op in _LEAVES or n.is_const:
                continue
            if n.op not in _INLINE and n.op is not Ops.LOAD and n.op is not Ops.HREDUCE:
                raise LoweringError(
                    f"{self.program.name}: {n.op} is used where it was not computed before"
                )
            self.style.prepare(self, n)
            self.define(n, uses.get(n, 1) == 1)
        return self.bound[root]

    def define(self, u: UOp, inline: bool) -> None:
        """Binds `u`: to its expression where `inline` and short, else to a new variable."""
        text = self.style.value(self, u)
        if inline and u.op in _INLINE and len(text) <= INLINE_LENGTH:
            self.bind(u, text)
            return
        self.bind(u, self.style.declare_value(self, u, text))

    # ---- instructions

    def instructions(self, instructions: Iterable[UOp]) -> None:
        """The statements of a program, in order."""
        style = self.style
        instructions = tuple(instructions)
        for u in dict.fromkeys(instructions):
            if u.op is Ops.LOCAL and u.arg[2] is Space.GROUP:
                self._local(u)
        for u in instructions:
            op = u.op
            if op is Ops.RANGE:
                self._loop(u)
            elif op is Ops.END or op is Ops.ENDIF:
                self.close()
            elif op is Ops.IF:
                self.open(f"if({self.ref(u.src[0])}){{")
            elif op is Ops.LOCAL:
                if u.arg[2] is not Space.GROUP:
                    self._local(u)
            elif op is Ops.STORE:
                style.store(self, u)
            elif op is Ops.ATOMIC:
                self.line(style.gated(self, u, style.atomic(self, u)))
            elif op is Ops.PREFETCH:
                self.line(style.gated(self, u, style.prefetch(self, u)))
            elif op is Ops.BARRIER:
                self.line(style.barrier(self, u))
            elif op in _LEAVES or op is Ops.SINK:
                continue
            else:
                self.define(u, u in self._inline)
        if len(self._scopes) != 1:
            raise LoweringError(f"{self.program.name}: a loop or condition is never closed")

    def _loop(self, u: UOp) -> None:
        name = self.name("i")
        type_name = self.style.scalar_type(u.dtype)
        begin, end = "0", self.ref(u.src[0])
        if u is self.program.parallel:
            begin, end = self.style.parallel_bounds(self, u)
        self.open(f"for({type_name} {name}={begin};{name}<{end};{name}++){{")
        self.bind(u, name)

    def _local(self, u: UOp) -> None:
        _, size, space = u.arg
        if space is not Space.REGISTER:
            self.style.declare_local(self, u, self.name("m"), size)
            return
        self.bind(u, self.style.declare_register(self, u, self.name("r")))

    def register(self, buffer: UOp, index: UOp) -> str | None:
        """The variable of a register, None for a buffer in memory."""
        if buffer.op is not Ops.LOCAL or buffer.arg[2] is not Space.REGISTER:
            return None
        name = self.ref(buffer)
        if buffer.arg[1] > 1:
            if index.op is not Ops.CONST:
                raise LoweringError(
                    f"{self.program.name}: a register is indexed by a constant only"
                )
            name = f"{name}_{index.arg}"
        return self.style.register_name(self, buffer, name)


def is_name(text: str) -> bool:
    """Whether a text is one variable (in each part, marked by `@`)."""
    return text.replace("@", "").isidentifier()


def _used_once(instructions: tuple[UOp, ...]) -> set[UOp]:
    """The nodes that stand once in the list and are used once, in the scope they stand in."""
    made: dict[UOp, int] = {}
    repeated: set[UOp] = set()
    used: dict[UOp, int] = {}
    scope_of_use: dict[UOp, int] = {}
    scopes, last = [0], 0
    for u in instructions:
        if u.op is Ops.END or u.op is Ops.ENDIF:
            if len(scopes) > 1:
                scopes.pop()
            continue
        for source in u.src:
            used[source] = used.get(source, 0) + 1
            scope_of_use[source] = scopes[-1]
        if u in made:
            repeated.add(u)
        made[u] = scopes[-1]
        if u.op is Ops.RANGE or u.op is Ops.IF:
            last += 1
            scopes.append(last)
    return {
        u
        for u, scope in made.items()
        if used.get(u) == 1 and scope_of_use[u] == scope and u not in repeated
    }


def vector_name(dtype: DType) -> str:
    """A short name such as f32x16, i64x4, u8x64."""
    letter = {"float": "f", "int": "i", "uint": "u", "bool": "b", "index": "n"}[dtype.kind]
    return f"{letter}{dtype.bits}x{dtype.count}"


def stand_in(name: str, dtype: DType) -> UOp:
    """A node for a value that is known by name only, to build graphs over it."""
    return UOp(Ops.VAR, dtype, (), (name, dtype.min, dtype.max))
