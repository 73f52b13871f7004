"""The dimension-normalised feature-label matrix M (Eq. 8) and its K-means clusters (Alg. 1, lines 2 to 4)."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning
from falcon_gnn.labels import LabelEncoding

if TYPE_CHECKING:
    from scipy.sparse import csr_array

IdArray = NDArray[np.int64]

MAX_WHOLE_VALUES = 1 << 25
"""From so many values of M on, it is made in row blocks and clustered by mini-batches."""
BLOCK_VALUES = 1 << 19
SEEDING_ROWS_PER_CLUSTER = 20
MAX_LLOYD_ITERATIONS = 10
"""On PPI this ends within 0.05 % of the inertia at convergence (16 iterations), in 0.7 of the time."""
_MINI_BATCHES_PER_CLUSTER = 10


@dataclass(frozen=True)
class ColumnScale:
    """The min-max scaling of each column, and the factor √α or √β, as one shift and one factor.

    Attributes:
        shift: Subtracted first, shape ``(columns,)``; zero for sparse columns, which keeps them sparse.
        factor: Multiplied after, shape ``(columns,)``; zero for a constant column.
    """

    shift: NDArray[np.float64]
    factor: NDArray[np.float64]


@dataclass(frozen=True)
class FeatureLabelMatrix:
    """M = (√α ⊙ X) ⊕ (√β ⊙ Y), row by row on demand; X and Y min-max scaled to [0, 1].

    Attributes:
        features: X of the nodes in scope, shape ``(N, F)``, dense or CSR, or None.
        labels: Y as vectors, zero where hidden, shape ``(N, L)``, or None.
        feature_scale: Scaling of X with √α.
        label_scale: Scaling of Y with √β.
        node_ids: Rows of ``features`` that are in scope, ascending; None for all.
        labelled: Nodes with a visible label, shape ``(N,)``; the others' rows of Y stay zero.
        num_rows: N.
        known: Cells of ``labels`` that hold a visible value, where some rows have gaps; the others stay zero.
    """

    features: Any
    labels: NDArray[Any] | None
    feature_scale: ColumnScale | None
    label_scale: ColumnScale | None
    node_ids: NDArray[np.int64] | None
    labelled: NDArray[np.bool_] | None
    num_rows: int
    known: NDArray[np.bool_] | None = None

    @property
    def num_columns(self) -> int:
        """F + L, of the parts there are."""
        return sum(len(scale.factor) for scale in (self.feature_scale, self.label_scale) if scale is not None)

    @property
    def is_sparse(self) -> bool:
        """Whether rows come as CSR."""
        return self.features is not None and not isinstance(self.features, np.ndarray)

    @property
    def block_rows(self) -> int:
        """Rows that are made at a time, so that what is made on the way stays small."""
        return max(1, BLOCK_VALUES * self.num_rows // max(1, self.num_values))

    @property
    def num_values(self) -> int:
        """Values that M would hold as a whole."""
        if self.is_sparse:
            return int(self.features.nnz) + self.num_rows
        return self.num_rows * self.num_columns

    def rows(self, start: int, stop: int) -> "NDArray[np.float32] | csr_array":
        """Return rows ``start`` to ``stop`` of M, float32, shape ``(stop - start, F + L)``."""
        stop = min(stop, self.num_rows)
        if self.is_sparse:
            return self._sparse_rows(start, stop)
        whole = np.empty((stop - start, self.num_columns), np.float32)
        for low in range(start, stop, self.block_rows):
            high = min(low + self.block_rows, stop)
            whole[low - start : high - start] = self.take(np.arange(low, high))
        return whole

    def _sparse_rows(self, start: int, stop: int) -> "csr_array":
        """Fill the rows block by block: stacking whole parts would hold everything twice."""
        from scipy.sparse import csr_array

        ids = slice(start, stop) if self.node_ids is None else self.node_ids[start:stop]
        widths = np.diff(self.features.indptr)[ids]
        capacity = int(widths.sum())
        if self.labels is not None:
            capacity += (
                int(np.count_nonzero(self.labels[start:stop]))
                if self.has_plain_zeros
                else ((stop - start) * self.labels.shape[1])
            )
        data, indices = np.empty(capacity, np.float32), np.empty(capacity, np.int32)
        indptr = np.zeros(stop - start + 1, np.int64)
        used = 0
        for low in range(start, stop, self.block_rows):
            high = min(low + self.block_rows, stop)
            part: Any = self.take(np.arange(low, high))
            data[used : used + part.nnz], indices[used : used + part.nnz] = part.data, part.indices
            indptr[low - start + 1 : high - start + 1] = used + part.indptr[1:]
            used += part.nnz
        narrow = indptr.astype(np.int32) if used < 2**31 else indptr
        return csr_array((data[:used], indices[:used], narrow), shape=(stop - start, self.num_columns))

    @property
    def has_plain_zeros(self) -> bool:
        """Whether a zero label stays zero when scaled."""
        return self.label_scale is None or not self.label_scale.shift.any()

    def take(self, rows: NDArray[np.int64]) -> "NDArray[np.float32] | csr_array":
        """Return some rows of M, float32, shape ``(len(rows), F + L)``."""
        parts: list[Any] = []
        if self.feature_scale is not None:
            chosen = rows if self.node_ids is None else self.node_ids[rows]
            parts.append(_scaled_features(self.features[chosen], self.feature_scale))
        if self.label_scale is not None:
            assert self.labels is not None
            assert self.labelled is not None
            scaled = (self.labels[rows] - self.label_scale.shift) * self.label_scale.factor
            scaled[~(self.labelled[rows] if self.known is None else self.known[rows])] = 0
            parts.append(scaled.astype(np.float32))
        if not self.is_sparse:
            return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        from scipy.sparse import csr_array, hstack

        return csr_array(hstack([csr_array(part) for part in parts], format="csr", dtype=np.float32))


def build_matrix(
    features: Any, encoding: LabelEncoding | None, gamma: float, node_ids: NDArray[np.int64] | None = None
) -> FeatureLabelMatrix | None:
    """Return M with α = γ·max(F, L)/F and β = (1 - γ)·max(F, L)/L (Eq. 6; the paper prints D for F).

    Args:
        features: X, dense or CSR, shape ``(N_all, F)``, or None (then M = Y).
        encoding: Label vectors of the nodes in scope, or None (then M = X).
        gamma: γ in [0, 1]: 0 looks at labels only, 1 at features only.
        node_ids: Rows of X in scope, ascending; None for all.

    Returns:
        M, or None where there is neither.
    """
    has_labels = encoding is not None and bool(encoding.labelled.any())
    if features is None and not has_labels:
        return None
    alpha, beta = 1.0, 1.0
    if features is not None and has_labels:
        assert encoding is not None
        widest = max(features.shape[1], encoding.num_labels)
        alpha = gamma * widest / features.shape[1]
        beta = (1 - gamma) * widest / encoding.num_labels
    label_scale = None
    if has_labels:
        assert encoding is not None
        low, high = _column_range(encoding)
        label_scale = _scale(low, high, beta)
    if encoding is not None:
        num_rows = len(encoding.matrix)
    else:
        num_rows = features.shape[0] if node_ids is None else len(node_ids)
    return FeatureLabelMatrix(
        features=features,
        labels=encoding.matrix if encoding is not None and has_labels else None,
        feature_scale=None if features is None else _feature_scale(features, node_ids, alpha),
        label_scale=label_scale,
        node_ids=node_ids,
        labelled=None if encoding is None else encoding.labelled,
        num_rows=num_rows,
        known=None if encoding is None else encoding.known,
    )


def cluster_nodes(matrix: FeatureLabelMatrix | None, num_nodes: int, num_clusters: int, seed: int) -> NDArray[np.int64]:
    """Return the K-means cluster of each node in scope (Alg. 1, line 4); none is empty, ids have no gap.

    Args:
        matrix: M, or None for a single cluster.
        num_nodes: N in scope.
        num_clusters: η; clipped with a warning where M has fewer distinct rows.
        seed: Draws the seeding.

    Returns:
        Cluster ids, int64, shape ``(num_nodes,)``.
    """
    if matrix is None or num_clusters == 1:
        return np.zeros(num_nodes, np.int64)
    distinct = _find_distinct_rows(matrix, limit=num_clusters)
    num_distinct = len(distinct)
    if num_distinct < num_clusters:
        msg = (
            f"num_clusters={num_clusters} is more than the {num_distinct} distinct feature-label rows in scope; "
            f"{num_distinct} clusters are used."
        )
        warnings.warn(msg, FalconWarning, stacklevel=5)
        num_clusters = num_distinct
    from threadpoolctl import threadpool_limits

    # One thread: K-means adds its centers up per thread, and floats do not add up the same in another order.
    with threadpool_limits(1):
        if matrix.num_values <= MAX_WHOLE_VALUES:
            labels = _lloyd(matrix, _seed_centers(matrix, distinct, seed), seed)
        else:
            labels = _mini_batches(matrix, _seed_centers(matrix, distinct, seed), seed)
    used, clusters = np.unique(labels, return_inverse=True)
    if len(used) < num_clusters:
        msg = f"{num_clusters - len(used)} of {num_clusters} clusters ended up empty; {len(used)} are used."
        warnings.warn(msg, FalconWarning, stacklevel=5)
    return clusters.astype(np.int64)


def _lloyd(matrix: FeatureLabelMatrix, centers: NDArray[np.float32], seed: int) -> NDArray[np.int32]:
    """Run Lloyd's iterations on all rows; with tol=0 scikit-learn makes no second M to find its variance."""
    from sklearn.cluster import KMeans

    whole = matrix.rows(0, matrix.num_rows)
    model = KMeans(
        len(centers), init=centers, n_init=1, max_iter=MAX_LLOYD_ITERATIONS, tol=0, random_state=seed, copy_x=False
    )
    labels: NDArray[np.int32] = model.fit(whole).labels_
    return labels


def _mini_batches(matrix: FeatureLabelMatrix, centers: NDArray[np.float32], seed: int) -> NDArray[np.int32]:
    """Fit on seeded row samples, then assign block by block; M is never whole in memory."""
    from sklearn.cluster import MiniBatchKMeans

    rng = np.random.default_rng([seed, 2])
    num_clusters = len(centers)
    model = MiniBatchKMeans(num_clusters, init=centers, n_init=1, random_state=seed, reassignment_ratio=0)
    batch_rows = min(matrix.num_rows, max(4096, 40 * num_clusters))
    for _ in range(max(20, min(100, _MINI_BATCHES_PER_CLUSTER * matrix.num_rows // batch_rows))):
        model.partial_fit(matrix.take(np.sort(rng.choice(matrix.num_rows, batch_rows, replace=False))))
    labels = np.empty(matrix.num_rows, np.int32)
    for start, stop in _row_blocks(matrix):
        labels[start:stop] = model.predict(matrix.rows(start, stop))
    return labels


def _seed_centers(matrix: FeatureLabelMatrix, distinct: IdArray, seed: int) -> NDArray[np.float32]:
    """Return k-means++ centers, shape ``(num_clusters, F + L)``, from a seeded sample of rows.

    On all rows the seeding costs six times the iterations that follow. The sample is joined by as many ``distinct``
    rows as there are clusters, so that no two centers are equal.
    """
    from sklearn.cluster import kmeans_plusplus

    num_clusters = len(distinct)
    num_sampled = min(SEEDING_ROWS_PER_CLUSTER * num_clusters, matrix.num_rows)
    chosen = np.random.default_rng([seed, 3]).choice(matrix.num_rows, num_sampled, replace=False)
    centers = kmeans_plusplus(matrix.take(np.union1d(chosen, distinct)), num_clusters, random_state=seed)[0]
    return np.ascontiguousarray(centers, dtype=np.float32)


def _row_blocks(matrix: FeatureLabelMatrix, first: int = 0) -> list[tuple[int, int]]:
    step = matrix.block_rows
    return [(start, min(start + step, matrix.num_rows)) for start in range(first, matrix.num_rows, step)]


def _find_distinct_rows(matrix: FeatureLabelMatrix, limit: int) -> IdArray:
    """Return the first rows of M that differ from all before them, at most ``limit``."""
    found: dict[bytes, int] = {}
    first = min(4 * limit, matrix.num_rows)
    for start, stop in [(0, first), *_row_blocks(matrix, first)]:
        block = matrix.rows(start, stop)
        if isinstance(block, np.ndarray):
            # Adding 0 turns -0.0 into 0.0, which would look distinct as bytes.
            rows = np.ascontiguousarray(block + np.float32(0)).view(np.void(block.shape[1] * 4).dtype).ravel()
            for row in np.sort(np.unique(rows, return_index=True)[1]).tolist():
                found.setdefault(rows[row].tobytes(), start + row)
        else:
            block.eliminate_zeros()
            for row in range(block.shape[0]):
                part = slice(block.indptr[row], block.indptr[row + 1])
                key = block.indices[part].tobytes() + b"|" + block.data[part].tobytes()
                found.setdefault(key, start + row)
                if len(found) == limit:
                    break
        if len(found) >= limit:
            break
    return np.array(list(found.values())[:limit], np.int64)


def _feature_scale(features: Any, node_ids: NDArray[np.int64] | None, alpha: float) -> ColumnScale:
    if isinstance(features, np.ndarray):
        low, high = _dense_range(features, node_ids)
        return _scale(low, high, alpha)
    inside = features if node_ids is None else features[node_ids]
    low = inside.min(axis=0).toarray().ravel().astype(np.float64)
    high = inside.max(axis=0).toarray().ravel().astype(np.float64)
    return _scale(low, high, alpha, shifted=False)


def _dense_range(
    features: NDArray[Any], node_ids: NDArray[np.int64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each column's minimum and maximum over the rows in scope, read in row blocks."""
    num_rows = len(features) if node_ids is None else len(node_ids)
    step = max(1, BLOCK_VALUES // max(1, features.shape[1]))
    low = np.full(features.shape[1], np.inf)
    high = np.full(features.shape[1], -np.inf)
    for start in range(0, num_rows, step):
        chosen = slice(start, start + step) if node_ids is None else node_ids[start : start + step]
        block = features[chosen]
        low = np.minimum(low, block.min(axis=0))
        high = np.maximum(high, block.max(axis=0))
    return low, high


def _column_range(encoding: LabelEncoding) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each label column's minimum and maximum over its visible values; 0 and 0 where it has none."""
    visible = encoding.matrix[encoding.labelled].astype(np.float64)
    if encoding.known is None:
        return visible.min(axis=0), visible.max(axis=0)
    known = encoding.known[encoding.labelled]
    low = np.where(known, visible, np.inf).min(axis=0)
    high = np.where(known, visible, -np.inf).max(axis=0)
    is_empty = ~known.any(axis=0)
    return np.where(is_empty, 0, low), np.where(is_empty, 0, high)


def _scale(low: NDArray[np.float64], high: NDArray[np.float64], weight: float, *, shifted: bool = True) -> ColumnScale:
    width = high - low
    factor = np.zeros_like(width)
    np.divide(np.sqrt(weight), width, out=factor, where=width > 0)
    shift = low if shifted else np.zeros_like(low)
    return ColumnScale(shift, factor)


def _scaled_features(block: Any, scale: ColumnScale) -> Any:
    if isinstance(block, np.ndarray):
        # In double: a column of time stamps has no digits left in float32 once its offset is subtracted.
        scaled = (block.astype(np.float64) - scale.shift) * scale.factor
        return scaled.astype(np.float32)
    scaled = block.astype(np.float64, copy=True)
    scaled.data *= scale.factor[scaled.indices]
    return scaled.astype(np.float32)
