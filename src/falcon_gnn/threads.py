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


COMPUTING = shared_lock()
"""Held while a kernel runs on several threads, or while the matrix libraries are limited to one.

No child inherits a limit that nobody lifts.
"""


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the matrix libraries (BLAS, OpenMP) on one thread, so that their sums do not depend on how many there are.

    Their limit is one for the whole process: of two callers in two threads, the first to leave would lift it for the
    other. So one waits for the other.
    """
    from threadpoolctl import threadpool_limits

    with COMPUTING, threadpool_limits(1):
        yield
