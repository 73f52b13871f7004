"""The codec: what comes back, that its mean is right, and that its operators are well registered."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization import codec
from falcon_gnn.quantization.codec import QuantizedTensor, dequantize, draw_seeds, quantize

BITS = (1, 2, 4, 8)


def steps(q: QuantizedTensor) -> Tensor:
    """Return the step of every value, in the shape of the tensor."""
    count = math.prod(q.shape)
    return q.scale.float().repeat_interleave(q.group_size)[:count].view(q.shape)


def slow_codes(values: Tensor, bits: int) -> tuple[list[int], float, float]:
    """Return nearest codes, zero point and step of one group, value by value."""
    down = torch.tensor([values.min()]).bfloat16()
    if down.item() > values.min():
        down = torch.nextafter(down, torch.tensor([-torch.inf]).bfloat16())
    wanted = (values.max().item() - down.item()) / (2**bits - 1)
    up = torch.tensor([wanted]).bfloat16()
    if up.item() < wanted:
        up = torch.nextafter(up, torch.tensor([torch.inf]).bfloat16())
    zero, step = down.item(), up.item()
    return [min(2**bits - 1, math.floor((v - zero) / step + 0.5)) for v in values.tolist()], zero, step


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=600),
    st.sampled_from(BITS),
    st.sampled_from(["stochastic", "nearest"]),
)
def test_every_value_comes_back_within_one_step(values: list[float], bits: int, rounding: codec.Rounding) -> None:
    x = torch.tensor(values)
    q = quantize(x, bits, rounding=rounding)
    slack = 1e-6 * x.abs().max() + 1e-37
    assert ((dequantize(q) - x).abs() <= steps(q) * (0.5 if rounding == "nearest" else 1.0) + slack).all()


@pytest.mark.parametrize("bits", BITS)
def test_bytes_follow_the_documented_layout_and_formula(bits: int) -> None:
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    q = quantize(x, bits, rounding="nearest")
    length = 32 * bits
    for group in range(3):
        octets = q.packed[length * group : length * (group + 1)].tolist()
        unpacked = [(octet >> (plane * bits)) & (2**bits - 1) for plane in range(8 // bits) for octet in octets]
        codes, zero, step = slow_codes(x[group], bits)
        assert (q.zero[group].item(), q.scale[group].item()) == (zero, step)
        assert unpacked == codes


@pytest.mark.parametrize("bits", BITS)
def test_the_mean_over_many_draws_is_the_value(bits: int) -> None:
    torch.manual_seed(bits)
    x = torch.randn(256) * 3 + 1
    many = x.repeat(64)
    total = torch.zeros(256, dtype=torch.float64)
    for _ in range(300):
        q = quantize(many, bits)
        total += dequantize(q).view(64, 256).sum(0)
    error = (total / (300 * 64) - x) / q.scale[0].float()
    assert error.abs().max() < 5 * 0.5 / math.sqrt(300 * 64)
    assert error.mean().abs() < 5 * 0.5 / math.sqrt(300 * 64 * 256)


def test_the_range_encloses_the_group() -> None:
    x = torch.randn(500, 256, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 6, 500)[:, None]
    q = quantize(x, 2)
    assert (q.zero.float() <= x.amin(1)).all()
    assert (q.zero.double() + 3 * q.scale.double() >= x.amax(1).double() * (1 - 1e-6)).all()


@pytest.mark.parametrize("bits", BITS)
def test_zeros_and_other_bfloat16_constants_come_back_exactly(bits: int) -> None:
    for constant in (0.0, 1.5, -3.0):
        x = torch.full((5, 256), constant)
        assert torch.equal(dequantize(quantize(x, bits)), x)


def test_a_constant_that_bfloat16_cannot_hold_is_off_by_its_rounding_only() -> None:
    x = torch.full((1000,), 0.1)
    assert (dequantize(quantize(x, 2)) - x).abs().max() <= 0.1 * 2**-7


@pytest.mark.parametrize("shape", [(7, 13), (3,), (), (1, 257), (2, 3, 5), (600, 257), (0, 5), (5, 0), (0,)])
def test_any_shape_comes_back(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    q = quantize(x, 8)
    assert dequantize(q).shape == x.shape
    assert ((dequantize(q) - x).abs() <= steps(q) * 1.001).all()


@pytest.mark.parametrize("bits", BITS)
def test_the_largest_draw_lifts_neither_the_minimum_nor_the_maximum(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_the_largest(seed: Tensor, values: slice, shape: Sequence[int], device: torch.device) -> Tensor:
        return torch.full((values.stop - values.start,), 65535, dtype=torch.int32)

    monkeypatch.setattr(codec, "value_halves", draw_the_largest)
    x, back = torch.tensor([0.0, 2.0**bits - 1.0]).repeat(200), torch.empty(400)
    codes = codec._quantize._init_fn(x, draw_seeds(), bits, 256)
    codec._dequantize._init_fn(*codes, bits, 256, back)
    assert torch.equal(back, x)


def test_groups_do_not_depend_on_the_block_they_are_worked_in() -> None:
    x = torch.randn(codec.BLOCK_VALUES + 5 * 256 + 17, generator=torch.Generator().manual_seed(3))
    whole = dequantize(quantize(x, 4, rounding="nearest"))
    for start in (0, codec.BLOCK_VALUES - 256, codec.BLOCK_VALUES, codec.BLOCK_VALUES + 5 * 256):
        part = x[start : start + 256]
        assert torch.equal(whole[start : start + 256], dequantize(quantize(part, 4, rounding="nearest")))


@pytest.mark.parametrize("magnitude", [1e-42, 1e-38, 1e-20, 1e20, 1e38])
def test_huge_and_tiny_values_stay_within_one_step(magnitude: float) -> None:
    x = torch.linspace(-1, 1, 256) * magnitude
    q = quantize(x, 2)
    assert ((dequantize(q).double() - x.double()).abs() <= steps(q).double() * 1.001).all()


def test_a_nan_or_infinity_spoils_its_own_group_only() -> None:
    x = torch.randn(5, 256)
    x[1, 3], x[2, 7], x[3, 9] = torch.nan, torch.inf, -torch.inf
    restored = dequantize(quantize(x, 2))
    assert restored[1:4].isnan().all()
    assert ((restored[[0, 4]] - x[[0, 4]]).abs() < 4).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_dtype_comes_back(dtype: torch.dtype) -> None:
    x = torch.randn(300).to(dtype)
    restored = dequantize(quantize(x, 8))
    assert restored.dtype == dtype
    assert (restored - x).abs().max() < 0.1


def test_strides_do_not_matter() -> None:
    x, seed = torch.randn(40, 30), draw_seeds()
    assert torch.equal(
        dequantize(quantize(x.t(), 2, seed=seed)), dequantize(quantize(x.t().contiguous(), 2, seed=seed))
    )


def test_torch_manual_seed_decides_the_draws() -> None:
    x = torch.randn(1000)
    draws = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        draws.append(dequantize(quantize(x, 2)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_two_bits_take_a_quarter_byte_and_four_bytes_per_group() -> None:
    assert quantize(torch.randn(64, 256), 2).nbytes == 64 * (64 + 4)


def test_the_input_is_not_modified_and_not_tracked() -> None:
    x = torch.randn(300, requires_grad=True)
    before = x.detach().clone()
    assert not dequantize(quantize(x, 2)).requires_grad
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"bits": 3}, "bits"), ({"group_size": 100}, "group_size"), ({"rounding": "up"}, "rounding")],
)
def test_an_argument_out_of_range_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message} must be"):
        quantize(torch.randn(4), **arguments)  # type: ignore[arg-type]


def test_integers_are_refused() -> None:
    with pytest.raises(OptionError, match="floating"):
        quantize(torch.arange(4))


@pytest.mark.parametrize("x", [torch.randn(5, 77), torch.randn(40, 64).t(), torch.randn(256), torch.randn(0, 3)])
@pytest.mark.parametrize("is_stochastic", [True, False])
def test_the_quantize_operator_passes_opcheck(x: Tensor, is_stochastic: bool) -> None:
    seed = torch.tensor(7) if is_stochastic else None
    torch.library.opcheck(torch.ops.falcon_gnn.quantize.default, (x, seed, 2, 256))


@pytest.mark.parametrize("bits", BITS)
def test_the_dequantize_operator_passes_opcheck(bits: int) -> None:
    q = quantize(torch.randn(5, 77), bits)
    arguments = (q.packed, q.zero, q.scale, bits, 256, torch.empty(5, 77))
    torch.library.opcheck(torch.ops.falcon_gnn.dequantize.default, arguments)
