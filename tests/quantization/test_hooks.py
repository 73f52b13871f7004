"""Compression of what any model saves."""

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization.hooks import compressed_activations

RelativeError = Callable[[Tensor, Tensor], float]
Gradients = Callable[[nn.Module, Tensor, Tensor], dict[str, Tensor]]


class Compressed(nn.Module):
    """A model whose forward pass runs inside the context."""

    def __init__(self, model: nn.Module, bits: int, **options: object) -> None:
        super().__init__()
        self.model, self.bits, self.options = model, bits, options

    def forward(self, x: Tensor) -> Tensor:
        with compressed_activations(self.bits, **self.options):  # type: ignore[arg-type]
            output: Tensor = self.model(x)
        return output


def make_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(30, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 7)
    )


def test_the_output_is_exact() -> None:
    model, x = make_model(), torch.randn(200, 30)
    assert torch.equal(Compressed(model, 2)(x), model(x))


def test_gradients_are_close_at_8_bits(gradients: Gradients, relative_error: RelativeError) -> None:
    model, x, target = make_model(), torch.randn(1000, 30), torch.randn(1000, 7)
    expected, found = gradients(model, x, target), gradients(Compressed(model, 8), x, target)
    for name, value in expected.items():
        if name != "0.bias":
            assert relative_error(found[f"model.{name}"], value) < 0.02, name


def test_gradients_of_linear_layers_are_right_in_expectation(gradients: Gradients) -> None:
    model, x, target = nn.Linear(30, 7), torch.randn(200, 30), torch.randn(200, 7)
    expected = gradients(model, x, target)["weight"]
    draws = torch.stack([gradients(Compressed(model, 2), x, target)["model.weight"] for _ in range(300)])
    scores = (draws.mean(0) - expected) / (draws.std(0) / 300**0.5)
    assert scores.square().mean() < 1.3


def test_a_relu_keeps_its_exact_mask_at_one_bit() -> None:
    x = torch.randn(5000, requires_grad=True)
    with compressed_activations(bits=1):
        output = x.relu()
    assert torch.equal(torch.autograd.grad(output.sum(), x)[0], (x > 0).float())


def test_parameters_and_integers_come_back_as_they_are() -> None:
    weight = nn.Parameter(torch.randn(70, 70))
    x, index = torch.randn(70, 70, requires_grad=True), torch.arange(70)
    with compressed_activations():
        output = (x @ weight.t())[index].sum()
    assert torch.equal(torch.autograd.grad(output, x)[0], torch.ones(70, 70) @ weight)


def test_a_parameter_cast_by_autocast_comes_back_as_it_is() -> None:
    linear, x = nn.Linear(70, 70), torch.randn(70, 70, requires_grad=True)
    found = []
    for bits in (1, 8):
        with torch.autocast("cpu", torch.bfloat16), compressed_activations(bits):
            output = linear(x)
        found.append(torch.autograd.grad(output.sum(), x)[0])
    assert torch.equal(*found)


def test_small_and_kept_tensors_come_back_as_they_are() -> None:
    x, small = torch.randn(100, 100), torch.randn(10, 10)
    a, b = (torch.ones_like(value, requires_grad=True) for value in (x, small))
    with compressed_activations(keep=[x]):
        output = (a * x).sum() + (b * small).sum()
    assert all(torch.equal(*pair) for pair in zip(torch.autograd.grad(output, (a, b)), (x, small), strict=True))


def test_a_bool_mask_comes_back_exactly() -> None:
    x = torch.randn(5000, requires_grad=True)
    mask = torch.rand(5000) < 0.5
    with compressed_activations():
        output = x.masked_fill(mask, 0.0)
    assert torch.equal(torch.autograd.grad(output.sum(), x)[0], (~mask).float())


def test_what_two_operations_save_is_kept_once() -> None:
    x = torch.randn(5000, requires_grad=True)
    with compressed_activations():
        product = x * x
    left, right = product.grad_fn._saved_self, product.grad_fn._saved_other
    assert torch.equal(left, right)


def test_a_tensor_that_changed_in_between_is_kept_anew() -> None:
    a, b = (torch.ones(5000, requires_grad=True) for _ in range(2))
    x = torch.ones(5000)
    with compressed_activations():
        first = a * x
        x.mul_(3.0)
        second = b * x
    found = torch.autograd.grad(first.sum() + second.sum(), (a, b))
    assert [value.unique().item() for value in found] == [1.0, 3.0]


@pytest.mark.parametrize("size", [10, 5000])
def test_an_output_that_nobody_goes_back_from_is_freed(size: int) -> None:
    x = torch.ones(size, requires_grad=True)
    with compressed_activations():
        output = x.exp()
    alive = weakref.ref(output)
    del output
    assert alive() is None


def test_a_small_tensor_that_was_changed_in_place_is_refused_as_torch_does() -> None:
    x = torch.ones(10, requires_grad=True)
    with compressed_activations():
        output = x.exp()
    output.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation: it is at version 1, expected 0"):
        output.sum().backward()


def test_a_large_tensor_that_was_changed_in_place_comes_back_as_it_was() -> None:
    x = torch.zeros(5000, requires_grad=True)
    with compressed_activations():
        output = x.exp()
    output.add_(1)
    output.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones(5000))


def test_a_graph_convolution_of_pyg_learns_inside_the_context() -> None:
    geometric = pytest.importorskip("torch_geometric.nn")
    edges = torch.randint(0, 300, (2, 2000))
    conv, x = geometric.GCNConv(32, 16), torch.randn(300, 32)
    with compressed_activations(bits=8):
        output = conv(x, edges)
    found = torch.autograd.grad(output.square().mean(), conv.lin.weight)[0]
    expected = torch.autograd.grad(conv(x, edges).square().mean(), conv.lin.weight)[0]
    assert ((found - expected).norm() / expected.norm()) < 0.02


def test_other_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="bits"), compressed_activations(bits=5):
        pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("bits", value) for value in (True, 2.0, "2")),
        *(("min_values", value) for value in ("x", None, -1, 1.5)),
        *(("keep", value) for value in (None, [1])),
    ],
)
def test_options_of_another_kind_are_named(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"^{name} must"), compressed_activations(**{name: value}):  # type: ignore[arg-type]
        pass
