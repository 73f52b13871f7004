"""Graphs in a folder of `.npy` files, which are memory-mapped: features stay on disk until they are used."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.archive import check_storable
from falcon_gnn.datasets.foreign import as_layout
from falcon_gnn.datasets.layout import edges_to_blocks, graph_from_arrays, nodes_to_arrays
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.datasets.reading import reading
from falcon_gnn.files import replacing_folder, write_blocks
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
        GraphError: If an array is missing or of a wrong shape.
        OptionError: If a file is damaged.
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
        for name, blocks in edges_to_blocks(graph).items():
            with (folder / f"{name}.npy").open("wb") as file:
                write_blocks(file, blocks)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
