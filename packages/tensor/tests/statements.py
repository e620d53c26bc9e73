"""A program of Tensor's methods: run on a device and in NumPy, compared, cut down, printed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import tensor_meaning
from opgraft_tensor import Tensor, realize_all
from oracle import numpy_dtype

NAMES: Final = {"np": np, "Tensor": Tensor, "tp": tensor_meaning}
TOLERANCE: Final = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-11}


@dataclass(frozen=True)
class Statement:
    name: str
    tensor: str
    array: str
    exact: bool = True


@dataclass
class Program:
    seed: int
    statements: list[Statement]
    outputs: list[str]

    @property
    def dropped(self) -> list[str]:
        """In half of the programs, the names that nobody holds any more when values are asked."""
        names = dict.fromkeys(s.name for s in self.statements if s.name not in self.outputs)
        return list(names) if self.seed % 2 else []

    def source(self, device: str) -> str:
        """The program as Python that prints each value and what it ought to be."""
        lines = ["import numpy as np", "import tensor_meaning as tp", f"# seed {self.seed}"]
        lines += ["from opgraft_tensor import Tensor, realize_all", f"DEVICE = {device!r}", ""]
        lines += [s.tensor for s in self.statements]
        if self.dropped:
            lines.append(f"del {', '.join(self.dropped)}")
        lines.append(f"realize_all([{', '.join(self.outputs)}])")
        lines += [f"found_{name} = {name}.numpy()" for name in self.outputs]
        lines += ["", "# the same with NumPy", "np.seterr(all='ignore')"]
        lines += [s.array for s in self.statements]
        lines += [f"print(found_{n}, {n}, sep='\\n')" for n in self.outputs]
        return "\n".join(lines)


def run_array(statement: Statement, space: dict[str, Any]) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        exec(statement.array, dict(NAMES), space)
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
    space = {**NAMES, "DEVICE": device}
    try:
        for statement in made.statements:
            exec(statement.tensor, space, tensors)
        for name in made.dropped:
            del tensors[name]
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
