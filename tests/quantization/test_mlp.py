"""The multilayer perceptron with and without compressed activations."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from falcon_gnn.quantization import chunks
from falcon_gnn.quantization.mlp import MLP

SavedBytes = Callable[..., int]
RelativeError = Callable[[Tensor, Tensor], float]
Gradients = Callable[[nn.Module, Tensor, Tensor], dict[str, Tensor]]


def make_pair(bits: int, num_layers: int = 3, **options: object) -> tuple[MLP, MLP]:
    """Return a plain and a compressed MLP with the same weights."""
    plain = MLP(30, 64, 7, num_layers, **options)  # type: ignore[arg-type]
    compressed = MLP(30, 64, 7, num_layers, bits=bits, **options)  # type: ignore[arg-type]
    compressed.load_state_dict(plain.state_dict())
    return plain, compressed


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_VALUES", 64 * 64)


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_the_compressed_training_output_is_that_of_the_plain_one(num_layers: int, batch_norm: bool) -> None:
    plain, compressed = make_pair(2, num_layers, dropout=0.0, batch_norm=batch_norm)
    x = torch.randn(300, 30)
    torch.testing.assert_close(compressed(x), plain(x))
    torch.testing.assert_close(compressed.state_dict(), plain.state_dict())


@pytest.mark.parametrize("batch_norm", [True, False])
def test_evaluation_is_equal_to_the_last_bit(batch_norm: bool) -> None:
    plain, compressed = make_pair(2, batch_norm=batch_norm)
    plain(torch.randn(100, 30))
    compressed.load_state_dict(plain.state_dict())
    x = torch.randn(50, 30)
    assert torch.equal(compressed.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("batch_norm", [True, False])
def test_gradients_are_close_at_8_bits(batch_norm: bool, gradients: Gradients, relative_error: RelativeError) -> None:
    plain, compressed = make_pair(8, dropout=0.0, batch_norm=batch_norm)
    x, target = torch.randn(1000, 30), torch.randn(1000, 7)
    expected, found = gradients(plain, x, target), gradients(compressed, x, target)
    for name, value in expected.items():
        # A bias before batch norm has no effect, its gradient is rounding noise.
        if not (batch_norm and name in ("linears.0.bias", "linears.1.bias")):
            assert relative_error(found[name], value) < 0.02, name


def scores(pair: tuple[MLP, MLP], num_rows: int, gradients: Gradients) -> dict[str, float]:
    """Return the mean squared distance of 100 draws' mean gradient from the exact one, in its squared deviations."""
    x, target = torch.randn(num_rows, 30), torch.randn(num_rows, 7)
    expected = gradients(pair[0], x, target)
    draws = [gradients(pair[1], x, target) for _ in range(100)]
    found = {}
    for name, value in expected.items():
        deviation, mean = torch.std_mean(torch.stack([draw[name] for draw in draws]), 0)
        # Rounding alone is the whole deviation of a unit that is always off.
        found[name] = float(((mean - value) / (deviation / 10).clamp_min(1e-4)).square().mean())
    return found


def test_gradients_without_batch_norm_are_right_in_expectation(gradients: Gradients) -> None:
    found = scores(make_pair(2, dropout=0.0, batch_norm=False), 64, gradients)
    assert max(found.values()) < 1.3


def test_gradients_with_batch_norm_are_right_in_expectation_up_to_one_over_the_batch(gradients: Gradients) -> None:
    small, large = (scores(make_pair(2, dropout=0.0), num_rows, gradients) for num_rows in (20, 500))
    assert max(large.values()) < 1.6
    assert small["linears.0.weight"] > 1.6


def slopes(loss: Callable[[], Tensor], parameter: Tensor) -> Tensor:
    """Return the gradient by central differences, entry by entry."""
    found = torch.empty_like(parameter)
    with torch.no_grad():
        for entry, slope in zip(parameter.view(-1), found.view(-1), strict=True):
            entry += 1e-6
            upper = loss()
            entry -= 2e-6
            slope.copy_((upper - loss()) / 2e-6)
            entry += 1e-6
    return found


@pytest.mark.parametrize("batch_norm", [True, False])
def test_gradients_with_dropout_are_those_of_the_drawn_network(batch_norm: bool, relative_error: RelativeError) -> None:
    model = MLP(4, 8, 3, 3, dropout=0.4, batch_norm=batch_norm, bits=8).double()
    x, target = torch.randn(25, 4, dtype=torch.float64, requires_grad=True), torch.randn(25, 3, dtype=torch.float64)

    def loss() -> Tensor:
        torch.manual_seed(4)
        return (model(x) * target).sum()

    wanted = [x, *(p for name, p in model.named_parameters() if "bias" not in name)]
    for parameter, gradient in zip(wanted, torch.autograd.grad(loss(), wanted), strict=True):
        assert relative_error(gradient, slopes(loss, parameter)) < 0.05


def test_the_input_gets_its_gradient(relative_error: RelativeError) -> None:
    plain, compressed = make_pair(8, dropout=0.0)
    x = torch.randn(500, 30, requires_grad=True)
    target = torch.randn(500, 7)
    expected, found = (torch.autograd.grad((model(x) * target).sum(), x)[0] for model in (plain, compressed))
    assert relative_error(found, expected) < 0.02


def test_a_hidden_unit_costs_less_than_045_bytes(saved_bytes: SavedBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    model, x = MLP(64, 512, 10, num_layers=4, bits=2), torch.randn(2000, 64)
    assert saved_bytes(lambda: model(x), inputs=x) < 0.45 * 3 * 512 * 2000


def test_a_plain_unit_costs_8_bytes_and_a_bit(saved_bytes: SavedBytes) -> None:
    model, x = MLP(64, 512, 10, num_layers=4), torch.randn(2000, 64)
    assert saved_bytes(lambda: model(x), inputs=x) == pytest.approx(8.125 * 3 * 512 * 2000, rel=0.01)


def test_torch_manual_seed_decides_a_training_pass(gradients: Gradients) -> None:
    _, model = make_pair(2)
    x, target = torch.randn(100, 30), torch.randn(100, 7)
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(gradients(model, x, target)["linears.0.weight"])
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_a_compressed_model_learns() -> None:
    x = torch.randn(400, 30)
    labels = (x[:, 0] * x[:, 1] > 0).long()
    model = MLP(30, 64, 2, 3, dropout=0.1, bits=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    assert (model.eval()(x).argmax(1) == labels).float().mean() > 0.95


@pytest.mark.parametrize("bits", [None, 2])
def test_an_empty_batch_gives_an_empty_output_and_zero_gradients(bits: int | None) -> None:
    model = MLP(30, 64, 7, 3, bits=bits)
    output = model(torch.empty(0, 30))
    output.sum().backward()
    assert output.shape == (0, 7)
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in model.parameters())


@pytest.mark.parametrize("bits", [None, 2])
def test_one_row_is_refused_in_training_with_batch_norm_only(bits: int | None) -> None:
    with pytest.raises(ValueError, match="more than one row"):
        MLP(30, 64, 7, 2, bits=bits)(torch.ones(1, 30))
    assert MLP(30, 64, 7, 2, bits=bits, batch_norm=False)(torch.ones(1, 30)).shape == (1, 7)
    assert MLP(30, 64, 7, 2, bits=bits).eval()(torch.ones(1, 30)).shape == (1, 7)


def test_norms_set_to_evaluation_keep_their_statistics() -> None:
    plain, compressed = make_pair(2, dropout=0.0)
    for model in (plain, compressed):
        model.norms.eval()
    x = torch.randn(50, 30) + 3
    assert torch.equal(compressed(x), plain(x))


@pytest.mark.parametrize("num_layers", [1, 3])
def test_autocast_runs_the_products_in_bfloat16(
    num_layers: int, gradients: Gradients, relative_error: RelativeError
) -> None:
    plain, compressed = make_pair(8, num_layers, dropout=0.0)
    x, target = torch.randn(500, 30), torch.randn(500, 7)
    expected = gradients(plain, x, target)["linears.0.weight"]
    with torch.autocast("cpu", torch.bfloat16):
        output = compressed(x)
    (output * target).sum().backward()
    assert 1e-4 < relative_error(compressed.linears[0].weight.grad, expected) < 0.2


def test_frozen_parameters_get_no_gradient(gradients: Gradients) -> None:
    _, model = make_pair(2)
    model.linears[0].weight.requires_grad_(False)
    found = gradients(model, torch.randn(50, 30), torch.randn(50, 7))
    assert "linears.0.weight" not in found
    assert "linears.1.weight" in found


@pytest.mark.parametrize(
    ("options", "message"), [({"bits": 3}, "bits must be"), ({"dropout": 1.5}, "dropout must lie")]
)
def test_options_out_of_range_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MLP(4, 4, 4, 2, **options)  # type: ignore[arg-type]


def test_sizes_and_shapes_out_of_range_are_named() -> None:
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        MLP(4, 4, 4, 0)
    with pytest.raises(ValueError, match=r"x must have shape \(rows, 4\), got \(3, 5\)"):
        MLP(4, 4, 4, 2)(torch.ones(3, 5))


def test_reset_draws_new_weights_and_forgets_the_statistics() -> None:
    model = MLP(30, 64, 7, 2)
    before = model.linears[0].weight.detach().clone()
    model(torch.randn(50, 30) + 5)
    model.reset_parameters()
    assert not torch.equal(model.linears[0].weight, before)
    assert torch.equal(model.norms[0].running_mean, torch.zeros(64))
