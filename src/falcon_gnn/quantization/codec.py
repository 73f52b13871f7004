"""Quantisation of activations to b bits, group by group, and back (Layer Compression Stage of the paper).

With Z the minimum and R the range of a group of 256 values and B = 2^b − 1, a value h is kept as the integer
``quant(h) = (h − Z) / R · B`` and comes back as ``dequant(h) = Z + quant(h) · R / B``. Three points go beyond the
formula. The fraction is rounded up with a probability equal to itself, to 2^-16, so that the mean over many draws is h
(or to nearest, on request). Z and the step R / B are kept in bfloat16, Z rounded down and the step up, because a range
that shrank in rounding would clip its end values and shift the mean. A group that holds a NaN or an infinity comes back
as NaN: loud, not clipped.

The meaning is written once, in plain torch, and registered as the operators ``falcon_gnn::quantize`` and
``falcon_gnn::dequantize``, with kernels behind the same names: Numba's on the CPU, Triton's on CUDA. Their bytes and
draws are the same. Plain torch works through blocks of values, so that its temporaries stay small however large the
tensor is.

Layout of the packed bytes: the values of a group are cut into 8 / b equal planes, and byte j holds the j-th value of
every plane, plane 0 in the lowest bits. A last group that is not full is filled up with copies of the last value.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.kernel_choice import device_type, expects_kernels, run_kernels
from falcon_gnn.quantization.philox import halves_bytes, value_halves
from falcon_gnn.quantization.temporaries import declares_temporaries

BLOCK_VALUES = 1 << 17
DEVICE_BLOCK_VALUES = 1 << 22
GROUP_SIZE = 256
SEED_ROWS = 256
"""Rows of a matrix that share a seed where random draws must not depend on the piece that is worked on."""
# Smallest normal float32: a smaller step would have no finite reciprocal. Exact in bfloat16.
_SMALLEST_STEP = torch.finfo(torch.float32).tiny
_UPPER_HALF = -0x10000
# What 16 random bits are multiplied with: a value that is exactly a code, such as a zero, always gets it.
_UNIT = 2.0**-16

Rounding = Literal["stochastic", "nearest"]


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A tensor kept at b bits per value.

    Attributes:
        packed: Codes, ``8 / bits`` to a byte, uint8, shape ``(num_groups * group_size * bits / 8,)``.
        zero: Zero point Z of each group, bfloat16, shape ``(num_groups,)``.
        scale: Step R / B of each group, bfloat16, shape ``(num_groups,)``.
        shape: Shape of the tensor.
        dtype: Floating type in which it comes back.
        bits: b, one of 1, 2, 4, 8.
        group_size: Values that share a zero point and a step.
    """

    packed: Tensor
    zero: Tensor
    scale: Tensor
    shape: tuple[int, ...]
    dtype: torch.dtype
    bits: int
    group_size: int = GROUP_SIZE

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, zero points and steps."""
        return self.packed, self.zero, self.scale

    @property
    def nbytes(self) -> int:
        """Bytes kept: codes, zero points and steps."""
        return self.packed.nbytes + self.zero.nbytes + self.scale.nbytes


def quantize(
    x: Tensor,
    bits: int = 2,
    group_size: int = GROUP_SIZE,
    rounding: Rounding = "stochastic",
    seed: Tensor | None = None,
) -> QuantizedTensor:
    """Return a tensor at ``bits`` bits per value (plus 4 bytes per group).

    Args:
        x: Floating tensor of any shape; values are grouped in row-major order.
        bits: b, one of 1, 2, 4, 8.
        group_size: Values per group, a positive multiple of 8.
        rounding: ``"stochastic"`` (unbiased) or ``"nearest"``.
        seed: int64 tensor, best on the CPU or where ``x`` is, which fixes the draws: one value, or for a matrix one for
            every 256 rows; None takes one from torch's default generator.

    Returns:
        The codes with all that :func:`dequantize` needs; not part of the autograd graph.

    Raises:
        OptionError: If ``bits``, ``group_size`` or ``rounding`` is not one of the allowed values.
        OptionError: If ``x`` is not floating point.
    """
    check_bits(bits)
    if group_size < 8 or group_size % 8:
        msg = f"group_size must be a positive multiple of 8, got {group_size}; 256 is the usual choice"
        raise OptionError(msg)
    if rounding not in ("stochastic", "nearest"):
        msg = f"rounding must be 'stochastic' or 'nearest', got {rounding!r}"
        raise OptionError(msg)
    if not x.is_floating_point():
        msg = f"x must be a floating tensor, got {x.dtype}; convert it with x.float(), or use pack_bits for a bool mask"
        raise OptionError(msg)
    if rounding == "nearest":
        seed = None
    elif seed is None:
        seed = draw_seeds()
    packed, zero, scale = torch.ops.falcon_gnn.quantize(x.detach(), seed, bits, group_size)
    return QuantizedTensor(packed, zero, scale, tuple(x.shape), x.dtype, bits, group_size)


def dequantize(quantized: QuantizedTensor, out: Tensor | None = None) -> Tensor:
    """Return the tensor that :func:`quantize` kept, each value within one step of what it was.

    Args:
        quantized: The kept tensor.
        out: Contiguous floating tensor of the kept shape to write to; None makes a new one of the kept dtype.

    Returns:
        The tensor written to.
    """
    q = quantized
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.packed.device)
    torch.ops.falcon_gnn.dequantize(q.packed, q.zero, q.scale, q.bits, q.group_size, out)
    return out


def check_bits(bits: object) -> None:
    """Refuse a number of bits that does not divide a byte.

    Raises:
        OptionError: If ``bits`` is not 1, 2, 4 or 8.
    """
    if isinstance(bits, bool) or not isinstance(bits, Integral) or bits not in (1, 2, 4, 8):
        msg = f"bits must be 1, 2, 4 or 8, got {bits!r}; take bits=None for no compression"
        raise OptionError(msg)


def draw_seeds(*shape: int) -> Tensor:
    """Return seeds for stochastic operators, drawn from torch's default CPU generator.

    They are a CPU tensor for every device: reading one never waits for an accelerator, fake tensors can stand for
    them, and ``torch.manual_seed`` decides all of them.

    Args:
        *shape: Shape of the result; none for a single seed.
    """
    return torch.randint(1 << 62, shape, dtype=torch.int64, device="cpu")


@torch.library.custom_op("falcon_gnn::quantize", mutates_args=())
def _quantize(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    packed, zero, scale = empty_codes(x, bits, group_size)
    flat = x.reshape(-1)
    for groups in _blocks(len(flat), group_size, block_values(x.device)):
        values = flat[groups.start * group_size : groups.stop * group_size]
        octets = packed[byte_range(groups, bits, group_size)]
        start = groups.start * group_size
        place = slice(start, start + (groups.stop - groups.start) * group_size)
        noise = None if seed is None else value_halves(seed, place, x.shape, x.device)
        _encode_block(_grouped(values, group_size), octets, zero[groups], scale[groups], bits, noise)
    return packed, zero, scale


@_quantize.register_fake
def _(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    return empty_codes(x, bits, group_size)


run_kernels(_quantize, "quantize", lambda x, seed, bits, group_size: group_size == GROUP_SIZE)


@declares_temporaries("falcon_gnn::quantize")
def _(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> int:
    whole_copy = 0 if x.is_contiguous() else x.nbytes
    if _runs_kernels(x, group_size):
        return whole_copy + converted_bytes(x)
    # Per value: the codes in float32, four bytes for int32 codes, one for the code and, once drawn, four for its noise.
    block = min(_padded(x.numel(), group_size), _block_values(device_type(x)))
    float32_copy = 0 if x.dtype == torch.float32 else 4 * block
    held = 9 * block if seed is None else max(halves_bytes(block), 13 * block)
    return whole_copy + float32_copy + held + 32 * (block // group_size + 1)


@torch.library.custom_op("falcon_gnn::dequantize", mutates_args=("out",))
def _dequantize(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, out: Tensor) -> None:
    flat = out.view(-1)
    for groups in _blocks(len(flat), group_size, block_values(out.device)):
        values = flat[groups.start * group_size : groups.stop * group_size]
        octets = packed[byte_range(groups, bits, group_size)]
        _decode_block(octets, zero[groups], scale[groups], bits, group_size, values)


@_dequantize.register_fake
def _(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, out: Tensor) -> None:
    return None


run_kernels(_dequantize, "dequantize", lambda packed, zero, scale, bits, group_size, out: group_size == GROUP_SIZE)


@declares_temporaries("falcon_gnn::dequantize")
def _(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, out: Tensor) -> int:
    if _runs_kernels(out, group_size):
        return converted_bytes(out)
    block = min(_padded(out.numel(), group_size), _block_values(device_type(out)))
    return (1 if out.dtype == torch.float32 else 5) * block + 8 * (block // group_size + 1)


def block_values(device: torch.device) -> int:
    """Return how many values plain torch works on at a time on a device."""
    return _block_values(device.type)


def _block_values(device_name: str) -> int:
    return BLOCK_VALUES if device_name == "cpu" else DEVICE_BLOCK_VALUES


def converted_bytes(x: Tensor) -> int:
    """Return the bytes of the part of a tensor that the CPU's kernels work on at a time where it is not float32."""
    is_half = device_type(x) == "cpu" and x.dtype in (torch.float16, torch.bfloat16)
    return 4 * min(x.numel(), BLOCK_VALUES) if is_half else 0


def _runs_kernels(x: Tensor, group_size: int) -> bool:
    return group_size == GROUP_SIZE and expects_kernels(x)


def _padded(count: int, multiple: int) -> int:
    return (count + multiple - 1) // multiple * multiple


def empty_codes(x: Tensor, bits: int, group_size: int = GROUP_SIZE) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the codes, zero points and steps of a tensor are written to."""
    padded = _padded(x.numel(), group_size)
    packed = torch.empty(padded * bits // 8, dtype=torch.uint8, device=x.device)
    zero = torch.empty(padded // group_size, dtype=torch.bfloat16, device=x.device)
    return packed, zero, torch.empty_like(zero)


def _blocks(num_values: int, group_size: int, block: int) -> Iterator[slice]:
    """Yield the ranges of groups that are worked on together."""
    full, step = num_values // group_size, max(1, block // group_size)
    for start in range(0, full, step):
        yield slice(start, min(start + step, full))
    if num_values % group_size:
        yield slice(full, full + 1)


def byte_range(groups: slice, bits: int, group_size: int = GROUP_SIZE) -> slice:
    """Return the bytes in which so many bits of every value of some groups are packed."""
    return slice(groups.start * group_size * bits // 8, groups.stop * group_size * bits // 8)


def _grouped(flat: Tensor, group_size: int) -> Tensor:
    """Return the values as float32 rows of one group each, the last one filled up with copies of the last value."""
    if flat.dtype == torch.float32 and len(flat) % group_size == 0:
        return flat.view(-1, group_size)
    padded = flat.new_empty(_padded(len(flat), group_size), dtype=torch.float32)
    padded[: len(flat)] = flat
    padded[len(flat) :] = flat[-1]
    return padded.view(-1, group_size)


def _encode_block(values: Tensor, packed: Tensor, zero: Tensor, scale: Tensor, bits: int, noise: Tensor | None) -> None:
    """Write the codes, zero points and steps of grouped float32 values, with 16 random bits for each or to nearest."""
    levels = (1 << bits) - 1
    offset = _round_down_(values.amin(1))
    step = _round_up_(values.amax(1).sub_(offset).div_(levels).clamp_(min=_SMALLEST_STEP))
    zero.copy_(offset)
    scale.copy_(step)
    if noise is None:
        offset.sub_(step, alpha=0.5)
    codes = torch.sub(values, offset[:, None]).mul_(step.reciprocal_()[:, None])
    if noise is not None:
        codes.add_(noise.view(codes.shape), alpha=_UNIT)
    # Through int32: float to uint8 is slow. A NaN becomes 0 rather than stray bits.
    integers = codes.nan_to_num_(0).clamp_(0, levels).to(torch.int32).to(torch.uint8)
    del codes
    pack_planes(integers, bits, packed)


def _decode_block(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, target: Tensor) -> None:
    """Write the values of a block's codes to a flat tensor, which may end before the last group does."""
    codes = unpack_planes(packed, bits, group_size)
    is_direct = target.dtype == torch.float32 and len(target) == codes.numel()
    values = target.view(-1, group_size) if is_direct else torch.empty_like(codes, dtype=torch.float32)
    values.copy_(codes).mul_(scale.float()[:, None]).add_(zero.float()[:, None])
    if not is_direct:
        target.copy_(values.view(-1)[: len(target)])


def _round_down_(x: Tensor) -> Tensor:
    """Round float32 values down to the next bfloat16, which is the upper half of their bits."""
    pattern = x.view(torch.int32)
    # Cutting the lower half rounds towards zero: negative values go one pattern further if it was not empty.
    pattern.add_((pattern >> 31).bitwise_and_(0xFFFF)).bitwise_and_(_UPPER_HALF)
    return x


def _round_up_(x: Tensor) -> Tensor:
    """Round non-negative float32 values up to the next bfloat16."""
    # The limit keeps a NaN of all ones from overflowing; below it are infinity and other NaN.
    x.view(torch.int32).clamp_(max=0x7FFE0000).add_(0xFFFF).bitwise_and_(_UPPER_HALF)
    return x


def pack_planes(codes: Tensor, bits: int, packed: Tensor) -> None:
    """Write the codes of groups, shape ``(groups, group_size)``, each cut into ``8 / bits`` planes, to bytes."""
    planes = codes.view(len(codes), 8 // bits, -1)
    # Halving: the upper half of the planes moves half of the remaining way up, so three steps pack eight planes.
    while planes.shape[1] > 1:
        half = planes.shape[1] // 2
        planes = torch.add(planes[:, :half], planes[:, half:], alpha=1 << (bits * half))
    packed.view(len(codes), -1).copy_(planes[:, 0])


def unpack_planes(packed: Tensor, bits: int, group_size: int = GROUP_SIZE) -> Tensor:
    """Return the codes that :func:`pack_planes` packed, uint8, shape ``(groups, group_size)``."""
    octets = packed.view(-1, 1, group_size * bits // 8)
    planes = torch.bitwise_right_shift(octets, plane_shifts(bits, packed.device)).bitwise_and_((1 << bits) - 1)
    return planes.view(-1, group_size)


@cache
def plane_shifts(bits: int, device: torch.device) -> Tensor:
    """Return how far each plane's codes are shifted in a byte, uint8, shape ``(8 / bits, 1)``."""
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=device)[:, None]
