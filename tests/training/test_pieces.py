"""A step in pieces: the numbers of the unsplit step, in the memory of a piece."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.draws import StepDraws
from falcon_gnn.quantization.mlp import MLP
from falcon_gnn.training.batches import RowBatch
from falcon_gnn.training.coded_rows import CodedRowStep
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.memory import measure_peak, tensors_within
from falcon_gnn.training.models import build_model
from falcon_gnn.training.partition import deal_parts
from falcon_gnn.training.pieces import WHOLE, Pieces, add_gradients
from falcon_gnn.training.row_steps import BatchLoss
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import make_optimizer, run_epoch, training_step
from falcon_gnn.training.targets import Targets

NUM_ROWS, NUM_FEATURES, NUM_OUTPUTS = 1_100, 12, 5
ROW_MODELS = [("sign", None), ("qsign", 2), ("qsign", 8), ("sign-original", None), ("sign-original", 2)]


def _targets(kind: str) -> Targets:
    generator = torch.Generator().manual_seed(3)
    values = torch.randint(0, 2, (NUM_ROWS, NUM_OUTPUTS), generator=generator).float()
    weights = torch.rand(NUM_ROWS, generator=generator)
    if kind == "classes":
        return Targets(torch.randint(0, NUM_OUTPUTS, (NUM_ROWS,), generator=generator), "classes")
    if kind == "weighted classes":
        return replace(_targets("classes"), weights=weights)
    if kind == "unknown cells":
        values[torch.rand(values.shape, generator=generator) < 0.3] = torch.nan
        return Targets(values, "multilabel", has_unknown=True, weights=weights)
    return Targets(values, "regression" if kind == "regression" else "multilabel", weights=None)


def _batch(num_blocks: int, kind: str = "multilabel", num_features: int = NUM_FEATURES) -> RowBatch:
    generator = torch.Generator().manual_seed(4)
    features = torch.randn(NUM_ROWS, num_blocks * num_features, generator=generator)
    # Features that are far from 0 and of several sizes: means and scatter have something to say.
    return RowBatch(features * torch.linspace(0.5, 2, features.shape[1]) + 3, _targets(kind))


def _model(config: ModelConfig, num_features: int = NUM_FEATURES) -> nn.Module:
    torch.manual_seed(0)
    return build_model(config, num_features, NUM_OUTPUTS).train()


def _steps(
    config: ModelConfig, pieces: Pieces, num_features: int = NUM_FEATURES, num_steps: int = 5
) -> tuple[nn.Module, torch.optim.Adam, list[float]]:
    """Take steps in double precision: Adam makes whole steps of the rounding of a gradient that ought to be 0."""
    network = _model(config, num_features).double()
    batch = _batch(config.num_hops + 1, num_features=num_features)
    batch = RowBatch(batch.features.double(), replace(batch.targets, values=batch.targets.values.double()))
    optimizer = make_optimizer(network, TrainConfig(config))
    torch.manual_seed(1)
    losses = [float(training_step(network, optimizer, [batch], "float32", pieces)[0]) for _ in range(num_steps)]
    return network, optimizer, losses


def _gradients(config: ModelConfig, pieces: Pieces | None, kind: str = "multilabel") -> dict[str, torch.Tensor]:
    network, batch = _model(config), _batch(config.num_hops + 1, kind)
    torch.manual_seed(1)
    if pieces is None:
        batch.targets.loss(batch.outputs(network)).backward()
    else:
        add_gradients(network, batch, "float32", pieces)
    return {name: parameter.grad for name, parameter in network.named_parameters()}


def _is_free(name: str, config: ModelConfig) -> bool:
    """Return whether a bias stands before a batch norm, which takes it away: its gradient is rounding, no more."""
    last = config.num_layers - (2 if config.model == "sign-original" else 1)
    is_linear_bias = name.endswith("bias") and "norm" not in name
    return config.batch_norm and is_linear_bias and not name.endswith(f"linears.{last}.bias")


@pytest.mark.parametrize(
    ("batch_norm", "keep_matrix", "num_features"),
    [(False, True, 12), (True, True, 12), (True, False, 12), (True, True, 2), (True, False, 2)],
)
@pytest.mark.parametrize("num_layers", [2, 3, 4])
@pytest.mark.parametrize(("model", "bits"), ROW_MODELS)
def test_five_steps_in_pieces_are_five_unsplit_steps(model, bits, num_layers, batch_norm, keep_matrix, num_features):
    """Two features a hop are few beside the hidden values, so that their scatter matrix is used; twelve are not."""
    config = ModelConfig(model, 32, num_layers, batch_norm=batch_norm, bits=bits)
    whole, optimizer, losses = _steps(config, WHOLE, num_features)
    for count in (2, 5):
        network, other, found = _steps(config, Pieces(count, keep_matrix), num_features)
        assert found == pytest.approx(losses, rel=1e-9)
        for (name, value), expected in zip(network.named_parameters(), whole.parameters(), strict=True):
            if not _is_free(name, config):
                assert torch.allclose(value, expected, rtol=0, atol=1e-7), name
                moments, wanted = other.state[value], optimizer.state[expected]
                assert torch.allclose(moments["exp_avg"], wanted["exp_avg"], rtol=1e-6, atol=1e-9), name
                assert torch.allclose(moments["exp_avg_sq"], wanted["exp_avg_sq"], rtol=1e-6, atol=1e-12), name
        for name, value in network.named_buffers():
            if "mean" not in name:
                assert torch.allclose(value, whole.get_buffer(name), rtol=1e-6), name


@pytest.mark.parametrize("kind", ["classes", "weighted classes", "multilabel", "unknown cells", "regression"])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_pieces_share_the_mean_over_the_whole_batch(kind, batch_norm):
    config = ModelConfig("sign", 16, 3, batch_norm=batch_norm)
    whole = _gradients(config, None, kind)
    pieces = _gradients(config, Pieces(3), kind)
    for name, gradient in whole.items():
        assert torch.allclose(pieces[name], gradient, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize(("model", "bits"), [("sign", None), ("qsign", 2)])
def test_masks_and_codes_are_the_same_for_one_piece_and_many(model, bits):
    """With other draws the gradients of the first layer would differ by their own size, not by rounding."""
    config = ModelConfig(model, 32, 3, dropout=0.5, bits=bits)
    one, many = _gradients(config, Pieces(1)), _gradients(config, Pieces(5))
    for name, gradient in one.items():
        assert (many[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def test_pieces_are_whole_blocks():
    assert Pieces(3).cut(1_100) == [slice(0, 512), slice(512, 1_024), slice(1_024, 1_100)]
    assert len(Pieces(100).cut(1_100)) == 5
    assert Pieces(2).cut(100) == [slice(0, 100)]


def test_a_gcn_on_rows_takes_pieces_too():
    config = ModelConfig("gcn", 16, 3)
    batch = RowBatch(torch.randn(NUM_ROWS, NUM_FEATURES), _targets("classes"))
    gradients = []
    for pieces in (None, Pieces(4)):
        network = _model(config)
        torch.manual_seed(1)
        if pieces is None:
            batch.targets.loss(batch.outputs(network)).backward()
        else:
            add_gradients(network, batch, "float32", pieces)
        gradients.append([parameter.grad for parameter in network.parameters()])
    for pieced, whole in zip(*gradients, strict=True):
        assert torch.allclose(pieced, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("model", "bits"), [("sign", None), ("qsign", 2)])
@pytest.mark.parametrize(("batch_norm", "keep_matrix", "blocks"), [(False, True, 5), (True, True, 8), (True, False, 8)])
def test_a_step_needs_what_it_trains_and_a_few_blocks(model, bits, batch_norm, keep_matrix, blocks):
    config = ModelConfig(model, 256, 3, batch_norm=batch_norm, bits=bits)
    network = build_model(config, 20, 7).train()
    optimizer = make_optimizer(network, TrainConfig(config))
    batch = RowBatch(torch.randn(10 * 256, 60), Targets(torch.zeros(10 * 256, dtype=torch.int64), "classes"))

    def step() -> None:
        training_step(network, optimizer, [batch], "float32", Pieces(10, keep_matrix))

    peak = measure_peak(step, known=lambda: tensors_within([network, optimizer, batch]))
    floor = (
        4 * sum(value.nbytes for value in network.parameters()) + batch.features.nbytes + batch.targets.values.nbytes
    )
    kept = 2560 * 256 * 4 if batch_norm and keep_matrix and bits is None else 0
    if batch_norm and bits is not None:
        # Codes with a zero point and a step for 256 of them, masks, and the gradient of the outputs.
        kept = 2 * 2560 * 256 * (2 + 1 + 32 / 256) / 8 + 2560 * 7 * 4
    assert peak.total - floor - kept <= blocks * 256 * 256 * 4


def test_batches_of_parts_add_up_before_a_step(graph):
    """Two halves of a graph, dealt as one epoch's batches: the step is that of their summed losses over all nodes."""
    config = TrainConfig(ModelConfig("cluster-gcn", 8, 2, dropout=0.0), num_batches=1, micro_batches=2)
    source = make_source(graph, config, "classes", torch.device("cpu"))
    batches = list(source.draw(1))
    assert len(batches) == len(deal_parts(2, 2, 0, 1)) == 2
    torch.manual_seed(0)
    network = build_model(config.model, 5, 3).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    before = [value.detach().clone() for value in network.parameters()]
    summed = sum(batch.targets.summed_loss(batch.outputs(network)) for batch in batches)
    expected = torch.autograd.grad(summed / sum(len(batch.targets) for batch in batches), list(network.parameters()))
    loss = run_epoch(network, optimizer, source.draw(1), config)
    assert np.isfinite(loss)
    for value, old, gradient in zip(network.parameters(), before, expected, strict=True):
        assert torch.allclose(value, old - gradient, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"model": ModelConfig("gcn")}, "whole graph"),
        ({"model": ModelConfig("gcn", batch_norm=True), "train_on": "rows"}, "batch norm"),
        ({"model": ModelConfig("gas", num_parts=3), "num_batches": 2}, "num_batches x micro_batches"),
    ],
)
def test_pieces_that_cannot_be_are_refused(options, what):
    with pytest.raises(OptionError, match=what):
        TrainConfig(**options, micro_batches=2)


def test_the_way_forward_of_a_coded_step_takes_larger_pieces_where_the_gradients_will_be() -> None:
    x, targets = torch.randn(1500, 4), Targets(torch.zeros(1500, 3), "multilabel")
    rows = Pieces(count=6).cut(1500)
    for width, expected in ((1024, [0, 768, 1500]), (16, [0, 256, 512, 768, 1024, 1280, 1500])):
        chain = MLP(4, width, 3, 3, bits=2).row_chain()
        step = CodedRowStep(chain, x, rows, StepDraws(1500), BatchLoss(targets), None)
        joined = step._join()
        assert [part.start for part in joined] + [joined[-1].stop] == expected
