"""Dot instructions in GNU C: which builtin a compiler has for one is decided by its own macros.

A unit is found by its name and lanes; another one, or where no condition holds, is plain C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opgraft.ir.matrix import DotUnit

_INLINE: Final = "static inline __attribute__((always_inline))"


@dataclass(frozen=True)
class _Builtin:
    """A way to write a unit for so many lanes."""

    condition: str
    call: str
    """The value, of the words a and b and the sums c."""


_BUILTINS: Final[dict[tuple[str, int], tuple[_Builtin, ...]]] = {
    ("pairs16", 4): (
        _Builtin("defined(__SSE2__)", "c+(i32x4)__builtin_ia32_pmaddwd128((i16x8)a,(i16x8)b)"),
    ),
    ("pairs16", 8): (
        _Builtin("defined(__AVX2__)", "c+(i32x8)__builtin_ia32_pmaddwd256((i16x16)a,(i16x16)b)"),
    ),
    ("pairs16", 16): (
        _Builtin(
            "defined(__AVX512BW__)&&defined(__clang__)",
            "c+(i32x16)__builtin_ia32_pmaddwd512((i16x32)a,(i16x32)b)",
        ),
        _Builtin(
            "defined(__AVX512BW__)",
            "c+(i32x16)__builtin_ia32_pmaddwd512_mask((i16x32)a,(i16x32)b,(i32x16){},65535)",
        ),
    ),
    **{
        ("fours8", lanes): (
            _Builtin(f"({has})&&defined(__clang__)", f"__builtin_ia32_vpdpbusd{lanes * 32}(c,a,b)"),
            _Builtin(f"({has})", f"__builtin_ia32_vpdpbusd_v{lanes}si(c,a,b)"),
        )
        for lanes, has in (
            (4, "defined(__AVX512VNNI__)&&defined(__AVX512VL__)||defined(__AVXVNNI__)"),
            (8, "defined(__AVX512VNNI__)&&defined(__AVX512VL__)||defined(__AVXVNNI__)"),
            (16, "defined(__AVX512VNNI__)"),
        )
    },
}


def dot_product(name: str, kind: str, lanes: int, unit: DotUnit, plain: str) -> str:
    """The function `name(a, b, c)` of `lanes` lanes; `plain` is its body in plain C.

    The types i32 of so many lanes, and i16 of twice as many, are to be written before it.
    """
    head = f"{_INLINE} {kind} {name}({kind} a,{kind} b,{kind} c){{"
    lines: list[str] = []
    for builtin in _BUILTINS.get((unit.name, lanes), ()):
        lines.append(f"#{'elif' if lines else 'if'} {builtin.condition}")
        lines.append(f"{head}return {builtin.call};}}")
    if not lines:
        return f"{head}\n{plain}"
    return "\n".join([*lines, "#else", head, plain, "#endif"])
