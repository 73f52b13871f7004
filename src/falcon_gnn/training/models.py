"""The models: GCN (Eq. 2), SIGN on hop features, and the original SIGN of appendix B."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from falcon_gnn.quantization.layers import apply_linear, compressed_linear, norm_relu_dropout, relu_dropout
from falcon_gnn.quantization.mlp import MLP
from falcon_gnn.quantization.row_blocks import RowBlock, RowChain
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.propagation import SparseMatrix
from falcon_gnn.training.transfer import send

Features = Tensor | SparseMatrix


class GCNInput(Protocol):
    """What a GCN reads: it knows how a layer's product is computed where the layer's input lies."""

    def first_layer(self, model: "GCN") -> Tensor:
        """Return layer 0's output for the features."""

    def activate(self, model: "GCN", level: int, output: Tensor) -> Tensor:
        """Return the next layer's input, made of the output of hidden layer ``level``, which is used up."""

    def next_layer(self, model: "GCN", level: int, hidden: Tensor) -> Tensor:
        """Return layer ``level``'s output for its input."""


@dataclass(frozen=True)
class GraphInput:
    """A whole graph, or the part of one that a batch is.

    Attributes:
        adjacency: Ã, shape ``(n, n)``.
        aggregated: ÃX, made once since it has no parameters, dense or sparse, shape ``(n, F)``.
        features: X, likewise; only where the model has ``concat_self``.
    """

    adjacency: SparseMatrix
    aggregated: Features
    features: Features | None = None

    def to(self, device: torch.device) -> "GraphInput":
        """Return the input on a device."""
        return replace(
            self,
            adjacency=self.adjacency.to(device),
            aggregated=_send(self.aggregated, device),
            features=None if self.features is None else _send(self.features, device),
        )

    def first_layer(self, model: "GCN") -> Tensor:
        """Return layer 0's output for the features, shape ``(n, out_channels)``."""
        return model.layer(0).transform_input(self.aggregated, self.features)

    def activate(self, model: "GCN", level: int, output: Tensor) -> Tensor:
        """Return the next layer's input, shape ``(n, hidden_channels)``."""
        return model.activate(level, output)

    def next_layer(self, model: "GCN", level: int, hidden: Tensor) -> Tensor:
        """Return layer ``level``'s output for its input, shape ``(n, out_channels)``."""
        output: Tensor = model.layer(level)(self.adjacency, hidden)
        return output


@dataclass(frozen=True)
class RowInput:
    """Rows of Ã^L X for L layers, or means of them, shape ``(n, F)``: all propagation stands before the first layer."""

    aggregated: Tensor

    def first_layer(self, model: "GCN") -> Tensor:
        """Return layer 0's output for the rows, shape ``(n, out_channels)``."""
        return model.layer(0).transform_input(self.aggregated, None)

    def activate(self, model: "GCN", level: int, output: Tensor) -> Tensor:
        """Return the next layer's input, shape ``(n, hidden_channels)``."""
        return model.activate(level, output)

    def next_layer(self, model: "GCN", level: int, hidden: Tensor) -> Tensor:
        """Return layer ``level``'s output for its input, shape ``(n, out_channels)``."""
        return model.layer(level).transform(hidden, None)


class GCNLayer(nn.Module):
    """ÃHθ + b, or [ÃH, H]θ + b without building the concatenation.

    The parameter order of Eq. 2, ``weight`` of shape ``(in_channels, out_channels)``, lets a sparse ÃX multiply with
    it directly. ``own_weight`` is the half of θ that belongs to H, present with ``concat_self`` only.

    Args:
        in_channels: Width of H.
        out_channels: Width of the result.
        concat_self: Whether the layer sees H itself as well.
        bits: Bits at which H is kept for the backward pass, or None for full precision.
    """

    own_weight: nn.Parameter | None

    def __init__(
        self, in_channels: int, out_channels: int, *, concat_self: bool = False, bits: int | None = None
    ) -> None:
        super().__init__()
        self.bits = bits
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.own_weight = nn.Parameter(torch.empty(in_channels, out_channels)) if concat_self else None
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew (Glorot, over both halves of θ) and set the bias to 0."""
        in_channels, out_channels = self.weight.shape
        halves = [self.weight] if self.own_weight is None else [self.weight, self.own_weight]
        bound = (6.0 / (len(halves) * in_channels + out_channels)) ** 0.5
        for half in halves:
            nn.init.uniform_(half, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(self, adjacency: SparseMatrix, hidden: Tensor, own: Tensor | None = None) -> Tensor:
        """Return the layer's output before normalisation and ReLU, multiplying in the cheaper order.

        Args:
            adjacency: Ã or rows of it, shape ``(r, n)``.
            hidden: H, shape ``(n, in_channels)``.
            own: Rows of H that belong to the rows of Ã, where these are not all; shape ``(r, in_channels)``.

        Returns:
            Shape ``(r, out_channels)``.
        """
        own = hidden if own is None else own
        in_channels, out_channels = self.weight.shape
        # At equal width Hθ first is as fast and leaves H, not ÃH, to be kept: with concat_self, H is kept anyway.
        is_square = adjacency.num_rows == adjacency.num_columns
        if in_channels < out_channels or (in_channels == out_channels and not is_square):
            return self.transform(adjacency @ hidden, own)
        product = adjacency @ self._multiply(hidden, self.weight)
        if self.own_weight is not None:
            product.add_(self._multiply(own, self.own_weight))
        return product.add_(self.bias)

    def transform(self, aggregated: Tensor, own: Tensor | None) -> Tensor:
        """Return the output for an ÃH that is at hand, shape ``(r, out_channels)``; arguments as in :meth:`forward`."""
        output = self._multiply(aggregated, self.weight, self.bias)
        if self.own_weight is None:
            return output
        assert own is not None
        return output.add_(self._multiply(own, self.own_weight))

    def transform_input(self, aggregated: Features, features: Features | None) -> Tensor:
        """Return the output of the first layer, whose ÃX and X are constants, kept as they are for the backward pass.

        Args:
            aggregated: ÃX, dense or sparse, shape ``(n, in_channels)``.
            features: X, likewise; only read with ``concat_self``.
        """
        output = _multiply_input(aggregated, self.weight, self.bias)
        if self.own_weight is None:
            return output
        assert features is not None
        return output.add_(_multiply_input(features, self.own_weight))

    def _multiply(self, hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.bits is None:
            return functional.linear(hidden, weight.t(), bias)
        return compressed_linear(hidden, weight.t(), bias, self.bits)


class GCN(nn.Module):
    """A graph convolution network of any depth (Eq. 2): per hidden layer ÃHθ, batch norm, ReLU, dropout.

    It is what ``gcn``, ``cluster-gcn`` and ``gas`` train; they differ in their batches only.

    Args:
        config: Depth, width, dropout, batch norm, bits, ``concat_self``.
        in_channels: F.
        out_channels: L.
    """

    def __init__(self, config: ModelConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.config = config
        hidden, depth = config.hidden_channels, config.num_layers
        widths = [in_channels, *[hidden] * (depth - 1), out_channels]
        self.layers = nn.ModuleList(
            GCNLayer(fan_in, fan_out, concat_self=config.concat_self, bits=config.bits)
            for fan_in, fan_out in pairwise(widths)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(depth - 1 if config.batch_norm else 0))

    def forward(self, inputs: GCNInput) -> Tensor:
        """Return one row of outputs per node, shape ``(n, L)``."""
        output = inputs.first_layer(self)
        for level in range(1, self.config.num_layers):
            output = inputs.next_layer(self, level, inputs.activate(self, level - 1, output))
        return output

    def layer(self, level: int) -> GCNLayer:
        """Return a layer; layer 0 reads the features."""
        layer = self.layers[level]
        assert isinstance(layer, GCNLayer)
        return layer

    def activate(self, level: int, output: Tensor, see: Callable[[Tensor], None] | None = None) -> Tensor:
        """Return the next layer's input: batch norm, ReLU and dropout of layer ``level``'s output, which is used up.

        Args:
            level: The layer.
            output: Shape ``(n, hidden_channels)``.
            see: Called with the values between ReLU and dropout, which are overwritten afterwards.
        """
        norm = self.norms[level] if self.norms else None
        assert norm is None or isinstance(norm, nn.BatchNorm1d)
        return _activate(output, norm, self.config, self.training, see)


class OriginalSIGN(nn.Module):
    """SIGN as first published (appendix B): σ([X θ_0, ÃX θ_1, …, Ã^k X θ_k]), then an MLP.

    Args:
        config: Hops, width, depth (the linear layer per hop is the first), dropout, batch norm, bits.
        in_channels: F.
        out_channels: L.
    """

    def __init__(self, config: ModelConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.config, self.hop_channels = config, in_channels
        hidden, num_blocks = config.hidden_channels, config.num_hops + 1
        self.hops = nn.ModuleList(nn.Linear(in_channels, hidden) for _ in range(num_blocks))
        self.norm = nn.BatchNorm1d(num_blocks * hidden) if config.batch_norm else None
        self.mlp = MLP(
            num_blocks * hidden,
            hidden,
            out_channels,
            config.num_layers - 1,
            dropout=config.dropout,
            batch_norm=config.batch_norm,
            bits=config.bits,
        )

    def forward(self, hop_features: Tensor) -> Tensor:
        """Return one row of outputs per row of hop features [X, ÃX, …, Ã^k X], shape ``(n, (k + 1) F)``."""
        blocks = hop_features.chunk(len(self.hops), dim=1)
        hidden = torch.cat(
            [apply_linear(block, *hop.parameters()) for hop, block in zip(self.hops, blocks, strict=True)], dim=1
        )
        output: Tensor = self.mlp(_activate(hidden, self.norm, self.config, self.training))
        return output

    def row_chain(self) -> RowChain:
        """Return the layers, for pieces of a batch."""
        bits = None if self.norm is None else self.config.bits
        mask_place = 0 if bits is None else 1
        rest = self.mlp.row_chain(mask_place + (self.config.dropout > 0))
        after_hops = RowBlock(rest.first[0], self.norm, self.config.dropout, bits, True, mask_place, 0)
        return RowChain([linear for linear in self.hops if isinstance(linear, nn.Linear)], [after_hops, *rest.blocks])


def build_model(config: ModelConfig, in_features: int, num_outputs: int) -> nn.Module:
    """Return a model with new weights, drawn from torch's global generator.

    Args:
        config: The model.
        in_features: F, columns of X.
        num_outputs: L, classes or label columns.
    """
    if not config.uses_hop_features:
        return GCN(config, in_features, num_outputs)
    if config.model == "sign-original":
        return OriginalSIGN(config, in_features, num_outputs)
    return MLP(
        (config.num_hops + 1) * in_features,
        config.hidden_channels,
        num_outputs,
        config.num_layers,
        dropout=config.dropout,
        batch_norm=config.batch_norm,
        bits=config.bits,
    )


def _send(features: Features, device: torch.device) -> Features:
    return send(features, device) if isinstance(features, Tensor) else features.to(device)


def _multiply_input(features: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if isinstance(features, SparseMatrix):
        product = features @ weight
        return product if bias is None else product.add_(bias)
    return features @ weight if bias is None else torch.addmm(bias, features, weight)


def _activate(
    hidden: Tensor,
    norm: nn.BatchNorm1d | None,
    config: ModelConfig,
    is_training: bool,
    see: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Return a hidden layer's activation, in the place of what is normalised; arguments as of :meth:`GCN.activate`."""
    if norm is not None:
        # One row has no variance: a part of a single node is normalised by what the others have shown so far.
        is_single = norm.training and hidden.shape[0] == 1
        if norm.training and not is_single and config.bits is not None:
            return norm_relu_dropout(hidden, norm, config.dropout, config.bits, inplace=True, see=see)
        parameters = norm.running_mean, norm.running_var, norm.weight, norm.bias
        hidden = functional.batch_norm(hidden, *parameters, eps=norm.eps) if is_single else norm(hidden)
    if see is not None:
        see(functional.relu(hidden.detach()))
    return relu_dropout(hidden, config.dropout, is_training, inplace=True)
