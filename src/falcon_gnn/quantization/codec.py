"""Quantisation of activations to b bits, group by group, and back (Layer Compression Stage of the paper).

With Z the minimum and R the range of a group of 256 values and B = 2^b − 1, a value h is kept as the integer
``quant(h) = (h − Z) / R · B`` and comes back as ``dequant(h) = Z + quant(h) · R / B``. Three points go beyond the
formula. The fraction is rounded up with a probability equal to itself, so that the mean over many draws is h (or to
nearest, on request). Z and the step R / B are kept in bfloat16, Z rounded down and the step up, because a range that
shrank in rounding would clip its end values and shift the mean. A group that holds a NaN or an infinity comes back as
NaN: loud, not clipped.

The meaning is written once, in plain torch, and registered as the operators ``falcon_gnn::quantize`` and
``falcon_gnn::dequantize``, with Triton's kernels behind the same names on CUDA. On the CPU they work through blocks of
524,288 values, so that their temporaries stay below five megabytes however large the tensor is; on a device that has to
be told every operation a block is 4,194,304 values, and in a kernel it is a group.

Layout of the packed bytes: the values of a block are cut into 8 / b equal planes, and byte j holds the j-th value of
every plane, plane 0 in the lowest bits. A last group that is not full is a block of its own, filled up with copies of
the last value. Codes do not leave the device on which they were made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Literal

import torch
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.kernel_choice import device_type, draws_by_place, expects_kernels, run_kernel_on_cuda
from falcon_gnn.quantization.philox import group_halves, halves_bytes
from falcon_gnn.quantization.temporaries import declares_temporaries

BLOCK_VALUES = 1 << 19
DEVICE_BLOCK_VALUES = 1 << 22
GROUP_SIZE = 256
SEED_ROWS = 256
"""Rows of a matrix that share a seed where random draws must not depend on the piece that is worked on."""
# Smallest normal float32: a smaller step would have no finite reciprocal. Exact in bfloat16.
_SMALLEST_STEP = torch.finfo(torch.float32).tiny
_UPPER_HALF = -0x10000
# Keeps the dither below 1 in float32: a value that is exactly a code, such as a zero, always gets it.
_LARGEST_FRACTION = 1.0 - 2.0**-16

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
        seed: int64 tensor, best on the CPU or where ``x`` is, which fixes the draws: one value, or for a matrix in
            groups of 256 one for every 256 rows; None takes one from torch's default generator.

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


def check_bits(bits: int) -> None:
    """Refuse a number of bits that does not divide a byte.

    Raises:
        OptionError: If ``bits`` is not 1, 2, 4 or 8.
    """
    if bits not in (1, 2, 4, 8):
        msg = f"bits must be 1, 2, 4 or 8, got {bits}; take bits=None for no compression"
        raise OptionError(msg)


def draw_seeds(*shape: int) -> Tensor:
    """Return seeds for stochastic operators, drawn from torch's default CPU generator.

    They are a CPU tensor for every device: reading one never waits for an accelerator, fake tensors can stand for
    them, and ``torch.manual_seed`` decides all of them.

    Args:
        *shape: Shape of the result; none for a single seed.
    """
    return torch.randint(1 << 62, shape, dtype=torch.int64, device="cpu")


def seeded_generator(seed: Tensor, device: torch.device) -> torch.Generator:
    """Return a generator on ``device`` whose draws depend on ``seed`` alone."""
    return torch.Generator(device=device).manual_seed(int(seed))


def random_bytes(count: int, generator: torch.Generator) -> Tensor:
    """Return independent uniform bytes, uint8, shape ``(count,)``; eight to a draw, which is eight times as fast."""
    words = torch.empty((count + 7) // 8, dtype=torch.int64, device=generator.device)
    return words.random_(-(1 << 63), None, generator=generator).view(torch.uint8)[:count]


@torch.library.custom_op("falcon_gnn::quantize", mutates_args=())
def _quantize(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    packed, zero, scale = empty_codes(x, bits, group_size)
    flat = x.reshape(-1)
    dither = None if seed is None else _make_dither(seed, x, group_size)
    for groups in _blocks(len(flat), group_size, block_values(x.device)):
        values = flat[groups.start * group_size : groups.stop * group_size]
        octets = packed[byte_range(groups, bits, group_size)]
        _encode_block(_grouped(values, group_size), octets, zero[groups], scale[groups], bits, dither)
    return packed, zero, scale


@_quantize.register_fake
def _(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    return empty_codes(x, bits, group_size)


run_kernel_on_cuda(_quantize, "quantize", lambda x, seed, bits, group_size: group_size == GROUP_SIZE)


@declares_temporaries("falcon_gnn::quantize")
def _(x: Tensor, seed: Tensor | None, bits: int, group_size: int) -> int:
    whole_copy = 0 if x.is_contiguous() else x.nbytes
    if _runs_kernels(x, group_size):
        return whole_copy
    # Per value: the codes in float32, four bytes for float32 noise and then int32 codes, and one random byte or code.
    block = min(_padded(x.numel(), group_size), _block_values(device_type(x)))
    float32_copy = 0 if x.dtype == torch.float32 else 4 * block
    drawn = halves_bytes(block) if seed is not None and device_type(x) != "cpu" else 0
    return whole_copy + float32_copy + drawn + 9 * block + 32 * (block // group_size + 1)


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


run_kernel_on_cuda(
    _dequantize, "dequantize", lambda packed, zero, scale, bits, group_size, out: group_size == GROUP_SIZE
)


@declares_temporaries("falcon_gnn::dequantize")
def _(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, out: Tensor) -> int:
    if _runs_kernels(out, group_size):
        return 0
    block = min(_padded(out.numel(), group_size), _block_values(device_type(out)))
    return (1 if out.dtype == torch.float32 else 5) * block + 8 * (block // group_size + 1)


def block_values(device: torch.device) -> int:
    """Return how many values plain torch works on at a time on a device."""
    return _block_values(device.type)


def _block_values(device_name: str) -> int:
    return BLOCK_VALUES if device_name == "cpu" else DEVICE_BLOCK_VALUES


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


def _make_dither(seed: Tensor, x: Tensor, group_size: int) -> "_Dither | _CountedDither":
    counts = group_size == GROUP_SIZE and draws_by_place(x.device)
    return _CountedDither(seed, x) if counts else _Dither(seed, x, group_size)


class _CountedDither:
    """The same from counted random numbers of 16 bits, in groups of 256: a multiple of 2^-16."""

    unit = 2.0**-16

    def __init__(self, seed: Tensor, x: Tensor) -> None:
        self.seeds = seed.view(-1).to(x.device)
        self.groups_per_seed = seed_groups(seed, x.shape)
        self.next_group = 0

    def draw(self, numbers_out: Tensor, fractions_out: Tensor) -> None:
        """Write the next values' numbers, as floats of shape ``(groups, 256)``, and zeros for the fractions."""
        groups = slice(self.next_group, self.next_group + len(numbers_out))
        self.next_group = groups.stop
        numbers_out.copy_(group_halves(self.seeds, groups, self.groups_per_seed))
        fractions_out.zero_()


def seed_groups(seed: Tensor, shape: Sequence[int]) -> int:
    """Return how many groups of 256 values share a seed: those of 256 rows, or all where there is one seed only."""
    return max(1, shape[1]) if seed.numel() > 1 else max(1, -(-prod(shape) // GROUP_SIZE))


class _Dither:
    """What is added to fractions before they are cut off: uniform on [0, 1) for every value.

    A random byte k per value and one fraction δ per seed make (k + δ) / 256: the mean is exact with a quarter of the
    random bits, and two values share no more than δ. Groups are asked for in ascending order.
    """

    unit = 2.0**-8

    def __init__(self, seed: Tensor, x: Tensor, group_size: int) -> None:
        self.seeds, self.device, self.group_size = seed.view(-1), x.device, group_size
        self.groups_per_seed = SEED_ROWS * x.shape[1] // group_size if seed.numel() > 1 else 0
        self.part, self.left = 0, self.groups_per_seed
        self._start()

    def _start(self) -> None:
        self.generator = seeded_generator(self.seeds[self.part], self.device)
        self.fraction = torch.rand(1, generator=self.generator, device=self.device)

    def draw(self, bytes_out: Tensor, fractions_out: Tensor) -> None:
        """Write k of the next values, as floats of shape ``(groups, group_size)``, and δ of each group."""
        start = 0
        while start < len(bytes_out):
            if self.groups_per_seed and self.left == 0:
                self.part, self.left = self.part + 1, self.groups_per_seed
                self._start()
            stop = min(len(bytes_out), start + self.left) if self.groups_per_seed else len(bytes_out)
            drawn = random_bytes((stop - start) * self.group_size, self.generator)
            bytes_out[start:stop].view(-1).copy_(drawn)
            fractions_out[start:stop] = self.fraction
            self.left -= stop - start
            start = stop


def _encode_block(
    values: Tensor, packed: Tensor, zero: Tensor, scale: Tensor, bits: int, dither: _Dither | _CountedDither | None
) -> None:
    """Write the codes, zero points and steps of grouped float32 values."""
    levels = (1 << bits) - 1
    offset = _round_down_(values.amin(1))
    step = _round_up_(values.amax(1).sub_(offset).div_(levels).clamp_(min=_SMALLEST_STEP))
    zero.copy_(offset)
    scale.copy_(step)
    scratch = torch.empty_like(values)
    if dither is None:
        offset.sub_(step, alpha=0.5)
    else:
        fractions = torch.empty_like(step)
        dither.draw(scratch, fractions)
        offset.addcmul_(step, fractions, value=-_LARGEST_FRACTION / 256)
    codes = torch.sub(values, offset[:, None]).mul_(step.reciprocal_()[:, None])
    if dither is not None:
        codes.add_(scratch, alpha=dither.unit)
    if bits == 8:
        codes.clamp_(0, levels)
    # Through int32: float to uint8 is slow, and NaN becomes 0 here rather than stray bits in another group's codes.
    integers = scratch.view(torch.int32).copy_(codes).to(torch.uint8)
    del codes, scratch
    pack_planes(integers.clamp_(max=levels), bits, packed)


def _decode_block(packed: Tensor, zero: Tensor, scale: Tensor, bits: int, group_size: int, target: Tensor) -> None:
    """Write the values of a block's codes to a flat tensor, which may end before the last group does."""
    codes = unpack_planes(packed, bits).view(-1, group_size)
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
    """Write codes, cut into ``8 / bits`` planes of equal length, to bytes, plane 0 in the lowest bits."""
    planes = codes.view(8 // bits, -1)
    # Halving: the upper half of the planes moves half of the remaining way up, so three steps pack eight planes.
    while len(planes) > 2:
        half = len(planes) // 2
        planes = torch.add(planes[:half], planes[half:], alpha=1 << (bits * half))
    if len(planes) == 1:
        packed.copy_(planes[0])
    else:
        torch.add(planes[0], planes[1], alpha=1 << bits, out=packed)


def unpack_planes(packed: Tensor, bits: int) -> Tensor:
    """Return the codes that :func:`pack_planes` packed, uint8, shape ``(8 / bits, len(packed))``."""
    if bits == 8:
        return packed.view(1, -1)
    return torch.bitwise_right_shift(packed, plane_shifts(bits, packed.device)).bitwise_and_((1 << bits) - 1)


@cache
def plane_shifts(bits: int, device: torch.device) -> Tensor:
    """Return how far each plane's codes are shifted in a byte, uint8, shape ``(8 / bits, 1)``."""
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=device)[:, None]
