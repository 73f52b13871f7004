"""Synthetic graphs have the size, degrees and information they promise."""

import numpy as np
import pytest

from falcon_gnn.datasets import synthetic
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.synthetic import (
    SyntheticShape,
    block_graph,
    flickr_shape,
    power_law_graph,
    synthetic_graph,
    write_synthetic_folder,
)
from falcon_gnn.errors import OptionError


@pytest.mark.parametrize("exponent", [2.1, 2.5, None])
@pytest.mark.parametrize("size", [(10, 0), (12, 12), (40, 300), (2000, 9000)])
def test_a_graph_has_exactly_the_edges_asked_for(size, exponent):
    graph = power_law_graph(*size, exponent=exponent, num_classes=2)
    assert (graph.num_nodes, graph.num_edges) == size
    assert graph.cleaning.num_duplicates == graph.cleaning.num_self_loops == 0


def test_the_same_seed_gives_the_same_graph(assert_same):
    assert_same(power_law_graph(300, 900, seed=3), power_law_graph(300, 900, seed=3))
    assert not np.array_equal(power_law_graph(300, 900, seed=4).indices, power_law_graph(300, 900, seed=3).indices)


def test_degrees_follow_the_power_law():
    degrees = np.sort(power_law_graph(50_000, 500_000, exponent=2.5, homophily=0.0).degrees)[::-1]
    # The r-th largest degree falls as r^(-1/(exponent-1)) = r^(-2/3) behind the flattened head.
    slope = np.log(degrees[8000] / degrees[2000]) / np.log(8000 / 2000)
    assert slope == pytest.approx(-2 / 3, abs=0.08)
    assert degrees[0] < 2 * np.sqrt(2 * 500_000)


def test_even_degrees_have_no_hubs():
    assert block_graph(2000, 10_000).degrees.max() < 35


@pytest.mark.parametrize("homophily", [0.0, 0.6, 1.0])
def test_edges_join_classes_as_homophily_says(homophily):
    graph = power_law_graph(4000, 40_000, num_classes=5, homophily=homophily)
    source, target = graph.edge_index
    same = (graph.y[source] == graph.y[target]).mean()
    assert same == pytest.approx(homophily + (1 - homophily) / 5, abs=0.02)


def test_features_tell_of_the_class_and_node_ids_tell_nothing():
    graph = block_graph(3000, 6000, num_classes=4, signal=6.0)
    centers = np.stack([graph.x[graph.y == label].mean(axis=0) for label in range(4)])
    nearest = ((graph.x[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == graph.y).mean() > 0.9
    assert abs(np.corrcoef(np.arange(3000), graph.y)[0, 1]) < 0.1


def test_a_written_folder_is_made_in_chunks_and_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_CHUNK_EDGES", 1000)
    monkeypatch.setattr(synthetic, "_CHUNK_VALUES", 160)
    write_synthetic_folder(SyntheticShape(2000, 7500, num_features=4), tmp_path / "graph")
    graph = load_graph(tmp_path / "graph")
    lost = graph.cleaning.num_duplicates + graph.cleaning.num_self_loops
    assert graph.num_nodes == 2000
    assert 7000 < graph.num_edges <= 7500 - lost
    assert graph.x.std() > 0.5
    assert graph.train_mask.sum() == 1200


def test_the_flickr_shape_has_flickrs_sizes():
    shape = flickr_shape()
    assert (shape.num_nodes, shape.num_edges, shape.num_features, shape.num_classes) == (89_250, 449_878, 500, 7)


@pytest.mark.parametrize("wrong", [{"exponent": 2.0}, {"num_edges": 4000}, {"homophily": 1.5}, {"num_classes": 0}])
def test_impossible_shapes_are_refused(wrong):
    with pytest.raises(OptionError, match=f"{next(iter(wrong))} is out of the range"):
        synthetic_graph(SyntheticShape(**{"num_nodes": 100, "num_edges": 200, **wrong}))
