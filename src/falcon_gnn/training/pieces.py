"""The gradient of a batch of rows, taken in pieces: exactly that of the batch, in the memory of a piece."""

from dataclasses import dataclass, replace
from math import ceil

import torch
from torch import Tensor, nn

from falcon_gnn.quantization.codec import SEED_ROWS
from falcon_gnn.quantization.draws import StepDraws
from falcon_gnn.quantization.layers import check_rows
from falcon_gnn.quantization.row_blocks import HasRowChain
from falcon_gnn.training.batches import RowBatch
from falcon_gnn.training.coded_rows import CodedRowStep
from falcon_gnn.training.config import Precision
from falcon_gnn.training.row_steps import BatchLoss, RowStep


@dataclass(frozen=True)
class Pieces:
    """How a batch of rows is cut.

    Attributes:
        count: Pieces, at most; each is made of whole blocks of 256 rows.
        keep_matrix: Whether one hidden matrix of the whole batch is kept between sweeps, where there are norms.
        columns: Blocks of columns of a GCN's hidden layers (:mod:`falcon_gnn.training.column_blocks`).
        walked: Pieces that are gone through at all; None for all of them. Memory is predicted from the first few.
    """

    count: int = 1
    keep_matrix: bool = True
    columns: int = 1
    walked: int | None = None

    def cut(self, num_rows: int) -> list[slice]:
        """Return ranges of rows that cover a batch."""
        num_blocks = ceil(num_rows / SEED_ROWS)
        step = ceil(num_blocks / min(self.count, num_blocks)) * SEED_ROWS
        return [slice(first, min(first + step, num_rows)) for first in range(0, num_rows, step)]


WHOLE = Pieces()


def add_gradients(model: nn.Module, batch: RowBatch, precision: Precision, pieces: Pieces) -> Tensor:
    """Give the parameters the gradient of a batch's mean loss; return the loss.

    Args:
        model: In training mode.
        batch: On the model's device, with at least one target.
        precision: As in ``training_step``.
        pieces: How to cut it.
    """
    rows = pieces.cut(len(batch.features))
    draws, loss = StepDraws(len(batch.features)), BatchLoss(batch.targets)
    is_bf16 = precision == "bf16"
    if not isinstance(model, HasRowChain):
        for part in rows[: pieces.walked]:
            with torch.autocast(batch.features.device.type, torch.bfloat16, enabled=is_bf16), draws.piece(part.start):
                share = loss.share(replace(batch, features=batch.features[part]).outputs(model), part)
            share.backward()  # type: ignore[no-untyped-call]
        return loss.total
    chain = model.row_chain()
    normalizes = len(chain.blocks) > 0 and chain.blocks[0].norm is not None
    kind = CodedRowStep if normalizes and chain.blocks[0].bits is not None else RowStep
    step = kind(chain, batch.features, rows, draws, loss, torch.bfloat16 if is_bf16 else None, pieces.walked)
    # Gradients are made as they are first added to: what the moments are found with needs none.
    model.zero_grad()
    with torch.no_grad():
        if normalizes:
            check_rows(batch.features)
            step.find_moments(keep_matrix=pieces.keep_matrix)
        step.add_gradients()
    return loss.total
