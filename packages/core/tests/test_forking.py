"""Locks in forked children."""

from __future__ import annotations

import os
import signal
import threading
import weakref

import pytest

from opgraft.forking import ForkLock


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_lock_that_another_thread_holds_is_free_in_a_child() -> None:
    owner = ForkLock()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with owner:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        with owner, owner:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    done.set()
    thread.join(10)


def test_an_owner_is_not_kept_alive() -> None:
    owner = ForkLock()
    alive = weakref.ref(owner)
    del owner
    assert alive() is None
