import numpy as np
import pytest
from scipy.sparse import csr_array

from falcon_gnn.errors import FalconWarning, GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.training.configs import ModelConfig, TrainConfig
from falcon_gnn.training.hops import hop_features
from falcon_gnn.training.inference import predict
from falcon_gnn.training.label_features import (
    LabelFeatures,
    add_label_features,
    count_label_columns,
    find_label_features,
    predict_with_labels,
    training_labels,
)
from falcon_gnn.training.weights import ModelSpec

CONFIG = TrainConfig(ModelConfig("sign", hidden_channels=8, num_layers=2))
NONE = np.empty(0, np.int64)


@pytest.fixture
def path() -> Graph:
    """Return a path of six nodes: training nodes 0 to 3, of which 3 has no label, then two that are predicted."""
    x = np.array([[3, 0], [0, 4], [0, 0], [0, 0], [0, 0], [5, 0]], np.float32)
    y, in_training = np.array([0, 1, 1, -1, 0, 1]), np.arange(6) < 4
    edges = np.stack([np.arange(5), np.arange(1, 6)])
    return Graph.from_edges(edges, 6, x=x, y=y, train_mask=in_training, test_mask=~in_training, warn_one_way="never")


def _features(graph, node_ids, value=1.0, task="classes", num_labels=2):
    labels = LabelFeatures(node_ids, node_ids, task, num_labels, value)
    return add_label_features(graph, labels, node_ids, value)


def test_the_labels_of_the_removed_training_nodes_are_read(path):
    labels = find_label_features(path, np.array([1, 3]), CONFIG)
    assert (labels.known.tolist(), labels.read.tolist()) == ([0, 1, 2], [0, 2])
    assert (labels.task, labels.num_labels) == ("classes", 2)


def test_a_label_weighs_as_much_as_a_row_of_features(path):
    labels = find_label_features(path, np.array([1]), CONFIG)
    assert labels.value == pytest.approx(((9 + 16 + 25) / 6) ** 0.5)
    sparse = path.replace(x=csr_array(path.x))
    assert find_label_features(sparse, np.array([1]), CONFIG).value == pytest.approx(labels.value)


def test_a_label_counts_less_where_more_are_read(path):
    labels = find_label_features(path, np.array([1]), CONFIG)
    assert labels.value_of_known == pytest.approx(labels.value * (2 / 3) ** 0.5)


def test_labels_become_columns_of_the_features(path):
    wider = _features(path, np.array([0, 2]), 0.5)
    assert wider.x[:, :2].tolist() == path.x.tolist()
    assert wider.x[:, 2:].tolist() == [[0.5, 0], [0, 0], [0, 0.5], [0, 0], [0, 0], [0, 0]]


def test_without_nodes_the_columns_are_zero(path):
    assert not _features(path, NONE).x[:, 2:].any()


def test_sparse_features_stay_sparse_and_equal(path):
    ids = np.array([0, 1])
    wider = _features(path.replace(x=csr_array(path.x)), ids)
    assert isinstance(wider.x, csr_array)
    assert wider.x.toarray().tolist() == _features(path, ids).x.tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64])
def test_features_of_any_type_keep_their_values(path, dtype):
    wider = _features(path.replace(x=path.x.astype(dtype)), np.array([0]), 0.25)
    assert wider.x.dtype == np.result_type(dtype, np.float32)
    assert wider.x[:, :3].tolist() == _features(path, np.array([0]), 0.25).x[:, :3].tolist()


def test_several_labels_of_a_node_are_read_and_unknown_ones_are_not(path):
    y = np.array([[1, 1], [0, 1], [np.nan, 1], [np.nan, np.nan], [1, 0], [0, 0]])
    several = path.replace(y=y)
    assert training_labels(several, "multilabel").tolist() == [0, 1, 2]
    wider = _features(several, np.array([0, 1, 2]), task="multilabel")
    assert wider.x[:3, 2:].tolist() == [[1, 1], [0, 1], [0, 1]]


def test_a_target_is_never_read(path):
    """A survivor's row of hop features does not depend on its own label."""
    kept = np.array([1])

    def row(y):
        graph = path.replace(y=y)
        labels = find_label_features(graph, kept, CONFIG)
        return hop_features(add_label_features(graph, labels, labels.read, labels.value), 3, rows=kept)

    before, other, near = row(path.y), path.y.copy(), path.y.copy()
    other[1], near[0] = 0, 1
    assert np.array_equal(row(other), before)
    assert not np.array_equal(row(near), before)


def test_where_nothing_is_predicted_near_training_nodes_no_label_is_read(path):
    apart = Graph.from_edges(
        np.array([[0, 1, 4], [1, 2, 5]]), 6, x=path.x, y=path.y, train_mask=path.train_mask, warn_one_way="never"
    )
    assert count_label_columns(path, CONFIG) == 2
    assert count_label_columns(apart, CONFIG) == 0
    assert find_label_features(apart, np.array([1]), CONFIG) is None


@pytest.mark.parametrize("change", [{"train_mask": None, "test_mask": None}, {"y": np.linspace(0, 1, 6) ** 2}])
def test_without_a_mask_or_with_a_regression_target_no_label_is_read(path, change):
    assert count_label_columns(path.replace(**change), CONFIG) == 0


def test_where_only_unlabelled_nodes_are_removed_no_label_is_read(path):
    assert find_label_features(path, np.array([0, 1, 2]), CONFIG) is None


def test_features_are_needed(path):
    with pytest.raises(GraphError, match=r"graph\.x must hold features"):
        _features(path.replace(x=None), np.array([0]))


def _model(label_value):
    num_features = 2 if label_value is None else 4
    spec = ModelSpec(CONFIG.model, num_features, 2, "classes", label_value)
    return spec.build(), spec


def test_no_prediction_reads_its_own_label(path):
    model, spec = _model(0.7)
    before = predict_with_labels(model, spec, path)
    for node in range(3):
        y = path.y.copy()
        y[node] = 1 - y[node]
        changed = (predict_with_labels(model, spec, path.replace(y=y)) != before).any(axis=1)
        assert not changed[node]
        assert changed.any()


def test_labels_outside_the_training_nodes_are_not_read(path):
    model, spec = _model(0.7)
    y = path.y.copy()
    y[4:] = -1
    assert np.array_equal(predict_with_labels(model, spec, path.replace(y=y)), predict_with_labels(model, spec, path))


@pytest.mark.parametrize("change", [{"y": None}, {"train_mask": None}])
def test_a_graph_without_training_labels_is_predicted_from_its_features(path, change):
    model, spec = _model(0.7)
    with pytest.warns(FalconWarning, match="reads the labels of training nodes"):
        outputs = predict_with_labels(model, spec, path.replace(**change))
    expected = predict(model, CONFIG.model, _features(path, NONE))
    assert np.array_equal(outputs, expected)


def test_a_model_without_label_features_reads_the_features_alone(path):
    model, spec = _model(None)
    y = 1 - path.y
    assert np.array_equal(predict_with_labels(model, spec, path.replace(y=y)), predict_with_labels(model, spec, path))
