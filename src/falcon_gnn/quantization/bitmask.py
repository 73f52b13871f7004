"""Masks of one bit per value: bool tensors packed, and ReLU and dropout with a common mask.

The bits of a group of 256 values are laid out in eight planes, as the codes of the codec are: byte j holds the j-th
value of every plane. A last group that is not full is filled up with zeros. Dropout may have a seed for each 256 rows:
a matrix and its pieces of so many rows then have the same bits.
"""

from collections.abc import Iterator, Sequence
from math import prod

import torch
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.codec import GROUP_SIZE, block_values, converted_bytes, pack_planes, unpack_planes
from falcon_gnn.quantization.kernel_choice import device_type, expects_kernels, run_kernels
from falcon_gnn.quantization.philox import halves_bytes, value_halves
from falcon_gnn.quantization.temporaries import declares_temporaries

# Dropout probabilities are kept as multiples of 2^-16; the scale uses the kept value, so the mean stays exact.
_PROBABILITY_BITS = 16


def pack_bits(mask: Tensor) -> Tensor:
    """Return a bool mask at one bit per value.

    Args:
        mask: bool tensor of any shape.

    Returns:
        uint8, shape ``(ceil(mask.numel() / 256) * 32,)``.

    Raises:
        OptionError: If ``mask`` is not a bool tensor.
    """
    if mask.dtype != torch.bool:
        msg = f"mask must be a bool tensor, got {mask.dtype}; compare it with zero first"
        raise OptionError(msg)
    packed: Tensor = torch.ops.falcon_gnn.pack_bits(mask)
    return packed


def unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the bool mask that :func:`pack_bits` packed.

    Args:
        packed: The packed bits.
        shape: Shape of the mask.
    """
    mask: Tensor = torch.ops.falcon_gnn.unpack_bits(packed, shape)
    return mask


def keep_factor(dropout: float) -> float:
    """Return 1 / (1 − p) for the dropout probability as it is drawn; 0 if nothing is kept."""
    kept = keep_numerator(dropout)
    return 0.0 if kept == 0 else (1 << _PROBABILITY_BITS) / kept


def keep_numerator(dropout: float) -> int:
    """Return 2^16 (1 − p), whole, for the dropout probability as it is drawn."""
    return round((1.0 - dropout) * (1 << _PROBABILITY_BITS))


def rounded_factor(factor: float, x: Tensor) -> float:
    """Return a factor as the type of a tensor holds it."""
    return float(torch.tensor(factor, dtype=x.dtype))


@torch.library.custom_op("falcon_gnn::pack_bits", mutates_args=())
def _pack_bits(mask: Tensor) -> Tensor:
    packed = empty_bits(mask.numel(), mask.device)
    flat = mask.reshape(-1).view(torch.uint8)
    for values, octets in _blocks(mask.numel(), mask.device):
        _pack_block(flat[values], packed[octets])
    return packed


@_pack_bits.register_fake
def _(mask: Tensor) -> Tensor:
    return empty_bits(mask.numel(), mask.device)


run_kernels(_pack_bits, "pack_bits")


@declares_temporaries("falcon_gnn::pack_bits")
def _(mask: Tensor) -> int:
    return (0 if mask.is_contiguous() else mask.nbytes) + _block_values(mask, mask.numel())


@torch.library.custom_op("falcon_gnn::unpack_bits", mutates_args=())
def _unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    mask = torch.empty(shape, dtype=torch.bool, device=packed.device)
    flat = mask.view(-1).view(torch.uint8)
    for values, octets in _blocks(mask.numel(), mask.device):
        target = flat[values]
        target.copy_(_unpack_block(packed[octets])[: len(target)])
    return mask


@_unpack_bits.register_fake
def _(packed: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=torch.bool, device=packed.device)


run_kernels(_unpack_bits, "unpack_bits")


@declares_temporaries("falcon_gnn::unpack_bits")
def _(packed: Tensor, shape: Sequence[int]) -> int:
    return _block_values(packed, prod(shape))


@torch.library.custom_op("falcon_gnn::dropout_bits", mutates_args=())
def dropout_bits(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    """Return a packed mask in which each value of ``like`` is kept with probability 1 − ``dropout``.

    Args:
        seed: One seed, or one for every 256 rows of a matrix.
        like: The values.
        dropout: Probability of dropping one.
    """
    packed = empty_bits(like.numel(), like.device)
    for values, octets in _blocks(like.numel(), like.device):
        packed[octets] = _draw_bits(seed, values, octets, like, dropout)
    return packed


@dropout_bits.register_fake
def _(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    return empty_bits(like.numel(), like.device)


run_kernels(dropout_bits, "dropout_bits")


@declares_temporaries("falcon_gnn::dropout_bits")
def _(seed: Tensor, like: Tensor, dropout: float) -> int:
    return halves_bytes(_block_values(like, like.numel()))


@torch.library.custom_op("falcon_gnn::relu_dropout_", mutates_args=("x",))
def relu_dropout_(x: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    """Apply ReLU and dropout to ``x`` in place; return one packed bit per value: positive and kept.

    Args:
        x: Contiguous floating tensor.
        seed: Seed of the dropout mask, or one for every 256 rows of a matrix; None for no dropout.
        dropout: Probability of dropping a value.
    """
    packed = empty_bits(x.numel(), x.device)
    flat = x.view(-1)
    for values, octets in _blocks(x.numel(), x.device):
        block, bits = flat[values].relu_(), packed[octets]
        scratch = torch.empty_like(block)
        _pack_block(_is_positive(block, scratch), bits)
        if seed is None:
            continue
        bits.bitwise_and_(_draw_bits(seed, values, octets, x, dropout))
        _write_multiplier(bits, keep_factor(dropout), scratch)
        block.mul_(scratch)
        del scratch
    return packed


@relu_dropout_.register_fake
def _(x: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    return empty_bits(x.numel(), x.device)


run_kernels(relu_dropout_, "relu_dropout_")


@declares_temporaries("falcon_gnn::relu_dropout_")
def _(x: Tensor, seed: Tensor | None, dropout: float) -> int:
    block = _block_values(x, x.numel())
    return block * (2 + max(4, x.element_size())) + (0 if seed is None else halves_bytes(block)) + converted_bytes(x)


@torch.library.custom_op("falcon_gnn::apply_mask_", mutates_args=("x",))
def apply_mask_(x: Tensor, packed: Tensor, factor: float) -> None:
    """Multiply a contiguous ``x`` in place with ``factor`` where a bit is set and with 0 elsewhere."""
    flat = x.view(-1)
    for values, octets in _blocks(x.numel(), x.device):
        _apply_block(flat[values], packed[octets], factor)


@apply_mask_.register_fake
def _(x: Tensor, packed: Tensor, factor: float) -> None:
    return None


run_kernels(apply_mask_, "apply_mask_")


@declares_temporaries("falcon_gnn::apply_mask_")
def _(x: Tensor, packed: Tensor, factor: float) -> int:
    return _block_values(x, x.numel()) * (1 + x.element_size()) + converted_bytes(x)


def empty_bits(num_values: int, device: torch.device) -> Tensor:
    """Return what the mask of so many values is written to: a bit per value, in whole groups of 256."""
    return torch.empty(-(-num_values // GROUP_SIZE) * (GROUP_SIZE // 8), dtype=torch.uint8, device=device)


def _blocks(num_values: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Yield each block's range of values and its range of bytes."""
    full, block = num_values // GROUP_SIZE * GROUP_SIZE, block_values(device)
    for start in range(0, full, block):
        stop = min(start + block, full)
        yield slice(start, stop), slice(start // 8, stop // 8)
    if full < num_values:
        yield slice(full, num_values), slice(full // 8, (full + GROUP_SIZE) // 8)


def _block_values(x: Tensor, num_values: int) -> int:
    """Return about how many values the largest block of a mask holds; 0 where a kernel does without blocks."""
    if expects_kernels(x):
        return 0
    return min(num_values + GROUP_SIZE, block_values(torch.device(device_type(x))))


def _draw_bits(seed: Tensor, values: slice, octets: slice, like: Tensor, dropout: float) -> Tensor:
    """Return a block's packed bits, each 1 with probability 1 − ``dropout``."""
    place = slice(values.start, values.start + 8 * (octets.stop - octets.start))
    kept = value_halves(seed, place, like.shape, like.device) < keep_numerator(dropout)
    packed = torch.empty(octets.stop - octets.start, dtype=torch.uint8, device=kept.device)
    _pack_block(kept.view(torch.uint8), packed)
    return packed


def _is_positive(x: Tensor, scratch: Tensor) -> Tensor:
    """Return 1 where a ReLU's output is positive, else 0, uint8; ``scratch`` is like ``x``."""
    if x.dtype != torch.float32:
        return (x > 0).view(torch.uint8)
    # A non-negative float orders as its bits do, and int32 arithmetic is five times as fast as a comparison.
    return torch.clamp(x.view(torch.int32), 0, 1, out=scratch.view(torch.int32)).to(torch.uint8)


def _pack_block(values: Tensor, packed: Tensor) -> None:
    if len(values) % GROUP_SIZE:
        values = torch.cat([values, values.new_zeros(GROUP_SIZE - len(values))])
    pack_planes(values.view(-1, GROUP_SIZE), 1, packed)


def _unpack_block(packed: Tensor) -> Tensor:
    return unpack_planes(packed, 1).view(-1)


def _write_multiplier(packed: Tensor, factor: float, target: Tensor) -> None:
    """Write ``factor`` where a bit is set and 0 elsewhere to a flat floating tensor."""
    target.copy_(_unpack_block(packed)[: len(target)]).mul_(factor)


def _apply_block(values: Tensor, packed: Tensor, factor: float) -> None:
    multiplier = torch.empty_like(values)
    _write_multiplier(packed, factor, multiplier)
    values.mul_(multiplier)
