"""The dimension-normalised matrix M of features and labels (Eq. 4 to 8; Alg. 1, lines 2 and 3)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.labels import LabelEncoding
from falcon_gnn.resources import release_pages

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK_VALUES = 1 << 19


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
        labels: Y, of which rows are made on demand, zero where hidden, or None.
        feature_scale: Scaling of X with √α.
        label_scale: Scaling of Y with √β.
        node_ids: Rows of ``features`` that are in scope, ascending; None for all.
        num_rows: N.
    """

    features: Any
    labels: LabelEncoding | None
    feature_scale: ColumnScale | None
    label_scale: ColumnScale | None
    node_ids: NDArray[np.int64] | None
    num_rows: int

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
            capacity += self._num_label_values(start, stop)
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

    def _num_label_values(self, start: int, stop: int) -> int:
        """Return how many values the labels of some rows need in CSR form, at most."""
        assert self.labels is not None
        assert self.label_scale is not None
        if self.label_scale.shift.any():  # A zero label does not stay zero then.
            return (stop - start) * self.labels.num_labels
        values = self.labels.values[start:stop]
        return int(np.count_nonzero(values >= 0 if self.labels.task == "classes" else values))

    def take(self, rows: NDArray[np.int64]) -> "NDArray[np.float32] | csr_array":
        """Return some rows of M, float32, shape ``(len(rows), F + L)``."""
        parts: list[Any] = []
        if self.feature_scale is not None:
            chosen = rows if self.node_ids is None else self.node_ids[rows]
            parts.append(_scaled_features(self.features[chosen], self.feature_scale))
            release_pages(self.features)
        if self.label_scale is not None:
            assert self.labels is not None
            labels = self.labels
            scaled = (labels.rows(rows) - self.label_scale.shift) * self.label_scale.factor
            scaled[~(labels.labelled[rows] if labels.known is None else labels.known[rows])] = 0
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
        low, high = column_range(encoding)
        label_scale = _scale(low, high, beta)
    if encoding is not None:
        num_rows = len(encoding.labelled)
    else:
        num_rows = features.shape[0] if node_ids is None else len(node_ids)
    return FeatureLabelMatrix(
        features=features,
        labels=encoding if has_labels else None,
        feature_scale=None if features is None else _feature_scale(features, node_ids, alpha),
        label_scale=label_scale,
        node_ids=node_ids,
        num_rows=num_rows,
    )


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
        release_pages(features)
    return low, high


def column_range(encoding: LabelEncoding) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each label column's minimum and maximum over its visible values; 0 and 0 where it has none."""
    if encoding.task == "classes":
        counts = encoding.sums()
        return (counts == encoding.labelled.sum()).astype(np.float64), (counts > 0).astype(np.float64)
    # In the labels' own type: doubles of all of them would be eight times as large.
    low = high = encoding.values[encoding.labelled]
    if encoding.known is not None:
        known, infinity = encoding.known[encoding.labelled], np.float32(np.inf)
        is_empty = ~known.any(axis=0)
        low, high = np.where(known | is_empty, low, infinity), np.where(known | is_empty, high, -infinity)
    return low.min(axis=0).astype(np.float64), high.max(axis=0).astype(np.float64)


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
