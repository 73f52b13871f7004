"""Means and variances of a batch's columns, of which this device may hold a share of the rows only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
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


class InputScatter:
    """Means of an input's columns and their scatter matrix S = Σ (x − x̄)(x − x̄)ᵀ, in double precision.

    They tell what a batch norm behind a linear layer W, b needs of the batch: the mean W x̄ + b, the sum of squared
    distances from it, the diagonal of W S Wᵀ, and Σ x̂ xᵀ = W S / σ.

    Args:
        x: The input, shape ``(rows, width)``.
        pieces: Ranges of rows that are worked on together.
    """

    def __init__(self, x: Tensor, pieces: Sequence[slice]) -> None:
        self.num_rows = len(x)
        self.sums = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        self.matrix = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
        for rows in pieces:
            self.sums.add_(x[rows].sum(0, dtype=torch.float64))
        mean = self.sums / self.num_rows
        for rows in pieces:
            centered = x[rows] - mean
            self.matrix.addmm_(centered.t(), centered)
            del centered

    def moments(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and biased variance of a linear layer's output, shape ``(out,)``, in the layer's type."""
        wide = weight.double()
        variance = (wide @ self.matrix).mul_(wide).sum(1).div_(self.num_rows)
        return (wide @ (self.sums / self.num_rows)).to(bias.dtype).add_(bias), variance.to(bias.dtype)

    def multiply(self, weight: Tensor) -> Tensor:
        """Return W S, shape ``(out, width)``, in the layer's type."""
        return (weight.double() @ self.matrix).to(weight.dtype)
