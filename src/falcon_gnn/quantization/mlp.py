"""The multilayer perceptron of SIGN and, with activations at b bits, of QSIGN."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

from torch import Tensor, nn

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.chain import run_chain
from falcon_gnn.quantization.chain_levels import ChainConfig
from falcon_gnn.quantization.codec import check_bits
from falcon_gnn.quantization.layers import (
    apply_linear,
    check_dropout,
    check_rows,
    relu_dropout,
    share_batch,
    update_running_statistics,
)
from falcon_gnn.quantization.row_blocks import RowBlock, RowChain


class MLP(nn.Module):
    """Linear layers with batch norm, ReLU and dropout between them (Eq. 9: MLP(Z, θ)).

    With ``bits`` the training pass keeps its activations compressed: 0.39 bytes per hidden unit at 2 bits instead of
    8, and one full-precision hidden matrix at a time. Parameters and ``state_dict`` are the same with and without,
    and so is the result of ``eval()``, to the last bit. The compressed pass has no second derivative.

    Args:
        in_channels: Width of the input.
        hidden_channels: Width of every hidden layer.
        out_channels: Width of the output.
        num_layers: Linear layers, at least 1.
        dropout: Probability of dropping a hidden unit in training, in [0, 1].
        batch_norm: Whether to normalise before every ReLU.
        bits: Bits per kept activation, 1, 2, 4 or 8; None keeps them as they are.

    Raises:
        OptionError: If an argument lies outside its range.

    Example:
        >>> import torch
        >>> mlp = MLP(150, 1024, 121, num_layers=3, bits=2)
        >>> mlp(torch.ones(4, 150)).shape
        torch.Size([4, 121])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        *,
        dropout: float = 0.5,
        batch_norm: bool = True,
        bits: int | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(
            in_channels=in_channels, hidden_channels=hidden_channels, out_channels=out_channels, num_layers=num_layers
        )
        check_dropout(dropout, "dropout")
        if bits is not None:
            check_bits(bits)
        self.dropout, self.bits = dropout, bits
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.linears = nn.ModuleList(nn.Linear(width, next_width) for width, next_width in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:-1] if batch_norm)

    def reset_parameters(self) -> None:
        """Draw all parameters anew and forget the running statistics."""
        linears, norms = self._layers()
        for linear in linears:
            linear.reset_parameters()
        for norm in norms:
            norm.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, shape ``(rows, out_channels)``.

        Args:
            x: Input, shape ``(rows, in_channels)``.

        Raises:
            OptionError: If ``x`` has another shape, or one row only while batch norm is in training.
        """
        linears, norms = self._layers()
        _check_input(x, linears[0], norms if self.training else [])
        # A norm that was set to evaluation by itself uses its running statistics, which the chain does not know.
        if self.bits is not None and self.training and all(norm.training for norm in norms):
            return _run_training_chain(x, ChainConfig(self.bits, self.dropout), linears, norms)
        for layer, norm in zip_longest(linears[:-1], norms):
            x = apply_linear(x, layer.weight, layer.bias)
            x = relu_dropout(x if norm is None else norm(x), self.dropout, self.training, inplace=True)
        return apply_linear(x, linears[-1].weight, linears[-1].bias)

    def row_chain(self, first_place: int = 0) -> RowChain:
        """Return the layers, for pieces of a batch.

        Args:
            first_place: Draws that come before those of the first hidden layer.
        """
        linears, norms = self._layers()
        blocks, place = [], first_place
        for linear, norm in zip_longest(linears[1:], norms):
            code_place = place + (self.dropout > 0)
            blocks.append(RowBlock(linear, norm, self.dropout, self.bits, False, place, code_place))
            place = code_place + (self.bits is not None)
        return RowChain(linears[:1], blocks)

    def _layers(self) -> tuple[list[nn.Linear], list[nn.BatchNorm1d]]:
        linears = [layer for layer in self.linears if isinstance(layer, nn.Linear)]
        return linears, [layer for layer in self.norms if isinstance(layer, nn.BatchNorm1d)]


def _run_training_chain(
    x: Tensor, config: ChainConfig, linears: Sequence[nn.Linear], norms: Sequence[nn.BatchNorm1d]
) -> Tensor:
    """Return a chain's output and update the running statistics of its norms."""
    shared = share_batch(norms[0], x.shape[0]) if norms else None
    config = replace(config, batch_norm=len(norms) > 0, eps=norms[0].eps if norms else 0.0, shared=shared)
    parameters: list[Tensor] = []
    for linear, norm in zip_longest(linears, norms):
        parameters += [linear.weight, linear.bias]
        if norm is not None:
            parameters += [norm.weight, norm.bias]
    output, statistics = run_chain(x, config, parameters)
    for norm, (mean, variance) in zip(norms, statistics, strict=True):
        update_running_statistics(norm, mean, variance, x.shape[0] if shared is None else shared.num_rows)
    return output


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            msg = f"{name} must be at least 1, got {size}"
            raise OptionError(msg)


def _check_input(x: Tensor, linear: nn.Linear, norms: Sequence[nn.BatchNorm1d]) -> None:
    if x.dim() != 2 or x.shape[1] != linear.in_features:
        msg = f"x must have shape (rows, {linear.in_features}), got {tuple(x.shape)}"
        raise OptionError(msg)
    if any(norm.training for norm in norms):
        check_rows(x)
