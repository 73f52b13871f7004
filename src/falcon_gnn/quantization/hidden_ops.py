"""What stands between two linear layers, forward and backward, as operators, for which there is a kernel each.

With x̂ the normalised value, m the mask of ReLU and dropout and s the dropout scale, a hidden block's output is
a = m·s·(γx̂ + β), and a gradient g of it becomes m·s·g. The decoded x̂ stands for the exact one. An operator's body is
its meaning, in plain torch; what it needs beside its matrices is a few hundred rows.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from falcon_gnn.quantization.bitmask import apply_mask_, empty_bits, relu_dropout_
from falcon_gnn.quantization.codec import GROUP_SIZE, SEED_ROWS, block_values, empty_codes
from falcon_gnn.quantization.kernel_choice import are_plain_float32, device_type, expects_kernels, run_kernels
from falcon_gnn.quantization.temporaries import declares_temporaries, temporary_bytes

SUM_ROWS = 128
"""Rows whose column sums a kernel takes in one go, and writes."""


def _is_not_double(x: Tensor, *_: object) -> bool:
    return x.dtype != torch.float64


@torch.library.custom_op("falcon_gnn::activate", mutates_args=("out",))
def activate(
    hidden: Tensor,
    norm: Sequence[Tensor],
    mask_seed: Tensor | None,
    code_seed: Tensor | None,
    dropout: float,
    bits: int,
    out: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Write a hidden block's output and return the mask and the codes, zero points and steps of what is kept of it.

    Args:
        hidden: The linear layer's output, shape ``(rows, channels)``.
        norm: Mean, 1 / sqrt(variance + ε), γ and β, shape ``(channels,)`` each; nothing without batch norm. With it, x̂
            is kept, else the output.
        mask_seed: Seeds of dropout, as in :func:`relu_dropout_`; None for no dropout.
        code_seed: Seeds of stochastic rounding; None to nearest.
        dropout: Probability of dropping a value.
        bits: Bits per kept value; 0 for none kept.
        out: What is written to; may be ``hidden``.
    """
    if not norm:
        mask = relu_dropout_(out if out is hidden else out.copy_(hidden), mask_seed, dropout)
        return mask, *_encode(out, code_seed, bits)
    mean, inverse_std, gamma, beta = norm
    torch.sub(hidden, mean, out=out).mul_(inverse_std)
    codes = _encode(out, code_seed, bits)
    return relu_dropout_(out.mul_(gamma).add_(beta), mask_seed, dropout), *codes


@activate.register_fake
def _(
    hidden: Tensor,
    norm: Sequence[Tensor],
    mask_seed: Tensor | None,
    code_seed: Tensor | None,
    dropout: float,
    bits: int,
    out: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return empty_bits(hidden.numel(), hidden.device), *codes_of(hidden, bits)


run_kernels(activate, "activate", _is_not_double, fits_cpu=are_plain_float32)


@declares_temporaries("falcon_gnn::activate")
def _(
    hidden: Tensor,
    norm: Sequence[Tensor],
    mask_seed: Tensor | None,
    code_seed: Tensor | None,
    dropout: float,
    bits: int,
    out: Tensor,
) -> int:
    return max(
        temporary_bytes("falcon_gnn::quantize", out, code_seed, bits, GROUP_SIZE) if bits else 0,
        temporary_bytes("falcon_gnn::relu_dropout_", out, mask_seed, dropout),
        _stacked_bytes(norm),
    )


@torch.library.custom_op("falcon_gnn::normalize_activate_", mutates_args=("hidden", "out"))
def normalize_activate_(
    hidden: Tensor, norm: Sequence[Tensor], mask_seed: Tensor | None, dropout: float, out: Tensor
) -> Tensor:
    """Turn a linear layer's output into x̂ in place, write the block's output and return the mask.

    Args:
        hidden: The linear layer's output, shape ``(rows, channels)``.
        norm: Mean, 1 / sqrt(variance + ε), γ and β, shape ``(channels,)`` each.
        mask_seed: Seeds of dropout; None for no dropout.
        dropout: Probability of dropping a value.
        out: What is written to, not ``hidden``.
    """
    mean, inverse_std, gamma, beta = norm
    torch.mul(hidden.sub_(mean).mul_(inverse_std), gamma, out=out).add_(beta)
    mask: Tensor = relu_dropout_(out, mask_seed, dropout)
    return mask


@normalize_activate_.register_fake
def _(hidden: Tensor, norm: Sequence[Tensor], mask_seed: Tensor | None, dropout: float, out: Tensor) -> Tensor:
    return empty_bits(hidden.numel(), hidden.device)


run_kernels(normalize_activate_, "normalize_activate_", _is_not_double, fits_cpu=are_plain_float32)


@declares_temporaries("falcon_gnn::normalize_activate_")
def _(hidden: Tensor, norm: Sequence[Tensor], mask_seed: Tensor | None, dropout: float, out: Tensor) -> int:
    return max(temporary_bytes("falcon_gnn::relu_dropout_", out, mask_seed, dropout), _stacked_bytes(norm))


@torch.library.custom_op("falcon_gnn::rebuild", mutates_args=("out",))
def rebuild(
    codes: Sequence[Tensor], bits: int, affine: Sequence[Tensor], mask: Tensor | None, factor: float, out: Tensor
) -> None:
    """Write what the next layer saw of a block, m·s·(γx̂ + β), as far as x̂ is known.

    Args:
        codes: As :func:`activate` returned them; or x̂ itself, three times.
        bits: Bits per code; 0 for x̂ itself.
        affine: γ and β.
        mask: As :func:`activate` returned it; None for none.
        factor: s.
        out: What is written to, contiguous, shape ``(rows, channels)``; may be x̂'s own place.
    """
    torch.mul(_decoded(codes, bits, out, out), affine[0], out=out).add_(affine[1])
    if mask is not None:
        apply_mask_(out, mask, factor)


@rebuild.register_fake
def _(
    codes: Sequence[Tensor], bits: int, affine: Sequence[Tensor], mask: Tensor | None, factor: float, out: Tensor
) -> None:
    return None


run_kernels(rebuild, "rebuild", lambda *_: False, fits_cpu=are_plain_float32)


@declares_temporaries("falcon_gnn::rebuild")
def _(
    codes: Sequence[Tensor], bits: int, affine: Sequence[Tensor], mask: Tensor | None, factor: float, out: Tensor
) -> int:
    inside = temporary_bytes("falcon_gnn::dequantize", *codes, bits, GROUP_SIZE, out) if bits else 0
    masking = 0 if mask is None else temporary_bytes("falcon_gnn::apply_mask_", out, mask, factor)
    return max(inside, masking, _stacked_bytes(affine))


@torch.library.custom_op("falcon_gnn::mask_gradient_", mutates_args=("gradient", "activation"))
def mask_gradient_(
    gradient: Tensor,
    mask: Tensor,
    codes: Sequence[Tensor],
    bits: int,
    affine: Sequence[Tensor],
    factor: float,
    activation: Tensor | None,
) -> Tensor:
    """Turn the gradient of a block's output into that of γx̂ + β in place; return its column sums and those of g·x̂.

    Args:
        gradient: Contiguous, shape ``(rows, channels)``.
        mask: As :func:`activate` returned it.
        codes: Likewise, packed codes, zero points and steps; or x̂ itself, three times, which stays.
        bits: Bits per code; 0 for x̂ itself.
        affine: γ and β; nothing without batch norm, where the sums are 0.
        factor: s.
        activation: Takes what the next layer saw, up to quantisation, shape ``(rows, channels)``; None if it is not
            needed.

    Returns:
        The two sums, shape ``(2, channels)``.
    """
    sums = torch.zeros(2, gradient.shape[1], dtype=gradient.dtype, device=gradient.device)
    apply_mask_(gradient, mask, factor)
    if activation is None and not affine:
        return sums
    value = _decoded(codes, bits, activation, gradient)
    if affine:
        for rows in _row_blocks(gradient):
            sums[0].add_(gradient[rows].sum(0))
            sums[1].add_((value[rows] * gradient[rows]).sum(0))
        if activation is not None:
            apply_mask_(torch.mul(value, affine[0], out=activation).add_(affine[1]), mask, factor)
    return sums


def _decoded(codes: Sequence[Tensor], bits: int, out: Tensor | None, like: Tensor) -> Tensor:
    """Return what the codes stand for, written to a matrix unless it is at hand."""
    if not bits:
        return codes[0]
    value = torch.empty_like(like) if out is None else out
    torch.ops.falcon_gnn.dequantize(*codes, bits, GROUP_SIZE, value)
    return value


@mask_gradient_.register_fake
def _(
    gradient: Tensor,
    mask: Tensor,
    codes: Sequence[Tensor],
    bits: int,
    affine: Sequence[Tensor],
    factor: float,
    activation: Tensor | None,
) -> Tensor:
    return gradient.new_empty(2, gradient.shape[1])


run_kernels(mask_gradient_, "mask_gradient_", _is_not_double, fits_cpu=are_plain_float32)


@declares_temporaries("falcon_gnn::mask_gradient_")
def _(
    gradient: Tensor,
    mask: Tensor,
    codes: Sequence[Tensor],
    bits: int,
    affine: Sequence[Tensor],
    factor: float,
    activation: Tensor | None,
) -> int:
    if expects_kernels(gradient):
        return 2 * _sums_bytes(gradient) + _stacked_bytes(affine)
    decoded = gradient.nbytes if activation is None and affine and bits else 0
    inside = temporary_bytes("falcon_gnn::dequantize", *codes, bits, GROUP_SIZE, gradient) if bits else 0
    masking = temporary_bytes("falcon_gnn::apply_mask_", gradient, mask, factor)
    return max(masking, decoded + max(inside, _block_bytes(gradient)))


@torch.library.custom_op("falcon_gnn::hidden_gradient", mutates_args=("out",))
def hidden_gradient(gradient: Tensor, codes: Sequence[Tensor], bits: int, factors: Tensor, out: Tensor) -> Tensor:
    """Write the gradient of what was normalised, (g + x̂ slope − offset) scale, and return its column sums.

    Args:
        gradient: g, that of γx̂ + β, shape ``(rows, channels)``.
        codes: As :func:`activate` returned them.
        bits: Bits per code.
        factors: Slope, offset and scale, shape ``(3, channels)``.
        out: What is written to, contiguous, shape ``(rows, channels)``.
    """
    slope, offset, scale = factors
    torch.ops.falcon_gnn.dequantize(*codes, bits, GROUP_SIZE, out)
    out.mul_(slope).add_(gradient).sub_(offset).mul_(scale)
    return out.sum(0)


@hidden_gradient.register_fake
def _(gradient: Tensor, codes: Sequence[Tensor], bits: int, factors: Tensor, out: Tensor) -> Tensor:
    return out.new_empty(out.shape[1])


run_kernels(hidden_gradient, "hidden_gradient", _is_not_double, fits_cpu=are_plain_float32)


@declares_temporaries("falcon_gnn::hidden_gradient")
def _(gradient: Tensor, codes: Sequence[Tensor], bits: int, factors: Tensor, out: Tensor) -> int:
    if expects_kernels(out):
        return _sums_bytes(out)
    return temporary_bytes("falcon_gnn::dequantize", *codes, bits, GROUP_SIZE, out)


@torch.library.custom_op("falcon_gnn::merge_moments_", mutates_args=("mean", "squares"))
def merge_moments_(mean: Tensor, squares: Tensor, chunk: Tensor, seen: int) -> None:
    """Take more rows into the mean and the sum of squared distances from it (merge of Chan, Golub and LeVeque).

    Args:
        mean: Column means of the rows seen so far, shape ``(width,)``.
        squares: Sums of their squared distances, shape ``(width,)``.
        chunk: More rows, shape ``(rows, width)``.
        seen: Rows seen so far.
    """
    for rows in _row_blocks(chunk):
        part = chunk[rows]
        part_mean, total = part.mean(0), seen + len(part)
        squares.add_(torch.sub(part, part_mean).square_().sum(0))
        distance = part_mean.sub_(mean)
        squares.addcmul_(distance, distance, value=seen * len(part) / total)
        mean.add_(distance, alpha=len(part) / total)
        seen = total


@merge_moments_.register_fake
def _(mean: Tensor, squares: Tensor, chunk: Tensor, seen: int) -> None:
    return None


run_kernels(merge_moments_, "merge_moments_", _is_not_double, fits_cpu=are_plain_float32)


@declares_temporaries("falcon_gnn::merge_moments_")
def _(mean: Tensor, squares: Tensor, chunk: Tensor, seen: int) -> int:
    runs_kernel = expects_kernels(chunk) and (device_type(chunk) != "cpu" or chunk.is_contiguous())
    return 2 * _sums_bytes(chunk) if runs_kernel else _block_bytes(chunk)


def codes_of(x: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the codes, zero points and steps of a tensor are written to; empty tensors for 0 bits."""
    return empty_codes(x if bits else x[:0], bits or 8)


def _encode(x: Tensor, seed: Tensor | None, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    if not bits:
        return codes_of(x, bits)
    codes: tuple[Tensor, Tensor, Tensor] = torch.ops.falcon_gnn.quantize(x, seed, bits, GROUP_SIZE)
    return codes


def _row_blocks(matrix: Tensor) -> Iterator[slice]:
    """Yield the rows that are worked on together."""
    step = _step(matrix, matrix.device.type)
    for start in range(0, len(matrix), step):
        yield slice(start, min(start + step, len(matrix)))


def _step(matrix: Tensor, device_name: str) -> int:
    if device_name == "cpu":
        return SEED_ROWS
    return max(SEED_ROWS, block_values(torch.device(device_name)) // max(1, matrix.shape[1]))


def _block_bytes(matrix: Tensor) -> int:
    rows = min(len(matrix), _step(matrix, device_type(matrix)))
    return (rows + 2) * matrix.shape[1] * matrix.element_size()


def _stacked_bytes(rows: Sequence[Tensor]) -> int:
    """Return the bytes of parameters as a kernel of the CPU reads them, in one matrix."""
    return sum(row.nbytes for row in rows) if rows and device_type(rows[0]) == "cpu" else 0


def _sums_bytes(matrix: Tensor) -> int:
    """Return the bytes of the sums that a kernel writes, float32, one row of them for every 128 rows."""
    return -(-len(matrix) // SUM_ROWS) * matrix.shape[1] * 4
