"""The peak that a training reports is that of the most expensive batch it trains on, and the plan holds for it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from falcon_gnn.graph import Graph
from falcon_gnn.planning.estimate import estimate_memory
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.batches import PartBatches
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.crew import Crew
from falcon_gnn.training.history import split_halo
from falcon_gnn.training.memory import measure_peak, tensors_within
from falcon_gnn.training.partition import BatchSize, DrawnBatch, undominated
from falcon_gnn.training.shapes import shape_of_graph
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.state import TrainingState
from falcon_gnn.training.steps import make_optimizer, training_step

NUM_EPOCHS = 5
CPU = torch.device("cpu")


def uneven_graph(seed: int) -> Graph:
    """Return a graph in which some places are far denser than others, with some nodes unlabelled."""
    rng = np.random.default_rng(seed)
    ends = (400 * rng.random((2, 1500)) ** 2).astype(int)
    x, y = rng.normal(size=(400, 6)).astype(np.float32), rng.integers(-1, 3, 400)
    return Graph.from_edges(ends, 400, x=x, y=y, warn_one_way="never")


def config_of(model: str, seed: int) -> TrainConfig:
    sizes = ModelConfig(model, hidden_channels=16, num_layers=2, num_parts=12)  # type: ignore[arg-type]
    return TrainConfig(sizes, num_batches=3, num_epochs=NUM_EPOCHS, seed=seed, patience=None, device="cpu")


@pytest.mark.parametrize("model", ["cluster-gcn", "gas"])
@pytest.mark.parametrize("seed", range(20))
def test_no_batch_of_any_epoch_exceeds_the_reported_peak_and_the_plan_holds(model: str, seed: int) -> None:
    graph, config = uneven_graph(seed), config_of(model, seed)
    training = TrainingState(graph, graph, config, Crew(), None)
    reported = training._measure_memory().total
    network = training.spec.build()
    optimizer = make_optimizer(network, config)
    for epoch in range(1, NUM_EPOCHS + 1):
        for batch in training.source.draw(epoch):
            parts = [network, optimizer, batch]
            peak = measure_peak(
                partial(training_step, network, optimizer, [batch], "float32"), known=partial(tensors_within, parts)
            )
            assert peak.total <= reported
    assert reported <= estimate_memory(shape_of_graph(graph, config), config).total


@pytest.mark.parametrize("model", ["cluster-gcn", "gas"])
def test_sizes_are_those_of_the_batches_that_are_built(model: str) -> None:
    graph, config = uneven_graph(0), config_of(model, 0)
    source = make_source(graph, config, "classes", CPU)
    drawn = {(batch.epoch, batch.position): batch.size for batch in source.sizes(NUM_EPOCHS)}
    adjacency = normalized_csr(graph)
    for epoch in range(1, NUM_EPOCHS + 1):
        for position, batch in enumerate(source.draw(epoch)):
            size = drawn[epoch, position]
            inner = batch.inputs if isinstance(source, PartBatches) else batch.inputs.inner  # type: ignore[attr-defined]
            assert (size.num_nodes, size.num_targets) == (inner.adjacency.num_rows, len(batch.targets))
            assert size.num_entries == inner.adjacency.values.shape[0]
            if model == "gas":
                _, outside, halo = split_halo(adjacency, batch.inputs.node_ids.numpy())  # type: ignore[attr-defined]
                assert (size.halo_nodes, size.halo_entries) == (len(halo), outside.nnz)


def test_epochs_that_are_dealt_alike_are_counted_once() -> None:
    config = replace(config_of("cluster-gcn", 0), num_batches=12)
    source = make_source(uneven_graph(0), config, "classes", CPU)
    assert {batch.epoch for batch in source.sizes(1_000)} == {1}


def test_only_batches_that_no_other_exceeds_in_every_figure_are_measured() -> None:
    sizes = [(5, 9, 3), (4, 8, 3), (5, 9, 3), (3, 10, 1), (2, 2, 4)]
    drawn = [DrawnBatch(1, place, BatchSize(*size)) for place, size in enumerate(sizes)]
    assert sorted(batch.position for batch in undominated(drawn)) == [0, 3, 4]
