import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.training.batches import FullBatch, PartBatches, RowBatches
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.history import HistoryBatches
from falcon_gnn.training.hops import hop_features
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.targets import training_nodes

CPU = torch.device("cpu")


def _config(model, num_batches=1, **options):
    return TrainConfig(ModelConfig(model=model, **options), num_batches=num_batches)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("gcn", FullBatch),
        ("sign", RowBatches),
        ("qsign", RowBatches),
        ("sign-original", RowBatches),
        ("cluster-gcn", PartBatches),
        ("gas", HistoryBatches),
    ],
)
def test_each_model_gets_its_kind_of_batches(graph, model, kind):
    assert type(make_source(graph, _config(model), "classes", CPU)) is kind


def test_parts_are_as_many_as_batches_unless_told(graph):
    assert len(make_source(graph, _config("cluster-gcn", 4), "classes", CPU).parts) == 4
    assert len(make_source(graph, _config("cluster-gcn", 4, num_parts=8), "classes", CPU).parts) == 8


def test_row_features_are_those_of_the_training_nodes(graph):
    source = make_source(graph, _config("sign"), "classes", CPU)
    assert np.array_equal(source.features, hop_features(graph, 2)[training_nodes(graph, "classes")])


def test_hop_source_gives_each_training_node_the_hops_of_its_original(graph):
    kept = np.flatnonzero(graph.train_mask)[::2]
    reduced = graph.replace(train_mask=None, val_mask=None, test_mask=None).subgraph(kept)
    source = make_source(reduced, _config("sign"), "classes", CPU, hop_source=lambda: (graph, kept))
    assert np.array_equal(source.features, hop_features(graph, 2)[kept])
    assert source.targets.values.tolist() == graph.y[kept].tolist()


def test_hop_source_with_weights_gives_each_training_node_a_mean_of_hops(graph):
    pairs = csr_array(np.kron(np.eye(30), [[0.5, 0.5]]).astype(np.float32))
    reduced = graph.subgraph(np.arange(30)).replace(train_mask=None, val_mask=None, test_mask=None)
    source = make_source(reduced, _config("sign"), "classes", CPU, hop_source=lambda: (graph, pairs))
    hops = hop_features(graph, 2)
    assert source.features == pytest.approx((hops[::2] + hops[1::2]) / 2, abs=1e-6)


def test_hop_source_weights_must_fit_both_graphs(graph):
    with pytest.raises(OptionError, match=r"hop_source must name.*got float64 of shape \(60, 59\)"):
        make_source(graph, _config("sign"), "classes", CPU, hop_source=lambda: (graph, csr_array((60, 59))))


def test_hop_source_takes_the_train_mask_of_the_reduced_graph(graph):
    everyone = np.arange(60)
    source = make_source(graph, _config("sign"), "classes", CPU, hop_source=lambda: (graph, everyone))
    assert np.array_equal(source.features, hop_features(graph, 2)[graph.train_mask])


@pytest.mark.parametrize("model", ["gcn", "cluster-gcn", "gas"])
def test_hop_source_is_refused_by_models_without_hops(graph, model):
    with pytest.raises(OptionError, match=f"hop_source is read by sign.*'{model}'"):
        make_source(graph, _config(model), "classes", CPU, hop_source=lambda: (graph, np.arange(60)))


@pytest.mark.parametrize("ids", [np.arange(59), np.arange(60) + 1, np.arange(60) - 1, np.arange(60) / 2])
def test_hop_source_ids_must_fit_both_graphs(graph, ids):
    with pytest.raises(OptionError, match="hop_source must name"):
        make_source(graph, _config("sign"), "classes", CPU, hop_source=lambda: (graph, ids))


def test_hop_source_must_have_the_same_features(graph):
    other = graph.replace(x=graph.x[:, :2])
    with pytest.raises(GraphError, match="hop_source's graph must have the same features"):
        make_source(graph, _config("sign"), "classes", CPU, hop_source=lambda: (other, np.arange(60)))


def test_batch_norm_never_gets_a_batch_of_one_row(graph):
    config = _config("sign", num_batches=99, batch_norm=True)
    source = make_source(graph, config, "classes", CPU)
    assert min(len(batch.targets) for batch in source.draw(1)) == 2


def test_a_graph_without_features_is_refused(graph):
    with pytest.raises(GraphError, match=r"graph\.x"):
        make_source(graph.replace(x=None), _config("gcn"), "classes", CPU)
