"""A step of a model of rows, by pieces of a batch: exactly the batch's gradient.

Rows of a SIGN model are independent, so that the gradients of pieces add up. Batch norm ties them together by the
moments of the whole batch; with l norms the pieces are gone through several times (*sweeps*):

1. For each norm, forward up to it: its moments.
2. Forward to the loss, backward to the last norm: its column sums (:mod:`falcon_gnn.quantization.row_blocks`).
3. Forward again, backward through the last norm and everything below it: the sums of the norm before.
4. For each norm but the last, from above: forward to it, and backward what its moments' dependence on the batch adds.

A kept matrix, the last norm's input, saves the products of the widest layers in 2 and 3. Where the input is narrow, its
scatter matrix (:class:`falcon_gnn.quantization.moments.InputScatter`) tells what the first norm needs: its sweeps in 1
and 4 fall away.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from falcon_gnn.quantization.codec import GROUP_SIZE, SEED_ROWS
from falcon_gnn.quantization.draws import StepDraws
from falcon_gnn.quantization.layers import update_running_statistics
from falcon_gnn.quantization.moments import ColumnMoments, InputScatter
from falcon_gnn.quantization.row_blocks import BlockState, Moments, PieceContext, RowChain
from falcon_gnn.training.targets import Targets


class BatchLoss:
    """The mean loss of a batch, piece by piece."""

    def __init__(self, targets: Targets) -> None:
        self.targets, self.weight = targets, targets.loss_weight
        self.total = torch.zeros((), dtype=torch.float64, device=targets.values.device)

    def share(self, outputs: Tensor, rows: slice) -> Tensor:
        """Return a piece's share of the mean loss, and add it to the total."""
        loss = self.targets.rows(rows).summed_loss(outputs) / self.weight
        self.total += loss.detach()
        return loss

    def gradient(self, outputs: Tensor, rows: slice, *, counts: bool = True) -> Tensor:
        """Return the gradient of a piece's share in its outputs, shape ``(rows, L)``; the share ``counts`` once."""
        if not counts:
            return self.targets.rows(rows).loss_gradient(outputs).div_(self.weight)
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.share(leaf, rows), leaf)
        return gradient


@dataclass
class RowStep:
    """One step of a chain of blocks over the pieces of a batch, or over the first ``walked`` of every sweep."""

    chain: RowChain
    x: Tensor
    rows: list[slice]
    draws: StepDraws
    loss: BatchLoss
    dtype: torch.dtype | None
    walked: int | None = None

    def __post_init__(self) -> None:
        self.pieces, self.rows = self.rows, self.rows[: self.walked]
        self.moments: list[Moments] = []
        self.kept, self.kept_level = torch.empty(0), -1
        self.scatters: list[InputScatter] = []

    def find_moments(self, *, keep_matrix: bool) -> None:
        """Go forward to each norm; what it reads is kept if asked for, in the place of what the norm before reads."""
        blocks = self.chain.blocks
        if self.dtype is None and self.chain.has_narrow_input:
            self.scatters = self.chain.scatter_input(self.x, self.rows)
            self._add_moments(0, *self.chain.first_moments(self.scatters))
        for level in range(len(self.moments), len(blocks)):
            norm = blocks[level].norm
            assert norm is not None
            found = ColumnMoments(norm.num_features, norm.weight)
            is_kept = keep_matrix and norm.num_features == blocks[-1].linear.in_features
            if is_kept and not len(self.kept):
                self.kept = norm.weight.new_empty(len(self.x), norm.num_features)
            for rows in self.rows:
                found.update(self._hidden(level, rows, self.kept[rows] if is_kept else None))
            self.kept_level = level if is_kept else -1
            self._add_moments(level, found.mean, found.variance)

    def _add_moments(self, level: int, mean: Tensor, variance: Tensor) -> None:
        norm = self.chain.blocks[level].norm
        assert norm is not None
        inverse_std = (variance + norm.eps).rsqrt_()
        self.moments.append(Moments(mean, inverse_std, norm.weight * inverse_std))
        update_running_statistics(norm, mean, variance, len(self.x))

    def add_gradients(self) -> None:
        """Add the gradients of all parameters; the moments are known where there are norms."""
        last = len(self.chain.blocks) - 1
        is_linear = bool(self.scatters)
        if not self.moments or (is_linear and last == 0):
            for rows in self.rows:
                self._add_all(rows)
        else:
            for rows in self.rows:
                self._add_head(rows)
            for rows in self.rows:
                self._add_below(rows)
        for level in reversed(range(1 if is_linear else 0, len(self.moments) - 1)):
            for rows in self.rows:
                self._add_correction(level, rows)
        if is_linear:
            self.chain.correct_first(self.scatters, self.moments[0])

    def _add_head(self, rows: slice) -> Tensor:
        """Add the gradients of the last block, the sums that its norm needs; return the gradient of the outputs."""
        last = len(self.chain.blocks) - 1
        output, state = self._forward_block(last, self._hidden(last, rows), rows, is_last=True)
        gradient = self.loss.gradient(output, rows)
        del output
        self._backward_block(last, gradient, state, rows)
        return gradient

    def _add_all(self, rows: slice) -> None:
        """Add a piece's gradients of all layers; with a norm, all but what its moments add."""
        hidden, states = self._forward(len(self.chain.blocks), rows)
        gradient = self.loss.gradient(hidden, rows)
        del hidden
        self._backward(gradient, states, rows)

    def _add_below(self, rows: slice) -> None:
        """Add the gradients below the last norm; what it reads is used up where it is kept."""
        last = len(self.chain.blocks) - 1
        is_kept = self.kept_level == last
        hidden = self.kept[rows] if is_kept else self._hidden(last, rows)
        output, state = self._forward_block(last, hidden, rows, is_last=True)
        gradient = self.loss.gradient(output, rows, counts=False)
        del output
        below = self._backward_block(last, gradient, state, rows, counts=False)
        assert state.normalized is not None
        gradient = self._correction(last, state.normalized).add_(below)
        del hidden, state, below
        # States are large: beside a gradient that stands in no kept matrix, in smaller parts.
        for part in [rows] if is_kept else _single_blocks(rows):
            _, states = self._forward(last, part, has_output=False)
            self._backward(gradient[part.start - rows.start : part.stop - rows.start], states, part)

    def _add_correction(self, level: int, rows: slice) -> None:
        """Add what the dependence of a norm's moments on the batch gives to the layers below."""
        hidden, states = self._forward(level, rows)
        normalized = self.chain.blocks[level].normalize(hidden, self.moments[level])
        self._backward(self._correction(level, normalized), states, rows)

    def _correction(self, level: int, normalized: Tensor) -> Tensor:
        """Return what a norm's moments add to the gradient of what it reads, in the place of x̂."""
        return self.chain.blocks[level].correct(normalized, self.moments[level], len(self.x))

    def _hidden(self, level: int, rows: slice, out: Tensor | None = None) -> Tensor:
        """Return what norm ``level`` reads, to be used up: kept, made of what is kept, or computed anew.

        Args:
            level: Of the norm.
            rows: The piece.
            out: Where it is written to, the place of what is kept of the piece; None for a new matrix.
        """
        if self.kept_level >= 0:
            hidden, first = self.kept[rows].clone(), self.kept_level
        else:
            hidden, first = self.chain.read(self.x[rows], self._at(rows), out if level == 0 else None), 0
        for below in range(first, level):
            place = out if below == level - 1 else None
            hidden = self._forward_block(below, hidden, rows, keeps=False, out=place)[0]
        return hidden

    def _forward(self, level: int, rows: slice, *, has_output: bool = True) -> tuple[Tensor, list[BlockState]]:
        """Return what block ``level`` reads, from the input on, and what the blocks below keep."""
        hidden, states = self.chain.read(self.x[rows], self._at(rows)), []
        for below in range(level):
            is_last = below == level - 1
            hidden, state = self._forward_block(
                below, hidden, rows, is_last=is_last, has_output=has_output or not is_last
            )
            states.append(state)
        return hidden, states

    def _backward(self, gradient: Tensor, states: list[BlockState], rows: slice) -> None:
        """Go back from what the block above the kept states reads."""
        while states:
            gradient = self._backward_block(len(states) - 1, gradient, states[-1], rows)
            states.pop()
        self.chain.read_backward(gradient, self.x[rows], self._at(rows))

    def _forward_block(self, level: int, hidden: Tensor, rows: slice, **how: Any) -> tuple[Tensor, BlockState]:
        """Go forward through a block as :meth:`RowBlock.forward` does."""
        return self.chain.blocks[level].forward(hidden, self._moments_of(level), self._at(rows), **how)

    def _backward_block(
        self, level: int, gradient: Tensor, state: BlockState, rows: slice, *, counts: bool = True
    ) -> Tensor:
        return self.chain.blocks[level].backward(
            gradient, state, self._at(rows), self._moments_of(level), counts=counts
        )

    def _moments_of(self, level: int) -> Moments | None:
        return self.moments[level] if self.moments else None

    def _at(self, rows: slice) -> PieceContext:
        return PieceContext(self.draws, rows.start, self.dtype)


def groups_of(rows: slice, width: int) -> slice:
    """Return the groups of 256 values that a piece is made of: it begins at a multiple of 256 rows, and so with one."""
    return slice(rows.start * width // GROUP_SIZE, -(-rows.stop * width // GROUP_SIZE))


def _single_blocks(rows: slice) -> list[slice]:
    """Return the blocks of 256 rows that a piece is made of."""
    return [slice(first, min(first + SEED_ROWS, rows.stop)) for first in range(rows.start, rows.stop, SEED_ROWS)]
