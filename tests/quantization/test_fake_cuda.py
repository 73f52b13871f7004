"""Shapes, types and devices on CUDA, by fake tensors: of each model's forward pass, of each backward operator."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from falcon_gnn.quantization import bitmask, codec, hidden_ops
from falcon_gnn.quantization.codec import draw_seeds
from falcon_gnn.training.config import ModelConfig, ModelName
from falcon_gnn.training.models import GraphInput, build_model
from falcon_gnn.training.propagation import SparseMatrix, spmm

CARD = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _fakes() -> Iterator[None]:
    with FakeTensorMode(), torch.device("cuda"):
        yield


def on_card(network: nn.Module) -> nn.Module:
    """Return a network with new parameters there; a CPU build moves none."""
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(torch.empty(parameter.shape)))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))
    return network


def sparse(num_rows: int, num_columns: int) -> SparseMatrix:
    ids = torch.zeros(num_rows + 1, dtype=torch.int32), torch.zeros(40, dtype=torch.int32)
    return SparseMatrix(*ids, torch.zeros(40), num_columns)


def model_input(model: ModelName) -> object:
    if ModelConfig(model).uses_hop_features:
        return torch.zeros(20, 15)
    return GraphInput(sparse(20, 20), torch.zeros(20, 5), torch.zeros(20, 5))


# What a CPU build cannot do on a card, even with fakes: take slices, as QSIGN does, update running statistics, and make
# a graph of gradients. benchmarks/launches.py runs whole steps of every model on a stub of the CUDA runtime.
CASES = [("gcn", None), ("gcn", 2), ("cluster-gcn", None), ("cluster-gcn", 4), ("sign", None), ("sign-original", None)]


@pytest.mark.parametrize(("model", "bits"), CASES)
def test_a_forward_pass_stays_on_the_card(model: ModelName, bits: int | None) -> None:
    with torch.device("cpu"):
        network = build_model(ModelConfig(model, hidden_channels=8, bits=bits, batch_norm=False), 5, 3).train()
    network = on_card(network)
    with torch.no_grad():
        outputs: Tensor = network(model_input(model))
    assert (outputs.device, outputs.shape) == (CARD, (20, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_backward_operators_stay_on_the_card(bits: int, dtype: torch.dtype) -> None:
    x, out = torch.zeros(300, 8, dtype=dtype), torch.zeros(300, 8, dtype=dtype)
    norm, seeds = [torch.zeros(8)] * 4, draw_seeds(2)
    mask, *codes = hidden_ops.activate(x, norm, seeds, seeds, 0.2, bits, out)
    assert {part.device for part in (mask, *codes)} == {CARD}
    sums = hidden_ops.mask_gradient_(x, mask, codes, bits, norm[2:], 1.25, out)
    assert (sums.device, sums.shape) == (CARD, (2, 8))
    sums = hidden_ops.hidden_gradient(x, codes, bits, torch.zeros(3, 8), out)
    assert (sums.device, sums.shape) == (CARD, (8,))
    hidden_ops.merge_moments_(torch.zeros(8), torch.zeros(8), x, 0)
    assert codec.dequantize(codec.quantize(x, bits)).device == CARD
    bitmask.apply_mask_(x, mask, 1.0)
    assert bitmask.unpack_bits(bitmask.pack_bits(x > 0), x.shape).device == CARD
    matrix = sparse(300, 300)
    product = spmm(matrix.indptr, matrix.indices, matrix.values, x, matrix.indptr, matrix.indices, matrix.values)
    assert (product.device, product.shape, product.dtype) == (CARD, (300, 8), dtype)
