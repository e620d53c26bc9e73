"""Array programs made by chance from a seed: lines of Python that use opgraft-tensor.

A program runs on the device under test and on INTERP, and gives the same values: it holds no
operation whose result is not exact, and sums are of small whole numbers. opgraft-tensor decides
what becomes a kernel, so these programs show combinations that nobody wrote down.

This module needs opgraft-tensor. The rows that use it are not available where it is not installed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from opgraft.api import using
from opgraft_conformance.fault import Fault
from opgraft_tensor import Tensor, realize_all

DTYPES: Final = ("float32", "float32", "int32", "int8", "uint8", "int16", "int64", "float16",
                 "bfloat16", "float64", "bool")  # fmt: skip
LARGEST: Final = 800


def tame(x: Tensor) -> Tensor:
    """Floats brought to whole numbers from -4 to 4, so that every order of a sum is exact."""
    if not x.dtype.is_float:
        return x
    return (x != x).where(x.zeros_like(), x.clip(-4, 4).round())


@dataclass(frozen=True)
class Line:
    """A statement and the name that it gives a value to."""

    name: str
    text: str


@dataclass
class Program:
    """Statements, and the names whose values count."""

    seed: int
    lines: list[Line]
    outputs: list[str]

    def source(self, device: str) -> str:
        """The program as Python that prints its values."""
        head = [
            "from opgraft_tensor import Tensor, realize_all",
            "from opgraft_conformance.random_tensors import tame",
            f"DEVICE = {device!r}",
        ]
        tail = [f"print({name}.numpy())" for name in self.outputs]
        return "\n".join([*head, *(line.text for line in self.lines), *tail])


def values(made: Program, device: str) -> dict[str, Any]:
    """The values of the outputs on a device."""
    space: dict[str, Any] = {"Tensor": Tensor, "tame": tame, "DEVICE": device}
    for line in made.lines:
        exec(line.text, space)
    realize_all([space[name] for name in made.outputs])
    return {name: space[name].numpy() for name in made.outputs}


# ---- writing


@dataclass
class Writer:
    """A program as it grows; what it has so far is known by its lazy tensors."""

    random: random.Random
    lines: list[Line] = field(default_factory=list)
    space: dict[str, Any] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Append `name = text`, unless there is no such operation, or its value is large."""
        name = f"v{len(self.lines)}"
        trial = {**self.space, "Tensor": Tensor, "tame": tame, "DEVICE": "INTERP"}
        try:
            exec(f"{name} = {text}", trial)
        except (TypeError, ValueError, IndexError):
            return
        made = trial[name]
        if made.size <= LARGEST and made.ndim <= 4:
            self.lines.append(Line(name, f"{name} = {text}"))
            self.space[name] = made

    def any(self, wanted: Callable[[Tensor], bool] = lambda t: True) -> str | None:
        """A name that fits, mostly one of the newest."""
        names = [n for n, t in self.space.items() if wanted(t)]
        if not names:
            return None
        return self.random.choice(names[-3:] if self.random.random() < 0.6 else names)

    def leaf(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> None:
        """An array of small numbers, a few of them at the edges of the dtype."""
        pick = self.random
        dtype = dtype or pick.choice(DTYPES)
        if shape is None:
            shape = tuple(
                pick.choice((1, 2, 3, 4, 7, 16)) for _ in range(pick.choice((1, 2, 2, 3)))
            )
        count = int(np.prod(shape))
        if dtype == "bool":
            numbers: list[Any] = [pick.random() < 0.5 for _ in range(count)]
        elif "float" in dtype:
            odd = (0.5, -0.0, 1e5, float("inf"), float("nan"), 0.1)
            numbers = [pick.choice(odd) if pick.random() < 0.1 else float(pick.randint(-4, 8))
                       for _ in range(count)]  # fmt: skip
        else:
            low = 0 if dtype.startswith("u") else -4
            numbers = [127 if pick.random() < 0.05 else pick.randint(low, 8) for _ in range(count)]
        listed = repr(numbers).replace("nan", "float('nan')").replace("inf", "float('inf')")
        self.add(f"Tensor({listed}, dtype={dtype!r}, device=DEVICE).reshape{(*shape,)}")

    # ---- kinds of lines

    def arithmetic(self) -> None:
        a, b = self.any(), self.any()
        op = self.random.choice(("+", "-", "*", "/", "%", "<", "<=", "==", "!=", "max", "min"))
        if op in ("max", "min"):
            self.add(f"{a}.{op}imum({b})")
        else:
            self.add(f"{a} {op} {b}")

    def number(self) -> None:
        a = self.any(lambda t: not t.dtype.is_bool)
        op, n = self.random.choice("+-*%<"), self.random.choice((0, 1, 2, 3, 7))
        if a:
            self.add(f"{a} {op} {n}")

    def bits(self) -> None:
        a = self.any(lambda t: not t.dtype.is_float)
        b = self.any(lambda t: not t.dtype.is_float)
        if a and b:
            self.add(f"{a} {self.random.choice(['&', '|', '^', '<<', '>>'])} {b}")

    def converted(self) -> None:
        self.add(f"{self.any()}.cast({self.random.choice(DTYPES)!r})")

    def chosen(self) -> None:
        mask = self.any(lambda t: t.dtype.is_bool)
        if mask:
            self.add(f"{mask}.where({self.any()}, {self.any()})")

    def unary(self) -> None:
        a = self.any(lambda t: t.dtype.is_float)
        if a:
            self.add(f"{a}.{self.random.choice(('abs', 'floor', 'round', 'sqrt', 'sign'))}()")

    def reduced(self) -> None:
        a = self.any(lambda t: t.ndim > 0)
        if a is None:
            return
        axis = self.random.choice([None, *range(self.space[a].ndim)])
        keep = self.random.random() < 0.4
        op = self.random.choice(("sum", "sum", "max", "min", "any", "argmax", "mean"))
        # + 0: the sign of a zero that a REDUCE finds is free
        tail = " + 0" if op in ("sum", "max", "min", "mean") else ""
        source = f"tame({a})" if op in ("sum", "mean") else a
        if op == "mean":
            source = f"{source}.cast('float32')"
        self.add(f"{source}.{op}(axis={axis}, keepdims={keep}){tail}")

    def scanned(self) -> None:
        a = self.any(lambda t: t.ndim > 0)
        if a:
            axis = self.random.randrange(self.space[a].ndim)
            self.add(f"tame({a}).cumsum({axis}) + 0")

    def moved(self) -> None:
        pick = self.random
        a = self.any(lambda t: t.ndim > 0)
        if a is None:
            return
        rank, count = self.space[a].ndim, self.space[a].size
        axis = pick.randrange(rank)
        divisors = [d for d in range(1, count + 1) if count % d == 0]
        order = pick.sample(range(rank), rank)
        widths = [(pick.randint(0, 2), pick.randint(0, 2)) for _ in range(rank)]
        self.add(
            pick.choice(
                (
                    f"{a}.permute({', '.join(map(str, order))})",
                    f"{a}.reshape({pick.choice(divisors)}, -1)",
                    f"{a}.flip({axis})",
                    f"{a}.unsqueeze({axis})",
                    f"{a}.pad({widths})",
                    f"{a}.roll({pick.randint(-3, 3)}, {axis})",
                    f"{a}[{pick.choice(('::2', '1:', '::-1', '-1', ':2', '1::3'))}]",
                    f"{a}.repeat_interleave(2, {axis})",
                    f"{a}.tril()",
                )
            )
        )

    def joined(self) -> None:
        a = self.any(lambda t: t.ndim > 0)
        if a:
            like = self.space[a]
            b = self.any(lambda t: t.shape == like.shape and t.dtype is like.dtype)
            axis = self.random.randrange(like.ndim)
            self.add(f"{a}.{self.random.choice(('cat', 'stack'))}({b}, axis={axis})")

    def looked_up(self) -> None:
        a = self.any(lambda t: t.ndim > 0)
        b = self.any(lambda t: t.dtype.is_int)
        if a and b:
            axis = self.random.randrange(self.space[a].ndim)
            self.add(f"{a}.take({b}.cast('int64') % {self.space[a].shape[axis]}, {axis})")

    def multiplied(self) -> None:
        a = self.any(lambda t: t.ndim == 2)
        b = self.any(lambda t: t.ndim == 2)
        if a and b:
            self.add(f"tame({a}).matmul(tame({b})) + 0")
            self.add(f"tame({a}).matmul(tame({b}).permute(1, 0)) + 0")

    def settled(self) -> None:
        self.add(f"{self.any()}.realize()")


KINDS: Final = (
    *(Writer.arithmetic, Writer.arithmetic, Writer.number, Writer.bits, Writer.converted),
    *(Writer.chosen, Writer.unary, Writer.reduced, Writer.reduced, Writer.scanned, Writer.moved),
    *(
        Writer.moved,
        Writer.joined,
        Writer.looked_up,
        Writer.multiplied,
        Writer.settled,
        Writer.leaf,
    ),
)


def random_program(seed: int) -> Program:
    """The program of a seed: the same one in every process."""
    writer = Writer(random.Random(seed))
    with using(INTERP_CC=""):
        writer.leaf()
        for _ in range(writer.random.randint(3, 12)):
            writer.random.choice(KINDS)(writer)
    names = [line.name for line in writer.lines]
    others = writer.random.sample(names, min(len(names), writer.random.randint(0, 2)))
    return Program(seed, writer.lines, list(dict.fromkeys([names[-1], *others])))


# ---- comparing


def problem(made: Program, device: str) -> str:
    """What the device gets wrong; empty: nothing."""
    with using(INTERP_CC=""):
        wanted = values(made, "INTERP")
    try:
        found = values(made, device)
    except Exception as error:  # whatever it is, the device raised it: it is a finding
        return f"{type(error).__name__}: {error}"
    for name, want in wanted.items():
        got = found[name]
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"{name} is {got.dtype} {got.shape}, not {want.dtype} {want.shape}"
        same = got == want
        if want.dtype.kind not in "biu":
            same |= (got != got) & (want != want)
        if not np.all(same):
            place = tuple(int(axis[0]) for axis in np.nonzero(~np.atleast_1d(same)))
            at = np.atleast_1d(got)[place], np.atleast_1d(want)[place]
            return f"{name}[{', '.join(map(str, place))}] is {at[0]}, not {at[1]}"
    return ""


def shrunk(made: Program, fails: Callable[[Program], bool]) -> Program:
    """The program without the lines and outputs that the failure does not need."""
    smaller = True
    while smaller:
        smaller = False
        for fewer in _smaller(made):
            if fails(fewer):
                made, smaller = fewer, True
                break
    return made


def _smaller(made: Program) -> list[Program]:
    found = []
    if len(made.outputs) > 1:
        for output in made.outputs:
            rest = [name for name in made.outputs if name != output]
            found.append(Program(made.seed, made.lines, rest))
    for line in reversed(made.lines):
        lines = [other for other in made.lines if other is not line]
        outputs = [name for name in made.outputs if name != line.name]
        if line.name in made.outputs:  # then what it was made of counts
            outputs = list(dict.fromkeys([*outputs, *sorted(_used(line))]))
        if outputs and _is_whole(lines):
            found.append(Program(made.seed, lines, outputs))
    return found


def _is_whole(lines: list[Line]) -> bool:
    """Whether every name that is used was given a value before."""
    known: set[str] = set()
    for line in lines:
        if not _used(line) <= known:
            return False
        known.add(line.name)
    return True


def _used(line: Line) -> set[str]:
    """The names that a line takes the values of."""
    names = compile(line.text, "line", "exec").co_names
    return {word for word in names if word[0] == "v" and word[1:].isdigit()} - {line.name}


def check(seed: int, device: str) -> None:
    """Raise `Fault` with a small program that fails where that of the seed does."""
    made = random_program(seed)
    first = problem(made, device)
    if not first:
        return
    small = shrunk(made, lambda fewer: bool(problem(fewer, device)))
    raise Fault(
        "a random tensor program gives other values than on INTERP",
        {
            "seed": f"random_tensors.random_program({seed})",
            "wrong": problem(small, device) or first,
            "program": small.source(device),
        },
    )
