"""The collapse: centrality, feature-label clusters, budgets, contraction, report."""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.reduction.config import CollapseConfig
    from falcon_gnn.reduction.falcon import collapse
    from falcon_gnn.reduction.report import CollapseReport
    from falcon_gnn.reduction.result import CollapseResult

__all__ = ["CollapseConfig", "CollapseReport", "CollapseResult", "collapse"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CollapseConfig": "falcon_gnn.reduction.config",
        "CollapseReport": "falcon_gnn.reduction.report",
        "CollapseResult": "falcon_gnn.reduction.result",
        "collapse": "falcon_gnn.reduction.falcon",
    },
)
