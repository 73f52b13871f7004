"""Who waits for whom when several threads call kernels."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest

from falcon_gnn._kernels import adjacency, centrality, compiling, components
from falcon_gnn._kernels.compiling import Kernel
from falcon_gnn.threads import COMPUTING

INDPTR, INDICES = np.array([0, 1, 2]), np.array([1, 0])


@pytest.mark.parametrize(
    ("kernel", "arguments", "waits"),
    [
        (adjacency.find_bad_row, (), True),
        (centrality.add_distances, (np.array([0]), np.zeros(2, np.int64), np.zeros(2, np.int64)), True),
        (components.label_components, (), False),
    ],
)
def test_a_kernel_with_threads_waits_for_its_turn(kernel: Kernel, arguments: tuple[object, ...], waits: bool) -> None:
    is_done = threading.Event()

    def call() -> None:
        kernel(INDPTR, INDICES, *arguments)
        is_done.set()

    kernel(INDPTR, INDICES, *arguments)
    with COMPUTING:
        thread = threading.Thread(target=call)
        thread.start()
        assert is_done.wait(0.2 if waits else 30) != waits
    thread.join(30)
    assert is_done.is_set()


def test_no_kernel_is_made_by_a_decorator_of_numba() -> None:
    folder = Path(compiling.__file__).parent
    made = [
        path.name
        for path in folder.glob("*.py")
        if re.search(r"\b(n?jit|vectorize)\b", path.read_text(encoding="utf-8"))
    ]
    assert made == ["compiling.py"]
