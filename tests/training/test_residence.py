"""Features that stay on a card, and those that come through page-locked memory; the CPU stands for the card."""

from dataclasses import replace
from threading import current_thread
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from falcon_gnn.graph import Graph
from falcon_gnn.planning.estimate import estimate_memory
from falcon_gnn.planning.fit import fit_shape
from falcon_gnn.training import residence, steps, transfer
from falcon_gnn.training.batches import DrawnPart, DrawnRows, GraphBatch, KeepsFeatures, RowBatch
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.history import DrawnHistory, HistoryBatch
from falcon_gnn.training.memory import tensors_within
from falcon_gnn.training.partition import BatchSize
from falcon_gnn.training.residence import place_features
from falcon_gnn.training.shapes import GraphShape, PartShape, kept_bytes, predict_step, shape_of_graph
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.weights import ModelSpec
from falcon_gnn.training.workspace import workspace_bytes

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
MODELS = ("sign", "qsign", "cluster-gcn", "gas")
SHAPE = GraphShape(3_000, 12_000, 40, 7, "classes", 3_000, parts=PartShape(0.35, 0.3, 0.35, 0.2, 0.05, 0.0, 0.0))


def config_of(model: str, **options: Any) -> TrainConfig:
    sizes = ModelConfig(model, hidden_channels=8, concat_self=model in ("cluster-gcn", "gas"))  # type: ignore[arg-type]
    return replace(TrainConfig(sizes, num_batches=3, device="cpu"), **options)


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_of_features_on_the_device_is_that_of_features_in_host_memory(model: str, graph: Graph) -> None:
    config, kept = config_of(model), 0
    source, from_host = (make_source(graph, config, "classes", CPU) for _ in range(2))
    assert isinstance(source, KeepsFeatures)
    source.keep_features(CPU)
    for epoch in (1, 2):
        for batch, other in zip(source.draw(epoch), from_host.draw(epoch), strict=True):
            kept += isinstance(batch, DrawnRows | DrawnPart | DrawnHistory)
            ready, expected = batch.to(CPU), other.to(CPU)
            assert torch.equal(ready.targets.values, expected.targets.values)
            for found, wanted in zip(features_of(ready), features_of(expected), strict=True):
                torch.testing.assert_close(found, wanted)
    assert kept == 6


def features_of(batch: object) -> list[Tensor]:
    """Return all that a model reads of features."""
    if isinstance(batch, RowBatch):
        return [batch.features]
    assert isinstance(batch, GraphBatch | HistoryBatch)
    inputs = batch.inputs if isinstance(batch, GraphBatch) else batch.inputs.inner
    return [inputs.aggregated, inputs.features]  # type: ignore[list-item]


@pytest.mark.parametrize("model", MODELS)
def test_the_bytes_that_stay_are_those_of_the_prediction(model: str, graph: Graph) -> None:
    config = config_of(model, device="cuda", features_on="device")
    source = make_source(graph, replace(config, device="cpu"), "classes", CPU)
    assert isinstance(source, KeepsFeatures)
    shape = shape_of_graph(graph, config)
    assert source.feature_bytes == kept_bytes(shape, config) > 0
    for other in (replace(config, features_on="host"), replace(config, device="cpu")):
        assert kept_bytes(shape, other) == 0


def test_sparse_features_and_those_of_a_single_batch_are_not_kept_twice(graph: Graph) -> None:
    single = make_source(graph, config_of("sign", num_batches=1), "classes", CPU)
    assert isinstance(single, KeepsFeatures)
    assert single.feature_bytes == 0
    x = csr_array(np.eye(60, 200, dtype=np.float32))
    sparse = make_source(graph.replace(x=x), config_of("cluster-gcn"), "classes", CPU)
    assert isinstance(sparse, KeepsFeatures)
    sparse.keep_features(CPU)
    assert sparse.feature_bytes == 0
    assert all(isinstance(batch, GraphBatch) for batch in sparse.draw(1))


@pytest.mark.parametrize(("spare", "is_kept"), [(0, True), (-1, False)])
@pytest.mark.parametrize("model", ["sign", "gas"])
def test_features_stay_if_they_fit_beside_a_step(
    model: str, spare: int, is_kept: bool, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(model, device="cuda")
    source = make_source(graph, config, "classes", CPU)
    assert isinstance(source, KeepsFeatures)
    placed: list[torch.device] = []
    monkeypatch.setattr(source, "keep_features", placed.append)
    size = BatchSize.largest([batch.size for batch in source.sizes(1)])
    spec = ModelSpec(config.model, graph.num_features, 3, "classes")
    shape = GraphShape(60, graph.num_edges, graph.num_features, 3, "classes", size.num_targets)
    needed = predict_step(shape, size, replace(config, features_on="host")).total + workspace_bytes(config)
    monkeypatch.setattr(residence, "tensor_memory", lambda device: needed + source.feature_bytes + spare)
    place_features(source, graph, spec, config, CUDA)
    assert placed == ([CUDA] if is_kept else [])
    place_features(source, graph, spec, replace(config, features_on="host"), CUDA)
    place_features(source, graph, spec, config, CPU)
    assert len(placed) == is_kept
    place_features(source, graph, spec, replace(config, features_on="device"), CUDA)
    assert len(placed) == is_kept + 1


@pytest.mark.parametrize("model", ["sign", "cluster-gcn", "gas"])
def test_a_plan_keeps_features_on_the_card_where_its_budget_has_room(model: str) -> None:
    config = config_of(model, device="cuda", micro_batches=1)
    step = estimate_memory(SHAPE, config).total
    kept = kept_bytes(SHAPE, replace(config, features_on="device"))
    roomy, tight = (fit_shape(SHAPE, config, step + kept + spare) for spare in (0, -1))
    assert (roomy.training.features_on, roomy.estimate.total) == ("device", step + kept)
    assert (tight.training.features_on, tight.estimate.total) == ("host", step)
    assert not tight.needs_collapse
    assert fit_shape(SHAPE, replace(config, device="cpu"), step + kept).training.features_on == "auto"


@pytest.mark.parametrize("model", ["sign", "cluster-gcn", "gas"])
def test_every_tensor_of_a_batch_is_locked_before_it_is_sent(
    model: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[Tensor] = []
    monkeypatch.setattr(transfer, "locked", lambda tensor: locked.append(tensor) or tensor.clone())
    batch = next(make_source(graph, config_of(model), "classes", CPU).draw(1))
    sent: list[Tensor] = []
    moved = transfer.locked_batch(batch)
    assert type(moved) is type(batch)
    for module in ("batches", "models", "propagation", "targets"):
        monkeypatch.setattr(f"falcon_gnn.training.{module}.send", lambda tensor, *rest: sent.append(tensor) or tensor)
    moved.to(CPU)
    assert 0 < len(sent) <= len(locked)
    assert {id(tensor) for tensor in sent} <= {id(tensor) for tensor in tensors_within(moved)}


def test_batches_for_a_card_are_locked_by_the_thread_that_reads_ahead(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    monkeypatch.setattr(steps, "locked_batch", lambda batch: threads.append(current_thread().name) or batch)
    source = make_source(graph, config_of("sign"), "classes", CPU)
    assert len(list(steps.read_for(CPU, source.draw(1)))) == 3
    assert threads == []
    assert len(list(steps.read_for(CUDA, source.draw(1)))) == len(threads) == 3
    assert all(name.startswith("falcon-gnn-batches") for name in threads)
