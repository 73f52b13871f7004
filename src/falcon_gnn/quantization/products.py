"""Matrix products in the type that autocast wants, written where they are wanted."""

import torch
from torch import Tensor

from falcon_gnn.quantization.kernel_choice import device_type

_LARGE_VALUES = 1 << 20
"""Values from which a sum on CUDA is worth a launch more."""


def product_dtype(x: Tensor) -> torch.dtype | None:
    """Return the dtype in which autocast wants matrix products with ``x``; None outside autocast."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def multiply(a: Tensor, b: Tensor, out: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Write the matrix product of two matrices to ``out``, computed in ``dtype`` if one is given, and return it."""
    if dtype is None:
        return torch.mm(a, b, out=out)
    return out.copy_(torch.mm(a.to(dtype), b.to(dtype)))


def add_outer_(total: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype | None) -> None:
    """Add the product of ``a`` transposed and ``b``, computed in ``dtype`` if one is given, to ``total``."""
    add_product_(total, a.t(), b, dtype)


def add_product(bias: Tensor, a: Tensor, b: Tensor, out: Tensor, dtype: torch.dtype | None) -> None:
    """Write the matrix product of two matrices plus a row to ``out``; the product in ``dtype`` if one is given."""
    if dtype is None:
        torch.addmm(bias, a, b, out=out)
    else:
        out.copy_(torch.mm(a.to(dtype), b.to(dtype))).add_(bias)


def add_product_(total: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype | None) -> None:
    """Add the matrix product of two matrices, computed in ``dtype`` if one is given, to ``total``."""
    if dtype is None:
        total.addmm_(a, b)
    else:
        total.add_(torch.mm(a.to(dtype), b.to(dtype)))


def column_sums(matrix: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the column sums of a matrix, in ``dtype`` if one is given, shape ``(columns,)``.

    Those of a large matrix are a product with ones on CUDA: torch's own sum of 4,491 x 1,024 values holds 36 MiB
    inside, twice the matrix.
    """
    if device_type(matrix) != "cuda" or matrix.numel() < _LARGE_VALUES:
        return matrix.sum(0, dtype=dtype)
    sums = torch.mv(matrix.t(), matrix.new_ones(matrix.shape[0]))
    return sums if dtype is None else sums.to(dtype)


def gradient_of(parameter: Tensor) -> Tensor:
    """Return the gradient that a parameter has, to add to; zeros if it has none yet."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
