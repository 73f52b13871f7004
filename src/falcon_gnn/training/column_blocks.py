"""The gradient of a GCN's batch by blocks of columns: the door to the ways of taking it.

At full precision it is exactly that of the batch (:mod:`falcon_gnn.training.column_steps`); with ``bits`` hidden layers
are kept compressed (:mod:`falcon_gnn.training.coded_columns`); GAS reads its histories by the same columns
(:mod:`falcon_gnn.training.history_columns`).
"""

import torch
from torch import Tensor, nn

from falcon_gnn.quantization.chunks import row_chunks
from falcon_gnn.training.batches import Batch, GraphBatch
from falcon_gnn.training.coded_columns import CodedStep
from falcon_gnn.training.column_steps import BlockedStep
from falcon_gnn.training.config import Precision
from falcon_gnn.training.history import HistoryBatch, HistoryInput
from falcon_gnn.training.history_columns import CodedHistoryStep, HistoryStep
from falcon_gnn.training.models import GCN
from falcon_gnn.training.pieces import Pieces
from falcon_gnn.training.targets import Targets


def make_block_step(model: nn.Module, batch: Batch, precision: Precision, pieces: Pieces) -> BlockedStep | None:
    """Return the step that goes through a batch by columns; None where there are no hidden layers to go through so.

    Args:
        model: In training mode.
        batch: On the model's device. A single node has no moments of its own.
        precision: As in ``training_step``.
        pieces: How hidden layers are cut; a single block of columns is none.
    """
    if pieces.columns == 1 or not isinstance(model, GCN) or not isinstance(batch, GraphBatch | HistoryBatch):
        return None
    inputs, bits = batch.inputs, model.config.bits
    if model.config.num_layers == 1 or inputs.adjacency.num_rows == 1:
        return None
    dtype = torch.bfloat16 if precision == "bf16" else None
    # What a model of one hidden layer keeps is made of the features again: there is nothing to compress.
    is_coded = bits is not None and model.config.num_layers > 2
    if isinstance(inputs, HistoryInput):
        kind = CodedHistoryStep if is_coded else HistoryStep
        return kind(model, inputs, pieces.columns, dtype, pieces.walked)
    return (CodedStep if is_coded else BlockedStep)(model, inputs, pieces.columns, dtype, pieces.walked)


def add_block_gradients(step: BlockedStep, batch: Batch, weight: Tensor | float) -> Tensor:
    """Add the gradient of a batch's summed loss, divided by ``weight``, to the parameters' gradients; return the loss.

    Args:
        step: That of the batch.
        batch: With at least one target.
        weight: ``batch.targets.loss_weight`` for the mean loss.
    """
    assert isinstance(batch, GraphBatch | HistoryBatch)
    with torch.no_grad():
        outputs = step.forward()
        for parameter in step.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        loss, gradient = _differentiate(batch.targets, outputs, batch.rows, weight)
        del outputs
        step.backward(gradient)
    return loss


def _differentiate(
    targets: Targets, outputs: Tensor, rows: Tensor | None, weight: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient in the outputs of all nodes; ``outputs`` is used up."""
    total = torch.zeros((), dtype=torch.float64, device=outputs.device)
    gradient = outputs if rows is None else torch.zeros_like(outputs)
    for part in row_chunks(len(targets), outputs.shape[1]):
        ids = part if rows is None else rows[part]
        with torch.enable_grad():
            leaf = outputs[ids].detach().clone().requires_grad_()
            loss = targets.rows(part).summed_loss(leaf) / weight
            (gradient[ids],) = torch.autograd.grad(loss, leaf)
        total += loss.detach()
    return total, gradient
