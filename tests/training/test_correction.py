from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

from falcon_gnn.errors import FalconWarning, GraphError
from falcon_gnn.graph import Graph
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.correction import (
    CORRECT_ALPHAS,
    SMOOTH_ALPHAS,
    Corrector,
    choose_correction,
    known_labels,
    predict_corrected,
)
from falcon_gnn.training.inference import predict
from falcon_gnn.training.weights import ModelSpec, load_model, save_model

MODEL = ModelConfig("sign", hidden_channels=8, num_layers=2, num_hops=1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def _spec(task="classes", **alphas):
    return ModelSpec(MODEL, 5, 3, task, **alphas)


def _logits(graph, seed=0):
    return np.random.default_rng(seed).normal(size=(graph.num_nodes, 3)).astype(np.float32)


def _spread(start, adjacency, alpha, low, high):
    """Iterate G = α S G + (1 − α) G₀ until it stands."""
    result = start
    for _ in range(200):
        result = np.clip(alpha * adjacency @ result + (1 - alpha) * start, low, high)
    return result


def _by_formula(graph, predicted, truth, correct, smooth):
    """Return the corrected probabilities by the paper's formulas, dense."""
    adjacency = graph.to_scipy().toarray()
    degrees = adjacency.sum(axis=1)
    scale = np.divide(1, np.sqrt(degrees), where=degrees > 0, out=np.zeros(len(degrees)))
    adjacency = scale[:, None] * adjacency * scale
    known = known_labels(graph, _spec())
    if correct:
        errors = np.zeros_like(predicted)
        errors[known] = truth - predicted[known]
        spread = _spread(errors, adjacency, correct, -1, 1)
        mean = np.abs(errors[known]).sum() / len(known)
        sums = np.abs(spread).sum(axis=1, keepdims=True)
        predicted = predicted + np.where(sums > mean / 1000, mean / np.maximum(sums, 1e-30), 1) * spread
    if smooth:
        predicted = predicted.copy()
        predicted[known] = truth
        predicted = _spread(predicted, adjacency, smooth, 0, 1)
    return predicted


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("correct", "smooth"), [(0.8, 0.0), (0.0, 0.6), (0.8, 0.8)])
def test_the_paper_s_formulas(make_graph, weighted, correct, smooth):
    graph = make_graph(weighted=weighted)
    logits = _logits(graph)
    truth = np.eye(3)[graph.y[graph.train_mask]]
    expected = _by_formula(graph, softmax(logits, axis=1), truth, correct, smooth)
    found = np.exp(Corrector(graph, logits, _spec()).logits(correct, smooth))
    # The spread ends once a label's weight has fallen to 1 %, the oracle's at none.
    assert found == pytest.approx(np.maximum(expected, 1e-7), abs=0.03)
    agree = found.argmax(axis=1) == expected.argmax(axis=1)
    assert agree.mean() > 0.95


def test_without_either_step_the_predictions_stay_as_they_are(graph):
    logits = _logits(graph)
    found = Corrector(graph, logits, _spec()).logits(0, 0)
    assert softmax(found, axis=1) == pytest.approx(softmax(logits, axis=1), abs=1e-6)


def test_every_combination_is_tried_once_the_weakest_first(graph):
    corrector = Corrector(graph, _logits(graph), _spec())
    tried = list(corrector.candidates())
    assert [(a, b) for a, b, _ in tried] == [(a, b) for a in CORRECT_ALPHAS for b in SMOOTH_ALPHAS]
    for correct, smooth, logits in tried:
        assert np.array_equal(logits, corrector.logits(correct, smooth))


def test_two_cliques_by_hand():
    """One known node per clique tells the class of all, whatever the model says."""
    pairs = [(i, j) for i in range(4) for j in range(i)]
    edges = np.array(pairs + [(i + 4, j + 4) for i, j in pairs]).T
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    known = np.array([True, False, False, False] * 2)
    graph = Graph.from_edges(edges, 8, y=y, train_mask=known, test_mask=~known, warn_one_way="never")
    logits = np.zeros((8, 2), np.float32)
    found = Corrector(graph, logits, replace(_spec(), num_outputs=2)).logits(0.8, 0)
    assert found.argmax(axis=1).tolist() == y.tolist()


def test_only_the_labels_of_training_nodes_are_looked_at(graph):
    hidden = graph.replace(y=np.where(graph.train_mask, graph.y, -1))
    logits = _logits(graph)
    found = Corrector(graph, logits, _spec()).logits(0.8, 0.8)
    assert np.array_equal(Corrector(hidden, logits, _spec()).logits(0.8, 0.8), found)


def test_unlabelled_training_nodes_correct_nothing(graph):
    unlabelled = graph.replace(y=np.where(np.arange(graph.num_nodes) % 2, graph.y, -1))
    assert (known_labels(unlabelled, _spec()) % 2 == 1).all()


def test_nodes_without_a_neighbor_keep_their_class(graph):
    lonely = Graph.from_edges(
        np.array([[0], [1]]), graph.num_nodes, y=graph.y, train_mask=graph.train_mask, warn_one_way="never"
    )
    logits = _logits(graph)
    found = Corrector(lonely, logits, _spec()).logits(0.8, 0.8).argmax(axis=1)
    others = np.flatnonzero(~graph.train_mask)[2:]
    assert np.array_equal(found[others], logits.argmax(axis=1)[others])


def test_unknown_cells_of_several_labels_correct_nothing(make_graph):
    graph = make_graph(multilabel=True)
    logits = _logits(graph)
    y = graph.y.astype(np.float32)
    y[:, 1] = np.nan
    found = Corrector(graph.replace(y=y), logits, _spec("multilabel")).logits(0.8, 0)
    assert expit(found[:, 1]) == pytest.approx(expit(logits[:, 1]), abs=1e-6)
    assert not np.allclose(expit(found[:, 0]), expit(logits[:, 0]), atol=1e-3)


def test_a_useless_model_is_mended_where_neighbors_are_alike(graph):
    spec = _spec()
    model = spec.build()
    before = predict(model, MODEL, graph).argmax(axis=1)
    chosen = choose_correction(model, spec, graph)
    assert chosen.spec.is_corrected
    assert chosen.test.accuracy > (before == graph.y)[graph.test_mask].mean() + 0.2
    assert chosen.labels_alone.accuracy > 0.5


def test_the_weakest_of_the_corrections_with_the_best_validation_score_is_chosen(make_graph):
    chosen_pairs = set()
    for seed in range(6):
        graph = make_graph(seed=seed)
        if seed % 2:
            graph = graph.replace(y=np.random.default_rng(seed).integers(0, 3, graph.num_nodes))
        spec = _spec()
        model = spec.build()

        def score(pair, spec=spec, model=model, graph=graph):
            outputs = predict_corrected(model, replace(spec, correct=pair[0], smooth=pair[1]), graph)
            return round((outputs.argmax(axis=1) == graph.y)[graph.val_mask].mean(), 9)

        chosen = choose_correction(model, spec, graph)
        best = max(product(CORRECT_ALPHAS, SMOOTH_ALPHAS), key=score)
        assert (chosen.spec.correct, chosen.spec.smooth) == best
        assert chosen.validation.accuracy == pytest.approx(score(best))
        chosen_pairs.add(best)
    assert len(chosen_pairs) > 1


def test_training_nodes_that_the_model_has_not_seen_help_to_choose(make_graph):
    """By the mean of the validation score and that of each half, predicted with the labels of the other half."""
    differ = []
    for seed in range(6):
        graph = make_graph(seed=seed)
        if seed % 2:
            graph = graph.replace(y=np.random.default_rng(seed).integers(0, 3, graph.num_nodes))
        unseen = np.flatnonzero(graph.train_mask)[2:]
        spec = _spec()
        model = spec.build()

        def score(pair, mask, hidden, spec=spec, model=model, graph=graph):
            changed = replace(spec, correct=pair[0], smooth=pair[1])
            y = graph.y.copy()
            y[hidden] = -1
            outputs = predict_corrected(model, changed, graph.replace(y=y))
            return (outputs.argmax(axis=1) == graph.y)[mask].mean()

        def rank(pair, score=score, graph=graph, unseen=unseen):
            halves = [score(pair, half, half) for half in (unseen[::2], unseen[1::2])]
            return round(score(pair, graph.val_mask, []) + np.mean(halves), 9)

        chosen = choose_correction(model, spec, graph, unseen=unseen)
        best = max(product(CORRECT_ALPHAS, SMOOTH_ALPHAS), key=rank)
        assert (chosen.spec.correct, chosen.spec.smooth) == best
        assert chosen.validation.accuracy == pytest.approx(score(best, graph.val_mask, []))
        differ.append(chosen != choose_correction(model, spec, graph))
    assert any(differ)


@pytest.mark.parametrize("num_unseen", [0, 1, 20])
def test_without_two_halves_the_validation_nodes_choose_alone(graph, num_unseen):
    """Too few unseen nodes, or no label left when one half is hidden."""
    ids = np.flatnonzero(graph.train_mask)
    few = graph.replace(train_mask=np.isin(np.arange(graph.num_nodes), ids[: max(1, num_unseen // 20)]))
    spec = _spec()
    model = spec.build()
    unseen = ids[:num_unseen]
    assert choose_correction(model, spec, few, unseen=unseen) == choose_correction(model, spec, few)


def test_the_scores_are_those_of_what_is_predicted(graph):
    spec = _spec()
    model = spec.build()
    chosen = choose_correction(model, spec, graph)
    predicted = predict_corrected(model, chosen.spec, graph).argmax(axis=1)
    assert (predicted == graph.y)[graph.test_mask].mean() == pytest.approx(chosen.test.accuracy)


@pytest.mark.parametrize(
    "change", [{"val_mask": None}, {"train_mask": None}, {"y": np.linspace(0, 1, 60) ** 2}], ids=lambda c: next(iter(c))
)
def test_with_nothing_to_correct_with_or_to_choose_by_nothing_is_corrected(graph, change):
    spec = _spec("regression" if "y" in change else "classes")
    assert choose_correction(spec.build(), spec, graph.replace(**change)) is None


@pytest.mark.parametrize("change", [{"y": None}, {"train_mask": None}])
def test_a_graph_without_training_labels_is_predicted_by_the_model_alone(graph, change):
    spec = _spec(correct=0.8)
    model = spec.build()
    with pytest.warns(FalconWarning, match="the model's alone"):
        outputs = predict_corrected(model, spec, graph.replace(**change))
    assert np.array_equal(outputs, predict(model, MODEL, graph))


@pytest.mark.parametrize(
    ("task", "shape", "message"),
    [
        ("classes", (4,), r"y must hold .*, classes, shape \(N,\), got int64 of shape \(\d+, 4\)"),
        ("multilabel", (4,), r"y must hold .*, several labels per node, shape \(N, 3\), got int64 of shape \(\d+, 4\)"),
        ("multilabel", (), r"y must hold .*, several labels per node, shape \(N, 3\), got int64 of shape \(\d+,\)"),
        ("multilabel", (3,), r"must hold 1, 0, or for what is unknown -1 or NaN, got 7"),
    ],
)
def test_labels_of_another_kind_than_the_model_predicts_correct_nothing(graph, task, shape, message):
    spec = _spec(task, correct=0.8, smooth=0.3)
    other = graph.replace(y=np.full((graph.num_nodes, *shape), 7))
    with pytest.raises(GraphError, match=message):
        predict_corrected(spec.build(), spec, other)


def test_values_are_no_classes_to_correct_by(graph):
    spec = _spec(smooth=0.3)
    with pytest.raises(GraphError, match=r"classes, shape .* got float64"):
        predict_corrected(spec.build(), spec, graph.replace(y=graph.y + 0.5))


def test_the_correction_is_saved_with_the_model(tmp_path):
    spec = _spec(correct=0.8, smooth=0.3)
    save_model(tmp_path, spec, spec.build().state_dict())
    assert load_model(tmp_path)[1] == spec
