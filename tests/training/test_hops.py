import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from falcon_gnn.errors import GraphError, OptionError
from falcon_gnn.propagation import normalized_csr
from falcon_gnn.training.hops import aggregate, float_features, hop_features


def _by_formula(graph, adjacency, num_hops):
    x = graph.x.toarray() if issparse(graph.x) else np.asarray(graph.x)
    return np.concatenate([np.linalg.matrix_power(adjacency, hop) @ x for hop in range(num_hops + 1)], axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_hop_features_equal_powers_of_the_adjacency(make_graph, dense_adjacency, weighted):
    graph = make_graph(weighted=weighted)
    expected = _by_formula(graph, dense_adjacency(graph), 3)
    assert hop_features(graph, 3) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("block_columns", [1, 2, 5, 99])
def test_column_blocks_give_the_same_bits(graph, block_columns):
    assert np.array_equal(hop_features(graph, 2, block_columns=block_columns), hop_features(graph, 2))


@pytest.mark.parametrize("block_columns", [None, 2])
def test_sparse_features_give_the_same_hop_features(graph, block_columns):
    sparse = graph.replace(x=csr_array(graph.x))
    assert np.array_equal(hop_features(sparse, 2, block_columns=block_columns), hop_features(graph, 2))


def test_rows_are_taken_after_the_products(graph):
    rows = np.array([5, 50, 7])
    assert np.array_equal(hop_features(graph, 2, rows=rows), hop_features(graph, 2)[rows])


def test_no_hop_is_the_features_alone(graph):
    assert np.array_equal(hop_features(graph, 0), graph.x)


def test_a_given_file_can_be_loaded_afterwards(graph, tmp_path):
    written = hop_features(graph, 1, out=tmp_path / "hops.npy")
    assert isinstance(written, np.memmap)
    assert np.array_equal(np.load(tmp_path / "hops.npy"), hop_features(graph, 1))


def test_a_large_result_is_memory_mapped_and_equal(graph):
    mapped = hop_features(graph, 1, map_above=100)
    assert isinstance(mapped, np.memmap)
    assert np.array_equal(mapped, hop_features(graph, 1))


def test_memory_mapped_features_are_read_as_they_are(graph, tmp_path):
    np.save(tmp_path / "x.npy", graph.x)
    mapped = graph.replace(x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert np.array_equal(hop_features(mapped, 1, block_columns=2), hop_features(graph, 1))


def test_integer_features_become_floats(graph):
    counts = graph.replace(x=np.arange(120).reshape(60, 2))
    assert hop_features(counts, 1).dtype == np.float32
    assert float_features(counts).dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "name"), [({"num_hops": -1}, "num_hops"), ({"num_hops": 1, "block_columns": 0}, "block_columns")]
)
def test_impossible_arguments_are_named(graph, arguments, name):
    with pytest.raises(OptionError, match=name):
        hop_features(graph, **arguments)


def test_a_graph_without_features_is_refused_with_a_way_out(graph):
    with pytest.raises(GraphError, match="degrees"):
        hop_features(graph.replace(x=None), 1)


def test_sparse_features_stay_sparse_only_while_that_pays(graph):
    almost_empty = csr_array((np.ones(3), ([0, 1, 2], [0, 0, 1])), (60, 50))
    adjacency = normalized_csr(graph)
    sparse = float_features(graph.replace(x=almost_empty))
    assert issparse(sparse)
    assert issparse(aggregate(adjacency, sparse))
    assert isinstance(float_features(graph.replace(x=csr_array(graph.x))), np.ndarray)


def test_aggregate_is_the_product_for_dense_and_sparse_features(graph, dense_adjacency):
    x = csr_array((np.ones(3), ([0, 1, 2], [0, 0, 1])), (60, 500)).astype(np.float32)
    adjacency = normalized_csr(graph)
    assert aggregate(adjacency, x).toarray() == pytest.approx(dense_adjacency(graph) @ x.toarray(), abs=1e-6)
    assert aggregate(adjacency, graph.x) == pytest.approx(dense_adjacency(graph) @ graph.x, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-23, 1.0, 1e20])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_of_any_scale_have_length_one(graph, scale, is_sparse):
    """Squares of such numbers are zero or infinite in single precision."""
    x = np.tile([[3.0, 4, 0, 0, 0, 0, 0, 0, 0, 0]], (60, 1)) * scale
    scaled = float_features(graph.replace(x=csr_array(x) if is_sparse else x), normalize=True)
    assert (scaled.toarray() if issparse(scaled) else scaled)[0] == pytest.approx([0.6, 0.8, *[0] * 8], rel=1e-6)
