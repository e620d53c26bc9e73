"""What every renderer is: from a linear program to a source text for some compiler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from opgraft.ir.linear import LinearProgram
from opgraft.render.names import identifier
from opgraft.target import Target


class Renderer(ABC):
    """Writes linear programs as source text for one target.

    A renderer holds no state of a program: one may be used for many, from several threads.
    """

    suffix: ClassVar[str] = ".txt"
    """What a file with such a source is called at its end."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @abstractmethod
    def render(self, program: LinearProgram) -> str:
        """The source of the kernel. The same program gives the same text in every process."""

    def entry(self, name: str) -> str:
        """The symbol under which the kernel called `name` is found in what is compiled."""
        return identifier(name)
