"""The operators of this package as Triton kernels: every activation is read once and written once.

What they compute is defined by the operators' own bodies in plain torch, here with a group of 256 values as a block:
byte j of a group's mask holds values j, 32 + j, ..., 224 + j, and byte j of its codes at b bits values j, 32 b + j, and
so on. A tile is whole groups, [groups, 8, 32], so that nothing depends on a matrix's width; beyond the end of the last
group stand copies of the last value, as in the codec. Kernels that add up columns go through tiles of rows and columns,
and look their codes up.

Sums are taken over a number of rows that is fixed, and added in a fixed order: no atomic operations, the same result on
every card. Products and sums are rounded one by one (``enable_fp_fusion=False``), and quotients are true ones.
"""

import torch
import triton
import triton.language as tl
from triton import knobs

# Counts of 1 would become constants, and every other count would be compiled for its divisors.
_COUNTS = ["num_values", "num_groups", "num_rows", "num_parts", "groups_per_seed", "numerator"]
# The interpreter truncates where a device rounds to bfloat16.
_INTERPRETED = tl.constexpr(knobs.runtime.interpret)
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
_UNIT = tl.constexpr(2.0**-16)


@triton.jit
def _widen(value):
    """Return values in the type that is computed in: float32, or float64 for float64."""
    if value.dtype == tl.float64:
        return value
    else:
        return value.to(tl.float32)


@triton.jit
def _store(pointer, value, mask):
    """Write values in the pointer's type, rounded to nearest even."""
    if _INTERPRETED and pointer.dtype.element_ty == tl.bfloat16:
        bits = value.to(tl.float32).to(tl.int32, bitcast=True)
        bits = tl.where(value != value, 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        tl.store(pointer, bits.to(tl.int16).to(tl.bfloat16, bitcast=True), mask=mask)
    else:
        tl.store(pointer, value.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _divide(a, b, COLUMNS: tl.constexpr):
    """Return the true quotient, which `/` is not, as a row."""
    ones = tl.full((COLUMNS,), 1.0, tl.float32)
    return tl.div_rn(ones * a, ones * b)


@triton.jit
def _round_down(x):
    bits = x.to(tl.int32, bitcast=True)
    bits = (bits + ((bits >> 31) & 0xFFFF)) & -0x10000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _round_up(x):
    bits = x.to(tl.int32, bitcast=True)
    bits = (tl.minimum(bits, 0x7FFE0000) + 0xFFFF) & -0x10000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _store_upper_half(pointer, value, mask):
    """Write float32 values that bfloat16 holds."""
    upper = (value.to(tl.int32, bitcast=True) >> 16).to(tl.int16)
    tl.store(pointer, upper.to(tl.bfloat16, bitcast=True), mask=mask)


@triton.jit
def _halves(seed_ptr, group, groups_per_seed, GROUPS: tl.constexpr):
    """Return 16 random bits for every value of some groups, int32, [groups, 8, 32]; as philox.group_halves."""
    seed = tl.load(seed_ptr + group // groups_per_seed)
    first = group % groups_per_seed * 32
    low = (first & 0xFFFFFFFF).to(tl.uint32)[:, None] + tl.arange(0, 32).to(tl.uint32)[None, :]
    high = (first >> 32).to(tl.uint32)[:, None] + tl.zeros_like(low)
    zero = tl.zeros_like(low)
    a, b, c, d = tl.philox(seed[:, None], low, high, zero, zero)
    # Word i of a call is for planes 2 i and 2 i + 1: the last axis becomes i, with the low half before the high one.
    words = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (GROUPS, 32, 4))
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.permute(tl.reshape(halves, (GROUPS, 32, 8)), (0, 2, 1)).to(tl.int32)


@triton.jit
def _tile(GROUPS: tl.constexpr):
    """Return the tile's groups, [groups] as int64, and the place of each value in its group, [1, 8, 32]."""
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    place = tl.arange(0, 8)[:, None] * 32 + tl.arange(0, 32)[None, :]
    return group, place[None, :, :]


@triton.jit
def _encode_values(
    value, codes_ptr, zero_ptr, scale_ptr, seed_ptr, group, num_groups, groups_per_seed,
    BITS: tl.constexpr, STOCHASTIC: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Write the codes, zero points and steps of a tile's float32 values."""
    # Devices and the interpreter disagree on NaN in minima and maxima, so NaN are looked for by themselves.
    has_nan = tl.max(tl.max((value != value).to(tl.int32), axis=2), axis=1) > 0
    low = tl.where(has_nan, float("nan"), tl.min(tl.min(value, axis=2), axis=1))
    high = tl.where(has_nan, float("nan"), tl.max(tl.max(value, axis=2), axis=1))
    levels: tl.constexpr = (1 << BITS) - 1
    offset = _round_down(low)
    step = tl.div_rn(high - offset, tl.full((GROUPS,), levels, tl.float32))
    step = _round_up(tl.where(step < _TINY, _TINY, step))
    is_group = group < num_groups
    _store_upper_half(zero_ptr + group, offset, is_group)
    _store_upper_half(scale_ptr + group, step, is_group)
    if not STOCHASTIC:
        offset -= 0.5 * step
    inverse = tl.div_rn(tl.full((GROUPS,), 1.0, tl.float32), step)
    code = (value - offset[:, None, None]) * inverse[:, None, None]
    if STOCHASTIC:
        code += _halves(seed_ptr, group, groups_per_seed, GROUPS).to(tl.float32) * _UNIT
    code = tl.where(code == code, code, 0.0)
    code = tl.minimum(tl.maximum(code, 0.0), levels * 1.0).to(tl.int32)
    # Mask planes i b to (i + 1) b - 1 make code plane i.
    shift = tl.arange(0, 8) // BITS * BITS
    shifted = tl.reshape(code << shift[None, :, None], (GROUPS, 8 // BITS, 32 * BITS))
    octets = tl.sum(shifted, axis=1)
    byte = group[:, None] * (32 * BITS) + tl.arange(0, 32 * BITS)[None, :]
    tl.store(codes_ptr + byte, octets.to(tl.uint8), mask=is_group[:, None])


@triton.jit
def _store_bits(mask_ptr, bits, group, num_groups):
    """Write one bit per value of a tile, int32."""
    octets = tl.sum(bits << tl.arange(0, 8)[None, :, None], axis=1)
    byte = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(mask_ptr + byte, octets.to(tl.uint8), mask=(group < num_groups)[:, None])


@triton.jit
def _load_bits(mask_ptr, group, num_groups):
    """Return one bit per value of a tile, int32."""
    byte = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    octets = tl.load(mask_ptr + byte, mask=(group < num_groups)[:, None], other=0).to(tl.int32)
    return (octets[:, None, :] >> tl.arange(0, 8)[None, :, None]) & 1


@triton.jit(do_not_specialize=_COUNTS)
def activate_kernel(
    x_ptr, out_ptr, mask_ptr, codes_ptr, zero_ptr, scale_ptr, mask_seed_ptr, code_seed_ptr,
    mean_ptr, inverse_std_ptr, gamma_ptr, beta_ptr,
    num_values, num_groups, groups_per_seed, width, numerator, factor,
    BITS: tl.constexpr, STOCHASTIC: tl.constexpr, HAS_NORM: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, IS_ALIGNED: tl.constexpr, KEEPS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """[Normalise, in place too,] code, [scale and shift,] ReLU and dropout with their mask; as the flags say."""
    group, place = _tile(GROUPS)
    index = group[:, None, None] * 256 + place
    is_real = index < num_values
    value = _widen(tl.load(x_ptr + tl.minimum(index, num_values - 1)))
    activation = value
    if HAS_NORM:
        if IS_ALIGNED:
            column = tl.multiple_of((group * 256 % width).to(tl.int32), 256)[:, None, None] + place
        else:
            column = (tl.minimum(index, num_values - 1) % width).to(tl.int32)
        value = (value - tl.load(mean_ptr + column)) * tl.load(inverse_std_ptr + column)
        if KEEPS:
            _store(x_ptr + index, value, is_real)
        activation = value * tl.load(gamma_ptr + column) + tl.load(beta_ptr + column)
    if HAS_MASK:
        is_positive = activation > 0
        # NaN stays NaN, and an infinity that is dropped becomes one, as a product with zero.
        activation = tl.where(is_positive | (activation != activation), activation, 0.0)
        if HAS_DROPOUT:
            kept = is_positive & (_halves(mask_seed_ptr, group, groups_per_seed, GROUPS) < numerator)
            activation = activation * tl.where(kept, factor, 0.0).to(activation.dtype)
            is_positive = kept
        _store_bits(mask_ptr, (is_positive & is_real).to(tl.int32), group, num_groups)
    if BITS:
        if not HAS_NORM:
            value = activation
            if HAS_MASK:
                # Copies of the last value have draws of their own, which must not show.
                is_last = index == num_values - 1
                last = tl.sum(tl.sum(tl.sum(tl.where(is_last, activation, 0.0), axis=2), axis=1), axis=0)
                value = tl.where(is_real, activation, last)
        _encode_values(
            value.to(tl.float32), codes_ptr, zero_ptr, scale_ptr, code_seed_ptr, group, num_groups, groups_per_seed,
            BITS, STOCHASTIC, GROUPS,
        )  # fmt: skip
    if HAS_MASK or HAS_NORM:
        # Last, since it may be in the place of the input: by now all of the tile has read its copies of the last value.
        _store(out_ptr + index, activation, is_real)


@triton.jit(do_not_specialize=_COUNTS)
def decode_kernel(
    codes_ptr, zero_ptr, scale_ptr, out_ptr, num_values, num_groups, BITS: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    """Write the values of the codes."""
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    is_group = group < num_groups
    byte = group[:, None] * (32 * BITS) + tl.arange(0, 32 * BITS)[None, :]
    octets = tl.load(codes_ptr + byte, mask=is_group[:, None], other=0).to(tl.int32)
    plane = tl.arange(0, 8 // BITS)
    code = (octets[:, None, :] >> (plane * BITS)[None, :, None]) & ((1 << BITS) - 1)
    step = tl.load(scale_ptr + group, mask=is_group, other=0.0).to(tl.float32)
    offset = tl.load(zero_ptr + group, mask=is_group, other=0.0).to(tl.float32)
    value = code.to(tl.float32) * step[:, None, None] + offset[:, None, None]
    place = plane[:, None] * (32 * BITS) + tl.arange(0, 32 * BITS)[None, :]
    index = group[:, None, None] * 256 + place[None, :, :]
    _store(out_ptr + index, value, index < num_values)


@triton.jit(do_not_specialize=_COUNTS)
def pack_bits_kernel(bool_ptr, mask_ptr, num_values, num_groups, GROUPS: tl.constexpr):
    """Pack bytes of 0 and 1."""
    group, place = _tile(GROUPS)
    index = group[:, None, None] * 256 + place
    bits = tl.load(bool_ptr + index, mask=index < num_values, other=0).to(tl.int32)
    _store_bits(mask_ptr, bits, group, num_groups)


@triton.jit(do_not_specialize=_COUNTS)
def unpack_bits_kernel(mask_ptr, bool_ptr, num_values, num_groups, GROUPS: tl.constexpr):
    """Write bytes of 0 and 1."""
    group, place = _tile(GROUPS)
    index = group[:, None, None] * 256 + place
    bits = _load_bits(mask_ptr, group, num_groups)
    tl.store(bool_ptr + index, bits.to(tl.uint8), mask=index < num_values)


@triton.jit(do_not_specialize=_COUNTS)
def dropout_bits_kernel(seed_ptr, mask_ptr, num_groups, groups_per_seed, numerator, GROUPS: tl.constexpr):
    """Write bits that are 1 with probability numerator / 65536."""
    group, _ = _tile(GROUPS)
    bits = (_halves(seed_ptr, group, groups_per_seed, GROUPS) < numerator).to(tl.int32)
    _store_bits(mask_ptr, bits, group, num_groups)


@triton.jit(do_not_specialize=_COUNTS)
def multiply_mask_kernel(x_ptr, mask_ptr, num_values, num_groups, factor, GROUPS: tl.constexpr):
    """Multiply with the factor where a bit is set and with 0 elsewhere."""
    group, place = _tile(GROUPS)
    index = group[:, None, None] * 256 + place
    is_real = index < num_values
    multiplier = tl.where(_load_bits(mask_ptr, group, num_groups) != 0, factor, 0.0)
    value = _widen(tl.load(x_ptr + index, mask=is_real, other=0.0))
    _store(x_ptr + index, value * multiplier.to(value.dtype), is_real)


@triton.jit
def _look_up(codes_ptr, zero_ptr, scale_ptr, index, is_real, BITS: tl.constexpr):
    """Return the values of codes anywhere, float32."""
    group, place = index // 256, (index % 256).to(tl.int32)
    octets = tl.load(codes_ptr + group * (32 * BITS) + place % (32 * BITS), mask=is_real, other=0).to(tl.int32)
    code = (octets >> (place // (32 * BITS) * BITS)) & ((1 << BITS) - 1)
    step = tl.load(scale_ptr + group, mask=is_real, other=0.0).to(tl.float32)
    return code.to(tl.float32) * step + tl.load(zero_ptr + group, mask=is_real, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=_COUNTS)
def mask_gradient_kernel(
    gradient_ptr, mask_ptr, codes_ptr, zero_ptr, scale_ptr, gamma_ptr, beta_ptr, activation_ptr, sums_ptr,
    num_rows, width, factor,
    BITS: tl.constexpr, HAS_NORM: tl.constexpr, HAS_ACTIVATION: tl.constexpr, SUM_ROWS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mask a gradient in place, rebuild what the next layer saw, and add up the gradient and its product with x̂."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    first = tl.program_id(0) * SUM_ROWS
    gradient_sum = tl.zeros((COLUMNS,), tl.float32)
    product_sum = tl.zeros((COLUMNS,), tl.float32)
    if HAS_NORM:
        gamma = tl.load(gamma_ptr + column, mask=is_column, other=0.0)
        beta = tl.load(beta_ptr + column, mask=is_column, other=0.0)
    for start in range(0, SUM_ROWS, ROWS):
        row = first + start + tl.arange(0, ROWS)
        is_real = (row < num_rows)[:, None] & is_column[None, :]
        index = row.to(tl.int64)[:, None] * width + column[None, :]
        place = (index % 256).to(tl.int32)
        octets = tl.load(mask_ptr + index // 256 * 32 + place % 32, mask=is_real, other=0).to(tl.int32)
        multiplier = tl.where(((octets >> (place // 32)) & 1) != 0, factor, 0.0)
        gradient = _widen(tl.load(gradient_ptr + index, mask=is_real, other=0.0)) * multiplier
        _store(gradient_ptr + index, gradient, is_real)
        if BITS:
            value = _look_up(codes_ptr, zero_ptr, scale_ptr, index, is_real, BITS)
        else:
            value = _widen(tl.load(codes_ptr + index, mask=is_real, other=0.0))
        if HAS_NORM:
            gradient_sum += tl.sum(gradient, axis=0)
            product_sum += tl.sum(value * gradient, axis=0)
        if HAS_ACTIVATION:
            if HAS_NORM:
                value = (value * gamma[None, :] + beta[None, :]) * multiplier
            _store(activation_ptr + index, value, is_real)
    if HAS_NORM:
        target = sums_ptr + tl.program_id(0).to(tl.int64) * 2 * width + column
        tl.store(target, gradient_sum, mask=is_column)
        tl.store(target + width, product_sum, mask=is_column)


@triton.jit(do_not_specialize=_COUNTS)
def hidden_gradient_kernel(
    gradient_ptr, codes_ptr, zero_ptr, scale_ptr, factors_ptr, out_ptr, sums_ptr, num_rows, width,
    BITS: tl.constexpr, SUM_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write (x̂ slope + g - offset) scale, the gradient of what was normalised, and add up its columns."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    first = tl.program_id(0) * SUM_ROWS
    slope = tl.load(factors_ptr + column, mask=is_column, other=0.0)[None, :]
    offset = tl.load(factors_ptr + width + column, mask=is_column, other=0.0)[None, :]
    scale = tl.load(factors_ptr + 2 * width + column, mask=is_column, other=0.0)[None, :]
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, SUM_ROWS, ROWS):
        row = first + start + tl.arange(0, ROWS)
        is_real = (row < num_rows)[:, None] & is_column[None, :]
        index = row.to(tl.int64)[:, None] * width + column[None, :]
        value = _look_up(codes_ptr, zero_ptr, scale_ptr, index, is_real, BITS)
        value = (value * slope + _widen(tl.load(gradient_ptr + index, mask=is_real, other=0.0)) - offset) * scale
        _store(out_ptr + index, value, is_real)
        total += tl.sum(tl.where(is_real, value, 0.0), axis=0)
    tl.store(sums_ptr + tl.program_id(0).to(tl.int64) * width + column, total, mask=is_column)


@triton.jit
def multiply_sparse_kernel(indptr_ptr, indices_ptr, values_ptr, x_ptr, out_ptr, width, COLUMNS: tl.constexpr):
    """Write a row of the product of a CSR matrix and dense columns; its entries are added in their order."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    total = tl.zeros((COLUMNS,), tl.float32)
    for entry in range(tl.load(indptr_ptr + row), tl.load(indptr_ptr + row + 1)):
        source = tl.load(indices_ptr + entry).to(tl.int64) * width
        value = tl.load(values_ptr + entry).to(tl.float32)
        total += value * tl.load(x_ptr + source + column, mask=is_column, other=0.0).to(tl.float32)
    _store(out_ptr + row * width + column, total, is_column)


@triton.jit
def gather_rows_kernel(x_ptr, ids_ptr, out_ptr, width, stride, COLUMNS: tl.constexpr):
    """Write rows of a matrix one below the other."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    value = tl.load(x_ptr + tl.load(ids_ptr + row) * stride + column, mask=is_column, other=0.0)
    _store(out_ptr + row * width + column, _widen(value), is_column)


@triton.jit
def scatter_rows_kernel(x_ptr, ids_ptr, out_ptr, width, stride, COLUMNS: tl.constexpr):
    """Write rows to their places in a matrix."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    value = tl.load(x_ptr + row * width + column, mask=is_column, other=0.0)
    _store(out_ptr + tl.load(ids_ptr + row) * stride + column, _widen(value), is_column)


@triton.jit(do_not_specialize=_COUNTS)
def moments_kernel(
    x_ptr, partial_ptr, num_rows, width, stride,
    SUM_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write mean and sum of squared distances of each column over some rows (Chan, Golub and LeVeque)."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    first = tl.program_id(0) * SUM_ROWS
    mean = tl.zeros((COLUMNS,), tl.float32)
    squares = tl.zeros((COLUMNS,), tl.float32)
    count = 0.0
    for start in range(0, SUM_ROWS, ROWS):
        row = first + start + tl.arange(0, ROWS)
        is_real = (row < num_rows)[:, None] & is_column[None, :]
        value = _widen(tl.load(x_ptr + row.to(tl.int64)[:, None] * stride + column[None, :], mask=is_real, other=0.0))
        more = tl.maximum(tl.minimum(num_rows - first - start, ROWS), 0).to(tl.float32)
        total = tl.maximum(count + more, 1.0)
        tile_mean = _divide(tl.sum(value, axis=0), tl.maximum(more, 1.0), COLUMNS)
        distance = tl.where(is_real, value - tile_mean[None, :], 0.0)
        gap = tl.where(more > 0, tile_mean - mean, 0.0)
        share = _divide(more, total, COLUMNS)
        squares += tl.sum(distance * distance, axis=0) + gap * gap * (count * share)
        mean += gap * share
        count += more
    target = partial_ptr + tl.program_id(0).to(tl.int64) * 2 * width + column
    tl.store(target, mean, mask=is_column)
    tl.store(target + width, squares, mask=is_column)


@triton.jit(do_not_specialize=_COUNTS)
def merge_moments_kernel(
    partial_ptr, mean_ptr, squares_ptr, seen, num_rows, num_parts, width,
    SUM_ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Take the moments of more rows into those of the rows seen so far."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    mean = tl.load(mean_ptr + column, mask=is_column, other=0.0)
    squares = tl.load(squares_ptr + column, mask=is_column, other=0.0)
    count = seen + 0.0
    source = partial_ptr + column
    for part in range(0, num_parts):
        more = tl.minimum(num_rows - part * SUM_ROWS, SUM_ROWS).to(tl.float32)
        gap = tl.load(source, mask=is_column, other=0.0) - mean
        total = count + more
        share = _divide(more, total, COLUMNS)
        squares += tl.load(source + width, mask=is_column, other=0.0) + gap * gap * (count * share)
        mean += gap * share
        count = total
        source += 2 * width
    tl.store(mean_ptr + column, mean, mask=is_column)
    tl.store(squares_ptr + column, squares, mask=is_column)
