"""Matrices in blocks of rows, so that work on a large one needs temporaries of a fixed size only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from falcon_gnn.quantization.codec import QuantizedTensor

CHUNK_VALUES = 1 << 19
MOST_CHUNKS = 32
"""Chunks of a matrix, which grow where there would be more: predicting a step goes through every one of them."""

# A matrix product over fewer rows than this no longer keeps the processor busy.
_FEWEST_ROWS = 32


def row_chunks(num_rows: int, width: int) -> Iterator[slice]:
    """Yield ranges of rows that cover ``num_rows``, each of about 524,288 values, or more where 32 would not do.

    Args:
        num_rows: Rows of the matrix.
        width: Columns of the widest matrix that is worked on.
    """
    step = max(_FEWEST_ROWS, CHUNK_VALUES // max(width, 1), ceil(num_rows / MOST_CHUNKS))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def product_dtype(x: Tensor) -> torch.dtype | None:
    """Return the dtype in which autocast wants matrix products with ``x``; None outside autocast."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


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


class Scratch:
    """Chunk-sized matrices that are made once and used for every chunk.

    A fresh one per chunk would go back to the system and come back page by page, which costs as much as the arithmetic.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a contiguous matrix of undefined content, valid until the name is taken again.

        Args:
            name: What it is for: matrices of different names do not overlap.
            shape: Rows and columns.
        """
        size = shape[0] * shape[1]
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[name] = self._like.new_empty(size)
        return buffer[:size].view(shape[0], shape[1])


@dataclass(frozen=True)
class SharedBatch:
    """A batch whose rows are shared out among several devices.

    Attributes:
        add_up: Returns the sum of a tensor over the devices, the same on each.
        num_rows: Rows on all devices together.
    """

    add_up: Callable[[Tensor], Tensor]
    num_rows: int


class ColumnMoments:
    """Mean and variance of a matrix's columns, gathered chunk by chunk without cancellation.

    Attributes:
        count: Rows seen.
        mean: Column means, shape ``(width,)``.
        squares: Sums of squared distances from the mean, shape ``(width,)``.
    """

    def __init__(self, width: int, like: Tensor) -> None:
        self.count = 0
        self.mean = like.new_zeros(width)
        self.squares = like.new_zeros(width)

    def update(self, chunk: Tensor, scratch: Scratch) -> None:
        """Take in more rows (pairwise merge of Chan, Golub and LeVeque).

        Args:
            chunk: At least one row, shape ``(rows, width)``.
            scratch: Its matrix "centred" is used.
        """
        mean = chunk.mean(0)
        centred = torch.sub(chunk, mean, out=scratch.take("centred", chunk.shape))
        squares = centred.square_().sum(0)
        total = self.count + len(chunk)
        distance = mean.sub_(self.mean)
        self.squares.add_(squares).addcmul_(distance, distance, value=self.count * len(chunk) / total)
        self.mean.add_(distance, alpha=len(chunk) / total)
        self.count = total

    def share(self, batch: SharedBatch) -> None:
        """Take in the rows that the other devices saw, once all of this device's are in."""
        mean = batch.add_up(self.mean * self.count) / batch.num_rows
        distance = self.mean - mean
        self.squares = batch.add_up(self.squares + self.count * distance.square_())
        self.count, self.mean = batch.num_rows, mean

    @property
    def variance(self) -> Tensor:
        """Biased variance, shape ``(width,)``; 0 where no row was seen."""
        return self.squares / max(self.count, 1)


def multiply(a: Tensor, b: Tensor, out: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Write the matrix product of two matrices to ``out``, computed in ``dtype`` if one is given, and return it."""
    if dtype is None:
        return torch.mm(a, b, out=out)
    return out.copy_(torch.mm(a.to(dtype), b.to(dtype)))


def add_outer_(total: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype | None) -> None:
    """Add the product of ``a`` transposed and ``b``, computed in ``dtype`` if one is given, to ``total``."""
    if dtype is None:
        total.addmm_(a.t(), b)
    else:
        total.add_(torch.mm(a.t().to(dtype), b.to(dtype)))


def add_product(bias: Tensor, a: Tensor, b: Tensor, out: Tensor, dtype: torch.dtype | None) -> None:
    """Write the matrix product of two matrices plus a row to ``out``; the product in ``dtype`` if one is given."""
    if dtype is None:
        torch.addmm(bias, a, b, out=out)
    else:
        out.copy_(torch.mm(a.to(dtype), b.to(dtype))).add_(bias)
