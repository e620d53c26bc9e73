"""A forked child uses tensors, whatever other threads of its parent were doing."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from opgraft.forking import ForkLock
from opgraft_tensor import Tensor, autograd, capture, plan, random
from opgraft_tensor.nn import module

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

LOCKS = {
    "autograd": autograd._lock,
    "nn": module._lock,
    "capture": capture._capturing,
    "random": random._default._lock,
    "plans": plan.plans._lock,
}


def _use_tensors() -> bool:
    """Something that takes every lock: leaves, a generator, a module's updates, plans."""
    x = Tensor([1.0, 2.0], device="INTERP").requires_grad_()
    y = (x * x + Tensor.rand(2, device="INTERP") * 0).sum()
    y.backward()
    assert x.grad is not None
    module.note_update(x)
    return x.grad.tolist() == [2.0, 4.0] and len(module.take_updates()) == 1


def _wait(child: int, seconds: float) -> int | None:
    """The child's exit status; None: it is still there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_another_thread_held_is_free_in_a_child(name: str) -> None:
    lock: Any = LOCKS[name]
    assert isinstance(lock, ForkLock)
    assert _use_tensors()
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            leave.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(5)
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if _use_tensors() else 2
        finally:
            os._exit(code)
    status = _wait(child, 10)
    leave.set()
    holder.join()
    assert status == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_computes_what_its_parent_left_lazy() -> None:
    x = Tensor(np.arange(6.0), device="CPU").sum()
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if x.item() == 15 else 2
        finally:
            os._exit(code)
    assert _wait(child, 20) == 0
    assert x.item() == 15
