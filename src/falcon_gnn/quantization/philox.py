"""Random numbers by counting (Philox4x32-10), for accelerators: a value's draw depends on its place and the seed alone.

Neither the number of threads, nor the card, nor the piece that is worked on has a say, and the seed is a tensor, so
that nothing is read back from the device. One call of Philox serves the eight values that share a byte of a mask: with
v = 32 p + k the place of a value in its group of 256 and g the group's number under its seed, the counter is 32 g + k,
and the value takes the lower (even p) or upper (odd p) half of word p // 2.

This is the meaning, in plain torch; :mod:`falcon_gnn.quantization.triton_kernels` does the same inside its kernels.
"""

import torch
from torch import Tensor

_GROUP_SIZE = 256
_LOW = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def group_halves(seeds: Tensor, groups: slice, groups_per_seed: int) -> Tensor:
    """Return 16 random bits for every value of some groups, int32 in [0, 65536), shape ``(groups, 256)``.

    Args:
        seeds: One seed for ``groups_per_seed`` groups each, int64, shape ``(num_seeds,)``.
        groups: The groups' numbers.
        groups_per_seed: Groups that share a seed.
    """
    numbers = torch.arange(groups.start, groups.stop, device=seeds.device)
    seed = seeds[torch.div(numbers, groups_per_seed, rounding_mode="floor")][:, None]
    first = (numbers % groups_per_seed * 32)[:, None]
    counters = first + torch.arange(32, device=seeds.device)
    halves = torch.empty(len(numbers), 4, 2, 32, dtype=torch.int32, device=seeds.device)
    for place, word in enumerate(philox(seed, counters)):
        halves[:, place, 0], halves[:, place, 1] = word & 0xFFFF, word >> 16
    return halves.view(-1, _GROUP_SIZE)


def halves_bytes(num_values: int) -> int:
    """Return about how many bytes :func:`group_halves` holds for so many values, its result among them."""
    return 14 * num_values


def philox(seed: Tensor, counter: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the four words of Philox4x32-10 for 64-bit seeds and counters, int64 in [0, 2³²), shape of ``counter``.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
    """
    a, b = counter & _LOW, (counter >> 32) & _LOW
    c, d = torch.zeros_like(a), torch.zeros_like(a)
    low_key, high_key = seed & _LOW, (seed >> 32) & _LOW
    for _ in range(_ROUNDS):
        # A product of two words wraps around as a signed number; its halves are right all the same.
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = ((right >> 32) & _LOW) ^ b ^ low_key, right & _LOW
        c, d = ((left >> 32) & _LOW) ^ d ^ high_key, left & _LOW
        low_key, high_key = (low_key + _KEY_STEPS[0]) & _LOW, (high_key + _KEY_STEPS[1]) & _LOW
    return a, b, c, d
