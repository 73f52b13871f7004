"""Quantised chunks in the form in which autograd saves them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from falcon_gnn.quantization.codec import QuantizedTensor


def flatten_codes(chunks: Sequence[QuantizedTensor]) -> list[Tensor]:
    """Return the tensors of quantised chunks in the form ``save_for_backward`` takes them.

    Zero points and steps go as int16: saved-tensor hooks that compress floating tensors must not compress them again.
    """
    return [part for q in chunks for part in (q.packed, q.zero.view(torch.int16), q.scale.view(torch.int16))]


def restore_codes(
    tensors: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, bits: int
) -> list[QuantizedTensor]:
    """Return the quantised chunks whose tensors :func:`flatten_codes` returned.

    Args:
        tensors: Three tensors per chunk.
        shapes: Shape of each chunk.
        dtype: Dtype in which the chunks come back.
        bits: Bits per value.
    """
    parts = zip(tensors[0::3], tensors[1::3], tensors[2::3], shapes, strict=True)
    return [
        QuantizedTensor(packed, zero.view(torch.bfloat16), scale.view(torch.bfloat16), shape, dtype, bits)
        for packed, zero, scale, shape in parts
    ]
