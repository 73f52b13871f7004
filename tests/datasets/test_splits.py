"""The three kinds of split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falcon_gnn.datasets.splits import SplitOptions, apply_split, random_masks
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph

SHARES = (0.6, 0.2, 0.2)


def _graph(**arrays):
    return Graph.from_edges([[0], [1]], 10, **arrays)


@given(st.integers(5, 300), st.integers(1, 6), st.integers(0, 5))
def test_a_random_split_has_its_shares_in_every_class(num_nodes, num_classes, seed):
    y = np.random.default_rng(seed).integers(0, num_classes, num_nodes)
    masks = random_masks(num_nodes, y, SHARES, seed)
    parts = np.stack(list(masks.values()))
    assert (parts.sum(axis=0) == 1).all()
    for part, share in zip(parts, SHARES, strict=True):
        assert abs(part.sum() - share * num_nodes) <= 1
        for label in range(num_classes):
            assert abs((part & (y == label)).sum() - share * (y == label).sum()) <= 3


def test_a_random_split_follows_its_seed():
    y = np.arange(50) % 3
    first, again, other = (random_masks(50, y, SHARES, seed)["train_mask"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_unlabelled_nodes_join_no_part():
    y = np.array([0, 1, -1, 0, 1, -1, 0, 1, 0, 1])
    parts = np.stack(list(random_masks(10, y, SHARES, 0).values()))
    assert parts.any(axis=0).tolist() == (y >= 0).tolist()


def test_multilabel_and_unlabelled_graphs_can_be_split():
    assert random_masks(10, np.ones((10, 4), np.uint8), SHARES, 0)["train_mask"].sum() == 6
    assert random_masks(10, None, SHARES, 0)["test_mask"].sum() == 2


def test_a_share_of_zero_makes_no_mask_and_shares_may_leave_nodes_over():
    masks = random_masks(10, None, (0.5, 0.3, 0.0), 0)
    assert masks["test_mask"] is None
    assert [int(masks[name].sum()) for name in ("train_mask", "val_mask")] == [5, 3]


def test_full_trains_on_all_that_is_not_held_out():
    val, test = np.arange(10) == 3, np.arange(10) > 7
    graph = apply_split(_graph(train_mask=np.arange(10) == 0, val_mask=val, test_mask=test), SplitOptions("full"))
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 1, 2, 4, 5, 6, 7]


def test_no_choice_keeps_the_masks_or_their_absence():
    assert apply_split(_graph(), SplitOptions()).train_mask is None
    graph = _graph(train_mask=np.arange(10) == 0)
    assert apply_split(graph, SplitOptions()) is graph


@pytest.mark.parametrize("split", ["public", "full"])
def test_a_split_that_the_source_lacks_is_refused(split):
    with pytest.raises(OptionError, match=f"split='{split}' needs .* Use split='random'"):
        apply_split(_graph(), SplitOptions(split))


def test_full_without_a_node_to_train_on_is_refused():
    with pytest.raises(OptionError, match=r"needs nodes that are not held out, and .* Use split='random'"):
        apply_split(_graph(val_mask=np.ones(10, np.bool_)), SplitOptions("full"))


def test_unknown_splits_and_impossible_shares_are_refused():
    with pytest.raises(OptionError, match="split must be one of public, full, random"):
        SplitOptions("official")
    with pytest.raises(OptionError, match="split_shares must be three shares"):
        SplitOptions("random", (0.9, 0.2, 0.2))
    with pytest.raises(OptionError, match=r"split_shares are drawn by split='random', got .* with split='full'"):
        SplitOptions("full", (0.5, 0.25, 0.25))


def test_a_graph_without_labels_known_cannot_be_split():
    with pytest.raises(OptionError, match="at least one labelled node"):
        random_masks(3, np.array([-1, -1, -1]), SHARES, 0)


def test_the_papers_training_nodes_on_cora_and_pubmed(shared_dataset):
    from falcon_gnn.datasets.load import load_graph

    assert load_graph(shared_dataset("cora"), split="full").train_mask.sum() == 1_208
    assert load_graph(shared_dataset("pubmed"), split="full").train_mask.sum() == 18_217
