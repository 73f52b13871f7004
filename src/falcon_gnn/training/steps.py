"""One training step and one epoch of them; also what the memory measure and the planning run."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import torch
import torch.utils.deterministic
from torch import Tensor, nn

from falcon_gnn.errors import OptionError
from falcon_gnn.threads import TRAINING
from falcon_gnn.training.batches import RowBatch, UnsentBatch
from falcon_gnn.training.column_blocks import add_block_gradients, make_block_step
from falcon_gnn.training.config import Precision, TrainConfig
from falcon_gnn.training.pieces import WHOLE, Pieces, add_gradients
from falcon_gnn.training.transfer import locked_batch, read_ahead
from falcon_gnn.training.usual_torch import usual_torch

_FUSED_DEVICES = ("cpu", "cuda")


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Return Adam over a model's parameters, fused where torch can: without temporaries of the weights' size."""
    is_fused = next(model.parameters()).device.type in _FUSED_DEVICES
    return torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=is_fused or None
    )


def pieces_of(config: TrainConfig) -> Pieces:
    """Return how a configuration cuts a batch of rows."""
    return Pieces(config.micro_batches, config.keep_matrix, config.column_blocks)


def group_size(config: TrainConfig) -> int:
    """Return how many batches of parts move the weights together; 1 for the other models."""
    return config.micro_batches if config.model.uses_parts else 1


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[UnsentBatch],
    precision: Precision,
    pieces: Pieces = WHOLE,
) -> tuple[Tensor, Tensor | float] | None:
    """Move the weights once by the gradient of the mean loss over some batches.

    A batch without a label is only run forward, for what that leaves behind (GAS histories).

    Args:
        model: In training mode.
        optimizer: Of the model's parameters.
        batches: Moved to the model's device one by one.
        precision: ``bf16`` runs the forward pass under autocast.
        pieces: How a batch of rows is cut.

    Returns:
        The loss before the step, without its graph, and the weight of the nodes that it is a mean over. None without
        any label, where the weights stay.
    """
    is_single = len(batches) == 1
    device = next(model.parameters()).device
    sums: list[tuple[Tensor, Tensor | float, Tensor | float]] = []
    for batch in batches:
        ready = batch.to(device)
        targets = ready.targets
        by_columns = make_block_step(model, ready, precision, pieces)
        if len(targets) == 0:
            with torch.no_grad():
                _ = ready.outputs(model) if by_columns is None else by_columns.forward()
            continue
        if is_single and pieces.count > 1 and isinstance(ready, RowBatch):
            loss = add_gradients(model, ready, precision, pieces)
        elif by_columns is not None:
            loss = add_block_gradients(by_columns, ready, targets.loss_weight if is_single else 1.0)
        else:
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                outputs = ready.outputs(model)
                loss = targets.loss(outputs) if is_single else targets.summed_loss(outputs)
            del outputs
            loss.backward()  # type: ignore[no-untyped-call]
        sums.append((loss.detach(), 1.0 if is_single else targets.loss_weight, targets.total_weight))
    if not sums:
        return None
    loss, loss_weight, weight = (torch.as_tensor(sum(parts)) for parts in zip(*sums, strict=True))
    if not is_single:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(loss_weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss / loss_weight, weight


def run_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[UnsentBatch], config: TrainConfig
) -> float:
    """Train on every batch and return the mean loss over the labelled nodes, by their weights.

    Args:
        model: The model.
        optimizer: Of its parameters.
        batches: The batches of the epoch.
        config: How a step is taken.
    """
    model.train()
    device = next(model.parameters()).device
    batches = read_for(device, batches)
    total, count = torch.zeros(2, dtype=torch.float64, device=device)
    while group := list(islice(batches, group_size(config))):
        done = training_step(model, optimizer, group, config.precision, pieces_of(config))
        if done is not None:
            loss, weight = done
            total += loss * weight
            count += weight
    return float(total / count)


def read_for(device: torch.device, batches: Iterator[UnsentBatch]) -> Iterator[UnsentBatch]:
    """Yield batches for a device: for a card a thread makes and page-locks each while the one before is used."""
    return read_ahead(map(locked_batch, batches)) if device.type == "cuda" else batches


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is CUDA where there is one, else the CPU.

    Raises:
        OptionError: If torch does not know the name, has no such device, or the device holds no values.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        msg = f"device must be auto or a device that torch can use here, got {name!r}: {error}"
        raise OptionError(msg) from error
    if device.type == "meta":
        msg = f"device must be auto or a device that holds values, got {name!r}. Use 'cpu'."
        raise OptionError(msg)
    return device


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse a precision that a device does not compute in.

    Raises:
        OptionError: If it does not.
    """
    is_cuda = device.type == "cuda"
    if precision == "bf16" and is_cuda and not torch.cuda.is_bf16_supported(including_emulation=False):
        card = torch.cuda.get_device_name(device)
        msg = f"precision='bf16' needs a card that computes in bfloat16, got {card}. Use precision='float32'."
        raise OptionError(msg)
    if precision == "tf32" and not is_cuda:
        msg = f"precision='tf32' is a way of CUDA cards to multiply, got device {device.type!r}. Use 'float32'."
        raise OptionError(msg)


@contextmanager
def own_settings(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Do the same as :func:`own_randomness` and :func:`usual_torch`, one training at a time in a process.

    Float32 products are in TF32 if the configuration says so.

    Raises:
        OptionError: If the device does not compute in the configured precision.
    """
    check_precision(config.precision, device)
    with TRAINING.taken(), usual_torch(), own_randomness(config.seed, device, deterministic=config.deterministic):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = config.precision == "tf32"
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def own_randomness(seed: int, device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Seed the generators that a training draws from and choose torch's algorithms, and put both back afterwards.

    Args:
        seed: Seed of weights, dropout and stochastic rounding.
        device: Device whose generator is used beside the CPU's.
        deterministic: Whether algorithms that are not deterministic are refused.
    """
    devices = []
    if device.type == "cuda":
        devices = [torch.cuda.current_device() if device.index is None else device.index]
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with torch.random.fork_rng(devices):
        _seed_generators(seed, device, devices)
        if deterministic:
            # cuBLAS reads this once, when it is first used; without it torch refuses its products.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
            # No operator here reads memory that it has not written; filling it all would be a launch for each tensor.
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)
            torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


def _seed_generators(seed: int, device: torch.device, cards: list[int]) -> None:
    """Seed the CPU's generator and the device's; torch.manual_seed would seed those of all the user's cards."""
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    for card in cards:
        torch.cuda.default_generators[card].manual_seed(seed)
