"""Locks in forked children."""

from __future__ import annotations

import os
import threading
import weakref

import pytest

from opgraft.forking import renewed_in_children


class Owner:
    def __init__(self) -> None:
        self.renew_locks()
        renewed_in_children(self)

    def renew_locks(self) -> None:
        self.lock = threading.Lock()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_lock_that_another_thread_holds_is_free_in_a_child() -> None:
    owner = Owner()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with owner.lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    child = os.fork()
    if child == 0:
        os._exit(0 if owner.lock.acquire(timeout=5) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not owner.lock.acquire(blocking=False)
    done.set()
    thread.join(10)


def test_an_owner_is_not_kept_alive() -> None:
    owner = Owner()
    alive = weakref.ref(owner)
    del owner
    assert alive() is None
