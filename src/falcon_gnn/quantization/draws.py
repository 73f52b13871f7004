"""Seeds of the random draws of a training step, which must not depend on the pieces that the step is taken in.

Dropout and stochastic rounding have one seed for each place in the model and each block of 256 rows. A piece is made of
whole blocks, so that it draws what the same rows of the whole batch would.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import ceil

from torch import Tensor

from falcon_gnn.quantization.codec import SEED_ROWS, draw_seeds


class StepDraws:
    """The seeds of one step, drawn from torch's default generator place by place as they are first asked for.

    Args:
        num_rows: Rows of the whole batch.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_blocks = ceil(num_rows / SEED_ROWS)
        self._seeds: list[Tensor] = []
        self._first_row = self._place = 0

    def seeds(self, place: int, first_row: int, num_rows: int) -> Tensor:
        """Return the seeds of a place for some rows, shape ``(ceil(num_rows / 256),)``.

        Args:
            place: Number of the draw among those of a forward pass.
            first_row: A multiple of 256.
            num_rows: Rows from there on.
        """
        while len(self._seeds) <= place:
            self._seeds.append(draw_seeds(self.num_blocks))
        return seeds_of(self._seeds[place], slice(first_row, first_row + num_rows))

    @contextmanager
    def piece(self, first_row: int) -> Iterator[None]:
        """Let a forward pass inside draw as the rows from ``first_row`` on, a multiple of 256, would in the batch."""
        self._first_row, self._place = first_row, 0
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def take(self, num_rows: int) -> Tensor:
        """Return the seeds of the piece's next place, shape ``(ceil(num_rows / 256),)``."""
        self._place += 1
        return self.seeds(self._place - 1, self._first_row, num_rows)


_CURRENT: ContextVar[StepDraws | None] = ContextVar("step_draws", default=None)


def draw_row_seeds(num_rows: int) -> Tensor:
    """Return a seed for every 256 rows of a matrix, shape ``(ceil(num_rows / 256),)``; at least one."""
    step = _CURRENT.get()
    return draw_seeds(max(1, ceil(num_rows / SEED_ROWS))) if step is None else step.take(num_rows)


def seeds_of(seeds: Tensor, rows: slice) -> Tensor:
    """Return the seeds of some rows, given as a range that starts at a multiple of 256."""
    return seeds[rows.start // SEED_ROWS : ceil(rows.stop / SEED_ROWS)]
