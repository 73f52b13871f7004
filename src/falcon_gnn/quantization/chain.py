"""A chain of hidden blocks (linear, batch norm, ReLU, dropout) whose training step is planned for memory.

Between the passes a block keeps, per hidden unit, the normalised value at b bits and one bit for ReLU and dropout
together: 0.39 bytes at 2 bits. The input of the next linear layer is not kept, it is rebuilt from these two. Forward
and backward run through chunks of rows: one full-precision matrix of hidden size exists at a time, and each chunk of
it is replaced by the next layer's (forward) or the previous layer's (backward) as soon as it has been used.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from falcon_gnn.quantization.chain_levels import BlockLevel, ChainConfig
from falcon_gnn.quantization.chunks import Scratch, row_chunks
from falcon_gnn.quantization.moments import ColumnMoments
from falcon_gnn.quantization.products import add_outer_, add_product, column_sums, multiply, product_dtype


def run_chain(x: Tensor, config: ChainConfig, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return a chain's training output and the batch statistics of its blocks.

    Args:
        x: Input, shape ``(rows, in_channels)``.
        config: What the chain computes and keeps.
        parameters: Per block weight and bias, followed by γ and β if the blocks normalise; then weight and bias of
            the head. All blocks have the same number of channels.

    Returns:
        The output, shape ``(rows, out_channels)``, and the column means and biased variances of every block before
        normalisation, shape ``(num_blocks, 2, hidden_channels)``; empty without batch norm.
    """
    output, statistics = _ChainFunction.apply(x, config, *parameters)  # type: ignore[no-untyped-call]
    return output, statistics


class _ChainFunction(torch.autograd.Function):
    """The chain as one node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, config: ChainConfig, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        chain = _Chain(config, x, parameters, product_dtype(x))
        with torch.autocast(x.device.type, enabled=False):
            output, statistics = chain.forward()
        ctx.config, ctx.num_parameters, ctx.dtype = config, len(parameters), chain.dtype
        ctx.save_for_backward(x, *parameters, *chain.saved())
        ctx.mark_non_differentiable(statistics)
        return output, statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = ctx.saved_tensors
        chain = _Chain(ctx.config, x, tensors[: ctx.num_parameters], ctx.dtype)
        chain.restore(iter(tensors[ctx.num_parameters :]))
        with torch.autocast(gradient.device.type, enabled=False):
            input_gradient, gradients = chain.backward(gradient, ctx.needs_input_grad[0])
        return input_gradient, None, *gradients


class _Chain:
    """The levels and linear layers of a chain, and the two passes over them."""

    def __init__(
        self,
        config: ChainConfig,
        x: Tensor,
        parameters: Sequence[Tensor],
        dtype: torch.dtype | None,
    ) -> None:
        self.config, self.x, self.dtype = config, x, dtype
        per_block = 4 if config.batch_norm else 2
        num_blocks = (len(parameters) - 2) // per_block
        blocks = [parameters[per_block * i : per_block * (i + 1)] for i in range(num_blocks)]
        self.scratch = Scratch(parameters[0])
        self.blocks = [
            BlockLevel(config, (block[2], block[3]) if config.batch_norm else None, self.scratch) for block in blocks
        ]
        self.linears = [(block[0], block[1]) for block in [*blocks, parameters[-2:]]]
        widest = max(x.shape[1], *(weight.shape[0] for weight, _ in self.linears))
        self.chunks = list(row_chunks(x.shape[0], widest, parameters[0]))

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return output and statistics; the levels then hold what the backward pass needs."""
        for block in self.blocks:
            block.start_forward(self.x.shape[0])
        hidden: Tensor | None = None
        statistics = []
        for depth, (weight, bias) in enumerate(self.linears):
            moments = self._moments(depth)
            if hidden is None or depth == len(self.blocks):
                target = weight.new_empty(self.x.shape[0], weight.shape[0])
            else:
                target = hidden
            for rows in self.chunks:
                add_product(bias, self._activate(depth, rows, hidden), weight.t(), target[rows], self.dtype)
                if moments is not None:
                    moments.update(target[rows])
            if moments is not None:
                if self.config.shared is not None:
                    moments.share(self.config.shared)
                statistics.append(torch.stack([moments.mean, moments.variance]))
                self.blocks[depth].set_moments(moments)
            hidden = target
        assert hidden is not None
        return hidden, torch.stack(statistics) if statistics else hidden.new_empty(0)

    def backward(self, gradient: Tensor, needs_input_gradient: bool) -> tuple[Tensor | None, list[Tensor]]:
        """Return the gradient of the input, if needed, and those of the parameters in their order."""
        hidden = self._start_backward(gradient)
        below = gradient.new_empty(*self.x.shape) if needs_input_gradient else None
        gradients: list[Tensor] = []
        for depth in reversed(range(len(self.linears))):
            weight, bias = self.linears[depth]
            weight_gradient, bias_gradient = torch.zeros_like(weight), torch.zeros_like(bias)
            if depth < len(self.blocks):
                self.blocks[depth].average_gradients()
            for index, rows in enumerate(self.chunks):
                upper, column_sums = self._upper_gradient(depth, index, gradient[rows], hidden)
                bias_gradient.add_(column_sums)
                activation = self._pass_down(depth, index, upper, hidden if depth else below)
                add_outer_(weight_gradient, upper, activation, self.dtype)
            block = self.blocks[depth] if depth < len(self.blocks) else None
            norm_gradients = [block.sums[1], block.sums[0]] if block and self.config.batch_norm else []
            gradients = [weight_gradient, bias_gradient, *norm_gradients, *gradients]
        return below, gradients

    def saved(self) -> list[Tensor]:
        """Return all that the blocks keep."""
        return [tensor for block in self.blocks for tensor in block.saved()]

    def restore(self, tensors: Iterator[Tensor]) -> None:
        """Take back what :meth:`saved` returned."""
        dtype = self.linears[0][0].dtype
        num_rows = [rows.stop - rows.start for rows in self.chunks]
        for block, (weight, _) in zip(self.blocks, self.linears, strict=False):
            block.restore(tensors, [(count, weight.shape[0]) for count in num_rows], dtype)

    def _moments(self, depth: int) -> ColumnMoments | None:
        weight = self.linears[depth][0]
        is_normalized = self.config.batch_norm and depth < len(self.blocks)
        return ColumnMoments(weight.shape[0], weight) if is_normalized else None

    def _activate(self, depth: int, rows: slice, hidden: Tensor | None) -> Tensor:
        if depth == 0 or hidden is None:
            return self.x[rows]
        return self.blocks[depth - 1].activate(hidden[rows], rows)

    def _start_backward(self, gradient: Tensor) -> Tensor | None:
        """Return the matrix for the hidden gradients."""
        if not self.blocks:
            return None
        hidden = gradient.new_empty(self.x.shape[0], self.linears[0][0].shape[0])
        for block in self.blocks:
            block.start_backward(hidden)
        return hidden

    def _upper_gradient(self, depth: int, index: int, gradient: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return a chunk of the gradient of a linear layer's output, and its column sums.

        ``gradient`` is the chunk of the chain's.
        """
        if depth == len(self.blocks) or hidden is None:
            return gradient.contiguous(), column_sums(gradient)
        return self.blocks[depth].hidden_gradient(index, hidden[self.chunks[index]])

    def _pass_down(self, depth: int, index: int, upper: Tensor, target: Tensor | None) -> Tensor:
        """Write the gradient of what the level below normalised or read; return what the linear layer saw."""
        rows, weight = self.chunks[index], self.linears[depth][0]
        if depth:
            assert target is not None
            return self.blocks[depth - 1].rebuild(index, multiply(upper, weight, target[rows], self.dtype))
        if target is not None:
            multiply(upper, weight, target[rows], self.dtype)
        return self.x[rows]
