from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from tests.strategies import edge_lists
from tests.tracing import traced_peak
from torch._subclasses.fake_tensor import FakeTensorMode

from falcon_gnn.datasets.synthetic import block_graph
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.quantization.temporaries import temporary_bytes
from falcon_gnn.training import propagation
from falcon_gnn.training.propagation import SparseMatrix, spmm, take_rows
from falcon_gnn.training.steps import own_randomness


def normalized_adjacency(graph, dtype=np.float32):
    return SparseMatrix.from_scipy(normalized_csr(graph, dtype))


def _sparse(shape, seed=0, density=0.4):
    rng = np.random.default_rng(seed)
    return csr_array(rng.normal(size=shape) * (rng.random(shape) < density))


def _arguments(matrix: SparseMatrix, x: torch.Tensor):
    back = matrix.transposed or matrix
    return matrix.indptr, matrix.indices, matrix.values, x, back.indptr, back.indices, back.values


@settings(deadline=None)
@given(edge_lists(), st.booleans(), st.integers(0, 2**16))
def test_normalised_adjacency_equals_the_dense_formula(edges, weighted, seed):
    weight = np.random.default_rng(seed).uniform(0, 3, len(edges.pairs)) if weighted else None
    graph = Graph.from_edges(edges.array, edges.num_nodes, edge_weight=weight)
    dense = np.eye(edges.num_nodes) + graph.to_scipy().toarray()
    scale = dense.sum(axis=1) ** -0.5
    assert normalized_csr(graph, np.float64).toarray() == pytest.approx(scale[:, None] * dense * scale, abs=1e-12)


@settings(deadline=None)
@given(edge_lists())
def test_rows_of_the_normalised_adjacency_are_ascending_and_it_is_symmetric_to_the_last_bit(edges):
    matrix = normalized_csr(Graph.from_edges(edges.array, edges.num_nodes))
    checked = csr_array((matrix.data, matrix.indices, matrix.indptr), matrix.shape)
    assert checked.has_canonical_format
    assert (matrix.toarray() == matrix.toarray().T).all()


def test_normalised_adjacency_of_a_path_by_hand():
    matrix = normalized_csr(Graph.from_edges([[0, 1], [1, 2]], 3), np.float64).toarray()
    side = 1 / np.sqrt(6)
    assert matrix == pytest.approx(np.array([[1 / 2, side, 0], [side, 1 / 3, side], [0, side, 1 / 2]]))


def test_an_isolated_node_keeps_its_own_vector():
    adjacency = normalized_adjacency(Graph.from_edges([[0], [1]], 3))
    assert (adjacency @ torch.eye(3))[2].tolist() == [0, 0, 1]


def test_a_graph_without_edges_leaves_vectors_as_they_are():
    x = torch.randn(4, 2)
    assert torch.equal(normalized_adjacency(Graph.from_edges(np.zeros((2, 0), int), 4)) @ x, x)


@settings(deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 5), st.integers(0, 2**16))
def test_product_equals_the_dense_product(num_rows, num_columns, width, seed):
    matrix = _sparse((num_rows, num_columns), seed)
    x = torch.randn(num_columns, width, dtype=torch.float64)
    product = SparseMatrix.from_scipy(matrix) @ x
    torch.testing.assert_close(product, torch.from_numpy(matrix.toarray()) @ x)


def test_product_takes_a_transposed_operand():
    matrix, x = _sparse((4, 3)), torch.randn(5, 3, dtype=torch.float64).t()
    torch.testing.assert_close(SparseMatrix.from_scipy(matrix) @ x, torch.from_numpy(matrix.toarray()) @ x)


def test_product_in_bfloat16_is_close_to_the_exact_one(graph):
    adjacency, x = normalized_adjacency(graph), torch.randn(60, 8)
    product = adjacency @ x.bfloat16()
    assert product.dtype == torch.bfloat16
    torch.testing.assert_close(product.float(), adjacency @ x, atol=0.03, rtol=0.02)


def test_gradient_of_the_symmetric_product_is_right(make_graph):
    adjacency = normalized_adjacency(make_graph(9), np.float64)
    x = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: adjacency @ values, x)


def test_gradient_of_a_rectangular_product_is_right_and_differentiable_again():
    matrix = SparseMatrix.from_scipy(_sparse((4, 6)), with_transpose=True)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: matrix @ values, x)
    assert torch.autograd.gradgradcheck(lambda values: (matrix @ values) ** 2, x)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (0, 4), (4, 0)])
def test_operator_passes_torchs_own_checks(shape):
    matrix = SparseMatrix.from_scipy(_sparse(shape), with_transpose=True)
    x = torch.randn(shape[1], 2, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(spmm, _arguments(matrix, x))


def test_product_of_fake_tensors_has_the_right_shape_and_type():
    matrix = SparseMatrix.from_scipy(_sparse((4, 6)))
    with FakeTensorMode(allow_non_fake_inputs=True):
        product = matrix @ torch.empty(6, 3, dtype=torch.bfloat16)
    assert (product.shape, product.dtype) == ((4, 3), torch.bfloat16)


def test_declared_temporaries_are_the_copies_of_entries_and_of_a_strided_operand():
    matrix = SparseMatrix.from_scipy(_sparse((4, 6)))
    x = torch.empty(6, 3, dtype=torch.bfloat16)
    assert temporary_bytes("falcon_gnn::spmm", *_arguments(matrix, x)) == 2 * matrix.values.numel()
    strided = torch.empty(3, 6, dtype=torch.float64).t()
    assert temporary_bytes("falcon_gnn::spmm", *_arguments(matrix, strided)) == 8 * 18


def test_moving_converts_the_transpose_too():
    moved = SparseMatrix.from_scipy(_sparse((4, 6)), with_transpose=True).to(dtype=torch.float32)
    assert moved.values.dtype == moved.transposed.values.dtype == torch.float32


def test_taken_rows_multiply_only_the_columns_they_touch(graph, dense_adjacency):
    rows = np.array([7, 3, 40])
    sliced, columns = take_rows(normalized_csr(graph), rows)
    assert sliced.shape == (3, len(columns))
    assert len(columns) < 60
    assert sliced.toarray() == pytest.approx(dense_adjacency(graph)[np.ix_(rows, columns)], abs=1e-6)
    assert not np.delete(dense_adjacency(graph)[rows], columns, axis=1).any()


def test_deterministic_training_multiplies_by_the_kernel_that_keeps_the_order(monkeypatch):
    called = []
    kernels = SimpleNamespace(multiply_sparse=lambda *arguments: called.append(arguments) or arguments[3])
    monkeypatch.setattr(propagation, "kernels_for", lambda device: kernels)
    with FakeTensorMode():
        x, plain = torch.empty(4, 3, device="cuda"), [torch.empty(size, device="cuda") for size in ((5,), (9,), (9,))]
        multiply = partial(spmm._init_fn, *plain, x, *plain)
        with own_randomness(0, torch.device("cpu"), deterministic=True):
            assert multiply() is x
            monkeypatch.setattr(propagation, "kernels_for", lambda device: None)
            with pytest.raises(OptionError, match="deterministic=True needs Triton"):
                multiply()
        monkeypatch.setattr(torch, "sparse_csr_tensor", Mock(side_effect=RuntimeError("cuSPARSE")))
        with pytest.raises(RuntimeError, match="cuSPARSE"):
            multiply()
    assert len(called) == 1


def test_a_training_on_the_cpu_leaves_the_generators_of_cards_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", Mock(side_effect=AssertionError))
    before = torch.get_rng_state()
    with own_randomness(3, torch.device("cpu"), deterministic=False):
        drawn = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(drawn, torch.rand(4, generator=torch.Generator().manual_seed(3)))


def test_taken_rows_need_little_memory_beside_their_own():
    matrix = normalized_csr(block_graph(10_000, 100_000, num_features=1))
    rows = np.arange(9_000)
    taken = take_rows(matrix, rows)[0]
    held = taken.data.nbytes + taken.indices.nbytes + taken.indptr.nbytes
    assert traced_peak(lambda: take_rows(matrix, rows)) < 2.2 * held
