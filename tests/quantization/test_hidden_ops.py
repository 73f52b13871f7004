"""The operators between two linear layers: what they compute, that they are well registered, and their memory."""

import pytest
import torch
from torch import Tensor

from falcon_gnn.quantization import hidden_ops
from falcon_gnn.quantization.bitmask import keep_factor, unpack_bits
from falcon_gnn.quantization.codec import GROUP_SIZE, draw_seeds
from falcon_gnn.quantization.kernel_choice import standing_for
from falcon_gnn.quantization.moments import ColumnMoments
from falcon_gnn.quantization.temporaries import temporary_bytes


def decoded(codes: list[Tensor], like: Tensor) -> Tensor:
    value = torch.empty_like(like)
    torch.ops.falcon_gnn.dequantize(*codes, 2, GROUP_SIZE, value)
    return value


def block(shape: tuple[int, int]) -> tuple[Tensor, list[Tensor], Tensor, list[Tensor], Tensor]:
    """Return a hidden matrix, its norm, its mask, its codes and its activation."""
    hidden, channels = torch.randn(shape), shape[1]
    norm = [hidden.mean(0), 1 / hidden.std(0), torch.rand(channels) + 0.5, torch.randn(channels)]
    out = torch.empty_like(hidden)
    mask, *codes = hidden_ops.activate(hidden, norm, draw_seeds(2), draw_seeds(2), 0.25, 2, out)
    return hidden, norm, mask, codes, out


def test_a_block_is_normalised_scaled_and_masked() -> None:
    hidden, (mean, inverse_std, gamma, beta), mask, codes, out = block((300, 20))
    normalized = (hidden - mean) * inverse_std
    kept = unpack_bits(mask, hidden.shape)
    torch.testing.assert_close(out, (normalized * gamma + beta) * kept * keep_factor(0.25))
    assert (normalized * gamma + beta)[kept].min() > 0
    assert ((decoded(codes, hidden) - normalized).abs() <= 1.01 * codes[2].float().max()).all()


def test_the_way_back_is_the_chain_rule_with_decoded_values() -> None:
    hidden, (_, _, gamma, beta), mask, codes, _ = block((300, 20))
    value, multiplier = decoded(codes, hidden), unpack_bits(mask, hidden.shape) * keep_factor(0.25)
    upper, seen = torch.randn(300, 20), torch.empty(300, 20)
    masked = upper.clone()
    sums = hidden_ops.mask_gradient_(masked, mask, codes, 2, [gamma, beta], keep_factor(0.25), seen)
    torch.testing.assert_close(masked, upper * multiplier)
    torch.testing.assert_close(seen, (value * gamma + beta) * multiplier)
    torch.testing.assert_close(sums, torch.stack([masked.sum(0), (masked * value).sum(0)]), rtol=1e-4, atol=1e-4)
    slope, offset, scale = factors = torch.randn(3, 20)
    totals = hidden_ops.hidden_gradient(masked, codes, 2, factors, seen)
    torch.testing.assert_close(seen, (masked + value * slope - offset) * scale)
    torch.testing.assert_close(totals, seen.sum(0), rtol=1e-4, atol=1e-4)


def test_an_exact_block_keeps_what_it_normalised_and_goes_back_by_it() -> None:
    hidden, (mean, inverse_std, gamma, beta), _, _, _ = block((300, 20))
    normalized, out = hidden.clone(), torch.empty_like(hidden)
    mask = hidden_ops.normalize_activate_(normalized, [mean, inverse_std, gamma, beta], draw_seeds(2), 0.25, out)
    torch.testing.assert_close(normalized, (hidden - mean) * inverse_std)
    multiplier = unpack_bits(mask, hidden.shape) * keep_factor(0.25)
    torch.testing.assert_close(out, (normalized * gamma + beta) * multiplier)
    upper, seen = torch.randn(300, 20), torch.empty(300, 20)
    masked = upper.clone()
    sums = hidden_ops.mask_gradient_(masked, mask, [normalized] * 3, 0, [gamma, beta], keep_factor(0.25), seen)
    torch.testing.assert_close(masked, upper * multiplier)
    torch.testing.assert_close(seen, out)
    torch.testing.assert_close(sums, torch.stack([masked.sum(0), (masked * normalized).sum(0)]), rtol=1e-4, atol=1e-4)


def test_moments_of_pieces_are_those_of_the_whole() -> None:
    rows = torch.randn(700, 5) * 2 + 1e3
    moments = ColumnMoments(5, rows)
    for part in rows.split(300):
        moments.update(part)
    torch.testing.assert_close(moments.mean, rows.double().mean(0).float())
    torch.testing.assert_close(moments.variance, rows.double().var(0, unbiased=False).float(), rtol=1e-4, atol=0)


def operator_calls() -> list[tuple[str, tuple[object, ...]]]:
    torch.manual_seed(0)
    hidden, norm, mask, codes, out = block((300, 4))
    return [
        ("activate", (hidden, norm, draw_seeds(2), draw_seeds(2), 0.2, 2, out)),
        ("activate", (hidden, [], None, None, 0.0, 0, out)),
        ("mask_gradient_", (torch.randn(300, 4), mask, codes, 2, norm[2:], 1.5, out)),
        ("mask_gradient_", (torch.randn(300, 4), mask, codes, 2, [], 1.5, None)),
        ("normalize_activate_", (hidden.clone(), norm, draw_seeds(2), 0.2, out.clone())),
        ("mask_gradient_", (torch.randn(300, 4), mask, [hidden.clone() for _ in range(3)], 0, norm[2:], 1.5, None)),
        ("hidden_gradient", (torch.randn(300, 4), codes, 2, torch.randn(3, 4), out)),
        ("rebuild", (codes, 2, (torch.randn(4), torch.randn(4)), mask, 1.25, out)),
        ("merge_moments_", (torch.zeros(4), torch.zeros(4), hidden, 0)),
    ]


@pytest.mark.parametrize(("name", "arguments"), operator_calls())
def test_the_operators_pass_opcheck(name: str, arguments: tuple[object, ...]) -> None:
    torch.library.opcheck(getattr(torch.ops.falcon_gnn, name).default, arguments)


@pytest.mark.parametrize(("name", "arguments"), operator_calls())
def test_a_kernel_needs_less_than_plain_torch(name: str, arguments: tuple[object, ...]) -> None:
    plain = temporary_bytes(f"falcon_gnn::{name}", *arguments)
    with standing_for("cuda"):
        assert temporary_bytes(f"falcon_gnn::{name}", *arguments) <= max(plain, 3 * 2 * 4 * 4)
