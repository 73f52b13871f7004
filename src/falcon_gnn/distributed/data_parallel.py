"""Training on several devices of one machine, or with ``torchrun`` of several: SIGN, QSIGN and Cluster-GCN.

Every global batch is shared out among the devices, and the losses are weighted so that a step is that of one process
on the whole batch. ``torchrun --nproc-per-node 2 -m falcon_gnn.distributed.data_parallel cora --out run`` runs one.
"""

import os
import pickle
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, ProcessRaisedException, spawn

from falcon_gnn.distributed.device_training import DeviceJob, fit_config, open_group, resolve_device_type, train_share
from falcon_gnn.distributed.shards import Place
from falcon_gnn.errors import FalconError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.training.configs import TrainConfig
from falcon_gnn.training.progress import EpochRecord, InterruptGuard
from falcon_gnn.training.sources import HopSource
from falcon_gnn.training.state import TrainResult

_RENDEZVOUS, _STOP, _RESULT, _ERROR = "rendezvous", "stop", "result.pickle", "error.pickle"
_LOOPBACK = "lo"
_SECONDS_BETWEEN_LOOKS = 0.5


class WorkerError(FalconError, RuntimeError):
    """A process of a training on several devices was killed or failed."""


def train_on_devices(
    graph: Graph,
    config: TrainConfig,
    *,
    num_devices: int,
    eval_graph: Graph | None = None,
    hop_source: HopSource | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    log_dir: str | Path | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    synchronize_batch_norm: bool = False,
    checkpoint_seconds: float = 60.0,
) -> TrainResult:
    """Train as :func:`falcon_gnn.training.trainer.train` does, in one new process per device of this machine.

    Without dropout and batch norm (or with it synchronised) SIGN takes the steps of one process; Cluster-GCN does up
    to the edges between the parts of different devices, which are left out. Memory is not measured.

    Args:
        graph: What is trained on; every process gets a copy.
        config: A SIGN model or ``cluster-gcn``; ``device`` auto, cpu or cuda. Where ``num_parts`` is None there is
            one part per batch and device.
        num_devices: W, processes; on CUDA at most as many as there are devices.
        eval_graph: As in ``train``; only the first process scores.
        hop_source: As in ``train``.
        checkpoint: A file that takes the whole state after the first epoch, every ``checkpoint_seconds``, at the end,
            and on Ctrl-C, which first finishes the epoch and then raises KeyboardInterrupt.
        resume: Go on from ``checkpoint``, for the SIGN models on any number of devices.
        progress: Whether to show a progress bar where standard error is a terminal.
        log_dir: A folder for TensorBoard curves.
        on_epoch: Called after every epoch in every process, so it must be picklable; ``torch.distributed.get_rank()``
            tells which, and the score is None but on rank 0.
        synchronize_batch_norm: Whether batch norm takes its moments over the global batch, not each device's share.
        checkpoint_seconds: Least time between two checkpoints.

    Raises:
        OptionError: If the model, graph or checkpoint does not fit.
        ConvergenceError: If the loss becomes NaN or infinite.
        WorkerError: If a process is killed or fails; the checkpoint stays whole.
        KeyboardInterrupt: After Ctrl-C.
    """
    if resume and checkpoint is None:
        msg = "resume needs the checkpoint to go on from, got checkpoint=None. Pass its path."
        raise OptionError(msg)
    fit_config(config, num_devices)
    with tempfile.TemporaryDirectory(prefix="falcon-gnn-") as name:
        folder = Path(name)
        job = DeviceJob(
            graph=graph,
            config=config,
            eval_graph=eval_graph,
            hop_source=hop_source,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            resume=resume,
            progress=progress,
            log_dir=None if log_dir is None else Path(log_dir),
            on_epoch=on_epoch,
            synchronize_batch_norm=synchronize_batch_norm,
            checkpoint_seconds=checkpoint_seconds,
            stop_file=folder / _STOP,
        )
        return _run_workers(job, num_devices, folder)


def _run_workers(job: DeviceJob, num_devices: int, folder: Path) -> TrainResult:
    """Start the processes, wait for them, and return what rank 0 left behind."""
    with InterruptGuard(active=True) as guard:
        context: ProcessContext = spawn(  # type: ignore[no-untyped-call]
            _work, (num_devices, job, folder), nprocs=num_devices, join=False
        )
        try:
            while not context.join(_SECONDS_BETWEEN_LOOKS):
                if guard.requested:
                    (folder / _STOP).touch()
        except (ProcessExitedException, ProcessRaisedException) as error:
            raise _explain(error, context, job, folder) from error
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.terminate()
    result = folder / _RESULT
    if not result.exists():
        where = "" if job.checkpoint is None else f"; {job.checkpoint} holds its state, go on with resume"
        msg = f"training was interrupted{where}"
        raise KeyboardInterrupt(msg)
    loaded: TrainResult = _read_pickle(result)
    return loaded


def _work(rank: int, num_devices: int, job: DeviceJob, folder: Path) -> None:
    """Be one of the processes."""
    if any(name == _LOOPBACK for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)
    torch.set_num_threads(max(1, torch.get_num_threads() // num_devices))
    place = Place(rank, num_devices, rank)
    try:
        with open_group(resolve_device_type(job.config.device), place, f"file://{folder / _RENDEZVOUS}"):
            result = train_share(job, place)
    except FalconError as error:
        (folder / f"{rank}-{_ERROR}").write_bytes(pickle.dumps(error))
        raise
    if result is not None:
        (folder / _RESULT).write_bytes(pickle.dumps(result))


def _explain(error: Exception, context: ProcessContext, job: DeviceJob, folder: Path) -> FalconError:
    """Return the error of our own that a process raised, or one that says which process died and what to do."""
    for path in sorted(folder.glob(f"*-{_ERROR}")):
        raised: FalconError = _read_pickle(path)
        return raised
    num_devices = len(context.processes)
    # Those that are left are ended with SIGTERM when one is dead, so that is not the signal to look for.
    killed = [
        (rank, -process.exitcode)
        for rank, process in enumerate(context.processes)
        if process.exitcode is not None and process.exitcode < 0 and -process.exitcode != signal.SIGTERM
    ]
    if killed:
        rank, number = killed[0]
        what = f"process {rank} of {num_devices} was killed by {signal.Signals(number).name}"
        what += " (often: out of memory)" if number == signal.SIGKILL else ""
    else:
        what = f"a process of {num_devices} failed: {error}"
    if job.checkpoint is not None and job.checkpoint.exists():
        fix = f"{job.checkpoint} holds the last state that was written, go on with resume."
    else:
        fix = "There is no checkpoint to go on from; start anew."
    return WorkerError(f"training on several devices ended: {what}. {fix}")


def _read_pickle(path: Path) -> Any:
    """Return what a process of ours wrote into our own temporary folder."""
    return pickle.loads(path.read_bytes())


if __name__ == "__main__":
    from falcon_gnn.distributed.device_job import main

    main()
