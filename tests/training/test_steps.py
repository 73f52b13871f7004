import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from falcon_gnn.errors import OptionError
from falcon_gnn.training.batches import GraphBatch, RowBatch
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.history import Histories, HistoryBatch, HistoryInput
from falcon_gnn.training.models import GraphInput, build_model
from falcon_gnn.training.propagation import SparseMatrix
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import make_optimizer, own_randomness, resolve_device, training_step
from falcon_gnn.training.targets import Targets

CPU = torch.device("cpu")
MODELS = ["gcn", "cluster-gcn", "gas", "sign", "qsign", "sign-original"]


def _sparse(num_rows, num_columns, num_entries):
    ids = torch.int32
    return SparseMatrix(
        torch.zeros(num_rows + 1, dtype=ids), torch.zeros(num_entries, dtype=ids), torch.zeros(num_entries), num_columns
    )


def _fake_batch(config):
    targets = Targets(torch.zeros(20, dtype=torch.int64), "classes")
    if config.uses_hop_features:
        return RowBatch(torch.zeros(20, 15), targets)
    inputs = GraphInput(_sparse(20, 20, 50), torch.zeros(20, 5), torch.zeros(20, 5))
    if config.model != "gas":
        return GraphBatch(inputs, targets)
    halo = HistoryInput(inputs, _sparse(20, 7, 9), torch.arange(20), torch.arange(7), Histories(40, 8, 2))
    return HistoryBatch(halo, targets)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("bits", [None, 2])
@pytest.mark.parametrize("model", MODELS)
def test_a_step_runs_on_shapes_alone(model, bits, precision):
    if model == "sign":
        bits = None
    config = TrainConfig(ModelConfig(model=model, hidden_channels=8, bits=bits, batch_norm=True), precision=precision)
    with FakeTensorMode():
        network = build_model(config.model, 5, 3)
        done = training_step(network, make_optimizer(network, config), [_fake_batch(config.model)], precision)
    assert done is not None
    assert done[0].shape == ()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("bits", [None, 2])
@pytest.mark.parametrize("model", MODELS)
def test_steps_lower_the_loss_in_either_precision(graph, model, bits, precision):
    bits = None if model == "sign" else bits
    options = ModelConfig(model=model, hidden_channels=16, bits=bits, dropout=0.0, concat_self=model == "gcn")
    config = TrainConfig(options, learning_rate=0.02, precision=precision)
    torch.manual_seed(0)
    network = build_model(config.model, 5, 3)
    optimizer = make_optimizer(network, config)
    (batch,) = make_source(graph, config, "classes", CPU).draw(1)
    losses = [float(training_step(network, optimizer, [batch], precision)[0]) for _ in range(30)]
    assert losses[-1] < 0.6 * losses[0]


def test_a_step_leaves_no_gradient_behind(graph):
    config = TrainConfig(ModelConfig("gcn", hidden_channels=4))
    network = build_model(config.model, 5, 3)
    (batch,) = make_source(graph, config, "classes", CPU).draw(1)
    training_step(network, make_optimizer(network, config), [batch], "float32")
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("name", ["nonsense", "cuda:99", "meta"])
def test_an_unusable_device_is_named(name):
    with pytest.raises(OptionError, match=f"device must be auto or a device.*{name}"):
        resolve_device(name)


def test_randomness_is_seeded_inside_and_untouched_outside():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with own_randomness(3, CPU, deterministic=True):
            draws.append(torch.rand(4))
            assert torch.are_deterministic_algorithms_enabled()
    assert torch.equal(*draws)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.are_deterministic_algorithms_enabled()
