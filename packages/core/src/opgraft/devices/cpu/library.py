"""Shared libraries: the C runtime, and compiled kernels, brought into the process."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final, TypeVar

from opgraft.api import ForkLock, compile_cache, errors
from opgraft.devices.cpu._abi import ffi
from opgraft.devices.cpu.compilers import CCompiler

T = TypeVar("T")

_NOW: Final = getattr(os, "RTLD_NOW", 2) | getattr(os, "RTLD_LOCAL", 0)
# the runtime's threads wait inside its code: it is never unloaded
_FOREVER: Final = _NOW | getattr(os, "RTLD_NODELETE", 0)

# a third quicker to compile than at -O1, and no slower to run: with a new cache a process waits for
# it; below -O1 zig would look for undefined behaviour, with a library of its own
_FLAGS: Final = ("-Og", "-fno-sanitize=undefined")

_lock: Final = ForkLock()
_loaded: Final[list[Any]] = []


def begin_runtime(compilers: Callable[[], Iterable[CCompiler]]) -> None:
    """Have the runtime brought in: now if the cache has it, else in the background."""
    with _lock:
        if _loaded:
            return
        source = _source()
        for compiler in compilers():
            entry = compile_cache().get(_key(compiler, source))
            if entry is not None:
                with suppress(OSError):
                    _loaded.append(from_file(entry.data, entry.path, _load_for_ever))
                    return
            break
    context = contextvars.copy_context()

    def work() -> None:
        # the error is raised again to whoever needs the runtime
        with suppress(errors.DeviceError):
            context.run(runtime, compilers)

    threading.Thread(target=work, name="opgraft CPU runtime").start()


def runtime(compilers: Callable[[], Iterable[CCompiler]]) -> Any:
    """The C runtime as a cffi library: one per process, by the first compiler that manages.

    Unlike kernels it needs the system's headers, which a compiler may be without.
    """
    with _lock:
        if _loaded:
            return _loaded[0]
        source = _source()
        tried: list[tuple[str, str]] = []
        for compiler in compilers():
            try:
                entry = compile_cache().get_or_make(
                    _key(compiler, source), partial(compiler.build, source, _FLAGS)
                )
                made = from_file(entry.data, entry.path, _load_for_ever)
            except (errors.CompileError, OSError) as error:
                tried.append((compiler.name, str(error)))
            else:
                _loaded.append(made)
                return made
        raise errors.DeviceError(
            "the C runtime of the CPU device cannot be compiled and loaded",
            tried=tuple(tried),
            remedy="It takes the C library's headers (apt install libc6-dev), or another compiler: "
            "choose it with the setting CPU_CC.",
        )


def _source() -> str:
    with open(os.path.join(os.path.dirname(__file__), "runtime.c")) as file:
        return file.read()


def _key(compiler: CCompiler, source: str) -> str:
    return "\n".join(["cpu runtime", compiler.key, *_FLAGS, source])


def _load_for_ever(path: str) -> Any:
    return ffi.dlopen(path, _FOREVER)


def from_file(data: bytes, path: str, load: Callable[[str], T]) -> T:
    """`load` of a file that holds a library: the cache's own, else one made for the purpose.

    The folders of the cache and of temporary files may forbid to run code from them: then the
    library comes from memory. Raises `OSError` of the last try.
    """
    if path:
        try:
            return load(path)
        except OSError:
            pass  # it has gone, or the folder forbids it
    import tempfile  # late: the cache's file nearly always does

    try:
        with tempfile.NamedTemporaryFile(prefix="opgraft-", suffix=".so") as file:
            file.write(data)
            file.flush()
            return load(file.name)
    except OSError:
        if not hasattr(os, "memfd_create"):
            raise
    # Stays open: the loader knows libraries by name, and the name of a closed one is used again.
    number = os.memfd_create("opgraft")
    with open(number, "wb", closefd=False) as memory:
        memory.write(data)
    try:
        return load(f"/proc/self/fd/{number}")
    except OSError:
        os.close(number)
        raise


class Library:
    """A shared library of kernels, unloaded when it is no longer referred to."""

    __slots__ = ("_close", "_handle", "_symbol")

    def __init__(self, data: bytes, path: str) -> None:
        system = _system()
        self._close: Any = system.dlclose
        self._symbol: Any = system.dlsym
        self._handle: Any = ffi.NULL
        self._handle = from_file(data, path, _open)

    def address(self, name: str) -> int:
        """Where the function of this name begins; raises `DeviceError`."""
        found = int(self._symbol(self._handle, name.encode()))
        if not found:
            raise errors.DeviceError(f"the compiled library has no function {name!r}")
        return found

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            self._handle = None
            self._close(handle)


@cache
def _system() -> Any:
    """The system's loader, as a cffi library."""
    return ffi.dlopen(None)


def _open(path: str) -> Any:
    system = _system()
    complaint = system.dlerror  # looked up first: a look-up of cffi's forgets the complaint
    handle = system.dlopen(os.fsencode(path), _NOW)
    if not handle:
        said = complaint()
        raise OSError(ffi.string(said).decode(errors="replace") if said else f"{path}: no reason")
    return handle
