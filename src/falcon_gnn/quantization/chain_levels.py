"""The hidden blocks of a chain: what each keeps per chunk of rows, and how it comes back.

With x̂ the normalised value, m the mask of ReLU and dropout and s the dropout scale, a block's output is
a = m·s·(γx̂ + β). A gradient g of that output becomes m·s·g, and with the means of this and of its product with x̂ over
all rows, γ/σ · (m·s·g − mean(m·s·g) − x̂ · mean(m·s·g·x̂)) before the normalisation. The decoded x̂ stands for the exact
one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from falcon_gnn.quantization.bitmask import keep_factor
from falcon_gnn.quantization.chunks import Scratch
from falcon_gnn.quantization.codec import QuantizedTensor
from falcon_gnn.quantization.draws import draw_row_seeds, seeds_of
from falcon_gnn.quantization.hidden_ops import activate, hidden_gradient, mask_gradient_
from falcon_gnn.quantization.moments import ColumnMoments, SharedBatch
from falcon_gnn.quantization.products import column_sums
from falcon_gnn.quantization.saved_codes import flatten_codes, restore_codes


@dataclass(frozen=True)
class ChainConfig:
    """What a chain computes and keeps.

    Attributes:
        bits: Bits per kept value: 1, 2, 4 or 8.
        dropout: Probability of dropping a hidden unit.
        batch_norm: Whether the blocks normalise.
        eps: Added to the variance.
        shared: The batch that the rows are a part of, where the blocks normalise over several devices.
    """

    bits: int
    dropout: float = 0.0
    batch_norm: bool = True
    eps: float = 1e-5
    shared: SharedBatch | None = None


class BlockLevel:
    """What follows a hidden linear layer: batch norm, ReLU and dropout."""

    def __init__(self, config: ChainConfig, norm: tuple[Tensor, Tensor] | None, scratch: Scratch) -> None:
        self.config = config
        self.norm = norm
        self.scratch = scratch
        self.mean = self.inverse_std = self.sums = self.factors = torch.empty(0)
        self.num_rows = 0
        self.mask_seeds = self.code_seeds = torch.empty(0)
        self.masks: list[Tensor] = []
        self.codes: list[QuantizedTensor] = []

    def start_forward(self, num_rows: int) -> None:
        """Draw the seeds of the pass, for all rows."""
        if self.config.dropout:
            self.mask_seeds = draw_row_seeds(num_rows)
        self.code_seeds = draw_row_seeds(num_rows)

    def set_moments(self, moments: ColumnMoments) -> None:
        """Fix the batch statistics by which the block normalises."""
        self.mean = moments.mean
        self.inverse_std = moments.variance.add_(self.config.eps).rsqrt_()

    def activate(self, hidden: Tensor, rows: slice) -> Tensor:
        """Return the block's output for a chunk of the linear layer's output, and keep what rebuilds it.

        All chunks that a level returns are scratch: they hold until the next call.
        """
        config, chunk = self.config, self.scratch.take("activation", hidden.shape)
        norm = [] if self.norm is None else [self.mean, self.inverse_std, *self.norm]
        mask_seeds = seeds_of(self.mask_seeds, rows) if config.dropout else None
        code_seeds = seeds_of(self.code_seeds, rows)
        mask, packed, zero, scale = activate(hidden, norm, mask_seeds, code_seeds, config.dropout, config.bits, chunk)
        self.masks.append(mask)
        self.codes.append(QuantizedTensor(packed, zero, scale, tuple(hidden.shape), hidden.dtype, config.bits))
        return chunk

    def rebuild(self, index: int, gradient: Tensor) -> Tensor:
        """Return chunk ``index`` as the next linear layer saw it, up to quantisation.

        Its gradient is turned in place into that of γx̂ + β, and added to the sums.
        """
        activation = self.scratch.take("activation", self.codes[index].shape)
        affine, factor, kept = self.norm or (), keep_factor(self.config.dropout), self.codes[index].tensors
        sums = mask_gradient_(gradient, self.masks[index], kept, self.config.bits, affine, factor, activation)
        if self.norm is not None:
            self.sums.add_(sums)
        return activation

    def start_backward(self, hidden: Tensor) -> None:
        """Set the sums over all rows to zero; ``hidden`` has the shape and dtype of the whole gradient."""
        self.num_rows = hidden.shape[0]
        if self.norm is not None:
            self.sums = hidden.new_zeros(2, hidden.shape[1])

    def average_gradients(self) -> None:
        """Take the means over the whole batch, once the sums cover all rows of this device."""
        if self.norm is None:
            return
        shared = self.config.shared
        if shared is None:
            gradient_mean, product_mean = self.sums / self.num_rows
        else:
            gradient_mean, product_mean = shared.add_up(self.sums) / shared.num_rows
        self.factors = torch.stack([-product_mean, gradient_mean, self.norm[0] * self.inverse_std])

    def hidden_gradient(self, index: int, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return a chunk of the gradient of the linear layer's output, and its column sums; the means must be taken."""
        chunk = self.scratch.take("upper", gradient.shape)
        if self.norm is None:
            return chunk.copy_(gradient), column_sums(gradient)
        sums = hidden_gradient(gradient, self.codes[index].tensors, self.config.bits, self.factors, chunk)
        return chunk, sums

    def saved(self) -> list[Tensor]:
        """Return all kept tensors."""
        statistics = [] if self.norm is None else [self.mean, self.inverse_std]
        return [*statistics, *self.masks, *flatten_codes(self.codes)]

    def restore(self, tensors: Iterator[Tensor], shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> None:
        """Take back the tensors that :meth:`saved` returned from an iterator over the tensors of all levels."""
        if self.norm is not None:
            self.mean, self.inverse_std = islice(tensors, 2)
        self.masks = list(islice(tensors, len(shapes)))
        self.codes = restore_codes(list(islice(tensors, 3 * len(shapes))), shapes, dtype, self.config.bits)
