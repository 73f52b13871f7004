"""A step of a model of rows that normalises and keeps its activations at b bits, by pieces of a batch.

Codes are small, so that those of the whole batch are kept from the first time a piece passes a block, and so is the
gradient of the model's outputs. Nothing is computed forward twice but what the moments need:

1. For each norm, forward up to it: its moments.
2. Forward to the loss, backward to the last norm: its column sums. There are no gradients of hidden layers yet up to
   here: 1 and 2 go through larger pieces, that fill the place of these.
3. For each norm, from above: backward through it and everything below it, from the codes; but for the last norm, only
   what its moments' dependence on the batch adds.

x̂ as its codes know it is no linear function of the input, so that the scatter matrix of a narrow input spares no sweep
on the way back.
"""

from typing import Any

import torch
from torch import Tensor

from falcon_gnn.quantization.bitmask import apply_mask_, empty_bits, keep_factor
from falcon_gnn.quantization.codec import QuantizedTensor, byte_range, empty_codes
from falcon_gnn.quantization.hidden_ops import hidden_gradient, rebuild
from falcon_gnn.quantization.products import multiply
from falcon_gnn.quantization.row_blocks import BlockState, RowBlock
from falcon_gnn.training.row_steps import RowStep, groups_of


class CodedRowStep(RowStep):
    """One step of a chain of blocks with batch norm, of which codes are kept."""

    def find_moments(self, *, keep_matrix: bool) -> None:
        """Go forward to each norm; a matrix kept as well would save time and cost more memory than an unsplit step."""
        self.states: dict[int, _States] = {}
        self.rows, rows = self._join(), self.rows
        super().find_moments(keep_matrix=False)
        self.rows, self.joined = rows, self.rows

    def add_gradients(self) -> None:
        """Add the gradients of all parameters; the moments are known."""
        last, head = len(self.chain.blocks) - 1, self.chain.blocks[-1].linear
        self.output_gradient = head.weight.new_empty(len(self.x), head.out_features)
        for rows in self.joined:
            self.output_gradient[rows] = self._add_head(rows)
        for level in reversed(range(last + 1)):
            for rows in self.rows:
                self._add_level(level, rows)

    def _join(self) -> list[slice]:
        """Return larger pieces for the way forward: two matrices of theirs fit where the gradients will be."""
        parameters = sum(block.linear.weight.numel() for block in self.chain.blocks)
        width = max(block.linear.in_features for block in self.chain.blocks)
        step = 1 + parameters // (2 * width * (self.pieces[0].stop - self.pieces[0].start))
        parts = [self.pieces[i : i + step] for i in range(0, len(self.pieces), step)]
        return [slice(part[0].start, part[-1].stop) for part in parts][: self.walked]

    def _add_level(self, level: int, rows: slice) -> None:
        state = self.states[level].of(rows)
        assert state.codes is not None
        if level == len(self.chain.blocks) - 1:
            gradient = self._norm_gradient(level, rows, state)
        else:
            gradient = self.output_gradient.new_empty(state.codes.shape)
            added = self.chain.blocks[level].correction(self.moments[level], len(self.x))
            rebuild(state.codes.tensors, state.codes.bits, added, None, 1.0, gradient)
        for below in reversed(range(level)):
            gradient = self._backward_block(below, gradient, self._whole_state(below, rows), rows)
        self.chain.read_backward(gradient, self.x[rows], self._at(rows))

    def _norm_gradient(self, level: int, rows: slice, state: BlockState) -> Tensor:
        """Return the gradient of what the last norm reads, of which all is known."""
        assert state.codes is not None
        block, moments = self.chain.blocks[level], self.moments[level]
        below = self.output_gradient.new_empty(state.codes.shape)
        multiply(self.output_gradient[rows], block.linear.weight, below, self.dtype)
        apply_mask_(below, state.mask, keep_factor(block.dropout))
        out = torch.empty_like(below)
        hidden_gradient(below, state.codes.tensors, state.codes.bits, block.factors(moments, len(self.x)), out)
        return out

    def _forward_block(self, level: int, hidden: Tensor, rows: slice, **how: Any) -> tuple[Tensor, BlockState]:
        """Go forward through a block; what it keeps is made the first time."""
        block, moments, at = self.chain.blocks[level], self.moments[level], self._at(rows)
        if level not in self.states:
            self.states[level] = _States(self.x, block)
        states = self.states[level]
        if rows.stop <= states.num_known:
            return block.forward(hidden, moments, at, mask=states.of(rows).mask, **(how | {"keeps": False}))
        output, state = block.forward(hidden, moments, at, **(how | {"keeps": True}))
        states.put(rows, state)
        return output, state

    def _whole_state(self, level: int, rows: slice) -> BlockState:
        """Return what a block kept of a piece, and what the linear layer read where its gradient wants that exactly."""
        block, state = self.chain.blocks[level], self.states[level].of(rows)
        if block.keeps_activation:
            state.activation = block.activate(self._hidden(level, rows), self.moments[level], state.mask)
        return state


class _States:
    """What a block keeps of a batch: masks, and codes of x̂.

    Attributes:
        num_known: Rows kept so far.
    """

    def __init__(self, x: Tensor, block: RowBlock) -> None:
        assert block.bits is not None
        weight = block.linear.weight
        shape = (len(x), weight.shape[1])
        codes = empty_codes(weight.new_empty(1).expand(shape), block.bits)
        self.mask, self.num_known = empty_bits(shape[0] * shape[1], x.device), 0
        self.codes = QuantizedTensor(*codes, shape, weight.dtype, block.bits)

    def of(self, rows: slice) -> BlockState:
        """Return the state of a piece."""
        width = self.codes.shape[1]
        groups, bits = groups_of(rows, width), self.codes.bits
        packed, zero, scale = self.codes.tensors
        codes = QuantizedTensor(
            packed[byte_range(groups, bits)], zero[groups], scale[groups],
            (rows.stop - rows.start, width), self.codes.dtype, bits,
        )  # fmt: skip
        return BlockState(self.mask[byte_range(groups, 1)], codes=codes)

    def put(self, rows: slice, state: BlockState) -> None:
        """Keep the state of a piece, the first that is not known."""
        own = self.of(rows)
        assert own.codes is not None
        assert state.codes is not None
        own.mask.copy_(state.mask)
        for kept, made in zip(own.codes.tensors, state.codes.tensors, strict=True):
            kept.copy_(made)
        self.num_known = rows.stop
