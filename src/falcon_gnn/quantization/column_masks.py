"""Masks of a matrix that is worked on by blocks of columns: eight columns to a byte, the first in the lowest bit."""

from functools import cache

import torch
from torch import Tensor

from falcon_gnn.quantization.codec import block_values
from falcon_gnn.quantization.kernel_choice import are_plain_float32, device_type, run_kernels
from falcon_gnn.quantization.temporaries import declares_temporaries

_COLUMNS = 8
"""Columns whose bits share a byte."""


def pack_columns(mask: Tensor) -> Tensor:
    """Return a bool matrix of shape ``(n, c)`` as bits, uint8, shape ``(n, ceil(c / 8))``."""
    num_rows, width = mask.shape
    padded = mask if width % _COLUMNS == 0 else torch.nn.functional.pad(mask, (0, -width % _COLUMNS))
    values = padded.view(torch.uint8).view(num_rows, _num_octets(width), _COLUMNS)
    return (values * _bit_values(mask.device)).sum(2, dtype=torch.uint8)


@torch.library.custom_op("falcon_gnn::mask_columns_", mutates_args=("values",))
def mask_columns_(values: Tensor, packed: Tensor, first: int, factor: float) -> None:
    """Multiply columns in place with ``factor`` where a bit is set and with 0 elsewhere.

    Args:
        values: Some columns of a matrix, shape ``(n, c)``.
        packed: The bits of all its columns, as :func:`pack_columns` returns them.
        first: Which of them is the first of ``values``; a multiple of eight.
        factor: The factor.
    """
    octets = packed[:, first // _COLUMNS : _num_octets(first + values.shape[1])]
    multipliers = _every_octet(values.device).to(values.dtype).mul_(factor)
    step = _rows_at_once(values)
    for part, target in zip(torch.split(octets, step), torch.split(values, step), strict=True):
        looked_up = multipliers.index_select(0, part.flatten().int()).view(len(part), _COLUMNS * part.shape[1])
        target.mul_(looked_up[:, : values.shape[1]])
        del looked_up


@mask_columns_.register_fake
def _(values: Tensor, packed: Tensor, first: int, factor: float) -> None:
    return None


run_kernels(mask_columns_, "mask_columns_", lambda *_: False, fits_cpu=are_plain_float32)


@declares_temporaries("falcon_gnn::mask_columns_")
def _(values: Tensor, packed: Tensor, first: int, factor: float) -> int:
    if device_type(values) == "cpu" and are_plain_float32(values):
        return 0
    num_octets = _num_octets(values.shape[1])
    rows = min(len(values), _rows_at_once(values))
    table = 256 * _COLUMNS * values.element_size()
    return table + rows * num_octets * (4 + _COLUMNS * values.element_size())


def _rows_at_once(values: Tensor) -> int:
    padded = _COLUMNS * _num_octets(values.shape[1])
    return max(1, block_values(torch.device(device_type(values))) // max(padded, 1))


def _num_octets(width: int) -> int:
    return -(-width // _COLUMNS)


@cache
def _every_octet(device: torch.device) -> Tensor:
    """Return the bits of every byte, bool, shape ``(256, 8)``."""
    return torch.arange(256, device=device)[:, None].bitwise_and(_bit_values(device)).ne(0)


def _bit_values(device: torch.device) -> Tensor:
    return (1 << torch.arange(_COLUMNS, device=device)).to(torch.uint8)
