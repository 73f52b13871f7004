"""Batch norm over the rows of all devices, on the CPU too; still a ``BatchNorm1d``, as the models expect."""

from typing import Any

import torch
from torch import Tensor, distributed, nn

from falcon_gnn.quantization.layers import update_running_statistics
from falcon_gnn.quantization.moments import SharedBatch


class SyncedBatchNorm(nn.BatchNorm1d):
    """Batch norm whose training moments are those of the global batch.

    Every device must call it equally often, if need be with no rows. ``torch.nn.SyncBatchNorm`` runs on CUDA only.
    """

    @classmethod
    def taking_over(cls, norm: nn.BatchNorm1d) -> "SyncedBatchNorm":
        """Return a layer with the parameters and buffers of another one, not copies of them."""
        synced = cls(norm.num_features, eps=norm.eps, momentum=norm.momentum)
        synced.weight, synced.bias = norm.weight, norm.bias
        synced.running_mean, synced.running_var = norm.running_mean, norm.running_var
        synced.num_batches_tracked = norm.num_batches_tracked
        return synced.train(norm.training)

    def share_batch(self, num_rows: int) -> SharedBatch:
        """Return the global batch, for layers that normalise compressed rows by themselves.

        Args:
            num_rows: Rows of this device.
        """
        counted = torch.full((), float(num_rows), dtype=torch.float64, device=self.weight.device)
        return SharedBatch(sum_over_devices, sum_over_devices(counted))

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised rows, shape ``(n_r, channels)``.

        Args:
            input: This device's rows, shape ``(n_r, channels)``.
        """
        if not self.training:
            return super().forward(input)
        rows = input.float()
        num_rows = sum_over_devices(torch.full((), float(rows.shape[0]), device=rows.device))
        mean = sum_over_devices(rows.sum(0)) / num_rows
        centred = rows - mean
        variance = sum_over_devices(centred.square().sum(0)) / num_rows
        update_running_statistics(self, mean.detach(), variance.detach(), num_rows)
        return centred * (variance + self.eps).rsqrt() * self.weight + self.bias


def synchronize_norms(model: nn.Module) -> None:
    """Make every batch norm of a model a :class:`SyncedBatchNorm`; parameters and ``state_dict`` stay the same."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm1d):
                setattr(module, name, SyncedBatchNorm.taking_over(child))


def sum_over_devices(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all devices; its gradient is the sum of their gradients."""
    total: Tensor = _SumOverDevices.apply(value)  # type: ignore[no-untyped-call]
    return total


class _SumOverDevices(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        distributed.all_reduce(total)
        return total
