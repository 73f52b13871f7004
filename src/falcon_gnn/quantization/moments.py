"""Means and variances of a batch's columns, of which this device may hold a share of the rows only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from falcon_gnn.quantization.hidden_ops import merge_moments_


@dataclass(frozen=True)
class SharedBatch:
    """A batch whose rows are shared out among several devices.

    Attributes:
        add_up: Returns the sum of a tensor over the devices, the same on each.
        num_rows: Rows on all devices together, a tensor of no dimension: what it holds is never waited for.
    """

    add_up: Callable[[Tensor], Tensor]
    num_rows: Tensor


@runtime_checkable
class SharesBatch(Protocol):
    """A batch norm whose moments are those of a batch on several devices."""

    def share_batch(self, num_rows: int) -> SharedBatch:
        """Return the global batch; ``num_rows`` of it are this device's."""


class ColumnMoments:
    """Mean and variance of a matrix's columns, gathered chunk by chunk without cancellation.

    Attributes:
        count: Rows seen; a tensor once those of other devices are in.
        mean: Column means, shape ``(width,)``.
        squares: Sums of squared distances from the mean, shape ``(width,)``.
    """

    def __init__(self, width: int, like: Tensor) -> None:
        self.count: int | Tensor = 0
        self.mean = like.new_zeros(width)
        self.squares = like.new_zeros(width)

    def update(self, chunk: Tensor) -> None:
        """Take in more rows, shape ``(rows, width)``."""
        assert isinstance(self.count, int)
        merge_moments_(self.mean, self.squares, chunk, self.count)
        self.count += len(chunk)

    def share(self, batch: SharedBatch) -> None:
        """Take in the rows that the other devices saw, once all of this device's are in."""
        mean = batch.add_up(self.mean * self.count) / batch.num_rows
        distance = self.mean - mean
        self.squares = batch.add_up(self.squares + self.count * distance.square_())
        self.count, self.mean = batch.num_rows, mean

    @property
    def variance(self) -> Tensor:
        """Biased variance, shape ``(width,)``; 0 where no row was seen."""
        return self.squares / (max(self.count, 1) if isinstance(self.count, int) else self.count.clamp(min=1))
