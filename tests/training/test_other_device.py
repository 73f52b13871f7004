"""Whole training steps on a device that is not the CPU, by fakes: nothing is computed, but devices must agree.

Meta fakes stand for a card's. A build of torch without CUDA cannot go backward with fake CUDA tensors; those are in
tests/quantization/test_fake_cuda.py.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from falcon_gnn.quantization.kernel_choice import standing_for
from falcon_gnn.training.config import BITS, ModelConfig, ModelName, TrainConfig
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import GraphShape, PartShape, _fake_batch, largest_batch
from falcon_gnn.training.steps import pieces_of, training_step

META = torch.device("meta")
SHAPE = GraphShape(900, 3_000, 6, 5, "multilabel", 700, parts=PartShape(0.5, 0.4, 0.5, 0.3, 0.1, 0.0, 0.0))
SPARSE = replace(SHAPE, input_entries=400, feature_entries=200)
OTHER_MODELS: tuple[ModelName, ...] = ("sign-original", "gcn", "cluster-gcn", "gas")
ROW_MODELS: tuple[tuple[ModelName, int | None], ...] = (
    ("sign", None), ("qsign", 2), ("sign-original", None), ("sign-original", 8),
)  # fmt: skip
ALL_MODELS: tuple[tuple[ModelName, int | None], ...] = (
    ("sign", None), *(("qsign", bits) for bits in BITS),
    *((model, bits) for model in OTHER_MODELS for bits in (None, *BITS)),
)  # fmt: skip


FLOAT32, BF16 = None, torch.bfloat16


@pytest.fixture(autouse=True)
def _fakes() -> Iterator[None]:
    with FakeTensorMode(allow_non_fake_inputs=True), standing_for("cuda"):
        yield


@pytest.fixture
def cast(monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.dtype | None], None]:
    """Return a function that says in what our products are computed: autocast itself knows no meta device."""

    def say(dtype: torch.dtype | None) -> None:
        monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: nullcontext())
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: dtype is not None)
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: dtype)

    return say


def take_step(config: TrainConfig, shape: GraphShape = SHAPE) -> None:
    """Take a step and look where the gradients are."""
    with META:
        network = build_model(config.model, shape.num_features, shape.num_outputs).train()
    batch = _fake_batch(shape, largest_batch(shape, config), config)
    optimizer, found = torch.optim.SGD(network.parameters(), lr=0.1), []

    def look(*_: Any) -> None:
        found.extend((parameter.grad.device, parameter.grad.shape) for parameter in network.parameters())

    optimizer.register_step_pre_hook(look)
    done = training_step(network, optimizer, [batch], config.precision, pieces_of(config))
    assert done is not None
    assert done[0].device == META
    assert found == [(META, parameter.shape) for parameter in network.parameters()]


def config_of(model: ModelName, bits: int | None, **options: Any) -> TrainConfig:
    own = {name: options.pop(name) for name in ("batch_norm", "concat_self") if name in options}
    sizes = ModelConfig(model, hidden_channels=16, bits=bits, **own)
    return TrainConfig(sizes, num_batches=1 if model == "gcn" else 2, **options)


@pytest.mark.parametrize(("batch_norm", "dtype"), [(False, FLOAT32), (True, BF16)], ids=["float32", "norm, bf16"])
@pytest.mark.parametrize(("model", "bits"), ALL_MODELS)
def test_a_step_stays_on_its_device(
    model: ModelName, bits: int | None, batch_norm: bool, dtype: torch.dtype | None, cast: Callable[..., None]
) -> None:
    cast(dtype)
    take_step(config_of(model, bits, batch_norm=batch_norm))


@pytest.mark.parametrize(("keep_matrix", "dtype"), [(True, FLOAT32), (False, BF16)], ids=["float32", "bf16"])
@pytest.mark.parametrize(("model", "bits"), ROW_MODELS)
def test_a_step_in_pieces_stays_on_its_device(
    model: ModelName, bits: int | None, keep_matrix: bool, dtype: torch.dtype | None, cast: Callable[..., None]
) -> None:
    cast(dtype)
    take_step(config_of(model, bits, batch_norm=True, micro_batches=2, keep_matrix=keep_matrix))


@pytest.mark.parametrize(("bits", "shape"), [(None, SHAPE), (2, SPARSE)], ids=["dense", "2 bits, sparse"])
@pytest.mark.parametrize("model", ["gcn", "gas"])
def test_a_step_by_columns_stays_on_its_device(
    model: ModelName, bits: int | None, shape: GraphShape, cast: Callable[..., None]
) -> None:
    cast(FLOAT32)
    take_step(config_of(model, bits, batch_norm=True, concat_self=True, column_blocks=2), shape)
