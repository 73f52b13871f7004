"""Means and variances of a batch's columns, of which this device may hold a share of the rows only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from falcon_gnn.quantization.chunks import Scratch


@dataclass(frozen=True)
class SharedBatch:
    """A batch whose rows are shared out among several devices.

    Attributes:
        add_up: Returns the sum of a tensor over the devices, the same on each.
        num_rows: Rows on all devices together.
    """

    add_up: Callable[[Tensor], Tensor]
    num_rows: int


@runtime_checkable
class SharesBatch(Protocol):
    """A batch norm whose moments are those of a batch on several devices."""

    def share_batch(self, num_rows: int) -> SharedBatch:
        """Return the global batch; ``num_rows`` of it are this device's."""


class ColumnMoments:
    """Mean and variance of a matrix's columns, gathered chunk by chunk without cancellation.

    Attributes:
        count: Rows seen.
        mean: Column means, shape ``(width,)``.
        squares: Sums of squared distances from the mean, shape ``(width,)``.
    """

    def __init__(self, width: int, like: Tensor) -> None:
        self.count = 0
        self.mean = like.new_zeros(width)
        self.squares = like.new_zeros(width)

    def update(self, chunk: Tensor, scratch: Scratch) -> None:
        """Take in more rows (pairwise merge of Chan, Golub and LeVeque).

        Args:
            chunk: At least one row, shape ``(rows, width)``.
            scratch: Its matrix "centred" is used.
        """
        mean = chunk.mean(0)
        centred = torch.sub(chunk, mean, out=scratch.take("centred", chunk.shape))
        squares = centred.square_().sum(0)
        total = self.count + len(chunk)
        distance = mean.sub_(self.mean)
        self.squares.add_(squares).addcmul_(distance, distance, value=self.count * len(chunk) / total)
        self.mean.add_(distance, alpha=len(chunk) / total)
        self.count = total

    def share(self, batch: SharedBatch) -> None:
        """Take in the rows that the other devices saw, once all of this device's are in."""
        mean = batch.add_up(self.mean * self.count) / batch.num_rows
        distance = self.mean - mean
        self.squares = batch.add_up(self.squares + self.count * distance.square_())
        self.count, self.mean = batch.num_rows, mean

    @property
    def variance(self) -> Tensor:
        """Biased variance, shape ``(width,)``; 0 where no row was seen."""
        return self.squares / max(self.count, 1)
