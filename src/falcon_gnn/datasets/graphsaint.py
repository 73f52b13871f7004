"""PPI and Flickr from the raw files that GraphSAGE and GraphSAINT published and PyG's data sets read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.archive import read_arrays
from falcon_gnn.datasets.reading import reading
from falcon_gnn.errors import GraphError
from falcon_gnn.graph import MASK_NAMES, Graph
from falcon_gnn.masks import mask_of_ids

PPI_PARTS = ("train", "valid", "test")
PPI_FILES = tuple(
    f"{part}_{name}" for part in PPI_PARTS for name in ("graph.json", "feats.npy", "labels.npy", "graph_id.npy")
)
FLICKR_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")

_FIX = "Get the raw files of the data set again."


def read_ppi(folder: Path) -> Graph:
    """Return the 24 protein graphs as one graph, with ``graph_id`` as a node attribute and the public split.

    Args:
        folder: Where ``PPI_FILES`` are; nodes are numbered from 0 in each of the three parts.
    """
    parts = [_read_ppi_part(folder, part) for part in PPI_PARTS]
    sizes = [len(part["x"]) for part in parts]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(len(parts)), sizes)
    return Graph.from_edges(
        np.concatenate([part["edge_index"] + start for part, start in zip(parts, starts, strict=False)], axis=1),
        int(starts[-1]),
        warn_one_way="never",
        x=np.concatenate([part["x"] for part in parts]),
        y=np.concatenate([part["y"] for part in parts]),
        node_attributes={"graph_id": np.concatenate([part["graph_id"] for part in parts])},
        **{name: owner == i for i, name in enumerate(MASK_NAMES)},
    )


def _read_ppi_part(folder: Path, part: str) -> dict[str, NDArray[Any]]:
    with reading(folder, f"the raw files of ppi ({part})", _FIX):
        arrays: dict[str, NDArray[Any]] = {
            "x": _load_array(folder / f"{part}_feats.npy").astype(np.float32),
            "y": _load_array(folder / f"{part}_labels.npy").astype(np.float32),
            "graph_id": _load_array(folder / f"{part}_graph_id.npy").astype(np.int64),
        }
        links = _load_json(folder / f"{part}_graph.json")["links"]
        ends = [(link["source"], link["target"]) for link in links]
        arrays["edge_index"] = np.array(ends, np.int64).reshape(-1, 2).T
        _check_ids(arrays["edge_index"], len(arrays["x"]), f"{part}_graph.json")
    return arrays


def read_flickr(folder: Path) -> Graph:
    """Return Flickr's images, linked where they share metadata, with the public split.

    Args:
        folder: Where ``FLICKR_FILES`` are.
    """
    from scipy.sparse import csr_array

    with reading(folder, "the raw files of flickr", _FIX):
        parts = read_arrays(folder / "adj_full.npz")
        shape = tuple(int(size) for size in parts["shape"])
        adjacency = csr_array(
            (np.ones(len(parts["indices"]), np.float32), parts["indices"], parts["indptr"]), shape=shape
        )
        adjacency.check_format(full_check=True)
        num_nodes = shape[0]
        y = np.full(num_nodes, -1, np.int64)
        for node, label in _load_json(folder / "class_map.json").items():
            y[int(node)] = label
        roles = _load_json(folder / "role.json")
        return Graph.from_scipy(
            adjacency,
            warn_one_way="never",
            x=_load_array(folder / "feats.npy").astype(np.float32),
            y=y,
            **{
                name: mask_of_ids(f"role.json, {key}", roles[key], num_nodes)
                for name, key in zip(MASK_NAMES, ("tr", "va", "te"), strict=True)
            },
        )


def _load_array(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, allow_pickle=False)
    return array


def _load_json(path: Path) -> Any:
    with path.open(encoding="utf-8") as stream:
        return json.load(stream)


def _check_ids(edge_index: NDArray[np.int64], num_nodes: int, name: str) -> None:
    if edge_index.size and (edge_index.min() < 0 or edge_index.max() >= num_nodes):
        msg = f"{name} has node ids outside [0, {num_nodes}), so it does not belong to the feature file beside it."
        raise GraphError(msg)
