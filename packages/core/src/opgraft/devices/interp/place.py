"""A place in a program, for errors: the kernel, the line and the text of an instruction."""

from __future__ import annotations

from typing import NoReturn

from opgraft.api import LinearProgram, UOp, errors, linear_to_text, node_to_text
from opgraft.devices.interp.frame import Frame


class Place:
    """An instruction of a program, by its place in the list of them."""

    def __init__(self, program: LinearProgram, number: int) -> None:
        self.program, self.number = program, number

    @property
    def kernel(self) -> str:
        return self.program.name

    def __str__(self) -> str:
        """The instruction as the text form writes it, and the line there."""
        lines = linear_to_text(self.program).splitlines()
        line = lines.index("body") + 1 + self.number
        return f"`{lines[line].strip()}` (line {line + 1})"

    def missing(self, n: UOp) -> NoReturn:
        """The error of an operation that INTERP lacks."""
        raise errors.DeviceError(
            f"kernel {self.kernel!r}: INTERP has no {n.op.name}: {node_to_text(n)}",
            remedy="Lowering must rewrite it for the target of INTERP.",
        )

    def fail(self, frame: Frame, instance: int, does: str, remedy: str) -> NoReturn:
        """The error of what this instruction does, carried out for one instance."""
        who = "" if frame.grid is None else f" in {frame.grid.name(instance)}"
        raise errors.DeviceError(f"kernel {self.kernel!r}: {self}{who} {does}", remedy=remedy)
