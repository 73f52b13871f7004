"""Matrices in chunks of rows, so that work on a large one needs temporaries of a fixed size only."""

from collections.abc import Iterator, Sequence
from math import ceil

from torch import Tensor

from falcon_gnn.quantization.codec import SEED_ROWS
from falcon_gnn.quantization.kernel_choice import device_type

CHUNK_VALUES = 1 << 19
DEVICE_CHUNK_VALUES = 1 << 22
"""Values of a chunk where every operation has to be launched."""
MOST_CHUNKS = 32
"""Chunks of a matrix, which grow where there would be more: predicting a step goes through every one of them."""


def row_chunks(num_rows: int, width: int, like: Tensor | None = None) -> Iterator[slice]:
    """Yield ranges of rows that cover ``num_rows``, each of about 524,288 values, or more where 32 would not do.

    A chunk is made of whole blocks of 256 rows, which have their random draws to themselves.

    Args:
        num_rows: Rows of the matrix.
        width: Columns of the widest matrix that is worked on.
        like: A tensor on the device that works; on an accelerator a chunk has 4,194,304 values. None for the CPU.
    """
    values = CHUNK_VALUES if like is None or device_type(like) == "cpu" else DEVICE_CHUNK_VALUES
    rows = max(1, values // max(width, 1), ceil(num_rows / MOST_CHUNKS))
    step = ceil(rows / SEED_ROWS) * SEED_ROWS
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


class Scratch:
    """Chunk-sized matrices that are made once and used for every chunk.

    A fresh one per chunk would go back to the system and come back page by page, which costs as much as the arithmetic.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._buffers: dict[str, Tensor] = {}
        self._taken: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a contiguous matrix of undefined content, valid until the name is taken again.

        Args:
            name: What it is for: matrices of different names do not overlap.
            shape: Rows and columns.
        """
        taken = self._taken.get(name)
        if taken is None or taken.shape != tuple(shape):
            size = shape[0] * shape[1]
            buffer = self._buffers.get(name)
            if buffer is None or len(buffer) < size:
                buffer = self._buffers[name] = self._like.new_empty(size)
            taken = self._taken[name] = buffer[:size].view(shape[0], shape[1])
        return taken
