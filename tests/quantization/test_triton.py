"""Triton's kernels without a card: those that only CUDA has, in the interpreter, and all compiled ahead of time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from falcon_gnn.errors import FalconWarning
from falcon_gnn.quantization import kernel_choice

pytest.importorskip("triton")

REGISTERS = {"activate": 96, "mask gradient": 104, "hidden gradient": 88, "moments": 88}
"""Most registers of a thread, 64 where nothing is said: 65,536 of them serve 4 programs of 128 threads at 128."""


@pytest.fixture
def kernels() -> Any:
    """Return the kernels, run by the interpreter."""
    from falcon_gnn.quantization import triton_kernels, triton_ops

    if not triton_kernels.knobs.runtime.interpret:
        pytest.skip("Triton was imported without TRITON_INTERPRET=1")
    return triton_ops


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


CARDS = os.environ.get("FALCON_CARDS", "80").split()
"""Compute capabilities to compile for; ``make cards`` takes two."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what every kernel needs on each card, compiled in a process of its own."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")), "PYTHONPATH": paths}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.quantization.compile_kernels", *CARDS]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def test_every_kernel_compiles_for_a_card_within_its_registers(compiled: list[dict[str, Any]]) -> None:
    from falcon_gnn.quantization import triton_kernels

    written = {name for name in vars(triton_kernels) if name.endswith("_kernel")}
    for card in map(int, CARDS):
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
