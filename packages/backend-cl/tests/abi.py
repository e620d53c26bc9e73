"""Writes opgraft_cl/_abi.py, cffi's table of opencl.h, so that no process parses C to start."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "opgraft_cl"
HEAD = '"""Made from opencl.h by cffi (tests/abi.py); not edited by hand."""\n\n'
MARKS = "# ruff: noqa\n# fmt: off\n# mypy: ignore-errors\n"


def generate() -> str:
    """The text of _abi.py for the present opencl.h."""
    import cffi

    maker = cffi.FFI()
    maker.set_source("opgraft_cl._abi", None)
    maker.cdef(re.sub(r"/\*.*?\*/", "", (FOLDER / "opencl.h").read_text(), flags=re.DOTALL))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "_abi.py"
        maker.emit_python_code(str(made))
        return MARKS + HEAD + made.read_text().replace("# auto-generated file\n", "")


if __name__ == "__main__":
    (FOLDER / "_abi.py").write_text(generate())
