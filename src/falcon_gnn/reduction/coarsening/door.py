"""The coarsening baseline (Huang et al. 2021): the public door to graph reduction by local variation or matching."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import BudgetError
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import require_graph
from falcon_gnn.reduction.attributes import Groups, drop_empty_masks, group_arrays
from falcon_gnn.reduction.budgets import resolve_budget
from falcon_gnn.reduction.centrality import degree_centrality, rank_nodes, round_scores
from falcon_gnn.reduction.clock import OnStage, StageClock
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.coarsening.contraction_levels import Coarsening, coarsen_components, component_budgets
from falcon_gnn.reduction.coarsening.spectrum import SpectralError, sort_components
from falcon_gnn.reduction.config import with_options
from falcon_gnn.reduction.contraction import merge_edges
from falcon_gnn.reduction.report import make_report
from falcon_gnn.reduction.result import CollapseResult, spread_to_input
from falcon_gnn.reduction.scope import ScopedGraph, encode_scope, resolve_scope

IdArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class CoarsenResult(CollapseResult):
    """A coarsened graph and its map, in the terms of a collapse.

    ``kept`` holds the member of highest degree of each group, ``removal_order`` the others by ascending degree,
    ``centrality`` the degree centrality, ``clusters`` the connected components (of edges with positive weight) and
    ``cluster_budgets`` the nodes kept of each. ``config`` states how attributes and edges were pooled.

    Attributes:
        options: The options used; also ``report.config``.
        num_requested: Nodes asked for, which are as many as are kept.
        num_levels: Levels of contraction.
        spectral_error: Loukas' restricted spectral error; None for ``heavy_edge``, which computes no eigenvectors
            (:func:`falcon_gnn.reduction.coarsening.spectrum.restricted_spectral_error` does).
    """

    options: CoarsenConfig
    num_requested: int
    num_levels: int
    spectral_error: SpectralError | None


def coarsen(
    graph: Graph,
    config: CoarsenConfig | None = None,
    *,
    on_stage: OnStage | None = None,
    **options: Any,
) -> CoarsenResult:
    """Return the graph coarsened to a node budget: groups of nodes become one node each.

    A group's features are the mean of its members', its class the majority of their visible labels (ties to the kept
    member's own, then the smallest), other labels their mean; it trains if any member does. Edge weights between
    groups add up (``Pᵀ A P`` without its diagonal). Each connected component keeps one node and a share of the rest
    of the budget in proportion to its size; nodes of different components are never joined.

    Args:
        graph: N_all nodes.
        config: The options; or give them as keywords, which override those of ``config``.
        on_stage: Called with the name of each stage as it begins.
        options: Fields of :class:`CoarsenConfig`.

    Returns:
        The reduced graph, the map both ways, the report and the spectral error.

    Raises:
        GraphError: If ``graph`` is no ``Graph``, or its labels do not fit the task.
        OptionError: If an option is unusable; the message names it.
        BudgetError: If the budget is out of range, or below the number of connected components.

    Example:
        >>> import numpy as np
        >>> path = Graph.from_edges(np.array([[0, 1, 2, 3], [1, 2, 3, 4]]), num_nodes=5)
        >>> result = coarsen(path, node_budget=2, method="heavy_edge")
        >>> result.graph.num_nodes, result.graph.edge_weight.tolist()
        (2, [1.0, 1.0])
    """
    require_graph(graph, Graph)
    config = with_options(CoarsenConfig, config, options, "coarsen")
    pooling = config.pooling
    clock = StageClock(on_stage)
    with clock.stage("scope"):
        scope = resolve_scope(graph, config.scope)
        budget = resolve_budget(config.node_budget, len(scope.ids))
        encoding = encode_scope(graph, scope, pooling)
        sorted_graph, order = sort_components(scope.indptr, scope.indices, scope.edge_weight)
        _check_reachable(budget, len(sorted_graph.sizes))
        budgets = component_budgets(sorted_graph.sizes, budget)
    with clock.stage("contraction"):
        coarsening = coarsen_components(sorted_graph, budgets, config.method, config.seed)
    with clock.stage("attributes"):
        phi = degree_centrality(scope.indptr)
        rank = rank_nodes(round_scores(phi), config.seed)
        groups = _name_groups(scope, coarsening, order, rank)
        num_groups = len(groups.kept)
        merged = merge_edges(
            scope.indptr, scope.indices, scope.edge_weight, groups.assignment, num_groups, str(pooling.edge_weights)
        )
        reduced = Graph(
            merged.indptr, merged.indices, merged.edge_weight, **drop_empty_masks(group_arrays(graph, groups, encoding))
        )
    with clock.stage("report"):
        component = np.empty(len(order), np.int64)
        component[order] = sorted_graph.component
        report = make_report(graph, scope, groups, reduced, encoding, component, rank, asdict(config), clock)
    removed = np.setdiff1d(np.arange(len(rank)), groups.kept, assume_unique=True)
    return CoarsenResult(
        graph=reduced,
        assignment=spread_to_input(groups.assignment, scope.ids, graph.num_nodes, -1),
        kept=scope.ids[groups.kept],
        removal_order=scope.ids[removed[np.argsort(rank[removed])]],
        rank=spread_to_input(rank, scope.ids, graph.num_nodes, -1),
        clusters=spread_to_input(component, scope.ids, graph.num_nodes, -1),
        centrality=spread_to_input(phi, scope.ids, graph.num_nodes, np.nan),
        cluster_budgets=budgets,
        report=report,
        config=pooling,
        options=config,
        num_requested=budget,
        num_levels=coarsening.num_levels,
        spectral_error=coarsening.error,
    )


def _check_reachable(budget: int, num_components: int) -> None:
    if budget < num_components:
        msg = (
            f"node_budget must be at least {num_components} here, got {budget}: the nodes in scope form as many "
            "connected components, which coarsening never joins. Raise the budget, or use collapse()."
        )
        raise BudgetError(msg)


def _name_groups(scope: ScopedGraph, coarsening: Coarsening, order: IdArray, rank: IdArray) -> Groups:
    """Return the groups, each named by its member of highest rank, in ascending order of these."""
    unordered = np.empty(len(order), np.int64)
    unordered[order] = coarsening.assignment
    by_rank = np.argsort(rank)
    strongest = np.empty(int(unordered.max()) + 1, np.int64)
    strongest[unordered[by_rank]] = by_rank
    kept = np.sort(strongest)
    return Groups(scope.ids, np.searchsorted(kept, strongest)[unordered], kept)
