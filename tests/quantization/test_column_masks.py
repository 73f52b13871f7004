"""Masks by columns: the bits come back, and what looking them up takes is declared."""

import pytest
import torch

from falcon_gnn.quantization import column_masks
from falcon_gnn.quantization.column_masks import mask_columns_, pack_columns
from falcon_gnn.quantization.temporaries import temporary_bytes
from falcon_gnn.training.memory import measure_peak


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_of_a_mask_come_back(dtype: torch.dtype) -> None:
    mask = torch.rand(50, 21) < 0.5
    packed = pack_columns(mask)
    assert packed.shape == (50, 3)
    for columns in (slice(8, 21), slice(0, 8)):
        values = torch.randn(len(mask), columns.stop - columns.start, dtype=dtype)
        expected = torch.where(mask[:, columns], 1.25 * values, 0.0)
        mask_columns_(values, packed, columns.start, 1.25)
        assert torch.equal(values, expected)


@pytest.mark.parametrize("num_rows", [0, 3, 300])
def test_rows_are_worked_on_in_parts(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mask, values = torch.rand(num_rows, 16) < 0.5, torch.randn(num_rows, 16).double()
    monkeypatch.setattr(column_masks, "block_values", lambda device: 16 * 7)
    expected = mask * values
    mask_columns_(values, pack_columns(mask), 0, 1.0)
    assert torch.equal(values, expected)


def test_the_operator_passes_opcheck() -> None:
    arguments = (torch.randn(9, 12), pack_columns(torch.rand(9, 30) < 0.5), 8, 2.0)
    torch.library.opcheck(torch.ops.falcon_gnn.mask_columns_.default, arguments)


@pytest.mark.parametrize(("num_rows", "width"), [(20_000, 64), (300, 13)])
def test_what_the_operator_holds_inside_is_declared(num_rows: int, width: int) -> None:
    values, packed = torch.randn(num_rows, width).double(), pack_columns(torch.rand(num_rows, width) < 0.5)
    body = mask_columns_._init_fn
    body(values, packed, 0, 1.25)
    peak = measure_peak(lambda: body(values, packed, 0, 1.25))
    declared = temporary_bytes("falcon_gnn::mask_columns_", values, packed, 0, 1.25)
    assert declared == pytest.approx(peak.temporaries, rel=0.01, abs=64)
    assert temporary_bytes("falcon_gnn::mask_columns_", values.float(), packed, 0, 1.25) == 0
