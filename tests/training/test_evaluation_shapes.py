"""The predicted peak of an evaluation beside the measured one, and beside a memory budget."""

from collections import deque

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from falcon_gnn.errors import BudgetError
from falcon_gnn.graph import Graph
from falcon_gnn.planning.estimate import estimate_evaluation
from falcon_gnn.planning.fit import fit_budget
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.evaluation_shapes import evaluation_of_graph, predict_evaluation
from falcon_gnn.training.inference import GraphScorer, InferenceSettings, evaluating, make_scorer
from falcon_gnn.training.memory import measure_peak, tensors_within
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import shape_of_graph
from falcon_gnn.training.workspace import CPU_WORKSPACE_BYTES

MODELS = [
    ModelConfig("sign", 256, 3, 0.2), ModelConfig("qsign", 256, 3, 0.2, bits=2), ModelConfig("sign-original", 64, 3),
    ModelConfig("gcn", 256, 2), ModelConfig("gcn", 256, 3, concat_self=True),
    ModelConfig("gas", 192, 4, batch_norm=True),
]  # fmt: skip


def _graph(num_nodes: int = 12_000) -> Graph:
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(0, num_nodes, (2, 4 * num_nodes)), axis=0)
    part = np.arange(num_nodes) % 10
    return Graph.from_edges(
        edges[:, edges[0] != edges[1]], num_nodes, x=rng.random((num_nodes, 24), np.float32),
        y=rng.integers(0, 5, num_nodes), train_mask=part < 5, val_mask=(part >= 5) & (part < 8), test_mask=part >= 8,
    )  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.model} {model.num_layers}")
def test_an_evaluation_stays_near_and_below_what_is_predicted(model: ModelConfig) -> None:
    graph, config = _graph(), TrainConfig(model, num_batches=2 if model.model != "gcn" else 1)
    wanted = np.flatnonzero(graph.val_mask)
    settings = InferenceSettings(torch.device("cpu"))
    network = build_model(config.model, graph.num_features, 5)
    scorer = make_scorer(config.model, graph, wanted, settings)
    measured = measure_peak(lambda: scorer.outputs(network), known=lambda: tensors_within([network, scorer])).total
    moments = 2 * sum(parameter.nbytes for parameter in network.parameters())
    constant = sum(
        part.nbytes
        for part in (getattr(scorer, "aggregated", None), getattr(scorer, "features", None))
        if part is not None
    )
    scored = evaluation_of_graph(graph, shape_of_graph(graph, config, graph))
    assert scored.num_wanted == 3_600
    predicted = predict_evaluation(scored, config)
    assert measured + moments <= predicted <= 1.1 * (measured + moments + constant) + 2**20


@pytest.mark.parametrize("piece_bytes", [2**24, 2**20])
@pytest.mark.parametrize("model", [MODELS[1], *MODELS[4:]], ids=lambda model: f"{model.model} {model.num_layers}")
def test_on_a_card_an_evaluation_stays_near_what_is_predicted(model: ModelConfig, piece_bytes: int) -> None:
    graph, num_batches = _graph(6_000), 2 if model.model != "gcn" else 1
    config = TrainConfig(model, num_batches=num_batches, device="cuda", eval_piece_bytes=piece_bytes)
    predicted = predict_evaluation(evaluation_of_graph(graph, shape_of_graph(graph, config, graph)), config)
    # Tensors on the meta device stand for those of a card: sizes and places are real, values are not.
    card = torch.device("meta")
    with FakeTensorMode(allow_non_fake_inputs=True):
        with card:
            network = build_model(config.model, graph.num_features, 5)
        settings = InferenceSettings(card, piece_bytes=piece_bytes)
        scorer = make_scorer(config.model, graph, np.flatnonzero(graph.val_mask), settings)

        def score() -> None:
            with evaluating(network):
                if isinstance(scorer, GraphScorer):
                    scorer._outputs(network)  # type: ignore[arg-type]
                else:
                    deque(scorer._pieces(network), 0)

        measured = measure_peak(score, card, known=lambda: tensors_within([network, scorer])).total
    moments = 2 * sum(parameter.nbytes for parameter in network.parameters())
    assert 0.99 * (measured + moments) <= predicted <= 1.25 * (measured + moments)


@pytest.mark.parametrize("model", MODELS[2:5], ids=lambda model: f"{model.model} {model.num_layers}")
def test_smaller_pieces_give_the_same_outputs_in_less_memory(model: ModelConfig) -> None:
    graph = _graph(5_000)
    scored = evaluation_of_graph(graph, shape_of_graph(graph, TrainConfig(model), graph))
    network = build_model(model, graph.num_features, 5)
    outputs, peaks = [], []
    for piece_bytes in (2**24, 2**18, 2**16):
        settings = InferenceSettings(torch.device("cpu"), piece_bytes=piece_bytes)
        outputs.append(make_scorer(model, graph, np.flatnonzero(graph.test_mask), settings).outputs(network))
        peaks.append(predict_evaluation(scored, TrainConfig(model, eval_piece_bytes=piece_bytes)))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs[2], outputs[0], rtol=1e-4, atol=1e-5)
    assert peaks[0] > peaks[1] > peaks[2]


def test_a_budget_holds_for_the_evaluations_too() -> None:
    graph, config = _graph(), TrainConfig(ModelConfig("gcn", 256, 3))
    scored = evaluation_of_graph(graph, shape_of_graph(graph, config, graph))
    needed = estimate_evaluation(scored, config)
    plan = fit_budget(graph, config, needed)
    assert plan.evaluation_bytes <= plan.peak_bytes <= needed
    smaller = fit_budget(graph, config, needed - 1)
    assert smaller.training.eval_piece_bytes < config.eval_piece_bytes
    assert smaller.peak_bytes < needed
    with pytest.raises(BudgetError, match=r"to score the model on the original graph \(12,000 nodes\)"):
        fit_budget(graph, config, CPU_WORKSPACE_BYTES + 2**20)
