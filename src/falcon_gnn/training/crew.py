"""Who trains a model: one process alone, or (``falcon_gnn.devices``) one of several that take every step together."""

import torch
from torch import nn

from falcon_gnn.training.batches import BatchSource
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.steps import resolve_device


class Crew:
    """A process that trains alone; what several processes must do together is neutral here."""

    num_devices: int = 1

    @property
    def is_writer(self) -> bool:
        """Whether this process scores the model and writes the files."""
        return True

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether someone other than Ctrl-C in this process wants the training to stop after the epoch."""
        return False

    def fit(self, config: TrainConfig) -> TrainConfig:
        """Return the configuration as this crew can train it.

        Raises:
            OptionError: If it cannot.
        """
        return config

    def device(self, name: str) -> torch.device:
        """Return this process's device; ``name`` as in :class:`TrainConfig`.

        Raises:
            OptionError: If there is no such device.
        """
        return resolve_device(name)

    def share(self, source: BatchSource, model: nn.Module, config: TrainConfig) -> BatchSource:
        """Return this process's share of the batches, after changing the model to what they need."""
        return source

    def replicate(self, model: nn.Module) -> nn.Module:
        """Return the model to train: one that adds up the gradients of all processes."""
        return model

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Seed what an epoch draws, where the processes must not draw alike."""

    def agree(self, flag: bool) -> bool:
        """Return whether the flag is set in any process; all must call this."""
        return flag

    def mean(self, value: float) -> float:
        """Return the mean of a value over the processes; all must call this."""
        return value
