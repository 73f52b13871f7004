"""The collapse as a PyG transform."""

import copy
import inspect
import pickle
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.transforms import Compose, NormalizeFeatures, ToSparseTensor

from falcon_gnn.errors import BudgetError, FalconWarning, OptionError
from falcon_gnn.interop.pyg import FalconCollapse, from_pyg
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse


def _data(num_nodes=30, num_edges=60, seed=0, **more):
    rng = np.random.default_rng(seed)
    pairs = np.unique(np.sort(rng.integers(0, num_nodes, (4 * num_edges, 2)), axis=1), axis=0)
    pairs = rng.permutation(pairs[pairs[:, 0] < pairs[:, 1]])[: num_edges // 2]
    edge_index = torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]).T.copy())
    node_id = torch.arange(num_nodes)
    train_mask = node_id % 3 < 2
    return Data(
        x=torch.stack([node_id.float(), torch.ones(num_nodes)], dim=1),
        edge_index=edge_index,
        y=node_id % 4,
        train_mask=train_mask,
        val_mask=~train_mask,
        node_id=node_id,
        name=[f"n{i}" for i in range(num_nodes)],
        title="a graph",
        **more,
    )


def _assert_aligned(out, data):
    kept = out.falcon_kept
    assert out.num_nodes == len(kept)
    for key in ("x", "y", "node_id", "train_mask"):
        assert torch.equal(out[key], data[key][kept]), key
    assert out.name == [f"n{i}" for i in kept.tolist()]
    assert out.title == "a graph"


def _assert_unchanged(data, before):
    assert data.keys() == before.keys()
    for key in before.keys():  # noqa: SIM118
        same = torch.equal if isinstance(data[key], torch.Tensor) else lambda a, b: a == b
        assert same(data[key], before[key]), key


@pytest.mark.parametrize("scope", ["train", "full"])
@pytest.mark.parametrize("num_nodes", [30, 60])  # 60: as many entries in edge_index as nodes
def test_every_node_level_attribute_follows_the_survivors(scope, num_nodes):
    data = _data(num_nodes, 60)
    before = copy.deepcopy(data)
    out = FalconCollapse(node_budget=0.5, scope=scope, num_clusters=3, node_attrs=["name"])(data)
    _assert_aligned(out, data)
    _assert_unchanged(data, before)
    assert out.validate()


def test_the_result_is_that_of_collapse():
    data = _data()
    config = CollapseConfig(node_budget=8, scope="full", num_clusters=2, centrality="degree")
    result = collapse(from_pyg(data), config)
    out = FalconCollapse(config)(data)
    assert out.edge_index.tolist() == result.graph.edge_index.tolist()
    assert out.falcon_assignment.tolist() == result.assignment.tolist()
    assert out.falcon_kept.tolist() == result.kept.tolist()


def test_the_training_scope_leaves_training_nodes_only():
    data = _data()
    out = data.falcon_collapse(node_budget=0.5, num_clusters=3)
    assert data.train_mask[out.falcon_kept].all()
    assert out.train_mask.all()
    assert "val_mask" not in out


def test_it_composes_with_other_transforms():
    out = Compose([NormalizeFeatures(), FalconCollapse(node_budget=8, num_clusters=3, scope="full"), ToSparseTensor()])(
        _data()
    )
    assert out.x.shape == (8, 2)
    assert out.adj_t.shape == (8, 8)


def test_two_collapses_compose_their_maps():
    data = _data()
    out = Compose(
        [
            FalconCollapse(node_budget=15, num_clusters=3, scope="full"),
            FalconCollapse(node_budget=6, num_clusters=3, scope="full"),
        ]
    )(data)
    _assert_aligned(out, data)
    assert out.falcon_assignment.shape == (30,)
    assert out.falcon_assignment[out.falcon_kept].tolist() == list(range(6))


def test_its_arguments_are_shown_and_survive_pickling():
    transform = FalconCollapse(node_budget=0.34, centrality="PR", gamma=0.4, protect_attr="val_mask")
    text = "FalconCollapse(node_budget=0.34, centrality='pagerank', gamma=0.4, protect_attr='val_mask')"
    assert repr(transform) == text
    assert repr(pickle.loads(pickle.dumps(transform))) == text


class _OneGraph(InMemoryDataset):
    def __init__(self, root, **options):
        super().__init__(root, **options)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self):
        return ["data.pt"]

    def process(self):
        self.save([self.pre_transform(_data())], self.processed_paths[0])


@pytest.mark.filterwarnings("error")
def test_it_works_as_pre_transform_and_is_read_again_from_the_cache(tmp_path):
    options = {"node_budget": 8, "num_clusters": 3, "scope": "full"}
    for transform in (FalconCollapse(**options), FalconCollapse(CollapseConfig(**options))):
        data = _OneGraph(tmp_path, pre_transform=transform)[0]
        _assert_aligned(data, _data())


def test_pyg_tells_when_its_cache_was_made_with_other_options(tmp_path):
    first, second = (FalconCollapse(node_budget=n, num_clusters=3, scope="full") for n in (8, 5))
    assert _OneGraph(tmp_path, pre_transform=first)[0].num_nodes == 8
    with pytest.warns(UserWarning, match="`pre_transform` argument differs"):
        assert _OneGraph(tmp_path, pre_transform=second)[0].num_nodes == 8
    again = _OneGraph(tmp_path, pre_transform=second, force_reload=True)[0]
    assert again.num_nodes == 5
    _assert_aligned(again, _data())


OTHER = {
    "node_budget": 9, "centrality": "degree", "num_clusters": 7, "gamma": 0.4, "scope": "full", "selection": "random",
    "order": "global", "merge": "mean", "edge_weights": "count", "seed": 1, "task": "classes", "num_classes": 9,
    "num_samples": 9, "closeness_samples": 9, "groups": "alike", "num_hops": 3, "cluster_on": "teacher",
    "soft_labels": 0.3,
    "split_index": 1, "centrality_attr": "score", "clusters_attr": "group", "protect_attr": "val_mask",
    "node_attrs": ("name",), "edge_attrs": ("name",),
}  # fmt: skip


def test_every_option_shows_in_the_text_by_which_pyg_knows_its_cache():
    known = {entry.name for entry in fields(CollapseConfig)} | set(inspect.signature(FalconCollapse).parameters)
    assert known - {"config", "options"} == set(OTHER)
    base = {"node_budget": 8}
    texts = {repr(FalconCollapse(**base))}
    for name, value in OTHER.items():
        needed = {"groups": "alike"} if name == "cluster_on" else {}
        texts.add(repr(FalconCollapse(**{**base, **needed, name: value})))
    assert len(texts) == 1 + len(OTHER)
    assert repr(FalconCollapse(node_budget=np.int64(8))) == repr(FalconCollapse(node_budget=8))


def test_scores_clusters_and_protected_nodes_come_from_the_data():
    data = _data(score=torch.arange(30.0), group=torch.zeros(30, dtype=torch.long))
    options = {"centrality_attr": "score", "clusters_attr": "group"}
    assert FalconCollapse(node_budget=5, scope="full", **options)(data).falcon_kept.tolist() == list(range(25, 30))
    keep = FalconCollapse(node_budget=12, scope="full", protect_attr="val_mask", **options)(data).falcon_kept
    assert set(np.flatnonzero(data.val_mask.numpy())) <= set(keep.tolist())


@pytest.mark.parametrize(("num_splits", "split_index"), [(1, None), (2, None), (2, 1)])
def test_a_mask_of_several_splits_protects_the_nodes_of_one(num_splits, split_index):
    data = _data()
    masks = torch.stack([data.train_mask, ~data.train_mask], dim=1)[:, :num_splits]
    data.train_mask = masks
    del data.val_mask
    options = {"scope": "full", "num_clusters": 1, "split_index": split_index}
    out = FalconCollapse(node_budget=22, protect_attr="train_mask", **options)(data)
    assert set(masks[:, split_index or 0].nonzero().flatten().tolist()) <= set(out.falcon_kept.tolist())


def test_a_split_that_a_protecting_mask_lacks_is_refused():
    data = _data(hubs=torch.ones(30, 2, dtype=torch.bool))
    data.train_mask = data.train_mask[:, None].repeat(1, 3)
    del data.val_mask
    with pytest.raises(OptionError, match=r"split_index must be in \[0, 2\), the splits of hubs, got 2"):
        FalconCollapse(node_budget=22, scope="full", protect_attr="hubs", split_index=2)(data)


@pytest.mark.parametrize("split_index", ["1", 1.0, True, -1])
def test_a_split_index_that_is_no_whole_number_is_refused(split_index):
    with pytest.raises(OptionError, match="split_index must be a whole number of at least 0 or None, got"):
        FalconCollapse(node_budget=5, split_index=split_index)


def test_an_attribute_that_is_missing_is_named():
    with pytest.raises(OptionError, match="data must have the attribute 'score'"):
        FalconCollapse(node_budget=5, centrality_attr="score")(_data())


@pytest.mark.parametrize("options", [{}, {"node_budget": 5, "speed": 9}])
def test_wrong_options_are_named(options):
    with pytest.raises((BudgetError, OptionError), match=r"FalconCollapse\(\) takes the options|node_budget is needed"):
        FalconCollapse(**options)


def test_edge_attributes_are_left_out_aloud_and_weights_follow():
    data = _data()
    data.edge_weight = torch.ones(data.num_edges)
    data.edge_attr = torch.ones(data.num_edges, 2)
    with pytest.warns(FalconWarning, match="edge_attr left out"):
        out = FalconCollapse(node_budget=10, num_clusters=3, scope="full", edge_weights="sum")(data)
    assert "edge_attr" not in out
    assert out.edge_weight.shape == (out.num_edges,)


def test_means_are_written_in_the_dtype_of_the_data():
    data = _data()
    out = FalconCollapse(node_budget=10, scope="full", merge="mean", num_clusters=1)(data)
    assert (out.x.dtype, out.y.dtype, out.train_mask.dtype) == (torch.float32, torch.int64, torch.bool)
    group = out.falcon_assignment == 0
    assert out.x[0].tolist() == pytest.approx(data.x[group].mean(dim=0).tolist(), rel=1e-5)


def test_masks_of_several_splits_stay_whole():
    data = _data()
    data.train_mask = torch.stack([data.train_mask, ~data.train_mask], dim=1)
    del data.val_mask
    out = FalconCollapse(node_budget=0.5, num_clusters=3, split_index=1)(data)
    assert out.train_mask.shape == (out.num_nodes, 2)
    assert out.train_mask[:, 1].all()


@pytest.mark.filterwarnings("ignore:.*CSR.*:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_features_stay_sparse(layout):
    data = _data()
    dense = data.x
    data.x = dense.to_sparse(layout=layout)
    out = FalconCollapse(node_budget=10, num_clusters=3, scope="full")(data)
    assert out.x.layout == layout
    assert torch.equal(out.x.to_dense(), dense[out.falcon_kept])


def test_a_batch_becomes_one_plain_data():
    out = FalconCollapse(node_budget=20, num_clusters=3, scope="full")(Batch.from_data_list([_data(), _data(seed=1)]))
    assert type(out) is Data
    assert "ptr" not in out
    assert out.batch.tolist() == (out.falcon_kept >= 30).long().tolist()


def test_groups_of_alike_nodes_carry_their_weights():
    data = _data()
    out = FalconCollapse(node_budget=8, groups="alike", scope="full", num_clusters=3)(data)
    result = collapse(from_pyg(data), node_budget=8, groups="alike", scope="full", num_clusters=3)
    assert out.node_weight.tolist() == np.bincount(result.assignment).tolist()
    assert out.self_weight.tolist() == result.graph.self_weight.tolist()
    assert out.edge_weight.tolist() == result.graph.edge_weight.tolist()
    assert out.x == pytest.approx(torch.from_numpy(np.asarray(result.graph.x)), abs=1e-6)
    assert "groups='alike'" in repr(FalconCollapse(node_budget=8, groups="alike"))


@pytest.mark.parametrize("given", [None, torch.float64])
def test_edge_weights_keep_their_dtype_or_have_that_of_the_features(given):
    data = _data() if given is None else _data(edge_weight=torch.ones(60, dtype=given))
    out = FalconCollapse(node_budget=8, groups="alike", scope="full", num_clusters=3)(data)
    assert out.edge_weight.dtype == (given or data.x.dtype)


def test_an_alike_collapse_after_another_stands_for_all_nodes():
    twice = Compose([FalconCollapse(node_budget=b, groups="alike", scope="full", num_clusters=3) for b in (15, 6)])(
        _data()
    )
    assert twice.node_weight.sum() == 30


def test_a_teachers_labels_are_carried():
    out = FalconCollapse(node_budget=8, groups="alike", cluster_on="teacher", scope="full")(_data())
    assert out.label_distribution.sum(dim=1).tolist() == pytest.approx([1] * 8, abs=1e-5)
    assert out.y.tolist() == out.label_distribution.argmax(dim=1).tolist()
