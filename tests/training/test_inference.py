import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from falcon_gnn.errors import GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.batches import to_tensor
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.hops import hop_features
from falcon_gnn.training.inference import InferenceSettings, make_scorer, predict
from falcon_gnn.training.memory import measure_peak, tensors_within
from falcon_gnn.training.models import GraphInput, build_model
from falcon_gnn.training.propagation import SparseMatrix

MODELS = ["gcn", "cluster-gcn", "gas", "sign", "qsign", "sign-original"]


def _model(name, num_layers=3, **options):
    torch.manual_seed(0)
    config = ModelConfig(model=name, hidden_channels=8, num_layers=num_layers, batch_norm=True, **options)
    return build_model(config, 5, 3), config


def _whole(model, config, graph):
    model.eval()
    with torch.no_grad():
        if config.uses_hop_features:
            return model(torch.from_numpy(hop_features(graph, config.num_hops))).numpy()
        matrix = normalized_csr(graph)
        inputs = GraphInput(
            SparseMatrix.from_scipy(matrix), to_tensor(matrix @ graph.x), to_tensor(np.asarray(graph.x))
        )
        return model(inputs).numpy()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk_rows", [None, 1, 7])
def test_predictions_in_chunks_equal_the_forward_pass_over_the_whole_graph(make_graph, name, chunk_rows):
    graph = make_graph(weighted=True)
    model, config = _model(name)
    predicted = predict(model, config, graph, chunk_rows=chunk_rows)
    assert predicted == pytest.approx(_whole(model, config, graph), abs=1e-5)


@pytest.mark.parametrize("name", ["gcn", "sign"])
@pytest.mark.parametrize("chunk_rows", [None, 2])
def test_predictions_for_some_nodes_are_those_rows(graph, name, chunk_rows):
    model, config = _model(name)
    ids = np.array([3, 40, 41, 59])
    predicted = predict(model, config, graph, node_ids=ids, chunk_rows=chunk_rows)
    assert predicted == pytest.approx(_whole(model, config, graph)[ids], abs=1e-5)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("ids", [None, [9, 30]])
def test_concat_self_predicts_as_it_trains_at_any_depth(graph, num_layers, ids):
    model, config = _model("gcn", num_layers, concat_self=True)
    ids = None if ids is None else np.array(ids)
    expected = _whole(model, config, graph)
    for chunk_rows in (None, 3):
        predicted = predict(model, config, graph, node_ids=ids, chunk_rows=chunk_rows)
        assert predicted == pytest.approx(expected if ids is None else expected[ids], abs=1e-5)


def test_sparse_features_predict_the_same():
    x = csr_array((np.ones(4, np.float32), ([0, 1, 2, 5], [7, 0, 1, 99])), (6, 100))
    graph = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]], 6, x=x)
    config = ModelConfig(hidden_channels=4)
    model = build_model(config, 100, 2)
    assert predict(model, config, graph) == pytest.approx(
        predict(model, config, graph.replace(x=x.toarray())), abs=1e-6
    )


def test_only_the_neighborhood_is_computed():
    path = Graph.from_edges([np.arange(99), np.arange(1, 100)], 100, x=np.ones((100, 1), np.float32))
    x = path.x.copy()
    x[4:] = np.nan
    broken = Graph.from_csr(path.indptr, path.indices, x=path.x)
    object.__setattr__(broken, "x", x)
    config = ModelConfig(hidden_channels=4, num_layers=3)
    assert np.isfinite(predict(build_model(config, 1, 2), config, broken, node_ids=np.array([0]))).all()


def test_prediction_keeps_the_mode_and_needs_no_gradient(graph):
    model, config = _model("gcn")
    model.train()
    statistics = model.norms[0].running_mean.clone()
    predict(model, config, graph)
    assert model.training
    assert torch.equal(model.norms[0].running_mean, statistics)


@pytest.mark.parametrize("name", ["gcn", "sign", "sign-original"])
def test_a_graph_with_other_features_is_refused(graph, name):
    model, config = _model(name)
    with pytest.raises(GraphError, match="must have the 5 features the model was trained on, got 3"):
        predict(model, config, graph.replace(x=graph.x[:, :3]))
    with pytest.raises(GraphError, match="must hold features"):
        predict(model, config, graph.replace(x=None))


def test_no_node_wanted_gives_no_row(graph):
    for name in ("gcn", "sign"):
        model, config = _model(name)
        assert predict(model, config, graph, node_ids=np.zeros(0, np.int64)).shape == (0, 3)


@pytest.mark.parametrize(("name", "blocks"), [("gcn", 4), ("sign", 2), ("sign-original", 2)])
def test_no_matrix_of_the_hidden_size_exists(make_graph, name, blocks):
    """The widest layer decides the pieces: 60 nodes in pieces of 4 rows or 96 columns."""
    graph = make_graph()
    config = ModelConfig(model=name, hidden_channels=1024, num_layers=3, num_hops=0)
    model = build_model(config, 5, 3)
    scorer = make_scorer(config, graph, None, InferenceSettings(torch.device("cpu"), piece_bytes=4 * 4 * 1024))
    peak = measure_peak(lambda: scorer.outputs(model), known=lambda: tensors_within(model))
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert peak.total - weights < blocks * (4 * 1024 + 96 * 60) * 4 + 60 * 1000
