"""Slow, obvious twins of the fast functions: plain loops over sets and dictionaries, or another library's function.

The first half walks the definitions literally and judges correctness. The second half is the straightforward NetworkX
and scikit-learn implementation of the whole algorithm that ``benchmarks/collapse.py`` is measured against.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]
Neighbors = Mapping[int, set[int]]
FloatArray = NDArray[np.float64]
IdArray = NDArray[np.int64]


# The adjacency


@dataclass(frozen=True)
class CleanEdges:
    """Undirected pairs (u < v) with their weights, and what the edge list needed."""

    weights: dict[Pair, float]
    num_self_loops: int
    num_duplicates: int
    num_one_way: int
    num_two_way: int


def clean_edges(edges: Iterable[Pair], weights: Iterable[float]) -> CleanEdges:
    """Return an edge list as undirected pairs; ValueError where the two directions of a pair weigh differently."""
    directed: dict[Pair, float] = defaultdict(float)
    num_listed: dict[Pair, int] = defaultdict(int)
    num_self_loops = 0
    for (u, v), weight in zip(edges, weights, strict=True):
        if u == v:
            num_self_loops += 1
        else:
            directed[u, v] += weight
            num_listed[u, v] += 1
    pairs = {(min(u, v), max(u, v)) for u, v in directed}
    both = {(u, v) for u, v in pairs if (u, v) in directed and (v, u) in directed}
    for u, v in both:
        if not np.isclose(directed[u, v], directed[v, u], rtol=1e-6, atol=0):
            msg = f"({u}, {v}) and ({v}, {u}) differ"
            raise ValueError(msg)
    return CleanEdges(
        {(u, v): directed[u, v] if (u, v) in directed else directed[v, u] for u, v in pairs},
        num_self_loops,
        sum(count - 1 for count in num_listed.values()),
        len(pairs - both),
        len(both),
    )


def neighbor_sets(edges: Iterable[Pair], num_nodes: int) -> dict[int, set[int]]:
    """Return the neighbors of every node, isolated nodes included; loops are left out."""
    neighbors: dict[int, set[int]] = {v: set() for v in range(num_nodes)}
    for u, v in edges:
        if u != v:
            neighbors[u].add(v)
            neighbors[v].add(u)
    return neighbors


def components(neighbors: Neighbors) -> list[set[int]]:
    """Return the connected components, by the smallest node of each."""
    left = set(neighbors)
    found = []
    for start in sorted(neighbors):
        if start not in left:
            continue
        component, border = {start}, [start]
        while border:
            for w in neighbors[border.pop()] - component:
                component.add(w)
                border.append(w)
        left -= component
        found.append(component)
    return found


# Algorithm 1


def rank_by_scores(scores: Sequence[float] | FloatArray, seed: int) -> list[int]:
    """Return each node's position by (score, a permutation seeded with ``seed``)."""
    tie_break = np.random.default_rng(seed).permutation(len(scores))
    by_strength = sorted(range(len(scores)), key=lambda v: (scores[v], tie_break[v]))
    rank = [0] * len(scores)
    for position, v in enumerate(by_strength):
        rank[v] = position
    return rank


def round_to_ten_digits(scores: Sequence[float] | FloatArray) -> list[float]:
    """Return scores as their ten-digit decimal prints them, those below 1e-12 of the largest as 0."""
    largest = max((abs(float(score)) for score in scores), default=0.0)
    return [0.0 if abs(score) < 1e-12 * largest else float(f"{score:.9e}") for score in map(float, scores)]


def split_budget(sizes: Sequence[int], budget: int) -> list[int]:
    """Return the largest-remainder shares of a budget; equal remainders go to the smaller id."""
    total = sum(sizes)
    exact = [Fraction(size * budget, total) if total else Fraction(0) for size in sizes]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: budget - sum(shares)]:
        shares[i] += 1
    return shares


def stratified_positions(size: int, budget: int) -> list[int]:
    """Return positions ((2j + 1)·n) // (2Ψ), j = 0 … Ψ - 1."""
    return [((2 * j + 1) * size) // (2 * budget) for j in range(budget)]


@dataclass(frozen=True)
class Walk:
    """What Algorithm 1 leaves: survivors, order of removal, and the survivor each node is part of (-1: dropped)."""

    kept: list[int]
    removal_order: list[int]
    assignment: list[int]
    edges: set[Pair]
    budgets: list[int]


def choose_removed(
    rank: Sequence[int], clusters: Sequence[int], budget: int, protected: set[int], selection: str
) -> tuple[set[int], list[int]]:
    """Return the removal set of ``selection`` "lowest" or "stratified", and the nodes kept per cluster."""
    by_cluster: list[list[int]] = [[] for _ in range(max(clusters) + 1)]
    for v in sorted(range(len(rank)), key=lambda v: rank[v]):
        if v not in protected:
            by_cluster[clusters[v]].append(v)
    budgets = split_budget([len(nodes) for nodes in by_cluster], budget - len(protected))
    removed: set[int] = set()
    for nodes, keep in zip(by_cluster, budgets, strict=True):
        if selection == "lowest":
            removed.update(nodes[: len(nodes) - keep])
        else:
            kept_positions = set(stratified_positions(len(nodes), keep))
            removed.update(v for position, v in enumerate(nodes) if position not in kept_positions)
    kept_of = [keep + sum(clusters[v] == i for v in protected) for i, keep in enumerate(budgets)]
    return removed, kept_of


def removal_order(removed: set[int], rank: Sequence[int], clusters: Sequence[int], order: str) -> list[int]:
    """Return the removed nodes cluster by cluster, or all by ascending rank."""
    if order == "global":
        return sorted(removed, key=lambda v: rank[v])
    return sorted(removed, key=lambda v: (clusters[v], rank[v]))


def contract(neighbors: Neighbors, order: Sequence[int], rank: Sequence[int]) -> tuple[list[int], dict[int, set[int]]]:
    """Merge the nodes of ``order`` one after the other, moving every edge (Alg. 1, lines 8 to 12).

    Returns:
        The node each node is part of at the end (-1: dropped), and the graph that is left.
    """
    graph = {v: set(around) for v, around in neighbors.items()}
    members = {v: {v} for v in graph}
    for v in order:
        around = graph.pop(v)
        merged = members.pop(v)
        for w in around:
            graph[w].discard(v)
        if not around:
            continue
        hub = max(around, key=lambda w: rank[w])
        for w in around - {hub}:
            graph[w].add(hub)
            graph[hub].add(w)
        members[hub] |= merged
    stands_for = [-1] * len(neighbors)
    for hub, merged in members.items():
        for v in merged:
            stands_for[v] = hub
    return stands_for, graph


def walk_algorithm_1(
    neighbors: Neighbors,
    rank: Sequence[int],
    clusters: Sequence[int],
    budget: int,
    *,
    selection: str = "lowest",
    order: str = "cluster",
    protected: set[int] = frozenset(),  # type: ignore[assignment]
    removed: set[int] | None = None,
) -> Walk:
    """Return what Algorithm 1 makes of a graph, given ranks and clusters; ``removed`` overrides the removal set."""
    chosen, budgets = choose_removed(rank, clusters, budget, protected, selection)
    order_of_removal = removal_order(chosen if removed is None else removed, rank, clusters, order)
    stands_for, graph = contract(neighbors, order_of_removal, rank)
    kept = sorted(graph)
    index = {v: i for i, v in enumerate(kept)} | {-1: -1}
    edges = {(index[u], index[v]) for u in graph for v in graph[u] if u < v}
    return Walk(kept, order_of_removal, [index[v] for v in stands_for], edges, budgets)


def induced_edges(neighbors: Neighbors, kept: Sequence[int]) -> set[Pair]:
    """Return the edges among ``kept``, renumbered: what ``merge="drop"`` leaves."""
    index = {v: i for i, v in enumerate(kept)}
    return {(index[u], index[v]) for u in kept for v in neighbors[u] if u < v and v in index}


def merged_weights(weights: Mapping[Pair, float], assignment: Sequence[int]) -> dict[Pair, float]:
    """Return the total weight of the edges between each two groups; group -1 and inner edges are left out."""
    totals: dict[Pair, float] = defaultdict(float)
    for (u, v), weight in weights.items():
        a, b = sorted((assignment[u], assignment[v]))
        if a >= 0 and a != b:
            totals[a, b] += weight
    return dict(totals)


# Labels, M and attributes


def label_vectors(y: NDArray[Any], visible: Sequence[bool], num_classes: int | None = None) -> FloatArray:
    """Return one-hot rows of class labels, zero where hidden, negative or NaN."""
    seen = [v for v in range(len(y)) if visible[v] and y[v] >= 0]
    width = num_classes if num_classes is not None else max((int(y[v]) for v in seen), default=0) + 1
    matrix = np.zeros((len(y), width))
    for v in seen:
        matrix[v, int(y[v])] = 1
    return matrix


def scale_columns(values: FloatArray, rows: Sequence[int]) -> FloatArray:
    """Return every column scaled so that ``rows`` span [0, 1]; constant columns become 0."""
    scaled = np.zeros(values.shape)
    for column in range(values.shape[1]):
        low, high = values[rows, column].min(), values[rows, column].max()
        if high > low:
            scaled[:, column] = (values[:, column] - low) / (high - low)
    return scaled


def feature_label_matrix(
    x: FloatArray | None, vectors: FloatArray | None, labelled: Sequence[bool], gamma: float
) -> FloatArray:
    """Return M = [√α X, √β Y] in float64 (Eq. 6 to 8)."""
    parts = []
    widest = max(part.shape[1] for part in (x, vectors) if part is not None)
    is_both = x is not None and vectors is not None
    if x is not None:
        alpha = gamma * widest / x.shape[1] if is_both else 1.0
        parts.append(np.sqrt(alpha) * scale_columns(x, range(len(x))))
    if vectors is not None:
        beta = (1 - gamma) * widest / vectors.shape[1] if is_both else 1.0
        rows = [v for v in range(len(vectors)) if labelled[v]]
        scaled = np.sqrt(beta) * scale_columns(vectors, rows)
        scaled[[v for v in range(len(vectors)) if not labelled[v]]] = 0
        parts.append(scaled)
    return np.concatenate(parts, axis=1)


def squared_distances(matrix: FloatArray) -> FloatArray:
    """Return all pairwise squared Euclidean distances between rows (Eq. 5)."""
    return np.array([[np.square(a - b).sum() for b in matrix] for a in matrix])


def group_mean(values: NDArray[Any], assignment: Sequence[int], num_groups: int) -> FloatArray:
    """Return the mean row of each group."""
    groups = [[v for v, group in enumerate(assignment) if group == wanted] for wanted in range(num_groups)]
    return np.array([values[group].astype(np.float64).mean(axis=0) for group in groups])


def group_class(y: NDArray[Any], visible: Sequence[bool], assignment: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the majority class of each group: ties to the survivor's own, then to the smallest.

    A group without a visible label keeps the survivor's own, unless that one is hidden and a member trains:
    a hidden label must never be trained on.
    """
    result = []
    for group, survivor in enumerate(kept):
        votes: dict[int, int] = defaultdict(int)
        for v, member_of in enumerate(assignment):
            if member_of == group and visible[v] and y[v] >= 0:
                votes[int(y[v])] += 1
        if not votes:
            trains = any(visible[v] for v, member_of in enumerate(assignment) if member_of == group)
            result.append(-1 if trains and not visible[survivor] else int(y[survivor]))
            continue
        most = max(votes.values())
        tied = sorted(label for label, count in votes.items() if count == most)
        own = int(y[survivor]) if visible[survivor] else -1
        result.append(own if own in tied else tied[0])
    return result


# Centralities, by NetworkX


class _GivenSources(random.Random):
    """A random generator whose every sample is the one wanted, so that NetworkX uses our sources."""

    def __init__(self, sources: Sequence[int]) -> None:
        super().__init__()
        self._sources = list(sources)

    def sample(self, population: Any, k: int, **_: Any) -> list[Any]:
        """Return the wanted sources."""
        assert k == len(self._sources)
        return self._sources


def networkx_graph(edges: Iterable[Pair], num_nodes: int) -> Any:
    """Return a ``networkx.Graph`` with all nodes, isolated ones included."""
    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(edges)
    return graph


def networkx_centrality(graph: Any, name: str, sources: Sequence[int] | None = None) -> FloatArray:
    """Return NetworkX's own values of a centrality, at its default tolerance and stop rule."""
    if name == "degree":
        scores = nx.degree_centrality(graph)
    elif name == "pagerank":
        scores = nx.pagerank(graph, alpha=0.85, tol=1e-11 / len(graph), max_iter=1000)
    elif name == "eigenvector":
        scores = nx.eigenvector_centrality(graph, max_iter=10_000, tol=1e-6)
    elif name == "closeness":
        scores = {
            v: nx.closeness_centrality(graph, v, wf_improved=True) for v in (graph if sources is None else sources)
        }
    elif sources is None:
        scores = nx.betweenness_centrality(graph)
    else:
        scores = nx.betweenness_centrality(graph, k=len(sources), seed=_GivenSources(sources))
    return np.array([scores[v] for v in sorted(scores)])


# The straightforward implementation that the benchmark is measured against


def sklearn_matrix(x: NDArray[Any], vectors: NDArray[Any], gamma: float) -> FloatArray:
    """Return M of dense features and label vectors that are all visible, scaled by scikit-learn."""
    from sklearn.preprocessing import MinMaxScaler

    widest = max(x.shape[1], vectors.shape[1])
    features = np.sqrt(gamma * widest / x.shape[1]) * MinMaxScaler().fit_transform(x)
    labels = np.sqrt((1 - gamma) * widest / vectors.shape[1]) * MinMaxScaler().fit_transform(vectors)
    return np.hstack([features, labels])


def sklearn_clusters(matrix: FloatArray, num_clusters: int, seed: int) -> IdArray:
    """Return scikit-learn's K-means clusters with its own defaults: k-means++ on all rows, one start."""
    from sklearn.cluster import KMeans

    model = KMeans(n_clusters=num_clusters, n_init=1, random_state=seed)
    return np.asarray(model.fit_predict(matrix), np.int64)


def networkx_contract(graph: Any, order: Sequence[int], rank: Sequence[int]) -> list[int]:
    """Contract ``graph`` in place with NetworkX's own function; return the node each node is part of (-1: dropped)."""
    stands_for = list(range(len(graph)))
    for v in order:
        hub = max(graph[v], key=lambda w: rank[w], default=-1)
        stands_for[v] = hub
        if hub == -1:
            graph.remove_node(v)
        else:
            nx.contracted_nodes(graph, hub, v, self_loops=False, copy=False)
    for v in reversed(order):
        if stands_for[v] != -1:
            stands_for[v] = stands_for[stands_for[v]]
    return stands_for


def same_partition(first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether two labelings put the same pairs of items together."""
    return all((first[i] == first[j]) == (second[i] == second[j]) for i, j in combinations(range(len(first)), 2))


# Groups of alike nodes


def set_partitions(items: Sequence[int], num_parts: int) -> Iterable[list[list[int]]]:
    """Yield every way to cut some items into so many parts, none of them empty."""
    if len(items) < num_parts or num_parts < 1:
        return
    if len(items) == num_parts:
        yield [[item] for item in items]
        return
    first, rest = items[0], items[1:]
    for parts in set_partitions(rest, num_parts - 1):
        yield [[first], *parts]
    for parts in set_partitions(rest, num_parts):
        for i in range(len(parts)):
            yield [*parts[:i], [first, *parts[i]], *parts[i + 1 :]]


def inertia(points: FloatArray, parts: Iterable[Sequence[int]]) -> float:
    """Return the sum of the squared distances of all points to the mean of their part."""
    return sum(float(np.square(points[list(part)] - points[list(part)].mean(axis=0)).sum()) for part in parts)


def best_partition(points: FloatArray, num_parts: int) -> list[list[int]]:
    """Return the parts of least inertia, found by looking at every partition."""
    return min(set_partitions(range(len(points)), num_parts), key=lambda parts: inertia(points, parts))


def medoid(points: FloatArray, members: Sequence[int]) -> int:
    """Return the member nearest to the mean of its group, the smallest of equally near ones."""
    mean = points[list(members)].mean(axis=0)
    return min(sorted(members), key=lambda i: (round(float(np.square(points[i] - mean).sum()), 9), i))
