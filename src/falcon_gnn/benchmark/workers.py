"""Runs done one after the other in this process, or in several processes of one thread each."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from falcon_gnn.benchmark.execute import Workplace, do_run
from falcon_gnn.benchmark.plan import PlannedRun

Done = tuple[PlannedRun, dict[str, Any]]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_KILLED = -9
"""The exit code of a process that SIGKILL ended; Windows has no such signal, and no name for it."""


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: Connection


def run_here(runs: Iterable[PlannedRun], place: Workplace) -> Generator[Done, None, None]:
    """Yield each run with its line, done in this process with its threads."""
    for planned in runs:
        yield planned, do_run(planned, place)


def run_in_processes(runs: Iterable[PlannedRun], place: Workplace) -> Generator[Done, None, None]:
    """Yield each run with its line as it is finished by one of several processes, one thread each.

    A process that dies (killed for its memory, say) costs its run only; another takes its place.

    Args:
        runs: The runs.
        place: Where each process works; it says how many there are, at least 1.
    """
    waiting = deque(runs)
    busy: dict[_Worker, PlannedRun] = {}
    try:
        for _ in range(min(place.num_workers, len(waiting))):
            _hand_over(_start(place), waiting, busy)
        while busy:
            ready = set(wait([part for worker in busy for part in (worker.pipe, worker.process.sentinel)]))
            for worker in [w for w in busy if w.pipe in ready or w.process.sentinel in ready]:
                planned = busy.pop(worker)
                line = _receive(worker)
                if line is None:
                    line = _obituary(worker, planned)
                    worker = _start(place) if waiting else worker
                _hand_over(worker, waiting, busy)
                yield planned, line
    finally:
        for worker in busy:
            worker.process.terminate()
            worker.process.join()


def _start(place: Workplace) -> _Worker:
    # Spawned, not forked: the parent's threads (torch, numba) would not survive a fork.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, place), daemon=True)
    with _one_thread(), _interrupts_held():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: Connection, place: Workplace) -> None:
    """Do what comes through the pipe until None comes; Ctrl-C is for the parent, who ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent that was killed takes nothing any more.
    with suppress(EOFError, OSError):
        while (planned := pipe.recv()) is not None:
            pipe.send(do_run(planned, place))


def _hand_over(worker: _Worker, waiting: deque[PlannedRun], busy: dict[_Worker, PlannedRun]) -> None:
    """Give a worker its next run, or let it go; that one has died is seen when its result is waited for."""
    with suppress(OSError):
        if waiting:
            busy[worker] = waiting.popleft()
            worker.pipe.send(busy[worker])
        else:
            worker.pipe.send(None)
            worker.process.join()


def _receive(worker: _Worker) -> dict[str, Any] | None:
    """Return the line of a run, or None if the process has died."""
    try:
        line: Mapping[str, Any] = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        return None
    return dict(line)


def _obituary(worker: _Worker, planned: PlannedRun) -> dict[str, Any]:
    code = worker.process.exitcode
    cause = ", as when the machine runs out of memory" if code == _KILLED else ""
    return {
        "id": planned.run_id,
        "run": planned.name,
        "seed": planned.seed,
        "error": f"its process ended with exit code {code}{cause}",
        "out_of_memory": code == _KILLED,
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let child processes see one thread; they read the variables when their libraries load."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait; a process that is started inside never gets it, not even while its libraries load."""
    if not hasattr(signal, "pthread_sigmask"):  # As on Windows.
        yield
        return
    # Starting it lets Ctrl-C through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
