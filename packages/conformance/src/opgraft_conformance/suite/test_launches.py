"""Launches: extents, limits and beyond, many arguments, variables, constants, names, order."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest

from opgraft.api import (
    Device,
    DType,
    KernelInfo,
    LinearProgram,
    Ops,
    Target,
    UOp,
    compile_kernel,
    compile_linear,
    dtypes,
    errors,
)
from opgraft.ir.evaluate import bits_to_value, value_to_bits
from opgraft_conformance import Fault, not_claimed
from opgraft_conformance.samples import (
    SIZE,
    affine,
    equal,
    param,
    prefix,
    put,
    run_affine,
    step,
    sum_of,
    take,
    total,
)
from opgraft_conformance.values import shown, words_of

MOST_BUFFERS = {"short": 127, "long": 1024}


# ---- extents


@pytest.mark.must
def test_nothing_parallel(device: Device) -> None:
    """A kernel without a parallel range runs once, not once per thread."""
    kernel = compile_kernel(device, total())
    given = np.arange(SIZE, dtype=np.int32)
    out = put(device, np.full(1, -1, np.int32))
    kernel.run([out, put(device, given)], wait=True)
    equal("the sum of a buffer", take(out), np.array([given.sum()]), kernel)
    counter = param(0, 1)
    loop = counter.store(0, counter.load(0) + 1)
    once = compile_kernel(device, UOp.sink(loop, arg=KernelInfo("once")))
    counted = put(device, np.zeros(1, np.int32))
    for _ in range(3):
        once.run([counted], wait=True)
    equal("a kernel that counts its runs", take(counted), np.array([3]), once)


@pytest.mark.must
@pytest.mark.parametrize(
    "shape",
    [
        (1,), (2,), (31,), (64,), (65,), (1000,), (65_536,), (65_539,),
        (1, 1, 1), (3, 1, 5), (2, 65_537), (70_001, 3), (2, 3, 5, 7, 11), (1 << 21,),
    ],
    ids=lambda shape: "x".join(map(str, shape)),
)  # fmt: skip
def test_extents(device: Device, shape: tuple[int, ...]) -> None:
    """Every element is computed, once, whatever the extents of the ranges."""
    ranges = [UOp.range(size, axis) for axis, size in enumerate(shape)]
    index = ranges[0]
    for one, size in zip(ranges[1:], shape[1:]):
        index = index * size + one
    count = math.prod(shape)
    value = param(0, count).load(index) * 3 + index.cast(dtypes.int32)
    sink = UOp.sink(param(0, count).store(index, value).end(*ranges), arg=KernelInfo("extents"))
    kernel = compile_kernel(device, sink)
    given = np.arange(count, dtype=np.int32) % 1009
    buffer = put(device, given)
    kernel.run([buffer], wait=True)
    wanted = given * 3 + np.arange(count, dtype=np.int32)
    equal(f"a kernel over {shape}", take(buffer), wanted, kernel)


@pytest.mark.must
def test_extent_beyond_the_limit(device: Device, capabilities: Target) -> None:
    """A range longer than a launch may be is folded."""
    limit = capabilities.max_parallel_size
    if limit > 1 << 22:
        not_claimed("a limit of a launch's extent below 4 Mi")
    for count in (limit, limit + 1, 3 * limit + 7):
        i = UOp.range(count, 0)
        out = param(0, count, dtypes.uint8)
        sink = UOp.sink(out.store(i, out.load(i) + 1).end(i), arg=KernelInfo("beyond"))
        kernel = compile_kernel(device, sink)
        given = np.arange(count, dtype=np.uint8)
        buffer = put(device, given)
        kernel.run([buffer], wait=True)
        what = f"a kernel over {count} elements, where a launch takes {limit}"
        equal(what, take(buffer, np.uint8), given + np.uint8(1), kernel)


@pytest.mark.must
def test_symbolic_extents(device: Device) -> None:
    """An extent that is a variable is that of each launch, nothing at all included."""
    size = 300
    kernel = compile_kernel(device, prefix(size, size))
    for count in (0, 1, 2, 63, 64, 65, 299, 300, 0):
        out = put(device, np.full(size, -1, np.int32))
        kernel.run([out], (count,), wait=True)
        wanted = np.where(np.arange(size) < count, np.arange(size) + 1, -1)
        equal(f"a kernel whose extent is {count} of {size}", take(out), wanted, kernel)


# ---- arguments


@pytest.mark.must
@pytest.mark.parametrize("buffers", [2, 3, 8, 31, 64, "most"])
def test_many_buffers(device: Device, capabilities: Target, effort: str, buffers: Any) -> None:
    """Kernels may have as many buffers as the target says."""
    most = min(capabilities.max_buffers, MOST_BUFFERS[effort])
    count = most if buffers == "most" else buffers
    if count > capabilities.max_buffers:
        not_claimed(f"{count} buffers in one kernel")
    kernel = compile_kernel(device, sum_of(count - 1, name=f"sum_of_{count - 1}"))
    inputs = [np.arange(SIZE, dtype=np.int32) * (slot + 1) + slot for slot in range(count - 1)]
    out = device.buffer(4 * SIZE)
    kernel.run([out, *(put(device, given) for given in inputs)], wait=True)
    equal(f"the sum of {count - 1} buffers", take(out), np.sum(inputs, axis=0), kernel)


@pytest.mark.should
@pytest.mark.parametrize("what", ["sum", "concatenation"])
def test_more_buffers_than_a_kernel_takes(device: Device, capabilities: Target, what: str) -> None:
    """Case E01: a graph with more buffers than one kernel takes is split."""
    if importlib.util.find_spec("opgraft_tensor") is None:
        pytest.skip("opgraft-tensor is not installed")
    from opgraft_tensor import Tensor, cat  # the kit does not need it

    count = min(max(40, capabilities.max_buffers + 9), 300)
    parts = [Tensor([k] * 5, device=device.name).realize() for k in range(count)]
    if what == "sum":
        whole = parts[0]
        for part in parts[1:]:
            whole = whole + part
        wanted = np.full(5, sum(range(count)))
    else:
        whole = cat(parts)
        wanted = np.repeat(np.arange(count), 5)
    equal(f"the {what} of {count} tensors", np.array(whole.tolist()), wanted)


@pytest.mark.must
def test_one_buffer_twice(device: Device) -> None:
    """One buffer may be two inputs, and parts of one buffer input and output."""
    kernel = compile_kernel(device, sum_of(2))
    given = np.arange(3 * SIZE, dtype=np.int32)
    whole = put(device, given)
    first, second, third = (whole.view(4 * SIZE * part, 4 * SIZE) for part in range(3))
    kernel.run([third, first, first], wait=True)
    equal("a sum of one buffer with itself", take(third), given[:SIZE] * 2, kernel)
    kernel.run([third, first, second], wait=True)
    wanted = given[:SIZE] + given[SIZE : 2 * SIZE]
    equal("a sum of two parts of a buffer into a third", take(third), wanted, kernel)
    equal("the parts that were read", take(whole)[: 2 * SIZE], given[: 2 * SIZE], kernel)


@pytest.mark.must
def test_in_place(device: Device) -> None:
    """A kernel may read and write one buffer at the same place."""
    kernel = compile_kernel(device, step(5000))
    buffer = put(device, np.arange(5000, dtype=np.int32))
    kernel.run([buffer], wait=True)
    equal("a kernel that works in place", take(buffer), np.arange(5000) * 3 + 1, kernel)


def _bounds(dtype: DType) -> list[Any]:
    if dtype.is_float:
        largest = float(dtype.max) if math.isfinite(dtype.max) else 1.0
        return [-2.5, 0.0, 0.15625, largest, -largest]
    return [dtype.min, dtype.max, 0, 1, dtype.max // 2 + 1, dtype.min + 1]


@pytest.mark.must
@pytest.mark.parametrize("dtype", [d for d in dtypes.all if not d.is_bool], ids=lambda d: d.name)
def test_variables(device: Device, dtype: DType) -> None:
    """A variable of each dtype arrives whole, its least and greatest value too."""
    values = [dtype.const(v) for v in _bounds(dtype)]
    variable = UOp.variable("v", min(values), max(values), dtype)
    i = UOp.range(4, 0)
    store = param(0, 4, dtype).store(i, variable)
    kernel = compile_kernel(device, UOp.sink(store.end(i), arg=KernelInfo(f"var_{dtype.name}")))
    for value in values:
        out = put(device, np.zeros(4, words_of(dtype)))
        kernel.run([out], (value,), wait=True)
        got = take(out, words_of(dtype))
        wanted = _as_words(dtype, [value] * 4)
        if (got != wanted).any():
            raise Fault(
                f"a variable of {dtype} does not arrive",
                {"given": value, "got": shown(got[0], dtype), "expected": shown(wanted[0], dtype)},
                kernel=kernel,
                hint="how Executable.run packs variables",
            )


@pytest.mark.must
def test_many_variables(device: Device) -> None:
    """Variables are handed over in the order of their names, indices and values among them."""
    names = [f"n{number}" for number in range(20)]
    variables = {name: UOp.variable(name, -1000, 1000, dtypes.int64) for name in names}
    value = UOp.const(dtypes.int64, 0)
    for weight, name in enumerate(names):
        value = value * 3 + variables[name] * (weight + 1)
    kernel = compile_kernel(
        device, UOp.sink(param(0, 1, dtypes.int64).store(0, value), arg=KernelInfo("variables"))
    )
    order = [variable.arg[0] for variable in kernel.program.variables]
    assert order == sorted(names)
    given = {name: 7 * number - 50 for number, name in enumerate(names)}
    wanted = 0
    for weight, name in enumerate(names):
        wanted = wanted * 3 + given[name] * (weight + 1)
    out = put(device, np.zeros(1, np.int64))
    kernel.run([out], tuple(given[name] for name in order), wait=True)
    equal("a kernel of 20 variables", take(out, np.int64), np.array([wanted]), kernel)


@pytest.mark.must
def test_errors_name_the_device(device: Device) -> None:
    """A kernel that is given too few buffers says which kernel and runs nothing."""
    executable = compile_kernel(device, affine())
    out = put(device, np.zeros(SIZE, np.int32))
    try:
        executable.run([out], wait=True)
    except errors.OpgraftError as error:
        if "affine" not in str(error) and device.kind not in str(error):
            raise Fault("the error names neither kernel nor device", {"got": error}) from None
    else:
        raise Fault(
            "a kernel that takes 2 buffers ran with 1",
            {"expected": "a DeviceError"},
            hint="Executable.run",
        )
    equal("the buffer of a launch that was refused", take(out), np.zeros(SIZE))


# ---- constants


def _as_words(dtype: DType, values: list[Any]) -> Any:
    """Values of a dtype as its words in memory."""
    return np.array([value_to_bits(v, dtype) for v in values], words_of(dtype))


def _constants(dtype: DType) -> list[Any]:
    if dtype.is_float:
        extremes = [dtype.max, -dtype.max, math.inf, -math.inf, 0.0, -0.0, math.nan]
        return [dtype.const(v) for v in (*extremes, 0.1, -1 / 3, 1e-7, 5e-324, 1e-40)]
    powers = [1 << bit for bit in range(dtype.bits - 1)]
    return [dtype.min, dtype.max, dtype.min + 1, dtype.max - 1, 0, *powers]


@pytest.mark.must
@pytest.mark.parametrize("dtype", [d for d in dtypes.all if not d.is_bool], ids=lambda d: d.name)
def test_constants(device: Device, capabilities: Target, dtype: DType) -> None:
    """The largest, smallest and oddest constants arrive in a kernel bit for bit."""
    values = _constants(dtype)
    stores = [
        param(0, len(values), dtype).store(n, UOp.const(dtype, v)) for n, v in enumerate(values)
    ]
    kernel = compile_kernel(device, UOp.sink(*stores, arg=KernelInfo(f"constants_{dtype.name}")))
    out = put(device, np.full(len(values), 1, words_of(dtype)))
    kernel.run([out], wait=True)
    got, wanted = take(out, words_of(dtype)), _as_words(dtype, values)
    for place, value in enumerate(values):
        both_nan = value != value and _is_nan(got[place], dtype)
        if got[place] != wanted[place] and not both_nan:
            raise Fault(
                f"a constant of {dtype} is another one in the kernel",
                {
                    "constant": repr(value),
                    "got": shown(got[place], dtype),
                    "expected": shown(wanted[place], dtype),
                },
                kernel=kernel,
                hint="how the renderer writes literals",
            )


def _is_nan(word: Any, dtype: DType) -> bool:
    value = bits_to_value(int(word), dtype)
    return bool(value != value)


@pytest.mark.must
def test_many_constants(device: Device) -> None:
    """A kernel with hundreds of different constants and as many stores."""
    count = 300
    values = [(number * 2_654_435_761) % (1 << 31) for number in range(count)]
    out = param(0, count)
    stores = [out.store(n, UOp.const(dtypes.int32, v)) for n, v in enumerate(values)]
    kernel = compile_kernel(device, UOp.sink(*stores, arg=KernelInfo("many_constants")))
    buffer = put(device, np.zeros(count, np.int32))
    kernel.run([buffer], wait=True)
    equal("a kernel of 300 constants", take(buffer), np.array(values), kernel)


@pytest.mark.must
@pytest.mark.claims("vectors of two lanes", lambda t: t.vector_bytes >= 8 and t.max_lanes >= 2)
def test_lanes_of_a_vector(device: Device) -> None:
    """Case E04: the lanes of a vector are those that were put in it, in their order."""
    pair = dtypes.int32.vec(2)
    out, given = param(0, 8), param(1, 4)
    at = [UOp.const(dtypes.int32, n) for n in range(8)]
    fixed = UOp(Ops.STACK, pair, (UOp.const(dtypes.int32, 3), UOp.const(dtypes.int32, 7)))
    loads = (given.load(at[0]), given.load(at[1]))
    mixed = UOp(Ops.STACK, pair, loads)
    turned = UOp(Ops.STACK, pair, (mixed.extract(1), mixed.extract(0)))
    stores = [out.store(at[0], fixed), out.store(at[2], mixed), out.store(at[5], turned)]
    body = [fixed, *loads, mixed, *turned.src, turned, *stores]
    program = LinearProgram("lanes", tuple(body), (out, given), written=(0,))
    kernel = compile_linear(device, program)
    buffer = put(device, np.full(8, -1, np.int32))
    kernel.run([buffer, put(device, [5, 6, 0, 0])], wait=True)
    wanted = np.array([3, 7, 5, 6, -1, 6, 5, -1])
    equal("lanes of vectors of two", take(buffer), wanted, kernel, "how the renderer writes STACK")


# ---- names

NAMES = {
    "keywords": ["if", "double", "half", "or", "asm", "kernel", "local", "thread", "__kernel",
                 "class", "void", "main", "global", "new", "this", "float4", "NULL", "uint"],
    "of_the_source": ["data0", "__x", "_", "gid", "begin", "end", "buffers", "variables", "sin",
                      "exp2", "min", "max", "barrier", "get_global_id", "memcpy", "printf"],
    "blanks_and_signs": ["a b", "a_b", "a-b", "a.b", "a\nb", "a\"b", "a\\b", "*/", "//", "%s", "$",
                         "0", "9lives", " "],
    "letters": ["größe", "ядро", "内核", "\U0001f980", "é", "é", "E", "e"],
    "escaped": ["if", "if_", "_if", "og_if", "og_og_if", "IF", "If", "Zz", "Z", "Z5fz"],
    "long": ["x" * 300, "x" * 299 + "y", "y" + "x" * 299, "é" * 300, "r_" * 200],
}  # fmt: skip


@pytest.mark.must
@pytest.mark.parametrize("kind", NAMES)
def test_names_of_kernels(device: Device, kind: str) -> None:
    """Case E08: kernels may have any name, and those of like names stay apart."""
    names = NAMES[kind]
    made = [compile_kernel(device, affine(plus=n, name=name)) for n, name in enumerate(names)]
    given = np.arange(SIZE, dtype=np.int32)
    for number, (name, kernel) in enumerate(zip(names, made)):
        got = run_affine(device, kernel, given)
        equal(f"the kernel named {name[:40]!r}", got, given * 3 + number, kernel, "Renderer.entry")
        assert kernel.program.name == name


@pytest.mark.must
@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind != "long"])
def test_names_of_variables(device: Device, kind: str) -> None:
    """Case E08: variables may have any name too, all of them in one kernel."""
    names = list(dict.fromkeys(NAMES[kind]))
    value = UOp.const(dtypes.int32, 0)
    for weight, name in enumerate(names):
        value = value + UOp.variable(name, 0, 100, dtypes.int32) * (weight + 1)
    kernel = compile_kernel(device, UOp.sink(param(0, 1).store(0, value), arg=KernelInfo("names")))
    order = [variable.arg[0] for variable in kernel.program.variables]
    out = put(device, np.zeros(1, np.int32))
    kernel.run([out], tuple(names.index(name) + 1 for name in order), wait=True)
    wanted = sum((n + 1) * (n + 1) for n in range(len(names)))
    equal(f"a kernel of variables named {kind}", take(out), np.array([wanted]), kernel)


# ---- order


@pytest.mark.must
def test_launches_in_order(device: Device) -> None:
    """Launches that depend on each other give what they give one by one."""
    size = 3000
    kernels = [compile_kernel(device, step(size, times, plus)) for times, plus in ((3, 1), (5, -2))]
    buffer = put(device, np.arange(size, dtype=np.int32))
    wanted = np.arange(size, dtype=np.int64)
    for turn in range(40):
        kernels[turn % 2].run([buffer])
        wanted = (wanted * (3, 5)[turn % 2] + (1, -2)[turn % 2]).astype(np.int32).astype(np.int64)
    what = "a buffer after 40 launches, none of them waited for"
    equal(what, take(buffer), wanted, kernels[0], "launches of a device happen in order")


@pytest.mark.must
def test_launches_between_buffers(device: Device) -> None:
    """A chain through several buffers, each launch reading what the one before wrote."""
    size = 1000
    kernel = compile_kernel(device, affine(size, times=1, plus=1))
    held = [put(device, np.zeros(size, np.int32)) for _ in range(5)]
    for turn in range(60):
        kernel.run([held[(turn + 1) % 5], held[turn % 5]])
    device.synchronize()
    equal("a chain of 60 launches over five buffers", take(held[0]), np.full(size, 60), kernel)
    equal("the buffer before it", take(held[4]), np.full(size, 59), kernel)
