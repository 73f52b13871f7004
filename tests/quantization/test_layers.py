"""The functions for layers: exact results, gradients that are unbiased, and few saved bytes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from falcon_gnn.quantization import layers, products
from falcon_gnn.quantization.bitmask import keep_factor
from falcon_gnn.quantization.kernel_choice import standing_for
from falcon_gnn.quantization.layers import compressed_linear, norm_relu_dropout, relu_dropout

SavedBytes = Callable[..., int]
RelativeError = Callable[[Tensor, Tensor], float]


def backward(output: Tensor, gradient: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, inputs, gradient)


@pytest.fixture
def linear() -> nn.Linear:
    return nn.Linear(33, 20)


def test_a_linear_layer_on_cuda_has_torchs_gradients_and_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LARGE_VALUES", 0)
    torch.set_default_dtype(torch.float64)
    try:
        layer, x = nn.Linear(7, 5), torch.randn(30, 7, requires_grad=True)
        inputs = x, layer.weight, layer.bias
        with standing_for("cuda"):
            assert torch.equal(layers.apply_linear(*inputs), layer(x))
            assert layers.apply_linear(*inputs).grad_fn.name() == "_LinearBackward"
            assert torch.autograd.gradcheck(layers.apply_linear, inputs)
            assert torch.autograd.gradgradcheck(layers.apply_linear, inputs)
            with torch.no_grad():
                assert layers.apply_linear(*inputs).grad_fn is None
    finally:
        torch.set_default_dtype(torch.float32)
    assert layers.apply_linear(*inputs).grad_fn.name() == "AddmmBackward0"


def test_a_linear_layer_on_cuda_works_under_autocast(linear: nn.Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LARGE_VALUES", 0)
    x, gradient = torch.randn(50, 33, requires_grad=True), torch.randn(50, 20).bfloat16()
    inputs = x, linear.weight, linear.bias
    with torch.autocast("cpu", torch.bfloat16):
        expected = linear(x)
        with standing_for("cuda"):
            found = layers.apply_linear(*inputs)
    assert torch.equal(found, expected)
    with standing_for("cuda"):
        ours = backward(found, gradient, *inputs)
    for value, reference in zip(ours, backward(expected, gradient, *inputs), strict=True):
        assert value.dtype == reference.dtype
        torch.testing.assert_close(value, reference, rtol=0.02, atol=0.05)


@pytest.mark.parametrize(("num_rows", "is_product"), [(8_192, True), (1_024, False)])
def test_only_large_matrices_are_added_up_by_a_product_on_cuda(
    num_rows: int, is_product: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Tensor] = []
    multiply = torch.mv
    monkeypatch.setattr(torch, "mv", lambda *pair: called.append(pair[0]) or multiply(*pair))
    matrix = torch.randn(num_rows, 200)
    with standing_for("cuda"):
        torch.testing.assert_close(products.column_sums(matrix), matrix.sum(0), rtol=1e-4, atol=1e-3)
    assert len(called) == is_product
    assert torch.equal(products.column_sums(matrix), matrix.sum(0))


def test_a_compressed_linear_layer_returns_the_exact_output(linear: nn.Linear) -> None:
    x = torch.randn(50, 33)
    assert torch.equal(compressed_linear(x, linear.weight, linear.bias, 2), linear(x))


def test_the_gradients_of_input_and_bias_are_those_of_torch(linear: nn.Linear) -> None:
    x, gradient = torch.randn(50, 33, requires_grad=True), torch.randn(50, 20)
    expected = backward(linear(x), gradient, x, linear.bias)
    found = backward(compressed_linear(x, linear.weight, linear.bias, 2), gradient, x, linear.bias)
    for value, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(value, reference)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_the_weight_gradient_is_right_in_expectation(linear: nn.Linear, bits: int) -> None:
    x, gradient = torch.randn(50, 33), torch.randn(50, 20)
    expected = gradient.t() @ x
    draws = torch.stack(
        [backward(compressed_linear(x, linear.weight, None, bits), gradient, linear.weight)[0] for _ in range(400)]
    )
    error = (draws.mean(0) - expected) / (draws.std(0) / 20)
    assert error.abs().max() < 5
    assert error.mean().abs() < 0.2


def test_the_weight_gradient_is_close_at_8_bits(linear: nn.Linear, relative_error: RelativeError) -> None:
    x, gradient = torch.randn(500, 33), torch.randn(500, 20)
    found = backward(compressed_linear(x, linear.weight, None, 8), gradient, linear.weight)[0]
    assert relative_error(found, gradient.t() @ x) < 0.01


def test_a_compressed_linear_layer_saves_its_input_at_2_bits(linear: nn.Linear, saved_bytes: SavedBytes) -> None:
    x = torch.randn(4096, 33)
    assert saved_bytes(lambda: compressed_linear(x, linear.weight, linear.bias, 2)) < 0.27 * x.numel()


def test_a_transposed_weight_gets_its_gradient(relative_error: RelativeError) -> None:
    weight = nn.Parameter(torch.randn(33, 20))
    x, gradient = torch.randn(500, 33), torch.randn(500, 20)
    found = backward(compressed_linear(x, weight.t(), None, 8), gradient, weight)[0]
    assert relative_error(found, x.t() @ gradient) < 0.01


def test_a_frozen_weight_saves_nothing_compressed() -> None:
    x, weight = torch.randn(9, 4, requires_grad=True), torch.randn(3, 4)
    gradient = torch.randn(9, 3)
    assert torch.equal(backward(compressed_linear(x, weight), gradient, x)[0], gradient @ weight)


def test_relu_dropout_in_evaluation_is_relu() -> None:
    x = torch.randn(30, 7)
    assert torch.equal(relu_dropout(x, 0.5, training=False), x.relu())


def test_relu_dropout_passes_the_gradient_where_it_passed_the_value() -> None:
    x, gradient = torch.randn(300, 7, requires_grad=True), torch.randn(300, 7)
    output = relu_dropout(x, 0.5)
    expected = gradient * (output / x)
    torch.testing.assert_close(backward(output, gradient, x)[0], expected)
    assert 0.2 < (output > 0).float().mean() < 0.3


@pytest.mark.parametrize("is_transposed", [False, True])
def test_relu_dropout_in_place_overwrites_its_input(is_transposed: bool) -> None:
    x = torch.randn(30, 7, requires_grad=True)
    values = (x.t() if is_transposed else x).mul(1)
    original = values.detach().clone()
    output = relu_dropout(values, 0.0, inplace=True)
    assert output.data_ptr() == values.data_ptr()
    assert torch.equal(output, original.relu())
    assert torch.equal(backward(output.sum(), torch.ones(()), x)[0], (x > 0).float())


def test_relu_dropout_saves_one_bit_per_value(saved_bytes: SavedBytes) -> None:
    x = torch.randn(1024, 16, requires_grad=True)
    assert saved_bytes(lambda: relu_dropout(x, 0.5)) == 1024 * 16 // 8


def test_relu_dropout_draws_what_torch_manual_seed_says() -> None:
    x = torch.randn(100)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(relu_dropout(x, 0.5))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_a_probability_out_of_range_is_named(p: float) -> None:
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\]"):
        relu_dropout(torch.ones(3), p)


def make_norms() -> tuple[nn.BatchNorm1d, nn.BatchNorm1d]:
    norms = nn.BatchNorm1d(20), nn.BatchNorm1d(20)
    for norm in norms:
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(0.5, 1.5, 20))
            norm.bias.copy_(torch.linspace(-1, 1, 20))
    return norms


@pytest.mark.parametrize("inplace", [False, True])
def test_a_compressed_norm_with_relu_returns_what_torch_returns(inplace: bool) -> None:
    norm, reference = make_norms()
    x = torch.randn(3000, 20) * 3 + 100
    expected = reference(x).relu()
    torch.testing.assert_close(norm_relu_dropout(x, norm, 0.0, inplace=inplace), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(norm.state_dict(), reference.state_dict(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("sees", [False, True])
def test_dropped_values_are_zero_forward_and_backward_and_the_others_scaled(sees: bool) -> None:
    norm, reference = make_norms()
    x, seen = torch.randn(3000, 20, requires_grad=True), []
    whole = reference(x).relu()
    output = norm_relu_dropout(x, norm, 0.4, see=(lambda value: seen.append(value.clone())) if sees else None)
    kept = output != 0
    assert 0.57 < float(kept[whole > 0].float().mean()) < 0.63
    assert not kept[whole <= 0].any()
    torch.testing.assert_close(output[kept], whole[kept] * keep_factor(0.4), atol=1e-5, rtol=1e-4)
    bias_gradient = backward(output, torch.ones_like(x), norm.bias)[0]
    torch.testing.assert_close(bias_gradient, kept.sum(0) * keep_factor(0.4))
    assert len(seen) == sees
    for value in seen:
        torch.testing.assert_close(value, whole.detach(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradients_of_batch_norm_are_close_at_8_bits(dtype: torch.dtype, relative_error: RelativeError) -> None:
    norm, reference = make_norms()
    x, gradient = torch.randn(3000, 20, requires_grad=True), torch.randn(3000, 20) + 1
    expected = backward(reference(x).relu(), gradient, x, reference.weight, reference.bias)
    output = norm_relu_dropout(x.to(dtype), norm, 0.0, 8)
    found = backward(output, gradient.to(dtype), x, norm.weight, norm.bias)
    assert output.dtype == dtype
    close = 0.02 if dtype == torch.float32 else 0.04
    assert all(relative_error(value, other) < close for value, other in zip(found, expected, strict=True))


def test_the_bias_of_batch_norms_gradient_shrinks_as_one_over_the_batch() -> None:
    def bias_of_gradient(num_rows: int) -> float:
        norm, reference = make_norms()
        for each in (norm, reference):
            # All values pass the ReLU.
            each.bias.data.fill_(10.0)
        x = torch.randn(num_rows, 20, requires_grad=True)
        gradient = reference.weight.detach() * x.detach()
        expected = backward(reference(x), gradient, x)[0]
        draws = sum(backward(norm_relu_dropout(x, norm, 0.0, 2), gradient, x)[0] for _ in range(400)) / 400
        # Along x̂ lies the term in which the decoded value enters squared.
        return float(((draws - expected) * x.detach()).mean() / gradient.square().mean())

    small, large = bias_of_gradient(8), bias_of_gradient(256)
    assert abs(small) > 0.02
    assert abs(large) < abs(small) / 8


def test_momentum_none_averages_over_all_batches() -> None:
    norm, reference = nn.BatchNorm1d(5, momentum=None), nn.BatchNorm1d(5, momentum=None)
    for _ in range(3):
        x = torch.randn(40, 5)
        norm_relu_dropout(x, norm, 0.5)
        reference(x)
    torch.testing.assert_close(norm.state_dict(), reference.state_dict())


def test_one_row_has_no_variance() -> None:
    with pytest.raises(ValueError, match="more than one row"):
        norm_relu_dropout(torch.ones(1, 4), nn.BatchNorm1d(4), 0.5)


def test_an_empty_batch_passes_and_changes_no_statistics() -> None:
    norm = nn.BatchNorm1d(4)
    output = norm_relu_dropout(torch.empty(0, 4, requires_grad=True), norm, 0.5)
    output.sum().backward()
    assert output.shape == (0, 4)
    assert norm.num_batches_tracked == 0
    assert torch.equal(norm.weight.grad, torch.zeros(4))


def test_a_compressed_norm_keeps_its_bits_and_one_more(saved_bytes: SavedBytes) -> None:
    norm, x = nn.BatchNorm1d(64), torch.randn(4096, 64, requires_grad=True)
    assert saved_bytes(lambda: norm_relu_dropout(x, norm, 0.5, 2)) < 0.4 * x.numel()


def test_the_functions_work_under_autocast(relative_error: RelativeError) -> None:
    linear, x = nn.Linear(33, 20), torch.randn(400, 33, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        output = relu_dropout(compressed_linear(x, linear.weight, linear.bias, 8), 0.0, inplace=True)
    expected = functional.linear(x, linear.weight, linear.bias).relu()
    gradient = torch.randn(400, 20)
    found = backward(output, gradient.bfloat16(), x, linear.weight)
    assert output.dtype == torch.bfloat16
    for value, other in zip(found, backward(expected, gradient, x, linear.weight), strict=True):
        assert relative_error(value, other) < 0.15
