"""Graphs from names, files and formulas: :func:`load_graph` and what it is made of."""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.datasets.archive import read_npz, write_npz
    from falcon_gnn.datasets.folders import read_folder, write_folder
    from falcon_gnn.datasets.load import load_graph
    from falcon_gnn.datasets.named import dataset_names
    from falcon_gnn.datasets.similarity import cosine_edges
    from falcon_gnn.datasets.synthetic import (
        SyntheticShape,
        block_graph,
        flickr_shape,
        power_law_graph,
        synthetic_graph,
        write_synthetic_folder,
    )
    from falcon_gnn.datasets.tables import TableFiles, read_tables

__all__ = [
    "SyntheticShape",
    "TableFiles",
    "block_graph",
    "cosine_edges",
    "dataset_names",
    "flickr_shape",
    "load_graph",
    "power_law_graph",
    "read_folder",
    "read_npz",
    "read_tables",
    "synthetic_graph",
    "write_folder",
    "write_npz",
    "write_synthetic_folder",
]

_SYNTHETIC = (
    "SyntheticShape",
    "block_graph",
    "flickr_shape",
    "power_law_graph",
    "synthetic_graph",
    "write_synthetic_folder",
)

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "load_graph": "falcon_gnn.datasets.load",
        "dataset_names": "falcon_gnn.datasets.named",
        **dict.fromkeys(["read_npz", "write_npz"], "falcon_gnn.datasets.archive"),
        **dict.fromkeys(["read_folder", "write_folder"], "falcon_gnn.datasets.folders"),
        **dict.fromkeys(["TableFiles", "read_tables"], "falcon_gnn.datasets.tables"),
        "cosine_edges": "falcon_gnn.datasets.similarity",
        **dict.fromkeys(_SYNTHETIC, "falcon_gnn.datasets.synthetic"),
    },
)
