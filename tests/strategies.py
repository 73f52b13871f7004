"""Hypothesis strategies: small graphs of every awkward shape, and options for their collapse."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from falcon_gnn.graph import Graph
from tests.oracles import neighbor_sets

MAX_SEED = 2**32 - 1


def _star(size: int) -> list[tuple[int, int]]:
    return [(0, v) for v in range(1, size)]


def _path(size: int) -> list[tuple[int, int]]:
    return [(v, v + 1) for v in range(size - 1)]


def _cycle(size: int) -> list[tuple[int, int]]:
    return [*_path(size), (0, size - 1)] if size > 2 else _path(size)


def _clique(size: int) -> list[tuple[int, int]]:
    return [(u, v) for v in range(size) for u in range(v)]


def _fringed_path(size: int) -> list[tuple[int, int]]:
    half = (size + 1) // 2
    return [*_path(half), *((v, half + v) for v in range(size - half))]


def _isolated(_: int) -> list[tuple[int, int]]:
    return []


@dataclass(frozen=True)
class EdgeList:
    """Distinct undirected pairs, and the number of nodes."""

    num_nodes: int
    pairs: list[tuple[int, int]]

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The pairs as an array, int64, shape ``(2, num_pairs)``."""
        return np.array(self.pairs, np.int64).reshape(-1, 2).T

    @property
    def neighbors(self) -> dict[int, set[int]]:
        """The neighbors of every node."""
        return neighbor_sets(self.pairs, self.num_nodes)


@st.composite
def edge_lists(draw: st.DrawFn, max_parts: int = 4, max_part: int = 6) -> EdgeList:
    """Draw a graph of a few parts, each a star, path, cycle, clique, fringed path or isolated nodes, plus random edges.

    The nodes are numbered at random, so that no property can lean on the order of the parts.
    """
    shapes = st.sampled_from([_star, _path, _cycle, _clique, _fringed_path, _isolated])
    parts = draw(st.lists(st.tuples(shapes, st.integers(1, max_part)), min_size=1, max_size=max_parts))
    pairs: set[tuple[int, int]] = set()
    num_nodes = 0
    for shape, size in parts:
        pairs |= {(u + num_nodes, v + num_nodes) for u, v in shape(size)}
        num_nodes += size
    ids = st.integers(0, num_nodes - 1)
    extra = draw(st.lists(st.tuples(ids, ids), max_size=num_nodes))
    number = draw(st.permutations(range(num_nodes)))
    renumbered = {(number[u], number[v]) for u, v in pairs | set(extra) if u != v}
    return EdgeList(num_nodes, sorted({(min(pair), max(pair)) for pair in renumbered}))


@dataclass(frozen=True)
class CollapseCase:
    """A graph with scores, clusters, protected nodes, a budget, and the discrete options of a collapse."""

    edges: EdgeList
    scores: list[float]
    clusters: list[int]
    protected: list[int]
    budget: int
    seed: int
    order: str

    @property
    def graph(self) -> Graph:
        """The graph, without node arrays."""
        return Graph.from_edges(self.edges.array, self.edges.num_nodes)

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``collapse``."""
        return {
            "centrality": np.array(self.scores),
            "clusters": np.array(self.clusters),
            "protect": np.array(self.protected, np.int64),
            "node_budget": self.budget,
            "seed": self.seed,
            "order": self.order,
        }


@st.composite
def collapse_cases(draw: st.DrawFn, *, distinct_scores: bool = False) -> CollapseCase:
    """Draw a case; scores tie everywhere unless ``distinct_scores``."""
    edges = draw(edge_lists())
    num_nodes = edges.num_nodes
    if distinct_scores:
        scores = [float(score) for score in draw(st.permutations(range(num_nodes)))]
    else:
        scores = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=num_nodes, max_size=num_nodes))
    clusters = draw(st.lists(st.integers(0, 2), min_size=num_nodes, max_size=num_nodes))
    protected = sorted(draw(st.sets(st.integers(0, num_nodes - 1), max_size=min(3, num_nodes))))
    budget = draw(st.integers(max(1, len(protected)), num_nodes))
    order = draw(st.sampled_from(["cluster", "global"]))
    return CollapseCase(edges, scores, clusters, protected, budget, draw(st.integers(0, 5)), order)


def node_permutations(num_nodes: int) -> st.SearchStrategy[list[int]]:
    """Draw a renumbering of the nodes."""
    return st.permutations(range(num_nodes))
