"""Random programs of Tensor's methods, each a list of statements with its NumPy counterpart.

Every statement is two lines of Python, one for tensors and one for arrays, which assign the same
name; so a program can be run, cut down and printed. Tensors are values: the array side copies.
Sums are of small whole numbers, so that any order gives the same bits; functions that NumPy
computes otherwise are compared with a tolerance and feed nothing.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes  # noqa: F401  NumPy learns of bfloat16
import numpy as np

from opgraft_tensor import Tensor, realize_all
from oracle import convert, numpy_dtype

INTS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
DTYPES: Final = (*INTS, *FLOATS, "bool", "float32", "float32", "int32")
LARGEST: Final = 300
NAMES: Final = {"np": np, "Tensor": Tensor}
TOLERANCE: Final = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-11}


@dataclass(frozen=True)
class Statement:
    name: str
    tensor: str
    array: str
    exact: bool = True


@dataclass
class Value:
    """What the writer of a program knows of a name."""

    shape: tuple[int, ...]
    dtype: str


@dataclass
class Program:
    seed: int
    statements: list[Statement]
    outputs: list[str]

    def source(self, device: str) -> str:
        """The program as Python that prints each value and what it ought to be."""
        lines = ["import numpy as np", "import tensor_programs as tp", f"# seed {self.seed}"]
        lines += ["from opgraft_tensor import Tensor, realize_all", f"DEVICE = {device!r}", ""]
        lines += [s.tensor for s in self.statements]
        lines.append(f"realize_all([{', '.join(self.outputs)}])")
        lines += [f"found_{name} = {name}.numpy()" for name in self.outputs]
        lines += ["", "# the same with NumPy", "np.seterr(all='ignore')"]
        lines += [s.array for s in self.statements]
        lines += [f"print(found_{n}, {n}, sep='\\n')" for n in self.outputs]
        return "\n".join(lines)


# ---- the meaning of statements in NumPy; bfloat16 is ml_dtypes'


def cast(values: Any, dtype: str) -> Any:
    """As docs/meaning.md: saturating, rounded once."""
    from opgraft.dtype import to_dtype

    values = np.asarray(values)
    source, target = to_dtype(values.dtype.name), to_dtype(dtype)
    plain = values.astype(np.float32) if source.name == "bfloat16" else values
    with np.errstate(all="ignore"):
        done = convert(plain, source, target)
    return np.asarray(done).astype(np.dtype(dtype)).copy()


def pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Both in their common dtype."""
    from opgraft.dtype import promote, to_dtype

    common = promote(to_dtype(a.dtype.name), to_dtype(b.dtype.name)).name
    return cast(a, common), cast(b, common)


def binary(op: str, a: Any, b: Any) -> Any:
    a, b = pair(a, b)
    dtype = a.dtype
    kind = "f" if dtype.name in FLOATS else dtype.kind
    if op == "/":
        dtype = dtype if kind == "f" else np.dtype(np.float32)
        return np.asarray(cast(a, dtype.name) / cast(b, dtype.name)).astype(dtype)
    if op in ("//", "%") and kind != "f":
        safe = np.where(b == 0, 1, b).astype(dtype)
        done = a // safe if op == "//" else a % safe
        return np.where(b == 0, 0, done).astype(dtype)
    if op == "%" and dtype.name == "bfloat16":
        exact = np.remainder(a.astype(np.float64), b.astype(np.float64))
        return cast(exact, "bfloat16")
    if op in ("max", "min"):
        return np.asarray((np.maximum if op == "max" else np.minimum)(a, b)).astype(dtype)
    if op in ("<<", ">>"):
        width = dtype.itemsize * 8
        legal = (b >= 0) & (b < width)
        count = np.where(legal, b, 0).astype(dtype)
        if op == "<<":
            return np.where(legal, a << count, 0).astype(dtype)
        return np.where(legal, a >> count, np.where(a < 0, -1, 0) if kind == "i" else 0).astype(
            dtype
        )
    made = {
        "+": np.add, "-": np.subtract, "*": np.multiply, "%": np.remainder, "<": np.less,
        "<=": np.less_equal, "==": np.equal, "!=": np.not_equal, "&": np.bitwise_and,
        "|": np.bitwise_or, "^": np.bitwise_xor, ">": np.greater, ">=": np.greater_equal,
    }[op](a, b)  # fmt: skip
    return np.asarray(made)


def total(values: Any, op: str, axis: Any, keepdims: bool) -> Any:
    """sum, prod, max, min, any, all, argmax ... in the accumulator that docs/meaning.md names."""
    dtype = values.dtype.name
    if op in ("any", "all"):
        return np.asarray(getattr(np, op)(values != 0, axis=axis, keepdims=keepdims))
    if op in ("argmax", "argmin"):
        wide = values.astype(np.float64) if dtype in FLOATS else values
        return np.asarray(getattr(np, op)(wide, axis=axis, keepdims=keepdims))
    if op in ("max", "min"):
        wide = values.astype(np.float64) if dtype in FLOATS else values
        found = getattr(np, op)(wide, axis=axis, keepdims=keepdims)
        return np.asarray(found).astype(np.dtype(dtype))
    wide = values.astype(np.float64) if dtype in FLOATS else values
    if op == "mean":
        if dtype in FLOATS:
            inner = np.float64 if dtype == "float64" else np.float32
            added = np.asarray(wide.sum(axis=axis, keepdims=keepdims)).astype(inner)
            count = inner(values.size / max(added.size, 1))
            return cast(added / count, dtype)
        added = np.asarray(wide.sum(axis=axis, keepdims=keepdims)).astype(np.float32)
        return np.asarray(added / np.float32(values.size / max(added.size, 1)))
    if op in ("cumsum", "cumprod"):
        done = getattr(np, op)(wide, axis=axis)
    elif op in ("cummax", "cummin"):
        done = (np.maximum if op == "cummax" else np.minimum).accumulate(wide, axis=axis)
        return np.asarray(done).astype(values.dtype)
    else:
        done = getattr(np, op)(wide, axis=axis, keepdims=keepdims)
    return cast(done, dtype) if dtype in FLOATS else np.asarray(done)


def product(a: Any, b: Any) -> Any:
    a, b = pair(a, b)
    if a.dtype.name in FLOATS:
        return cast(a.astype(np.float64) @ b.astype(np.float64), a.dtype.name)
    return np.asarray(a @ b)


def tamed(values: Any) -> Any:
    """Whole numbers from -4 to 4."""
    if values.dtype.name not in FLOATS:
        return values
    clipped = np.where(np.isnan(values), 0, np.clip(values.astype(np.float64), -4, 4))
    return np.round(clipped).astype(values.dtype)


def tame(x: Tensor) -> Tensor:
    if not x.dtype.is_float:
        return x
    return (x != x).where(x.zeros_like(), x.clip(-4, 4).round())


def smooth(name: str, values: Any, axis: int = -1) -> Any:
    """A function that is compared with a tolerance."""
    dtype = values.dtype.name
    x = values.astype(np.longdouble)
    if name == "softmax":
        power = np.exp(x - x.max(axis, keepdims=True))
        done = power / power.sum(axis, keepdims=True)
    elif name == "sigmoid":
        done = 1 / (1 + np.exp(-x))
    elif name == "var":
        done = x.var(axis)
    elif name == "logsumexp":
        top = x.max(axis, keepdims=True)
        done = np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)
    else:
        done = getattr(np, name)(x)
    return np.asarray(done).astype(np.dtype(dtype) if dtype in FLOATS else np.float32)


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
            extents = [0, 1, 1, 2, 3, 4, 5, 7] if rng.random() < 0.15 else [1, 2, 3, 4, 5, 7]
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
    if op in ("//", "%") and w.rng.random() < 0.3:
        op = "//"
    b = _partner(w, a)
    if a is None or b is None:
        return
    kinds = {_kind(w.known[a].dtype), _kind(w.known[b].dtype)}
    if kinds == {"b"} and op in ("-", "%", "//"):
        return
    if op == "//" and "f" in kinds:
        return
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
    op = w.rng.choice(["+", "-", "*", "%", "<", ">=", "==", "max", "//" if "f" != _kind(dtype) else "/"])  # fmt: skip
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
    if op == "mean" and _kind(dtype) in "iu":
        source, array = f"{a}.cast('int8')", f"tp.cast({a}, 'int8')"
    w.add(
        f"@ = {source}.{op}(axis={axis}, keepdims={keep})",
        f"@ = tp.total({array}, {op!r}, {axis}, {keep})",
    )


def scanned(w: Writer) -> None:
    a = w.any(rank=1)
    if a is None:
        return
    axis = w.rng.randrange(len(w.known[a].shape))
    op = w.rng.choice(["cumsum", "cumsum", "cummax", "cummin"])
    source, array = (f"tp.tame({a})", f"tp.tamed({a})") if op == "cumsum" else (a, a)
    w.add(f"@ = {source}.{op}({axis})", f"@ = tp.total({array}, {op!r}, {axis}, False)")


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
        w.add(f"@ = {a}.cat({', '.join(others)}, axis={axis})", f"@ = np.concatenate([{listed}], {axis})")  # fmt: skip
    else:
        w.add(f"@ = {a}.stack({', '.join(others)}, axis={axis})", f"@ = np.stack([{listed}], {axis})")  # fmt: skip


def multiplied(w: Writer) -> None:
    a = w.any(rank=1)
    if a is None:
        return
    size = w.known[a].shape
    b = next((n for n, v in reversed(w.known.items()) if v.shape[-2:-1] == size[-1:] and len(v.shape) == 2), None)  # fmt: skip
    if b is None:
        before = len(w.statements)
        w.leaf((size[-1], w.rng.randint(1, 4)))
        if len(w.statements) == before:
            return
        b = w.statements[-1].name
    w.add(
        f"@ = tp.tame({a}).matmul(tp.tame({b}))",
        f"@ = tp.product(tp.tamed({a}), tp.tamed({b}))",
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


def settled(w: Writer) -> None:
    a = w.any()
    if a is not None:
        w.add(f"{a}.realize()", f"{a} = {a}", name=a)


KINDS: Final = (
    arithmetic, arithmetic, arithmetic, with_number, bits, unary, converted, chosen, reduced,
    reduced, scanned, moved, moved, indexed, indexed, assigned, assigned, joined, multiplied,
    functions, settled,
)  # fmt: skip


def program(seed: int) -> Program:
    """The program of a seed: the same in every process."""
    w = Writer(random.Random(seed))
    for _ in range(w.rng.randint(1, 3)):
        w.leaf()
    for _ in range(w.rng.randint(2, 14)):
        w.rng.choice(KINDS)(w)
    names = list(w.known)
    outputs = [names[-1], *w.rng.sample(names, min(len(names), w.rng.randint(0, 3))), *w.rough]
    return Program(seed, w.statements, list(dict.fromkeys(outputs)))


# ---- running programs


def _space() -> dict[str, Any]:
    import tensor_programs

    return {**NAMES, "tp": tensor_programs}


def run_array(statement: Statement, space: dict[str, Any]) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        exec(statement.array, {**_space()}, space)  # noqa: S102  programs are made here
    space[statement.name] = np.array(space[statement.name], copy=True)


def failure(made: Program, device: str) -> str | None:
    """What the device gets wrong, in a line; None: nothing."""
    arrays: dict[str, Any] = {}
    for statement in made.statements:
        run_array(statement, arrays)
    missing = [name for name in made.outputs if name not in arrays]
    if missing:
        raise NameError(f"nothing makes {missing[0]}")
    tensors: dict[str, Any] = {}
    space = {**_space(), "DEVICE": device}
    try:
        for statement in made.statements:
            exec(statement.tensor, space, tensors)  # noqa: S102
        realize_all([tensors[name] for name in made.outputs])
        found = {name: tensors[name].numpy() for name in made.outputs}
    except Exception as error:  # whatever it is, it is a finding
        return f"{type(error).__name__}: {error}"
    rough = {s.name for s in made.statements if not s.exact}
    for name in made.outputs:
        got, want, held = found[name], arrays[name], tensors[name].dtype.name
        if held != want.dtype.name or got.shape != want.shape:
            return f"{name} is {held} {got.shape}, and {want.dtype} {want.shape} in NumPy"
        want = want.astype(numpy_dtype(tensors[name].dtype))
        if name in rough:
            if not np.allclose(got, want, TOLERANCE[held], TOLERANCE[held], equal_nan=True):
                return f"{name} is off by more than the tolerance"
        elif not np.array_equal(got, want, equal_nan=want.dtype.kind == "f"):
            return f"{name} differs"
    return None


def shrunk(made: Program, device: str) -> Program:
    """The program with everything left out that the failure does not need."""
    smaller = True
    while smaller:
        smaller = False
        for output in made.outputs:
            fewer = Program(made.seed, made.statements, [n for n in made.outputs if n != output])
            if fewer.outputs and _fails(fewer, device):
                made, smaller = fewer, True
                break
        for at in reversed(range(len(made.statements))):
            rest = made.statements[:at] + made.statements[at + 1 :]
            fewer = Program(made.seed, rest, made.outputs)
            if _fails(fewer, device):
                made, smaller = fewer, True
                break
    return made


def _fails(made: Program, device: str) -> bool:
    try:
        return failure(made, device) is not None
    except (NameError, ValueError, IndexError, TypeError, KeyError):
        return False  # no program any more: something that it needs was left out
