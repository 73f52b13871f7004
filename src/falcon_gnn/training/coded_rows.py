"""A step of a model of rows that normalises and keeps its activations at b bits, by pieces of a batch.

Codes are small, so that those of the whole batch are kept from the first time a piece passes a block, and so is the
gradient of the model's outputs. Nothing is computed forward twice but what the moments need:

1. For each norm, forward up to it: its moments.
2. Forward to the loss, backward to the last norm: its column sums.
3. For each norm, from above: backward through it and everything below it, from the codes; but for the last norm, only
   what its moments' dependence on the batch adds.

x̂ as its codes know it is no linear function of the input, so that the scatter matrix of a narrow input spares no sweep
on the way back.
"""

from typing import Any, Self

from torch import Tensor

from falcon_gnn.quantization.bitmask import empty_bits
from falcon_gnn.quantization.codec import QuantizedTensor, byte_range, dequantize, empty_codes
from falcon_gnn.quantization.row_blocks import BlockState, RowBlock
from falcon_gnn.training.row_steps import RowStep, groups_of


class CodedRowStep(RowStep):
    """One step of a chain of blocks with batch norm, of which codes are kept."""

    def find_moments(self, *, keep_matrix: bool) -> None:
        """Go forward to each norm; a matrix kept as well would save time and cost more memory than an unsplit step."""
        super().find_moments(keep_matrix=False)

    def _make_room(self) -> None:
        self.states = [_States.empty(self.x, block) for block in self.chain.blocks]
        head = self.chain.blocks[-1].linear
        self.output_gradient = head.weight.new_empty(len(self.x), head.out_features)

    def add_gradients(self) -> None:
        """Add the gradients of all parameters; the moments are known."""
        last = len(self.chain.blocks) - 1
        for rows in self.rows:
            self.output_gradient[rows] = self._add_head(rows)
        for level in reversed(range(last + 1)):
            for rows in self.rows:
                self._add_level(level, rows)

    def _add_level(self, level: int, rows: slice) -> None:
        state = self.states[level].of(rows)
        assert state.codes is not None
        gradient = self._correction(level, dequantize(state.codes))
        if level == len(self.chain.blocks) - 1:
            gradient.add_(self._backward_block(level, self.output_gradient[rows], state, rows, counts=False))
        for below in reversed(range(level)):
            gradient = self._backward_block(below, gradient, self._whole_state(below, rows), rows)
        self.chain.read_backward(gradient, self.x[rows], self._at(rows))

    def _forward_block(self, level: int, hidden: Tensor, rows: slice, **how: Any) -> tuple[Tensor, BlockState]:
        """Go forward through a block; what it keeps is made the first time."""
        block, moments, at = self.chain.blocks[level], self.moments[level], self._at(rows)
        if level in self.seen:
            kept = self.states[level].of(rows)
            return block.forward(hidden, moments, at, mask=kept.mask, **(how | {"keeps": False}))
        output, state = block.forward(hidden, moments, at, **(how | {"keeps": True}))
        self.states[level].put(rows, state)
        self._see(level, rows)
        return output, state

    def _whole_state(self, level: int, rows: slice) -> BlockState:
        """Return what a block kept of a piece, and what the linear layer read where its gradient wants that exactly."""
        block, state = self.chain.blocks[level], self.states[level].of(rows)
        if block.keeps_activation:
            state.activation = block.activate(self._hidden(level, rows), self.moments[level], state.mask)
        return state


class _States:
    """What a block keeps of a batch: masks, and codes of x̂."""

    def __init__(self, mask: Tensor, codes: QuantizedTensor) -> None:
        self.mask, self.codes = mask, codes

    @classmethod
    def empty(cls, x: Tensor, block: RowBlock) -> Self:
        """Return the room for the rows of ``x``."""
        assert block.bits is not None
        weight = block.linear.weight
        shape = (len(x), weight.shape[1])
        codes = empty_codes(weight.new_empty(1).expand(shape), block.bits)
        mask = empty_bits(shape[0] * shape[1], x.device)
        return cls(mask, QuantizedTensor(*codes, shape, weight.dtype, block.bits))

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
        """Keep the state of a piece."""
        own = self.of(rows)
        assert own.codes is not None
        assert state.codes is not None
        own.mask.copy_(state.mask)
        for kept, made in zip(own.codes.tensors, state.codes.tensors, strict=True):
            kept.copy_(made)
