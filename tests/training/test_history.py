from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training import history
from falcon_gnn.training.batches import FullBatch, PartSettings
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.history import Histories, HistoryBatches, split_halo
from falcon_gnn.training.models import GCN
from falcon_gnn.training.steps import run_epoch
from falcon_gnn.training.targets import take_targets, training_nodes


def _source(graph, histories, *, num_batches=4, concat_self=False):
    ids = training_nodes(graph, "classes")
    targets = take_targets(graph, "classes", ids)
    settings = PartSettings(num_batches, num_batches, concat_self, seed=0)
    return HistoryBatches(graph, ids, targets, settings, histories)


def _full_outputs(graph, model):
    ids = np.arange(graph.num_nodes)
    source = FullBatch(graph, ids, take_targets(graph, "classes", ids), model.config.concat_self, torch.device("cpu"))
    return model(next(source.draw(0)).inputs)


def _unmasked(graph):
    return graph.replace(train_mask=None, val_mask=None, test_mask=None)


def _outputs_by_node(source, model, epoch):
    outputs = torch.empty(60, 3)
    for batch in source.draw(epoch):
        outputs[batch.inputs.node_ids] = batch.outputs(model)
    return outputs


def test_halo_and_inside_make_up_the_rows_of_the_adjacency(graph, dense_adjacency):
    ids = np.array([2, 3, 17, 30])
    inside, outside, halo = split_halo(normalized_csr(graph), ids)
    expected = dense_adjacency(graph)[ids]
    assert inside.toarray() == pytest.approx(expected[:, ids], abs=1e-6)
    assert outside.toarray() == pytest.approx(expected[:, halo], abs=1e-6)
    assert not np.delete(expected, np.concatenate([ids, halo]), axis=1).any()
    assert not set(halo) & set(ids)


@pytest.mark.parametrize("concat_self", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_histories_become_exact_after_one_epoch_per_hidden_layer_and_so_do_the_outputs(
    make_graph, concat_self, num_layers
):
    graph = _unmasked(make_graph(weighted=True))
    config = ModelConfig(model="gas", hidden_channels=8, num_layers=num_layers, concat_self=concat_self)
    model = GCN(config, 5, 3).eval()
    source = _source(graph, Histories(60, 8, num_layers - 1), concat_self=concat_self)
    with torch.no_grad():
        for epoch in range(num_layers):
            outputs = _outputs_by_node(source, model, epoch)
        torch.testing.assert_close(outputs, _full_outputs(graph, model), atol=1e-5, rtol=1e-4)


def test_outputs_with_empty_histories_are_not_exact(graph):
    model = GCN(ModelConfig(model="gas", hidden_channels=8), 5, 3).eval()
    source = _source(_unmasked(graph), Histories(60, 8, 2))
    with torch.no_grad():
        assert not torch.allclose(_outputs_by_node(source, model, 0), _full_outputs(_unmasked(graph), model), atol=1e-3)


def test_a_single_batch_has_no_halo_and_the_gradients_of_the_full_graph(graph):
    whole = _unmasked(graph)
    model = GCN(ModelConfig(model="gas", hidden_channels=8, dropout=0), 5, 3)
    (batch,) = _source(whole, Histories(60, 8, 2), num_batches=1).draw(0)
    losses = [output.square().mean() for output in (batch.outputs(model), _full_outputs(whole, model))]
    gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]
    assert len(batch.inputs.halo_ids) == 0
    torch.testing.assert_close(*gradients)


def test_what_is_pushed_is_the_activation_before_dropout(graph):
    whole = _unmasked(graph)
    model = GCN(ModelConfig(model="gas", hidden_channels=8, num_layers=2, dropout=0.5), 5, 3)
    histories = Histories(60, 8, 1)
    (batch,) = _source(whole, histories, num_batches=1).draw(0)
    batch.outputs(model)
    inputs = batch.inputs.inner
    assert torch.equal(histories.levels[0], model.layer(0).transform_input(inputs.aggregated, None).relu().detach())


def test_pull_returns_what_was_pushed_and_zeros_before():
    histories = Histories(5, 2, 1)
    histories.push(0, torch.tensor([3, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16))
    pulled = histories.pull(0, torch.tensor([1, 0, 3]), torch.device("cpu"))
    assert pulled.tolist() == [[3, 4], [0, 0], [1, 2]]


def test_a_batch_without_a_label_moves_no_weight_but_refreshes_its_histories(graph):
    labelled = np.flatnonzero(graph.train_mask)[0]
    sparse_labels = graph.replace(y=np.where(np.arange(60) == labelled, graph.y, -1))
    histories = Histories(60, 8, 2)
    config = TrainConfig(ModelConfig(model="gas", hidden_channels=8))
    model = GCN(config.model, 5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = run_epoch(model, optimizer, _source(sparse_labels, histories).draw(0), config)
    assert np.isfinite(loss)
    assert histories.levels[0].any(dim=1).sum() > 50


@pytest.mark.parametrize("can_lock", [True, False])
def test_locked_histories_are_read_and_written_by_kernels_and_hold_the_same(graph, monkeypatch, can_lock):
    kernels = SimpleNamespace(
        gather_rows=Mock(side_effect=lambda matrix, ids: matrix[ids]),
        scatter_rows=Mock(side_effect=lambda matrix, ids, rows: matrix.index_copy_(0, ids, rows)),
    )
    monkeypatch.setattr(history, "kernels_for", lambda device: kernels)
    monkeypatch.setattr(history, "locked", torch.clone if can_lock else lambda tensor: tensor)
    config = TrainConfig(ModelConfig(model="gas", hidden_channels=8))
    held = []
    for locks in (False, True):
        histories = Histories(60, 8, 2)
        if locks:
            histories.lock(torch.device("cuda"))
        torch.manual_seed(0)
        model = GCN(config.model, 5, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run_epoch(model, optimizer, _source(_unmasked(graph), histories).draw(0), config)
        held.append(histories.levels)
    assert all(map(torch.equal, *held))
    assert kernels.gather_rows.call_count == kernels.scatter_rows.call_count == (8 if can_lock else 0)
