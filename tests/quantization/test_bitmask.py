"""One bit per value: packing, and ReLU and dropout with a common mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from falcon_gnn.errors import OptionError
from falcon_gnn.quantization import bitmask
from falcon_gnn.quantization.bitmask import keep_factor, pack_bits, unpack_bits
from falcon_gnn.quantization.codec import BLOCK_VALUES, draw_seeds

SIZES = (0, 1, 8, 77, 1000, BLOCK_VALUES, BLOCK_VALUES + 8, BLOCK_VALUES + 13)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), max_size=100))
def test_packed_bits_come_back(bits: list[bool]) -> None:
    mask = torch.tensor(bits, dtype=torch.bool)
    packed = pack_bits(mask)
    assert len(packed) == (len(bits) + 255) // 256 * 32
    assert torch.equal(unpack_bits(packed, mask.shape), mask)


@pytest.mark.parametrize("size", SIZES)
def test_packed_bits_of_any_size_come_back(size: int) -> None:
    mask = torch.rand(size) < 0.3
    assert torch.equal(unpack_bits(pack_bits(mask), mask.shape), mask)


def test_packing_reads_rows_whatever_the_strides() -> None:
    mask = torch.rand(30, 20) < 0.5
    assert torch.equal(unpack_bits(pack_bits(mask.t()), (20, 30)), mask.t())


def test_packing_refuses_other_types() -> None:
    with pytest.raises(OptionError, match="bool"):
        pack_bits(torch.ones(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
def test_without_dropout_the_mask_is_where_the_input_is_positive(size: int, dtype: torch.dtype) -> None:
    x = torch.randn(size, dtype=dtype)
    y = x.clone()
    packed = bitmask.relu_dropout_(y, None, 0.0)
    assert torch.equal(y, x.relu())
    assert torch.equal(unpack_bits(packed, x.shape), x > 0)


@pytest.mark.parametrize("dropout", [0.5, 0.25, 0.1, 0.37])
def test_dropout_keeps_the_announced_share_and_the_mean(dropout: float) -> None:
    torch.manual_seed(0)
    y = torch.ones(400_000)
    kept = unpack_bits(bitmask.relu_dropout_(y, draw_seeds(), dropout), y.shape)
    assert kept.float().mean().item() == pytest.approx(1 - dropout, abs=0.004)
    assert torch.equal(y, kept * torch.tensor(keep_factor(dropout)))
    assert y.mean().item() == pytest.approx(1, abs=0.01)


def test_neighbouring_dropout_bits_are_independent() -> None:
    torch.manual_seed(1)
    bits = unpack_bits(bitmask.dropout_bits(draw_seeds(), torch.empty(800_000), 0.3), (800_000,)).float() - 0.7
    for distance in (1, 8, BLOCK_VALUES // 8):
        assert abs((bits[:-distance] * bits[distance:]).mean().item()) < 0.002


def test_dropping_all_or_nothing_is_exact() -> None:
    for dropout, expected in ((1.0, torch.zeros(100)), (0.0, torch.ones(100))):
        y = torch.ones(100)
        bitmask.relu_dropout_(y, draw_seeds(), dropout)
        assert torch.equal(y, expected)


def test_nan_passes_through() -> None:
    y = torch.tensor([torch.nan, 1.0, -1.0])
    bitmask.relu_dropout_(y, draw_seeds(), 0.5)
    assert y.isnan().tolist() == [True, False, False]


@pytest.mark.parametrize("size", SIZES)
def test_a_mask_multiplies_with_the_factor_or_with_zero(size: int) -> None:
    mask, x = torch.rand(size) < 0.5, torch.randn(size)
    product = x.clone()
    bitmask.apply_mask_(product, pack_bits(mask), 1.25)
    assert torch.equal(product, x * (mask * torch.tensor(1.25)))


def operator_cases() -> list[tuple[str, tuple[object, ...]]]:
    x, seed = torch.randn(5, 7), torch.tensor(3)
    packed = pack_bits(x > 0)
    return [
        ("pack_bits", (x > 0,)),
        ("unpack_bits", (packed, (5, 7))),
        ("dropout_bits", (seed, x, 0.2)),
        ("relu_dropout_", (x, seed, 0.2)),
        ("relu_dropout_", (x, None, 0.0)),
        ("apply_mask_", (x, packed, 2.0)),
    ]


@pytest.mark.parametrize(("name", "arguments"), operator_cases())
def test_the_operators_pass_opcheck(name: str, arguments: tuple[Tensor, ...]) -> None:
    torch.library.opcheck(getattr(torch.ops.falcon_gnn, name).default, arguments)
