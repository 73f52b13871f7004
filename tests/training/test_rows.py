"""A GCN trained without edges on rows of Ã^L X, and features on one scale."""

import numpy as np
import pytest
import torch

from falcon_gnn.errors import OptionError
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.hops import float_features, hop_features
from falcon_gnn.training.inference import predict
from falcon_gnn.training.models import RowInput, build_model
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.trainer import train

SMALL = {"hidden_channels": 8, "num_layers": 2, "dropout": 0.0}
CPU = torch.device("cpu")


def _rows(graph, normalize=False):
    x = float_features(graph, normalize=normalize)
    matrix = normalized_csr(graph)
    return matrix @ (matrix @ x)


def _unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_gcn_on_rows_reads_the_features_propagated_once_per_layer(graph, normalize):
    config = TrainConfig(ModelConfig("gcn", **SMALL), train_on="rows", normalize_hops=normalize)
    source = make_source(graph, config, "classes", CPU)
    assert source.features == pytest.approx(_rows(graph, normalize)[graph.train_mask], abs=1e-5)


def test_a_linear_gcn_says_the_same_with_and_without_edges(graph):
    # With one layer there is nothing between the two products: both are ÃXθ + b.
    config = ModelConfig("gcn", **{**SMALL, "num_layers": 1})
    model = build_model(config, 5, 3)
    rows = torch.from_numpy(hop_features(graph, 1, first_hop=1))
    assert predict(model, config, graph) == pytest.approx(model(RowInput(rows)).detach().numpy(), abs=1e-5)


def test_what_is_trained_on_rows_is_used_as_a_gcn_on_the_graph(make_graph):
    graph = make_graph(240)
    config = TrainConfig(
        ModelConfig("gcn", **{**SMALL, "hidden_channels": 32}), learning_rate=0.02, num_epochs=40, num_batches=2,
        train_on="rows", normalize_hops=True,
    )  # fmt: skip
    result = train(graph, config, progress=False)
    assert result.test.accuracy > 0.6
    logits = predict(result.model(), result.spec.config, graph, normalize_hops=True)
    assert np.mean(logits.argmax(axis=1)[graph.test_mask] == graph.y[graph.test_mask]) == pytest.approx(
        result.test.accuracy
    )


@pytest.mark.parametrize("model", [ModelConfig("gcn", concat_self=True), ModelConfig("sign"), ModelConfig("gas")])
def test_rows_are_for_a_gcn_without_its_own_features(model):
    with pytest.raises(OptionError, match="train_on='rows' needs model='gcn' without concat_self"):
        TrainConfig(model, train_on="rows")


def test_normalised_hops_have_length_one_hop_by_hop(graph):
    hops = hop_features(graph, 2)
    expected = np.concatenate([_unit(part) for part in np.split(hops, 3, axis=1)], axis=1)
    assert hop_features(graph, 2, normalize=True) == pytest.approx(expected, abs=1e-6)
    assert hop_features(graph, 2, normalize=True, block_columns=2) == pytest.approx(expected, abs=1e-6)


def test_rows_of_zeros_stay_zero(graph):
    x = graph.x.copy()
    x[:3] = 0
    assert not hop_features(graph.replace(x=x), 0, normalize=True)[:3].any()
    assert not float_features(graph.replace(x=x), normalize=True)[:3].any()


def test_a_mean_is_over_normalised_rows(graph):
    from scipy.sparse import csr_array

    pair = csr_array((np.full(2, 0.5, np.float32), ([0, 0], [3, 7])), shape=(1, 60))
    whole = hop_features(graph, 1, normalize=True)
    assert hop_features(graph, 1, rows=pair, normalize=True)[0] == pytest.approx(whole[[3, 7]].mean(axis=0), abs=1e-6)


@pytest.mark.parametrize("name", ["sign", "gcn", "cluster-gcn", "gas"])
def test_predictions_do_not_depend_on_the_length_of_features(graph, name):
    config = TrainConfig(ModelConfig(name, **SMALL), num_epochs=2, normalize_hops=True)
    result = train(graph, config, progress=False)
    scaled = graph.replace(x=graph.x * np.linspace(1, 9, 60, dtype=np.float32)[:, None])
    logits = [predict(result.model(), config.model, g, normalize_hops=True) for g in (graph, scaled)]
    if name != "sign":
        assert logits[1] == pytest.approx(logits[0], abs=1e-4)
    longer = graph.replace(x=graph.x * np.float32(7))
    assert predict(result.model(), config.model, longer, normalize_hops=True) == pytest.approx(logits[0], abs=1e-4)


@pytest.mark.parametrize("power", [-0.1, 1.5, "much"])
def test_a_power_of_weights_lies_between_none_and_all(power):
    with pytest.raises(OptionError, match=r"weight_power must be a number in \[0, 1\]"):
        TrainConfig(weight_power=power)


def test_the_power_reaches_the_training(graph):
    weighted = graph.replace(node_weight=np.full(60, 4.0))
    source = make_source(weighted, TrainConfig(ModelConfig("sign", **SMALL), weight_power=0.5), "classes", CPU)
    assert set(source.targets.weights.tolist()) == {2.0}
