"""Graphs in a folder of `.npy` files, which are memory-mapped: features stay on disk until they are used."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.adjacency import CHUNK_EDGES
from falcon_gnn.datasets.archive import check_storable
from falcon_gnn.datasets.foreign import as_layout
from falcon_gnn.datasets.layout import graph_from_arrays, nodes_to_arrays
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.datasets.reading import reading
from falcon_gnn.files import replacing_folder
from falcon_gnn.graph import Graph

_FIX = (
    "Write the folder again with falcon_gnn.datasets.folders.write_folder or numpy.save; docs/data.md names the files."
)


class _MappedFolder(Mapping[str, NDArray[Any]]):
    """The `.npy` files of a folder, each mapped when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._paths = {path.stem: path for path in sorted(folder.glob("*.npy"))}

    def __getitem__(self, name: str) -> NDArray[Any]:
        path = self._paths[name]
        with reading(path, "an .npy array", _FIX):
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
            return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def read_folder(path: str | Path, *, split_index: int | None = None, options: LoadOptions | None = None) -> Graph:
    """Return the graph stored in a folder of `.npy` files.

    The edges are streamed into the adjacency; ``x`` and every other array remain memory-mapped.

    Args:
        path: A folder with ``edge_index.npy`` (or ``edges.npy``) and the other arrays that
            :mod:`falcon_gnn.datasets.layout` names, one file each.
        split_index: Which split, where the folder holds several.
        options: What labels and features are called, if otherwise than usual.

    Raises:
        GraphError: If a file is missing, damaged or of a wrong shape.
    """
    folder = Path(path)
    with reading(folder, "a folder of .npy files", _FIX):
        return graph_from_arrays(as_layout(_MappedFolder(folder), options), split_index)


def write_folder(graph: Graph, path: str | Path) -> None:
    """Write a graph as a folder of `.npy` files, edges block by block; an old folder of that name is replaced.

    Args:
        graph: The graph.
        path: The folder.

    Raises:
        GraphError: If a node attribute cannot be stored without pickle.
    """
    arrays = nodes_to_arrays(graph)
    check_storable(arrays)
    with replacing_folder(path) as folder:
        pairs = (pair for pair, _ in _edge_blocks(graph))
        _save_blocks(folder / "edge_index.npy", (2, graph.num_edges), graph.indices.dtype, pairs)
        if graph.edge_weight is not None:
            weights = (weight for _, weight in _edge_blocks(graph) if weight is not None)
            _save_blocks(folder / "edge_weight.npy", (graph.num_edges,), graph.edge_weight.dtype, weights)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)


def _edge_blocks(graph: Graph) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
    """Yield each edge once, u < v, shape ``(block, 2)``, and the weights, in blocks of whole rows."""
    bounds = np.searchsorted(graph.indptr, np.arange(0, len(graph.indices), CHUNK_EDGES))
    for start, stop in pairwise([*np.unique(bounds).tolist(), graph.num_nodes]):
        entries = slice(graph.indptr[start], graph.indptr[stop])
        target = graph.indices[entries]
        source = np.repeat(np.arange(start, stop, dtype=target.dtype), np.diff(graph.indptr[start : stop + 1]))
        once = source < target
        weight = None if graph.edge_weight is None else graph.edge_weight[entries][once]
        yield np.stack([source[once], target[once]], axis=1), weight


def _save_blocks(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Iterator[NDArray[Any]]) -> None:
    """Write an array whose columns come in blocks, as one ``.npy`` file."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": True, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            block.tofile(file)
