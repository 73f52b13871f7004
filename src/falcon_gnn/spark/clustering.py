"""The feature-label matrix M (Eq. 8) as a vector column, and MLlib's K-means on it (Alg. 1, lines 2 to 4)."""

import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning, require
from falcon_gnn.reduction.clustering import MAX_LLOYD_ITERATIONS
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.spark.frames import F, cut_lineage, summarise_entries
from falcon_gnn.spark.labels import LabelVectors, label_limits
from falcon_gnn.spark.nodes import NodeColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def cluster_nodes(
    nodes: "DataFrame", columns: NodeColumns, labels: LabelVectors | None, config: CollapseConfig
) -> "DataFrame":
    """Return ``index``, ``cluster`` of the nodes in scope: MLlib's K-means (k-means||) on M; no cluster is empty.

    Warns where fewer clusters come out than asked for, since M then has fewer distinct rows.
    """
    matrix = matrix_column(nodes, columns, labels, config.gamma)
    if matrix is None or config.num_clusters == 1:
        return nodes.select("index", F.lit(0).cast("bigint").alias("cluster"))
    to_vector = require("pyspark.ml.functions", "spark").array_to_vector
    rows = nodes.select("index", to_vector(matrix).alias("features")).persist()
    kmeans = require("pyspark.ml.clustering", "spark").KMeans(
        k=config.num_clusters, seed=config.seed, maxIter=MAX_LLOYD_ITERATIONS
    )
    found = kmeans.fit(rows).transform(rows).select("index", F.col("prediction").cast("bigint").alias("cluster"))
    renumbered, num_found = without_gaps(found)
    rows.unpersist()
    if num_found < config.num_clusters:
        msg = (
            f"num_clusters={config.num_clusters} gave {num_found} clusters that are not empty: the feature-label rows "
            "have few distinct values."
        )
        warnings.warn(msg, FalconWarning, stacklevel=4)
    return renumbered


def without_gaps(found: "DataFrame") -> "tuple[DataFrame, int]":
    """Return ``index``, ``cluster`` with the clusters renumbered from 0 without gaps, in order; and their number."""
    stored = cut_lineage(found)
    ids = sorted(row["cluster"] for row in stored.select("cluster").distinct().collect())
    renumbered = stored.sparkSession.createDataFrame(
        [(old, new) for new, old in enumerate(ids)], "cluster bigint, renumbered bigint"
    )
    joined = stored.join(F.broadcast(renumbered), "cluster").select("index", F.col("renumbered").alias("cluster"))
    return joined, len(ids)


def matrix_column(
    nodes: "DataFrame", columns: NodeColumns, labels: LabelVectors | None, gamma: float
) -> "Column | None":
    """Return M = (√α ⊙ X) ⊕ (√β ⊙ Y) as ``array<double>``, X and Y min-max scaled to [0, 1]; None without both.

    Args:
        nodes: The nodes in scope.
        columns: How features are read.
        labels: The visible labels, or None.
        gamma: γ in [0, 1], weight of the features.
    """
    y_limits = None if labels is None else label_limits(nodes, labels)
    x_limits = None if columns.x is None else summarise_entries(nodes, columns.x, "min", "max")
    alpha, beta = 1.0, 1.0
    if x_limits is not None and y_limits is not None:
        num_features, num_labels = len(x_limits[0]), len(y_limits[0])
        widest = max(num_features, num_labels)
        alpha, beta = gamma * widest / num_features, (1 - gamma) * widest / num_labels
    parts = []
    if x_limits is not None:
        parts.append(_scaled(columns.x, x_limits[0], x_limits[1], alpha))
    if y_limits is not None:
        assert labels is not None
        parts.append(_scaled(labels.vector, *y_limits, beta))
    return F.concat(*parts) if parts else None


def _scaled(column: "Column | None", low: NDArray[np.float64], high: NDArray[np.float64], weight: float) -> "Column":
    """Return an array column min-max scaled and times the root of ``weight``; constant and missing entries become 0."""
    width = high - low
    factor = np.divide(np.sqrt(weight), width, out=np.zeros_like(width), where=width > 0)
    shifted = F.zip_with(column, F.lit(low.tolist()), lambda value, least: value - least)
    return F.zip_with(shifted, F.lit(factor.tolist()), lambda value, times: F.coalesce(value * times, F.lit(0.0)))
