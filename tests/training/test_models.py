import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.batches import to_tensor
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.hops import hop_features
from falcon_gnn.training.models import GCN, GCNLayer, GraphInput, OriginalSIGN, build_model
from falcon_gnn.training.propagation import SparseMatrix


def _read(graph, *, sparse=False):
    matrix = normalized_csr(graph)
    x = to_tensor(np.asarray(graph.x))
    aggregated = matrix @ graph.x
    if sparse:
        return GraphInput(
            SparseMatrix.from_scipy(matrix), to_tensor(csr_array(aggregated)), to_tensor(csr_array(graph.x))
        )
    return GraphInput(SparseMatrix.from_scipy(matrix), to_tensor(aggregated), x)


def _config(model="gcn", **options):
    return ModelConfig(model=model, **{"hidden_channels": 8, "num_layers": 3, "dropout": 0.0, **options})


def _by_formula(model, adjacency, x, *, concat_self):
    hidden = x
    for depth, layer in enumerate(model.layers):
        weight = layer.weight if not concat_self else torch.cat([layer.weight, layer.own_weight])
        hidden = (
            torch.cat([adjacency @ hidden, hidden], 1) if concat_self else adjacency @ hidden
        ) @ weight + layer.bias
        if depth < len(model.layers) - 1:
            if model.norms:
                hidden = model.norms[depth](hidden)
            hidden = hidden.relu()
    return hidden


@pytest.mark.parametrize(
    "options", [{}, {"concat_self": True}, {"batch_norm": True}, {"num_layers": 1}, {"num_layers": 5}]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_gcn_and_its_gradients_equal_the_dense_formula(make_graph, dense_adjacency, options, weighted):
    graph, config = make_graph(weighted=weighted), _config(**options)
    model = GCN(config, 5, 3)
    adjacency = torch.from_numpy(dense_adjacency(graph)).float()
    output = model(_read(graph))
    expected = _by_formula(model, adjacency, torch.from_numpy(graph.x.copy()), concat_self=config.concat_self)
    torch.testing.assert_close(output, expected, atol=1e-4, rtol=1e-4)
    probe = torch.randn_like(output)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad((output * probe).sum(), parameters)
    wanted = torch.autograd.grad((expected * probe).sum(), parameters)
    torch.testing.assert_close(gradients, wanted, atol=2e-3, rtol=1e-3)


def test_gcn_equals_pygs_layers_with_the_same_weights(make_graph):
    graph = make_graph(weighted=True)
    model = GCN(_config(num_layers=2), 5, 3)
    edge_index, weight = torch.from_numpy(graph.edge_index), torch.from_numpy(graph.edge_weight.copy())
    hidden = torch.from_numpy(graph.x.copy())
    for layer, conv in zip(model.layers, [GCNConv(5, 8), GCNConv(8, 3)], strict=True):
        conv.lin.weight.data, conv.bias.data = layer.weight.data.t().contiguous(), layer.bias.data
        hidden = conv(hidden.relu() if layer is model.layers[1] else hidden, edge_index, weight)
    torch.testing.assert_close(model(_read(graph)), hidden, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("concat_self", [False, True])
def test_sparse_features_give_the_same_outputs_and_gradients(graph, concat_self):
    model = GCN(_config(concat_self=concat_self), 5, 3)
    dense, sparse = model(_read(graph)), model(_read(graph, sparse=True))
    torch.testing.assert_close(sparse, dense)
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(output.square().sum(), parameters) for output in (sparse, dense)]
    torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(("in_channels", "out_channels"), [(8, 3), (3, 8), (5, 5)])
@pytest.mark.parametrize("concat_self", [False, True])
def test_both_orders_of_multiplication_give_the_same(graph, in_channels, out_channels, concat_self):
    layer = GCNLayer(in_channels, out_channels, concat_self=concat_self)
    adjacency, hidden = _read(graph).adjacency, torch.randn(60, in_channels)
    expected = layer.transform(adjacency @ hidden, hidden)
    torch.testing.assert_close(layer(adjacency, hidden), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("in_channels", "out_channels", "kept"), [(8, 3, 8), (3, 8, 3), (5, 5, 5)])
def test_a_layer_keeps_one_matrix_of_its_narrower_side_for_the_backward_pass(graph, in_channels, out_channels, kept):
    layer, adjacency = GCNLayer(in_channels, out_channels), _read(graph).adjacency
    widths = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: widths.append(saved.shape) or saved, lambda saved: saved
    ):
        layer(adjacency, torch.randn(60, in_channels, requires_grad=True))
    assert [shape[1] for shape in widths if len(shape) == 2 and shape[0] == 60] == [kept]


@pytest.mark.parametrize("in_channels", [5, 8])
def test_with_concat_self_a_layer_keeps_its_input_alone(graph, in_channels):
    layer, adjacency = GCNLayer(in_channels, 5, concat_self=True), _read(graph).adjacency
    kept = set()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: kept.add(saved.data_ptr()) or saved, lambda saved: saved
    ):
        hidden = torch.randn(60, in_channels, requires_grad=True)
        layer(adjacency, hidden)
    others = {tensor.data_ptr() for tensor in (*layer.parameters(), *_tensors(adjacency))}
    assert kept - others == {hidden.data_ptr()}


def _tensors(matrix):
    return matrix.indptr, matrix.indices, matrix.values


@pytest.mark.parametrize("options", [{}, {"concat_self": True}, {"batch_norm": True}])
def test_eight_bit_gcn_has_the_same_output_and_close_gradients(graph, options):
    exact, compressed = GCN(_config(**options), 5, 3), GCN(_config(bits=8, **options), 5, 3)
    compressed.load_state_dict(exact.state_dict())
    gradients = []
    for model in (exact, compressed):
        output = model(_read(graph))
        gradients.append(
            torch.autograd.grad(functional.mse_loss(output, torch.ones_like(output)), list(model.parameters()))
        )
    torch.testing.assert_close(compressed(_read(graph)), exact(_read(graph)))
    torch.testing.assert_close(*gradients, atol=0.02, rtol=0.1)


def test_dropout_is_off_in_evaluation_and_on_in_training(graph):
    model = GCN(_config(dropout=0.5), 5, 3)
    inputs = _read(graph)
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


@pytest.mark.parametrize("bits", [None, 2])
def test_batch_norm_survives_a_batch_of_one_node(graph, bits):
    model = GCN(_config(batch_norm=True, bits=bits), 5, 3)
    single = Graph.from_edges(np.zeros((2, 0), int), 1, x=graph.x[:1])
    assert model(_read(single)).isfinite().all()


def test_sign_is_an_mlp_of_the_hop_features(graph):
    model = build_model(_config("sign", num_hops=2), 5, 3)
    features = torch.from_numpy(hop_features(graph, 2))
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    expected = linears[2](linears[1](linears[0](features).relu()).relu())
    assert [linear.in_features for linear in linears] == [15, 8, 8]
    torch.testing.assert_close(model(features), expected)


def test_qsign_has_the_parameters_of_sign_and_its_outputs(graph):
    sign, qsign = build_model(_config("sign"), 5, 3), build_model(_config("qsign"), 5, 3)
    qsign.load_state_dict(sign.state_dict())
    features = torch.from_numpy(hop_features(graph, 2))
    torch.testing.assert_close(qsign.eval()(features), sign.eval()(features))
    assert qsign.bits == 2


@pytest.mark.parametrize("batch_norm", [False, True])
def test_original_sign_equals_the_formula_of_appendix_b(graph, batch_norm):
    model = OriginalSIGN(_config("sign-original", num_layers=2, num_hops=1, batch_norm=batch_norm), 5, 3)
    features = torch.from_numpy(hop_features(graph, 1))
    z = torch.cat([model.hops[0](features[:, :5]), model.hops[1](features[:, 5:])], dim=1)
    z = (z if model.norm is None else model.norm(z)).relu()
    head = [module for module in model.mlp.modules() if isinstance(module, nn.Linear)]
    torch.testing.assert_close(model(features), head[0](z))
    assert len(head) == 1


def test_weights_depend_on_the_seed_alone():
    models = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        models.append(build_model(_config(), 5, 3).state_dict()["layers.0.weight"])
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_first_weights_follow_glorot_over_both_halves():
    layer = GCNLayer(300, 100, concat_self=True)
    bound = (6 / 700) ** 0.5
    for half in (layer.weight, layer.own_weight):
        assert half.abs().max() <= bound
        assert half.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
