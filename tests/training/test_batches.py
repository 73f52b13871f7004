import numpy as np
import pytest
import torch

from falcon_gnn.graph import Graph
from falcon_gnn.training.batches import FullBatch, PartBatches, PartSettings, RowBatches
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.models import GCN
from falcon_gnn.training.propagation import SparseMatrix
from falcon_gnn.training.targets import take_targets, training_nodes

CPU = torch.device("cpu")


def _dense(matrix: SparseMatrix) -> np.ndarray:
    return (matrix @ torch.eye(matrix.num_columns)).numpy()


def _rows(graph, num_batches, seed=0):
    ids = training_nodes(graph, "classes")
    features = np.arange(len(ids), dtype=np.float32)[:, None]
    return RowBatches(features, take_targets(graph, "classes", ids), num_batches, seed)


def _parts(graph, num_parts=6, num_batches=3, concat_self=False):
    ids = training_nodes(graph, "classes")
    settings = PartSettings(num_parts, num_batches, concat_self, seed=0)
    return PartBatches(graph, ids, take_targets(graph, "classes", ids), settings)


def test_row_batches_hold_every_row_once_with_its_target(graph):
    source = _rows(graph, 3)
    batches = list(source.draw(1))
    rows = torch.cat([batch.features[:, 0] for batch in batches]).long()
    assert [len(batch.targets) for batch in batches] == [7, 7, 6]
    assert sorted(rows.tolist()) == list(range(20))
    assert torch.equal(torch.cat([batch.targets.values for batch in batches]), source.targets.values[rows])


def test_row_batches_are_shuffled_anew_in_each_epoch_but_repeat_for_the_same_one(graph):
    first, again, next_epoch, other_seed = (
        next(source.draw(epoch)).features
        for source, epoch in [(_rows(graph, 3), 1), (_rows(graph, 3), 1), (_rows(graph, 3), 2), (_rows(graph, 3, 1), 1)]
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, next_epoch)
    assert not torch.equal(first, other_seed)


def test_more_batches_than_rows_are_batches_of_one_row(graph):
    assert [len(batch.targets) for batch in _rows(graph, 99).draw(1)] == [1] * 20


def test_full_batch_scores_the_training_nodes_only(graph):
    ids = training_nodes(graph, "classes")
    source = FullBatch(graph, ids, take_targets(graph, "classes", ids), False, CPU)
    (batch,) = source.draw(1)
    model = GCN(ModelConfig(hidden_channels=4, dropout=0), 5, 3)
    assert torch.equal(batch.outputs(model), model(batch.inputs)[ids])
    assert batch.targets.values.tolist() == graph.y[ids].tolist()


def test_full_batch_of_training_nodes_alone_needs_no_selection(graph):
    whole = graph.replace(train_mask=None, val_mask=None, test_mask=None)
    ids = training_nodes(whole, "classes")
    (batch,) = FullBatch(whole, ids, take_targets(whole, "classes", ids), True, CPU).draw(1)
    assert batch.rows is None
    assert np.array_equal(batch.inputs.features.numpy(), graph.x)


def test_part_batches_hold_every_training_node_once(graph):
    batches = list(_parts(graph).draw(1))
    assert sum(len(batch.targets) for batch in batches) == 20
    assert sum(batch.inputs.adjacency.num_rows for batch in batches) == 60


def test_part_batches_keep_inner_edges_and_normalise_what_is_left(make_graph, dense_adjacency):
    graph = make_graph(weighted=True)
    source = _parts(graph, concat_self=True)
    for batch in source.draw(1):
        features = batch.inputs.features.numpy()
        ids = np.array([int(np.flatnonzero((graph.x == row).all(axis=1))[0]) for row in features])
        plain = Graph(graph.indptr, graph.indices, graph.edge_weight, x=graph.x)
        inside = plain.subgraph(ids)
        assert _dense(batch.inputs.adjacency) == pytest.approx(dense_adjacency(inside), abs=1e-6)
        assert batch.inputs.aggregated.numpy() == pytest.approx(dense_adjacency(inside) @ graph.x[ids], abs=1e-5)


def test_a_part_batch_without_a_label_is_skipped(graph):
    one_label = graph.replace(y=np.where(np.arange(60) == np.flatnonzero(graph.train_mask)[0], graph.y, -1))
    batches = list(_parts(one_label).draw(1))
    assert [len(batch.targets) for batch in batches] == [1]


def test_moving_a_batch_moves_all_of_it(graph):
    meta = torch.device("meta")
    moved = next(_parts(graph, concat_self=True).draw(1)).to(meta)
    tensors = [moved.rows, moved.targets.values, moved.inputs.aggregated, moved.inputs.features]
    assert {tensor.device for tensor in [*tensors, moved.inputs.adjacency.values]} == {meta}
