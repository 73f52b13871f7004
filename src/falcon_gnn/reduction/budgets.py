"""How many nodes to keep, shared among clusters, and which nodes that means (Alg. 1, lines 5 to 9)."""

from typing import Literal, get_args

import numpy as np

from falcon_gnn.errors import BudgetError
from falcon_gnn.reduction.grouping import BoolArray, IdArray, sort_by_group

Selection = Literal["lowest", "stratified", "random", "herding"]
SELECTIONS: tuple[str, ...] = get_args(Selection)


def parse_budget(text: str) -> int | float:
    """Return a node budget as people write it: with a decimal point a share, else a number of nodes.

    Raises:
        BudgetError: If it is neither.

    Example:
        >>> parse_budget("500"), parse_budget("0.3")
        (500, 0.3)
    """
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        msg = f"node_budget must be a whole number of nodes or a share with a decimal point (0.34), got {text!r}."
        raise BudgetError(msg) from None


def resolve_budget(node_budget: int | float, num_nodes: int, num_protected: int = 0) -> int:
    """Return Ψ as a number of nodes.

    Args:
        node_budget: An int in ``[1, num_nodes]``, or a float in ``(0, 1]``: a share of ``num_nodes``, rounded half up.
        num_nodes: N, the nodes in scope.
        num_protected: Those among them that are never removed.

    Raises:
        BudgetError: If the budget lies outside its range, a share rounds to 0, or more nodes are protected.

    Example:
        >>> resolve_budget(0.34, 1797), resolve_budget(500, 1797)
        (611, 500)
    """
    is_share = isinstance(node_budget, float | np.floating)
    is_count = isinstance(node_budget, int | np.integer) and not isinstance(node_budget, bool | np.bool_)
    count = 0
    if is_share and 0 < node_budget <= 1:
        count = int(np.floor(node_budget * num_nodes + 0.5))
    elif is_count and 1 <= node_budget <= num_nodes:
        count = int(node_budget)
    if count < 1:
        msg = (
            f"node_budget must be an int in [1, {num_nodes}] (nodes to keep of the {num_nodes} in scope) or a float in "
            f"(0, 1] (their share, at least one node), got {node_budget!r}."
        )
        raise BudgetError(msg)
    if count < num_protected:
        msg = (
            f"node_budget must be at least the {num_protected} protected nodes in scope, got {count}. Raise the budget "
            "or protect fewer nodes."
        )
        raise BudgetError(msg)
    return count


def split_budget(cluster_sizes: IdArray, node_budget: int) -> IdArray:
    """Share the node budget Ψ among clusters in proportion to their size (Alg. 1, line 5).

    Largest remainder; equal remainders go to the smaller cluster id.

    Args:
        cluster_sizes: Collapsible nodes per cluster, shape ``(num_clusters,)``.
        node_budget: Ψ, nodes to keep, in ``[0, cluster_sizes.sum()]``.

    Returns:
        Ψ_i, nodes to keep per cluster, shape ``(num_clusters,)``; sums to ``node_budget``; some may be 0.

    Raises:
        BudgetError: If ``node_budget`` lies outside its range.

    Example:
        >>> split_budget(np.array([5, 3, 2]), 5)
        array([3, 1, 1])
    """
    total = int(cluster_sizes.sum())
    if not 0 <= node_budget <= total:
        msg = f"node_budget must lie in [0, {total}] (the collapsible nodes), got {node_budget}."
        raise BudgetError(msg)
    if total == 0:
        return np.zeros_like(cluster_sizes)
    shares = cluster_sizes * node_budget
    budgets = shares // total
    remainders = shares % total
    by_remainder = np.argsort(-remainders, kind="stable")
    budgets[by_remainder[: node_budget - int(budgets.sum())]] += 1
    return budgets


def select_kept(
    rank: IdArray, clusters: IdArray, budgets: IdArray, candidates: BoolArray, selection: str, seed: int
) -> BoolArray:
    """Return which candidates survive.

    ``lowest`` (the paper) keeps the Ψ_i strongest of each cluster; ``stratified`` keeps, by ascending rank, positions
    ((2j + 1)·n_i) // (2Ψ_i); ``random`` keeps a seeded sample.

    Args:
        rank: Position of each node in the total order, shape ``(N,)``.
        clusters: Cluster of each node, shape ``(N,)``.
        budgets: Ψ_i, candidates to keep per cluster, shape ``(num_clusters,)``.
        candidates: Nodes that may be removed, shape ``(N,)``.
        selection: ``lowest``, ``stratified`` or ``random``.
        seed: Draws the sample of ``random``.

    Returns:
        Bool, shape ``(N,)``; False for all other nodes.
    """
    key = np.random.default_rng([seed, 4]).permutation(len(rank)) if selection == "random" else rank
    ordered = sort_by_group(candidates, clusters, key)
    sizes = np.bincount(clusters[ordered], minlength=len(budgets))
    first = np.cumsum(sizes) - sizes
    cluster = clusters[ordered]
    position = np.arange(len(ordered)) - first[cluster]
    size, budget = sizes[cluster], budgets[cluster]
    keep = position >= size - budget
    if selection == "stratified":
        # Position p is taken when some j has ((2j + 1) n) // (2Ψ) = p: the count of such positions below p + 1 and
        # below p differ. That count is ceil((2Ψ p - n) / (2n)), clipped to [0, Ψ].
        keep = _count_strata(position + 1, size, budget) > _count_strata(position, size, budget)
    kept = np.zeros(len(rank), np.bool_)
    kept[ordered[keep]] = True
    return kept


def _count_strata(position: IdArray, size: IdArray, budget: IdArray) -> IdArray:
    """Return how many j have ((2j + 1)·size) // (2·budget) < position, that is (2j + 1)·size < 2·budget·position."""
    return np.clip(-((size - 2 * budget * position) // (2 * size)), 0, budget)
