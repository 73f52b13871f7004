"""One device's share of every global batch: rows of hop features (SIGN) or parts of the graph (Cluster-GCN)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from falcon_gnn.devices.place import Place
from falcon_gnn.errors import OptionError
from falcon_gnn.training.batches import BatchSource, GraphBatch, PartBatches, RowBatch, RowBatches
from falcon_gnn.training.partition import DrawnBatch, join_parts
from falcon_gnn.training.targets import Targets


@dataclass(frozen=True)
class ShardTargets(Targets):
    """A device's share of the targets of a global batch; as long as the whole batch, so that all devices step alike.

    Attributes:
        num_global: Labelled nodes of the global batch.
        scale: W n_r / n, with n_r the weight of the loss terms here and n that of the global batch's: the mean over the
            W devices of the scaled losses, and of their gradients, is that of the mean loss over the global batch.
        global_weight: Weight of the global batch's nodes.
    """

    num_global: int = 0
    scale: float = 1.0
    global_weight: float = 0.0

    @property
    def total_weight(self) -> float:
        """The weight of the global batch."""
        return self.global_weight

    def __len__(self) -> int:
        """Return the number of labelled nodes in the global batch."""
        return self.num_global

    def loss(self, logits: Tensor) -> Tensor:
        """Return the scaled loss of this device's rows; 0, with zero gradients, where it has none.

        Args:
            logits: Outputs of the model for this device's nodes, shape ``(n_r, L)``.
        """
        if self.values.shape[0] == 0:
            return logits.float().sum() * 0.0
        return super().loss(logits) * self.scale


def shard_targets(own: Targets, whole: Targets, num_devices: int) -> ShardTargets:
    """Return a device's targets, weighted by its share of the loss terms of the global batch.

    Args:
        own: Targets of this device's nodes.
        whole: Targets of all nodes of the global batch.
        num_devices: W.
    """
    scale = num_devices * _weigh_terms(own) / (_weigh_terms(whole) or 1)
    return ShardTargets(
        own.values, own.task, own.has_unknown, own.weights,
        num_global=len(whole), scale=scale, global_weight=float(whole.total_weight),
    )  # fmt: skip


class RowShards:
    """A device's rows of each batch of hop features; the global batches are those of one process.

    Args:
        batches: The global batches.
        place: Which share is wanted.
    """

    def __init__(self, batches: RowBatches, place: Place) -> None:
        self.batches, self.place = batches, place

    def draw(self, epoch: int) -> Iterator[RowBatch]:
        """Yield this device's share of the batches of an epoch."""
        batches, targets = self.batches, self.batches.targets
        for ids in batches.deal(epoch):
            own = np.sort(_share(self.place, ids))
            whole = targets.take(torch.from_numpy(ids))
            shared = shard_targets(targets.take(torch.from_numpy(own)), whole, self.place.num_devices)
            yield RowBatch(batches.read(own), shared)

    def sizes(self, num_epochs: int) -> list[DrawnBatch]:
        """Return the size of the largest global batch, of which a share is no larger."""
        return self.batches.sizes(num_epochs)


class PartShards:
    """A device's parts of each Cluster-GCN batch; edges between devices are left out, as those between batches are.

    Args:
        batches: The global batches.
        place: Which share is wanted.
    """

    def __init__(self, batches: PartBatches, place: Place) -> None:
        self.batches, self.place = batches, place

    def draw(self, epoch: int) -> Iterator[GraphBatch]:
        """Yield this device's share of the batches of an epoch; a batch without a label is left out on every device."""
        batches = self.batches
        for chosen in batches.deal(epoch):
            _, whole = batches.labels.locate(join_parts(batches.parts, chosen))
            if len(whole) == 0:
                continue
            ids = join_parts(batches.parts, _share(self.place, chosen))
            rows, own = batches.labels.locate(ids)
            yield GraphBatch(batches.read(ids), shard_targets(own, whole, self.place.num_devices), rows)

    def sizes(self, num_epochs: int) -> list[DrawnBatch]:
        """Return the sizes of the global batches, of which a share is no larger."""
        return self.batches.sizes(num_epochs)


def shard_source(source: BatchSource, place: Place, *, batch_norm: bool) -> BatchSource:
    """Return a device's share of the batches of a source; there are fewer batches where shares would be too small.

    Args:
        source: The global batches.
        place: Which share is wanted.
        batch_norm: Whether the model has batch norm, which needs two rows, or one part of two nodes, per device.

    Raises:
        OptionError: If there are too few rows or parts for so many devices.
    """
    if isinstance(source, RowBatches):
        smallest = place.num_devices * (2 if batch_norm else 1)
        most = _most_batches(len(source.targets), smallest, "labelled training nodes")
        return RowShards(source.at_most(most), place)
    assert isinstance(source, PartBatches)
    most = _most_batches(len(source.parts), place.num_devices, "parts")
    return PartShards(source.at_most(most), place)


def _share(place: Place, dealt: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a device's rows or parts of a global batch."""
    return np.array_split(dealt, place.num_devices)[place.rank]


def _most_batches(available: int, smallest: int, what: str) -> int:
    if available < smallest:
        msg = f"devices needs at least {smallest} {what} to share out, got {available}. Use fewer devices."
        raise OptionError(msg)
    return available // smallest


def _weigh_terms(targets: Targets) -> float:
    """Return the weight of the values that the mean of a loss is taken over, rows or known cells."""
    num_terms = torch.ones(targets.values.shape[0], dtype=torch.float64)
    if targets.has_unknown:
        num_terms = (~targets.values.isnan()).sum(dim=1, dtype=torch.float64)
    return float((num_terms if targets.weights is None else num_terms * targets.weights).sum())
