import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from tests import oracles
from tests.strategies import MAX_SEED, EdgeList, edge_lists

from falcon_gnn._kernels.centrality import add_distances
from falcon_gnn.errors import ConvergenceError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction import centrality as centralities
from falcon_gnn.reduction.centrality import (
    Sampling,
    betweenness_centrality,
    closeness_centrality,
    compute_centrality,
    eigenvector_centrality,
    pagerank,
    rank_nodes,
    round_scores,
)

TOLERANCE = {"rtol": 0, "atol": 1e-8}
NAMES = ["degree", "betweenness", "closeness", "pagerank", "eigenvector"]


def _adjacency(pairs, num_nodes):
    graph = Graph.from_edges(np.array(pairs, np.int64).reshape(-1, 2).T, num_nodes)
    return graph.indptr, graph.indices


def _networkx(name, graph, **options):
    return oracles.networkx_centrality(oracles.networkx_graph(graph.pairs, graph.num_nodes), name, **options)


@pytest.mark.parametrize("name", NAMES)
def test_small_graphs_have_networkx_values(name):
    @given(edge_lists())
    @example(EdgeList(1, []))
    @example(EdgeList(2, []))
    @example(EdgeList(2, [(0, 1)]))
    @settings(deadline=None, max_examples=60)
    def check(edges):
        scores = compute_centrality(name, *_adjacency(edges.pairs, edges.num_nodes), Sampling(num_samples=None))
        np.testing.assert_allclose(scores, _networkx(name, edges), **TOLERANCE)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_larger_disconnected_graph_has_networkx_values(name):
    """Six hundred nodes: more than one block of breadth-first searches."""
    rng = np.random.default_rng(0)
    ends = np.concatenate([rng.integers(0, 450, (900, 2)), rng.integers(450, 590, (110, 2))])
    edges = EdgeList(600, sorted({(int(min(p)), int(max(p))) for p in ends if p[0] != p[1]}))
    scores = compute_centrality(name, *_adjacency(edges.pairs, 600), Sampling(num_samples=None))
    np.testing.assert_allclose(scores, _networkx(name, edges), **TOLERANCE)


@given(edge_lists(), st.data())
@settings(deadline=None, max_examples=100)
def test_sampled_betweenness_is_networkx_for_the_same_sources(edges, data):
    ids = st.integers(0, edges.num_nodes - 1)
    sources = sorted(data.draw(st.sets(ids, min_size=1, max_size=edges.num_nodes)))
    scores = betweenness_centrality(*_adjacency(edges.pairs, edges.num_nodes), sources=np.array(sources))
    # NetworkX has 0/0 for a single source's own value, which is set to 0 here.
    expected = np.nan_to_num(_networkx("betweenness", edges, sources=sources))
    np.testing.assert_allclose(scores, expected, **TOLERANCE)


def test_betweenness_with_as_many_samples_as_nodes_or_more_is_exact():
    """networkx 2296, 7908, 7949; cugraph 5006."""
    adjacency = _adjacency(list(nx.random_regular_graph(3, 20, seed=0).edges), 20)
    exact = betweenness_centrality(*adjacency, num_samples=None)
    assert (betweenness_centrality(*adjacency, num_samples=20) == exact).all()
    assert (betweenness_centrality(*adjacency, num_samples=5000) == exact).all()


def test_betweenness_samples_distinct_sources_that_follow_the_seed():
    adjacency = _adjacency(list(nx.barabasi_albert_graph(200, 2, seed=0).edges), 200)
    first, again, other = (betweenness_centrality(*adjacency, num_samples=20, seed=seed) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    ring = _adjacency(list(nx.cycle_graph(5).edges), 5)
    but_one = [betweenness_centrality(*ring, sources=np.delete(np.arange(5), node)) for node in range(5)]
    for seed in range(3):
        scores = betweenness_centrality(*ring, num_samples=4, seed=seed)
        assert any((scores == expected).all() for expected in but_one)


def test_betweenness_does_not_depend_on_how_many_sources_a_step_takes(monkeypatch):
    adjacency = _adjacency(list(nx.barabasi_albert_graph(60, 2, seed=0).edges), 60)
    whole = betweenness_centrality(*adjacency, num_samples=None)
    monkeypatch.setattr(centralities, "_SOURCES_PER_STEP", 7)
    np.testing.assert_allclose(betweenness_centrality(*adjacency, num_samples=None), whole, rtol=1e-12)


def test_betweenness_survives_more_shortest_paths_than_a_float_can_count():
    """A chain of 1,100 diamonds has 2^1100 shortest paths from end to end; large grids do the same."""
    cuts = np.arange(0, 3300, 3)
    sides = [(cuts, cuts + 1), (cuts, cuts + 2), (cuts + 1, cuts + 3), (cuts + 2, cuts + 3)]
    pairs = np.concatenate([np.stack(side, axis=1) for side in sides])
    scores = betweenness_centrality(*_adjacency(pairs, 3301), sources=np.array([0, 3300]))
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores, scores[::-1], atol=1e-12)
    assert scores[1650] > scores[1651] == pytest.approx(scores[1650] / 2, rel=0.01)


def test_betweenness_survives_hops_where_one_node_has_few_paths_and_another_more_than_a_float_spans():
    """A chain of 1,500 diamonds beside a path of as many hops; each inner node of the path parts 7,500 pairs."""
    cuts = 3 * np.arange(1500)
    sides = [(cuts, cuts + 1), (cuts, cuts + 2), (cuts + 1, cuts + 3), (cuts + 2, cuts + 3)]
    tail = np.concatenate([[0], np.arange(4501, 7501)])
    pairs = np.concatenate([np.stack(side, axis=1) for side in [*sides, (tail[:-1], tail[1:])]])
    scores = betweenness_centrality(*_adjacency(pairs, 7501), sources=np.array([0, 7500]))
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[4501:7500], 7500 / (2 * 7499), rtol=1e-9)


def test_eigenvector_centrality_of_a_path_of_three_does_not_oscillate():
    """networkx 1704, 7879; cugraph 3971: power iteration on the adjacency alone swings on bipartite graphs."""
    scores = eigenvector_centrality(*_adjacency([(0, 1), (1, 2)], 3))
    np.testing.assert_allclose(scores, [0.5, np.sqrt(0.5), 0.5], atol=1e-5)


def test_eigenvector_centrality_that_does_not_converge_says_how_far_it_is():
    adjacency = _adjacency([(0, 1), (1, 2)], 3)
    with pytest.raises(ConvergenceError, match=r"Eigenvector centrality changes by 0\.\d+ after 2 iterations"):
        eigenvector_centrality(*adjacency, max_iterations=2)


def test_pagerank_ends_where_only_rounding_of_a_hubs_sum_is_left():
    num_leaves = 300_000
    indptr = np.concatenate([[0], num_leaves + np.arange(num_leaves + 1)])
    indices = np.concatenate([np.arange(1, num_leaves + 1), np.zeros(num_leaves)]).astype(np.int32)
    scores = pagerank(indptr, indices)
    base = 0.15 / (num_leaves + 1)
    hub = (base + 0.85 * num_leaves * base) / (1 - 0.85**2)
    assert scores[0] == pytest.approx(hub, rel=1e-9)
    assert (scores[1:] == scores[1]).all()


def test_pagerank_that_does_not_converge_says_how_far_it_is():
    adjacency = _adjacency([(0, 1), (1, 2)], 3)
    with pytest.raises(ConvergenceError, match=r"PageRank changes by 0\.\d+ after 2 iterations"):
        pagerank(*adjacency, max_iterations=2)


@given(edge_lists())
@settings(deadline=None, max_examples=50)
def test_pagerank_sums_to_one(edges):
    assert pagerank(*_adjacency(edges.pairs, edges.num_nodes)).sum() == pytest.approx(1, abs=1e-12)


def test_closeness_does_not_put_tiny_components_first():
    """igraph 1053; neo4j 446, 546: without the Wasserman-Faust factor a pair of nodes would score 1, the most."""
    star = [(0, v) for v in range(1, 8)]
    scores = closeness_centrality(*_adjacency([*star, (8, 9)], 11))
    np.testing.assert_allclose(scores[[0, 8, 9, 10]], [7 * 7 / 10 / 7, 1 / 10, 1 / 10, 0])
    assert scores[8] < scores[:8].min()


def test_closeness_with_as_many_samples_as_nodes_is_exact():
    adjacency = _adjacency(list(nx.barabasi_albert_graph(80, 2, seed=0).edges), 80)
    assert (closeness_centrality(*adjacency, num_samples=80) == closeness_centrality(*adjacency)).all()


@pytest.mark.parametrize("sources", [[0], [0, 700, 2_999], [1_500, 3_100]])
def test_a_search_whose_front_grows_and_shrinks_finds_all_distances(sources):
    long_path, leaves = [(v, v + 1) for v in range(2_999)], [(1_500, v) for v in range(3_000, 4_000)]
    tail = [(4_000 + v, 4_001 + v) for v in range(200)]
    graph = Graph.from_edges(np.array(long_path + leaves + tail).T, 4_201, warn_one_way="never")
    totals, reached = np.zeros(4_201, np.int64), np.zeros(4_201, np.int64)
    add_distances(graph.indptr, graph.indices, np.array(sources), totals, reached)
    # SciPy 1.13 looks for paths with 32-bit ids only.
    matrix = csr_array((np.ones(graph.indices.size), graph.indices, graph.indptr.astype(np.int32)))
    distances = shortest_path(matrix, unweighted=True, indices=sources)
    assert (reached == np.isfinite(distances).sum(axis=0)).all()
    assert (totals == np.where(np.isfinite(distances), distances, 0).sum(axis=0)).all()


def test_sampled_closeness_is_near_the_exact_value():
    adjacency = _adjacency(list(nx.barabasi_albert_graph(400, 3, seed=0).edges), 400)
    sampled, exact = closeness_centrality(*adjacency, num_samples=200, seed=1), closeness_centrality(*adjacency)
    np.testing.assert_allclose(sampled, exact, rtol=0.1)


def test_sampled_closeness_is_above_zero_for_every_node_with_a_neighbor():
    """Also for the one source of a small component, which has no distance to another source."""
    adjacency = _adjacency([(0, 1), (1, 2), (3, 4), (4, 5), (5, 6)], 8)
    scores = closeness_centrality(*adjacency, num_samples=1)
    assert (scores[:7] > 0).all()
    assert scores[7] == 0


def test_random_scores_follow_the_seed():
    adjacency = _adjacency([], 50)
    first, again, other = (compute_centrality("random", *adjacency, Sampling(seed=seed)) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).all()


def test_an_unknown_centrality_is_refused_with_all_names():
    with pytest.raises(OptionError, match=r"degree, betweenness, closeness, pagerank, eigenvector, random.*got 'katz'"):
        compute_centrality("katz", *_adjacency([], 2))


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_rounded_scores_have_ten_significant_digits(scores):
    rounded = round_scores(np.array(scores))
    np.testing.assert_allclose(rounded, oracles.round_to_ten_digits(scores), rtol=1.1e-9)
    assert (round_scores(rounded) == rounded).all()


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20), st.integers(-12, 3))
def test_rounding_noise_makes_no_difference(mantissas, exponent):
    scores = np.array(mantissas) * 10.0**exponent
    scores = scores[scores >= 1e-11 * scores.max()]
    noise = 1 + 1e-13 * np.resize([1, -1, 0.5], len(scores))
    assert (round_scores(scores * noise) == round_scores(scores)).all()


def test_scores_far_below_the_largest_count_as_zero():
    assert round_scores(np.array([1.0, 9e-13, -9e-13, 2e-12])).tolist() == [1.0, 0.0, 0.0, 2e-12]


def test_rounding_keeps_zeros_signs_and_its_input():
    scores = np.array([0.0, -2.0, 1 / 3])
    assert round_scores(scores).tolist() == [0.0, -2.0, pytest.approx(0.3333333333, rel=1e-15)]
    assert scores[2] == 1 / 3


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -3.0, 2.5]), min_size=1, max_size=20), st.integers(0, MAX_SEED))
def test_ranks_order_by_score_and_then_by_a_seeded_permutation(scores, seed):
    assert rank_nodes(np.array(scores), seed).tolist() == oracles.rank_by_scores(scores, seed)


def test_ties_do_not_follow_the_numbering_of_the_nodes():
    rank = rank_nodes(np.zeros(1000), seed=0)
    assert sorted(rank) == list(range(1000))
    assert abs(np.corrcoef(rank, np.arange(1000))[0, 1]) < 0.1
