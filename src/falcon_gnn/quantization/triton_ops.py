"""The operators of this package, carried out by Triton's kernels: what is allocated, and how many programs start.

A function has the name, the arguments and the result of the operator that it carries out.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from falcon_gnn.quantization import triton_kernels as kernels
from falcon_gnn.quantization.bitmask import empty_bits, keep_factor, keep_numerator, rounded_factor
from falcon_gnn.quantization.codec import empty_codes
from falcon_gnn.quantization.hidden_ops import SUM_ROWS, codes_of
from falcon_gnn.quantization.philox import seed_groups

Codes = tuple[Tensor, Tensor, Tensor]

GROUPS = 4
"""Groups of a tile."""
ROWS, COLUMNS = 8, 128
"""Rows and columns of a tile whose columns are added up."""


def quantize(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> Codes:
    """Carry out ``falcon_gnn::quantize`` for groups of 256."""
    codes = empty_codes(x, bits)
    _launch_activate(x.contiguous(), None, None, codes, code_seed=seed, bits=bits)
    return codes


def dequantize(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, out: Tensor) -> None:
    """Carry out ``falcon_gnn::dequantize`` for groups of 256."""
    _launch_groups(kernels.decode_kernel, out, packed, zero, scale, out, *_counts(out), BITS=bits)


def pack_bits(mask: Tensor) -> Tensor:
    """Carry out ``falcon_gnn::pack_bits``."""
    packed = empty_bits(mask.numel(), mask.device)
    _launch_groups(kernels.pack_bits_kernel, mask, mask.contiguous().view(torch.uint8), packed, *_counts(mask))
    return packed


def unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    """Carry out ``falcon_gnn::unpack_bits``."""
    mask = torch.empty(shape, dtype=torch.bool, device=packed.device)
    _launch_groups(kernels.unpack_bits_kernel, mask, packed, mask.view(torch.uint8), *_counts(mask))
    return mask


def dropout_bits(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    """Carry out ``falcon_gnn::dropout_bits``."""
    packed = empty_bits(like.numel(), like.device)
    arguments = _on(seed, like), packed, _counts(like)[1], seed_groups(seed, like.shape), keep_numerator(dropout)
    _launch_groups(kernels.dropout_bits_kernel, like, *arguments)
    return packed


def relu_dropout_(x: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    """Carry out ``falcon_gnn::relu_dropout_``."""
    packed = empty_bits(x.numel(), x.device)
    _launch_activate(x, x, packed, None, mask_seed=seed, dropout=dropout)
    return packed


def apply_mask_(x: Tensor, packed: Tensor, factor: float) -> None:
    """Carry out ``falcon_gnn::apply_mask_``."""
    _launch_groups(kernels.multiply_mask_kernel, x, x, packed, *_counts(x), rounded_factor(factor, x))


def activate(
    hidden: Tensor,
    norm: Sequence[Tensor],
    mask_seed: Tensor | None,
    code_seed: Tensor | None,
    dropout: float,
    bits: int,
    out: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Carry out ``falcon_gnn::activate``."""
    packed, codes = empty_bits(hidden.numel(), hidden.device), codes_of(hidden, bits)
    _launch_activate(
        hidden,
        out,
        packed,
        codes,
        norm=tuple(norm),
        mask_seed=mask_seed,
        code_seed=code_seed,
        dropout=dropout,
        bits=bits,
    )
    return packed, *codes


def normalize_activate_(
    hidden: Tensor, norm: Sequence[Tensor], mask_seed: Tensor | None, dropout: float, out: Tensor
) -> Tensor:
    """Carry out ``falcon_gnn::normalize_activate_``."""
    packed = empty_bits(hidden.numel(), hidden.device)
    _launch_activate(hidden, out, packed, None, norm=tuple(norm), dropout=dropout, mask_seed=mask_seed, keeps=True)
    return packed


def mask_gradient_(
    gradient: Tensor,
    mask: Tensor,
    codes: Sequence[Tensor],
    bits: int,
    affine: Sequence[Tensor],
    factor: float,
    activation: Tensor | None,
) -> Tensor:
    """Carry out ``falcon_gnn::mask_gradient_``."""
    num_parts = _num_parts(gradient) if affine else 0
    sums = torch.empty(num_parts, 2, gradient.shape[1], dtype=torch.float32, device=gradient.device)
    scale_and_shift = tuple(affine) or (gradient, gradient)
    target = gradient if activation is None else activation
    _launch_columns(
        kernels.mask_gradient_kernel, gradient, gradient, mask, *codes, *scale_and_shift, target, sums,
        *gradient.shape, factor, BITS=bits, HAS_NORM=len(affine) > 0, HAS_ACTIVATION=activation is not None, ROWS=ROWS,
    )  # fmt: skip
    return sums.sum(0)


def hidden_gradient(gradient: Tensor, codes: Sequence[Tensor], bits: int, factors: Tensor, out: Tensor) -> Tensor:
    """Carry out ``falcon_gnn::hidden_gradient``."""
    sums = torch.empty(_num_parts(gradient), gradient.shape[1], dtype=torch.float32, device=gradient.device)
    arguments = gradient.contiguous(), *codes, factors, out, sums, *gradient.shape
    _launch_columns(kernels.hidden_gradient_kernel, gradient, *arguments, BITS=bits, ROWS=ROWS)
    return sums.sum(0)


def merge_moments_(mean: Tensor, squares: Tensor, chunk: Tensor, seen: int) -> None:
    """Carry out ``falcon_gnn::merge_moments_``."""
    chunk = chunk if chunk.stride(1) == 1 else chunk.contiguous()
    (num_rows, width), num_parts = chunk.shape, _num_parts(chunk)
    partial = torch.empty(num_parts, 2, width, dtype=torch.float32, device=chunk.device)
    _launch_columns(kernels.moments_kernel, chunk, chunk, partial, num_rows, width, chunk.stride(0), ROWS=ROWS)
    with _device_of(chunk):
        kernels.merge_moments_kernel[(triton.cdiv(width, COLUMNS),)](
            partial, mean, squares, float(seen), num_rows, num_parts, width, SUM_ROWS=SUM_ROWS, COLUMNS=COLUMNS,
            enable_fp_fusion=False,
        )  # fmt: skip


def multiply_sparse(indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """Return the product of a CSR matrix and contiguous dense columns, in the type of the columns, the same every time.

    Args:
        indptr: Row starts, shape ``(R + 1,)``.
        indices: Columns, shape ``(num_entries,)``.
        values: Entries, shape ``(num_entries,)``.
        x: Dense columns, shape ``(C, d)``.
    """
    out = x.new_empty(indptr.shape[0] - 1, x.shape[1])
    grid = out.shape[0], triton.cdiv(x.shape[1], COLUMNS)
    if all(grid):
        with _device_of(x):
            kernels.multiply_sparse_kernel[grid](
                indptr, indices, values, x, out, x.shape[1], COLUMNS=COLUMNS, enable_fp_fusion=False
            )
    return out


def gather_rows(matrix: Tensor, ids: Tensor) -> Tensor:
    """Return rows of a matrix, on the device of their numbers.

    Args:
        matrix: On the device, or in page-locked host memory, which a kernel reads in place; shape ``(N, d)``, each row
            without gaps.
        ids: Rows, int64, shape ``(n,)``.
    """
    out = torch.empty(len(ids), matrix.shape[1], dtype=matrix.dtype, device=ids.device)
    _launch_rows(kernels.gather_rows_kernel, matrix, ids, out, *_widths(matrix))
    return out


def scatter_rows(matrix: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Write rows to a matrix, in the order of the device's work; arguments as in :func:`gather_rows`.

    Args:
        matrix: What is written to.
        ids: Distinct rows, int64, shape ``(n,)``.
        rows: Their values, of any floating type, shape ``(n, d)``.
    """
    _launch_rows(kernels.scatter_rows_kernel, rows.contiguous(), ids, matrix, *_widths(matrix))


def _widths(matrix: Tensor) -> tuple[int, int]:
    """Return how many values a row has, and how far the next one is."""
    return matrix.shape[1], matrix.stride(0)


def _launch_rows(kernel: Any, source: Tensor, ids: Tensor, target: Tensor, width: int, stride: int) -> None:
    """Start a kernel for every row and some columns of it."""
    grid = len(ids), triton.cdiv(width, COLUMNS)
    if all(grid):
        with _device_of(ids):
            kernel[grid](source, ids, target, width, stride, COLUMNS=COLUMNS, enable_fp_fusion=False)


def _launch_activate(
    x: Tensor,
    out: Tensor | None,
    mask: Tensor | None,
    codes: Codes | None,
    *,
    norm: tuple[Tensor, ...] = (),
    mask_seed: Tensor | None = None,
    code_seed: Tensor | None = None,
    dropout: float = 0.0,
    bits: int = 0,
    keeps: bool = False,
) -> None:
    seed = mask_seed if mask_seed is not None else code_seed
    groups_per_seed = 1 if seed is None else seed_groups(seed, x.shape)
    width = x.shape[-1] if norm else 1

    def given(tensor: Tensor | None) -> Tensor:
        # A pointer that is never followed stands for what is not there.
        return x if tensor is None else tensor

    _launch_groups(
        kernels.activate_kernel, x, x, given(out), given(mask), *(codes or (x, x, x)), _on(mask_seed, x),
        _on(code_seed, x), *(norm or (x, x, x, x)), *_counts(x), groups_per_seed, width, keep_numerator(dropout),
        rounded_factor(keep_factor(dropout), x), BITS=bits, STOCHASTIC=code_seed is not None, HAS_NORM=bool(norm),
        HAS_MASK=mask is not None, HAS_DROPOUT=mask_seed is not None, IS_ALIGNED=width % 256 == 0,
        KEEPS=keeps,
    )  # fmt: skip


def _launch_groups(kernel: Any, like: Tensor, *arguments: Any, **flags: Any) -> None:
    """Start a kernel over the groups of a tensor."""
    num_tiles = triton.cdiv(_counts(like)[1], GROUPS)
    if num_tiles:
        with _device_of(like):
            kernel[(num_tiles,)](*arguments, GROUPS=GROUPS, enable_fp_fusion=False, **flags)


def _launch_columns(kernel: Any, like: Tensor, *arguments: Any, **flags: Any) -> None:
    """Start a kernel over the parts of a matrix whose columns are added up."""
    grid = _num_parts(like), triton.cdiv(like.shape[1], COLUMNS)
    if all(grid):
        with _device_of(like):
            kernel[grid](*arguments, SUM_ROWS=SUM_ROWS, COLUMNS=COLUMNS, enable_fp_fusion=False, **flags)


def _device_of(x: Tensor) -> AbstractContextManager[None]:
    """Triton starts kernels on the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def _num_parts(matrix: Tensor) -> int:
    return int(triton.cdiv(matrix.shape[0], SUM_ROWS))


def _counts(x: Tensor) -> tuple[int, int]:
    """Return the numbers of values and of groups."""
    return x.numel(), -(-x.numel() // 256)


def _on(seed: Tensor | None, x: Tensor) -> Tensor:
    return x if seed is None else seed.to(x.device, non_blocking=True)
