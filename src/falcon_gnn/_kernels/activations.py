"""Codes and masks of float32 activations, a group of 256 values at a time: the operators' loops on the CPU.

What they compute is defined by the operators' own bodies in plain torch (:mod:`falcon_gnn.quantization`), rounding by
rounding: products and sums are not fused. Arrays of values are flat, a matrix row by row, ``width`` its columns; the
last group may end early, and copies of the last value stand for the rest.

Places in arrays are unsigned, so that no index is looked at for its sign, and no array is sliced in a loop: the threads
would take turns in counting who refers to it.
"""

import numpy as np
from numba import prange

from falcon_gnn._kernels.compiling import kernel, subroutine

GROUP = 256
OCTETS = 32
RUN = 64
"""Groups that a thread takes at a time, and their buffers once."""
SUM_ROWS = 128
"""Rows whose column sums are taken in one go."""
_LOW, _SHORT = np.uint64(0xFFFFFFFF), np.uint64(0xFFFF)
_LEFT, _RIGHT = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_LOW_STEP, _HIGH_STEP = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_EACH, _DIAGONAL, _ALMOST = np.uint64(0x0101010101010101), np.uint64(0x8040201008040201), np.uint64(0x7F7F7F7F7F7F7F7F)
_GROUP, _SUM_ROWS = np.uint64(GROUP), np.uint64(SUM_ROWS)
_HALF, _WORD = np.uint64(16), np.uint64(32)
_TINY = np.float32(np.finfo(np.float32).tiny)
_UNIT = np.float32(2.0**-16)
_ZERO = np.float32(0)
_ORDER = np.int32(0x7FFFFFFF)
_SIGN = np.int32(31)


@subroutine()
def _draw(seed, first, halves):  # type: ignore[no-untyped-def]
    """Write 16 random bits for every value of a group: Philox4x32-10, see :mod:`falcon_gnn.quantization.philox`."""
    key = np.uint64(seed)
    for k in range(OCTETS):
        counter = np.uint64(first + k)
        a, b = counter & _LOW, counter >> _WORD
        c, d = np.uint64(0), np.uint64(0)
        low_key, high_key = key & _LOW, key >> _WORD
        for _ in range(10):
            left, right = a * _LEFT, c * _RIGHT
            a, b = (right >> _WORD) ^ b ^ low_key, right & _LOW
            c, d = (left >> _WORD) ^ d ^ high_key, left & _LOW
            low_key, high_key = (low_key + _LOW_STEP) & _LOW, (high_key + _HIGH_STEP) & _LOW
        halves[k], halves[k + 32] = np.int32(a & _SHORT), np.int32(a >> _HALF)
        halves[k + 64], halves[k + 96] = np.int32(b & _SHORT), np.int32(b >> _HALF)
        halves[k + 128], halves[k + 160] = np.int32(c & _SHORT), np.int32(c >> _HALF)
        halves[k + 192], halves[k + 224] = np.int32(d & _SHORT), np.int32(d >> _HALF)


@subroutine()
def _encode(value, noise, is_stochastic, levels, ends, codes):  # type: ignore[no-untyped-def]
    """Write a group's codes; return zero point and step as the bits of bfloat16 values."""
    # In this order of their bits NaN lie beyond the infinities, and are found with the extremes.
    words, numbers = value.view(np.int32), ends.view(np.float32)
    low, high = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for j in range(GROUP):
        order = np.int32(words[j] ^ ((words[j] >> _SIGN) & _ORDER))
        low, high = min(low, order), max(high, order)
    ends[0], ends[1] = low ^ ((low >> _SIGN) & _ORDER), high ^ ((high >> _SIGN) & _ORDER)
    if np.isnan(numbers[0]) or np.isnan(numbers[1]):
        numbers[0] = numbers[1] = np.nan
    ends[0] = (ends[0] + ((ends[0] >> 31) & 0xFFFF)) & -0x10000
    offset = numbers[0]
    step = (numbers[1] - offset) / levels
    numbers[1] = _TINY if step < _TINY else step
    ends[1] = (min(ends[1], 0x7FFE0000) + 0xFFFF) & -0x10000
    step = numbers[1]
    inverse = np.float32(1) / step
    if not is_stochastic:
        offset -= np.float32(0.5) * step
    for j in range(GROUP):
        code = (value[j] - offset) * inverse
        if is_stochastic:
            code += np.float32(noise[j]) * _UNIT
        # Neither comparison holds for a NaN, which becomes 0.
        code = code if code > 0 else _ZERO
        codes[j] = np.int32(code if code < levels else levels)
    return np.uint16((ends[0] >> 16) & 0xFFFF), np.uint16((ends[1] >> 16) & 0xFFFF)


@subroutine()
def _pack(planes, bits, words, group):  # type: ignore[no-untyped-def]
    """Write a group's codes, eight to a word, in planes, plane 0 in the lowest bits: none reaches the next byte."""
    length = np.uint64(4 * bits)
    first = np.uint64(group) * length
    for j in range(length):
        word = np.uint64(0)
        for plane in range(np.uint64(8 // bits)):
            word |= planes[plane * length + j] << (plane * np.uint64(bits))
        words[first + j] = word


@subroutine()
def _unpack(words, group, bits, planes):  # type: ignore[no-untyped-def]
    """Write the codes that :func:`_pack` packed."""
    length, largest = np.uint64(4 * bits), np.uint64((1 << bits) - 1) * _EACH
    first = np.uint64(group) * length
    for j in range(length):
        word = words[first + j]
        for plane in range(np.uint64(8 // bits)):
            planes[plane * length + j] = (word >> (plane * np.uint64(bits))) & largest


@subroutine()
def _decode(words, zero, scale, group, bits, ends, codes, value):  # type: ignore[no-untyped-def]
    """Write the values of a group's codes; zero point and step are the bits of bfloat16 values."""
    numbers = ends.view(np.float32)
    ends[0] = np.int32(np.uint32(zero[group]) << np.uint32(16))
    ends[1] = np.int32(np.uint32(scale[group]) << np.uint32(16))
    offset, step = numbers[0], numbers[1]
    _unpack(words, group, bits, codes.view(np.uint64))
    for j in range(GROUP):
        value[j] = np.float32(codes[j]) * step + offset


@subroutine()
def _num_groups(values):  # type: ignore[no-untyped-def]
    return (values.size + GROUP - 1) // GROUP


@subroutine()
def _num_runs(num_groups):  # type: ignore[no-untyped-def]
    """Return how many times the threads are given groups."""
    return (num_groups + RUN - 1) // RUN


@subroutine()
def _groups_of(run, values):  # type: ignore[no-untyped-def]
    return range(run * RUN, min(_num_groups(values), (run + 1) * RUN))


@subroutine()
def _count(values, group):  # type: ignore[no-untyped-def]
    """Return how many values a group has."""
    return min(_GROUP, np.uint64(values.size) - np.uint64(group) * _GROUP)


@subroutine()
def _read(source, group, value):  # type: ignore[no-untyped-def]
    """Copy a group's values to a buffer; return how many they are."""
    first, count = np.uint64(group) * _GROUP, _count(source, group)
    for j in range(count):
        value[j] = source[first + j]
    return count


@subroutine()
def _repeat_last(value, count):  # type: ignore[no-untyped-def]
    """Put copies of the last value behind it."""
    for j in range(count, _GROUP):
        value[j] = value[count - np.uint64(1)]


@subroutine()
def _write(value, count, group, target):  # type: ignore[no-untyped-def]
    """Copy a buffer's first values to a group's places."""
    first = np.uint64(group) * _GROUP
    for j in range(count):
        target[first + j] = value[j]


@kernel(parallel=True)
def activate(  # type: ignore[no-untyped-def]
    x, out, first, norm, mask_seeds, code_seeds, groups_per_seed, numerator, factor, has_mask, keeps, writes, bits,
    mask, codes, zero, scale,
):  # fmt: skip
    """[Normalise, in place if ``keeps``,] code, [scale and shift,] ReLU and dropout with their mask.

    Args:
        x: Values.
        out: What is written to, which may be ``x``.
        first: Number of the first group among those that draw; 0 with a norm.
        norm: Mean, 1 / σ, γ and β, shape ``(4, width)``; a width of 0 without a norm.
        mask_seeds: Of dropout, int64; empty for none.
        code_seeds: Of stochastic rounding; empty to nearest.
        groups_per_seed: Groups that share a seed.
        numerator: 2^16 times the probability of keeping a value.
        factor: What a kept value is multiplied with.
        has_mask: Whether there is ReLU.
        keeps: Whether x̂ is written to ``x``.
        writes: Whether ``out`` is written to.
        bits: Of a code; 0 for none.
        mask: A bit per value, as words of 64 bits.
        codes: The packed codes, likewise.
        zero: Zero points, the bits of bfloat16 values, uint16, shape ``(groups,)``.
        scale: Steps, likewise.
    """
    for run in prange(_num_runs(_num_groups(x))):
        _activate_run(
            np.int64(run), x, out, first, norm, mask_seeds, code_seeds, groups_per_seed, numerator, factor, has_mask,
            keeps, writes, bits, mask, codes, zero, scale,
        )  # fmt: skip


@subroutine()
def _activate_run(  # type: ignore[no-untyped-def]
    run, x, out, first, norm, mask_seeds, code_seeds, groups_per_seed, numerator, factor, has_mask, keeps, writes, bits,
    mask, codes, zero, scale,
):  # fmt: skip
    has_norm, affine, levels = norm.shape[1] > 0, norm[2:], np.float32((1 << bits) - 1)
    value, halves, ends = np.empty(GROUP, np.float32), np.empty(GROUP, np.int32), np.empty(2, np.int32)
    on, integers = np.empty(GROUP, np.uint8), np.empty(GROUP, np.uint8)
    for g in _groups_of(run, x):
        count = _read(x, g, value)
        if has_norm:
            _normalize(value, count, g * GROUP, norm)
            if keeps:
                _write(value, count, g, x)
        # With a norm x̂ is coded, then cut off; else what is cut off is coded. Each part stands here once, since all of
        # it is compiled where it stands.
        for part in range(2):
            is_coding = (part == 0) == has_norm
            seeds = code_seeds if is_coding else mask_seeds
            if seeds.size > 0 and (bits > 0 or not is_coding):
                _draw(seeds[(first + g) // groups_per_seed], (first + g) % groups_per_seed * OCTETS, halves)
            if is_coding and bits > 0:
                # Copies of the last value have draws of their own, which must not show.
                _repeat_last(value, count)
                zero[g], scale[g] = _encode(value, halves, seeds.size > 0, levels, ends, integers)
                _pack(integers.view(np.uint64), bits, codes, g)
            elif not is_coding and has_mask:
                if has_norm:
                    _stretch(value, g * GROUP, affine)
                _relu_dropout(value, count, seeds.size > 0, halves, numerator, factor, on)
                _pack(on.view(np.uint64), 1, mask, g)
        if writes:
            _write(value, count, g, out)


@subroutine()
def _normalize(value, count, first, norm):  # type: ignore[no-untyped-def]
    """Turn a group's values, of which the first has the number ``first``, into x̂."""
    width = np.uint64(norm.shape[1])
    column = np.uint64(first) % width
    if column + _GROUP <= width:
        for j in range(_GROUP):
            value[j] = (value[j] - norm[0, column + j]) * norm[1, column + j]
    else:
        for j in range(count):
            value[j] = (value[j] - norm[0, column]) * norm[1, column]
            column = column + np.uint64(1) if column + np.uint64(1) < width else np.uint64(0)


@subroutine()
def _stretch(value, first, affine):  # type: ignore[no-untyped-def]
    """Turn x̂ into γx̂ + β."""
    width = np.uint64(affine.shape[1])
    column = np.uint64(first) % width
    if column + _GROUP <= width:
        for j in range(_GROUP):
            value[j] = value[j] * affine[0, column + j] + affine[1, column + j]
    else:
        for j in range(_GROUP):
            value[j] = value[j] * affine[0, column] + affine[1, column]
            column = column + np.uint64(1) if column + np.uint64(1) < width else np.uint64(0)


@subroutine()
def _relu_dropout(value, count, drops, halves, numerator, factor, on):  # type: ignore[no-untyped-def]
    """Cut off and drop a group's values; write which of them are positive and kept."""
    limit = np.int32(numerator)
    for j in range(_GROUP):
        on[j] = value[j] > 0
        # NaN stays NaN.
        value[j] = _ZERO if value[j] <= 0 else value[j]
    if drops:
        for j in range(_GROUP):
            on[j] &= halves[j] < limit
            # A product, so that a NaN, or an infinity that is dropped, shows.
            value[j] *= factor if on[j] else _ZERO
    for j in range(count, _GROUP):
        on[j] = 0


@kernel(parallel=True)
def decode(codes, zero, scale, bits, out):  # type: ignore[no-untyped-def]
    """Write the values of codes."""
    for run in prange(_num_runs(_num_groups(out))):
        _decode_run(np.int64(run), codes, zero, scale, bits, out)


@subroutine()
def _decode_run(run, codes, zero, scale, bits, out):  # type: ignore[no-untyped-def]
    value, ends, integers = np.empty(GROUP, np.float32), np.empty(2, np.int32), np.empty(GROUP, np.uint8)
    for g in _groups_of(run, out):
        _decode(codes, zero, scale, g, bits, ends, integers, value)
        _write(value, _count(out, g), g, out)


@kernel(parallel=True)
def rebuild(x, codes, zero, scale, bits, affine, mask, factor, out):  # type: ignore[no-untyped-def]
    """Write γx̂ + β, masked: what the next layer saw.

    Args:
        x: x̂ itself where ``bits`` is 0; otherwise anything.
        codes: Packed codes of x̂, as words of 64 bits.
        zero: Their zero points, the bits of bfloat16 values.
        scale: Their steps, likewise.
        bits: Of a code.
        affine: γ and β, shape ``(2, width)``.
        mask: A bit per value; empty for none.
        factor: What a kept value is multiplied with.
        out: What is written to, which may be ``x``.
    """
    for run in prange(_num_runs(_num_groups(out))):
        _rebuild_run(np.int64(run), x, codes, zero, scale, bits, affine, mask, factor, out)


@subroutine()
def _rebuild_run(run, x, codes, zero, scale, bits, affine, mask, factor, out):  # type: ignore[no-untyped-def]
    value, on = np.empty(GROUP, np.float32), np.empty(GROUP, np.uint8)
    ends, integers = np.empty(2, np.int32), np.empty(GROUP, np.uint8)
    for g in _groups_of(run, out):
        if bits > 0:
            _decode(codes, zero, scale, g, bits, ends, integers, value)
        else:
            _read(x, g, value)
        _stretch(value, g * GROUP, affine)
        if mask.size > 0:
            _unpack(mask, g, 1, on.view(np.uint64))
            for j in range(_GROUP):
                value[j] *= factor if on[j] else _ZERO
        _write(value, _count(out, g), g, out)


@kernel(parallel=True)
def draw_bits(seeds, groups_per_seed, numerator, mask):  # type: ignore[no-untyped-def]
    """Write bits that are 1 with probability ``numerator`` / 65536."""
    for run in prange(_num_runs(mask.size // 4)):
        _draw_run(np.int64(run), seeds, groups_per_seed, numerator, mask)


@subroutine()
def _draw_run(run, seeds, groups_per_seed, numerator, mask):  # type: ignore[no-untyped-def]
    halves, on, limit = np.empty(GROUP, np.int32), np.empty(GROUP, np.uint8), np.int32(numerator)
    for g in range(run * RUN, min(mask.size // 4, (run + 1) * RUN)):
        _draw(seeds[g // groups_per_seed], g % groups_per_seed * OCTETS, halves)
        for j in range(GROUP):
            on[j] = halves[j] < limit
        _pack(on.view(np.uint64), 1, mask, g)


@kernel(parallel=True)
def pack_bits(on, mask):  # type: ignore[no-untyped-def]
    """Pack bytes of 0 and 1."""
    for run in prange(_num_runs(_num_groups(on))):
        _pack_run(np.int64(run), on, mask)


@subroutine()
def _pack_run(run, on, mask):  # type: ignore[no-untyped-def]
    bits = np.empty(GROUP, np.uint8)
    for g in _groups_of(run, on):
        for j in range(_read(on, g, bits), _GROUP):
            bits[j] = 0
        _pack(bits.view(np.uint64), 1, mask, g)


@kernel(parallel=True)
def unpack_bits(mask, on):  # type: ignore[no-untyped-def]
    """Write bytes of 0 and 1."""
    for run in prange(_num_runs(_num_groups(on))):
        _unpack_run(np.int64(run), mask, on)


@subroutine()
def _unpack_run(run, mask, on):  # type: ignore[no-untyped-def]
    bits = np.empty(GROUP, np.uint8)
    for g in _groups_of(run, on):
        _unpack(mask, g, 1, bits.view(np.uint64))
        _write(bits, _count(on, g), g, on)


@kernel(parallel=True)
def multiply_mask(x, mask, factor):  # type: ignore[no-untyped-def]
    """Multiply with the factor where a bit is set and with 0 elsewhere."""
    for run in prange(_num_runs(_num_groups(x))):
        _multiply_run(np.int64(run), x, mask, factor)


@subroutine()
def _multiply_run(run, x, mask, factor):  # type: ignore[no-untyped-def]
    on = np.empty(GROUP, np.uint8)
    for g in _groups_of(run, x):
        _unpack(mask, g, 1, on.view(np.uint64))
        first = np.uint64(g) * _GROUP
        for j in range(_count(x, g)):
            x[first + j] *= factor if on[j] else _ZERO


@kernel(parallel=True)
def multiply_columns(x, packed, first, factor):  # type: ignore[no-untyped-def]
    """Multiply with the factor where a column's bit is set and with 0 elsewhere.

    Args:
        x: Some columns of a matrix, shape ``(rows, width)``.
        packed: The bits of all its columns, eight to a byte, the first in the lowest bit.
        first: Byte of the first column.
        factor: The factor.
    """
    for part in prange((x.shape[0] + SUM_ROWS - 1) // SUM_ROWS):
        _multiply_columns_part(np.int64(part), x, packed, first, factor)


@subroutine()
def _multiply_columns_part(part, x, packed, first, factor):  # type: ignore[no-untyped-def]
    width = np.uint64(x.shape[1])
    num_octets = (width + np.uint64(7)) // np.uint64(8)
    on = np.empty(num_octets * np.uint64(8), np.uint8)
    words = on.view(np.uint64)
    for row in range(np.uint64(part * SUM_ROWS), np.uint64(min(x.shape[0], (part + 1) * SUM_ROWS))):
        for octet in range(num_octets):
            # Byte j of the word keeps bit j of the octet, and becomes 0 or 1.
            word = (np.uint64(packed[row, np.uint64(first) + octet]) * _EACH) & _DIAGONAL
            words[octet] = ((word + _ALMOST) >> np.uint64(7)) & _EACH
        for j in range(width):
            x[row, j] *= factor if on[j] else _ZERO


@kernel(parallel=True)
def mask_gradient(  # type: ignore[no-untyped-def]
    gradient, width, mask, codes, zero, scale, exact, bits, affine, factor, activation, sums
):
    """Mask a gradient in place, rebuild what the next layer saw, and add up the gradient and its product with x̂.

    Args:
        gradient: Values.
        width: Columns.
        mask: Its bits, as words of 64.
        codes: Packed codes of x̂, or of the activation without a norm, likewise.
        zero: Their zero points, the bits of bfloat16 values.
        scale: Their steps, likewise.
        exact: x̂ itself where ``bits`` is 0; otherwise anything.
        bits: Of a code.
        affine: γ and β, shape ``(2, width)``; a width of 0 without a norm.
        factor: What a kept value was multiplied with.
        activation: What is written to; empty for nothing.
        sums: Column sums of every 128 rows, zeros, shape ``(ceil(rows / 128), 2, width)``; anything without a norm.
    """
    for part in prange((gradient.size // width + SUM_ROWS - 1) // SUM_ROWS):
        _mask_gradient_part(
            np.int64(part), gradient, width, mask, codes, zero, scale, exact, bits, affine, factor, activation, sums
        )


@subroutine()
def _mask_gradient_part(  # type: ignore[no-untyped-def]
    part, gradient, width, mask, codes, zero, scale, exact, bits, affine, factor, activation, sums
):
    num_rows, columns, has_norm = gradient.size // width, np.uint64(width), affine.shape[1] > 0
    on, value = np.empty(GROUP, np.uint8), np.empty(GROUP, np.float32)
    ends, integers = np.empty(2, np.int32), np.empty(GROUP, np.uint8)
    own = np.uint64(part)
    position, stop = own * _SUM_ROWS * columns, np.uint64(min(num_rows, (part + 1) * SUM_ROWS)) * columns
    while position < stop:
        group = position // _GROUP
        start, column = position - group * _GROUP, position % columns
        _unpack(mask, group, 1, on.view(np.uint64))
        if bits > 0:
            _decode(codes, zero, scale, group, bits, ends, integers, value)
        else:
            for j in range(start, min(_GROUP, start + stop - position)):
                value[j] = exact[position + j - start]
        # To the end of the group, row by row.
        while start < _GROUP and position < stop:
            length = min(stop - position, _GROUP - start, columns - column)
            for i in range(length):
                gradient[position + i] *= factor if on[start + i] else _ZERO
            if has_norm:
                for i in range(length):
                    g = gradient[position + i]
                    sums[own, 0, column + i] += g
                    sums[own, 1, column + i] += value[start + i] * g
                if activation.size > 0:
                    for i in range(length):
                        a = value[start + i] * affine[0, column + i] + affine[1, column + i]
                        activation[position + i] = a * (factor if on[start + i] else _ZERO)
            elif activation.size > 0:
                for i in range(length):
                    activation[position + i] = value[start + i]
            position, start, column = position + length, start + length, np.uint64(0)


@kernel(parallel=True)
def hidden_gradient(gradient, width, codes, zero, scale, bits, factors, out, sums):  # type: ignore[no-untyped-def]
    """Write (x̂ slope + g - offset) scale, and add up its columns.

    Args:
        gradient: g.
        width: Columns.
        codes: Packed codes of x̂, as words of 64 bits.
        zero: Their zero points, the bits of bfloat16 values.
        scale: Their steps, likewise.
        bits: Of a code.
        factors: Slope, offset and scale, shape ``(3, width)``.
        out: What is written to, which may be ``gradient``.
        sums: Column sums of every 128 rows, zeros, shape ``(ceil(rows / 128), width)``.
    """
    for part in prange((gradient.size // width + SUM_ROWS - 1) // SUM_ROWS):
        _hidden_gradient_part(np.int64(part), gradient, width, codes, zero, scale, bits, factors, out, sums)


@subroutine()
def _hidden_gradient_part(part, gradient, width, codes, zero, scale, bits, factors, out, sums):  # type: ignore[no-untyped-def]
    num_rows, columns = gradient.size // width, np.uint64(width)
    value, ends, integers = np.empty(GROUP, np.float32), np.empty(2, np.int32), np.empty(GROUP, np.uint8)
    own = np.uint64(part)
    position, stop = own * _SUM_ROWS * columns, np.uint64(min(num_rows, (part + 1) * SUM_ROWS)) * columns
    while position < stop:
        group = position // _GROUP
        start, column = position - group * _GROUP, position % columns
        _decode(codes, zero, scale, group, bits, ends, integers, value)
        while start < _GROUP and position < stop:
            length = min(stop - position, _GROUP - start, columns - column)
            for i in range(length):
                shifted = value[start + i] * factors[0, column + i] + gradient[position + i]
                shifted = (shifted - factors[1, column + i]) * factors[2, column + i]
                out[position + i] = shifted
                sums[own, column + i] += shifted
            position, start, column = position + length, start + length, np.uint64(0)


@kernel(parallel=True)
def merge_moments(x, partial, mean, squares, seen):  # type: ignore[no-untyped-def]
    """Take more rows into column means and sums of squared distances from them (Chan, Golub and LeVeque).

    Args:
        x: Rows, shape ``(rows, width)``.
        partial: Room for the moments of every 128 rows, shape ``(ceil(rows / 128), 2, width)``.
        mean: Of the rows seen so far, shape ``(width,)``.
        squares: Likewise.
        seen: Number of rows seen so far.
    """
    num_rows, width = x.shape
    for part in prange(partial.shape[0]):
        own_mean, own_squares = partial[part, 0], partial[part, 1]
        own_mean[:] = 0
        own_squares[:] = 0
        first, stop = part * SUM_ROWS, min(num_rows, (part + 1) * SUM_ROWS)
        share = np.float32(1) / np.float32(stop - first)
        for row in range(first, stop):
            for column in range(width):
                own_mean[column] += x[row, column]
        for column in range(width):
            own_mean[column] *= share
        for row in range(first, stop):
            for column in range(width):
                distance = x[row, column] - own_mean[column]
                own_squares[column] += distance * distance
    count = seen
    for part in range(partial.shape[0]):
        more = min(SUM_ROWS, num_rows - part * SUM_ROWS)
        own, both = np.float32(more / (count + more)), np.float32(count * more / (count + more))
        for column in range(width):
            distance = partial[part, 0, column] - mean[column]
            squares[column] += partial[part, 1, column] + distance * distance * both
            mean[column] += distance * own
        count += more
