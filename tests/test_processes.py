"""Threads and forked processes, with each of Numba's threading layers; in processes of their own."""

import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)

SCRIPT = """
import json, multiprocessing, os, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import falcon_gnn as fg
from threadpoolctl import threadpool_info
from falcon_gnn.threads import COMPUTING, one_thread

rng = np.random.default_rng(0)
graph = fg.Graph.from_edges(rng.integers(0, 300, (2, 1500)), 300, x=rng.random((300, 8)), y=rng.integers(0, 3, 300))

def collapse(seed):
    by_rank = fg.collapse(graph, node_budget=0.2, centrality="closeness", num_clusters=5, seed=seed)
    alike = fg.collapse(graph, node_budget=0.2, groups="alike", seed=seed)
    return by_rank.assignment.tolist(), alike.assignment.tolist()

def in_child(work):
    child = os.fork()
    if child == 0:
        is_right = False
        try:
            is_right = work()
        finally:
            os._exit(0 if is_right else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def limits():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

def cluster():
    with one_thread():
        inside.set()
        time.sleep(0.2)

want = [collapse(seed) for seed in range(2)]
found = {}
with ThreadPoolExecutor(4) as pool:
    found["threads"] = list(pool.map(collapse, [0, 1] * 2)) == want * 2

found["child of a child"] = in_child(lambda: in_child(lambda: collapse(0) == want[0]))

before, inside = limits(), threading.Event()
threading.Thread(target=cluster).start()
inside.wait()
found["amid K-means"] = in_child(lambda: COMPUTING.acquire(timeout=20) and limits() == before)

pool = multiprocessing.get_context("fork").Pool(2)
found["pool"] = pool.map_async(collapse, range(2)).get(timeout=300) == want
pool.terminate()
"""
LOADER = """
from torch.utils.data import DataLoader
class Reduced:
    def __len__(self):
        return 4
    def __getitem__(self, seed):
        return [graph.subgraph(np.arange(seed, 100)).num_edges, sum(want[seed % 2][0]), sum(collapse(seed % 2)[0])]
expected = [Reduced()[seed] for seed in range(4)]
loader = DataLoader(Reduced(), batch_size=None, num_workers=2, multiprocessing_context="fork")
found["loader"] = list(loader) == expected
"""
TELL = """
print(json.dumps(found))
"""


def run(script: str, layer: str) -> Any:
    """Return what a script finds, with two threads of a layer."""
    settings = {"NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script + TELL],
        env={**os.environ, **settings}, capture_output=True, text=True, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=["omp", "workqueue", "tbb"])
def found(request: pytest.FixtureRequest) -> Any:
    """What threads and children find, with each of Numba's threading layers that is installed."""
    if request.param != "workqueue":
        pytest.importorskip(f"numba.np.ufunc.{request.param}pool", exc_type=ImportError)
    # Loading torch takes longer than all the rest; what its workers do is a fork, which the others look at too.
    has_loader = request.param == "omp" and importlib.util.find_spec("torch") is not None
    return run(SCRIPT + LOADER if has_loader else SCRIPT, request.param)


def test_several_threads_collapse_at_once(found: Any) -> None:
    assert found["threads"]


def test_a_forked_pool_works_after_a_collapse(found: Any) -> None:
    assert found["pool"]


def test_the_child_of_a_child_works(found: Any) -> None:
    assert found["child of a child"]


def test_a_fork_amid_the_k_means_of_another_thread_inherits_neither_lock_nor_limit(found: Any) -> None:
    assert found["amid K-means"]


def test_the_workers_of_a_data_loader_work_after_a_collapse(found: Any) -> None:
    if "loader" not in found:
        pytest.skip("tried with torch and Numba's own choice of a layer, omp")
    assert found["loader"]
