"""What only one thread of a process may do at a time, and how a fork finds it: finished, and the lock free."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def shared_lock() -> "threading.RLock":
    """Return a lock for the threads of a process, which a fork waits for, so that the child finds it free."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


class Turns:
    """Who enters waits for who is inside, thread by thread; a thread may enter again.

    Unlike a shared lock no fork waits for it, since what is done inside may last hours: a child finds it free.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for one's turn, and keep it."""
        with self._lock:
            yield


COMPUTING = shared_lock()
"""Held while a kernel runs on several threads, or while the matrix libraries are limited to one.

No child inherits a limit that nobody lifts.
"""


TRAINING = Turns()
"""Taken by a training: torch has one random generator, and one set of switches, for all threads of a process."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the matrix libraries (BLAS, OpenMP) on one thread, so that their sums do not depend on how many there are.

    Their limit is one for the whole process: of two callers in two threads, the first to leave would lift it for the
    other. So one waits for the other. It reaches only the libraries that are loaded: what brings one of its own, as
    scikit-learn does, has to be imported before.
    """
    from threadpoolctl import threadpool_limits

    with COMPUTING, threadpool_limits(1):
        yield
