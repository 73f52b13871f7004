"""FALCON (Algorithm 1): the public door to the collapse."""

import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.errors import FalconWarning, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import require_graph
from falcon_gnn.labels import LabelEncoding
from falcon_gnn.progress import part_of_work, tell_share
from falcon_gnn.reduction.alike import form_groups, make_teacher, node_kinds, node_space
from falcon_gnn.reduction.attributes import Groups, drop_empty_masks, group_arrays, survivor_arrays, taught_arrays
from falcon_gnn.reduction.budgets import resolve_budget, select_kept, split_budget
from falcon_gnn.reduction.centrality import Sampling, compute_centrality, rank_nodes, round_scores
from falcon_gnn.reduction.clock import OnStage, StageClock
from falcon_gnn.reduction.clustering import cluster_nodes
from falcon_gnn.reduction.config import CollapseConfig, Merge, with_options
from falcon_gnn.reduction.contraction import MergedEdges, merge_edges, merge_into_neighbors, order_removals
from falcon_gnn.reduction.herding import select_by_herding
from falcon_gnn.reduction.hop_space import hop_space, node_facts
from falcon_gnn.reduction.matrix import build_matrix
from falcon_gnn.reduction.partition import Points
from falcon_gnn.reduction.report import make_report
from falcon_gnn.reduction.result import CollapseResult, spread_to_input
from falcon_gnn.reduction.ridge import RidgeLabels
from falcon_gnn.reduction.scope import (
    ScopedGraph,
    choose_scope,
    encode_scope,
    given_clusters,
    given_scores,
    protected_nodes,
    resolve_scope,
)
from falcon_gnn.reduction.soft_labels import SoftLabels
from falcon_gnn.reduction.teacher import Teacher
from falcon_gnn.resources import require_memory

IdArray = NDArray[np.int64]

_NODE_BYTES = 64
"""What every collapse holds per node beside the graph: centrality, rank, cluster, order, group, and one to sort by."""


_SCORING_SHARE = 0.8
"""Of the time of the centrality stage, at 100 million edges by PageRank; the rest is the ranking."""
_HOPS_SHARE, _FACTS_SHARE = 0.25, 0.1
"""Of the time of soft labels, for 200,000 nodes, 90 features and 10 classes: hops, where they have to be made, and what
else the regression asks; the rest is the regression."""
_OWN_SHARE = 0.6
"""Of the time of the attributes there; the rest is the mean of soft labels."""
_MERGING_SHARE = 0.4
"""Of the time of the contraction there: who merges into whom; the rest is the edges that are left."""


def collapse(
    graph: Graph,
    config: CollapseConfig | None = None,
    *,
    centrality: ArrayLike | str | None = None,
    clusters: ArrayLike | None = None,
    protect: ArrayLike | None = None,
    on_stage: OnStage | None = None,
    **options: Any,
) -> CollapseResult:
    """Return the graph collapsed to a node budget (Algorithm 1), with its map and report.

    Args:
        graph: N_all nodes.
        config: The options; or give them as keywords, which override those of ``config``.
        centrality: Scores of the caller's own, shape ``(N_all,)``, taken as given; or a name, as in the config.
        clusters: Clusters of the caller's own, whole numbers >= 0, shape ``(N_all,)``.
        protect: Nodes that are never removed: bool mask ``(N_all,)`` or ids.
        on_stage: Called with the name of each stage as it begins, and while a stage lasts with its name, the share that
            is done and the time left.
        options: Fields of :class:`CollapseConfig`.

    Returns:
        The reduced graph, the map both ways, and the report.

    Raises:
        GraphError: If ``graph`` is no ``Graph``, or its labels do not fit the task.
        OptionError: If an option or array is unusable; the message names it.
        BudgetError: If the budget is out of range or below the number of protected nodes.
        ConvergenceError: If PageRank or eigenvector centrality does not converge.

    Example:
        >>> import numpy as np
        >>> path = Graph.from_edges(np.array([[0, 1, 2, 3], [1, 2, 3, 4]]), num_nodes=5)
        >>> result = collapse(path, node_budget=2, centrality=[1.0, 5.0, 2.0, 4.0, 3.0])
        >>> result.kept.tolist(), result.assignment.tolist(), result.graph.num_edges
        ([1, 3], [0, 0, 0, 1, 1], 1)
    """
    require_graph(graph, Graph)
    config, scores = _resolve_options(config, centrality, options)
    _check_scores(config, scores)
    clock = StageClock(on_stage)
    with clock.stage("scope"):
        scope = resolve_scope(graph, config.scope)
        # The contraction works on a copy of the removed nodes' rows: at most all of them.
        copied_bytes = 0 if config.merge == "drop" else scope.indices.nbytes
        require_memory(_NODE_BYTES * len(scope.ids) + copied_bytes, f"rank, cluster and merge {len(scope.ids):,} nodes")
        protected = protected_nodes(protect, graph.num_nodes)[scope.ids]
        budget = resolve_budget(config.node_budget, len(scope.ids), int(protected.sum()))
        own_clusters = None if clusters is None else given_clusters(clusters, graph.num_nodes, scope.ids)
        own_scores = None if scores is None else given_scores(scores, graph.num_nodes, scope.ids)
        encoding = encode_scope(graph, scope, config)
        if graph.is_weighted and config.edge_weights == "none":
            msg = (
                "edge_weights='none' leaves the edge and self-weights of the input out. Use edge_weights='sum' to keep "
                "them."
            )
            warnings.warn(msg, FalconWarning, stacklevel=3)
    if config.groups == "alike":
        choice = _choose_alike(graph, scope, config, encoding, own_clusters, protected, budget, clock)
    else:
        choice = _choose_neighbors(graph, scope, config, encoding, (own_scores, own_clusters), protected, budget, clock)
    groups = choice.groups
    with clock.stage("contraction", (_MERGING_SHARE if config.groups == "neighbors" else 0.0, 1.0)):
        merged = merge_edges(
            scope.indptr, scope.indices, scope.edge_weight, groups.assignment, budget, str(config.edge_weights)
        )
    with clock.stage("attributes"):
        with part_of_work(0.0, _OWN_SHARE if choice.soft_labels is not None else 1.0):
            arrays = (group_arrays if config.merge == "mean" else survivor_arrays)(graph, groups, encoding)
        if config.groups == "alike" and config.merge != "drop":
            arrays |= _group_weights(graph, scope, merged, groups)
        elif graph.is_weighted and merged.edge_weight is None:
            arrays["self_weight"] = None
        if choice.teacher is not None:
            weight = None if graph.node_weight is None else graph.node_weight[scope.ids]
            arrays |= taught_arrays(choice.teacher, groups, config.merge == "mean", weight)
        if choice.soft_labels is not None:
            is_mean = config.merge == "mean"
            with part_of_work(_OWN_SHARE, 1.0):
                arrays["label_distribution"] = choice.soft_labels.of_groups(graph, groups, is_mean=is_mean)
        reduced = Graph(merged.indptr, merged.indices, merged.edge_weight, **drop_empty_masks(arrays))
    with clock.stage("report"):
        shown = _shown_options(config, own_scores is not None, own_clusters)
        report = make_report(graph, scope, groups, reduced, encoding, choice.cluster, choice.rank, shown, clock)
        if choice.teacher is not None:
            report = replace(report, teacher_accuracy=choice.teacher.accuracy)
        if choice.soft_labels is not None:
            report = replace(report, teacher_accuracy=choice.soft_labels.ridge.accuracy)
    return CollapseResult(
        graph=reduced,
        assignment=spread_to_input(groups.assignment, scope.ids, graph.num_nodes, -1),
        kept=scope.ids[groups.kept],
        removal_order=scope.ids[choice.order],
        rank=spread_to_input(choice.rank, scope.ids, graph.num_nodes, -1),
        clusters=spread_to_input(choice.cluster, scope.ids, graph.num_nodes, -1),
        centrality=spread_to_input(choice.phi, scope.ids, graph.num_nodes, np.nan),
        cluster_budgets=choice.cluster_budgets,
        report=report,
        config=config,
        teacher=None
        if choice.teacher is None
        else spread_to_input(choice.teacher.probabilities, scope.ids, graph.num_nodes, np.nan),
    )


@dataclass(frozen=True)
class _Choice:
    """Who survives and who belongs to whom, with what the choice came from; arrays over the nodes in scope."""

    groups: Groups
    order: IdArray
    cluster: IdArray
    cluster_budgets: IdArray
    phi: NDArray[np.float64]
    rank: IdArray
    teacher: Teacher | None = None
    soft_labels: SoftLabels | None = None


def _choose_neighbors(
    graph: Graph, scope: ScopedGraph, config: CollapseConfig, encoding: LabelEncoding | None,
    own: tuple[NDArray[Any] | None, IdArray | None], protected: NDArray[np.bool_], budget: int, clock: StageClock,
) -> _Choice:  # fmt: skip
    """Return the choice of Algorithm 1."""
    own_scores, own_clusters = own
    with clock.stage("centrality"):
        phi, rank = _rank(scope, config, own_scores)
    is_herding, points = config.selection == "herding", np.empty((0, 0), np.float32)
    teacher = _fit_teacher(graph, scope, config, encoding, clock)
    if is_herding:
        with clock.stage("hop features"):
            points = node_space(graph, scope, config, encoding) if teacher is None else teacher.outputs
    with clock.stage("clustering"):
        cluster = own_clusters
        if cluster is None and teacher is not None:
            cluster = teacher.probabilities.argmax(axis=1)
        elif cluster is None and is_herding:
            cluster = node_kinds(points, encoding, config, None)
        elif cluster is None:
            matrix = build_matrix(graph.x, encoding, config.gamma, None if scope.is_whole else scope.ids)
            cluster = cluster_nodes(matrix, len(scope.ids), config.num_clusters, config.seed)
    with clock.stage("selection"):
        sizes = np.bincount(cluster[~protected], minlength=int(cluster.max()) + 1)
        budgets = split_budget(sizes, budget - int(protected.sum()))
        if is_herding:
            survives = protected | select_by_herding(points, cluster, budgets, ~protected)
        else:
            survives = protected | select_kept(rank, cluster, budgets, ~protected, str(config.selection), config.seed)
        tell_share(0.5)
        order = order_removals(~survives, rank, cluster, str(config.order))
        tell_share(0.9)
    with clock.stage("contraction", (0.0, _MERGING_SHARE)):
        groups = _contract(scope, order, rank, np.flatnonzero(survives), config.merge)
    budgets = budgets + np.bincount(cluster[protected], minlength=len(budgets))
    soft_labels = _fit_soft_labels(graph, scope, config, encoding, clock, points if is_herding else None)
    return _Choice(groups, order, cluster, budgets, phi, rank, teacher, soft_labels)


def _fit_teacher(
    graph: Graph, scope: ScopedGraph, config: CollapseConfig, encoding: LabelEncoding | None, clock: StageClock
) -> Teacher | None:
    """Return the teacher, if there is to be one."""
    if config.cluster_on != "teacher":
        return None
    with clock.stage("teacher"):
        return make_teacher(graph, scope, config, encoding)


def _fit_soft_labels(
    graph: Graph, scope: ScopedGraph, config: CollapseConfig, encoding: LabelEncoding | None, clock: StageClock,
    points: Points | None,
) -> SoftLabels | None:  # fmt: skip
    """Return the soft labels, if there are to be any; ``points`` are the hop features, where there are some already."""
    if config.soft_labels == 0 or graph.x is None or encoding is None:
        return None
    if encoding.task != "classes" or not encoding.labelled.any():
        return None
    with clock.stage("soft labels"):
        first = 0.0
        if points is None:
            first = _HOPS_SHARE
            with part_of_work(0.0, first):
                points = hop_space(graph.x, scope, config.num_hops, config.seed)
        with part_of_work(first, first + _FACTS_SHARE):
            facts = node_facts(graph.x, scope, points, encoding, config.seed)
        with part_of_work(first + _FACTS_SHARE, 1.0):
            return SoftLabels(config.soft_labels, encoding, RidgeLabels(facts, encoding))


def _choose_alike(
    graph: Graph, scope: ScopedGraph, config: CollapseConfig, encoding: LabelEncoding | None,
    own_clusters: IdArray | None, protected: NDArray[np.bool_], budget: int, clock: StageClock,
) -> _Choice:  # fmt: skip
    """Return groups of alike nodes; nothing is ranked."""
    num_nodes = len(scope.ids)
    teacher = _fit_teacher(graph, scope, config, encoding, clock)
    with clock.stage("hop features"):
        points = node_space(graph, scope, config, encoding) if teacher is None else teacher.outputs
    with clock.stage("clustering"):
        if teacher is None:
            kind = node_kinds(points, encoding, config, own_clusters)
        else:
            kind = teacher.probabilities.argmax(axis=1)
    with clock.stage("grouping"):
        found = form_groups(
            points, kind, own_clusters, protected, budget,
            is_classes=encoding is not None and encoding.task == "classes", seed=config.seed,
        )  # fmt: skip
    soft_labels = _fit_soft_labels(graph, scope, config, encoding, clock, points)
    removed = np.ones(num_nodes, np.bool_)
    removed[found.kept] = False
    assignment = found.assignment
    if config.merge == "drop":
        assignment = np.full(num_nodes, -1, np.int64)
        assignment[found.kept] = np.arange(budget)
    return _Choice(
        Groups(scope.ids, assignment, found.kept), np.flatnonzero(removed), found.clusters, found.cluster_budgets,
        np.full(num_nodes, np.nan), np.full(num_nodes, -1, np.int64), teacher, soft_labels,
    )  # fmt: skip


def _group_weights(graph: Graph, scope: ScopedGraph, merged: MergedEdges, groups: Groups) -> dict[str, Any]:
    """Return how many nodes each group stands for, and with weighted edges how heavy its self-loop is."""
    own = None if graph.node_weight is None else graph.node_weight[scope.ids].astype(np.float64)
    is_weighted = merged.edge_weight is not None
    return {
        "node_weight": np.bincount(groups.assignment, own, len(groups.kept)).astype(np.float64),
        "self_weight": merged.self_weights(scope.self_weight, groups.assignment) if is_weighted else None,
    }


def _check_scores(config: CollapseConfig, scores: ArrayLike | None) -> None:
    if config.groups == "alike" and scores is not None:
        msg = "centrality scores rank nodes for groups='neighbors', got some with groups='alike'. Leave them out."
        raise OptionError(msg)


def _resolve_options(
    config: CollapseConfig | None, centrality: ArrayLike | str | None, options: dict[str, Any]
) -> tuple[CollapseConfig, ArrayLike | None]:
    """Return the config with keyword options applied, and the caller's own scores if there are any."""
    if isinstance(centrality, str):
        options = {**options, "centrality": centrality}
        centrality = None
    return with_options(CollapseConfig, config, options, "collapse").resolved(), centrality


def _shown_options(config: CollapseConfig, has_own_scores: bool, own_clusters: IdArray | None) -> dict[str, Any]:
    """Return the options as the report shows them: the caller's own scores and clusters are no option."""
    options = asdict(config)
    if has_own_scores:
        options["centrality"] = "given"
    if own_clusters is not None:
        options["num_clusters"] = "given"
    return options


def check_budget(graph: Graph, config: CollapseConfig, protect: ArrayLike | None = None) -> None:
    """Stop where a node budget does not fit a graph, however it is collapsed; arguments as in :func:`collapse`.

    Raises:
        OptionError: If there is no such scope, or ``protect`` is unusable.
        BudgetError: If the budget is out of range or below the number of protected nodes.
    """
    scope = choose_scope(config.scope, has_train_mask=graph.train_mask is not None)
    protected = protected_nodes(protect, graph.num_nodes)
    in_scope = protected[graph.train_mask] if scope == "train" else protected
    resolve_budget(config.node_budget, len(in_scope), int(in_scope.sum()))


def _rank(
    scope: ScopedGraph, config: CollapseConfig, own_scores: NDArray[Any] | None
) -> tuple[NDArray[np.float64], IdArray]:
    """Return Φ and the total order (Alg. 1, line 1)."""
    if own_scores is not None:
        return own_scores.astype(np.float64), rank_nodes(own_scores, config.seed)
    sampling = Sampling(config.num_samples, config.closeness_samples, config.seed)
    with part_of_work(0.0, _SCORING_SHARE):
        phi = compute_centrality(config.centrality, scope.indptr, scope.indices, sampling)
    return phi, rank_nodes(round_scores(phi), config.seed)


def _contract(scope: ScopedGraph, order: IdArray, rank: IdArray, kept: IdArray, merge: Merge | None) -> Groups:
    """Return which survivor each node in scope ends up in."""
    new_ids = np.full(len(rank), -1, np.int64)
    new_ids[kept] = np.arange(len(kept))
    if merge != "drop":
        stands_for = merge_into_neighbors(scope.indptr, scope.indices, order, rank)
        new_ids = np.where(stands_for >= 0, new_ids[stands_for], -1)
    return Groups(scope.ids, new_ids, kept)
