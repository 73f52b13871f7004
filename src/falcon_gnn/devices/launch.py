"""Our own start of several processes on this machine, by torch's elastic launcher, which torchrun is the command of.

``falcon-gnn train --devices 2`` is ``torchrun --nproc-per-node 2 -m falcon_gnn train`` with errors in one line, and a
Ctrl-C that finishes the epoch.
"""

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from torch import distributed
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from falcon_gnn.devices.place import STOP_FILE_VARIABLE
from falcon_gnn.devices.team import ignore_until_joined
from falcon_gnn.errors import FalconError
from falcon_gnn.training.progress import InterruptGuard

_LOOPBACK = "lo"
_STOP, _ERROR = "stop", "error.pickle"
_KILLED = -9  # SIGKILL, which Windows has no name for.
_INTERRUPTED = -signal.SIGINT  # While its libraries load: later a process returns that it was.
# Ctrl-C is ours; a worker that is asked to end has nothing left to do.
_SIGNALS, _SECONDS_TO_END = ("SIGTERM", "SIGHUP", "SIGQUIT"), 5


class WorkerError(FalconError, RuntimeError):
    """A process of a training on several devices was killed or failed."""


def launch(work: Callable[..., Any], *arguments: Any, num_devices: int, checkpoint: Path | None = None) -> Any:
    """Call a function in several new processes of this machine and return what the first of them returned.

    Each finds its place by :func:`falcon_gnn.devices.place.read_place`. Ctrl-C asks all to stop after their epoch.

    Args:
        work: A function of a module.
        arguments: Its arguments, picklable.
        num_devices: Processes, >= 1.
        checkpoint: A file that the work keeps its state in, for the messages.

    Raises:
        FalconError: What a process raised.
        WorkerError: If a process is killed or fails otherwise.
        KeyboardInterrupt: After Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="falcon-gnn-") as name:
        folder = Path(name)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=num_devices,
            run_id="falcon-gnn",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            signals_to_handle=",".join(filter(_is_unhandled, _SIGNALS)),
            shutdown_timeout=_SECONDS_TO_END,
            logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
        )
        # Its own word on a failed process would stand beside ours.
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
        with InterruptGuard(active=True, on_request=(folder / _STOP).touch) as guard:
            try:
                returned = elastic_launch(config, _be_worker)(work, arguments, folder)
            except ChildFailedError as error:
                if guard.requested and _first(error)[1].exitcode == _INTERRUPTED:
                    raise KeyboardInterrupt from None
                raise _explain(error, num_devices, checkpoint, folder) from error
            except SignalException as error:
                raise _explain(error, num_devices, checkpoint, folder) from error
        kind, value = pickle.loads(returned[0])
        if kind == "interrupted":
            raise KeyboardInterrupt(value)
        return value


def _is_unhandled(name: str) -> bool:
    """Whether a signal means what it does by itself: the command takes SIGTERM for a Ctrl-C, nohup ignores SIGHUP."""
    return hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_DFL


def _be_worker(work: Callable[..., Any], arguments: tuple[Any, ...], folder: Path) -> bytes:
    """Be one of the processes."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, ignore_until_joined)
    Thread(target=_end_after_parent, daemon=True).start()
    if any(name == _LOOPBACK for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)
    os.environ[STOP_FILE_VARIABLE] = str(folder / _STOP)
    torch.set_num_threads(max(1, torch.get_num_threads() // int(os.environ["LOCAL_WORLD_SIZE"])))
    try:
        return pickle.dumps(("done", work(*arguments)))
    except KeyboardInterrupt as stop:
        return pickle.dumps(("interrupted", str(stop)))
    except FalconError as error:
        (folder / f"{os.environ['RANK']}-{_ERROR}").write_bytes(pickle.dumps(error))
        raise


def _end_after_parent() -> None:
    """End this process once the one that started it was killed, which it would wait for for ever to take its result.

    A training that Linux interrupts by that is given the time to write its state.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    while distributed.is_initialized():
        time.sleep(0.1)
    os._exit(1)


def _explain(
    error: ChildFailedError | SignalException, num_devices: int, checkpoint: Path | None, folder: Path
) -> Exception:
    """Return the error of our own that a process raised, or one that says which process died and what to do."""
    for path in sorted(folder.glob(f"*-{_ERROR}")):
        raised: FalconError = pickle.loads(path.read_bytes())
        return raised
    if isinstance(error, SignalException):
        what = f"it was ended by {error.sigval.name}"
    else:
        rank, failure = _first(error)
        what = f"process {rank} of {num_devices} failed with exit code {failure.exitcode}; its error is above"
        if failure.exitcode < 0:
            what = f"process {rank} of {num_devices} was killed by {failure.signal_name()}"
            what += " (often: out of memory)" if failure.exitcode == _KILLED else ""
    if checkpoint is not None and checkpoint.exists():
        fix = f"{checkpoint} holds the last state that was written, go on with resume."
    else:
        fix = "There is no checkpoint to go on from; start anew."
    return WorkerError(f"training on several devices ended: {what}. {fix}")


def _first(error: ChildFailedError) -> tuple[int, ProcessFailure]:
    """Return the process that ended first: those that are left lose their connection, or get SIGTERM, by that."""
    killed = {rank: failure for rank, failure in error.failures.items() if failure.exitcode == _KILLED}
    if killed:
        return next(iter(killed.items()))
    rank, failure = error.get_first_failure()
    return int(rank), failure
