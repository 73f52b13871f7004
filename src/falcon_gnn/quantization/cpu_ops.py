"""The operators of this package on the CPU: what is allocated, and how the kernels of Numba are called.

A function has the name, the arguments and the result of the operator that it carries out. Kernels know float32 alone;
values of half precision go through them in parts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from falcon_gnn._kernels import activations as kernels
from falcon_gnn._kernels.compiling import threads_at_most
from falcon_gnn.quantization.bitmask import empty_bits, keep_factor, keep_numerator, rounded_factor
from falcon_gnn.quantization.codec import BLOCK_VALUES, GROUP_SIZE, byte_range, empty_codes
from falcon_gnn.quantization.hidden_ops import SUM_ROWS, codes_of
from falcon_gnn.quantization.philox import seed_groups

Codes = tuple[Tensor, Tensor, Tensor]

_NO_NORM = np.empty((4, 0), np.float32)
_NO_SEEDS = np.empty(0, np.int64)
_NOTHING = torch.empty(0, dtype=torch.uint8)


def run(name: str, *args: Any, **kwargs: Any) -> Any:
    """Carry out an operator on as many threads as torch has."""
    with threads_at_most(torch.get_num_threads()):
        return globals()[name](*args, **kwargs)


def quantize(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> Codes:
    """Carry out ``falcon_gnn::quantize`` for groups of 256."""
    codes = empty_codes(x, bits)
    per_seed = 1 if seed is None else seed_groups(seed, x.shape)

    def encode(values: Tensor, groups: slice) -> None:
        own = codes[0][byte_range(groups, bits)], codes[1][groups], codes[2][groups]
        _activate(
            values, values, None, own, code_seed=seed, bits=bits, first=groups.start, per_seed=per_seed, writes=False
        )

    _by_parts(x.contiguous(), encode, writes=False)
    return codes


def dequantize(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, out: Tensor) -> None:
    """Carry out ``falcon_gnn::dequantize`` for groups of 256."""

    def decode(values: Tensor, groups: slice) -> None:
        words = _words_of(packed[byte_range(groups, bits)])
        kernels.decode(words, _bits_of(zero[groups]), _bits_of(scale[groups]), bits, values.numpy())

    _by_parts(out, decode, reads=False)


def pack_bits(mask: Tensor) -> Tensor:
    """Carry out ``falcon_gnn::pack_bits``."""
    packed = empty_bits(mask.numel(), mask.device)
    kernels.pack_bits(mask.contiguous().view(-1).view(torch.uint8).numpy(), _words_of(packed))
    return packed


def unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    """Carry out ``falcon_gnn::unpack_bits``."""
    mask = torch.empty(shape, dtype=torch.bool)
    kernels.unpack_bits(_words_of(packed), mask.view(-1).view(torch.uint8).numpy())
    return mask


def dropout_bits(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    """Carry out ``falcon_gnn::dropout_bits``."""
    packed = empty_bits(like.numel(), like.device)
    kernels.draw_bits(_seeds(seed), seed_groups(seed, like.shape), keep_numerator(dropout), _words_of(packed))
    return packed


def relu_dropout_(x: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    """Carry out ``falcon_gnn::relu_dropout_``."""
    packed = empty_bits(x.numel(), x.device)
    per_seed = 1 if seed is None else seed_groups(seed, x.shape)
    factor = rounded_factor(keep_factor(dropout), x)

    def cut_off(values: Tensor, groups: slice) -> None:
        bits = packed[byte_range(groups, 1)]
        _activate(
            values, values, bits, None, mask_seed=seed, dropout=dropout, factor=factor, first=groups.start,
            per_seed=per_seed,
        )  # fmt: skip

    _by_parts(x, cut_off)
    return packed


def apply_mask_(x: Tensor, packed: Tensor, factor: float) -> None:
    """Carry out ``falcon_gnn::apply_mask_``."""
    rounded = np.float32(rounded_factor(factor, x))

    def multiply(values: Tensor, groups: slice) -> None:
        kernels.multiply_mask(values.numpy(), _words_of(packed[byte_range(groups, 1)]), rounded)

    _by_parts(x, multiply)


def mask_columns_(values: Tensor, packed: Tensor, first: int, factor: float) -> None:
    """Carry out ``falcon_gnn::mask_columns_``."""
    kernels.multiply_columns(values.numpy(), packed.numpy(), first // 8, np.float32(factor))


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
    _activate(
        hidden, out, packed, codes, norm=norm, mask_seed=mask_seed, code_seed=code_seed, dropout=dropout, bits=bits,
        factor=keep_factor(dropout),
    )  # fmt: skip
    return packed, *codes


def normalize_activate_(
    hidden: Tensor, norm: Sequence[Tensor], mask_seed: Tensor | None, dropout: float, out: Tensor
) -> Tensor:
    """Carry out ``falcon_gnn::normalize_activate_``."""
    packed = empty_bits(hidden.numel(), hidden.device)
    factor = keep_factor(dropout)
    _activate(hidden, out, packed, None, norm=norm, mask_seed=mask_seed, dropout=dropout, factor=factor, keeps=True)
    return packed


def rebuild(
    codes: Sequence[Tensor], bits: int, affine: Sequence[Tensor], mask: Tensor | None, factor: float, out: Tensor
) -> None:
    """Carry out ``falcon_gnn::rebuild``."""
    packed, zero, scale = codes if bits else [_NOTHING] * 3
    kernels.rebuild(
        _flat(out if bits else codes[0]), _words_of(packed), _bits_of(zero), _bits_of(scale), bits, _stacked(affine, 2),
        _words_of(_NOTHING if mask is None else mask), np.float32(factor), _flat(out),
    )  # fmt: skip


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
    sums = torch.zeros(_num_parts(gradient) if affine else 0, 2, gradient.shape[1])
    packed, zero, scale = codes if bits else [mask[:0]] * 3
    kernels.mask_gradient(
        _flat(gradient), gradient.shape[1], _words_of(mask), _words_of(packed), _bits_of(zero), _bits_of(scale),
        _flat(gradient if bits else codes[0]), bits, _stacked(affine, 2), np.float32(factor),
        _flat(gradient[:0] if activation is None else activation), sums.numpy(),
    )  # fmt: skip
    return sums.sum(0)


def hidden_gradient(gradient: Tensor, codes: Sequence[Tensor], bits: int, factors: Tensor, out: Tensor) -> Tensor:
    """Carry out ``falcon_gnn::hidden_gradient``."""
    sums = torch.zeros(_num_parts(gradient), gradient.shape[1])
    packed, zero, scale = codes
    kernels.hidden_gradient(
        _flat(gradient), gradient.shape[1], _words_of(packed), _bits_of(zero), _bits_of(scale), bits, factors.numpy(),
        _flat(out), sums.numpy(),
    )  # fmt: skip
    return sums.sum(0)


def merge_moments_(mean: Tensor, squares: Tensor, chunk: Tensor, seen: int) -> None:
    """Carry out ``falcon_gnn::merge_moments_``."""
    partial = torch.empty(_num_parts(chunk), 2, chunk.shape[1])
    kernels.merge_moments(chunk.numpy(), partial.numpy(), mean.numpy(), squares.numpy(), seen)


def _activate(
    x: Tensor,
    out: Tensor,
    mask: Tensor | None,
    codes: Codes | None,
    *,
    norm: Sequence[Tensor] = (),
    mask_seed: Tensor | None = None,
    code_seed: Tensor | None = None,
    dropout: float = 0.0,
    factor: float = 1.0,
    bits: int = 0,
    first: int = 0,
    per_seed: int | None = None,
    keeps: bool = False,
    writes: bool = True,
) -> None:
    """Call the kernel of all operators on a block's output."""
    seed = mask_seed if mask_seed is not None else code_seed
    if per_seed is None:
        per_seed = 1 if seed is None else seed_groups(seed, x.shape)
    octets, zero, scale = codes if codes is not None and bits else [_NOTHING] * 3
    kernels.activate(
        _flat(x), _flat(out), first, _stacked(norm, 4), _seeds(mask_seed), _seeds(code_seed), per_seed,
        keep_numerator(dropout), np.float32(factor), mask is not None, keeps, writes, bits,
        _words_of(_NOTHING if mask is None else mask), _words_of(octets), _bits_of(zero), _bits_of(scale),
    )  # fmt: skip


def _by_parts(x: Tensor, work: Callable[[Tensor, slice], None], *, reads: bool = True, writes: bool = True) -> None:
    """Let a function work on a contiguous tensor: flat float32 values, and the groups that they are."""
    flat = x.view(-1)
    if x.dtype == torch.float32:
        work(flat, slice(0, -(-len(flat) // GROUP_SIZE)))
        return
    for start in range(0, len(flat), BLOCK_VALUES):
        part = flat[start : start + BLOCK_VALUES]
        values = part.float() if reads else torch.empty(part.shape)
        work(values, slice(start // GROUP_SIZE, -(-(start + len(part)) // GROUP_SIZE)))
        if writes:
            part.copy_(values)
        del values


def _num_parts(matrix: Tensor) -> int:
    return -(-matrix.shape[0] // SUM_ROWS)


def _stacked(rows: Sequence[Tensor], count: int) -> NDArray[np.float32]:
    """Return parameters as rows of a matrix, or one of no columns."""
    if not rows:
        return _NO_NORM[:count]
    stacked: NDArray[np.float32] = torch.stack([row.detach() for row in rows]).numpy()
    return stacked


def _flat(x: Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = x.detach().view(-1).numpy()
    return values


def _words_of(octets: Tensor) -> NDArray[np.uint64]:
    """Return packed bytes, eight at a time."""
    return octets.numpy().view(np.uint64)


def _bits_of(x: Tensor) -> NDArray[np.uint16]:
    """Return the bits of bfloat16 values."""
    bits: NDArray[np.uint16] = x.view(torch.uint16).numpy()
    return bits


def _seeds(seed: Tensor | None) -> NDArray[np.int64]:
    return _NO_SEEDS if seed is None else seed.view(-1).numpy()
