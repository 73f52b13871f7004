"""Cora, CiteSeer and PubMed from the raw Planetoid files, whose pickles are read without running any of their code."""

import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.reading import reading
from falcon_gnn.graph import Graph
from falcon_gnn.masks import mask_of_ids

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
NUM_VALIDATION = 500

_FIX = "Get the file again: it is one of the raw files of the Planetoid data sets."


class _ArrayUnpickler(pickle.Unpickler):
    """Rebuilds NumPy arrays, SciPy CSR matrices and plain containers; refuses to look up anything else."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream, encoding="latin1")
        self._allowed = _allowed_globals()

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the allowed constructors."""
        if f"{module}.{name}" not in self._allowed:
            msg = f"it asks for {module}.{name}, which no Planetoid file needs; it may be malicious"
            raise pickle.UnpicklingError(msg)
        return self._allowed[f"{module}.{name}"]


def _allowed_globals() -> dict[str, Callable[..., Any]]:
    from scipy.sparse import csr_matrix

    reconstruct = np.zeros(0).__reduce__()[0]
    assert callable(reconstruct)
    return {
        "numpy.core.multiarray._reconstruct": reconstruct,
        "numpy._core.multiarray._reconstruct": reconstruct,
        "numpy.ndarray": np.ndarray,
        "numpy.dtype": np.dtype,
        "scipy.sparse.csr.csr_matrix": csr_matrix,
        "scipy.sparse._csr.csr_matrix": csr_matrix,
        "collections.defaultdict": defaultdict,
        "__builtin__.list": list,
        "builtins.list": list,
    }


def file_names(name: str) -> tuple[str, ...]:
    """Return the raw files of ``"cora"``, ``"citeseer"`` or ``"pubmed"``."""
    return tuple(f"ind.{name}.{part}" for part in PARTS)


def read_planetoid(folder: Path, name: str) -> Graph:
    """Return a citation graph with its public split: 20 nodes per class, 500 for validation, 1,000 for test.

    Test nodes that the files leave out (CiteSeer has 15) are isolated nodes with zero features and no label (-1).

    Args:
        folder: Where the files are.
        name: ``"cora"``, ``"citeseer"`` or ``"pubmed"``.

    Raises:
        OptionError: If a file is damaged, or its pickle wants more than arrays.
    """
    parts = {part: _read_part(folder / f"ind.{name}.{part}") for part in PARTS}
    with reading(folder, f"the raw files of {name}", _FIX):
        return _assemble(parts)


def _read_part(path: Path) -> Any:
    with reading(path, "a raw Planetoid file", _FIX):
        if path.suffix == ".index":
            return np.loadtxt(path, dtype=np.int64, ndmin=1)
        with path.open("rb") as stream:
            return _ArrayUnpickler(stream).load()


def _assemble(parts: dict[str, Any]) -> Graph:
    num_nodes = len(parts["graph"])
    num_train = len(parts["y"])
    # Row i of allx and ally is node i; row i of tx and ty is node test.index[i].
    ids = np.concatenate([np.arange(parts["allx"].shape[0]), parts["test.index"]])
    y = np.full(num_nodes, -1, np.int64)
    y[ids] = np.concatenate([parts["ally"], parts["ty"]]).argmax(axis=1)
    return Graph.from_edges(
        _edge_index(parts["graph"]),
        num_nodes,
        warn_one_way="never",
        x=_features([parts["allx"], parts["tx"]], ids, num_nodes),
        y=y,
        train_mask=mask_of_ids("y", np.arange(num_train), num_nodes),
        val_mask=mask_of_ids("y", np.arange(num_train, num_train + NUM_VALIDATION), num_nodes),
        test_mask=mask_of_ids("test.index", parts["test.index"], num_nodes),
    )


def _features(matrices: list[Any], ids: NDArray[np.int64], num_nodes: int) -> Any:
    """Return the rows of some matrices at the places ``ids``, as a sparse matrix of ``num_nodes`` rows."""
    from scipy.sparse import csr_array, vstack

    for matrix in matrices:
        matrix.check_format(full_check=True)
    stacked = vstack(matrices).tocoo()
    values = stacked.data.astype(np.float32)
    rows = ids[stacked.row].astype(np.int32)
    return csr_array((values, (rows, stacked.col)), shape=(num_nodes, stacked.shape[1]))


def _edge_index(neighbors: dict[int, list[int]]) -> NDArray[np.int64]:
    source = np.repeat(np.fromiter(neighbors, np.int64, len(neighbors)), [len(row) for row in neighbors.values()])
    target = np.fromiter((v for row in neighbors.values() for v in row), np.int64, len(source))
    return np.stack([source, target])
