"""The kernels of the operators, Numba's and, in its interpreter, Triton's: equal to plain torch, bit by bit."""

from typing import Any

import pytest
import torch
from torch import Tensor

from falcon_gnn.quantization import bitmask, codec, cpu_ops, hidden_ops, philox

DTYPES = [torch.float32, torch.bfloat16, torch.float32, torch.float16, torch.float32]
SHAPES = [(3, 7), (5, 256), (7, 100), (300, 8), (1, 1)]


@pytest.fixture(params=["numba", "triton"])
def kernels(request: pytest.FixtureRequest) -> Any:
    """Return the functions that carry out the operators."""
    if request.param == "numba":
        return cpu_ops
    pytest.importorskip("triton")
    from falcon_gnn.quantization import triton_kernels, triton_ops

    if not triton_kernels.knobs.runtime.interpret:
        pytest.skip("Triton was imported without TRITON_INTERPRET=1")
    return triton_ops


def in_torch(name: str) -> Any:
    """Return an operator's own body, in plain torch."""
    found = [getattr(module, n, None) for module in (codec, bitmask, hidden_ops) for n in (name, f"_{name}")]
    return next(operator._init_fn for operator in found if hasattr(operator, "_init_fn"))


def seeds_for(shape: tuple[int, ...]) -> Tensor:
    return codec.draw_seeds(-(-shape[0] // 256))


def equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def test_the_random_numbers_are_those_of_philox() -> None:
    # Known answers of the authors' own Random123: counter and key of zeros, and of ones.
    words = philox.philox(torch.tensor([0]), torch.tensor([0]))
    assert [int(word) for word in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_a_draw_depends_on_its_place_and_seed_alone() -> None:
    seeds = codec.draw_seeds(3)
    whole = philox.group_halves(seeds, slice(0, 20), 8)
    assert torch.equal(whole[5:19], philox.group_halves(seeds, slice(5, 19), 8))
    assert torch.equal(whole[8:16], philox.group_halves(seeds[1:], slice(0, 8), 8))
    assert whole.float().mean().item() == pytest.approx(32767.5, abs=5 * 18918 / len(whole.view(-1)) ** 0.5)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_codes_are_those_of_the_plain_codec(kernels: Any, bits: int) -> None:
    for shape, dtype in zip(SHAPES, DTYPES, strict=True):
        x = (torch.randn(shape) * 3).to(dtype)
        for seed in (None, seeds_for(shape)):
            ours, plain = kernels.quantize(x, seed, bits, 256), in_torch("quantize")(x, seed, bits, 256)
            assert all(map(equal, ours, plain)), (shape, dtype, seed is None)
            value, expected = torch.empty_like(x), torch.empty_like(x)
            kernels.dequantize(*ours, bits, 256, value)
            in_torch("dequantize")(*plain, bits, 256, expected)
            assert equal(value, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_special_values_are_treated_as_by_the_plain_codec(kernels: Any, dtype: torch.dtype) -> None:
    x = torch.randn(6, 256)
    x[0, 3], x[1, 5], x[2, 30], x[0, 7] = torch.nan, torch.inf, -torch.inf, -0.0
    x[3], x[4], x[5] = 3.0, 1e-44, torch.linspace(-1.3e38, 1.3e38, 256)
    x = x.to(dtype)
    ours, plain = kernels.quantize(x, None, 2, 256), in_torch("quantize")(x, None, 2, 256)
    assert equal(ours[0], plain[0])
    for part, expected in zip(ours[1:], plain[1:], strict=True):
        assert torch.equal(part.isnan(), expected.isnan())
        assert torch.equal(part.nan_to_num(7), expected.nan_to_num(7))
    activated, expected = x.clone(), x.clone()
    masks = (
        kernels.relu_dropout_(activated, torch.tensor(3), 0.5),
        in_torch("relu_dropout_")(expected, torch.tensor(3), 0.5),
    )
    assert equal(*masks)
    assert torch.equal(activated.isnan(), expected.isnan())
    assert torch.equal(activated.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("dropout", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_are_those_of_plain_torch(kernels: Any, dtype: torch.dtype, dropout: float) -> None:
    for shape in SHAPES:
        x, seed = (torch.randn(shape) * 3).to(dtype), seeds_for(shape)
        ours, plain = x.clone(), x.clone()
        packed = kernels.relu_dropout_(ours, seed if dropout else None, dropout)
        assert equal(packed, in_torch("relu_dropout_")(plain, seed if dropout else None, dropout))
        assert torch.equal(ours, plain)
        assert torch.equal(kernels.unpack_bits(packed, shape), in_torch("unpack_bits")(packed, shape))
        assert equal(kernels.pack_bits(x > 0), in_torch("pack_bits")(x > 0))
        assert equal(kernels.dropout_bits(seed, x, dropout), in_torch("dropout_bits")(seed, x, dropout))
        kernels.apply_mask_(ours, packed, 1.3)
        in_torch("apply_mask_")(plain, packed, 1.3)
        assert torch.equal(ours, plain)


@pytest.mark.parametrize("has_norm", [True, False])
def test_a_hidden_block_is_that_of_plain_torch(kernels: Any, has_norm: bool) -> None:
    for shape in [(3, 7), (2, 256), (130, 9)]:
        hidden, channels = torch.randn(shape) * 2 + 1, shape[1]
        norm = [torch.randn(channels), torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(channels)]
        norm, seeds = norm if has_norm else [], (seeds_for(shape), seeds_for(shape))
        ours, plain = torch.empty_like(hidden), torch.empty_like(hidden)
        mask, *codes = kernels.activate(hidden, norm, *seeds, 0.2, 2, ours)
        assert all(map(equal, (mask, *codes), in_torch("activate")(hidden, norm, *seeds, 0.2, 2, plain)))
        assert torch.equal(ours, plain)
        gradients = [torch.randn(shape)] * 2
        ours_back, plain_back = (gradient.clone() for gradient in gradients)
        arguments = mask, codes, 2, norm[2:], bitmask.keep_factor(0.2)
        sums = kernels.mask_gradient_(ours_back, *arguments, ours)
        expected = in_torch("mask_gradient_")(plain_back, *arguments, plain)
        assert torch.equal(ours_back, plain_back)
        assert torch.equal(ours, plain)
        if has_norm:
            torch.testing.assert_close(sums, expected, rtol=1e-4, atol=1e-4)
        factors = torch.randn(3, channels)
        sums = kernels.hidden_gradient(ours_back, codes, 2, factors, ours)
        torch.testing.assert_close(
            sums, in_torch("hidden_gradient")(ours_back, codes, 2, factors, plain), rtol=1e-4, atol=1e-3
        )
        assert torch.equal(ours, plain)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_an_exact_block_is_that_of_plain_torch(kernels: Any, dropout: float) -> None:
    for shape in [(3, 7), (2, 256), (130, 9)]:
        hidden, channels = torch.randn(shape) * 2 + 1, shape[1]
        norm = [torch.randn(channels), torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(channels)]
        seed, (ours, plain), outs = seeds_for(shape), (hidden.clone(), hidden.clone()), torch.empty(2, *shape)
        mask = kernels.normalize_activate_(ours, norm, seed if dropout else None, dropout, outs[0])
        assert equal(mask, in_torch("normalize_activate_")(plain, norm, seed if dropout else None, dropout, outs[1]))
        assert torch.equal(ours, plain)
        assert torch.equal(*outs)
        upper, factor = torch.randn(shape), bitmask.keep_factor(dropout)
        ours_back, plain_back, kept = upper.clone(), upper.clone(), ours.clone()
        sums = kernels.mask_gradient_(ours_back, mask, [ours] * 3, 0, norm[2:], factor, outs[0])
        expected = in_torch("mask_gradient_")(plain_back, mask, [plain] * 3, 0, norm[2:], factor, outs[1])
        assert torch.equal(ours_back, plain_back)
        assert torch.equal(*outs)
        assert torch.equal(ours, kept)
        torch.testing.assert_close(sums, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [0, 2])
def test_what_the_next_layer_saw_is_rebuilt_as_by_plain_torch(bits: int) -> None:
    for shape in [(3, 7), (2, 256), (130, 9)]:
        hidden, affine = torch.randn(shape), (torch.randn(shape[1]), torch.randn(shape[1]))
        codes = cpu_ops.quantize(hidden, seeds_for(shape), bits, 256) if bits else [hidden] * 3
        for mask in (None, cpu_ops.pack_bits(torch.rand(shape) < 0.5)):
            ours, plain = torch.empty(2, *shape)
            cpu_ops.rebuild(codes, bits, affine, mask, 1.25, ours)
            in_torch("rebuild")(codes, bits, affine, mask, 1.25, plain)
            assert torch.equal(ours, plain)
            if not bits:
                place = hidden.clone()
                cpu_ops.rebuild([place] * 3, bits, affine, mask, 1.25, place)
                assert torch.equal(place, plain)


def test_moments_are_those_of_all_rows(kernels: Any) -> None:
    hidden = torch.randn(150, 130) * 3 + 100
    mean, squares = torch.zeros(130), torch.zeros(130)
    kernels.merge_moments_(mean, squares, hidden[:1], 0)
    kernels.merge_moments_(mean, squares, hidden[1:], 1)
    torch.testing.assert_close(mean, hidden.mean(0))
    torch.testing.assert_close(squares / 150, hidden.var(0, unbiased=False), rtol=1e-4, atol=0)


def test_the_operators_run_numbas_kernels_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("quantize", "activate"):
        function = getattr(cpu_ops, name)
        monkeypatch.setattr(
            cpu_ops, name, lambda *args, name=name, function=function: called.append(name) or function(*args)
        )
    x = torch.randn(4, 8)
    codec.quantize(x)
    hidden_ops.activate(x, [], None, None, 0.0, 2, x)
    codec.quantize(x, group_size=8)
    codec.quantize(x.double())
    assert called == ["quantize", "activate"]


def test_a_group_of_another_size_draws_the_same_for_the_same_place() -> None:
    x, seed = torch.randn(20, 33), codec.draw_seeds()
    whole = philox.value_halves(seed, slice(0, 660), x.shape, x.device)
    assert torch.equal(whole[24:100], philox.value_halves(seed, slice(24, 100), x.shape, x.device))
    for group_size in (8, 256, 1024):
        q = codec.quantize(x, 8, group_size, seed=seed)
        assert torch.equal(codec.dequantize(q), codec.dequantize(codec.quantize(x, 8, group_size, seed=seed)))
        assert (codec.dequantize(q) - x).abs().max() <= q.scale.float().max()
