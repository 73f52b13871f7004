"""K-means clusters of the rows of M (Alg. 1, line 4)."""

import warnings

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import FalconWarning
from falcon_gnn.progress import tell_share
from falcon_gnn.reduction.matrix import FeatureLabelMatrix
from falcon_gnn.threads import one_thread

IdArray = NDArray[np.int64]

MAX_WHOLE_VALUES = 1 << 25
"""From so many values of M on, it is made in row blocks and clustered by mini-batches."""
SEEDING_ROWS_PER_CLUSTER = 20
MAX_LLOYD_ITERATIONS = 10
"""On PPI this ends within 0.05 % of the inertia at convergence (16 iterations), in 0.7 of the time."""
_MINI_BATCHES_PER_CLUSTER = 10
_FITTING_TIME = 10
"""Time of a row that centers are found on in that of one that is only assigned."""


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
    import sklearn.cluster  # noqa: F401 - before the limit, which reaches only the libraries that are loaded

    # One thread: K-means adds its centers up per thread, and floats do not add up the same in another order.
    with one_thread():
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
        len(centers),
        init=centers,
        n_init=1,
        max_iter=MAX_LLOYD_ITERATIONS,
        tol=0,
        random_state=_sklearn_seed(seed),
        copy_x=False,
    )
    labels: NDArray[np.int32] = model.fit(whole).labels_
    return labels


def _mini_batches(matrix: FeatureLabelMatrix, centers: NDArray[np.float32], seed: int) -> NDArray[np.int32]:
    """Fit on seeded row samples, then assign block by block; M is never whole in memory."""
    from sklearn.cluster import MiniBatchKMeans

    rng = np.random.default_rng([seed, 2])
    num_clusters = len(centers)
    model = MiniBatchKMeans(
        num_clusters, init=centers, n_init=1, random_state=_sklearn_seed(seed), reassignment_ratio=0
    )
    batch_rows = min(matrix.num_rows, max(4096, 40 * num_clusters))
    num_batches = max(20, min(100, _MINI_BATCHES_PER_CLUSTER * matrix.num_rows // batch_rows))
    fitting = _FITTING_TIME * num_batches * batch_rows
    for batch in range(num_batches):
        model.partial_fit(matrix.take(np.sort(rng.choice(matrix.num_rows, batch_rows, replace=False))))
        tell_share(fitting * (batch + 1) / num_batches / (fitting + matrix.num_rows))
    labels = np.empty(matrix.num_rows, np.int32)
    for start, stop in _row_blocks(matrix):
        labels[start:stop] = model.predict(matrix.rows(start, stop))
        tell_share((fitting + stop) / (fitting + matrix.num_rows))
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
    centers = kmeans_plusplus(
        matrix.take(np.union1d(chosen, distinct)), num_clusters, random_state=_sklearn_seed(seed)
    )[0]
    return np.ascontiguousarray(centers, dtype=np.float32)


def _sklearn_seed(seed: int) -> int:
    """Return a seed in the range of scikit-learn's: as it is below 2**32, a hash of all its bits from there on."""
    return seed if seed < 1 << 32 else int(np.random.SeedSequence(seed).generate_state(1)[0])


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
