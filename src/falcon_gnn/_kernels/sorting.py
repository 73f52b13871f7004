"""Sorting of words of 64 bits by counting, in pieces that lie in a core's cache."""

import numpy as np

from falcon_gnn._kernels.compiling import subroutine

_DIGIT_BITS = 11
_FEW = 64


@subroutine()
def sort_words(words, scratch, num_bits):  # type: ignore[no-untyped-def]
    """Sort unsigned words below ``2**num_bits`` in place, lowest digits first; ``scratch`` is as long at least.

    A pass costs some 2 ns per word where both arrays lie in a cache, whatever the order; comparing rows of a hundred
    entries costs ten times that.
    """
    size = words.size
    if size <= _FEW:
        words.sort()
        return
    num_passes = max(1, (num_bits + _DIGIT_BITS - 1) // _DIGIT_BITS)
    digit_bits = (num_bits + num_passes - 1) // num_passes
    mask = np.uint64((1 << digit_bits) - 1)
    places = np.zeros((num_passes, 1 << digit_bits), np.int64)
    for i in range(size):
        word = words[i]
        for digit in range(num_passes):
            places[digit, (word >> np.uint64(digit * digit_bits)) & mask] += 1
    source, target = words, scratch[:size]
    for digit in range(num_passes):
        total = 0
        for value in range(places.shape[1]):
            count = places[digit, value]
            places[digit, value] = total
            total += count
        shift = np.uint64(digit * digit_bits)
        for i in range(size):
            word = source[i]
            value = (word >> shift) & mask
            target[np.uint64(places[digit, value])] = word
            places[digit, value] += 1
        source, target = target, source
    if num_passes % 2 == 1:
        words[:] = scratch[:size]
