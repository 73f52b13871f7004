"""Reports of collapses that were never run: plain data, every part of it at the test's will."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from falcon_gnn.adjacency import EdgeCleaning
from falcon_gnn.reduction.report import CollapseReport, FeatureSummary, GraphSummary, LabelSummary


def _label_summary(num_labels: int) -> LabelSummary:
    before = [(label + 1) / (num_labels + 1) for label in range(num_labels)]
    after = [share + 0.01 * (-1) ** label for label, share in enumerate(before)]
    return LabelSummary("classes" if num_labels < 100 else "multilabel", before, after, 0.01, 0.05)


@pytest.fixture(scope="session")
def label_summary() -> Callable[[int], LabelSummary]:
    return _label_summary


@pytest.fixture(scope="session")
def make_report() -> Callable[..., CollapseReport]:
    """Return a report of 1,000 nodes collapsed to 300; keywords replace its parts."""
    report = CollapseReport(
        config={"node_budget": 0.3, "centrality": "eigenvector", "scope": None, "selection": "lowest", "merge": "hub"},
        scope="train",
        before=GraphSummary(1000, 4000, 12, 8, 8.0, 6.5, 90, [8, 100, 200, 400, 200, 80, 12]),
        after=GraphSummary(300, 1500, 3, 0, 10.0, 8.0, 120, [0, 20, 50, 100, 90, 30, 10]),
        num_dropped=50,
        labels=_label_summary(5),
        features=FeatureSummary([0.1, -0.25, 0.0], 0.117, 0.25),
        cluster_sizes=[600, 400],
        cluster_kept=[180, 120],
        kept_by_rank=[0, 20, 80, 200],
        nodes_by_rank=[250, 250, 250, 250],
        cleaning=EdgeCleaning(num_self_loops=7, num_one_way=4000),
        seconds={"centrality": 0.25, "clustering": 1.5},
        peak_memory_bytes=300 * 2**20,
    )

    def make(**parts: Any) -> CollapseReport:
        return replace(report, **parts)

    return make


@pytest.fixture(scope="session")
def one_node() -> GraphSummary:
    return GraphSummary(1, 0, 1, 1, 0.0, 0.0, 0, [1])
