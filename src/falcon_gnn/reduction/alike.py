"""Groups of alike nodes (ours): who shares a group is decided by what a GNN sees and by the label, not by an edge."""

import warnings
from dataclasses import dataclass

import numpy as np

from falcon_gnn.errors import BudgetError, FalconWarning, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.labels import LabelEncoding
from falcon_gnn.progress import part_of_work
from falcon_gnn.reduction.budgets import split_budget
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.grouping import BoolArray, IdArray, group_members, summing_matrix
from falcon_gnn.reduction.hop_space import MAX_COLUMNS, hop_space, join_columns, label_columns
from falcon_gnn.reduction.partition import Points, split_rows, split_with_floor
from falcon_gnn.reduction.scope import ScopedGraph
from falcon_gnn.reduction.teacher import Teacher, fit_teacher
from falcon_gnn.threads import one_thread

_BLOCK_VALUES = 1 << 22
_TEACHER_HOPS = 2
_HOPS_SHARE = 0.4
"""Of the time of a teacher, for 200,000 nodes, 90 features and 10 classes; the rest is the regression."""


@dataclass(frozen=True)
class AlikeGroups:
    """Groups of alike nodes; n nodes in scope, Ψ groups.

    Attributes:
        assignment: Group of each node, numbered by ascending ``kept``, shape ``(n,)``.
        kept: The member nearest to its group's mean, ascending, shape ``(Ψ,)``.
        clusters: What the budget was split over first, shape ``(n,)``: classes, feature-label clusters, or both inside
            the caller's own clusters.
        cluster_budgets: Groups per cluster, protected nodes included; sums to Ψ.
        inertia: Sum of the squared distances of the nodes to their group's mean.
    """

    assignment: IdArray
    kept: IdArray
    clusters: IdArray
    cluster_budgets: IdArray
    inertia: float


@dataclass(frozen=True)
class _Quotas:
    """Segments that groups stay inside, and how many groups each has; the nodes of those of 0 join the nearest group.

    Attributes:
        segment: Segment of each node, without gaps, shape ``(n,)``.
        quotas: Groups per segment, protected nodes not counted.
        owner: The caller's cluster that each segment lies in; 0 without any.
    """

    segment: IdArray
    quotas: IdArray
    owner: IdArray


def form_groups(
    points: Points,
    kind: IdArray,
    own_clusters: IdArray | None,
    protected: BoolArray,
    budget: int,
    *,
    is_classes: bool,
    seed: int = 0,
) -> AlikeGroups:
    """Return exactly ``budget`` groups of the nodes in scope, each protected node alone in its own.

    Args:
        points: What makes nodes alike (:func:`node_space`), shape ``(n, d)``.
        kind: Class or feature-label cluster of each node (:func:`node_kinds`), shape ``(n,)``.
        own_clusters: The caller's clusters, which groups stay inside, or None.
        protected: Nodes that stay alone, shape ``(n,)``.
        budget: Ψ, in ``[1, n]``.
        is_classes: Whether ``kind`` holds classes, each of which has a group while the budget allows.
        seed: Draws the seeding.

    Raises:
        BudgetError: If the budget leaves a cluster of the caller's, or the nodes beside the protected, without a group.
    """
    plan = _plan(kind, own_clusters, protected, budget - int(protected.sum()), is_classes)
    group = np.full(len(kind), -1, np.int64)
    grouped = np.flatnonzero(~protected & (plan.quotas[plan.segment] > 0))
    active, segment = np.unique(plan.segment[grouped], return_inverse=True)
    group[grouped] = split_rows(points, grouped, segment, plan.quotas[active], seed)
    group_owner = np.repeat(plan.owner[active], plan.quotas[active])
    _join_nearest(points, group, np.flatnonzero(~protected & (group < 0)), plan.owner[plan.segment], group_owner)
    alone = np.flatnonzero(protected)
    group[alone] = len(group_owner) + np.arange(len(alone))

    from falcon_gnn._kernels.kmeans import find_medoids

    medoids, inertia = find_medoids(points, *group_members(group, budget))
    number = np.empty(budget, np.int64)
    number[np.argsort(medoids)] = np.arange(budget)
    kept = np.sort(medoids)
    cluster_budgets = np.bincount(plan.segment[kept], minlength=len(plan.quotas))
    return AlikeGroups(number[group], kept, plan.segment, cluster_budgets, float(inertia.sum()))


def node_space(graph: Graph, scope: ScopedGraph, config: CollapseConfig, encoding: LabelEncoding | None) -> Points:
    """Return what makes the nodes in scope alike, float32, shape ``(n, d)``, for up to 32 hops at most 64 columns.

    Classes and no labels: the hop features. Multi-label and regression targets: hop features and labels, half of the
    columns each, γ and 1 - γ of the variance. Without features: what labels there are.
    """
    has_values = encoding is not None and encoding.task != "classes" and bool(encoding.labelled.any())
    labels = features = None
    if has_values:
        assert encoding is not None
        labels = label_columns(encoding, MAX_COLUMNS if graph.x is None else MAX_COLUMNS // 2, config.seed)
    if graph.x is None:
        is_alike = config.groups == "alike"
        option, other = ("groups='alike'", "groups='neighbors'") if is_alike else ("selection='herding'", "another one")
        msg = (
            f"{option} compares features, and this graph has none: nodes are alike by their labels alone. Give it "
            f"features with graph.replace(x=...), or use {other}."
        )
        warnings.warn(msg, FalconWarning, stacklevel=5)
    else:
        columns = MAX_COLUMNS // 2 if has_values else MAX_COLUMNS
        features = hop_space(graph.x, scope, config.num_hops, config.seed, columns)
    points = join_columns(features, labels, config.gamma)
    return np.zeros((len(scope.ids), 1), np.float32) if points is None else points


def make_teacher(graph: Graph, scope: ScopedGraph, config: CollapseConfig, encoding: LabelEncoding | None) -> Teacher:
    """Return the teacher of the nodes in scope, on twice as many hops as alike nodes are compared on.

    What few labels say has to reach further than what tells two neighbors apart.

    Raises:
        OptionError: If the graph has no features, or no class is visible.
    """
    if graph.x is None or encoding is None:
        missing = "features" if graph.x is None else "labels"
        msg = f"cluster_on='teacher' needs features and labels, and this graph has no {missing}. Use cluster_on='hops'."
        raise OptionError(msg)
    with part_of_work(0.0, _HOPS_SHARE):
        points = hop_space(graph.x, scope, _TEACHER_HOPS * config.num_hops, config.seed)
    with part_of_work(_HOPS_SHARE, 1.0):
        return fit_teacher(points, encoding)


def node_kinds(
    points: Points, encoding: LabelEncoding | None, config: CollapseConfig, own_clusters: IdArray | None
) -> IdArray:
    """Return what the budget is split over first: the class of each node, unlabelled being one more, or its cluster.

    Args:
        points: From :func:`node_space`.
        encoding: The visible labels.
        config: The options.
        own_clusters: The caller's clusters, which take the place of feature-label clusters.
    """
    if encoding is not None and encoding.task == "classes":
        return np.where(encoding.labelled, encoding.values, encoding.num_labels).astype(np.int64)
    whole = np.zeros(len(points), np.int64)
    if own_clusters is not None or config.num_clusters == 1:
        return whole
    num_clusters = min(config.num_clusters, len(points))
    return split_rows(points, np.arange(len(points)), whole, np.array([num_clusters]), config.seed)


def _plan(kind: IdArray, own_clusters: IdArray | None, protected: BoolArray, budget: int, is_classes: bool) -> _Quotas:
    """Split the budget over the caller's clusters, at least one group each, and inside them over the kinds."""
    owner = np.zeros(len(kind), np.int64) if own_clusters is None else own_clusters
    num_kinds = int(kind.max()) + 1
    pairs, segment = np.unique(owner * num_kinds + kind, return_inverse=True)
    segment_owner = pairs // num_kinds
    sizes = np.bincount(segment[~protected], minlength=len(segment_owner))
    owner_sizes = np.bincount(owner[~protected], minlength=int(owner.max()) + 1)
    owners = np.flatnonzero(owner_sizes)
    if budget < len(owners):
        what = "the nodes beside the protected ones" if own_clusters is None else f"each of {len(owners)} clusters"
        msg = (
            f"node_budget leaves {budget} groups beside {int(protected.sum())} protected nodes, and groups='alike' "
            f"needs at least one for {what}: nobody is dropped. Raise the budget, or protect fewer nodes."
        )
        raise BudgetError(msg)
    quotas = np.zeros(len(sizes), np.int64)
    owner_budgets = np.zeros(len(owner_sizes), np.int64)
    owner_budgets[owners] = split_with_floor(owner_sizes[owners], budget)
    for one in owners:
        inside = np.flatnonzero((segment_owner == one) & (sizes > 0))
        quotas[inside] = _kind_quotas(sizes[inside], int(owner_budgets[one]), is_classes)
    return _Quotas(segment, quotas, segment_owner)


def _kind_quotas(sizes: IdArray, budget: int, is_classes: bool) -> IdArray:
    """Return the groups of each kind; of classes each has one, or where there are too many, the largest."""
    if not is_classes:
        return split_budget(sizes, budget)
    if budget >= len(sizes):
        return split_with_floor(sizes, budget)
    quotas = np.zeros(len(sizes), np.int64)
    quotas[np.argsort(-sizes, kind="stable")[:budget]] = 1
    return quotas


def _join_nearest(points: Points, group: IdArray, nodes: IdArray, owner: IdArray, group_owner: IdArray) -> None:
    """Let nodes without a group join the one of the nearest mean inside their owner; ``group`` is changed."""
    if nodes.size == 0:
        return
    sums = summing_matrix(group, len(group_owner))
    means = (sums @ points) / np.diff(sums.indptr)[:, None]
    with one_thread():
        for one in np.unique(owner[nodes]):
            groups = np.flatnonzero(group_owner == one)
            half = 0.5 * np.square(means[groups]).sum(axis=1)
            inside = nodes[owner[nodes] == one]
            step = max(1, _BLOCK_VALUES // len(groups))
            for start in range(0, len(inside), step):
                rows = inside[start : start + step]
                group[rows] = groups[(half - points[rows] @ means[groups].T).argmin(axis=1)]
