"""The kernels without a card: in Triton's interpreter equal to plain torch, and compiled ahead of time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from falcon_gnn.errors import FalconWarning
from falcon_gnn.quantization import bitmask, codec, hidden_ops, kernel_choice, philox

pytest.importorskip("triton")

DTYPES = [torch.float32, torch.bfloat16, torch.float32, torch.float16, torch.float32]
SHAPES = [(3, 7), (5, 256), (7, 100), (300, 8), (1, 1)]
REGISTERS = {"activate": 96, "mask gradient": 104, "hidden gradient": 88, "moments": 88}
"""Most registers of a thread, 64 where nothing is said: 65,536 of them serve 4 programs of 128 threads at 128."""


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the kernels, run by the interpreter; plain torch then has their layout, a group to a block, and draws."""
    from falcon_gnn.quantization import triton_kernels, triton_ops

    if not triton_kernels.knobs.runtime.interpret:
        pytest.skip("Triton was imported without TRITON_INTERPRET=1")
    for module in (codec, bitmask):
        monkeypatch.setattr(module, "block_values", lambda device: 256)
    with kernel_choice.counted_draws():
        yield triton_ops


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
            ours, plain = kernels.quantize(x, seed, bits, 256), torch.ops.falcon_gnn.quantize(x, seed, bits, 256)
            assert all(map(equal, ours, plain)), (shape, dtype, seed is None)
            value, expected = torch.empty_like(x), torch.empty_like(x)
            kernels.dequantize(*ours, bits, 256, value)
            torch.ops.falcon_gnn.dequantize(*plain, bits, 256, expected)
            assert equal(value, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_special_values_are_treated_as_by_the_plain_codec(kernels: Any, dtype: torch.dtype) -> None:
    x = torch.randn(6, 256)
    x[0, 3], x[1, 5], x[2, 30], x[0, 7] = torch.nan, torch.inf, -torch.inf, -0.0
    x[3], x[4], x[5] = 3.0, 1e-44, torch.linspace(-1.3e38, 1.3e38, 256)
    x = x.to(dtype)
    ours, plain = kernels.quantize(x, None, 2, 256), torch.ops.falcon_gnn.quantize(x, None, 2, 256)
    assert equal(ours[0], plain[0])
    for part, expected in zip(ours[1:], plain[1:], strict=True):
        assert torch.equal(part.isnan(), expected.isnan())
        assert torch.equal(part.nan_to_num(7), expected.nan_to_num(7))
    activated, expected = x.clone(), x.clone()
    masks = (
        kernels.relu_dropout_(activated, torch.tensor(3), 0.5),
        bitmask.relu_dropout_(expected, torch.tensor(3), 0.5),
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
        assert equal(packed, bitmask.relu_dropout_(plain, seed if dropout else None, dropout))
        assert torch.equal(ours, plain)
        assert torch.equal(kernels.unpack_bits(packed, shape), bitmask.unpack_bits(packed, shape))
        assert equal(kernels.pack_bits(x > 0), bitmask.pack_bits(x > 0))
        assert equal(kernels.dropout_bits(seed, x, dropout), bitmask.dropout_bits(seed, x, dropout))
        for name in ("mask_multiplier", "apply_mask_"):
            arguments = (packed, 1.3, ours) if name == "mask_multiplier" else (ours, packed, 1.3)
            getattr(kernels, name)(*arguments)
            expected = (packed, 1.3, plain) if name == "mask_multiplier" else (plain, packed, 1.3)
            getattr(bitmask, name)(*expected)
            assert torch.equal(ours, plain)


@pytest.mark.parametrize("has_norm", [True, False])
def test_a_hidden_block_is_that_of_plain_torch(kernels: Any, has_norm: bool) -> None:
    for shape in [(3, 7), (2, 256), (130, 9)]:
        hidden, channels = torch.randn(shape) * 2 + 1, shape[1]
        norm = [torch.randn(channels), torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(channels)]
        norm, seeds = norm if has_norm else [], (seeds_for(shape), seeds_for(shape))
        ours, plain = torch.empty_like(hidden), torch.empty_like(hidden)
        mask, *codes = kernels.activate(hidden, norm, *seeds, 0.2, 2, ours)
        assert all(map(equal, (mask, *codes), hidden_ops.activate(hidden, norm, *seeds, 0.2, 2, plain)))
        assert torch.equal(ours, plain)
        gradients = [torch.randn(shape)] * 2
        ours_back, plain_back = (gradient.clone() for gradient in gradients)
        arguments = mask, codes, 2, norm[2:], bitmask.keep_factor(0.2)
        sums = kernels.mask_gradient_(ours_back, *arguments, ours)
        expected = hidden_ops.mask_gradient_(plain_back, *arguments, plain)
        assert torch.equal(ours_back, plain_back)
        assert torch.equal(ours, plain)
        if has_norm:
            torch.testing.assert_close(sums, expected, rtol=1e-4, atol=1e-4)
        factors = torch.randn(3, channels)
        sums = kernels.hidden_gradient(ours_back, codes, 2, factors, ours)
        torch.testing.assert_close(
            sums, hidden_ops.hidden_gradient(ours_back, codes, 2, factors, plain), rtol=1e-4, atol=1e-3
        )
        assert torch.equal(ours, plain)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_an_exact_block_is_that_of_plain_torch(kernels: Any, dropout: float) -> None:
    for shape in [(3, 7), (2, 256), (130, 9)]:
        hidden, channels = torch.randn(shape) * 2 + 1, shape[1]
        norm = [torch.randn(channels), torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(channels)]
        seed, (ours, plain), outs = seeds_for(shape), (hidden.clone(), hidden.clone()), torch.empty(2, *shape)
        mask = kernels.normalize_activate_(ours, norm, seed if dropout else None, dropout, outs[0])
        assert equal(mask, hidden_ops.normalize_activate_(plain, norm, seed if dropout else None, dropout, outs[1]))
        assert torch.equal(ours, plain)
        assert torch.equal(*outs)
        upper, factor = torch.randn(shape), bitmask.keep_factor(dropout)
        ours_back, plain_back, kept = upper.clone(), upper.clone(), ours.clone()
        sums = kernels.mask_gradient_(ours_back, mask, [ours] * 3, 0, norm[2:], factor, outs[0])
        expected = hidden_ops.mask_gradient_(plain_back, mask, [plain] * 3, 0, norm[2:], factor, outs[1])
        assert torch.equal(ours_back, plain_back)
        assert torch.equal(*outs)
        assert torch.equal(ours, kept)
        torch.testing.assert_close(sums, expected, rtol=1e-4, atol=1e-4)


def test_moments_are_those_of_all_rows(kernels: Any) -> None:
    hidden = torch.randn(150, 130) * 3 + 100
    mean, squares = torch.zeros(130), torch.zeros(130)
    kernels.merge_moments_(mean, squares, hidden[:1], 0)
    kernels.merge_moments_(mean, squares, hidden[1:], 1)
    torch.testing.assert_close(mean, hidden.mean(0))
    torch.testing.assert_close(squares / 150, hidden.var(0, unbiased=False), rtol=1e-4, atol=0)


def test_a_sparse_product_adds_a_rows_entries_in_their_order(kernels: Any) -> None:
    matrix, x = torch.rand(7, 5) * (torch.rand(7, 5) < 0.5), torch.randn(5, 130)
    csr = matrix.to_sparse_csr()
    product = kernels.multiply_sparse(csr.crow_indices().int(), csr.col_indices().int(), csr.values(), x)
    torch.testing.assert_close(product, matrix @ x)


def test_rows_are_gathered_and_written_to_their_places(kernels: Any) -> None:
    matrix, ids = torch.randn(9, 130), torch.tensor([7, 0, 3])
    assert torch.equal(kernels.gather_rows(matrix, ids), matrix[ids])
    rows, expected = torch.randn(3, 130).half(), matrix.clone()
    expected[ids] = rows.float()
    kernels.scatter_rows(matrix, ids, rows)
    assert torch.equal(matrix, expected)
    assert kernels.gather_rows(matrix, ids[:0]).shape == (0, 130)
    columns = slice(17, 40)
    assert torch.equal(kernels.gather_rows(matrix[:, columns], ids), matrix[ids][:, columns])
    kernels.scatter_rows(matrix[:, columns], ids, -rows[:, columns])
    expected[ids, columns] *= -1
    assert torch.equal(matrix, expected)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what every kernel needs on two cards, compiled in a process of its own."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")), "PYTHONPATH": paths}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.quantization.compile_kernels", "80", "90"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def test_every_kernel_compiles_for_two_cards_within_its_registers(compiled: list[dict[str, Any]]) -> None:
    from falcon_gnn.quantization import triton_kernels

    written = {name for name in vars(triton_kernels) if name.endswith("_kernel")}
    for card in (80, 90):
        assert {facts["function"] for facts in compiled if facts["card"] == card} == written
    for facts in compiled:
        limit = next((most for name, most in REGISTERS.items() if facts["kernel"].startswith(name)), 64)
        assert facts["registers"] <= limit, facts
        assert facts["spilled"] == 0, facts


def test_products_and_sums_are_rounded_one_by_one_and_quotients_are_true(compiled: list[dict[str, Any]]) -> None:
    assert [facts for facts in compiled if facts["fused"] or facts["approximate"]] == []


def test_a_card_that_is_too_old_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_choice._load_kernels.cache_clear()
    kernel_choice._warn_once.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 0))
    with pytest.warns(FalconWarning, match=r"capability is 7\.0.*8\.0"):
        assert kernel_choice.kernels_for(torch.device("cuda", 0)) is None
    assert kernel_choice.kernels_for(torch.device("cuda", 1)) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    kernel_choice._load_kernels.cache_clear()
    assert kernel_choice.kernels_for(torch.device("cuda", 0)) is not None
    kernel_choice._load_kernels.cache_clear()
    kernel_choice._warn_once.cache_clear()


def test_a_missing_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_choice._load_kernels.cache_clear()
    kernel_choice._warn_once.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setitem(sys.modules, "falcon_gnn.quantization.triton_ops", None)
    monkeypatch.delattr("falcon_gnn.quantization.triton_ops", raising=False)
    with pytest.warns(FalconWarning, match="pip install triton"):
        assert kernel_choice.kernels_for(torch.device("cuda", 0)) is None
    kernel_choice._load_kernels.cache_clear()
    kernel_choice._warn_once.cache_clear()


def test_plain_torch_on_a_device_draws_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (codec, bitmask):
        monkeypatch.setattr(module, "block_values", lambda device: 1 << 12)
    with kernel_choice.counted_draws():
        check_draws()


def check_draws() -> None:
    x, seeds = torch.rand(600, 20) + 1, codec.draw_seeds(3)
    whole, part = x.clone(), x[256:512].clone()
    kept = bitmask.unpack_bits(bitmask.relu_dropout_(whole, seeds, 0.3), x.shape)
    assert kept.float().mean().item() == pytest.approx(0.7, abs=0.03)
    bitmask.relu_dropout_(part, seeds[1:2], 0.3)
    assert torch.equal(whole[256:512], part)
    q = codec.quantize(x, 4, seed=seeds)
    assert ((codec.dequantize(q) - x).abs() <= q.scale.float().max() * 1.001).all()
