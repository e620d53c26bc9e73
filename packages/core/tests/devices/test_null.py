"""NULL: everything but the running."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_forms import kernels
from opgraft import settings, using
from opgraft.devices import null
from opgraft.devices.null import NullDevice
from opgraft.dtype import dtypes
from opgraft.errors import DeviceError, DeviceMemoryError
from opgraft.ir import Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.ir.text import parse_linear
from opgraft.runtime import Program, compile_kernel


def negated(size: int = 64) -> UOp:
    i = UOp.range(size, 0)
    out, x = (UOp(Ops.PARAM, dtypes.float32, (), (slot, size)) for slot in range(2))
    return UOp.sink(out.store(i, -x.load(i)).end(i), arg=KernelInfo("negated"))


def test_it_compiles_and_records_and_runs_nothing() -> None:
    device = NullDevice()
    kernel = compile_kernel(device, negated())
    assert "void og_negated(void**buffers" in kernel.program.source
    assert kernel.program.binary == b""
    buffers = [device.buffer(256) for _ in range(2)]
    assert kernel.run(buffers) is None
    assert device.run_list([(kernel, buffers, ())] * 3, wait=True) == 0.0
    assert [launch.program.name for launch in device.launches] == ["negated"] * 4
    assert device.count == 4
    device.forget()
    assert (list(device.launches), device.count) == ([], 0)
    with pytest.raises(DeviceError, match="takes 2 buffers, not 1"):
        kernel.run(buffers[:1])


def test_buffers_have_sizes_and_no_memory() -> None:
    device = NullDevice()
    huge = device.buffer(1 << 44)
    assert device.allocator.usage.bytes == 1 << 44
    part = huge.view(1 << 40, 16)
    part.copy_in(bytes(range(16)))
    out = np.ones(4, np.float32)
    part.copy_out(out)
    assert out.tolist() == [0.0] * 4
    assert huge.memory() is None
    with pytest.raises(DeviceMemoryError):
        device.buffer(1 << 60)


def test_a_c_compiler_behind_it_is_used_where_it_is_named() -> None:
    device = NullDevice()
    assert device.pairs.select().pair.name == "C"
    try:
        device.pairs.select("GCC")
    except DeviceError:
        pytest.skip("no gcc is here")
    with settings.using(NULL_CC="GCC"):
        assert compile_kernel(device, negated()).program.binary[:4] == b"\x7fELF"


def test_it_is_only_used_by_name() -> None:
    (spec,) = null.opgraft_devices()
    assert spec.priority < 0
    assert spec.probe().count == 1
    assert spec.open(2).name == "NULL:2"
    assert list(null.opgraft_compiler_pairs("CPU")) == []


@pytest.mark.parametrize("name", ["LANES32", "LANES64"])
def test_it_lowers_for_invented_devices_with_grids_and_notes_their_launches(name: str) -> None:
    device = NullDevice()
    sink = kernels.matmul(64, 64, 64)
    with using(NULL_CC=name):
        assert device.target.name == name
        executable = compile_kernel(device, sink)
        executable.run([device.buffer(4 * 4096) for _ in range(3)])
    launched = device.launches[-1].program
    # as many threads as the tiles of the matrix unit take
    assert launched.launch == ((4, 4), {"LANES32": (32, 4), "LANES64": (64, 1)}[name])
    assert "barrier" in launched.source
    assert device.target.name == "NULL"


def test_a_program_over_the_limits_of_an_invented_device_is_refused() -> None:
    device = NullDevice()
    text = 'linear["k"]\nbody\n  barrier\nlaunch[(70000,), (300,)]\n'
    program = Program.of(parse_linear(text))
    with using(NULL_CC="LANES32"), pytest.raises(DeviceError) as raised:
        device.load(program)
    assert "300 threads of a group, where 256 is the most" in str(raised.value)
    assert "70000 groups in a dimension, where 65535 is the most" in str(raised.value)
    with using(NULL_CC="LANES64"):
        device.load(program)
