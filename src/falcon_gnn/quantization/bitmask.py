"""Masks of one bit per value: bool tensors packed, and ReLU and dropout with a common mask.

The bits of a block of 524,288 values are laid out in eight planes, as the codes of the codec are: byte j holds the j-th
value of every plane. Values beyond the last multiple of eight are a block of their own, filled up with zeros.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.codec import (
    BLOCK_VALUES,
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
    for values, octets in _blocks(len(flat)):
        _pack_block(flat[values], packed[octets])
    return packed


@_pack_bits.register_fake
def _(mask: Tensor) -> Tensor:
    return _empty_bits(mask.numel(), mask.device)


@declares_temporaries("falcon_gnn::pack_bits")
def _(mask: Tensor) -> int:
    return (0 if mask.is_contiguous() else mask.nbytes) + min(mask.numel() + 8, BLOCK_VALUES)


@torch.library.custom_op("falcon_gnn::unpack_bits", mutates_args=())
def _unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    mask = torch.empty(shape, dtype=torch.bool, device=packed.device)
    flat = mask.view(-1).view(torch.uint8)
    for values, octets in _blocks(len(flat)):
        target = flat[values]
        target.copy_(_unpack_block(packed[octets])[: len(target)])
    return mask


@_unpack_bits.register_fake
def _(packed: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=torch.bool, device=packed.device)


@declares_temporaries("falcon_gnn::unpack_bits")
def _(packed: Tensor, shape: Sequence[int]) -> int:
    return min(8 * packed.numel(), BLOCK_VALUES)


@torch.library.custom_op("falcon_gnn::dropout_bits", mutates_args=())
def dropout_bits(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    """Return a packed mask in which each value of ``like`` is kept with probability 1 − ``dropout``."""
    packed = _empty_bits(like.numel(), like.device)
    generator = seeded_generator(seed, like.device)
    for _, octets in _blocks(like.numel()):
        packed[octets] = _bernoulli_bits(octets.stop - octets.start, dropout, generator)
    return packed


@dropout_bits.register_fake
def _(seed: Tensor, like: Tensor, dropout: float) -> Tensor:
    return _empty_bits(like.numel(), like.device)


@declares_temporaries("falcon_gnn::dropout_bits")
def _(seed: Tensor, like: Tensor, dropout: float) -> int:
    return _bernoulli_bytes(like.numel())


@torch.library.custom_op("falcon_gnn::relu_dropout_", mutates_args=("x",))
def relu_dropout_(x: Tensor, seed: Tensor | None, dropout: float) -> Tensor:
    """Apply ReLU and dropout to ``x`` in place; return one packed bit per value: positive and kept.

    Args:
        x: Contiguous floating tensor.
        seed: Seed of the dropout mask; None for no dropout.
        dropout: Probability of dropping a value.
    """
    packed = _empty_bits(x.numel(), x.device)
    generator = None if seed is None else seeded_generator(seed, x.device)
    flat = x.view(-1)
    for values, octets in _blocks(len(flat)):
        block, bits = flat[values].relu_(), packed[octets]
        scratch = torch.empty_like(block)
        _pack_block(_is_positive(block, scratch), bits)
        if generator is not None:
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
    block = min(x.numel() + 8, BLOCK_VALUES)
    return block * (2 + max(4, x.element_size())) + _bernoulli_bytes(x.numel())


@torch.library.custom_op("falcon_gnn::mask_multiplier", mutates_args=("out",))
def mask_multiplier(packed: Tensor, factor: float, out: Tensor) -> None:
    """Write ``factor`` where a bit is set and 0 elsewhere to a contiguous floating tensor."""
    flat = out.view(-1)
    for values, octets in _blocks(len(flat)):
        _write_multiplier(packed[octets], factor, flat[values])


@mask_multiplier.register_fake
def _(packed: Tensor, factor: float, out: Tensor) -> None:
    return None


@declares_temporaries("falcon_gnn::mask_multiplier")
def _(packed: Tensor, factor: float, out: Tensor) -> int:
    return min(8 * packed.numel(), BLOCK_VALUES)


@torch.library.custom_op("falcon_gnn::apply_mask_", mutates_args=("x",))
def apply_mask_(x: Tensor, packed: Tensor, factor: float) -> None:
    """Multiply a contiguous ``x`` in place with ``factor`` where a bit is set and with 0 elsewhere."""
    flat = x.view(-1)
    for values, octets in _blocks(len(flat)):
        _apply_block(flat[values], packed[octets], factor)


@apply_mask_.register_fake
def _(x: Tensor, packed: Tensor, factor: float) -> None:
    return None


@declares_temporaries("falcon_gnn::apply_mask_")
def _(x: Tensor, packed: Tensor, factor: float) -> int:
    return min(8 * packed.numel(), BLOCK_VALUES) * (1 + x.element_size())


def _empty_bits(num_values: int, device: torch.device) -> Tensor:
    return torch.empty((num_values + 7) // 8, dtype=torch.uint8, device=device)


def _blocks(num_values: int) -> Iterator[tuple[slice, slice]]:
    """Yield each block's range of values and its range of bytes."""
    full = num_values // 8 * 8
    for start in range(0, full, BLOCK_VALUES):
        stop = min(start + BLOCK_VALUES, full)
        yield slice(start, stop), slice(start // 8, stop // 8)
    if full < num_values:
        yield slice(full, num_values), slice(full // 8, full // 8 + 1)


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
    return 2 * (min(num_values + 64, BLOCK_VALUES) // 8)


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
