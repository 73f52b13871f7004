"""Collapse a graph that is too big to train on, train memory-lean GNNs on it, and map every node back.

    import falcon_gnn as fg

    graph = fg.load_graph("digits")
    result = fg.collapse(graph, fg.CollapseConfig(node_budget=0.34))
    result.graph, result.assignment, result.report

Everything is imported on first use: ``import falcon_gnn`` loads neither torch nor scikit-learn.
"""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.datasets import load_graph
    from falcon_gnn.errors import (
        BudgetError,
        ConvergenceError,
        FalconError,
        FalconWarning,
        GraphError,
        MissingDependencyError,
        OptionError,
    )
    from falcon_gnn.graph import Graph
    from falcon_gnn.interop.dgl import from_dgl, to_dgl
    from falcon_gnn.interop.networkx import from_networkx, to_networkx
    from falcon_gnn.interop.pyg import from_pyg, to_pyg
    from falcon_gnn.reduction import CollapseConfig, CollapseReport, CollapseResult, collapse

__version__ = "0.1.0"

_SOURCES = {
    **dict.fromkeys(
        [
            "BudgetError",
            "ConvergenceError",
            "FalconError",
            "FalconWarning",
            "GraphError",
            "MissingDependencyError",
            "OptionError",
        ],
        "falcon_gnn.errors",
    ),
    "Graph": "falcon_gnn.graph",
    "load_graph": "falcon_gnn.datasets",
    **dict.fromkeys(["CollapseConfig", "CollapseReport", "CollapseResult", "collapse"], "falcon_gnn.reduction"),
    **dict.fromkeys(["from_pyg", "to_pyg"], "falcon_gnn.interop.pyg"),
    **dict.fromkeys(["from_networkx", "to_networkx"], "falcon_gnn.interop.networkx"),
    **dict.fromkeys(["from_dgl", "to_dgl"], "falcon_gnn.interop.dgl"),
}

__all__ = [
    "BudgetError",
    "CollapseConfig",
    "CollapseReport",
    "CollapseResult",
    "ConvergenceError",
    "FalconError",
    "FalconWarning",
    "Graph",
    "GraphError",
    "MissingDependencyError",
    "OptionError",
    "collapse",
    "from_dgl",
    "from_networkx",
    "from_pyg",
    "load_graph",
    "to_dgl",
    "to_networkx",
    "to_pyg",
]

__getattr__, __dir__ = lazy_exports(__name__, _SOURCES)
