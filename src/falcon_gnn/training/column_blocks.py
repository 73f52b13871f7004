"""The gradient of a GCN's batch by blocks of columns: the door to the two ways of taking it.

At full precision it is exactly that of the batch (:mod:`falcon_gnn.training.column_steps`); with ``bits`` hidden layers
are kept compressed (:mod:`falcon_gnn.training.coded_columns`).
"""

import torch
from torch import Tensor

from falcon_gnn.quantization.chunks import row_chunks
from falcon_gnn.training.batches import GraphBatch
from falcon_gnn.training.coded_columns import CodedStep
from falcon_gnn.training.column_steps import BlockedStep
from falcon_gnn.training.config import Precision
from falcon_gnn.training.models import GCN
from falcon_gnn.training.targets import Targets


def add_block_gradients(
    model: GCN,
    batch: GraphBatch,
    precision: Precision,
    num_blocks: int,
    weight: Tensor | float,
    walked: int | None = None,
) -> Tensor:
    """Add the gradient of a batch's summed loss, divided by ``weight``, to the parameters' gradients; return the loss.

    Args:
        model: In training mode, with at least one hidden layer.
        batch: On the model's device, with at least one target.
        precision: As in ``training_step``.
        num_blocks: Into how many blocks of columns a hidden layer is cut.
        weight: ``batch.targets.loss_weight`` for the mean loss.
        walked: Blocks that are gone through at all; None for all of them. Memory is predicted from the first few.
    """
    with torch.no_grad():
        dtype = torch.bfloat16 if precision == "bf16" else None
        # What a model of one hidden layer keeps is made of the features again: there is nothing to compress.
        is_coded = model.config.bits is not None and model.config.num_layers > 2
        step = (CodedStep if is_coded else BlockedStep)(model, batch.inputs, num_blocks, dtype, walked)
        outputs = step.forward()
        for parameter in model.parameters():
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
