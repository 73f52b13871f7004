"""A GCN's step by blocks of columns: exactly the unsplit one, with one matrix kept per hidden layer.

A block of columns of a hidden layer holds all nodes, so that it is normalised, activated and aggregated by itself:

- Forward, a block of layer l's activation A_c adds Ã A_c W[c, :] (and A_c W'[c, :] with ``concat_self``) to the next
  layer's Z. Z is kept, but that of the first layer, which is made again from the features whenever a block is needed.
- Backward, with dZ of the layer above at hand, a block is made again; it gives its rows of W's gradient, and with
  Ã (dZ W[c, :]ᵀ) its own dZ_c, which takes the place of Z_c.

For d layers d - 2 matrices of the hidden size are kept, one bit per hidden value for dropout, and a few blocks. Masks
are those of the unsplit step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from falcon_gnn.quantization.bitmask import dropout_bits, keep_factor, unpack_bits
from falcon_gnn.quantization.codec import SEED_ROWS
from falcon_gnn.quantization.column_masks import mask_columns_, pack_columns
from falcon_gnn.quantization.draws import StepDraws, seeds_of
from falcon_gnn.quantization.layers import update_running_statistics
from falcon_gnn.quantization.products import add_outer_, add_product_, gradient_of, multiply
from falcon_gnn.training.models import GCN, Features, GraphInput
from falcon_gnn.training.propagation import SparseMatrix

_ALIGNMENT = 8
"""Columns of a block are a multiple of so many: a byte of a mask."""


@dataclass
class Level:
    """A hidden layer of n nodes.

    Attributes:
        index: Which, from 0.
        norm: Its batch norm, or None.
        mask: Which values dropout keeps, a bit each, uint8, shape ``(n, ceil(channels / 8))``; None without dropout.
        z: What is normalised, then its gradient, shape ``(n, channels)``; None of the first layer.
        mean: Column means, shape ``(channels,)``, where there is a norm; filled block by block.
        inverse_std: 1 / sqrt(variance + ε), likewise.
    """

    index: int
    norm: nn.BatchNorm1d | None
    mask: Tensor | None
    z: Tensor | None
    mean: Tensor
    inverse_std: Tensor


@dataclass
class Block:
    """Columns of a hidden layer: what the next layer reads, and where the gradient passes.

    Attributes:
        activation: A_c, shape ``(n, c)``.
        normalized: x̂_c; None without batch norm.
    """

    activation: Tensor
    normalized: Tensor | None


class BlockedStep:
    """One step over the blocks of a batch's graph; without gradients of torch's own.

    Args:
        model: In training mode, with at least one hidden layer.
        inputs: The graph.
        num_blocks: Into how many blocks of columns a hidden layer is cut.
        dtype: Type of the dense products; None for that of the weights.
        walked: Blocks that are gone through at all; None for all of them.
    """

    def __init__(
        self, model: GCN, inputs: GraphInput, num_blocks: int, dtype: torch.dtype | None, walked: int | None
    ) -> None:
        self.model, self.inputs, self.dtype, self.walked = model, inputs, dtype, walked
        self.num_nodes, self.width = inputs.adjacency.num_rows, model.config.hidden_channels
        self.step = -(-self.width // num_blocks)
        self.step += -self.step % _ALIGNMENT
        self.num_blocks = -(-self.width // self.step)
        starts = range(0, self.width, self.step)
        self.blocks = [slice(first, min(first + self.step, self.width)) for first in starts][:walked]
        self.draws, self.levels = StepDraws(self.num_nodes), list[Level]()

    @property
    def adjacency(self) -> SparseMatrix:
        """Ã."""
        return self.inputs.adjacency

    def forward(self) -> Tensor:
        """Return the outputs, shape ``(n, L)``; the levels then hold what the backward pass needs."""
        self.levels.append(self._new_level(0, None))
        for index in range(1, self.model.config.num_layers - 1):
            self.levels.append(self._new_level(index, self._read_level(index - 1, slice(0, self.width))))
        last = len(self.levels) - 1
        outputs, product = self._start_outputs()
        for columns in self.blocks:
            activation = self._make(last, columns, is_first=True, has_normalized=False).activation
            self._add_to_outputs(outputs, product, columns, activation)
            del activation
        self._update_statistics()
        return outputs.add_(self.adjacency @ product)

    def _read_level(self, index: int, upper: slice, *, is_first: bool = True) -> Tensor:
        """Return columns ``upper`` of what the level after ``index`` normalises, shape ``(n, upper)``."""
        layer = self.model.layer(index + 1)
        z = layer.bias[upper].expand(self.num_nodes, -1).clone()
        for columns in self.blocks:
            activation = self._make(index, columns, is_first=is_first, has_normalized=False).activation
            self._add_to(z, self._aggregate(index, columns, activation), layer.weight[columns, upper])
            if layer.own_weight is not None:
                self._add_to(z, activation, layer.own_weight[columns, upper])
            del activation
        return z

    def _start_outputs(self) -> tuple[Tensor, Tensor]:
        """Return the outputs and what Ã is still to be multiplied with, both shape ``(n, L)``, without any block."""
        bias = self.model.layer(self.model.config.num_layers - 1).bias
        outputs = bias.expand(self.num_nodes, -1).clone()
        return outputs, torch.zeros_like(outputs)

    def _add_to_outputs(self, outputs: Tensor, product: Tensor, columns: slice, activation: Tensor) -> None:
        head = self.model.layer(self.model.config.num_layers - 1)
        self._add_to(product, activation, head.weight[columns])
        if head.own_weight is not None:
            self._add_to(outputs, activation, head.own_weight[columns])

    def backward(self, gradient: Tensor) -> None:
        """Add the parameters' gradients; ``gradient`` is that of the outputs, shape ``(n, L)``."""
        last = len(self.levels) - 1
        head = self.model.layer(last + 1)
        gradient_of(head.bias).add_(gradient.sum(0))
        back = self._back(gradient)
        for columns in self.blocks:
            block = self._make(last, columns)
            self._add_head_gradient(columns, block.activation, back, gradient)
            self._pass_down(last, columns, block, self._below_outputs(columns, back, gradient))
            del block
        del back, gradient
        for index in reversed(range(last)):
            self._backward_hidden(index)

    def _add_head_gradient(self, columns: slice, activation: Tensor, back: Tensor, gradient: Tensor) -> None:
        """Add the gradient of the outputs' weights for a block; arguments as in :meth:`_below_outputs`."""
        head = self.model.layer(self.model.config.num_layers - 1)
        add_outer_(gradient_of(head.weight)[columns], activation, back, self.dtype)
        if head.own_weight is not None:
            add_outer_(gradient_of(head.own_weight)[columns], activation, gradient, self.dtype)

    def _below_outputs(self, columns: slice, back: Tensor, gradient: Tensor, scale: Tensor | None = None) -> Tensor:
        """Return the gradient of a block of the last level's activations, shape ``(n, c)``.

        Args:
            columns: The block.
            back: Ãᵀ G.
            gradient: G, that of the outputs.
            scale: What the columns are multiplied with, shape ``(c,)``; None for nothing.
        """
        head = self.model.layer(self.model.config.num_layers - 1)
        weights = [weight if weight is None else weight[columns] for weight in (head.weight, head.own_weight)]
        if scale is not None:
            weights = [weight if weight is None else weight * scale[:, None] for weight in weights]
        weight, own_weight = weights
        assert weight is not None
        below = self._times(back, weight)
        if own_weight is not None:
            self._add_to(below, gradient, own_weight.t())
        return below

    def _backward_hidden(self, index: int) -> None:
        """Go back through layer ``index + 1``, whose gradient has taken its place, to level ``index``."""
        layer, above = self.model.layer(index + 1), self.levels[index + 1]
        gradient = above.z
        assert gradient is not None
        gradient_of(layer.bias).add_(gradient.sum(0))
        for columns in self.blocks:
            block = self._make(index, columns)
            aggregated = self._aggregate(index, columns, block.activation)
            add_outer_(gradient_of(layer.weight)[columns], aggregated, gradient, self.dtype)
            del aggregated
            if layer.own_weight is not None:
                add_outer_(gradient_of(layer.own_weight)[columns], block.activation, gradient, self.dtype)
            below = self._back(self._times(gradient, layer.weight[columns]))
            if layer.own_weight is not None:
                self._add_to(below, gradient, layer.own_weight[columns].t())
            self._pass_down(index, columns, block, below)
            del block, below
        above.z = None

    def _pass_down(self, index: int, columns: slice, block: Block, gradient: Tensor) -> None:
        """Take the gradient of a block of activations, used up, to what was normalised and below; uses up the block."""
        level = self.levels[index]
        self._mask_gradient(level, columns, block, gradient)
        if level.norm is not None:
            normalized = block.normalized
            assert normalized is not None
            sums = gradient.sum(0)
            products = torch.mul(normalized, gradient, out=block.activation).sum(0)
            gradient_of(level.norm.bias)[columns].add_(sums)
            gradient_of(level.norm.weight)[columns].add_(products)
            gradient.sub_(sums / self.num_nodes).sub_(normalized.mul_(products / self.num_nodes))
            gradient.mul_(level.norm.weight[columns] * level.inverse_std[columns])
        if index > 0:
            if level.z is None:
                level.z = gradient.new_empty(self.num_nodes, self.width)
            level.z[:, columns] = gradient
            return
        layer = self.model.layer(0)
        gradient_of(layer.bias)[columns].add_(gradient.sum(0))
        self._add_input_gradient(layer.weight, columns, self.inputs.aggregated, gradient)
        if layer.own_weight is not None:
            assert self.inputs.features is not None
            self._add_input_gradient(layer.own_weight, columns, self.inputs.features, gradient)

    def _mask_gradient(self, level: Level, columns: slice, block: Block, gradient: Tensor) -> None:
        """Take the gradient of a block of activations through dropout and ReLU, in place; uses up the activations."""
        # Where one of them left a zero nothing passes; a kept value was multiplied with the factor.
        gradient.mul_(block.activation.sign_()).mul_(keep_factor(self.model.config.dropout))

    def _add_input_gradient(self, weight: Tensor, columns: slice, features: Features, gradient: Tensor) -> None:
        target = gradient_of(weight)[:, columns]
        if isinstance(features, SparseMatrix):
            assert features.transposed is not None
            target.add_(features.transposed @ gradient)
        else:
            add_outer_(target, features, gradient, self.dtype)

    def _make(self, index: int, columns: slice, *, is_first: bool = False, has_normalized: bool = True) -> Block:
        """Return a block of a level's activations, with x̂ or without; made first, its moments are found."""
        level = self.levels[index]
        z = self._first_layer(columns) if level.z is None else level.z[:, columns].clone()
        return self._activate(level, columns, z, is_first=is_first, has_normalized=has_normalized)

    def _activate(self, level: Level, columns: slice, z: Tensor, *, is_first: bool, has_normalized: bool) -> Block:
        """Return the block of what is normalised, shape ``(n, c)``, which is used up."""
        normalized = None
        if level.norm is not None:
            if is_first:
                variance, mean = torch.var_mean(z, 0, correction=0)
                level.mean[columns], level.inverse_std[columns] = mean, (variance + level.norm.eps).rsqrt_()
            normalized = z.sub_(level.mean[columns]).mul_(level.inverse_std[columns])
            z = torch.mul(normalized, level.norm.weight[columns]).add_(level.norm.bias[columns])
            normalized = normalized if has_normalized else None
        z.relu_()
        if is_first:
            self._remember(level.index, columns, z)
        if self.model.config.dropout:
            assert level.mask is not None
            self._drop(z, level.mask, columns)
        return Block(z, normalized)

    def _drop(self, values: Tensor, mask: Tensor, columns: slice) -> None:
        """Apply dropout to a block of columns, in place."""
        mask_columns_(values, mask, columns.start, keep_factor(self.model.config.dropout))

    def _remember(self, index: int, columns: slice, values: Tensor) -> None:
        """Leave a block of a level, new and before dropout, to whoever reads it later: nobody on a graph by itself."""

    def _aggregate(self, index: int, columns: slice, activation: Tensor) -> Tensor:
        """Return what the layer after level ``index`` multiplies with its weights for a block, shape ``(n, c)``."""
        return self.adjacency @ activation

    def _first_layer(self, columns: slice) -> Tensor:
        """Return columns of what the first hidden layer normalises, from the features."""
        layer = self.model.layer(0)
        z = layer.bias[columns].expand(self.num_nodes, -1).clone()
        pairs = [(self.inputs.aggregated, layer.weight), (self.inputs.features, layer.own_weight)]
        for features, weight in pairs:
            if weight is None or features is None:
                continue
            if isinstance(features, SparseMatrix):
                z.add_(features @ weight[:, columns])
            else:
                self._add_to(z, features, weight[:, columns])
        return z

    def _new_level(self, index: int, z: Tensor | None) -> Level:
        model = self.model
        norm = model.norms[index] if model.norms else None
        assert norm is None or isinstance(norm, nn.BatchNorm1d)
        empty = model.layer(0).weight.new_empty(self.width if norm is not None else 0)
        mask = None
        if model.config.dropout:
            mask = self._draw_mask(self.draws.seeds(index, 0, self.num_nodes), self.num_nodes)
        return Level(index, norm, mask, z, empty, torch.empty_like(empty))

    def _draw_mask(self, seeds: Tensor, num_rows: int) -> Tensor:
        """Return which values dropout keeps, a bit each, with columns in the order of bits and bytes."""
        like = self.model.layer(0).weight
        mask = torch.empty(num_rows, -(-self.width // 8), dtype=torch.uint8, device=like.device)
        for first in range(0, num_rows, SEED_ROWS)[: self.walked]:
            rows = slice(first, min(first + SEED_ROWS, num_rows))
            shape = (rows.stop - first, self.width)
            bits = dropout_bits(seeds_of(seeds, rows), like.new_empty(1).expand(shape), self.model.config.dropout)
            mask[rows] = pack_columns(unpack_bits(bits, shape))
        return mask

    def _update_statistics(self) -> None:
        for level in self.levels:
            if level.norm is not None:
                variance = level.inverse_std.pow(-2) - level.norm.eps
                update_running_statistics(level.norm, level.mean, variance, self.num_nodes)

    def _back(self, gradient: Tensor) -> Tensor:
        """Return Ãᵀ G."""
        back = self.adjacency.transposed or self.adjacency
        return back @ gradient

    def _times(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """Return G Wᵀ."""
        return multiply(gradient, weight.t(), gradient.new_empty(len(gradient), len(weight)), self.dtype)

    def _add_to(self, total: Tensor, a: Tensor, b: Tensor) -> None:
        add_product_(total, a, b, self.dtype)
