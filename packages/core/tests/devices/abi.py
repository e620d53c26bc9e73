"""Writes devices/cpu/_abi.py, cffi's table of runtime.h, so that no process parses C to start."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import opgraft.devices.cpu

FOLDER = Path(opgraft.devices.cpu.__file__).parent
HEAD = '"""Made from runtime.h by cffi (tests/devices/abi.py); not edited by hand."""\n\n'
MARKS = "# ruff: noqa\n# fmt: off\n# mypy: ignore-errors\n"


def generate() -> str:
    """The text of _abi.py for the present runtime.h."""
    import cffi

    maker = cffi.FFI()
    maker.set_source("opgraft.devices.cpu._abi", None)
    maker.cdef(re.sub(r"/\*.*?\*/", "", (FOLDER / "runtime.h").read_text(), flags=re.DOTALL))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "_abi.py"
        maker.emit_python_code(str(made))
        return MARKS + HEAD + made.read_text().replace("# auto-generated file\n", "")


if __name__ == "__main__":
    (FOLDER / "_abi.py").write_text(generate())
