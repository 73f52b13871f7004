"""What the tests of compressed layers share: gradients of a model, and the bytes that it saves for them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _saved_bytes(run: Callable[[], object], inputs: Tensor | None = None) -> int:
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        is_input = inputs is not None and storage is inputs.untyped_storage()
        if not isinstance(tensor, nn.Parameter) and not isinstance(tensor._base, nn.Parameter) and not is_input:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run()
    total = sum(saved.values())
    del output
    return total


@pytest.fixture
def saved_bytes() -> Callable[..., int]:
    """Return a function from a forward pass to the bytes it saves, parameters and ``inputs`` apart."""
    return _saved_bytes


def _gradients(model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    (model(x) * target).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture
def gradients() -> Callable[[nn.Module, Tensor, Tensor], dict[str, Tensor]]:
    """Return a function that gives a model's parameter gradients for the output gradient ``target``."""
    return _gradients


def _relative_error(value: Tensor, expected: Tensor) -> float:
    return float((value - expected).norm() / expected.norm())


@pytest.fixture
def relative_error() -> Callable[[Tensor, Tensor], float]:
    """Return a function that gives the distance of two tensors over the length of the second."""
    return _relative_error
