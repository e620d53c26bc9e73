"""Run a kernel on a device, with Python numbers for its memory."""

from __future__ import annotations

import array
from typing import Any

import numpy as np

from opgraft import DType, dtypes
from opgraft.devices.interp.executor import execute as run_program
from opgraft.ir import UOp
from opgraft.ir.evaluate import bits_to_value, value_to_bits
from opgraft.ir.linear import LinearProgram
from opgraft.runtime import Device, compile_kernel

from .memory import parameters
from .oracle import Memory

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def encode(values: list[Any], dtype: DType) -> bytes:
    """The values as they lie in memory."""
    words = [value_to_bits(v, dtype) for v in values]
    return array.array(_CODES[dtype.itemsize], words).tobytes()


def decode(data: bytes, dtype: DType) -> list[Any]:
    words = array.array(_CODES[dtype.itemsize])
    words.frombytes(data)
    return [bits_to_value(w, dtype) for w in words]


def execute(
    device: Device, sink: UOp, memory: Memory, variables: dict[str, int] | None = None
) -> Memory:
    """The memory after the kernel ran on `device`; `memory` itself is left alone."""
    executable = compile_kernel(device, sink)
    buffers = []
    dtypes = {slot: p.dtype for slot, p in parameters(sink).items()}
    for slot, dtype in dtypes.items():
        data = encode(memory[slot], dtype)
        buffer = device.buffer(len(data))
        buffer.copy_in(memoryview(data))
        buffers.append(buffer)
    # those that the kernel's value does not depend on are gone
    names = [v.arg[0] for v in executable.program.variables]
    executable.run(buffers, tuple((variables or {})[n] for n in names), wait=True)
    result: Memory = {}
    for (slot, dtype), buffer in zip(dtypes.items(), buffers, strict=True):
        out = bytearray(buffer.nbytes)
        buffer.copy_out(memoryview(out))
        result[slot] = decode(bytes(out), dtype)
    return result


def interpret(
    program: LinearProgram, memory: Memory, variables: dict[str, int] | None = None
) -> Memory:
    """The memory after the interpreter carried out a program, whatever target it was made for.

    64-bit integers may have become pairs of words: the bytes in memory are the same.
    """
    slots = sorted(memory)
    arrays = []
    for slot, p in zip(slots, program.params, strict=True):
        kept = p.dtype if len(memory[slot]) == p.arg[1] else dtypes.int64
        arrays.append(np.frombuffer(bytearray(encode(memory[slot], kept)), np.uint8))
    run_program(program, arrays, variables or {})
    result: Memory = {}
    for slot, p, data in zip(slots, program.params, arrays, strict=True):
        kept = p.dtype if len(memory[slot]) == p.arg[1] else dtypes.int64
        result[slot] = decode(data.tobytes(), kept)
    return result
