"""No file of core or tensor names a plugin: what a backend is called is the backend's affair.

Allowed, each with its reason:
- `egraph` as a value of OPTIMIZER and `EGRAPH` as its short form: design section 5 has core know
  the setting; what it must not know is the package.
- the conformance kit in the files of `cli/template` (they end in `.in` and are not read here): they
  are the text of a package that runs it, and nothing in the core does.
"""

from __future__ import annotations

import re
from pathlib import Path

PACKAGES = Path(__file__).parents[2]
SUFFIXES = (".py", ".c", ".h", ".toml", ".md")

WORDS = [
    "cuda",
    "nvrtc",
    "nvidia",
    "ptx",
    "cubin",
    "cudart",
    "cublas",
    "nvptx",
    "amd",
    "amdgpu",
    "rocm",
    "hip",
    "hiprtc",
    "amdhip",
    "gfx",
    "metal",
    "msl",
    "objc",
    "mtl",
    "opencl",
    "pocl",
    "oclgrind",
    "cl",
    "clspv",
    "vulkan",
    "webgpu",
    "wgsl",
    "spirv",
    "level_zero",
    "opgraft_cl",
    "opgraft_cuda",
    "opgraft_amd",
    "opgraft_metal",
    "opgraft_egraph",
    "opgraft_conformance",
    "opgraft-cl",
    "opgraft-cuda",
    "opgraft-amd",
    "opgraft-metal",
    "opgraft-egraph",
    "opgraft-conformance",
]
_WORD = re.compile(
    r"(?<![A-Za-z0-9])(" + "|".join(map(re.escape, WORDS)) + r")(?![A-Za-z0-9])", re.IGNORECASE
)


def offences(text: str) -> list[str]:
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if _WORD.search(line)
    ]


def sources() -> list[Path]:
    return [
        path
        for package in ("core", "tensor")
        for path in sorted((PACKAGES / package).rglob("*"))
        if path.suffix in SUFFIXES
        and not {"tests", "build", "dist"} & set(path.relative_to(PACKAGES).parts)
        and not any(part.endswith(".egg-info") for part in path.parts)
    ]


def test_no_file_of_core_or_tensor_names_a_plugin() -> None:
    found = {
        str(path.relative_to(PACKAGES)): rows
        for path in sources()
        if (rows := offences(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_the_search_finds_what_it_is_for() -> None:
    assert len(sources()) > 50
    for text in (
        "if device == 'CUDA':",
        "import opgraft_egraph",
        "pip install opgraft-cl",
        "OPGRAFT_CUDA_CC",
        "# as on AMD",
        "Device['CL:1']",
    ):
        assert offences(text), text
    for text in ("class Clang:", "CLANG", "metallic", "hipster", "clear", "OPTIMIZER=egraph"):
        assert not offences(text), text
