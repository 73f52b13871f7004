"""Every real graph at hand collapses, by the paper and by groups of alike nodes."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from falcon_gnn.datasets.load import load_graph
from falcon_gnn.errors import FalconWarning
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse

_NAMES = (
    "amazon_computers", "amazon_photo", "blogcatalog_asu", "citeseer", "coauthor_cs", "cora", "dblp_citationfull",
    "flickr_attr", "het_chameleon_filtered", "het_minesweeper", "het_tolokers", "organsmnist_val", "ppi", "pubmed",
    "twitch_de",
)  # fmt: skip


@pytest.mark.parametrize("name", _NAMES)
def test_a_real_graph_meets_its_budget_and_maps_back(name: str, shared_dataset: Callable[[str], Path]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FalconWarning)
        graph = load_graph(shared_dataset(name))
        for options in ({"centrality": "degree"}, {"groups": "alike"}):
            result = collapse(graph, CollapseConfig(0.05, num_clusters=20, **options))  # type: ignore[arg-type]
            in_scope = result.clusters >= 0
            budget = int(0.05 * in_scope.sum() + 0.5)
            assert len(result.kept) == result.graph.num_nodes == budget
            assert np.array_equal(result.assignment[result.kept], np.arange(budget))
            assert (result.assignment[~in_scope] == -1).all()
            assert np.count_nonzero(result.assignment[in_scope] < 0) == result.report.num_dropped
