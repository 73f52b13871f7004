"""The door to numba: kernels that any thread may call and that go on working after a fork.

None of Numba's threading layers allows everything. ``workqueue`` ends the process when two threads use it at once, so
that one kernel waits for the other. GNU OpenMP (``omp`` on Linux) cannot be used in a forked process, which Numba ends;
a team of one thread is all that such a process needs there, and the same compiled code runs on it. ``tbb`` can do both.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import CFUNCTYPE, c_int
from typing import Any

from numba import get_num_threads, njit, set_num_threads, threading_layer
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from falcon_gnn._kernels.disk_cache import open_cache
from falcon_gnn.threads import COMPUTING


class Kernel:
    """A compiled function that Python calls.

    Args:
        function: What to compile.
        is_threaded: Whether it runs on several threads.
        options: For numba.

    Attributes:
        dispatcher: What numba makes of the function.
    """

    def __init__(self, function: Callable[..., Any], *, is_threaded: bool, **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.dispatcher = _compile(function, options)
        self._turn: AbstractContextManager[Any] = COMPUTING if is_threaded else nullcontext()

    def __call__(self, *arguments: Any) -> Any:
        """Return what the function returns; several threads take turns where it has threads of its own."""
        with self._turn:
            return self.dispatcher(*arguments)


def kernel(*, is_threaded: bool | None = None, **options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator that makes a kernel.

    Args:
        is_threaded: Whether it runs on several threads; by default where it is ``parallel`` itself.
        options: For numba.
    """
    threaded = bool(options.get("parallel")) if is_threaded is None else is_threaded
    return functools.partial(Kernel, is_threaded=threaded, **options)


def subroutine(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles what only kernels call, with options for numba."""
    return functools.partial(_compile, options=options)


@contextmanager
def threads_at_most(count: int) -> Iterator[None]:
    """Let the kernels that this thread calls inside run on no more than so many threads."""
    before = get_num_threads()
    set_num_threads(min(before, count))
    try:
        yield
    finally:
        set_num_threads(before)


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    dispatcher = njit(nogil=True, **options)(function)
    # With NUMBA_DISABLE_JIT the function comes back as it is.
    if isinstance(dispatcher, Dispatcher):
        dispatcher._cache = open_cache(function)  # type: ignore[attr-defined]
    return dispatcher


def _before_fork() -> None:
    # In the order of a kernel that is compiled when it is called, and another thread's compiling ends before the fork.
    COMPUTING.acquire()
    global_compiler_lock.acquire()


def _after_fork() -> None:
    global_compiler_lock.release()
    COMPUTING.release()


def _after_fork_in_child() -> None:
    _after_fork()
    try:
        layer = threading_layer()
    except ValueError:  # No kernel has run on threads yet: the child may start its own.
        return
    if layer == "omp":
        from numba.np.ufunc import omppool  # type: ignore[attr-defined]

        # Numba compares the process that launched with the one that runs; new threads take their number from here.
        CFUNCTYPE(None, c_int)(omppool.launch_threads)(1)
        set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
