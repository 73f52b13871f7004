"""The gradient of a GCN's batch by blocks of columns: exactly that of the batch, with one matrix kept per hidden layer.

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
from falcon_gnn.quantization.chunks import row_chunks
from falcon_gnn.quantization.codec import SEED_ROWS
from falcon_gnn.quantization.draws import StepDraws
from falcon_gnn.quantization.layers import update_running_statistics
from falcon_gnn.quantization.products import add_outer_, add_product_, gradient_of, multiply
from falcon_gnn.training.batches import GraphBatch
from falcon_gnn.training.config import Precision
from falcon_gnn.training.models import GCN, Features, GraphInput
from falcon_gnn.training.propagation import SparseMatrix
from falcon_gnn.training.targets import Targets

_ALIGNMENT = 8
"""Columns of a block are a multiple of so many: a byte of a mask."""


def add_block_gradients(
    model: GCN,
    batch: GraphBatch,
    precision: Precision,
    num_blocks: int,
    weight: Tensor | float,
    walked: int | None = None,
) -> Tensor:
    """Add the gradient of a batch's summed loss, divided by ``weight``, to the parameters' gradients; return the loss.

    Args:
        model: In training mode, with at least one hidden layer and full-precision activations.
        batch: On the model's device, with at least one target.
        precision: As in ``training_step``.
        num_blocks: Into how many blocks of columns a hidden layer is cut.
        weight: ``batch.targets.loss_weight`` for the mean loss.
        walked: Blocks that are gone through at all; None for all of them. Memory is predicted from the first few.
    """
    with torch.no_grad():
        dtype = torch.bfloat16 if precision == "bf16" else None
        step = _BlockedStep(model, batch.inputs, num_blocks, dtype, walked)
        outputs = step.forward()
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        loss, gradient = _differentiate(batch.targets, outputs, batch.rows, weight)
        del outputs
        step.backward(gradient)
    return loss


def _differentiate(
    targets: Targets, outputs: Tensor, rows: Tensor | None, weight: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient in the outputs of all nodes; ``outputs`` is used up."""
    total = torch.zeros((), dtype=torch.float64, device=outputs.device)
    gradient = outputs if rows is None else torch.zeros_like(outputs)
    for part in row_chunks(len(targets), outputs.shape[1]):
        ids = part if rows is None else rows[part]
        with torch.enable_grad():
            leaf = outputs[ids].detach().clone().requires_grad_()
            loss = targets.rows(part).summed_loss(leaf) / weight
            (gradient[ids],) = torch.autograd.grad(loss, leaf)
        total += loss.detach()
    return total, gradient


@dataclass
class _Level:
    """A hidden layer of n nodes.

    Attributes:
        norm: Its batch norm, or None.
        mask: Which values dropout keeps, a bit each, uint8, shape ``(n, ceil(channels / 8))``; None without dropout.
        z: What is normalised, then its gradient, shape ``(n, channels)``; None of the first layer.
        mean: Column means, shape ``(channels,)``, where there is a norm; filled block by block.
        inverse_std: 1 / sqrt(variance + ε), likewise.
    """

    norm: nn.BatchNorm1d | None
    mask: Tensor | None
    z: Tensor | None
    mean: Tensor
    inverse_std: Tensor


@dataclass
class _Block:
    """Columns of a hidden layer: what the next layer reads, and where the gradient passes.

    Attributes:
        activation: A_c, shape ``(n, c)``.
        normalized: x̂_c; None without batch norm.
    """

    activation: Tensor
    normalized: Tensor | None


class _BlockedStep:
    def __init__(
        self, model: GCN, inputs: GraphInput, num_blocks: int, dtype: torch.dtype | None, walked: int | None
    ) -> None:
        self.model, self.inputs, self.dtype, self.walked = model, inputs, dtype, walked
        self.num_nodes, self.width = inputs.adjacency.num_rows, model.config.hidden_channels
        step = -(-self.width // num_blocks)
        step += -step % _ALIGNMENT
        self.blocks = [slice(first, min(first + step, self.width)) for first in range(0, self.width, step)][:walked]
        self.draws, self.levels = StepDraws(self.num_nodes), list[_Level]()

    @property
    def adjacency(self) -> SparseMatrix:
        """Ã."""
        return self.inputs.adjacency

    def forward(self) -> Tensor:
        """Return the outputs, shape ``(n, L)``; the levels then hold what the backward pass needs."""
        depth = self.model.config.num_layers
        self.levels.append(self._new_level(0, None))
        for index in range(1, depth - 1):
            layer = self.model.layer(index)
            z = layer.bias.expand(self.num_nodes, -1).clone()
            for columns in self.blocks:
                activation = self._make(index - 1, columns, is_first=True).activation
                self._add_to(z, self.adjacency @ activation, layer.weight[columns])
                if layer.own_weight is not None:
                    self._add_to(z, activation, layer.own_weight[columns])
                del activation
            self.levels.append(self._new_level(index, z))
        head = self.model.layer(depth - 1)
        outputs = head.bias.expand(self.num_nodes, -1).clone()
        product = torch.zeros_like(outputs)
        for columns in self.blocks:
            activation = self._make(depth - 2, columns, is_first=True).activation
            self._add_to(product, activation, head.weight[columns])
            if head.own_weight is not None:
                self._add_to(outputs, activation, head.own_weight[columns])
            del activation
        self._update_statistics()
        return outputs.add_(self.adjacency @ product)

    def backward(self, gradient: Tensor) -> None:
        """Add the parameters' gradients; ``gradient`` is that of the outputs, shape ``(n, L)``."""
        last = len(self.levels) - 1
        head = self.model.layer(last + 1)
        gradient_of(head.bias).add_(gradient.sum(0))
        back = self._back(gradient)
        for columns in self.blocks:
            block = self._make(last, columns)
            add_outer_(gradient_of(head.weight)[columns], block.activation, back, self.dtype)
            below = self._times(back, head.weight[columns])
            if head.own_weight is not None:
                add_outer_(gradient_of(head.own_weight)[columns], block.activation, gradient, self.dtype)
                self._add_to(below, gradient, head.own_weight[columns].t())
            self._pass_down(last, columns, block, below)
            del block, below
        del back, gradient
        for index in reversed(range(last)):
            self._backward_hidden(index)

    def _backward_hidden(self, index: int) -> None:
        """Go back through layer ``index + 1``, whose gradient has taken its place, to level ``index``."""
        layer, above = self.model.layer(index + 1), self.levels[index + 1]
        gradient = above.z
        assert gradient is not None
        gradient_of(layer.bias).add_(gradient.sum(0))
        for columns in self.blocks:
            block = self._make(index, columns)
            aggregated = self.adjacency @ block.activation
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

    def _pass_down(self, index: int, columns: slice, block: _Block, gradient: Tensor) -> None:
        """Take the gradient of a block of activations, used up, to what was normalised and below; uses up the block."""
        level = self.levels[index]
        # Where ReLU or dropout left a zero nothing passes; a kept value was multiplied with the factor.
        gradient.mul_(block.activation.sign_()).mul_(keep_factor(self.model.config.dropout))
        if level.norm is not None:
            normalized = block.normalized
            assert normalized is not None
            sums = gradient.sum(0)
            products = torch.mul(normalized, gradient, out=block.activation).sum(0)
            gradient_of(level.norm.bias)[columns].add_(sums)
            gradient_of(level.norm.weight)[columns].add_(products)
            gradient.sub_(sums / self.num_nodes).sub_(normalized.mul_(products / self.num_nodes))
            gradient.mul_(level.norm.weight[columns] * level.inverse_std[columns])
        if level.z is not None:
            level.z[:, columns] = gradient
            return
        layer = self.model.layer(0)
        gradient_of(layer.bias)[columns].add_(gradient.sum(0))
        self._add_input_gradient(layer.weight, columns, self.inputs.aggregated, gradient)
        if layer.own_weight is not None:
            assert self.inputs.features is not None
            self._add_input_gradient(layer.own_weight, columns, self.inputs.features, gradient)

    def _add_input_gradient(self, weight: Tensor, columns: slice, features: Features, gradient: Tensor) -> None:
        target = gradient_of(weight)[:, columns]
        if isinstance(features, SparseMatrix):
            assert features.transposed is not None
            target.add_(features.transposed @ gradient)
        else:
            add_outer_(target, features, gradient, self.dtype)

    def _make(self, index: int, columns: slice, *, is_first: bool = False) -> _Block:
        """Return a block of a level's activations; the first time its moments are found as well."""
        level = self.levels[index]
        z = self._first_layer(columns) if level.z is None else level.z[:, columns].clone()
        normalized = None
        if level.norm is not None:
            if is_first:
                variance, mean = torch.var_mean(z, 0, correction=0)
                level.mean[columns], level.inverse_std[columns] = mean, (variance + level.norm.eps).rsqrt_()
            normalized = z.sub_(level.mean[columns]).mul_(level.inverse_std[columns])
            z = torch.mul(normalized, level.norm.weight[columns]).add_(level.norm.bias[columns])
            normalized = None if is_first else normalized
        z.relu_()
        if level.mask is not None:
            z.mul_(_unpack_columns(level.mask, columns)).mul_(keep_factor(self.model.config.dropout))
        return _Block(z, normalized)

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

    def _new_level(self, index: int, z: Tensor | None) -> _Level:
        model = self.model
        norm = model.norms[index] if model.norms else None
        assert norm is None or isinstance(norm, nn.BatchNorm1d)
        empty = model.layer(0).weight.new_empty(self.width if norm is not None else 0)
        return _Level(norm, self._draw_mask(index), z, empty, torch.empty_like(empty))

    def _draw_mask(self, index: int) -> Tensor | None:
        """Return which values of a level dropout keeps, with its columns in the order of bits and bytes."""
        dropout = self.model.config.dropout
        if not dropout:
            return None
        like = self.model.layer(0).weight
        mask = torch.empty(self.num_nodes, -(-self.width // 8), dtype=torch.uint8, device=like.device)
        for first in range(0, self.num_nodes, SEED_ROWS)[: self.walked]:
            last = min(first + SEED_ROWS, self.num_nodes)
            seeds = self.draws.seeds(index, first, last - first)
            bits = dropout_bits(seeds, like.new_empty(1).expand(last - first, self.width), dropout)
            mask[first:last] = _pack_columns(unpack_bits(bits, (last - first, self.width)))
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


def _pack_columns(mask: Tensor) -> Tensor:
    """Return a bool matrix with eight columns to a byte, the first in the lowest bit."""
    num_rows, width = mask.shape
    padded = mask if width % 8 == 0 else torch.nn.functional.pad(mask, (0, -width % 8))
    values = padded.view(torch.uint8).view(num_rows, -1, 8)
    return (values * _bit_values(mask.device)).sum(2, dtype=torch.uint8)


def _unpack_columns(packed: Tensor, columns: slice) -> Tensor:
    """Return some columns of the matrix, 1 where a bit is set, uint8; they begin at a multiple of eight."""
    octets = packed[:, columns.start // 8 : -(-columns.stop // 8)]
    bits = octets[:, :, None].bitwise_and(_bit_values(packed.device)).ne(0).view(torch.uint8)
    return bits.view(len(packed), -1)[:, : columns.stop - columns.start]


def _bit_values(device: torch.device) -> Tensor:
    return (1 << torch.arange(8, device=device)).to(torch.uint8)
