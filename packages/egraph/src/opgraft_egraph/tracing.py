"""From the function of a rule to instructions of an engine, by calling it on symbols.

A rule's function is called with a `Symbol` for each capture. If it only builds nodes of them,
asks for their dtypes, and compares numbers that the engines know (constants, bounds), what it
does is written down: one `Path` for each way through its comparisons. Anything else raises
`Untraceable`, and the rule is called back with nodes.

Dtypes are real while a function is traced, so there is a trace for each choice of them.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any, Final

from opgraft.api import DType, GroupOp, Ops, UOp
from opgraft_egraph import codes, symbols
from opgraft_egraph.book import Instruction, Path, Variant
from opgraft_egraph.codes import KIDS, SLOTS
from opgraft_egraph.language import Language, encode
from opgraft_egraph.symbols import (
    MOST_PATHS,
    PLACE,
    Computed,
    Symbol,
    Trace,
    Untraceable,
)

# ---- what a function may not do on symbols


_OURS: Final = (__name__, symbols.__name__)


@functools.lru_cache(maxsize=4096)
def _compares_identity(code: CodeType) -> bool:
    """Whether it asks if two things are the same object, other than None.

    Two captures are then taken for two nodes, though they may be in one class.
    """
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IS_OP" and not (
            before is not None and before.opname == "LOAD_CONST" and before.argval is None
        ):
            return True
        before = instruction
    return any(_compares_identity(c) for c in code.co_consts if isinstance(c, CodeType))


def _asks_identity(function: Any, depth: int = 4) -> bool:
    code = getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None:
        return True
    if _compares_identity(code):
        return True
    if not depth:
        return True
    found = False
    for name in code.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ not in (
            __name__,
            symbols.__name__,
        ):
            found = found or _asks_identity(called, depth - 1)
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # a name that has no value yet: who knows
            return True
        found = found or (isinstance(held, FunctionType) and _asks_identity(held, depth - 1))
    return found


# ---- tracing


class Captured:
    """A capture as a trace sees it."""

    __slots__ = ("constant", "dtype", "slot")

    def __init__(self, slot: int, dtype: DType, constant: bool) -> None:
        self.slot: Final = slot
        self.dtype: Final = dtype
        self.constant: Final = constant


def trace(
    function: Any, captures: Mapping[str, Captured], first_slot: int, language: Language
) -> tuple[Path, ...]:
    """The paths of a function for captures of these dtypes; raises `Untraceable`.

    `first_slot`: of what right sides make.
    """
    if _asks_identity(function):
        raise Untraceable("whether nodes are the same")
    todo: list[tuple[bool, ...]] = [()]
    paths: list[Path] = []
    while todo:
        if len(paths) == MOST_PATHS:
            raise Untraceable("too many paths")
        given = todo.pop()
        one = Trace(given)
        shown = {
            name: Symbol(one, c.dtype, c.slot, constant=c.constant) for name, c in captures.items()
        }
        try:
            made = function(**shown)
        except Untraceable:
            raise
        except Exception as error:
            # on nodes it may do well, or raise its own error there
            raise Untraceable(f"it raises {error!r}") from error
        answers = [t.expected for t in one.tests]
        todo += [(*answers[:place], False) for place in range(len(given), len(answers))]
        if made is None:
            paths.append(Path(tuple(one.tests), (), -1))
        else:
            instructions: list[Instruction] = []
            result = _build(made, instructions, first_slot, language)
            paths.append(Path(tuple(one.tests), tuple(instructions), result))
    return tuple(paths)


def _build(made: Any, found: list[Instruction], slot: int, language: Language) -> int:
    """Instructions for what a function made, sources first; the slot of the result."""
    done: dict[int, int] = {}
    keep: list[Any] = []
    stack: list[Any] = [made]
    while stack:
        n = stack[-1]
        if id(n) in done:
            stack.pop()
            continue
        if isinstance(n, Symbol):
            op, src = n._op, n._src
        elif isinstance(n, UOp):
            op, src = n.op, () if n.is_const else n.src
        else:
            raise Untraceable(f"it makes {n!r}")
        missing = [s for s in src if id(s) not in done]
        if missing:
            stack += missing
            continue
        stack.pop()
        keep.append(n)
        if isinstance(n, Symbol) and n.slot >= 0:
            done[id(n)] = n.slot
            continue
        if slot + len(found) >= SLOTS or len(src) > KIDS:
            raise Untraceable("a large right side")
        kids = tuple(done[id(s)] for s in src)
        found.append(_instruction(n, op, kids, slot + len(found), language))
        done[id(n)] = slot + len(found) - 1
    return done[id(made)]


def _instruction(
    n: Any, op: Ops | None, kids: tuple[int, ...], out: int, language: Language
) -> Instruction:
    if isinstance(n, Computed):
        return Instruction(
            codes.MAKE_NUMBER, out, dtype=language.dtype(n.dtype), code=n.number.code
        )
    if isinstance(n, UOp) and n.is_const:
        encoded = encode(n.const_value)
        if encoded is None:
            raise Untraceable("a large constant")
        return Instruction(
            codes.MAKE_CONSTANT,
            out,
            dtype=language.dtype(n.dtype),
            number=encoded[0],
            value=encoded[1],
        )
    if op not in GroupOp.ALU:
        raise Untraceable(f"it makes a {op}")
    arg = n.arg if isinstance(n, UOp) else n._arg
    shown = UOp(op, n.dtype, (PLACE,) * len(kids), arg)
    return Instruction(codes.MAKE_NODE, out, kids, language.symbol(shown))


def facts_of(variant: Variant | tuple[Path, ...]) -> tuple[int, ...]:
    """The slots whose facts the tests and numbers of these paths look at."""
    paths = variant.paths if isinstance(variant, Variant) else variant
    found: dict[int, None] = {}
    for path in paths:
        for code in (*[t.code for t in path.tests], *[q.code for q in path.instructions]):
            at = 0
            while at < len(code):
                if code[at] <= codes.PUSH_NONZERO:
                    if code[at] != codes.PUSH:
                        found[code[at + 1]] = None
                    at += 1
                at += 1
    return tuple(found)
