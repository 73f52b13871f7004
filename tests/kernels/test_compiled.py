"""How many kernels a process had to compile."""

import subprocess
import sys

import pytest

_COUNT = """
import numpy as np
from falcon_gnn._kernels import num_compiled
assert num_compiled() == 0
from falcon_gnn import Graph
Graph.from_edges(np.array([[0, 1], [1, 2]]), num_nodes=4)
print(num_compiled())
"""


def test_a_kernel_is_compiled_in_the_first_process_only(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    counts = [int(subprocess.check_output([sys.executable, "-c", _COUNT])) for _ in range(2)]
    assert counts[0] > 0
    assert counts[1] == 0
