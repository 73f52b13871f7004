from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from falcon_gnn.errors import BudgetError, OptionError
from falcon_gnn.reduction.coarsening.config import CoarsenConfig
from falcon_gnn.reduction.config import CollapseConfig


def test_the_defaults_are_the_papers():
    config = CollapseConfig(node_budget=0.34).resolved()
    assert (config.centrality, config.num_clusters, config.gamma, config.scope) == ("eigenvector", 100, 0.5, None)
    assert (config.selection, config.order, config.merge, config.edge_weights) == ("lowest", "cluster", "hub", "none")
    assert (config.seed, config.num_samples, config.closeness_samples) == (0, 100, None)


@pytest.mark.parametrize(
    ("short", "full"),
    [("DC", "degree"), ("bc", "betweenness"), ("CC", "closeness"), ("PR", "pagerank"), ("EC", "eigenvector"),
     ("Random", "random")],
)  # fmt: skip
def test_a_centrality_may_be_named_as_in_the_paper(short, full):
    assert CollapseConfig(1, centrality=short).centrality == full


def test_a_misspelt_centrality_is_answered_with_the_nearest_name():
    with pytest.raises(OptionError, match=r"got 'eigenvecor'\. Did you mean 'eigenvector'"):
        CollapseConfig(1, centrality="eigenvecor")


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("scope", "val", "train, full, None"),
        ("selection", "highest", "lowest, stratified, random, herding, None"),
        ("order", "random", "cluster, global, None"),
        ("merge", "max", "hub, mean, drop, None"),
        ("edge_weights", "mean", "none, count, sum, None"),
        ("task", "ranking", "classes, multilabel, regression, None"),
        ("groups", "friends", "neighbors, alike"),
        ("cluster_on", "labels", "hops, teacher"),
    ],
)
def test_an_unknown_choice_is_refused_with_what_is_allowed_and_what_was_given(option, value, allowed):
    with pytest.raises(OptionError, match=f"{option} must be one of {allowed}(, None)?, got '{value}'"):
        CollapseConfig(1, **{option: value})


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_gamma_outside_0_to_1_is_refused(gamma):
    with pytest.raises(OptionError, match=r"gamma must lie in \[0, 1\].*got"):
        CollapseConfig(1, gamma=gamma)


@pytest.mark.parametrize("node_budget", [0, 0.0, -1, float("nan"), None, "5", True])
def test_a_budget_that_no_graph_can_meet_is_refused_at_once(node_budget):
    with pytest.raises(BudgetError, match="node_budget must be a positive int"):
        CollapseConfig(node_budget)


@pytest.mark.parametrize(
    ("option", "value"),
    [("num_clusters", 0), ("num_clusters", 2.5), ("seed", -1), ("num_classes", 0), ("num_samples", 0),
     ("num_samples", 1.0), ("closeness_samples", -3), ("num_clusters", True)],
)  # fmt: skip
def test_a_count_out_of_range_is_refused_with_the_least_value(option, value):
    with pytest.raises(OptionError, match=f"{option} must be a whole number of at least [01], got {value!r}"):
        CollapseConfig(1, **{option: value})


@pytest.mark.parametrize(
    "options",
    [{"groups": "alike"}, {"selection": "herding"}, {"selection": "random", "cluster_on": "teacher"}],
)
def test_no_hop_is_refused_where_hops_are_read(options):
    with pytest.raises(OptionError, match="num_hops must be a whole number of at least 1, got 0"):
        CollapseConfig(1, num_hops=0, **options)
    assert CollapseConfig(1, num_hops=0).num_hops == 0


@pytest.mark.parametrize("kind", [CollapseConfig, CoarsenConfig])
def test_numbers_of_numpy_become_pythons(kind):
    config = kind(np.int64(5), seed=np.int32(3))
    assert (config.node_budget, config.seed) == (5, 3)
    assert (type(config.node_budget), type(config.seed)) == (int, int)
    assert type(kind(np.float32(0.5)).node_budget) is float


def test_a_config_is_frozen():
    config = CollapseConfig(1)
    with pytest.raises(FrozenInstanceError):
        config.gamma = 0.1
