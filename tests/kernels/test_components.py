from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from tests import oracles
from tests.strategies import edge_lists

from falcon_gnn._kernels.components import label_components
from falcon_gnn.graph import Graph


def _labels(pairs, num_nodes):
    graph = Graph.from_edges(np.array(pairs).reshape(-1, 2).T, num_nodes, warn_one_way="never")
    labels, num_components = label_components(graph.indptr, graph.indices)
    return labels.tolist(), num_components


def _expected(pairs, num_nodes):
    parts = sorted(oracles.components(oracles.neighbor_sets(pairs, num_nodes)), key=min)
    labels = {v: number for number, part in enumerate(parts) for v in part}
    return [labels[v] for v in range(num_nodes)], len(parts)


@given(edge_lists(max_parts=8))
@settings(deadline=None)
def test_components_are_numbered_by_their_smallest_node(edges):
    assert _labels(edges.pairs, edges.num_nodes) == _expected(edges.pairs, edges.num_nodes)


@pytest.mark.parametrize("seed", range(5))
def test_edges_beyond_the_first_two_of_a_node_join_components(seed):
    """Cliques of many sizes, joined by edges to high ids, which come last in their rows."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(rng.integers(3, 9, 30))
    pairs = [(u, v) for a, b in pairwise(starts) for u in range(a, b) for v in range(u + 1, b)]
    pairs += [(int(u), int(v)) for u, v in rng.choice(starts, (12, 2))]
    num_nodes = int(starts[-1]) + 3
    assert _labels(pairs, num_nodes) == _expected(pairs, num_nodes)
