"""Graphs from and to the objects of other libraries: PyTorch Geometric, NetworkX and DGL; one module each."""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.interop.dgl import from_dgl, to_dgl
    from falcon_gnn.interop.networkx import from_networkx, to_networkx
    from falcon_gnn.interop.pyg import FalconCollapse, from_pyg, to_pyg
    from falcon_gnn.interop.pyg_files import read_pt

__all__ = ["FalconCollapse", "from_dgl", "from_networkx", "from_pyg", "read_pt", "to_dgl", "to_networkx", "to_pyg"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(["FalconCollapse", "from_pyg", "to_pyg"], "falcon_gnn.interop.pyg"),
        "read_pt": "falcon_gnn.interop.pyg_files",
        **dict.fromkeys(["from_networkx", "to_networkx"], "falcon_gnn.interop.networkx"),
        **dict.fromkeys(["from_dgl", "to_dgl"], "falcon_gnn.interop.dgl"),
    },
)
