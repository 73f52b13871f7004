"""The same input, options and seed give the same bits, whatever the number of threads and in every process.

pytorch_geometric 92, 446, 2801; dgl 3302.
"""

import os
import subprocess
import sys

import pytest

_DIGESTS = """
import hashlib, sys
import numba, numpy as np, scipy.sparse as sp
from falcon_gnn.graph import Graph
from falcon_gnn.reduction import clustering, matrix
from falcon_gnn.reduction.falcon import collapse

def graph(kind):
    rng = np.random.default_rng(0)
    edges = np.concatenate([rng.integers(0, 3000, (2, 9000)), rng.integers(0, 300, (2, 9000))], axis=1)
    edges = np.unique(np.sort(edges, axis=0), axis=1)
    x = rng.normal(size=(3000, 40))
    x = sp.csr_array(np.where(x < 1, 0, x)) if kind == "sparse" else x
    return Graph.from_edges(edges, 3000, x=x, y=rng.integers(0, 5, 3000), edge_weight=rng.random(edges.shape[1]))

def arrays(result):
    reduced = result.graph
    yield from (result.assignment, result.rank, result.clusters, result.centrality, result.removal_order)
    yield from (reduced.indptr, reduced.indices, reduced.edge_weight, reduced.y)
    yield reduced.x.data if sp.issparse(reduced.x) else reduced.x

CASES = [("EC", "lowest"), ("PR", "stratified"), ("BC", "random"), ("CC", "lowest"), ("DC", "lowest")]

def digest(kind):
    if kind == "mini-batches":
        clustering.MAX_WHOLE_VALUES, matrix.BLOCK_VALUES = 0, 20_000
    sha = hashlib.sha256()
    for centrality, selection in CASES if kind == "dense" else CASES[:1]:
        result = collapse(
            graph(kind), node_budget=0.3, centrality=centrality, selection=selection, num_clusters=20, merge="mean",
            edge_weights="sum", seed=4,
        )
        for array in arrays(result):
            sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()

def digest_of_ties():
    # Between 0/1 rows distances tie, so that a last bit of a center decides.
    sha = hashlib.sha256()
    for seed in range(6):
        x = (np.random.default_rng(seed).random((8000, 30)) < 0.3).astype(np.float32)
        sha.update(clustering.cluster_nodes(matrix.build_matrix(x, None, 0.5), 8000, 50, seed).tobytes())
    return sha.hexdigest()

numba.set_num_threads(int(sys.argv[1]))
print(digest_of_ties(), [digest(kind) for kind in ("dense", "sparse", "mini-batches")])
"""


def _digest(kernel_threads, other_threads):
    variables = {name: str(other_threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = os.environ | variables | {"NUMBA_NUM_THREADS": "2", "PYTHONHASHSEED": str(other_threads)}
    done = subprocess.run(
        [sys.executable, "-c", _DIGESTS, str(kernel_threads)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_the_collapse_is_bit_identical_at_one_and_two_threads_and_in_two_processes():
    alone = _digest(1, 1)
    assert len(set(alone.split())) == 4
    assert _digest(2, 2) == alone
    assert _digest(2, 1) == alone


_LIMITS = """
import numpy as np
from threadpoolctl import threadpool_info
from falcon_gnn.reduction import clustering, matrix

def show_limits(*given):
    labels = lloyd(*given)
    print(max(library["num_threads"] for library in threadpool_info()))
    return labels

lloyd, clustering._lloyd = clustering._lloyd, show_limits
clustering.cluster_nodes(matrix.build_matrix(np.random.default_rng(0).random((900, 4)), None, 0.5), 900, 5, 0)
"""


def test_the_first_clustering_of_a_process_runs_on_one_thread_too():
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", _LIMITS], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1"]
