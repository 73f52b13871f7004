"""A GCN's step by blocks of columns: the numbers of the unsplit step, with one hidden matrix less than layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.memory import measure_peak, tensors_within
from falcon_gnn.training.models import build_model
from falcon_gnn.training.pieces import WHOLE, Pieces
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import make_optimizer, run_epoch, training_step

CPU = torch.device("cpu")


def _graph(*, is_sparse: bool = False, num_nodes: int = 700, num_features: int = 20, all_train: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_nodes, num_features))
    if is_sparse:
        from scipy.sparse import csr_array

        x = csr_array(np.where(rng.random(x.shape) < 0.02, x, 0.0))
    graph = Graph.from_edges(np.sort(rng.integers(0, num_nodes, (2, 4 * num_nodes)), axis=0), num_nodes, x=x)
    mask = None if all_train else rng.random(num_nodes) < 0.6
    return graph.replace(y=rng.integers(0, 4, num_nodes), train_mask=mask)


def _run(graph: Graph, config: ModelConfig, pieces: Pieces, num_steps: int = 3) -> tuple[nn.Module, list[float]]:
    training = TrainConfig(config)
    (batch,) = make_source(graph, training, "classes", CPU).draw(1)
    torch.manual_seed(0)
    network = build_model(config, graph.num_features, 4).train()
    # Plain gradient descent: Adam would make whole steps of a gradient's rounding.
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    torch.manual_seed(1)
    losses = [float(training_step(network, optimizer, [batch], "float32", pieces)[0]) for _ in range(num_steps)]
    return network, losses


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("concat_self", [False, True])
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("num_layers", [2, 3, 4])
def test_steps_by_columns_are_unsplit_steps(num_layers, batch_norm, concat_self, dropout):
    graph = _graph()
    config = ModelConfig("gcn", 44, num_layers, dropout, batch_norm=batch_norm, concat_self=concat_self)
    whole, losses = _run(graph, config, WHOLE)
    for columns in (2, 6):
        network, found = _run(graph, config, Pieces(columns=columns))
        assert found == pytest.approx(losses, rel=1e-5)
        for (name, value), expected in zip(network.state_dict().items(), whole.state_dict().values(), strict=True):
            assert torch.allclose(value.float(), expected.float(), rtol=1e-4, atol=2e-6), name


@pytest.mark.parametrize("concat_self", [False, True])
def test_sparse_features_and_nodes_that_all_train(concat_self):
    graph = _graph(is_sparse=True, all_train=True)
    config = ModelConfig("gcn", 24, 3, concat_self=concat_self)
    whole, losses = _run(graph, config, WHOLE)
    network, found = _run(graph, config, Pieces(columns=3))
    assert found == pytest.approx(losses, rel=1e-5)
    for value, expected in zip(network.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(value, expected, rtol=1e-4, atol=2e-6)


def test_parts_by_columns_add_up_too():
    graph = _graph()
    base = TrainConfig(ModelConfig("cluster-gcn", 24, 3, num_parts=6), num_batches=2, micro_batches=3)
    values = []
    for config in (base, replace(base, column_blocks=3)):
        torch.manual_seed(0)
        network = build_model(config.model, 20, 4)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
        run_epoch(network, optimizer, make_source(graph, config, "classes", CPU).draw(1), config)
        values.append([parameter.detach() for parameter in network.parameters()])
    for blocked, whole in zip(*values, strict=True):
        assert torch.allclose(blocked, whole, rtol=1e-4, atol=2e-6)


def _train_gas(
    graph: Graph, config: ModelConfig, columns: int, num_batches: int = 5
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the weights, running statistics with them, and the histories after two epochs."""
    training = TrainConfig(config, num_batches=num_batches, column_blocks=columns)
    torch.manual_seed(0)
    network = build_model(config, graph.num_features, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    source = make_source(graph, training, "classes", CPU)
    for epoch in (1, 2):
        run_epoch(network, optimizer, source.draw(epoch), training)
    return [value.detach().float() for value in network.state_dict().values()], source.histories.levels


@pytest.mark.parametrize(
    ("num_layers", "batch_norm", "concat_self", "dropout"),
    [(2, True, True, 0.2), (3, False, False, 0.0), (3, True, False, 0.2), (4, False, True, 0.2)],
)
def test_gas_by_columns_leaves_the_same_weights_and_histories(num_layers, batch_norm, concat_self, dropout):
    # A few labels, so that some batches have none and are run forward only.
    graph = _graph()
    graph = graph.replace(train_mask=np.arange(graph.num_nodes) < 40)
    config = ModelConfig("gas", 44, num_layers, dropout, batch_norm=batch_norm, concat_self=concat_self)
    whole, remembered = _train_gas(graph, config, 1)
    blocked, found = _train_gas(graph, config, 6)
    assert all(level.any() for level in remembered)
    torch.testing.assert_close(blocked, whole, rtol=1e-4, atol=5e-6)
    torch.testing.assert_close(found, remembered, rtol=1e-4, atol=5e-6)


def test_gas_by_columns_goes_on_where_a_batch_has_no_neighbor_outside():
    graph = _graph(num_nodes=200)
    config = ModelConfig("gas", 20, 3, 0.2)
    whole, blocked = (_train_gas(graph, config, columns, num_batches=1) for columns in (1, 2))
    torch.testing.assert_close(blocked, whole, rtol=1e-4, atol=5e-6)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_compressed_gas_by_columns_reads_its_halo_in_both_directions(batch_norm):
    graph = _graph()
    # Without dropout: the codes' draws would leave other masks to the steps after the first.
    exact = ModelConfig("gas", 44, 4, 0.0, batch_norm=batch_norm, concat_self=True)
    whole, remembered = _train_gas(graph, exact, 1)
    coded, found = _train_gas(graph, replace(exact, bits=8), 3)
    # Biases and norms are small after ten steps, in which what rounding did adds up.
    for value, expected in zip([*coded, *found], [*whole, *remembered], strict=True):
        assert value.dim() < 2 or (value - expected).norm() <= 0.06 * expected.norm()


def _peak(graph: Graph, config: ModelConfig, columns: int) -> tuple[int, int, int]:
    """Return the peak of a step in so many blocks, and its shares for all that is trained and for the batch."""
    (batch,) = make_source(graph, TrainConfig(config), "classes", CPU).draw(1)
    network = build_model(config, 4, 4).train()
    optimizer = make_optimizer(network, TrainConfig(config))

    def step() -> None:
        training_step(network, optimizer, [batch], "float32", Pieces(columns=columns))

    peak = measure_peak(step, known=lambda: tensors_within([network, optimizer, batch]))
    trained = 4 * sum(value.nbytes for value in network.parameters())
    inputs = sum(value.nbytes for value in tensors_within(batch))
    return peak.total, trained, inputs


@pytest.mark.parametrize(("num_layers", "num_kept"), [(2, 0), (3, 1), (4, 2)])
def test_one_matrix_is_kept_per_hidden_layer_but_the_first(num_layers, num_kept):
    graph = _graph(num_nodes=4_000, num_features=4)
    config = ModelConfig("gcn", 512, num_layers, 0.2, batch_norm=True)
    peak, trained, inputs = _peak(graph, config, 32)
    matrix = 4_000 * 512 * 4
    rest = peak - trained - inputs - num_kept * matrix - (num_layers - 1) * matrix // 32
    assert 0 < rest < 8 * matrix // 32 + 5 * 4_000 * 4 * 4


def _gradients(
    graph: Graph, config: ModelConfig, columns: int, seed: int = 0
) -> tuple[float, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the loss, the gradients and the running statistics of one step from the same weights."""
    (batch,) = make_source(graph, TrainConfig(config), "classes", CPU).draw(1)
    torch.manual_seed(0)
    network = build_model(config, graph.num_features, 4).train()
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    torch.manual_seed(seed)
    step = training_step(
        network, torch.optim.SGD(network.parameters(), lr=1.0), [batch], "float32", Pieces(columns=columns)
    )
    gradients = {name: before[name] - value.detach() for name, value in network.named_parameters()}
    return float(step[0]), gradients, dict(network.named_buffers())


@pytest.mark.parametrize(
    ("num_layers", "batch_norm", "concat_self", "dropout"),
    [(2, True, True, 0.2), (3, False, False, 0.0), (3, True, True, 0.2), (4, True, False, 0.0), (5, False, True, 0.2)],
)
def test_compressed_steps_by_columns_are_exact_forward_and_near_backward(num_layers, batch_norm, concat_self, dropout):
    graph = _graph()
    exact = ModelConfig("gcn", 44, num_layers, dropout, batch_norm=batch_norm, concat_self=concat_self)
    loss, gradients, statistics = _gradients(graph, exact, 1)
    for columns in (2, 6):
        found, coded, moved = _gradients(graph, replace(exact, bits=8), columns)
        assert found == pytest.approx(loss, rel=1e-5)
        for name, gradient in gradients.items():
            # A bias before batch norm has a gradient of zero, which rounding leaves at about 1e-4.
            assert (coded[name] - gradient).norm() <= 0.01 * gradient.norm() + 5e-4, name
        for name, value in statistics.items():
            assert torch.allclose(moved[name].float(), value.float(), rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("batch_norm", [False, True])
def test_gradients_of_two_bits_are_right_on_average(batch_norm):
    graph = _graph(num_nodes=300)
    exact = ModelConfig("gcn", 24, 3, 0.0, batch_norm=batch_norm, concat_self=True)
    _, gradients, _ = _gradients(graph, exact, 1)
    coded = replace(exact, bits=2)
    samples = [_gradients(graph, coded, 3, seed)[1]["layers.2.weight"] for seed in range(100)]
    mean, spread = torch.stack(samples).mean(0), torch.stack(samples).std(0)
    assert float(spread.mean()) > 0
    deviations = (mean - gradients["layers.2.weight"]) / (spread / 100**0.5 + 1e-9)
    assert float(deviations.abs().mean()) < 1.0


def test_a_compressed_step_draws_as_often_in_any_number_of_blocks():
    config, states = ModelConfig("gcn", 48, 4, 0.2, bits=2), []
    for columns in (2, 6):
        _run(_graph(), config, Pieces(columns=columns), num_steps=1)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize(("num_layers", "num_kept"), [(3, 0), (5, 2)])
def test_no_hidden_layer_is_whole_in_a_compressed_step_of_three_layers(num_layers, num_kept):
    graph = _graph(num_nodes=4_000, num_features=4)
    config = ModelConfig("gcn", 256, num_layers, 0.2, batch_norm=True, bits=2)
    peak, trained, inputs = _peak(graph, config, 16)
    matrix = 4_000 * 256 * 4
    codes, masks = (num_layers - 2) * matrix // 14, (num_layers - 1) * matrix // 32
    rest = peak - trained - inputs - num_kept * matrix - codes - masks
    assert 0 < rest < 9 * matrix // 16 + 5 * 4_000 * 4 * 4


@pytest.mark.parametrize("model", [ModelConfig("sign"), ModelConfig("qsign")])
def test_models_without_columns_refuse_them(model):
    with pytest.raises(OptionError, match="column_blocks must be 1 here, got 2"):
        TrainConfig(model, num_batches=1, column_blocks=2)
