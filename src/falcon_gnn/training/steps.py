"""One training step and one epoch of them; also what the memory measure and the planning run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from falcon_gnn.errors import OptionError
from falcon_gnn.training.batches import Batch
from falcon_gnn.training.config import Precision, TrainConfig

_FUSED_DEVICES = ("cpu", "cuda")


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Return Adam over a model's parameters, fused where torch can: without temporaries of the weights' size."""
    is_fused = next(model.parameters()).device.type in _FUSED_DEVICES
    return torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=is_fused or None
    )


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, precision: Precision) -> Tensor:
    """Move the weights once and return the loss before that, without its graph.

    Args:
        model: In training mode.
        optimizer: Of the model's parameters.
        batch: On the model's device, with at least one target.
        precision: ``bf16`` runs the forward pass under autocast.
    """
    device_type = batch.targets.values.device.type
    with torch.autocast(device_type, torch.bfloat16, enabled=precision == "bf16"):
        loss = batch.targets.loss(batch.outputs(model))
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def run_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[Batch], precision: Precision
) -> float:
    """Train on every batch and return the mean loss over the labelled nodes, by their weights.

    A batch without a label moves no weight; it is only run forward, for what that leaves behind (GAS histories).

    Args:
        model: The model.
        optimizer: Of its parameters.
        batches: The batches of the epoch.
        precision: As in :func:`training_step`.
    """
    model.train()
    device = next(model.parameters()).device
    total, count = torch.zeros(2, dtype=torch.float64, device=device)
    for batch in batches:
        ready = batch.to(device)
        if len(ready.targets) == 0:
            with torch.no_grad():
                ready.outputs(model)
            continue
        weight = ready.targets.total_weight
        total += training_step(model, optimizer, ready, precision) * weight
        count += weight
    return float(total / count)


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is CUDA where there is one, else the CPU.

    Raises:
        OptionError: If torch does not know the name or has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        msg = f"device must be auto or a device that torch can use here, got {name!r}: {error}"
        raise OptionError(msg) from error
    return device


@contextmanager
def own_randomness(seed: int, device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Seed torch's generators and choose its algorithms, and put both back afterwards.

    Args:
        seed: Seed of weights, dropout and stochastic rounding.
        device: Device whose generator is used beside the CPU's.
        deterministic: Whether algorithms that are not deterministic are refused.
    """
    devices = [device.index or 0] if device.type == "cuda" else []
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        if deterministic:
            # cuBLAS reads this once, when it is first used; without it torch refuses its products.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)
