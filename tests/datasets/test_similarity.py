"""Cosine graphs against the obvious double loop, and at the size of the paper's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tracing import traced_peak
from threadpoolctl import threadpool_limits

from falcon_gnn.datasets import similarity
from falcon_gnn.datasets.similarity import cosine_edges, threshold_for_edges
from falcon_gnn.errors import GraphError, OptionError


def _slow_edges(x, threshold):
    def cosine(u, v):
        norm = np.sqrt((u @ u) * (v @ v))
        return u @ v / norm if norm else 0.0

    pairs = [(u, v) for u in range(len(x)) for v in range(u + 1, len(x))]
    return [pair for pair in pairs if cosine(x[pair[0]], x[pair[1]]) > threshold]


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.sampled_from([1, 3, 1 << 24]), st.sampled_from([0.3123, -0.5123]))
def test_edges_are_the_pairs_above_the_threshold(num_rows, num_columns, block, threshold):
    x = np.random.default_rng(num_rows).normal(size=(num_rows, num_columns))
    x[0] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similarity, "_BLOCK_VALUES", block)
        edges = cosine_edges(x, threshold)
    assert sorted(map(tuple, edges.T.tolist())) == _slow_edges(x, threshold)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-300, 1e-25, 1e22, 1e300])
def test_the_scale_of_the_features_makes_no_difference(scale):
    x = np.random.default_rng(0).random((20, 5))
    x[0] = 0
    assert cosine_edges(x * scale, 0.9).tolist() == cosine_edges(x, 0.9).tolist()
    assert threshold_for_edges(x * scale, 30) == threshold_for_edges(x, 30)


def test_a_cosine_equal_to_the_threshold_makes_no_edge():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    assert cosine_edges(x, 0.0).T.tolist() == [[1, 2]]


def test_integer_pixels_do_not_overflow():
    x = np.full((2, 300), 255, np.uint8)
    assert cosine_edges(x, 0.99).T.tolist() == [[0, 1]]


def test_the_result_does_not_depend_on_threads_or_blocks(monkeypatch):
    x = np.random.default_rng(0).random((700, 64), np.float32)
    results = []
    for threads, block in ((1, 1 << 24), (2, 1 << 24), (2, 700 * 100)):
        monkeypatch.setattr(similarity, "_BLOCK_VALUES", block)
        with threadpool_limits(threads):
            results.append(cosine_edges(x, 0.75))
    assert np.array_equal(results[0], results[1])
    assert sorted(map(tuple, results[0].T)) == sorted(map(tuple, results[2].T))


def test_the_threshold_is_the_thousandth_nearest_to_the_wanted_edges():
    x = np.random.default_rng(1).random((60, 8))
    best = threshold_for_edges(x, 400)
    counts = {step: cosine_edges(x, best + step / 1000).shape[1] for step in (-1, 0, 1)}
    assert min(counts, key=lambda step: abs(counts[step] - 400)) == 0


@pytest.mark.parametrize("threshold", [1.0, -1.1, float("nan")])
def test_a_threshold_that_is_no_cosine_is_refused(threshold):
    with pytest.raises(OptionError, match="threshold must be a cosine"):
        cosine_edges(np.ones((2, 2)), threshold)


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(GraphError, match="x must be finite"):
        cosine_edges(np.array([[np.nan, 1.0]]), 0.5)


@pytest.mark.slow
def test_the_paper_sized_image_graph_has_the_known_number_of_edges(shared_dataset):
    with np.load(shared_dataset("organamnist_25k")) as archive:
        images = np.concatenate([archive[f"{part}_images"] for part in ("train", "val", "test")])
    edges = cosine_edges(images.reshape(25_221, 784), 0.965)
    # Ten pairs lie within float32 rounding of the threshold; processors differ on them.
    assert abs(edges.shape[1] - 630_898) <= 10


def test_memory_stays_far_below_all_pairs():
    x = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float32)
    assert traced_peak(lambda: cosine_edges(x, 0.9999)) < 200 * 2**20 < 20_000**2 * 4 / 7


def test_pairs_of_equal_rows_count_towards_the_wanted_edges():
    # In float32 the cosine of two of the first rows is above 1.
    x = np.concatenate([np.full((40, 7), 0.3), np.eye(7) + 1])
    assert cosine_edges(x, threshold_for_edges(x, 780)).shape[1] == 780
