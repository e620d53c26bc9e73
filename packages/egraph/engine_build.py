"""How cffi makes `opgraft_egraph._engine` of the C files in csrc (API mode, stable ABI).

`python setup.py build_ext --inplace` compiles it beside the Python files, for work in a checkout;
so does `pip install -e`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
SOURCES = Path("src") / "opgraft_egraph" / "csrc"
OPTIONS = (
    [] if sys.platform == "win32" else ["-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno"]
)


def declarations() -> str:
    """What csrc/interface.h declares, without the preprocessor's lines."""
    text = (HERE / SOURCES / "interface.h").read_text()
    return text.split("// cffi: begin\n")[1].split("// cffi: end")[0]


builder = FFI()
builder.cdef(declarations())
builder.set_source(
    "opgraft_egraph._engine",
    '#include "interface.h"',
    sources=[(SOURCES / "engine.c").as_posix()],
    depends=[path.relative_to(HERE).as_posix() for path in sorted((HERE / SOURCES).glob("*.[ch]"))],
    include_dirs=[SOURCES.as_posix()],
    extra_compile_args=OPTIONS,
    libraries=[] if sys.platform == "win32" else ["m"],
    # without a compiler the package installs all the same, and works with its Python engine
    optional=True,
)
