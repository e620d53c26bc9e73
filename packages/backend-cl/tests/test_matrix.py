"""The pair INTEL: products go to the matrix units of subgroups.

No device with them is at hand. So the programs run on INTERP, which takes the layouts at their
word, and clang's own OpenCL front end checks what the intrinsics are given.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opgraft.api import DType, KernelInfo, LinearProgram, Ops, Target, UOp, dtypes
from opgraft.devices.interp.executor import execute
from opgraft.ir import AxisKind
from opgraft.lower.pipeline import lower
from opgraft_cl import hardware
from opgraft_cl.renderer import SubgroupRenderer

f16, bf16, f32, i8, u8, i32 = (
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.int8,
    dtypes.uint8,
    dtypes.int32,
)
SHAPE = (20, 40, 48)
UNITS = {
    f16: ("intel_sub_group_f16_f16_matrix_mad_k16", f32),
    bf16: ("intel_sub_group_bf16_bf16_matrix_mad_k16", f32),
    i8: ("intel_sub_group_i8_i8_matrix_mad_k32", i32),
    u8: ("intel_sub_group_u8_u8_matrix_mad_k32", i32),
}
# the extension's declarations, for subgroups of 16 work-items and of 8
DECLARED = {
    16: "{sums}8 __attribute__((overloadable)) {name}(short8 a, int8 b, {sums}8 acc);\n",
    8: "{sums}8 __attribute__((overloadable)) {name}(int8 a, int8 b, {sums}8 acc);\n",
}


def device(lanes: int) -> Target:
    """What `hardware.detect` would say of a GPU with subgroups of so many work-items."""
    facts = {"extensions": ("cl_khr_fp16",), "subgroup_matrix": lanes, "exact_division": True}
    return replace(
        hardware.FALLBACK,
        compute=frozenset(dtypes.all) - {bf16, dtypes.float64},
        lanes=32,
        cores=8,
        extra=tuple(sorted(facts.items())),
    )


def product(dtype: DType, sums: DType) -> UOp:
    m, n, depth = SHAPE
    i, j = UOp.range(m, "i"), UOp.range(n, "j")
    k = UOp.range(depth, "k", AxisKind.REDUCE)
    a, b, out = (
        UOp(Ops.PARAM, d, (), (slot, size))
        for slot, size, d in ((1, m * depth, dtype), (2, depth * n, dtype), (0, m * n, sums))
    )
    value = a.load(i * depth + k).cast(sums) * b.load(k * n + j).cast(sums)
    store = out.store(i * n + j, value.reduce(Ops.ADD, k))
    return UOp.sink(store.end(i, j), arg=KernelInfo("product"))


def lowered(dtype: DType, lanes: int) -> tuple[LinearProgram, str]:
    renderer = SubgroupRenderer(device(lanes))
    program = lower(product(dtype, UNITS[dtype][1]), renderer.target)
    return program, renderer.render(program)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_a_product_goes_to_the_matrix_unit(dtype: DType, lanes: int) -> None:
    name, sums = UNITS[dtype]
    program, source = lowered(dtype, lanes)
    assert {n.arg.name for n in program.instructions if n.op is Ops.MATRIX} == {name}
    assert f"{name}(" in source
    assert f"intel_reqd_sub_group_size({lanes})" in source
    assert program.launch[1][0] == lanes
    m, n, depth = SHAPE
    pick = np.random.default_rng(0)
    low = 0 if dtype is u8 else -9
    a, b = pick.integers(low, 9, (m, depth)), pick.integers(low, 9, (depth, n))
    out = np.zeros(m * n, sums.name)

    def stored(values: np.ndarray) -> np.ndarray:
        if dtype is bf16:
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).reshape(-1)
        return values.astype(dtype.name).reshape(-1)

    execute(program, [out, stored(a), stored(b)])
    assert np.array_equal(out.reshape(m, n), a @ b)


def clang() -> list[str]:
    found = next(
        (c for c in ("clang", "clang-19", "clang-15", "clang-14") if shutil.which(c)), None
    )
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "clang"]
    pytest.skip("no clang to check OpenCL C with, and no Python package ziglang")


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_the_source_is_opencl_c_with_the_extension(
    tmp_path: Path, dtype: DType, lanes: int
) -> None:
    name, sums = UNITS[dtype]
    _, source = lowered(dtype, lanes)
    words = "float" if sums is f32 else "int"
    path = tmp_path / "product.cl"
    path.write_text(DECLARED[lanes].format(sums=words, name=name) + source)
    command = [*clang(), "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header"]
    command += ["-target", "spir64", "-Werror", "-Wno-unused-value", "-fsyntax-only", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{source}"
    # a wrong operand would not get through
    path.write_text(path.read_text().replace("int8 b,", "int4 b,"))
    assert subprocess.run(command, capture_output=True).returncode != 0
