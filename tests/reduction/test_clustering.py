import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests import oracles

from falcon_gnn.errors import FalconWarning
from falcon_gnn.labels import encode_labels
from falcon_gnn.reduction import clustering
from falcon_gnn.reduction import matrix as matrices
from falcon_gnn.reduction.clustering import cluster_nodes
from falcon_gnn.reduction.matrix import build_matrix

_VALUES = st.floats(-8, 8, width=32).map(lambda value: round(value, 2))
_X = hnp.arrays(np.float64, st.tuples(st.integers(2, 8), st.integers(1, 5)), elements=_VALUES)
_GAMMA = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def _dense(matrix):
    rows = matrix.rows(0, matrix.num_rows)
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


def _labels(data, num_nodes):
    return np.array(data.draw(st.lists(st.integers(-1, 3), min_size=num_nodes, max_size=num_nodes)))


def _expected(x, encoding, gamma):
    has_labels = encoding is not None and encoding.labelled.any()
    vectors = encoding.matrix.astype(np.float64) if has_labels else None
    return oracles.feature_label_matrix(x, vectors, encoding.labelled if has_labels else [], gamma)


# M


@given(_X, _GAMMA, st.data())
@settings(deadline=None)
def test_m_is_the_scaled_features_beside_the_scaled_labels(x, gamma, data):
    encoding = encode_labels(_labels(data, len(x)), "classes", num_classes=4)
    matrix = _dense(build_matrix(x, encoding, gamma))
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, _expected(x, encoding, gamma), atol=2e-6)


@given(_X, _GAMMA, st.data())
@settings(deadline=None)
def test_sparse_features_have_the_distances_of_dense_ones(x, gamma, data):
    x = np.where(np.abs(x) < 3, 0, x)
    encoding = encode_labels(_labels(data, len(x)), "classes")
    matrix = build_matrix(sp.csr_array(x), encoding, gamma)
    assert matrix.is_sparse
    distances = oracles.squared_distances(_dense(matrix).astype(np.float64))
    expected = oracles.squared_distances(_expected(x, encoding, gamma))
    np.testing.assert_allclose(distances, expected, atol=1e-4)


def test_alpha_and_beta_make_features_and_labels_weigh_alike():
    """Eq. 6 with F = 2, L = 4, γ = 1/2: α = ½·4/2 = 1 and β = ½·4/4 = ½."""
    x = np.array([[0.0, 0], [1, 1], [0, 0], [0, 0]])
    matrix = _dense(build_matrix(x, encode_labels(np.arange(4), "classes"), 0.5))
    np.testing.assert_allclose(matrix[1], [1, 1, 0, np.sqrt(0.5), 0, 0], rtol=1e-6)


def test_gamma_1_looks_at_features_only_and_gamma_0_at_labels_only():
    x, encoding = np.array([[0.0], [1.0]]), encode_labels(np.array([0, 1]), "classes")
    assert (_dense(build_matrix(x, encoding, 1.0))[:, 1:] == 0).all()
    assert (_dense(build_matrix(x, encoding, 0.0))[:, :1] == 0).all()


def test_without_labels_m_is_x_and_without_features_m_is_y():
    x, y = np.array([[0.0, 5], [10, 5], [5, 5]]), encode_labels(np.array([0, 1, -1]), "classes")
    assert _dense(build_matrix(x, None, 0.3)).tolist() == [[0, 0], [1, 0], [0.5, 0]]
    assert _dense(build_matrix(None, y, 0.3)).tolist() == [[1, 0], [0, 1], [0, 0]]
    assert build_matrix(None, None, 0.5) is None
    assert build_matrix(None, encode_labels(np.array([-1, -1]), "classes"), 0.5) is None


def test_an_unlabelled_node_has_a_zero_label_vector_also_after_scaling():
    encoding = encode_labels(np.array([[3.0], [5.0], [np.nan]]), "regression")
    assert _dense(build_matrix(None, encoding, 0.5)).ravel().tolist() == [0, 1, 0]


def test_a_value_missing_from_a_row_of_targets_does_not_stretch_the_scale():
    encoding = encode_labels(np.array([[1000.0, 5], [1002, np.nan], [1004, 7], [np.nan, 6]]), "regression")
    matrix = _dense(build_matrix(None, encoding, 0.5))
    assert matrix[:3, 0] == pytest.approx([0, 0.5, 1])


@pytest.mark.parametrize("offset", [1e6, 1e9, -1e9])
def test_a_large_offset_of_a_feature_loses_no_digits(offset):
    """Such as time stamps in seconds: in float32 a whole minute is one number."""
    x = offset + np.arange(5.0)[:, None]
    assert _dense(build_matrix(x, None, 0.5)).ravel() == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_features_beyond_the_range_of_float32_are_scaled_like_others():
    x = np.array([[0.0], [5e299], [1e300]])
    assert _dense(build_matrix(x, None, 0.5)).ravel() == pytest.approx([0, 0.5, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, bool, np.int64, np.float16, np.float32])
def test_features_of_any_real_type_are_scaled(dtype):
    x = np.array([[0], [100], [100]]).astype(dtype)
    np.testing.assert_allclose(_dense(build_matrix(x, None, 0.5)).ravel(), [0, 1, 1], rtol=1e-6)


def test_full_range_bytes_do_not_wrap_around():
    x = np.array([[-128], [127], [0]], np.int8)
    np.testing.assert_allclose(_dense(build_matrix(x, None, 0.5)).ravel(), [0, 1, 128 / 255], rtol=1e-6)


@given(_X, st.data())
@settings(deadline=None)
def test_rows_outside_the_scope_are_not_looked_at(x, data):
    ids = np.array(sorted(data.draw(st.sets(st.integers(0, len(x) - 1), min_size=1))))
    outside = np.full((len(x), x.shape[1]), 1e6)
    outside[ids] = x[ids]
    for features in (x, outside):
        np.testing.assert_array_equal(
            _dense(build_matrix(features, None, 0.5, ids)), _dense(build_matrix(x[ids], None, 0.5))
        )


def test_the_features_and_labels_are_only_read():
    x, y = np.random.default_rng(0).random((50, 3)), np.arange(50) % 3
    sparse = sp.csr_array(np.where(x < 0.5, 0, x))
    before = x.copy(), sparse.copy()
    encoding = encode_labels(y, "classes")
    for features in (x, sparse):
        cluster_nodes(build_matrix(features, encoding, 0.5), 50, 5, seed=0)
    assert (x == before[0]).all()
    assert (sparse != before[1]).nnz == 0


# K-means


def _blobs(num_rows=400, num_blobs=8, seed=0):
    rng = np.random.default_rng(seed)
    blob = rng.integers(0, num_blobs, num_rows)
    return 10 * np.eye(num_blobs)[blob] + rng.normal(scale=0.1, size=(num_rows, num_blobs)), blob


@pytest.fixture(params=["whole", "mini-batches"])
def engine(request, monkeypatch):
    """Run a test on M as a whole, and on row blocks of a few rows."""
    if request.param == "mini-batches":
        monkeypatch.setattr(clustering, "MAX_WHOLE_VALUES", 0)
        monkeypatch.setattr(matrices, "BLOCK_VALUES", 1000)
    return request.param


@pytest.mark.parametrize("as_sparse", [False, True])
def test_well_separated_groups_are_found(engine, as_sparse):
    x, blob = _blobs()
    found = cluster_nodes(build_matrix(sp.csr_array(x) if as_sparse else x, None, 0.5), len(x), 8, seed=0)
    assert found.dtype == np.int64
    assert oracles.same_partition(found.tolist(), blob.tolist())


@pytest.mark.parametrize("as_sparse", [False, True])
def test_the_same_seed_gives_the_same_clusters(engine, as_sparse):
    x = np.random.default_rng(0).random((300, 4))
    matrix = build_matrix(sp.csr_array(x) if as_sparse else x, None, 0.5)
    first, again, other = (cluster_nodes(matrix, 300, 12, seed) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_a_seed_of_any_size_is_taken_and_all_its_bits_count(engine):
    matrix = build_matrix(np.random.default_rng(0).random((300, 4)), None, 0.5)
    first, other = (cluster_nodes(matrix, 300, 12, seed) for seed in (1 << 32, 1 << 70))
    assert (first != other).any()


def test_a_seed_below_32_bits_is_scikit_learns_own():
    assert [clustering._sklearn_seed(seed) for seed in (0, 7, (1 << 32) - 1)] == [0, 7, (1 << 32) - 1]


def test_more_clusters_than_distinct_rows_are_clipped_with_a_warning(engine):
    """scikit-learn 9943, 10099; cuml 7189."""
    x = np.repeat(np.eye(3), 20, axis=0)
    with pytest.warns(FalconWarning, match="num_clusters=9 is more than the 3 distinct .*3 clusters are used"):
        found = cluster_nodes(build_matrix(x, None, 0.5), 60, 9, seed=0)
    assert np.bincount(found).tolist() == [20, 20, 20]


def test_clusters_that_end_up_empty_are_told_and_leave_no_gap(monkeypatch):
    monkeypatch.setattr(clustering, "_lloyd", lambda *_: np.array([0, 2, 2, 0]))
    with pytest.warns(FalconWarning, match="1 of 3 clusters ended up empty; 2 are used"):
        found = cluster_nodes(build_matrix(np.eye(4), None, 0.5), 4, 3, seed=0)
    assert found.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("features", [np.zeros((30, 2)), -np.zeros((30, 2)), sp.csr_array((30, 2))])
def test_rows_that_are_all_alike_are_one_cluster(features):
    with pytest.warns(FalconWarning, match="1 distinct"):
        assert not cluster_nodes(build_matrix(features, None, 0.5), 30, 4, seed=0).any()


def test_no_cluster_is_empty_where_almost_all_rows_are_alike(engine):
    """The rows that a sample for the seeding leaves out are found all the same."""
    x = np.zeros((5000, 8))
    x[:50] = np.random.default_rng(0).random((50, 8))
    found = cluster_nodes(build_matrix(x, None, 0.5), 5000, 40, seed=0)
    assert (np.bincount(found) > 0).all()
    assert found.max() + 1 == 40


def test_as_many_clusters_as_distinct_rows_need_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cluster_nodes(build_matrix(np.arange(6.0)[:, None], None, 0.5), 6, 6, seed=0)
    assert sorted(found) == list(range(6))


def test_one_cluster_and_nothing_to_cluster_by_are_a_single_cluster():
    assert not cluster_nodes(build_matrix(np.eye(4), None, 0.5), 4, 1, seed=0).any()
    assert not cluster_nodes(None, 4, 100, seed=0).any()


@pytest.mark.parametrize("as_sparse", [False, True])
def test_distinct_rows_are_found_across_blocks(as_sparse, monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 8)
    x = np.random.default_rng(0).integers(0, 3, (40, 2)).astype(float)
    matrix = build_matrix(sp.csr_array(x) if as_sparse else x, None, 0.5)
    first_rows = np.sort(np.unique(x, axis=0, return_index=True)[1])
    assert clustering._find_distinct_rows(matrix, limit=100).tolist() == first_rows.tolist()
    assert len(np.unique(x[clustering._find_distinct_rows(matrix, limit=4)], axis=0)) == 4


def test_seeding_on_a_sample_is_as_good_as_on_all_rows():
    """The sum of squared distances to the centers stays within 5 % of scikit-learn's own k-means++ on all rows."""
    x = np.random.default_rng(0).random((4000, 6))
    matrix = build_matrix(x, None, 0.5)
    rows = _dense(matrix).astype(np.float64)

    def inertia(clusters):
        return sum(np.square(rows[clusters == i] - rows[clusters == i].mean(axis=0)).sum() for i in np.unique(clusters))

    ours = np.mean([inertia(cluster_nodes(matrix, 4000, 50, seed)) for seed in range(3)])
    theirs = np.mean([inertia(oracles.sklearn_clusters(rows, 50, seed)) for seed in range(3)])
    assert ours < 1.05 * theirs
