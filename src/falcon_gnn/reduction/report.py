"""What a collapse did to a graph, in figures: sizes, degrees, labels, features, clusters, time and memory."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import EdgeCleaning, IntArray
from falcon_gnn.graph import Graph
from falcon_gnn.labels import LabelEncoding, encode_labels
from falcon_gnn.progress import part_of_work, tell_share
from falcon_gnn.reduction.attributes import Groups
from falcon_gnn.reduction.clock import StageClock
from falcon_gnn.reduction.grouping import IdArray
from falcon_gnn.reduction.homophily import adjusted_homophily
from falcon_gnn.reduction.notes import note_input, note_losses, note_neighbors, note_options
from falcon_gnn.reduction.scope import ScopedGraph
from falcon_gnn.resources import peak_resident_memory, release_pages

NUM_RANK_BINS = 20
_BLOCK_VALUES = 1 << 18


@dataclass(frozen=True)
class GraphSummary:
    """Sizes and degrees of a graph.

    Attributes:
        num_nodes: Nodes.
        num_edges: Undirected edges.
        num_components: Connected components, isolated nodes included.
        num_isolated: Nodes without a neighbor.
        mean_degree: 2E / N.
        median_degree: Median number of neighbors.
        max_degree: Largest number of neighbors.
        degree_histogram: Nodes by degree: 0, 1, 2-3, 4-7, 8-15, …
    """

    num_nodes: int
    num_edges: int
    num_components: int
    num_isolated: int
    mean_degree: float
    median_degree: float
    max_degree: int
    degree_histogram: list[int]


@dataclass(frozen=True)
class LabelSummary:
    """The label distribution before and after.

    Attributes:
        task: What the labels are.
        shares_before: N_l / N over nodes with a visible label, one per label; empty for a regression target.
        shares_after: n_l / n in the reduced graph.
        label_distribution_error: Mean over l of abs(n_l/n - N_l/N), the paper's formula; None for regression.
        label_distribution_error_relative: Mean of that over N_l/N, labels with N_l = 0 left out: what the paper's
            table prints for PPI and Organ.
    """

    task: str
    shares_before: list[float]
    shares_after: list[float]
    label_distribution_error: float | None
    label_distribution_error_relative: float | None


@dataclass(frozen=True)
class FeatureSummary:
    """How far the mean of each feature moved, in standard deviations before the collapse.

    Attributes:
        mean_shift: (mean after - mean before) / standard deviation before, one per feature; 0 for a constant one.
        mean_absolute_shift: Mean of its absolute values.
        max_absolute_shift: Largest of them.
    """

    mean_shift: list[float]
    mean_absolute_shift: float
    max_absolute_shift: float


@dataclass(frozen=True)
class CollapseReport:
    """Before and after of one collapse; everything is plain data.

    Attributes:
        config: The options used.
        scope: ``"train"`` or ``"full"``.
        before: The graph in scope.
        after: The reduced graph.
        num_dropped: Nodes in scope that no survivor stands for, because their group had no neighbor left.
        labels: Label distribution, or None without labels.
        features: Feature means, or None without features.
        cluster_sizes: Nodes per cluster.
        cluster_kept: Survivors per cluster.
        kept_by_rank: Survivors in 20 equal parts of the nodes by ascending centrality.
        nodes_by_rank: Nodes in each of these parts.
        cleaning: What the input's edge list needed.
        seconds: Wall-clock seconds per stage.
        peak_memory_bytes: Largest resident size of the process up to the end of the collapse; None where the system
            does not say.
        teacher_accuracy: Share of the labelled nodes that the teacher, or the regression of soft labels, names right
            when each is left out; None without.
        adjusted_homophily: How much more often than chance neighbors in scope are of one class, at most 1
            (:mod:`falcon_gnn.reduction.homophily`); None where there are no classes.
        notes: Whole sentences: what the input lacked, which options had no effect, what was lost, and what to do.
    """

    config: dict[str, Any]
    scope: str
    before: GraphSummary
    after: GraphSummary
    num_dropped: int
    labels: LabelSummary | None
    features: FeatureSummary | None
    cluster_sizes: list[int]
    cluster_kept: list[int]
    kept_by_rank: list[int]
    nodes_by_rank: list[int]
    cleaning: EdgeCleaning
    seconds: dict[str, float]
    peak_memory_bytes: int | None
    teacher_accuracy: float | None = None
    adjusted_homophily: float | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as nested dictionaries of plain numbers and strings."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=2, default=float)


def label_components(indptr: NDArray[np.int64], indices: IntArray) -> tuple[IntArray, int]:
    """Return the connected component of each node of a symmetric adjacency, shape ``(N,)``, and their number."""
    from falcon_gnn._kernels import components

    labels, num_components = components.label_components(indptr, indices)
    return labels, int(num_components)


def summarise_graph(indptr: NDArray[np.int64], indices: IntArray, num_components: int) -> GraphSummary:
    """Return sizes and degrees of a symmetric adjacency of so many connected components."""
    degrees = np.diff(indptr)
    bins = np.zeros(len(degrees), np.int64)
    bins[degrees > 0] = np.floor(np.log2(degrees[degrees > 0])).astype(np.int64) + 1
    return GraphSummary(
        num_nodes=len(degrees),
        num_edges=len(indices) // 2,
        num_components=num_components,
        num_isolated=int((degrees == 0).sum()),
        mean_degree=float(degrees.mean()),
        median_degree=float(np.median(degrees)),
        max_degree=int(degrees.max()),
        degree_histogram=np.bincount(bins).tolist(),
    )


def summarise_labels(before: LabelEncoding, after: LabelEncoding) -> LabelSummary:
    """Return the label distribution before and after, and both errors."""
    if before.task == "regression" or not before.labelled.any():
        return LabelSummary(before.task, [], [], None, None)
    shares_before = before.sums() / before.labelled.sum()
    shares_after = after.sums() / max(int(after.labelled.sum()), 1)
    return LabelSummary(
        before.task,
        shares_before.tolist(),
        shares_after.tolist(),
        label_distribution_error(shares_before, shares_after),
        label_distribution_error_relative(shares_before, shares_after),
    )


def label_distribution_error(shares_before: NDArray[np.float64], shares_after: NDArray[np.float64]) -> float:
    """Return the mean over labels of abs(n_l/n - N_l/N), the L_err of the paper.

    Example:
        >>> label_distribution_error(np.array([0.5, 0.5]), np.array([0.25, 0.75]))
        0.25
    """
    return float(np.abs(shares_after - shares_before).mean())


def label_distribution_error_relative(shares_before: NDArray[np.float64], shares_after: NDArray[np.float64]) -> float:
    """Return the mean of abs(n_l/n - N_l/N) over N_l/N; labels that no node had are left out."""
    present = shares_before > 0
    gap = np.abs(shares_after - shares_before)[present]
    return float((gap / shares_before[present]).mean()) if present.any() else 0.0


def summarise_features(x: Any, scope_ids: NDArray[np.int64] | None, reduced: Any) -> FeatureSummary:
    """Return how far each feature's mean moved from the nodes in scope to the reduced graph."""
    mean_before, std_before = _mean_and_std(x, scope_ids)
    mean_after, _ = _mean_and_std(reduced, None)
    shift = np.zeros(len(mean_before))
    np.divide(mean_after - mean_before, std_before, out=shift, where=std_before > 1e-12 * np.abs(mean_before))
    return FeatureSummary(shift.tolist(), float(np.abs(shift).mean()), float(np.abs(shift).max()))


def count_kept_by_rank(rank: NDArray[np.int64], kept: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return (survivors, nodes) in equal parts of the nodes by ascending centrality."""
    num_bins = min(NUM_RANK_BINS, len(rank))
    bins = rank * num_bins // len(rank)
    return (
        np.bincount(bins[kept], minlength=num_bins).tolist(),
        np.bincount(bins, minlength=num_bins).tolist(),
    )


def _mean_and_std(x: Any, ids: NDArray[np.int64] | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each column's mean and standard deviation in two passes over row blocks, so that nothing cancels."""
    num_rows = x.shape[0] if ids is None else len(ids)
    mean = sum(_column_sums(x, ids)) / num_rows
    tell_share(0.5)
    variance = sum(_column_sums(x, ids, mean)) / num_rows
    if not isinstance(x, np.ndarray):
        stored = np.bincount((x if ids is None else x[ids]).indices, minlength=x.shape[1])
        variance += (num_rows - stored) / num_rows * mean**2
    return mean, np.sqrt(variance)


def _column_sums(x: Any, ids: NDArray[np.int64] | None, mean: NDArray[np.float64] | None = None) -> Any:
    """Yield column sums per row block, or with ``mean`` those of squared deviations (of stored values if sparse)."""
    num_rows = x.shape[0] if ids is None else len(ids)
    step = max(1, _BLOCK_VALUES // max(1, x.shape[1]))
    for start in range(0, num_rows, step):
        block = x[start : start + step] if ids is None else x[ids[start : start + step]]
        if isinstance(block, np.ndarray):
            values = block.astype(np.float64)
            yield (values if mean is None else np.square(values - mean)).sum(axis=0)
        else:
            values = block.data.astype(np.float64)
            values = values if mean is None else np.square(values - mean[block.indices])
            yield np.bincount(block.indices, weights=values, minlength=x.shape[1])
        release_pages(x)


def make_report(
    graph: Graph, scope: ScopedGraph, groups: Groups, reduced: Graph, encoding: LabelEncoding | None,
    cluster: IdArray, rank: IdArray, options: dict[str, Any], clock: StageClock,
) -> CollapseReport:  # fmt: skip
    """Return before and after of a reduction in figures."""
    is_ranked = bool((rank >= 0).all())
    kept_by_rank, nodes_by_rank = count_kept_by_rank(rank, groups.kept) if is_ranked else ([], [])
    num_clusters = int(cluster.max()) + 1
    component, num_before = label_components(scope.indptr, scope.indices)
    if options.get("merge") == "drop" or options.get("groups") == "alike":
        num_after = label_components(reduced.indptr, reduced.indices)[1]
    else:
        # Merging never parts a component nor joins two: those with a survivor are left.
        num_after = int(np.count_nonzero(np.bincount(component[groups.kept])))
    tell_share(0.4)
    labels = features = None
    if encoding is not None and reduced.y is not None:
        visible = None if scope.visible is None else reduced.train_mask
        after = encode_labels(reduced.y, encoding.task, encoding.num_labels, visible)
        labels = summarise_labels(encoding, after)
    if graph.x is not None and graph.num_features:
        with part_of_work(0.4, 0.7):
            features = summarise_features(graph.x, None if scope.is_whole else scope.ids, reduced.x)
    num_dropped = int((groups.assignment < 0).sum())
    shares = ([], []) if labels is None else (labels.shares_before, labels.shares_after)
    homophily = adjusted_homophily(scope, encoding)
    notes = (
        *note_input(
            has_x=graph.x is not None,
            has_y=graph.y is not None,
            is_split=graph.train_mask is not None,
            attributes=graph.node_attributes,
        ),
        *note_options(
            has_own_clusters=options.get("num_clusters") == "given",
            groups=options.get("groups"),
            centrality=options.get("centrality"),
        ),
        *note_neighbors(options.get("groups"), homophily),
        *note_losses(num_dropped, len(scope.ids), options, *shares),
    )
    return CollapseReport(
        config=options,
        scope=scope.name,
        before=summarise_graph(scope.indptr, scope.indices, num_before),
        after=summarise_graph(reduced.indptr, reduced.indices, num_after),
        num_dropped=num_dropped,
        labels=labels,
        features=features,
        cluster_sizes=np.bincount(cluster, minlength=num_clusters).tolist(),
        cluster_kept=np.bincount(cluster[groups.kept], minlength=num_clusters).tolist(),
        kept_by_rank=kept_by_rank,
        nodes_by_rank=nodes_by_rank,
        cleaning=graph.cleaning,
        seconds=clock.seconds,
        peak_memory_bytes=peak_resident_memory(),
        adjusted_homophily=homophily,
        notes=notes,
    )
