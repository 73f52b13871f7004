"""The layers of SIGN and QSIGN for a piece of a batch, forward and backward by hand: every buffer is used up.

A step in pieces (:mod:`falcon_gnn.training.pieces`) knows the moments of the whole batch before it normalises a piece.
What batch norm needs of the whole batch on the way back are two column sums of the gradient g of γx̂ + β: that of g,
which is β's gradient, and that of g·x̂, which is γ's. :meth:`RowBlock.backward` leaves their part out; once they cover
all rows, :meth:`RowBlock.correct` adds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from falcon_gnn.quantization.bitmask import apply_mask_, keep_factor
from falcon_gnn.quantization.codec import QuantizedTensor, dequantize
from falcon_gnn.quantization.draws import StepDraws
from falcon_gnn.quantization.hidden_ops import activate, mask_gradient_, normalize_activate_, rebuild
from falcon_gnn.quantization.moments import InputScatter
from falcon_gnn.quantization.products import add_outer_, add_product, column_sums, gradient_of, multiply


@dataclass(frozen=True)
class Moments:
    """Column means, 1 / sqrt(variance + ε) and γ / sqrt(variance + ε) of a whole batch, shape ``(channels,)`` each."""

    mean: Tensor
    inverse_std: Tensor
    scale: Tensor


@dataclass(frozen=True)
class PieceContext:
    """Where a piece stands.

    Attributes:
        draws: Of the step.
        first_row: Of the piece in the batch.
        dtype: In which products are computed; None for that of the parameters.
    """

    draws: StepDraws
    first_row: int
    dtype: torch.dtype | None = None


@dataclass
class BlockState:
    """What a block keeps of a piece for its gradient, each where the block needs it.

    Attributes:
        mask: Where ReLU and dropout let a value pass, packed.
        normalized: x̂.
        activation: The linear layer's input.
        codes: x̂, or without a norm the activation, at b bits.
    """

    mask: Tensor
    normalized: Tensor | None = None
    activation: Tensor | None = None
    codes: QuantizedTensor | None = None


@dataclass(frozen=True, eq=False)
class RowBlock:
    """[Batch norm,] ReLU, dropout and the linear layer that follows them.

    Attributes:
        linear: The layer that follows.
        norm: The batch norm, or None.
        dropout: Probability of dropping a value.
        bits: Bits of what is kept for the gradient; None for full precision.
        keeps_activation: Whether the linear layer's gradient is made of the exact activation in spite of ``bits``.
        mask_place: Place of the dropout's draws among those of the forward pass.
        code_place: Place of the draws of stochastic rounding.
    """

    linear: nn.Linear
    norm: nn.BatchNorm1d | None
    dropout: float
    bits: int | None
    keeps_activation: bool
    mask_place: int
    code_place: int

    def forward(
        self, hidden: Tensor, moments: Moments | None, at: PieceContext, *, keeps: bool = True, is_last: bool = False,
        has_output: bool = True, out: Tensor | None = None, mask: Tensor | None = None,
    ) -> tuple[Tensor, BlockState]:  # fmt: skip
        """Return the linear layer's output, shape ``(rows, out_channels)``, and what :meth:`backward` needs.

        Args:
            hidden: What is normalised, shape ``(rows, channels)``; used up.
            moments: Of the whole batch; None without a norm.
            at: Where the piece stands.
            keeps: Whether there will be a backward pass.
            is_last: Whether that begins with this block: then what the linear layer reads need not be made again.
            has_output: Whether the output is computed; otherwise it is empty.
            out: Where it is written to; None for a new matrix.
            mask: What an earlier pass over these rows found; then nothing is drawn, and nothing kept.
        """
        activation, state = self._activate(hidden, moments, at, keeps, mask)
        output = hidden.new_empty(0)
        if has_output:
            output = hidden.new_empty(len(hidden), self.linear.out_features) if out is None else out
            linear_rows(activation, self.linear, output, at.dtype)
        if keeps and (self.keeps_activation or (state.codes is None and (is_last or moments is None))):
            state.activation = activation
        return output, state

    def _activate(
        self, hidden: Tensor, moments: Moments | None, at: PieceContext, keeps: bool, mask: Tensor | None
    ) -> tuple[Tensor, BlockState]:
        """Return what the linear layer reads, in place of ``hidden`` unless x̂ takes it, and the state but for it."""
        if mask is not None and moments is not None:
            return self.activate(hidden, moments, mask), BlockState(mask)
        norm, bits, num_rows = self._norm(moments), self.bits if keeps and self.bits is not None else 0, len(hidden)
        mask_seeds = at.draws.seeds(self.mask_place, at.first_row, num_rows) if self.dropout else None
        if keeps and self.bits is None and moments is not None:
            activation = torch.empty_like(hidden)
            return activation, BlockState(
                normalize_activate_(hidden, norm, mask_seeds, self.dropout, activation), normalized=hidden
            )
        code_seeds = at.draws.seeds(self.code_place, at.first_row, num_rows) if bits else None
        mask, packed, zero, scale = activate(hidden, norm, mask_seeds, code_seeds, self.dropout, bits, hidden)
        codes = QuantizedTensor(packed, zero, scale, tuple(hidden.shape), hidden.dtype, bits) if bits else None
        return hidden, BlockState(mask, codes=codes)

    def backward(
        self, gradient: Tensor, state: BlockState, at: PieceContext, moments: Moments | None, *, counts: bool = True
    ) -> Tensor:
        """Return the gradient of what was normalised, as if the moments were constants; add to the parameters'.

        Args:
            gradient: Of the output, shape ``(rows, out_channels)``.
            state: What :meth:`forward` kept; an exact one is used up where ``counts`` is set.
            at: Where the piece stands.
            moments: Of the whole batch; None without a norm.
            counts: Whether the parameters' gradients are added to.
        """
        if counts and state.codes is not None and moments is not None:
            return self._backward_codes(gradient, state, at, moments)
        factor, activation = keep_factor(self.dropout), state.activation
        if counts and state.normalized is not None and activation is None:
            activation = torch.empty_like(state.normalized)
            self._rebuild([state.normalized] * 3, 0, state.mask, activation)
        elif counts and activation is None:
            assert state.codes is not None
            activation = dequantize(state.codes)
        if activation is None:
            activation = gradient.new_empty(len(gradient), self.linear.in_features)
        if counts:
            add_linear_gradients(gradient, activation, self.linear, at.dtype)
        below = multiply(gradient, self.linear.weight, activation, at.dtype)
        if moments is None or self.norm is None or not counts:
            apply_mask_(below, state.mask, factor)
            return below if moments is None else below.mul_(moments.scale)
        assert state.normalized is not None
        exact = [state.normalized] * 3
        self._add_sums(mask_gradient_(below, state.mask, exact, 0, (self.norm.weight, self.norm.bias), factor, None))
        return below.mul_(moments.scale)

    def _backward_codes(self, gradient: Tensor, state: BlockState, at: PieceContext, moments: Moments) -> Tensor:
        """Do the same from x̂ kept at b bits, and add to the parameters' gradients."""
        assert state.codes is not None
        assert self.norm is not None
        # One matrix beside the gradient: what the linear layer read, and then the gradient of that.
        matrix = state.activation
        if matrix is None:
            matrix = gradient.new_empty(state.codes.shape, dtype=state.codes.dtype)
            self._rebuild(state.codes.tensors, state.codes.bits, state.mask, matrix)
        add_linear_gradients(gradient, matrix, self.linear, at.dtype)
        multiply(gradient, self.linear.weight, matrix, at.dtype)
        affine, factor = (self.norm.weight, self.norm.bias), keep_factor(self.dropout)
        self._add_sums(mask_gradient_(matrix, state.mask, state.codes.tensors, state.codes.bits, affine, factor, None))
        return matrix.mul_(moments.scale)

    def _add_sums(self, sums: Tensor) -> None:
        """Add column sums of a gradient, and of its product with x̂, to the gradients of β and γ."""
        assert self.norm is not None
        gradient_of(self.norm.bias).add_(sums[0])
        gradient_of(self.norm.weight).add_(sums[1])

    def correct(self, normalized: Tensor, moments: Moments, num_rows: int) -> Tensor:
        """Return what the moments' dependence on the rows adds to the gradient, in place of x̂.

        Args:
            normalized: x̂, shape ``(rows, channels)``; used up.
            moments: Of the whole batch.
            num_rows: Rows of the whole batch, over all of which the gradients of γ and β were added up.
        """
        slope, offset = self.correction(moments, num_rows)
        return normalized.mul_(slope).add_(offset)

    def correction(self, moments: Moments, num_rows: int) -> tuple[Tensor, Tensor]:
        """Return what x̂ is multiplied with, and what is added, in that; shape ``(channels,)`` each."""
        assert self.norm is not None
        scale = moments.scale / -num_rows
        return gradient_of(self.norm.weight) * scale, gradient_of(self.norm.bias) * scale

    def factors(self, moments: Moments, num_rows: int) -> Tensor:
        """Return the three factors of :func:`hidden_gradient`, once the gradients of γ and β are those of all rows."""
        assert self.norm is not None
        sums = torch.stack([gradient_of(self.norm.weight), gradient_of(self.norm.bias)]) / num_rows
        return torch.stack([-sums[0], sums[1], moments.scale])

    def normalize(self, hidden: Tensor, moments: Moments) -> Tensor:
        """Return x̂ in the place of ``hidden``."""
        return hidden.sub_(moments.mean).mul_(moments.inverse_std)

    def activate(self, hidden: Tensor, moments: Moments, mask: Tensor) -> Tensor:
        """Return what the linear layer reads in the place of ``hidden``; the mask is what :meth:`forward` found."""
        self._rebuild([self.normalize(hidden, moments)] * 3, 0, mask, hidden)
        return hidden

    def _norm(self, moments: Moments | None) -> tuple[Tensor, ...]:
        """Return what :func:`activate` normalises with."""
        if moments is None or self.norm is None:
            return ()
        return moments.mean, moments.inverse_std, self.norm.weight, self.norm.bias

    def _rebuild(self, codes: Sequence[Tensor], bits: int, mask: Tensor, out: Tensor) -> None:
        """Write what the linear layer reads; as :func:`rebuild` does."""
        assert self.norm is not None
        rebuild(codes, bits, (self.norm.weight, self.norm.bias), mask, keep_factor(self.dropout), out)


@dataclass(frozen=True)
class RowChain:
    """A model whose rows are independent but for the moments of its batch norms.

    Attributes:
        first: The first layers, side by side: of each block of input columns.
        blocks: What follows; all of them normalise, or none.
    """

    first: Sequence[nn.Linear]
    blocks: Sequence[RowBlock]

    def read(self, x: Tensor, at: PieceContext, out: Tensor | None = None) -> Tensor:
        """Return the first layers' output for rows of the input, shape ``(rows, channels)``, in ``out`` if given."""
        output = out
        if output is None:
            output = self.first[0].weight.new_empty(len(x), sum(linear.out_features for linear in self.first))
        for part, linear, columns in self._columns(x):
            linear_rows(part, linear, output[:, columns], at.dtype)
        return output

    def read_backward(self, gradient: Tensor, x: Tensor, at: PieceContext) -> None:
        """Add to the gradients of the first layers; ``gradient`` is that of their output."""
        for part, linear, columns in self._columns(x):
            add_linear_gradients(gradient[:, columns], part, linear, at.dtype)

    @property
    def has_narrow_input(self) -> bool:
        """Whether every first layer's input is narrow."""
        return all(has_narrow_input(linear.in_features, linear.out_features) for linear in self.first)

    def first_moments(self, scatters: Sequence[InputScatter]) -> tuple[Tensor, Tensor]:
        """Return means and biased variances of the first layers' output, shape ``(channels,)`` each.

        Args:
            scatters: Of each block of input columns (:meth:`scatter_input`).
        """
        layers = zip(scatters, self.first, strict=True)
        means, variances = zip(*(own.moments(linear.weight, linear.bias) for own, linear in layers), strict=True)
        return torch.cat(means), torch.cat(variances)

    def scatter_input(self, x: Tensor, pieces: Sequence[slice]) -> list[InputScatter]:
        """Return the scatter matrix of each block of input columns."""
        return [InputScatter(part, pieces) for part, _, _ in self._columns(x)]

    def correct_first(self, scatters: Sequence[InputScatter], moments: Moments) -> None:
        """Add to the first layers' gradients what the first norm's moments depend on, as in :meth:`RowBlock.correct`.

        With x̂ linear in the input, its sum over the rows is a product with the scatter matrix.
        """
        slope, offset = self.blocks[0].correction(moments, scatters[0].num_rows)
        slope = slope * moments.inverse_std
        for own, linear, columns in zip(scatters, self.first, self._outputs(), strict=True):
            gradient_of(linear.weight).add_(own.multiply(linear.weight).mul_(slope[columns, None]))
            gradient_of(linear.weight).addr_(offset[columns], own.sums.to(offset.dtype))
            gradient_of(linear.bias).add_(offset[columns], alpha=own.num_rows)

    def _columns(self, x: Tensor) -> list[tuple[Tensor, nn.Linear, slice]]:
        """Return each first layer, between what it reads of the input and the columns of the output that it makes."""
        return list(zip(x.chunk(len(self.first), dim=1), self.first, self._outputs(), strict=True))

    def _outputs(self) -> list[slice]:
        width = self.first[0].out_features
        return [slice(i * width, (i + 1) * width) for i in range(len(self.first))]


@runtime_checkable
class HasRowChain(Protocol):
    """A model that can be trained in pieces exactly, whether it normalises or not."""

    def row_chain(self) -> RowChain:
        """Return the model's layers, for pieces of a batch."""


def has_narrow_input(in_features: int, out_features: int) -> bool:
    """Return whether the scatter matrix of a layer's input costs next to nothing beside the layer."""
    return 4 * in_features <= out_features


def linear_rows(x: Tensor, linear: nn.Linear, out: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Write a linear layer's output to ``out`` and return it."""
    add_product(linear.bias, x, linear.weight.t(), out, dtype)
    return out


def add_linear_gradients(gradient: Tensor, x: Tensor, linear: nn.Linear, dtype: torch.dtype | None) -> None:
    """Add to the gradients of a linear layer's parameters; ``gradient`` is that of its output for ``x``."""
    add_outer_(gradient_of(linear.weight), gradient, x, dtype)
    gradient_of(linear.bias).add_(column_sums(gradient))
