import numpy as np
import pytest
import torch
from torch.nn import functional

from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.training.targets import make_targets, resolve_task, take_targets, training_nodes

LOGITS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))


def test_training_nodes_are_labelled_and_in_the_mask(graph):
    y = graph.y.astype(float)
    y[np.flatnonzero(graph.train_mask)[:2]] = [np.nan, -1]
    chosen = training_nodes(graph.replace(y=y), "classes")
    assert chosen.tolist() == np.flatnonzero(graph.train_mask)[2:].tolist()


def test_without_masks_every_labelled_node_trains(graph):
    bare = graph.replace(train_mask=None, val_mask=None, test_mask=None)
    assert len(training_nodes(bare, "classes")) == 60


def test_no_labelled_training_node_is_an_error(graph):
    with pytest.raises(GraphError, match="labelled training node"):
        training_nodes(graph.replace(y=np.where(graph.train_mask, -1, graph.y)), "classes")


def test_loss_of_classes_is_the_cross_entropy(graph):
    targets = make_targets(graph.y, "classes")
    assert torch.equal(targets.loss(LOGITS), functional.cross_entropy(LOGITS, torch.from_numpy(graph.y.copy())))


def test_loss_of_labels_is_the_mean_binary_cross_entropy(make_graph):
    graph = make_graph(multilabel=True)
    targets = take_targets(graph, "multilabel", np.arange(60))
    expected = functional.binary_cross_entropy_with_logits(LOGITS, torch.from_numpy(graph.y.astype(np.float32)))
    assert torch.equal(targets.loss(LOGITS), expected)


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_unknown_cells_take_no_part_in_the_loss(graph, task):
    y = np.random.default_rng(0).integers(0, 2, (60, 3)).astype(float)
    y[5, 1] = np.nan
    targets = take_targets(graph.replace(y=y), task, np.arange(60))
    known = ~np.isnan(y)
    exact = targets.loss(LOGITS[:, :])
    picked = make_targets(y[known][:, None], task).loss(LOGITS[torch.from_numpy(known)][:, None])
    torch.testing.assert_close(exact, picked)
    logits = LOGITS.clone().requires_grad_()
    assert torch.autograd.grad(targets.loss(logits), logits)[0][5, 1] == 0


def test_loss_of_a_value_is_the_squared_error(graph):
    targets = make_targets(np.arange(60) / 7, "regression")
    expected = functional.mse_loss(LOGITS[:, :1], torch.arange(60.0)[:, None] / 7)
    torch.testing.assert_close(targets.loss(LOGITS[:, :1]), expected)


def test_number_of_outputs_comes_from_both_graphs(graph):
    assert resolve_task(graph, graph.replace(y=graph.y + 1), None, None) == ("classes", 4)
    assert resolve_task(graph, graph, None, 9) == ("classes", 9)


def test_multi_label_outputs_are_the_columns(make_graph):
    graph = make_graph(multilabel=True)
    assert resolve_task(graph, graph, None, None) == ("multilabel", 3)
    with pytest.raises(GraphError, match="same columns"):
        resolve_task(graph, graph.replace(y=graph.y[:, :2]), None, None)


def test_labels_of_both_graphs_are_looked_at(make_graph):
    graph = make_graph(multilabel=True)
    shares, quantities = graph.replace(y=graph.y / 2), graph.replace(y=graph.y * 2)
    assert resolve_task(shares, graph, None, None) == ("multilabel", 3)
    for pair in ((quantities, graph), (graph, quantities), (graph, shares)):
        with pytest.raises(GraphError, match="must hold 1, 0"):
            resolve_task(*pair, None, None)


def test_too_few_classes_are_refused(graph):
    with pytest.raises(OptionError, match="num_classes"):
        resolve_task(graph, graph, None, 2)


def test_a_graph_without_labels_is_refused(graph):
    with pytest.raises(GraphError, match=r"graph\.y"):
        training_nodes(graph.replace(y=None), "classes")


def _weighted(graph, task, weights):
    ids = np.arange(graph.num_nodes)
    return take_targets(graph.replace(node_weight=weights), task, ids)


@pytest.mark.parametrize("task", ["classes", "multilabel", "regression"])
def test_a_weight_of_two_is_the_node_twice(task):
    rng = np.random.default_rng(0)
    y = {"classes": [0, 1, 2], "multilabel": rng.integers(0, 2, (3, 4)), "regression": rng.normal(size=(3, 4))}[task]
    logits = torch.from_numpy(rng.normal(size=(3, 4)))
    weighted = _weighted(Graph.from_edges([[0], [1]], 3, y=y), task, [1.0, 2.0, 1.0])
    repeated = make_targets(np.asarray(y)[[0, 1, 1, 2]], task)
    assert weighted.loss(logits).item() == pytest.approx(repeated.loss(logits[[0, 1, 1, 2]]).item(), rel=1e-6)


def test_weights_and_unknown_cells_together():
    y = np.array([[1.0, np.nan], [0.0, 1.0]])
    logits = torch.tensor([[0.3, 9.0], [-0.2, 0.5]])
    targets = _weighted(Graph.from_edges([[0], [1]], 2, y=y), "multilabel", [3.0, 1.0])
    cells = functional.binary_cross_entropy_with_logits(
        logits, torch.from_numpy(y).nan_to_num(0.0).float(), reduction="none"
    )
    expected = (3 * cells[0, 0] + cells[1, 0] + cells[1, 1]) / 5
    assert targets.loss(logits).item() == pytest.approx(expected.item(), rel=1e-6)


def test_classes_may_be_probabilities_over_fewer_classes_than_outputs():
    soft = np.array([[1.0, 0.0], [0.25, 0.75]])
    graph = Graph.from_edges([[0], [1]], 2, y=[0, 1], label_distribution=soft)
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    log = logits.log_softmax(dim=1)
    expected = -(log[0, 0] + 0.25 * log[1, 0] + 0.75 * log[1, 1]) / 2
    targets = take_targets(graph, "classes", np.arange(2))
    assert targets.loss(logits).item() == pytest.approx(expected.item(), rel=1e-5)
    assert resolve_task(graph, graph, None, None) == ("classes", 2)


def test_the_power_of_a_weight_says_how_much_it_counts():
    targets = _weighted(Graph.from_edges([[0], [1]], 2, y=[0, 1]), "classes", [4.0, 9.0])
    assert targets.with_power(0.5).weights.tolist() == [2, 3]
    assert targets.with_power(0).weights is None
    assert targets.with_power(1) is targets
    assert make_targets(np.array([0, 1]), "classes").with_power(0.5).weights is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("has_unknown", [False, True])
@pytest.mark.parametrize("task", ["classes", "multilabel", "regression"])
def test_the_gradient_of_the_summed_loss_is_that_of_autograd(task, has_unknown, dtype):
    rng = np.random.default_rng(0)
    y = {"classes": rng.integers(0, 4, 30), "multilabel": rng.integers(0, 2, (30, 4)) * 1.0,
         "regression": rng.normal(size=(30, 4))}[task]  # fmt: skip
    if has_unknown and task != "classes":
        y[3, 1] = np.nan
    logits = torch.from_numpy(rng.normal(size=(30, 4))).to(dtype)
    for weight in (None, rng.random(30)):
        graph = Graph.from_edges([[0], [1]], 30, y=y).replace(node_weight=weight)
        targets, leaf = take_targets(graph, task, np.arange(30)), logits.clone().requires_grad_()
        (expected,) = torch.autograd.grad(targets.summed_loss(leaf), leaf)
        found = targets.loss_gradient(logits)
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected)
