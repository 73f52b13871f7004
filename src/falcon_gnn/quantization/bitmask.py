"""Masks of one bit per value: bool tensors packed, and ReLU and dropout with a common mask.

The bits of a block of at most 524,288 values are laid out in eight planes, as the codes of the codec are: byte j holds
the j-th value of every plane. Values beyond the last multiple of eight are a block of their own, filled up with zeros.
A matrix is cut at every 256th row first, and dropout may have a seed for each such part: a matrix and its pieces of so
many rows then have the same bits.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod

import torch
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.codec import (
    BLOCK_VALUES,
    SEED_ROWS,
    pack_planes,
    plane_shifts,
    random_bytes,
    seeded_generator,
    unpack_planes,
)
from falcon_gnn.quantization.temporaries import declares_temporaries

# Dropout probabilities are kept as multiples of 2^-16; the scale uses the kept value, so the mean stays exact.
_PROBABILITY_BITS = 16


def pack_bits(mask: Tensor) -> Tensor:
    """Return a bool mask at one bit per value.

    Args:
        mask: bool tensor of any shape.

    Returns:
        uint8, shape ``(ceil(mask.numel() / 8),)``.

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
    kept = _keep_numerator(dropout)
    return 0.0 if kept == 0 else (1 << _PROBABILITY_BITS) / kept


def _keep_numerator(dropout: float) -> int:
    return round((1.0 - dropout) * (1 << _PROBABILITY_BITS))


@torch.library.custom_op("falcon_gnn::pack_bits", mutates_args=())
def _pack_bits(mask: Tensor) -> Tensor:
    packed = _empty_bits(mask.numel(), mask.device)
    flat = mask.reshape(-1).view(torch.uint8)
    for values, octets in _blocks(mask.shape):
        _pack_block(flat[values], packed[octets])
    return packed


@_pack_bits.register_fake
def _(mask: Tensor) -> Tensor:
    return _empty_bits(mask.numel(), mask.device)


@declares_temporaries("falcon_gnn::pack_bits")
def _(mask: Tensor) -> int:
    return (0 if mask.is_contiguous() else mask.nbytes) + _block_values(mask.shape)


@torch.library.custom_op("falcon_gnn::unpack_bits", mutates_args=())
def _unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    mask = torch.empty(shape, dtype=torch.bool, device=packed.device)
    flat = mask.view(-1).view(torch.uint8)
    for values, octets in _blocks(mask.shape):
        target = flat[values]
        target.copy_(_unpack_block(packed[octets])[: len(target)])
    return mask


@_unpack_bits.register_fake
def _(packed: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=torch.bool, device=packed.device)


@declares_temporaries("falcon_gnn::unpack_bits")
def _(packed: Tensor, shape: Sequence[int]) -> int:
    return _block_values(shape)


@torch.library.custom_op("falcon_gnn::dropout_bits", mutates_args=())
def dropout_bits(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    """Return a packed mask in which each value of ``like`` is kept with probability 1 − ``dropout``.

    Args:
        seed: One seed, or one for every 256 rows of a matrix.
        like: The values.
        dropout: Probability of dropping one.
    """
    packed = _empty_bits(like.numel(), like.device)
    for _, octets, generator in _drawn_blocks(like, seed):
        packed[octets] = _bernoulli_bits(octets.stop - octets.start, dropout, generator)
    return packed


@dropout_bits.register_fake
def _(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    return _empty_bits(like.numel(), like.device)


@declares_temporaries("falcon_gnn::dropout_bits")
def _(seed: Tensor, like: Tensor, dropout: float) -> int:
    return _bernoulli_bytes(_block_values(like.shape))


@torch.library.custom_op("falcon_gnn::relu_dropout_", mutates_args=("x",))
def relu_dropout_(x: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    """Apply ReLU and dropout to ``x`` in place; return one packed bit per value: positive and kept.

    Args:
        x: Contiguous floating tensor.
        seed: Seed of the dropout mask, or one for every 256 rows of a matrix; None for no dropout.
        dropout: Probability of dropping a value.
    """
    packed = _empty_bits(x.numel(), x.device)
    flat = x.view(-1)
    if seed is None:
        for values, octets in _blocks(x.shape):
            block = flat[values].relu_()
            _pack_block(_is_positive(block, torch.empty_like(block)), packed[octets])
        return packed
    for values, octets, generator in _drawn_blocks(x, seed):
        block, bits = flat[values].relu_(), packed[octets]
        scratch = torch.empty_like(block)
        _pack_block(_is_positive(block, scratch), bits)
        bits.bitwise_and_(_bernoulli_bits(len(bits), dropout, generator))
        _write_multiplier(bits, keep_factor(dropout), scratch)
        block.mul_(scratch)
        del scratch
    return packed


@relu_dropout_.register_fake
def _(x: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    return _empty_bits(x.numel(), x.device)


@declares_temporaries("falcon_gnn::relu_dropout_")
def _(x: Tensor, seed: Tensor | None, dropout: float) -> int:
    block = _block_values(x.shape)
    return block * (2 + max(4, x.element_size())) + _bernoulli_bytes(block)


@torch.library.custom_op("falcon_gnn::mask_multiplier", mutates_args=("out",))
def mask_multiplier(packed: Tensor, factor: float, out: Tensor) -> None:
    """Write ``factor`` where a bit is set and 0 elsewhere to a contiguous floating tensor."""
    flat = out.view(-1)
    for values, octets in _blocks(out.shape):
        _write_multiplier(packed[octets], factor, flat[values])


@mask_multiplier.register_fake
def _(packed: Tensor, factor: float, out: Tensor) -> None:
    return None


@declares_temporaries("falcon_gnn::mask_multiplier")
def _(packed: Tensor, factor: float, out: Tensor) -> int:
    return _block_values(out.shape)


@torch.library.custom_op("falcon_gnn::apply_mask_", mutates_args=("x",))
def apply_mask_(x: Tensor, packed: Tensor, factor: float) -> None:
    """Multiply a contiguous ``x`` in place with ``factor`` where a bit is set and with 0 elsewhere."""
    flat = x.view(-1)
    for values, octets in _blocks(x.shape):
        _apply_block(flat[values], packed[octets], factor)


@apply_mask_.register_fake
def _(x: Tensor, packed: Tensor, factor: float) -> None:
    return None


@declares_temporaries("falcon_gnn::apply_mask_")
def _(x: Tensor, packed: Tensor, factor: float) -> int:
    return _block_values(x.shape) * (1 + x.element_size())


def _empty_bits(num_values: int, device: torch.device) -> Tensor:
    return torch.empty((num_values + 7) // 8, dtype=torch.uint8, device=device)


def _blocks(shape: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Yield each block's range of values and its range of bytes."""
    num_values = prod(shape)
    part = SEED_ROWS * shape[1] if len(shape) == 2 else num_values
    for first in range(0, num_values, max(part, 1)):
        last = min(first + part, num_values)
        full = first + (last - first) // 8 * 8
        for start in range(first, full, BLOCK_VALUES):
            stop = min(start + BLOCK_VALUES, full)
            yield slice(start, stop), slice(start // 8, stop // 8)
        if full < last:
            yield slice(full, last), slice(full // 8, full // 8 + 1)


def _block_values(shape: Sequence[int]) -> int:
    """Return about how many values the largest block holds."""
    part = SEED_ROWS * shape[1] if len(shape) == 2 else BLOCK_VALUES
    return min(prod(shape) + 8, part, BLOCK_VALUES)


def _drawn_blocks(x: Tensor, seed: Tensor) -> Iterator[tuple[slice, slice, torch.Generator]]:
    """Yield the same with the generator to draw from: one for all of ``x``, or one for every 256 rows of a matrix."""
    generator, current = seeded_generator(seed.view(-1)[0], x.device), 0
    for values, octets in _blocks(x.shape):
        part = values.start // (SEED_ROWS * x.shape[1]) if seed.numel() > 1 else 0
        if part != current:
            generator, current = seeded_generator(seed[part], x.device), part
        yield values, octets, generator


def _is_positive(x: Tensor, scratch: Tensor) -> Tensor:
    """Return 1 where a ReLU's output is positive, else 0, uint8; ``scratch`` is like ``x``."""
    if x.dtype != torch.float32:
        return (x > 0).view(torch.uint8)
    # A non-negative float orders as its bits do, and int32 arithmetic is five times as fast as a comparison.
    return torch.clamp(x.view(torch.int32), 0, 1, out=scratch.view(torch.int32)).to(torch.uint8)


def _pack_block(values: Tensor, packed: Tensor) -> None:
    if len(values) % 8:
        values = torch.cat([values, values.new_zeros(8 - len(values) % 8)])
    pack_planes(values, 1, packed)


def _unpack_block(packed: Tensor) -> Tensor:
    return unpack_planes(packed, 1).view(-1)


def _write_multiplier(packed: Tensor, factor: float, target: Tensor) -> None:
    """Write ``factor`` where a bit is set and 0 elsewhere to a flat floating tensor."""
    bit_values = _bit_values(packed.device)
    single_bits = torch.bitwise_and(packed, bit_values)
    factors = factor / bit_values.to(target.dtype)
    if len(target) == single_bits.numel():
        target.view(8, -1).copy_(single_bits).mul_(factors)
    else:
        target.copy_(single_bits.to(target.dtype).mul_(factors).view(-1)[: len(target)])


@cache
def _bit_values(device: torch.device) -> Tensor:
    bit_values: Tensor = 1 << plane_shifts(1, device)
    return bit_values


def _apply_block(values: Tensor, packed: Tensor, factor: float) -> None:
    multiplier = torch.empty_like(values)
    _write_multiplier(packed, factor, multiplier)
    values.mul_(multiplier)


def _bernoulli_bytes(num_values: int) -> int:
    return 2 * (num_values + 64) // 8


def _bernoulli_bits(num_bytes: int, dropout: float, generator: torch.Generator) -> Tensor:
    """Return packed independent bits that are 1 with probability 1 − dropout, from fair bits alone.

    Writing the probability as binary digits, lowest first: if ``kept`` is right for the digits so far, then ``fair |
    kept`` is right with a digit 1 put before them and ``fair & kept`` with a digit 0. Trailing zeros need no draw, so
    a dropout of 0.5 takes one fair bit per value.
    """
    numerator = _keep_numerator(dropout)
    if numerator in (0, 1 << _PROBABILITY_BITS):
        fill = 0 if numerator == 0 else 255
        return torch.full((num_bytes,), fill, dtype=torch.uint8, device=generator.device)
    digits = f"{numerator:0{_PROBABILITY_BITS}b}".rstrip("0")
    kept = random_bytes(num_bytes, generator)
    for digit in reversed(digits[:-1]):
        fair = random_bytes(num_bytes, generator)
        kept = kept.bitwise_or_(fair) if digit == "1" else kept.bitwise_and_(fair)
    return kept
