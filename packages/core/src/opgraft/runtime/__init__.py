"""Memory, compilers, programs and devices: everything between rendered source and a result."""

from opgraft.runtime.allocator import Allocator, Usage
from opgraft.runtime.buffer import Buffer
from opgraft.runtime.cache import CompileCache, Entry, compile_cache
from opgraft.runtime.compiler import Compiler, CompilerPair, CompilerSet, Selected
from opgraft.runtime.device import Device, DeviceSpec, Probe
from opgraft.runtime.keeping import KeepingAllocator
from opgraft.runtime.kernels import (
    KernelTable,
    compile_kernel,
    compile_kernels,
    compile_linear,
    lower_and_render,
)
from opgraft.runtime.program import (
    Executable,
    InputPlace,
    LaunchList,
    Program,
    Step,
    check_inputs,
    input_places,
    is_watched,
    show_launch,
)

__all__ = [
    "Allocator",
    "Buffer",
    "CompileCache",
    "Compiler",
    "CompilerPair",
    "CompilerSet",
    "Device",
    "DeviceSpec",
    "Entry",
    "Executable",
    "InputPlace",
    "KeepingAllocator",
    "KernelTable",
    "LaunchList",
    "Probe",
    "Program",
    "Selected",
    "Step",
    "Usage",
    "check_inputs",
    "compile_cache",
    "compile_kernel",
    "compile_kernels",
    "compile_linear",
    "input_places",
    "is_watched",
    "lower_and_render",
    "show_launch",
]
