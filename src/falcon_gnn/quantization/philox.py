"""Random numbers by counting (Philox4x32-10): a value's draw depends on its place and the seed alone.

Neither the number of threads, nor the device, nor the piece that is worked on has a say, and the seed is a tensor, so
that nothing is read back from the device. One call of Philox serves the eight values that share a byte of a mask: with
v = 32 p + k the place of a value in its group of 256 and g the group's number under its seed, the counter is 32 g + k,
and the value takes the lower (even p) or upper (odd p) half of word p // 2.

This is the meaning, in plain torch; :mod:`falcon_gnn.quantization.triton_kernels` and
:mod:`falcon_gnn._kernels.activations` do the same inside their kernels.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

_GROUP_SIZE = 256
_LOW = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def seed_groups(seed: Tensor, shape: Sequence[int]) -> int:
    """Return how many groups of 256 values share a seed: those of 256 rows, or all where there is one seed only."""
    return max(1, shape[1]) if seed.numel() > 1 else max(1, -(-prod(shape) // _GROUP_SIZE))


def value_halves(seed: Tensor, values: slice, shape: Sequence[int], device: torch.device) -> Tensor:
    """Return 16 random bits for each of some values of a tensor, int32 in [0, 65536), shape ``(values,)``.

    Args:
        seed: One seed, or one for every 256 rows of a matrix.
        values: In row-major order; they may end beyond the tensor.
        shape: Of the tensor.
        device: Of the result.
    """
    groups = slice(values.start // _GROUP_SIZE, -(-values.stop // _GROUP_SIZE))
    halves = group_halves(seed.view(-1).to(device), groups, seed_groups(seed, shape))
    first = values.start - groups.start * _GROUP_SIZE
    return halves.view(-1)[first : first + values.stop - values.start]


def group_halves(seeds: Tensor, groups: slice, groups_per_seed: int) -> Tensor:
    """Return 16 random bits for every value of some groups, int32 in [0, 65536), shape ``(groups, 256)``.

    Args:
        seeds: One seed for ``groups_per_seed`` groups each, int64, shape ``(num_seeds,)``.
        groups: The groups' numbers.
        groups_per_seed: Groups that share a seed.
    """
    numbers = torch.arange(groups.start, groups.stop, device=seeds.device)
    # A last group of another size may be filled up beyond the last seed: what is drawn there is read by nobody.
    order = torch.div(numbers, groups_per_seed, rounding_mode="floor").clamp_(max=len(seeds) - 1)
    seed = seeds[order][:, None]
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
