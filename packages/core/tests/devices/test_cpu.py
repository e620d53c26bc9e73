"""The CPU: kernels of the C calling convention, alone and in lists."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np
import pytest

from opgraft.devices.cpu import host
from opgraft.devices.cpu.device import CpuDevice
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError
from opgraft.ir import UOp
from opgraft.settings import using

from .c_kernels import AFFINE, HEAD, N, floats, increment, load, read

# ---- kernels


def test_a_kernel_gets_its_buffers_its_variables_and_its_part(device: CpuDevice) -> None:
    n = UOp.variable("n", -5, 5)
    slope = UOp.variable("slope", 0.0, 1.0, dtypes.float64)
    params = ((dtypes.float32, 3), (dtypes.float32, 3))
    kernel = load(device, "affine", AFFINE, params, variables=(n, slope), parallel=3)
    out, x = floats(device, 0, 0, 0), floats(device, 1, 2, 4)
    seconds = kernel.run([out, x], (-3, 0.5), wait=True)
    assert read(out).tolist() == [-2.5, -2.0, -1.0]
    assert seconds is not None
    assert 0 < seconds < 1
    assert kernel.run([out, x], (-3, 0.5)) is None


def test_the_parallel_range_may_depend_on_a_variable(device: CpuDevice) -> None:
    n = UOp.variable("n", 0, 8)
    source = f"void mark{HEAD}{{for(long long i=begin;i<end;i++)((float*)b[0])[i]=v[0];}}"
    params = ((dtypes.float32, 8),)
    kernel = load(device, "mark", source, params, variables=(n,), parallel=(n + 1) // 2)
    out = floats(device, 0, size=8)
    for count, marked in ((0, 0), (1, 1), (5, 3), (8, 4)):
        out.copy_in(np.zeros(8, np.float32))
        kernel.run([out], (count,))
        assert read(out).tolist() == [count] * marked + [0] * (8 - marked)


@pytest.mark.parametrize(
    ("sizes", "variables", "message"),
    [
        ((12,), (0, 0.5), "takes 2 buffers and 2 variables, not 1 and 2"),
        ((12, 12), (0,), "not 2 and 1"),
        ((12, 8), (0, 0.5), "buffer 1 has 8 bytes of 12"),
        ((12, 12), (6, 0.5), "variable n is 6, not in -5 .. 5"),
        ((12, 12), (0, float("nan")), "variable slope is nan"),
    ],
)
def test_a_call_that_would_reach_beyond_its_arguments_is_refused(
    device: CpuDevice, sizes: tuple[int, ...], variables: tuple[float, ...], message: str
) -> None:
    n = UOp.variable("n", -5, 5)
    slope = UOp.variable("slope", 0.0, 1.0, dtypes.float64)
    params = ((dtypes.float32, 3), (dtypes.float32, 3))
    kernel = load(device, "affine", AFFINE, params, variables=(n, slope), parallel=3)
    buffers = [device.buffer(size) for size in sizes]
    with pytest.raises(DeviceError, match=message):
        kernel.run(buffers, variables)
    with pytest.raises(DeviceError, match=message):
        device.prepare([(kernel, buffers, variables)])


def test_a_lone_launch_uses_the_block_of_the_last_one(device: CpuDevice) -> None:
    kernel = increment(device, 64)
    one, other = floats(device, 0, size=64), floats(device, 5, size=64)
    kernel.run([one])
    blocks = list(kernel._blocks)
    with pytest.raises(DeviceError, match="takes 1 buffers"):
        kernel.run([one, other])  # leaves nothing behind
    kernel.run([other])
    device.run_list([(kernel, [other], ())])
    assert (read(one) == 1).all()
    assert (read(other) == 7).all()
    assert len(blocks) == len(kernel._blocks) == 1
    there = weakref.ref(kernel)
    del kernel
    assert there() is None  # not even the garbage collector is needed


def test_a_library_without_the_kernel_is_refused(device: CpuDevice) -> None:
    with pytest.raises(DeviceError, match="no function 'other'"):
        load(device, "other", "void kernel(void){}")


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [64, 4096, N])
def test_every_part_is_run_once_whatever_the_threads(
    device: CpuDevice, threads: int, size: int
) -> None:
    kernel = increment(device, size, operations=10**7)
    out = floats(device, 0, size=size)
    steps = device.prepare([(kernel, [out], ())] * 10)
    with using(CPU_THREADS=threads):
        for _ in range(20):
            steps.run()
    assert (read(out) == 200).all()
    if threads > 1 and size > 64:
        assert device.library.og_workers() >= threads - 1


def test_kernels_of_a_list_see_what_those_before_them_wrote(device: CpuDevice) -> None:
    # each parallel step reads, from other places, what all threads wrote in the step before
    source = f"""void shift{HEAD}{{
 int*o=b[0];const int*x=b[1];
 for(long long i=begin;i<end;i++)for(int j=0;j<64;j++)o[64*i+j]=x[(64*i+j+{N // 2})%{N}]+1;
}}"""
    kernel = load(device, "shift", source, ((dtypes.int32, N),) * 2, parallel=N // 64)
    a, b = device.buffer(4 * N), device.buffer(4 * N)
    a.copy_in(np.zeros(N, np.int32))
    with using(CPU_THREADS=3):
        device.run_list([(kernel, [b, a], ()), (kernel, [a, b], ())] * 50)
    assert (np.frombuffer(a.bytes(), np.int32) == 100).all()


def test_subnormals_are_kept_though_another_library_flushes_them(device: CpuDevice) -> None:
    if host.machine() != "x86-64":
        pytest.skip("the control register is x86's")
    source = f"""
void flush(void){{__builtin_ia32_ldmxcsr(0x9fc0);}}
void reset(void){{__builtin_ia32_ldmxcsr(0x1f80);}}
void halve{HEAD}{{float*o=b[0];o[0]*=0.5f;}}
"""
    kernel = load(device, "halve", source, ((dtypes.float32, 1),))
    tiny = floats(device, float(np.finfo(np.float32).tiny))
    library = ctypes.CDLL(kernel.program.path)
    try:
        library.flush()
        kernel.run([tiny])
    finally:
        library.reset()
    assert read(tiny)[0] == np.finfo(np.float32).tiny / 2


# ---- lists


def test_a_list_takes_other_inputs_and_parts_of_them(device: CpuDevice) -> None:
    source = f"void add{HEAD}{{float*o=b[0];const float*x=b[1],*y=b[2];o[0]=x[0]+10*y[0];}}"
    kernel = load(device, "add", source, ((dtypes.float32, 1),) * 3)
    x, out = floats(device, 0, 0, 0, 0), floats(device, 0)
    steps = device.prepare([(kernel, [out, x.view(4, 4), x.view(12, 4)], ())], [x])
    given = weakref.ref(x)
    del x
    assert given() is None
    for first in (1.0, 2.0):
        fresh = floats(device, 9, first, 9, 3)
        seconds = steps.run([fresh], wait=True)
        assert seconds is not None
        assert read(out)[0] == first + 30
    given = weakref.ref(fresh)
    del fresh
    assert given() is None
    for wrong in ([], [out], [floats(device, 1, 2, 3, 4)] * 2):
        with pytest.raises(ValueError, match="input"):
            steps.run(wrong)


def test_a_list_binds_variables_by_name(device: CpuDevice) -> None:
    n = UOp.variable("n", 0, 8)
    source = f"void mark{HEAD}{{for(long long i=begin;i<end;i++)((float*)b[0])[i]=v[0];}}"
    kernel = load(device, "mark", source, ((dtypes.float32, 8),), variables=(n,), parallel=n)
    out = floats(device, 0, size=8)
    steps = device.prepare([(kernel, [out], (2,))])
    steps.run()
    assert read(out).tolist() == [2, 2, 0, 0, 0, 0, 0, 0]
    steps.run(variables={"n": 4})
    assert read(out).tolist() == [4, 4, 4, 4, 0, 0, 0, 0]
    with pytest.raises(DeviceError, match="variable n is 9"):
        steps.run(variables={"n": 9})


def test_an_empty_list_runs(device: CpuDevice) -> None:
    assert device.run_list([], wait=True) is not None


def test_a_kernel_in_a_list_costs_next_to_nothing(device: CpuDevice) -> None:
    # 0.002 us measured; the bound leaves room for a busy machine
    kernel = load(device, "nothing", f"void nothing{HEAD}{{}}")
    steps = device.prepare([(kernel, [], ())] * 10_000)
    best = min(steps.run(wait=True) or 1.0 for _ in range(10))
    assert best / 10_000 < 0.1e-6
