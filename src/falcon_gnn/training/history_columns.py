"""A GAS batch's step by blocks of columns: histories are pushed and pulled by the same columns.

The halo takes part in each product forward and in the gradients of the weights; nothing goes back into it. A block is
remembered when it is made first, and what is pulled is never of the batch's own nodes, so that the order of the two
does not matter.
"""

import torch
from torch import Tensor

from falcon_gnn.quantization.draws import draw_row_seeds
from falcon_gnn.quantization.products import add_outer_, gradient_of
from falcon_gnn.training.coded_columns import CodedStep
from falcon_gnn.training.column_steps import BlockedStep
from falcon_gnn.training.history import HistoryInput
from falcon_gnn.training.models import GCN


class HistoryStep(BlockedStep):
    """One step over the blocks of a GAS batch; arguments as of :class:`BlockedStep`."""

    def __init__(
        self, model: GCN, inputs: HistoryInput, num_blocks: int, dtype: torch.dtype | None, walked: int | None
    ) -> None:
        super().__init__(model, inputs.inner, num_blocks, dtype, walked)
        self.halo, self.histories = inputs.halo, inputs.histories
        self.node_ids, self.halo_ids = inputs.node_ids, inputs.halo_ids
        self.halo_masks = self._draw_halo_masks()

    def _draw_halo_masks(self) -> list[Tensor]:
        """Return which values of each level's halo dropout keeps, shapes ``(h, ceil(channels / 8))``; none without.

        Seeds are drawn in the order of the unsplit step: of each level the batch's own, then the halo's.
        """
        if not self.model.config.dropout:
            return []
        masks = []
        for index in range(self.model.config.num_layers - 1):
            self.draws.seeds(index, 0, self.num_nodes)
            masks.append(self._draw_mask(draw_row_seeds(len(self.halo_ids)), len(self.halo_ids)))
        return masks

    def _remember(self, index: int, columns: slice, values: Tensor) -> None:
        self.histories.push(index, self.node_ids, values, columns)

    def _aggregate(self, index: int, columns: slice, activation: Tensor) -> Tensor:
        return super()._aggregate(index, columns, activation).add_(self._outside(index, columns, activation))

    def _add_to_outputs(self, outputs: Tensor, product: Tensor, columns: slice, activation: Tensor) -> None:
        super()._add_to_outputs(outputs, product, columns, activation)
        head = self.model.layer(self.model.config.num_layers - 1)
        outside = self._outside(self.model.config.num_layers - 2, columns, activation)
        self._add_to(outputs, outside, head.weight[columns])

    def _add_head_gradient(self, columns: slice, activation: Tensor, back: Tensor, gradient: Tensor) -> None:
        super()._add_head_gradient(columns, activation, back, gradient)
        head = self.model.layer(self.model.config.num_layers - 1)
        outside = self._outside(self.model.config.num_layers - 2, columns, activation)
        add_outer_(gradient_of(head.weight)[columns], outside, gradient, self.dtype)

    def _outside(self, index: int, columns: slice, like: Tensor) -> Tensor:
        """Return what the halo adds to a block's aggregation, shape ``(n, c)``."""
        pulled = self.histories.pull(index, self.halo_ids, like.device, columns).to(like.dtype)
        if self.halo_masks:
            self._drop(pulled, self.halo_masks[index], columns)
        return self.halo @ pulled


class CodedHistoryStep(HistoryStep, CodedStep):
    """The same with compressed activations; pulled vectors are read anew where they are needed."""
