"""Random programs of Tensor's methods, each a list of statements with its NumPy counterpart.

Every statement is two lines of Python, one for tensors and one for arrays, which assign the same
name; so a program can be run, cut down and printed. Tensors are values: the array side copies.
Sums are of small whole numbers, so that any order gives the same bits; functions that NumPy
computes otherwise are compared with a tolerance and feed nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from opgraft.dtype import promote, to_dtype
from statements import Program, Statement, run_array
from tensor_meaning import FLOATS

INTS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES: Final = (*INTS, *FLOATS, "bool", "float32", "float32", "int32")
LARGEST: Final = 1200


@dataclass
class Value:
    """What the writer of a program knows of a name."""

    shape: tuple[int, ...]
    dtype: str


# ---- writing programs


@dataclass
class Writer:
    rng: random.Random
    known: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    rough: list[str] = field(default_factory=list)

    def add(self, tensor: str, array: str, exact: bool = True, name: str | None = None) -> bool:
        """Append a statement, unless its value is too large; `@` stands for the name."""
        target = name or f"v{len(self.statements)}"
        made = Statement(target, tensor.replace("@", target), array.replace("@", target), exact)
        space = dict(self.arrays)
        try:
            run_array(made, space)
        except (TypeError, ValueError, IndexError):
            return False  # NumPy has no such operation either
        value = space[target]
        if value.size > LARGEST or value.ndim > 5:
            return False
        self.statements.append(made)
        self.arrays = space
        if exact:
            self.known[target] = Value(value.shape, value.dtype.name)
        else:
            self.rough.append(target)
        return True

    def any(self, *, kind: str = "", rank: int = 0) -> str | None:
        names = [
            n
            for n, v in self.known.items()
            if len(v.shape) >= rank and (not kind or _kind(v.dtype) in kind)
        ]
        # a program that goes deep: mostly the newest
        return self.rng.choice(names[-4:] if self.rng.random() < 0.6 else names) if names else None

    def leaf(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> None:
        rng = self.rng
        dtype = dtype or rng.choice(DTYPES)
        if shape is None:
            extents = [1, 2, 3, 4, 5, 7]
            if rng.random() < 0.15:
                extents = [0, 1, 2, 3]
            elif rng.random() < 0.2:
                extents = [1, 8, 9, 16, 33]
            shape = tuple(rng.choice(extents) for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3])))
        count = int(np.prod(shape))
        pick = _EDGES[_kind(dtype)]
        low = -4 if _kind(dtype) == "f" or dtype.startswith("int") else 0
        values = [
            rng.choice(pick) if rng.random() < 0.2 else rng.randint(low, 4) for _ in range(count)
        ]
        if _kind(dtype) in "iu":
            info = np.iinfo(dtype)
            values = [min(max(int(v), info.min), info.max) for v in values]
        text = f"np.array({values}, np.float64)" if _kind(dtype) == "f" else (
            f"np.array({values}, np.{dtype if dtype != 'bool' else 'bool_'})"
        )  # fmt: skip
        text = text.replace("nan", "np.nan").replace("inf", "np.inf")
        self.add(
            f"@ = Tensor(tp.cast({text}, {dtype!r}).reshape({shape}), device=DEVICE)",
            f"@ = tp.cast({text}, {dtype!r}).reshape({shape})",
        )


_EDGES: Final[dict[str, list[Any]]] = {
    "f": [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1e-3, 1e5, 7e4, float("inf"), float("-inf"),
          float("nan"), 3e38, 1e-40, 0.1, 255.5, -1e10],
    "i": [0, -1, 127, -128, 255, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1000],
    "u": [0, 1, 255, 65535, 2**32 - 1, 2**63, 2**64 - 1],
    "b": [True, False],
}  # fmt: skip


def _kind(dtype: str) -> str:
    return "f" if dtype in FLOATS else np.dtype(dtype).kind


def _axes(rng: random.Random, rank: int) -> Any:
    if rng.random() < 0.3 or rank == 0:
        return None
    if rng.random() < 0.6:
        return rng.randrange(-rank, rank)
    return tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))


def arithmetic(w: Writer) -> None:
    a = w.any()
    op = w.rng.choice(["+", "-", "*", "/", "%", "max", "min", "<", "<=", "==", "!=", ">", ">="])
    if op == "%" and w.rng.random() < 0.5:
        op = "//"
    b = _partner(w, a)
    if a is None or b is None:
        return
    kinds = {_kind(w.known[a].dtype), _kind(w.known[b].dtype)}
    if kinds == {"b"} and op in ("-", "%", "//"):
        return
    if op == "//" and "bfloat16" in (w.known[a].dtype, w.known[b].dtype):
        return  # ml_dtypes' is another
    method = {"max": f"{a}.maximum({b})", "min": f"{a}.minimum({b})"}.get(op, f"{a} {op} {b}")
    w.add(f"@ = {method}", f"@ = tp.binary({op!r}, {a}, {b})")


def _partner(w: Writer, a: str | None, kind: str = "") -> str | None:
    """A name whose shape broadcasts with a's, or a new leaf."""
    if a is None:
        return None
    for _ in range(6):
        b = w.any(kind=kind)
        if b is None:
            break
        try:
            np.broadcast_shapes(w.known[a].shape, w.known[b].shape)
        except ValueError:
            continue
        return b
    size = tuple(1 if w.rng.random() < 0.2 else n for n in w.known[a].shape)
    before = len(w.statements)
    dtypes = {"": DTYPES, "iu": INTS, "iub": (*INTS, "bool")}[kind]
    w.leaf(size[w.rng.randint(0, 1) :], w.rng.choice(dtypes))
    return w.statements[-1].name if len(w.statements) > before else None


def bits(w: Writer) -> None:
    a = w.any(kind="iub")
    b = _partner(w, a, "iub")
    if a is None or b is None:
        return
    op = w.rng.choice("&|^")
    if "b" not in (_kind(w.known[a].dtype), _kind(w.known[b].dtype)):
        op = w.rng.choice(["&", "|", "^", "<<", ">>"])
    w.add(f"@ = {a} {op} {b}", f"@ = tp.binary({op!r}, {a}, {b})")


def with_number(w: Writer) -> None:
    a = w.any(kind="iuf")
    if a is None:
        return
    dtype = w.known[a].dtype
    number: Any = w.rng.choice([0, 1, 2, 3, 7])
    if _kind(dtype) == "f":
        number = w.rng.choice([number, 0.5, -1.5, -2, 0.0, -0.0])
    whole = "//" if _kind(dtype) != "f" else "/"
    op = w.rng.choice(["+", "-", "*", "%", "<", ">=", "==", "max", whole])
    array = f"tp.cast(np.array({number!r}), {dtype!r})"
    method = {"max": f"{a}.maximum({number})", "min": f"{a}.minimum({number})"}
    if w.rng.random() < 0.5 or op in method:
        w.add(f"@ = {method.get(op, f'{a} {op} {number}')}", f"@ = tp.binary({op!r}, {a}, {array})")
    else:
        w.add(f"@ = {number} {op} {a}", f"@ = tp.binary({op!r}, {array}, {a})")


def unary(w: Writer) -> None:
    a = w.any()
    if a is None:
        return
    kind = _kind(w.known[a].dtype)
    names = {"f": ["abs", "floor", "ceil", "trunc", "round", "sign", "square", "isnan", "isinf"],
             "i": ["abs", "sign", "square"], "u": ["square", "sign"], "b": []}[kind]  # fmt: skip
    if not names:
        w.add(f"@ = ~{a}", f"@ = ~{a}")
        return
    name = w.rng.choice([*names, "neg"])
    if name == "neg":
        w.add(f"@ = -{a}", f"@ = np.asarray(-{a})")
    elif name in ("isnan", "isinf"):
        w.add(f"@ = {a}.{name}()", f"@ = np.asarray(np.{name}({a}))")
    elif name == "square":
        w.add(f"@ = {a}.square()", f"@ = np.asarray({a} * {a})")
    else:
        w.add(f"@ = {a}.{name}()", f"@ = np.asarray(np.{name}({a})).astype({a}.dtype)")


def converted(w: Writer) -> None:
    a = w.any()
    if a is not None:
        dtype = w.rng.choice(DTYPES)
        w.add(f"@ = {a}.cast({dtype!r})", f"@ = tp.cast({a}, {dtype!r})")


def chosen(w: Writer) -> None:
    mask, a = w.any(kind="b"), w.any()
    b = _partner(w, a)
    if mask is None or a is None or b is None:
        return
    try:
        np.broadcast_shapes(*(w.known[n].shape for n in (mask, a, b)))
    except ValueError:
        return
    w.add(f"@ = {mask}.where({a}, {b})", f"@ = np.where({mask}, *tp.pair({a}, {b}))")


def reduced(w: Writer) -> None:
    a = w.any()
    if a is None:
        return
    size, dtype = w.known[a].shape, w.known[a].dtype
    op = w.rng.choice(["sum", "sum", "max", "min", "any", "all", "argmax", "argmin", "mean"])
    if op in ("argmax", "argmin"):
        if len(size) == 0 or 0 in size:
            return
        axis: Any = w.rng.choice([None, w.rng.randrange(len(size))])
    else:
        axis = _axes(w.rng, len(size))
    if 0 in size and op in ("max", "min", "mean"):
        return
    keep = w.rng.random() < 0.3
    source, array = a, a
    if op in ("sum", "mean") and _kind(dtype) == "f":
        source, array = f"tp.tame({a})", f"tp.tamed({a})"
    # the sign of a zero that a sum gives depends on what it starts with
    plain = " + 0" if op in ("sum", "mean") else ""
    if op == "mean" and _kind(dtype) in "iu":
        source, array = f"{a}.cast('int8')", f"tp.cast({a}, 'int8')"
    w.add(
        f"@ = {source}.{op}(axis={axis}, keepdims={keep}){plain}",
        f"@ = tp.total({array}, {op!r}, {axis}, {keep}){plain}",
    )


def scanned(w: Writer) -> None:
    a = w.any(rank=1)
    if a is None:
        return
    axis = w.rng.randrange(len(w.known[a].shape))
    op = w.rng.choice(["cumsum", "cumsum", "cummax", "cummin"])
    source, array = (f"tp.tame({a})", f"tp.tamed({a})") if op == "cumsum" else (a, a)
    plain = " + 0" if op == "cumsum" else ""
    w.add(
        f"@ = {source}.{op}({axis}){plain}", f"@ = tp.total({array}, {op!r}, {axis}, False){plain}"
    )


def moved(w: Writer) -> None:
    a = w.any()
    if a is None:
        return
    size, rng = w.known[a].shape, w.rng
    rank, count = len(size), int(np.prod(size))
    kind = rng.choice(["permute", "reshape", "flip", "expand", "pad", "roll", "unsqueeze"])
    if kind == "permute" and rank > 1:
        order = tuple(rng.sample(range(rank), rank))
        w.add(f"@ = {a}.permute{order}", f"@ = {a}.transpose({order})")
    elif kind == "reshape" and count:
        first = rng.choice([d for d in range(1, count + 1) if count % d == 0])
        w.add(f"@ = {a}.reshape({first}, -1)", f"@ = {a}.reshape({first}, -1)")
    elif kind == "flip" and rank:
        axis = rng.randrange(rank)
        w.add(f"@ = {a}.flip({axis})", f"@ = np.flip({a}, {axis})")
    elif kind == "expand":
        to = (rng.randint(1, 3), *size)
        w.add(f"@ = {a}.expand({to})", f"@ = np.broadcast_to({a}, {to})")
    elif kind == "pad" and rank:
        widths = tuple((rng.randint(0, 2), rng.randint(0, 2)) for _ in size)
        w.add(f"@ = {a}.pad({widths})", f"@ = np.pad({a}, {widths})")
    elif kind == "roll" and rank:
        by, axis = rng.randint(-3, 3), rng.randrange(rank)
        w.add(f"@ = {a}.roll({by}, {axis})", f"@ = np.roll({a}, {by}, {axis})")
    elif kind == "unsqueeze":
        axis = rng.randint(0, rank)
        w.add(f"@ = {a}.unsqueeze({axis})", f"@ = np.expand_dims({a}, {axis})")


def _part(rng: random.Random, extent: int) -> str:
    kind = rng.random()
    if kind < 0.2 and extent:
        return str(rng.randrange(-extent, extent))
    if kind < 0.3:
        return ":"
    ends = [str(rng.randint(-extent - 1, extent + 1)) if rng.random() < 0.6 else "" for _ in "ab"]
    return f"{ends[0]}:{ends[1]}:{rng.choice(['', '1', '2', '-1', '-2', '3'])}"


def _key(w: Writer, a: str) -> str:
    rng, size = w.rng, w.known[a].shape
    parts = [_part(rng, n) for n in size[: rng.randint(1, len(size))]]
    if rng.random() < 0.3:
        at = rng.randrange(len(parts))
        if size[at]:
            listed = [rng.randrange(-size[at], size[at]) for _ in range(rng.randint(1, 4))]
            parts[at] = str(listed)
    if rng.random() < 0.15:
        parts.insert(rng.randint(0, len(parts)), "None")
    return ", ".join(parts)


def indexed(w: Writer) -> None:
    a = w.any(rank=1)
    if a is not None:
        key = _key(w, a)
        w.add(f"@ = {a}[{key}]", f"@ = {a}[{key}]")


def assigned(w: Writer) -> None:
    """A part of a name gets another value; what was made of it before keeps the old one."""
    a = w.any(rank=1)
    if a is None:
        return
    key = _key(w, a)
    if "None" in key:
        return
    try:
        part = w.arrays[a][eval(f"np.s_[{key}]", {"np": np})]
    except IndexError:
        return
    dtype = w.known[a].dtype
    if w.rng.random() < 0.4:
        number = w.rng.choice([0, 1, 3])
        text = f"; {a}[{key}] = {number}"
        w.add(f"{a} = {a}.clone(){text}", f"{a} = {a}.copy(){text}", name=a)
        return
    size = np.shape(part)
    names = [n for n, v in w.known.items() if v.shape == size or v.shape == size[-1:]]
    if names:
        b = w.rng.choice(names)
        w.add(
            f"{a}[{key}] = {b}",
            f"{a} = {a}.copy(); {a}[{key}] = tp.cast({b}, {dtype!r})",
            name=a,
        )


def joined(w: Writer) -> None:
    a = w.any(rank=1)
    if a is None:
        return
    same = [n for n, v in w.known.items() if v == w.known[a]]
    others = [w.rng.choice(same) for _ in range(w.rng.randint(1, 2))]
    axis = w.rng.randrange(len(w.known[a].shape))
    listed = ", ".join([a, *others])
    if w.rng.random() < 0.5:
        tensor, array = f"@ = {a}.cat", "@ = np.concatenate"
    else:
        tensor, array = f"@ = {a}.stack", "@ = np.stack"
    w.add(f"{tensor}({', '.join(others)}, axis={axis})", f"{array}([{listed}], {axis})")


def multiplied(w: Writer) -> None:
    a = w.any(rank=1)
    if a is None:
        return
    size = w.known[a].shape
    fitting = [n for n, v in w.known.items() if len(v.shape) == 2 and v.shape[0] == size[-1]]
    b = fitting[-1] if fitting else None
    if b is None:
        before = len(w.statements)
        w.leaf((size[-1], w.rng.randint(1, 4)))
        if len(w.statements) == before:
            return
        b = w.statements[-1].name
    dtypes = [to_dtype(w.known[name].dtype) for name in (a, b)]
    floats = promote(*dtypes).is_float  # of uint64 with a signed integer, too
    wide = "float32" if any(d.is_float for d in dtypes) else "float64"
    tensors, arrays = [], []
    for name, dtype in zip((a, b), dtypes):
        cast = floats and not dtype.is_float
        tensors.append(f"tp.tame({name}.cast({wide!r}))" if cast else f"tp.tame({name})")
        arrays.append(f"tp.tamed(tp.cast({name}, {wide!r}))" if cast else f"tp.tamed({name})")
    plain = " + 0" if floats else ""
    w.add(
        f"@ = {tensors[0]}.matmul({tensors[1]}){plain}",
        f"@ = tp.product({arrays[0]}, {arrays[1]}){plain}",
    )


def functions(w: Writer) -> None:
    a = w.any(kind="f", rank=1)
    if a is None:
        return
    name = w.rng.choice(["exp", "tanh", "sigmoid", "sin", "softmax", "logsumexp", "var", "expm1"])
    if 0 in w.known[a].shape:
        return
    axis = "axis=-1" if name in ("softmax", "logsumexp", "var") else ""
    w.add(f"@ = tp.tame({a}).{name}({axis})", f"@ = tp.smooth({name!r}, tp.tamed({a}))", False)


def rearranged(w: Writer) -> None:
    """Triangles, repetitions, diagonals, products of integers, limits."""
    a = w.any(rank=2)
    if a is None:
        return
    rng, size = w.rng, w.known[a].shape
    kind = rng.choice(["tril", "triu", "repeat", "interleave", "diagonal", "clip", "prod", "bits"])
    offset, axis = rng.randint(-3, 3), rng.randrange(len(size))
    if kind in ("tril", "triu"):
        w.add(f"@ = {a}.{kind}({offset})", f"@ = np.{kind}({a}, {offset})")
    elif kind == "repeat":
        times = tuple(rng.randint(1, 2) for _ in size)
        w.add(f"@ = {a}.repeat{times}", f"@ = np.tile({a}, {times})")
    elif kind == "interleave":
        w.add(f"@ = {a}.repeat_interleave(2, {axis})", f"@ = np.repeat({a}, 2, {axis})")
    elif kind == "diagonal" and -size[-2] < offset < size[-1]:
        # the sign of a zero may be lost
        plain = " + 0" if _kind(w.known[a].dtype) == "f" else ""
        w.add(
            f"@ = {a}.diagonal({offset}){plain}",
            f"@ = np.diagonal({a}, {offset}, -2, -1).copy(){plain}",
        )
    elif kind == "clip" and _kind(w.known[a].dtype) in "iu":
        w.add(f"@ = {a}.clip(1, 3)", f"@ = np.clip({a}, 1, 3).astype({a}.dtype)")
    elif kind == "prod" and _kind(w.known[a].dtype) in "iu":
        w.add(f"@ = {a}.prod({axis})", f"@ = np.prod({a}, {axis})")
    elif kind == "bits" and w.known[a].dtype in ("float32", "int32", "uint32"):
        to = rng.choice(["int32", "uint32"])
        # of nan, the bits are not defined
        w.add(
            f"@ = ({a} == {a}).where({a}, {a}.zeros_like()).bitcast('{to}')",
            f"@ = np.where({a} == {a}, {a}, np.zeros_like({a})).view(np.{to})",
        )


def looked_up(w: Writer) -> None:
    """Entries by computed indices, which are brought into range first."""
    a, b = w.any(rank=1), w.any(kind="iu")
    if a is None or b is None:
        return
    size = w.known[a].shape
    axis = w.rng.randrange(len(size))
    if size[axis]:
        index = f"({b}.cast('int64') % {size[axis]})"
        array = f"({b}.astype(np.int64) % {size[axis]})"
        w.add(f"@ = {a}.take({index}, {axis})", f"@ = np.take({a}, {array}, {axis})")


def overwritten(w: Writer) -> None:
    """One value where a mask holds, or an operation in place."""
    a = w.any()
    if a is None:
        return
    dtype = w.known[a].dtype
    if w.rng.random() < 0.5 and _kind(dtype) != "b":
        op = w.rng.choice("+-*")
        w.add(
            f"{a} = {a}.clone(); {a} {op}= 3",
            f"{a} = tp.binary({op!r}, {a}, tp.cast(np.array(3), {dtype!r}))",
            name=a,
        )
        return
    masks = [n for n, v in w.known.items() if v.dtype == "bool" and v.shape == w.known[a].shape]
    if masks:
        mask = w.rng.choice(masks)
        w.add(
            f"{a}[{mask}] = 1",
            f"{a} = np.where({mask}, np.ones((), {a}.dtype), {a}).astype({a}.dtype)",
            name=a,
        )


def settled(w: Writer) -> None:
    a = w.any()
    if a is not None:
        w.add(f"{a}.realize()", f"{a} = {a}", name=a)


KINDS: Final = (
    arithmetic, arithmetic, arithmetic, with_number, bits, unary, converted, chosen, reduced,
    reduced, scanned, moved, moved, indexed, indexed, assigned, assigned, joined, multiplied,
    functions, settled, rearranged, rearranged, looked_up, overwritten,
)  # fmt: skip


def program(seed: int) -> Program:
    """The program of a seed: the same in every process."""
    w = Writer(random.Random(seed))
    for _ in range(w.rng.randint(1, 3)):
        w.leaf()
    while not w.known:  # the first was too large
        w.leaf()
    for _ in range(w.rng.randint(2, 14)):
        w.rng.choice(KINDS)(w)
    names = list(w.known)
    outputs = [names[-1], *w.rng.sample(names, min(len(names), w.rng.randint(0, 3))), *w.rough]
    return Program(seed, w.statements, list(dict.fromkeys(outputs)))
