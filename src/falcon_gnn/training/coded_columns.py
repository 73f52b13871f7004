"""A GCN's step by blocks of columns with compressed activations: no hidden layer ever exists as a whole.

What the first level holds is made again from the features. Of a higher level x̂ is kept at ``bits`` bits (without batch
norm the activation) and one bit per value for ReLU and dropout together, block by block:

- Forward, some blocks of the last level at a time are added up over all blocks of the level below, encoded, and at
  once read by the outputs. The outputs are exact. A level between the first and the last, where there are more than
  three layers, is whole until the level above has read it, and is encoded then.
- Backward, dZ_j of the last level is made from the outputs' gradient and the codes for each block of the level below
  anew: it costs two products of c x L, where keeping it would take a matrix.

The gradients are those of a step whose last level was decoded once: unbiased for the weights where the codes are.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from falcon_gnn.quantization.bitmask import keep_factor
from falcon_gnn.quantization.codec import GROUP_SIZE, QuantizedTensor, dequantize, draw_seeds, quantize
from falcon_gnn.quantization.column_masks import mask_columns_, pack_columns
from falcon_gnn.quantization.products import gradient_of, multiply
from falcon_gnn.training.column_steps import Block, BlockedStep, Level

BLOCKS_TOGETHER = 4
"""Blocks of the last level that are added up together: each time all blocks of the level below are made again."""


class _Codes:
    """Blocks of one matrix at b bits, in memory that is taken at once.

    One draw of torch's generator serves all blocks, so that their number does not move the masks of later steps.
    """

    def __init__(self, num_blocks: int, num_values: int, bits: int, like: Tensor) -> None:
        groups = -(-num_values // GROUP_SIZE)
        self.bits, self.dtype, self.seed = bits, like.dtype, draw_seeds()
        self.packed = like.new_empty(num_blocks, groups * GROUP_SIZE * bits // 8, dtype=torch.uint8)
        self.zero = like.new_empty(num_blocks, groups, dtype=torch.bfloat16)
        self.scale = torch.empty_like(self.zero)

    def write(self, block: int, values: Tensor) -> None:
        """Keep a block, which may be narrower than the others."""
        coded = quantize(values, self.bits, seed=self.seed + block)
        for target, part in zip(
            (self.packed, self.zero, self.scale), (coded.packed, coded.zero, coded.scale), strict=True
        ):
            target[block, : len(part)] = part

    def read(self, block: int, num_rows: int, width: int) -> Tensor:
        """Return a block, shape ``(num_rows, width)``, each value within one step of what it was."""
        groups = -(-num_rows * width // GROUP_SIZE)
        packed = self.packed[block, : groups * GROUP_SIZE * self.bits // 8]
        zero, scale = self.zero[block, :groups], self.scale[block, :groups]
        return dequantize(QuantizedTensor(packed, zero, scale, (num_rows, width), self.dtype, self.bits))


@dataclass
class _CodedLevel(Level):
    """A hidden level; once it is encoded, its mask says where ReLU and dropout let a value pass.

    Attributes:
        codes: x̂, or without batch norm the activation; None as long as the level is not encoded.
    """

    codes: _Codes | None = None


class CodedStep(BlockedStep):
    """One step of a model with ``bits`` and at least two hidden levels."""

    gradient_mean: Tensor
    product_mean: Tensor
    """Of the last level, over all nodes: of the gradient where it enters batch norm, and of its product with x̂."""

    def forward(self) -> Tensor:
        """Return the outputs, shape ``(n, L)``; the levels then hold what the backward pass needs."""
        last = self.model.config.num_layers - 2
        # Before the codes draw theirs, so that masks are those of the unsplit step at full precision.
        self.draws.seeds(last, 0, self.num_nodes)
        self.levels.append(self._new_level(0, None))
        for index in range(1, last):
            self.levels.append(self._new_level(index, self._read_level(index - 1, slice(0, self.width))))
            self._encode(index - 1)
        outputs, product = self._start_outputs()
        level = self._new_level(last, None)
        level.codes = self._new_codes()
        for first in range(0, len(self.blocks), BLOCKS_TOGETHER):
            together = slice(first * self.step, min((first + BLOCKS_TOGETHER) * self.step, self.width))
            z = self._read_level(last - 1, together, is_first=first == 0)
            for columns in self.blocks[first : first + BLOCKS_TOGETHER]:
                part = z[:, columns.start - together.start : columns.stop - together.start].clone()
                made = self._activate(level, columns, part, is_first=True, has_normalized=True)
                self._keep(level, level.codes, columns, made)
                self._add_to_outputs(outputs, product, columns, made.activation)
                del part, made
            del z
        self.levels.append(level)
        self._encode(last - 1)
        self._update_statistics()
        return outputs.add_(self.adjacency @ product)

    def backward(self, gradient: Tensor) -> None:
        """Add the parameters' gradients; ``gradient`` is that of the outputs, shape ``(n, L)``."""
        last = len(self.levels) - 1
        back = self._back(gradient)
        self._backward_outputs(back, gradient)
        self._backward_last(back, gradient)
        del back, gradient
        for index in reversed(range(last - 1)):
            self._backward_hidden(index)

    def _backward_outputs(self, back: Tensor, gradient: Tensor) -> None:
        """Add the gradients of the outputs' layer and of the last level's norm, and find the means that it needs."""
        last = len(self.levels) - 1
        head, norm = self.model.layer(last + 1), self.levels[last].norm
        gradient_of(head.bias).add_(gradient.sum(0))
        self.gradient_mean = gradient.new_empty(self.width if norm is not None else 0)
        self.product_mean = torch.empty_like(self.gradient_mean)
        for columns in self.blocks:
            block = self._make(last, columns)
            self._add_head_gradient(columns, block.activation, back, gradient)
            if norm is not None and block.normalized is not None:
                normalized = block.normalized
                del block
                below = self._below_activation(columns, back, gradient)
                sums, products = below.sum(0), normalized.mul_(below).sum(0)
                gradient_of(norm.bias)[columns].add_(sums)
                gradient_of(norm.weight)[columns].add_(products)
                self.gradient_mean[columns], self.product_mean[columns] = (
                    sums / self.num_nodes,
                    products / self.num_nodes,
                )
                del below, normalized

    def _backward_last(self, back: Tensor, gradient: Tensor) -> None:
        """Go back through the last hidden layer, whose gradient is made block by block, to the level below."""
        last = len(self.levels) - 1
        layer = self.model.layer(last)
        for columns in self.blocks:
            activation = self._make(last - 1, columns, has_normalized=False).activation
            read = self._aggregate(last - 1, columns, activation)
            weights, width = [layer.weight], read.shape[1]
            if layer.own_weight is not None:
                # Side by side, so that each product is one of twice the width.
                weights.append(layer.own_weight)
                read = torch.cat([read, activation], 1)
            del activation
            through = torch.zeros_like(read)
            for upper in self.blocks:
                above = self._last_gradient(upper, back, gradient)
                if columns.start == 0:
                    gradient_of(layer.bias)[upper].add_(above.sum(0))
                product = multiply(read.t(), above, above.new_empty(read.shape[1], above.shape[1]), self.dtype)
                for weight, part in zip(weights, product.chunk(len(weights)), strict=True):
                    gradient_of(weight)[columns, upper].add_(part)
                self._add_to(through, above, torch.cat([weight[columns, upper] for weight in weights]).t())
                del above
            del read
            below = self._back(through[:, :width].contiguous())
            if layer.own_weight is not None:
                below.add_(through[:, width:])
            del through
            self._pass_down(last - 1, columns, self._make(last - 1, columns), below)
            del below

    def _last_gradient(self, columns: slice, back: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of a block of what the last level normalises, shape ``(n, c)``."""
        level = self.levels[-1]
        if level.norm is None:
            return self._below_activation(columns, back, gradient)
        scale = level.norm.weight[columns] * level.inverse_std[columns]
        below = self._below_activation(columns, back, gradient, scale)
        slope = self.product_mean[columns] * scale
        below.addcmul_(self._decode(level, columns), slope, value=-1)
        return below.sub_(self.gradient_mean[columns] * scale)

    def _below_activation(self, columns: slice, back: Tensor, gradient: Tensor, scale: Tensor | None = None) -> Tensor:
        """Return the gradient of a block of the last level before ReLU and dropout, times ``scale`` if it is given."""
        below = self._below_outputs(columns, back, gradient, scale)
        self._pass_mask(self.levels[-1], columns, below)
        return below

    def _pass_mask(self, level: Level, columns: slice, gradient: Tensor) -> None:
        assert level.mask is not None
        mask_columns_(gradient, level.mask, columns.start, keep_factor(self.model.config.dropout))

    def _mask_gradient(self, level: Level, columns: slice, block: Block, gradient: Tensor) -> None:
        if isinstance(level, _CodedLevel) and level.codes is not None:
            self._pass_mask(level, columns, gradient)
        else:
            super()._mask_gradient(level, columns, block, gradient)

    def _make(self, index: int, columns: slice, *, is_first: bool = False, has_normalized: bool = True) -> Block:
        level = self.levels[index]
        if not isinstance(level, _CodedLevel) or level.codes is None:
            return super()._make(index, columns, is_first=is_first, has_normalized=has_normalized)
        value, normalized = self._decode(level, columns), None
        if level.norm is None:
            return Block(value, None)
        if has_normalized:
            normalized, value = value, value.clone()
        value.mul_(level.norm.weight[columns]).add_(level.norm.bias[columns])
        self._pass_mask(level, columns, value)
        return Block(value, normalized)

    def _new_level(self, index: int, z: Tensor | None) -> _CodedLevel:
        return _CodedLevel(**vars(super()._new_level(index, z)))

    def _new_codes(self) -> _Codes:
        bits = self.model.config.bits
        assert bits is not None
        return _Codes(self.num_blocks, self.num_nodes * self.step, bits, self.model.layer(0).weight)

    def _encode(self, index: int) -> None:
        """Keep a level that is whole at b bits from now on; the first, which is not kept at all, stays as it is."""
        level = self.levels[index]
        if index == 0:
            return
        assert isinstance(level, _CodedLevel)
        codes = self._new_codes()
        for columns in self.blocks:
            self._keep(level, codes, columns, self._make(index, columns))
        level.z, level.codes = None, codes

    def _keep(self, level: Level, codes: _Codes, columns: slice, made: Block) -> None:
        """Keep a block's values, and in place of its dropout mask where a value passed."""
        codes.write(columns.start // self.step, made.activation if made.normalized is None else made.normalized)
        if level.mask is None:
            level.mask = torch.empty(
                self.num_nodes, -(-self.width // 8), dtype=torch.uint8, device=made.activation.device
            )
        level.mask[:, columns.start // 8 : -(-columns.stop // 8)] = pack_columns(made.activation > 0)

    def _decode(self, level: Level, columns: slice) -> Tensor:
        assert isinstance(level, _CodedLevel)
        assert level.codes is not None
        return level.codes.read(columns.start // self.step, self.num_nodes, columns.stop - columns.start)
