"""Functions for layers that keep their activations compressed between the forward and the backward pass.

What they return is exact; only what they keep for the gradient is quantised. None of them has a second derivative.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.bitmask import apply_mask_, keep_factor, relu_dropout_
from falcon_gnn.quantization.chunks import Scratch, row_chunks
from falcon_gnn.quantization.codec import QuantizedTensor, check_bits, dequantize, draw_seeds, quantize
from falcon_gnn.quantization.draws import draw_row_seeds, seeds_of
from falcon_gnn.quantization.hidden_ops import activate, hidden_gradient, mask_gradient_
from falcon_gnn.quantization.kernel_choice import device_type
from falcon_gnn.quantization.moments import ColumnMoments, SharedBatch, SharesBatch
from falcon_gnn.quantization.products import add_outer_, column_sums, multiply, product_dtype
from falcon_gnn.quantization.saved_codes import flatten_codes, restore_codes


def relu_dropout(x: Tensor, p: float = 0.5, training: bool = True, *, inplace: bool = False) -> Tensor:
    """Return dropout(relu(x)), keeping one bit per value for the gradient of both.

    Args:
        x: Floating tensor of any shape.
        p: Probability of dropping a value, in [0, 1].
        training: Whether to drop; if not, this is ``torch.relu``.
        inplace: Overwrite ``x``, which is allowed where the operation before does not keep its output (linear, batch
            norm).

    Raises:
        OptionError: If ``p`` lies outside [0, 1].
    """
    check_dropout(p, "p")
    if not training:
        return functional.relu(x, inplace=inplace)
    activation: Tensor = _ReluDropout.apply(x, p, inplace)  # type: ignore[no-untyped-call]
    return activation


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return ``x @ weight.T + bias``, on CUDA without what torch holds inside for the gradient of the bias.

    Args:
        x: Input, shape ``(rows, in_channels)``.
        weight: Shape ``(out_channels, in_channels)``.
        bias: Shape ``(out_channels,)``.
    """
    if device_type(x) != "cuda" or not torch.is_grad_enabled():
        return functional.linear(x, weight, bias)
    output: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return output


def compressed_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, bits: int = 2) -> Tensor:
    """Return ``x @ weight.T + bias``, keeping ``x`` at ``bits`` bits for the gradient of ``weight``.

    Args:
        x: Input, shape ``(rows, in_channels)``.
        weight: Shape ``(out_channels, in_channels)``.
        bias: Shape ``(out_channels,)``, or None.
        bits: Bits per kept value, 1, 2, 4 or 8.

    Returns:
        Shape ``(rows, out_channels)``. Its gradients are exact for ``x`` and ``bias`` and unbiased for ``weight``.

    Raises:
        OptionError: If ``bits`` is not one of the allowed values or ``x`` is not a matrix.
    """
    check_bits(bits)
    if x.dim() != 2:
        msg = f"x must have shape (rows, in_channels), got {tuple(x.shape)}; flatten the leading dimensions first"
        raise OptionError(msg)
    if not torch.is_grad_enabled() or not weight.requires_grad:
        return functional.linear(x, weight, bias)
    output: Tensor = _CompressedLinear.apply(x, weight, bias, bits)  # type: ignore[no-untyped-call]
    return output


def norm_relu_dropout(
    x: Tensor,
    norm: nn.BatchNorm1d,
    p: float,
    bits: int = 2,
    *,
    inplace: bool = False,
    see: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Return dropout(relu(norm(x))) and update the norm's running statistics, as in training.

    Kept for the gradient are the normalised value at ``bits`` bits and one bit for ReLU and dropout together.

    Args:
        x: Input, shape ``(rows, channels)``.
        norm: Affine batch norm with running statistics, in training.
        p: Probability of dropping a value, in [0, 1].
        bits: Bits per kept value, 1, 2, 4 or 8.
        inplace: Overwrite ``x``, which is allowed where the operation before does not keep its output (linear, sparse
            product).
        see: Called with the values between ReLU and dropout, which are overwritten afterwards.

    Raises:
        OptionError: If ``bits`` or ``p`` is not one of the allowed values, or ``x`` has one row only.
    """
    check_bits(bits)
    check_dropout(p, "p")
    check_rows(x)
    shared = share_batch(norm, x.shape[0])
    settings = _NormSettings(norm.eps, p, bits, inplace, shared, see)
    arguments = x, norm.weight, norm.bias, settings
    output, mean, variance = _NormReluDropout.apply(*arguments)  # type: ignore[no-untyped-call]
    update_running_statistics(norm, mean, variance, x.shape[0] if shared is None else shared.num_rows)
    activation: Tensor = output
    return activation


def share_batch(norm: nn.BatchNorm1d, num_rows: int) -> SharedBatch | None:
    """Return the batch that a norm's rows are a part of; None where the norm sees one device only.

    Args:
        norm: A layer; one that normalises over several devices has a method ``share_batch`` that counts their rows.
        num_rows: Rows of this device.
    """
    return norm.share_batch(num_rows) if isinstance(norm, SharesBatch) else None


def check_dropout(probability: float, name: str) -> None:
    """Refuse a dropout probability outside [0, 1].

    Raises:
        OptionError: If it lies outside.
    """
    if not 0.0 <= probability <= 1.0:
        msg = f"{name} must lie in [0, 1], got {probability}; 0 switches dropout off"
        raise OptionError(msg)


def check_rows(x: Tensor) -> None:
    """Refuse a training batch whose variance is undefined.

    Raises:
        OptionError: If ``x`` has exactly one row.
    """
    if x.shape[0] == 1:
        msg = f"batch norm in training needs more than one row, got shape {tuple(x.shape)}; enlarge or drop the batch"
        raise OptionError(msg)


@torch.no_grad()
def update_running_statistics(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, num_rows: int | Tensor) -> None:
    """Move a batch norm's running statistics towards those of a batch, as torch's own forward pass does.

    Args:
        norm: The layer.
        mean: Column means, shape ``(channels,)``.
        variance: Biased column variances, shape ``(channels,)``.
        num_rows: Rows of the batch; with fewer than two nothing changes. A tensor is not waited for.
    """
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    if isinstance(num_rows, int) and norm.momentum is not None:
        if num_rows >= 2:
            norm.num_batches_tracked.add_(1)
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (num_rows / (num_rows - 1)), norm.momentum)
        return
    num_rows = torch.as_tensor(num_rows, device=mean.device)
    is_enough = num_rows >= 2
    norm.num_batches_tracked.add_(is_enough)
    momentum = 1.0 / norm.num_batches_tracked.clamp(min=1) if norm.momentum is None else norm.momentum
    share = (is_enough * momentum).to(mean.dtype)
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share)
    norm.running_var.lerp_(variance * (num_rows / (num_rows - 1).clamp(min=1)).to(variance.dtype), share)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, inplace: bool) -> Tensor:
        activation = x if inplace and x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
        seeds = None
        if p:
            seeds = draw_row_seeds(x.shape[0]) if x.dim() == 2 else draw_seeds()
        ctx.save_for_backward(relu_dropout_(activation, seeds, p))
        ctx.factor = keep_factor(p)
        if not inplace:
            return activation
        ctx.mark_dirty(x)
        return x if activation is x else x.copy_(activation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        below = gradient.clone(memory_format=torch.contiguous_format)
        apply_mask_(below, ctx.saved_tensors[0], ctx.factor)
        return below, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        dtype = product_dtype(x)
        ctx.x_dtype = x.dtype
        ctx.save_for_backward(x if dtype is None else x.to(dtype), weight)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            below = None
            if ctx.needs_input_grad[0]:
                below = (gradient @ weight.to(gradient.dtype)).to(ctx.x_dtype)
            weight_gradient = (gradient.t() @ x).to(weight.dtype)
            return below, weight_gradient, column_sums(gradient, weight.dtype)


class _CompressedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, bits: int) -> Tensor:
        ctx.chunks = list(row_chunks(x.shape[0], max(weight.shape), x))
        seeds = draw_row_seeds(x.shape[0])
        codes = [quantize(x[rows], bits, seed=seeds_of(seeds, rows)) for rows in ctx.chunks]
        ctx.save_for_backward(weight, *flatten_codes(codes))
        ctx.x_dtype, ctx.bits, ctx.dtype, ctx.has_bias = x.dtype, bits, product_dtype(x), bias is not None
        return functional.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        weight, *kept = ctx.saved_tensors
        shapes = [(rows.stop - rows.start, weight.shape[1]) for rows in ctx.chunks]
        codes = restore_codes(kept, shapes, weight.dtype, ctx.bits)
        weight_gradient, scratch = torch.zeros_like(weight), Scratch(weight)
        below = None
        if ctx.needs_input_grad[0]:
            below = gradient.new_empty(len(gradient), weight.shape[1], dtype=ctx.x_dtype)
        for rows, chunk in zip(ctx.chunks, codes, strict=True):
            upper = gradient[rows].to(weight.dtype)
            add_outer_(weight_gradient, upper, dequantize(chunk, scratch.take("value", chunk.shape)), ctx.dtype)
            if below is not None:
                multiply(upper, weight, below[rows], ctx.dtype)
        bias_gradient = column_sums(gradient, weight.dtype) if ctx.has_bias else None
        return below, weight_gradient, bias_gradient, None


@dataclass(frozen=True, eq=False)
class _NormSettings:
    """What :func:`norm_relu_dropout` was asked for."""

    eps: float
    dropout: float
    bits: int
    inplace: bool
    shared: SharedBatch | None
    see: Callable[[Tensor], None] | None


class _NormReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, settings: _NormSettings
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.chunks, ctx.settings = list(row_chunks(x.shape[0], x.shape[1], x)), settings
        moments = ColumnMoments(x.shape[1], weight)
        for rows in ctx.chunks:
            moments.update(x[rows].to(weight.dtype))
        if settings.shared is not None:
            moments.share(settings.shared)
        inverse_std = (moments.variance + settings.eps).rsqrt_()
        norm = moments.mean, inverse_std, weight, bias
        output = x if settings.inplace and x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
        masks, codes = _activate_chunks_(output, norm, settings, ctx.chunks)
        if settings.inplace:
            ctx.mark_dirty(x)
            output = x if output is x else x.copy_(output)
        statistics = moments.mean, moments.variance
        ctx.mark_non_differentiable(*statistics)
        ctx.save_for_backward(weight, bias, inverse_std, *masks, *flatten_codes(codes))
        return output, *statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        weight, bias, inverse_std, *kept = ctx.saved_tensors
        masks, settings, shared = kept[: len(ctx.chunks)], ctx.settings, ctx.settings.shared
        shapes = [(rows.stop - rows.start, len(weight)) for rows in ctx.chunks]
        codes = restore_codes(kept[len(masks) :], shapes, weight.dtype, settings.bits)
        below = gradient.to(weight.dtype, copy=True, memory_format=torch.contiguous_format)
        own, factor = weight.new_zeros(2, len(weight)), keep_factor(settings.dropout)
        for rows, mask, chunk in zip(ctx.chunks, masks, codes, strict=True):
            own += mask_gradient_(below[rows], mask, chunk.tensors, settings.bits, (weight, bias), factor, None)
        num_rows, sums = max(len(gradient), 1), own
        if shared is not None:
            num_rows, sums = shared.num_rows, shared.add_up(own)
        offset, slope = sums / num_rows
        factors, scratch = torch.stack([-slope, offset, weight * inverse_std]), Scratch(weight)
        for rows, chunk in zip(ctx.chunks, codes, strict=True):
            value = scratch.take("value", chunk.shape)
            hidden_gradient(below[rows], chunk.tensors, settings.bits, factors, value)
            below[rows] = value
        return below.to(gradient.dtype), own[1], own[0], None


def _activate_chunks_(
    x: Tensor, norm: Sequence[Tensor], settings: _NormSettings, chunks: Sequence[slice]
) -> tuple[list[Tensor], list[QuantizedTensor]]:
    """Normalise, cut off and drop values in place; return the masks and codes of chunks of rows."""
    weight, see = norm[2], settings.see
    scratch, masks, codes = Scratch(weight), [], []
    code_seeds = draw_row_seeds(x.shape[0])
    mask_seeds = draw_row_seeds(x.shape[0]) if settings.dropout else None
    for rows in chunks:
        part = x[rows]
        target = part if x.dtype == weight.dtype else scratch.take("value", part.shape).copy_(part)
        seeds = None if mask_seeds is None or see is not None else seeds_of(mask_seeds, rows)
        dropout = 0.0 if see is not None else settings.dropout
        kept = activate(target, norm, seeds, seeds_of(code_seeds, rows), dropout, settings.bits, target)
        mask, packed, zero, scale = kept
        masks.append(mask)
        codes.append(QuantizedTensor(packed, zero, scale, tuple(part.shape), weight.dtype, settings.bits))
        if target is not part:
            part.copy_(target)
    if see is not None:
        see(x)
        if mask_seeds is not None:
            masks = [relu_dropout_(x[rows], seeds_of(mask_seeds, rows), settings.dropout) for rows in chunks]
    return masks, codes
