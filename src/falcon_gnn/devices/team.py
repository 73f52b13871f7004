"""One of several processes that train a model together: its share of every step; rank 0 also scores and writes."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import FrameType
from weakref import WeakSet

import numpy as np
import torch

# Imported with a group open, its functions keep the group for ever as a default: its threads then outlive the end of
# the group, and now and again abort the process at its exit.
import torch.distributed.nn
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from falcon_gnn.devices.batch_norm import synchronize_norms
from falcon_gnn.devices.place import STOP_FILE_VARIABLE, Place
from falcon_gnn.devices.shards import shard_source
from falcon_gnn.errors import OptionError
from falcon_gnn.training.batches import BatchSource, PartBatches
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.crew import Crew

_TRAINED = ("sign", "qsign", "sign-original", "cluster-gcn")
# The others wait this long while rank 0 scores; a dead process is noticed at once by its closed connection.
_LONGEST_WAIT = timedelta(hours=2)
# Of the process group, of which a process has one.
_replicas: WeakSet[DistributedDataParallel] = WeakSet()


class Team(Crew):
    """A process of an open process group.

    Without dropout and batch norm (or with it synchronised) SIGN takes the steps of one process; Cluster-GCN does up to
    the edges between the parts of different devices, which are left out. Dropout and stochastic rounding are seeded
    anew in each epoch, by rank, so that a checkpoint need not hold the generators of every process. Memory is not
    measured.

    Args:
        place: Which process this is.
        synchronize_batch_norm: Whether batch norm takes its moments over the global batch, not each device's share.
        stop_file: Training stops after the epoch in which this file appears.
    """

    def __init__(self, place: Place, *, synchronize_batch_norm: bool = False, stop_file: Path | None = None) -> None:
        self.place, self.synchronize_batch_norm, self.stop_file = place, synchronize_batch_norm, stop_file
        self.num_devices = place.num_devices

    @property
    def is_writer(self) -> bool:
        """Whether this process scores the model and writes the files."""
        return self.place.rank == 0

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether the launcher was interrupted."""
        return self.stop_file is not None and self.stop_file.exists()

    def fit(self, config: TrainConfig) -> TrainConfig:
        """Return the configuration as several devices can train it; see :func:`fit_config`."""
        return fit_config(config, self.num_devices)

    def device(self, name: str) -> torch.device:
        """Return this process's device."""
        kind = resolve_device_type(name)
        return torch.device(kind, self.place.local_rank) if kind == "cuda" else torch.device(kind)

    def share(self, source: BatchSource, model: nn.Module, config: TrainConfig) -> BatchSource:
        """Return this device's share of the batches; with synchronised batch norm the model's norms become such.

        Raises:
            OptionError: If there are too few rows or parts for so many devices.
        """
        if self.synchronize_batch_norm:
            if isinstance(source, PartBatches) and min(map(len, source.parts)) < 2:
                msg = (
                    "synchronize_batch_norm needs at least two nodes in every part, got a part of one. Use fewer "
                    f"parts: num_parts is {len(source.parts)} for {source.structure.num_nodes} nodes."
                )
                raise OptionError(msg)
            synchronize_norms(model)
        return shard_source(source, self.place, batch_norm=config.model.batch_norm)

    def replicate(self, model: nn.Module) -> nn.Module:
        """Return the model wrapped by torch's distributed data parallelism."""
        replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
        _replicas.add(replica)
        return replica

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Seed dropout and stochastic rounding by epoch and rank."""
        torch.manual_seed(int(np.random.SeedSequence([seed, epoch, self.place.rank]).generate_state(1)[0]))

    def agree(self, flag: bool) -> bool:
        """Return whether the flag is set in any process; all must call this."""
        shared = torch.tensor(int(flag), device=_group_device())
        distributed.all_reduce(shared, distributed.ReduceOp.MAX)
        return bool(shared.item())

    def mean(self, value: float) -> float:
        """Return the mean of a value over the processes; all must call this."""
        total = torch.tensor(value, dtype=torch.float64, device=_group_device())
        distributed.all_reduce(total)
        return float(total) / self.num_devices


@contextmanager
def join_team(
    place: Place, *, device: str = "auto", synchronize_batch_norm: bool = False, rendezvous: str = "env://"
) -> Iterator[Team]:
    """Join the processes of a training, with nccl on CUDA and gloo on the CPU, and leave them at the end.

    Args:
        place: Which process this is.
        device: As in :class:`TrainConfig`: auto, cpu or cuda.
        synchronize_batch_norm: As in :class:`Team`.
        rendezvous: Where they meet: by the launcher's environment variables, or ``file://...``.

    Raises:
        KeyboardInterrupt: If the launcher was interrupted before.
        OptionError: If several devices cannot train on ``device``.
    """
    kind = resolve_device_type(device)
    if kind == "cuda":
        torch.cuda.set_device(place.local_rank)
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=rendezvous,
        rank=place.rank,
        world_size=place.num_devices,
        timeout=_LONGEST_WAIT,
        # Without it the first operation guesses the card, and a wrong guess hangs.
        device_id=torch.device("cuda", place.local_rank) if kind == "cuda" else None,
    )
    stop_file = os.environ.get(STOP_FILE_VARIABLE)
    team = Team(
        place,
        synchronize_batch_norm=synchronize_batch_norm,
        stop_file=None if stop_file is None else Path(stop_file),
    )
    try:
        if signal.getsignal(signal.SIGINT) is ignore_until_joined:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if team.stop_file is not None and team.agree(team.is_asked_to_stop):
            raise KeyboardInterrupt
        yield team
    finally:
        _leave_group()


def ignore_until_joined(number: int, frame: FrameType | None) -> None:
    """Leave a Ctrl-C to the stop file: the others would wait for ever for a process that ends before it has joined."""


def _leave_group() -> None:
    """Destroy the process group once nothing else holds it.

    A replica can outlive it in the frames of an error. Dropped later, its reducer would join the group's threads with
    Python's lock held, which they may wait for: a deadlock.
    """
    for replica in _replicas:
        del replica.reducer, replica.logger, replica.process_group
    _replicas.clear()
    distributed.destroy_process_group()


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
    for name in ("micro_batches", "column_blocks"):
        if getattr(config, name) > 1:
            msg = (
                f"{name} must be 1 on several devices, got {getattr(config, name)}: each has a share of every batch "
                "already. Raise num_batches, or use one device."
            )
            raise OptionError(msg)
    uses_cuda = resolve_device_type(config.device) == "cuda"
    if uses_cuda and num_devices > torch.cuda.device_count() and not distributed.is_torchelastic_launched():
        msg = f"devices must be at most the {torch.cuda.device_count()} CUDA devices here, got {num_devices}."
        raise OptionError(msg)
    if model.uses_parts:
        least = config.num_batches * num_devices
        if model.num_parts is not None and model.num_parts < least:
            msg = (
                f"num_parts must be at least num_batches x devices ({least}), so that each device has a part of "
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


def _group_device() -> torch.device:
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")


def _check_model(config: TrainConfig) -> None:
    model = config.model
    if model.model not in _TRAINED:
        reason = "trains on the whole graph at once" if model.model == "gcn" else "keeps histories in one process"
        msg = (
            f"several devices train {', '.join(_TRAINED)}; model={model.model!r} {reason}. Use one of these, or "
            "one device."
        )
        raise OptionError(msg)
