"""What each process of a training on several devices does: its share of every step; rank 0 also scores and writes."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from falcon_gnn.distributed.batch_norm import synchronize_norms
from falcon_gnn.distributed.shards import Place, shard_source
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.training.batches import PartBatches
from falcon_gnn.training.checkpoint import read_checkpoint, write_checkpoint
from falcon_gnn.training.configs import TrainConfig
from falcon_gnn.training.progress import EpochRecord, InterruptGuard, ProgressBar, Reporter, TensorBoardLog
from falcon_gnn.training.sources import HopSource
from falcon_gnn.training.state import Judge, TrainingState, TrainResult
from falcon_gnn.training.steps import own_randomness, run_epoch

_TRAINED = ("sign", "qsign", "sign-original", "cluster-gcn")
# The others wait this long while rank 0 scores; a dead process is noticed at once by its closed connection.
_LONGEST_WAIT = timedelta(hours=2)


@dataclass(frozen=True)
class DeviceJob:
    """A training on several devices, as each of its processes is told of it; attributes as the arguments of ``train``.

    Attributes:
        graph: What is trained on.
        config: The model and how to train it; see :func:`fit_config`.
        eval_graph: What is scored on, or None for ``graph``.
        hop_source: Where SIGN's hop features are computed, or None for ``graph``.
        checkpoint: A file for the state, written by rank 0 after the first epoch, then every ``checkpoint_seconds``,
            at the end and on Ctrl-C.
        resume: Whether to go on from ``checkpoint``, which every process reads.
        progress: Whether rank 0 shows a bar.
        log_dir: A folder for rank 0's TensorBoard curves.
        on_epoch: Called after every epoch in every process.
        synchronize_batch_norm: Whether batch norm sees the global batch rather than each device's share.
        checkpoint_seconds: Least time between two checkpoints.
        stop_file: Training stops after the epoch in which this file appears.
    """

    graph: Graph
    config: TrainConfig
    eval_graph: Graph | None = None
    hop_source: HopSource | None = None
    checkpoint: Path | None = None
    resume: bool = False
    progress: bool = True
    log_dir: Path | None = None
    on_epoch: Callable[[EpochRecord], None] | None = None
    synchronize_batch_norm: bool = False
    checkpoint_seconds: float = 60.0
    stop_file: Path | None = None


def fit_config(config: TrainConfig, num_devices: int) -> TrainConfig:
    """Return a configuration as several devices can train it: with a part per batch and device where none are set.

    Args:
        config: As for one process; ``device`` must be auto, cpu or cuda.
        num_devices: W, >= 1.

    Raises:
        OptionError: If the model, the device, the number of devices or of parts does not allow it.
    """
    model = config.model
    _check_model(config)
    if num_devices < 1:
        msg = f"num_devices must be at least 1, got {num_devices}."
        raise OptionError(msg)
    uses_cuda = resolve_device_type(config.device) == "cuda"
    if uses_cuda and num_devices > torch.cuda.device_count() and not distributed.is_torchelastic_launched():
        msg = f"num_devices must be at most the {torch.cuda.device_count()} CUDA devices here, got {num_devices}."
        raise OptionError(msg)
    if model.uses_parts:
        least = config.num_batches * num_devices
        if model.num_parts is not None and model.num_parts < least:
            msg = (
                f"num_parts must be at least num_batches x num_devices ({least}), so that each device has a part of "
                f"each batch, got {model.num_parts}. Use more parts or fewer batches."
            )
            raise OptionError(msg)
        model = replace(model, num_parts=model.num_parts or least)
    return replace(config, model=model, measure_memory=False)


def resolve_device_type(name: str) -> str:
    """Return ``cpu`` or ``cuda``, whose number each process chooses by itself.

    Raises:
        OptionError: If another device is named, or CUDA is and there is none.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda") or (name == "cuda" and not torch.cuda.is_available()):
        msg = f"device must be auto, cpu or, where torch finds CUDA, cuda on several devices, got {name!r}."
        raise OptionError(msg)
    return name


@contextmanager
def open_group(device_type: str, place: Place, rendezvous: str) -> Iterator[None]:
    """Join the processes of a training: nccl on CUDA, gloo on the CPU.

    Args:
        device_type: ``cpu`` or ``cuda``.
        place: Which process this is.
        rendezvous: Where they meet: ``file://...`` or, by torchrun's environment variables, ``env://``.
    """
    if device_type == "cuda":
        torch.cuda.set_device(place.local_rank)
    distributed.init_process_group(
        "nccl" if device_type == "cuda" else "gloo",
        init_method=rendezvous,
        rank=place.rank,
        world_size=place.num_devices,
        timeout=_LONGEST_WAIT,
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()


def train_share(job: DeviceJob, place: Place) -> TrainResult | None:
    """Train in the open process group and return the result on rank 0, None elsewhere.

    Raises:
        OptionError: If the graph and the configuration do not fit, or the checkpoint is of another training.
        ConvergenceError: If the loss becomes NaN or infinite.
        KeyboardInterrupt: After Ctrl-C or the stop file, in every process, with the state in the checkpoint.
    """
    kind = resolve_device_type(job.config.device)
    device = torch.device(kind, place.local_rank) if kind == "cuda" else torch.device(kind)
    config = fit_config(job.config, place.num_devices)
    with own_randomness(config.seed, device, deterministic=config.deterministic):
        training = ShardedTraining(replace(job, config=config), place, device)
        with ExitStack() as stack:
            reporters = _open_reporters(job, training) if place.rank == 0 else []
            for reporter in reporters:
                stack.callback(reporter.close)
            guard = stack.enter_context(InterruptGuard(active=True))
            _run(training, job, guard, reporters)
        return training.result() if place.rank == 0 else None


class ShardedTraining(TrainingState):
    """One process's part of a training state: all have the same weights, rank 0 alone has scores.

    Dropout and stochastic rounding are seeded anew in each epoch, by rank, so that a checkpoint need not hold the
    generators of every process.

    Args:
        job: The training.
        place: Which process this is.
        device: The process's device.
    """

    def __init__(self, job: DeviceJob, place: Place, device: torch.device) -> None:
        self.place = place
        eval_graph = job.graph if job.eval_graph is None else job.eval_graph
        super().__init__(job.graph, eval_graph, job.config, device, job.hop_source)
        if job.synchronize_batch_norm:
            self._check_parts()
            synchronize_norms(self.model)
        self.source = shard_source(self.source, place, batch_norm=job.config.model.batch_norm)
        if job.resume and job.checkpoint is not None:
            self.restore(read_checkpoint(job.checkpoint))
        if place.rank != 0:
            # Nothing is ever better than this: the best weights are rank 0's to keep.
            self.best_score = math.inf
        self.replica = DistributedDataParallel(self.model, gradient_as_bucket_view=True)

    @property
    def is_writer(self) -> bool:
        """Whether this process scores the model and writes the files."""
        return self.place.rank == 0

    def agree(self, flag: bool) -> bool:
        """Return whether the flag is set in any process; all must call this."""
        shared = torch.tensor(int(flag), device=self.device)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX)
        return bool(shared.item())

    def _train_epoch(self, epoch: int) -> float:
        seeds = np.random.SeedSequence([self.config.seed, epoch, self.place.rank])
        torch.manual_seed(int(seeds.generate_state(1)[0]))
        loss = run_epoch(self.replica, self.optimizer, self.source.draw(epoch), self.config.precision)
        total = torch.tensor(loss, dtype=torch.float64, device=self.device)
        distributed.all_reduce(total)
        return float(total) / self.place.num_devices

    def _judge(self, mask: NDArray[np.bool_] | None) -> Judge | None:
        return super()._judge(mask) if self.is_writer else None

    def _check_parts(self) -> None:
        if isinstance(self.source, PartBatches) and min(map(len, self.source.parts)) < 2:
            msg = (
                "synchronize_batch_norm needs at least two nodes in every part, got a part of one. Use fewer parts: "
                f"num_parts is {len(self.source.parts)} for {self.num_nodes} nodes."
            )
            raise OptionError(msg)


def _run(training: ShardedTraining, job: DeviceJob, guard: InterruptGuard, reporters: list[Reporter]) -> None:
    """Train epoch after epoch until rank 0 finds the end, or any process is asked to stop."""
    written = -math.inf
    is_finished = training.agree(training.is_finished)
    while not is_finished:
        record = training.advance()
        for reporter in reporters:
            reporter.report(record, training.best_score)
        if job.on_epoch is not None:
            job.on_epoch(record)
        is_finished = training.agree(training.is_finished)
        is_stopped = training.agree(guard.requested or (job.stop_file is not None and job.stop_file.exists()))
        is_due = is_stopped or is_finished or time.monotonic() - written >= job.checkpoint_seconds
        if training.is_writer and job.checkpoint is not None and is_due:
            write_checkpoint(job.checkpoint, training.checkpoint())
            written = time.monotonic()
        if is_stopped and not is_finished:
            where = "" if job.checkpoint is None else f"; {job.checkpoint} holds its state, go on with resume"
            msg = f"training was interrupted after epoch {record.epoch}{where}"
            raise KeyboardInterrupt(msg)


def _open_reporters(job: DeviceJob, training: ShardedTraining) -> list[Reporter]:
    bars: list[Reporter] = [ProgressBar(job.config.num_epochs, len(training.epochs))] if job.progress else []
    return bars if job.log_dir is None else [*bars, TensorBoardLog(job.log_dir)]


def _check_model(config: TrainConfig) -> None:
    model = config.model
    if model.model not in _TRAINED:
        reason = "trains on the whole graph at once" if model.model == "gcn" else "keeps histories in one process"
        msg = (
            f"several devices train {', '.join(_TRAINED)}; model={model.model!r} {reason}. Use one of these, or "
            "one device."
        )
        raise OptionError(msg)
