"""Kernels written by hand in C, of the C renderer's calling convention, and their buffers."""

from __future__ import annotations

import numpy as np

from opgraft.devices.cpu.device import CpuDevice
from opgraft.devices.cpu.launch import CpuExecutable
from opgraft.dtype import DType, dtypes
from opgraft.ir import UOp
from opgraft.runtime import Buffer, Program
from opgraft.runtime.kernels import compiled

N = 1 << 16

HEAD = "(void**b,const long long*v,long long begin,long long end)"

INCREMENT = f"""
void increment{HEAD}{{
 float*o=b[0];
 for(long long i=begin;i<end;i++)for(int j=0;j<64;j++)o[64*i+j]+=1;
}}
"""

AFFINE = f"""
void affine{HEAD}{{
 float*o=b[0];const float*x=b[1];
 double slope=((union{{long long a;double b;}}){{v[1]}}.b);
 for(long long i=begin;i<end;i++)o[i]=x[i]*slope+v[0];
}}
"""


def load(
    device: CpuDevice,
    name: str,
    source: str,
    params: tuple[tuple[DType, int], ...] = (),
    *,
    variables: tuple[UOp, ...] = (),
    parallel: int | UOp | None = None,
    operations: int = 0,
    stack: int = 0,
) -> CpuExecutable:
    """Compile with the device's own choice of compiler, and load."""
    entry = compiled(device.pairs.select(""), source)
    return device.load(
        Program(
            name,
            source,
            entry.data,
            entry.path,
            params,
            variables=variables,
            parallel=parallel,
            operations=operations,
            stack=stack,
            written=(0,),
        )
    )


def increment(device: CpuDevice, size: int, operations: int | None = None) -> CpuExecutable:
    """Adds 1 to each of `size` float32, 64 to an iteration of the parallel range."""
    return load(
        device,
        "increment",
        INCREMENT,
        ((dtypes.float32, size),),
        parallel=size // 64,
        operations=size if operations is None else operations,
    )


def floats(device: CpuDevice, *values: float, size: int = 0) -> Buffer:
    """A buffer of these float32 values, or of `size` times the first."""
    array = np.full(size, values[0], np.float32) if size else np.array(values, np.float32)
    buffer = device.buffer(array.nbytes)
    buffer.copy_in(array)
    return buffer


def read(buffer: Buffer) -> np.ndarray:
    """The float32 values of a buffer."""
    return np.frombuffer(buffer.bytes(), np.float32)
