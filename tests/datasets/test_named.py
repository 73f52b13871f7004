"""The sets known by name, from small raw files of the published layouts and from the real ones where at hand."""

import gzip
import json
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from falcon_gnn.datasets import facts
from falcon_gnn.datasets.archive import read_npz
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.named import dataset_names
from falcon_gnn.errors import FalconWarning, GraphError, OptionError


@pytest.fixture(autouse=True)
def _any_release(request, monkeypatch):
    """Small files stand for the real ones, but where what is known of these is at issue."""
    if "known" not in request.node.name:
        monkeypatch.setattr(facts, "FACTS", {})
        small = {"organs": facts.ImageFacts(((30, 10, 10),))}
        monkeypatch.setattr(facts, "IMAGE_FACTS", small)


def test_digits_need_no_file_and_are_a_sparse_connected_graph_of_like_images():
    graph = load_graph("digits")
    source, target = graph.edge_index
    assert (graph.num_nodes, graph.num_edges, int((graph.degrees == 0).sum())) == (1797, 38_540, 7)
    assert (graph.y[source] == graph.y[target]).mean() > 0.95
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [1078, 360, 359]
    assert graph.x.max() == 1.0


def test_a_threshold_changes_the_edges_of_digits():
    assert load_graph("digits", threshold=0.95).num_edges == 6_512


def test_a_threshold_has_no_meaning_for_a_set_with_edges():
    with pytest.raises(OptionError, match="threshold is for image sets"):
        load_graph("cora", threshold=0.5)


@pytest.mark.parametrize("name", [name for name in dataset_names() if name != "digits"])
def test_what_is_not_there_says_which_files_it_wants_and_where(tmp_path, name):
    with pytest.raises(
        OptionError, match=rf"{name} needs the files .*looked in: .*Nothing is downloaded unasked.*root="
    ):
        load_graph(name, root=tmp_path)


def _planetoid_files(folder, **replaced):
    """Two training nodes, four known, test nodes 5 and 4 in this order; node 6 is in the graph only."""
    x = csr_matrix(np.eye(6, 3, dtype=np.float32))
    y = np.eye(2, dtype=np.int32)[[0, 1, 0, 1, 0, 1]]
    parts = {
        "allx": x[:4],
        "ally": y[:4],
        "x": x[:2],
        "y": y[:2],
        "tx": x[4:6],
        "ty": y[4:6],
        "graph": {0: [1, 1], 1: [0, 2], 2: [1], 3: [], 4: [5], 5: [4], 6: [6]},
        **replaced,
    }
    for name, value in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, protocol=4))
    (folder / "ind.cora.test.index").write_text("5\n4\n")


@pytest.fixture
def few_for_validation(monkeypatch):
    monkeypatch.setattr("falcon_gnn.datasets.planetoid.NUM_VALIDATION", 2)


@pytest.mark.usefixtures("few_for_validation")
@pytest.mark.parametrize("place", ["", "Cora/raw"])
def test_planetoid_files_become_a_graph_with_the_public_split(tmp_path, place):
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    _planetoid_files(folder)
    graph = load_graph("cora", root=tmp_path)
    assert graph.degrees.tolist() == [1, 2, 1, 0, 1, 1, 0]
    assert graph.y.tolist() == [0, 1, 0, 1, 1, 0, -1]
    assert graph.x.toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]] + [[0, 0, 0]] * 4
    masks = [np.flatnonzero(mask).tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert masks == [[0, 1], [2, 3], [4, 5]]
    assert (graph.cleaning.num_duplicates, graph.cleaning.num_self_loops) == (1, 1)


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.usefixtures("few_for_validation")
def test_a_planetoid_file_cannot_run_code(tmp_path):
    target = tmp_path / "exploded"
    _planetoid_files(tmp_path, graph=_Bomb(str(target)))
    with pytest.raises(OptionError, match=r"ind\.cora\.graph cannot be read .* may be malicious"):
        load_graph("cora", root=tmp_path)
    assert not target.exists()


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_real_planetoid_files_equal_the_published_graphs(name, shared_dataset, assert_same):
    archive = shared_dataset(name)
    if not (archive.parent / "planetoid_raw").is_dir():
        pytest.skip("no planetoid_raw folder beside the data sets")
    graph, expected = load_graph(name, root=archive.parent), read_npz(archive)
    assert graph.x.indices.dtype == graph.x.indptr.dtype == np.int32
    assert_same(graph.replace(y=graph.y.astype(np.int16)), expected)


@pytest.fixture
def ppi_folder(tmp_path):
    for part, graph_id in (("train", [1, 1, 2]), ("valid", [3, 3]), ("test", [4, 4])):
        size = len(graph_id)
        links = [{"source": 0, "target": 1}, {"source": 1, "target": 0}, {"source": 1, "target": 1}]
        nodes = [{"id": i} for i in range(size)]
        content = {"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
        (tmp_path / f"{part}_graph.json").write_text(json.dumps(content))
        np.save(tmp_path / f"{part}_feats.npy", np.full((size, 2), len(part), np.float64))
        np.save(tmp_path / f"{part}_labels.npy", np.ones((size, 3), np.int64))
        np.save(tmp_path / f"{part}_graph_id.npy", np.array(graph_id))
    return tmp_path


def test_ppi_parts_are_joined_and_keep_their_graph(ppi_folder):
    graph = load_graph("ppi", root=ppi_folder)
    first = graph.edge_index[0] < graph.edge_index[1]
    assert graph.edge_index[:, first].T.tolist() == [[0, 1], [3, 4], [5, 6]]
    assert graph.node_attributes["graph_id"].tolist() == [1, 1, 2, 3, 3, 4, 4]
    assert graph.train_mask.tolist() == [True] * 3 + [False] * 4
    assert graph.num_nodes == 7  # node 2 has no edge
    assert graph.cleaning.num_self_loops == 3


def test_ppi_edges_of_another_part_are_noticed(ppi_folder):
    (ppi_folder / "valid_graph.json").write_text(json.dumps({"links": [{"source": 0, "target": 2}]}))
    with pytest.raises(GraphError, match=r"valid_graph\.json has node ids outside \[0, 2\)"):
        load_graph("ppi", root=ppi_folder)


def test_a_cut_json_file_is_named(ppi_folder):
    (ppi_folder / "train_graph.json").write_text('{"links": [')
    with pytest.raises(OptionError, match=r"raw files of ppi \(train\)"):
        load_graph("ppi", root=ppi_folder)


def test_flickr_files_become_a_graph(tmp_path):
    folder = tmp_path / "Flickr" / "raw"
    folder.mkdir(parents=True)
    adjacency = csr_matrix((np.ones(4), ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(5, 5))
    np.savez(
        folder / "adj_full.npz",
        data=adjacency.data,
        indices=adjacency.indices,
        indptr=adjacency.indptr,
        shape=adjacency.shape,
    )
    np.save(folder / "feats.npy", np.ones((5, 3)))
    (folder / "class_map.json").write_text(json.dumps({"0": 2, "1": 0, "2": 1, "4": 6}))
    (folder / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": [4]}))
    graph = load_graph("flickr", root=tmp_path)
    assert graph.degrees.tolist() == [1, 2, 1, 0, 0]
    assert graph.y.tolist() == [2, 0, 1, -1, 6]
    assert np.flatnonzero(graph.test_mask).tolist() == [4]
    assert not graph.is_weighted


def _organ_archive(path, sizes=(30, 10, 10), labels_shape=(1,)):
    rng = np.random.default_rng(0)
    arrays = {}
    for part, size in zip(("train", "val", "test"), sizes, strict=True):
        arrays[f"{part}_images"] = rng.integers(0, 256, (size, 28, 28), dtype=np.uint8)
        arrays[f"{part}_labels"] = rng.integers(0, 11, (size, *labels_shape), dtype=np.uint8)
        arrays[f"{part}_index"] = np.arange(size)
    np.savez(path, **arrays)
    return arrays


def test_organ_images_become_a_cosine_graph_with_their_parts_as_masks(tmp_path):
    arrays = _organ_archive(tmp_path / "organsmnist.npz")
    graph = load_graph("organs", root=tmp_path, threshold=0.75)
    assert (graph.num_nodes, graph.num_features) == (50, 784)
    assert (
        graph.y.tolist() == np.concatenate([arrays[f"{p}_labels"] for p in ("train", "val", "test")]).ravel().tolist()
    )
    assert np.flatnonzero(graph.val_mask).tolist() == list(range(30, 40))
    assert graph.node_attributes["index"].tolist() == [*range(30), *range(10), *range(10)]
    images = arrays["train_images"].reshape(30, -1) / 255
    assert np.allclose(graph.x[:30], images)


def test_an_organ_archive_is_recognised_by_its_content(tmp_path):
    _organ_archive(tmp_path / "mine.npz")
    assert load_graph(tmp_path / "mine.npz", threshold=0.75).num_nodes == 50
    with pytest.raises(OptionError, match="split_index has no meaning for an image archive"):
        load_graph(tmp_path / "mine.npz", split_index=1)


def test_without_a_threshold_an_image_graph_is_as_dense_as_the_papers(shared_dataset):
    graph = load_graph(shared_dataset("organsmnist_val"))
    assert graph.num_edges / graph.num_nodes == pytest.approx(25.3, rel=0.02)
    assert graph.train_mask is None


def test_an_image_archive_without_labels_says_so(tmp_path):
    np.savez(tmp_path / "images.npz", train_images=np.zeros((3, 28, 28), np.uint8))
    with pytest.raises(GraphError, match="train_labels missing"):
        load_graph(tmp_path / "images.npz")


def _csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as stream:
        stream.writelines(",".join(map(str, row)) + "\n" for row in rows)


def _ogb_files(folder, scheme):
    _csv(folder / "raw" / "edge.csv.gz", [(0, 1), (1, 0), (2, 1)])
    _csv(folder / "raw" / "node-feat.csv.gz", [(0.5, -1), (0.25, 2), (1, 3), (0, 4)])
    _csv(folder / "raw" / "node-label.csv.gz", [(3,), (1,), (0,), (2,)])
    _csv(folder / "raw" / "num-node-list.csv.gz", [(4,)])
    for part, ids in (("train", [0, 3]), ("valid", [1]), ("test", [2])):
        _csv(folder / "split" / scheme / f"{part}.csv.gz", [(i,) for i in ids])


@pytest.mark.parametrize(
    ("name", "place", "scheme"),
    [("ogbn-arxiv", "ogbn_arxiv", "time"), ("ogbn-products", "products", "sales_ranking"), ("ogbn-arxiv", "", "time")],
)
def test_ogb_files_become_a_graph_with_their_own_split(tmp_path, name, place, scheme):
    _ogb_files(tmp_path / place, scheme)
    graph = load_graph(name, root=tmp_path)
    assert graph.degrees.tolist() == [1, 2, 1, 0]
    assert graph.x.tolist() == [[0.5, -1], [0.25, 2], [1, 3], [0, 4]]
    assert graph.x.dtype == np.float32
    assert graph.y.tolist() == [3, 1, 0, 2]
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 3]


def test_the_year_of_an_arxiv_paper_is_kept(tmp_path):
    _ogb_files(tmp_path, "time")
    _csv(tmp_path / "raw" / "node_year.csv.gz", [(2013,), (2014,), (2015,), (2016,)])
    assert load_graph("ogbn-arxiv", root=tmp_path).node_attributes["node_year"].tolist() == [2013, 2014, 2015, 2016]


def test_ogb_features_of_another_length_are_noticed(tmp_path):
    _ogb_files(tmp_path, "time")
    _csv(tmp_path / "raw" / "num-node-list.csv.gz", [(5,)])
    with pytest.raises(GraphError, match=r"node-feat\.csv\.gz: it must have 5 rows"):
        load_graph("ogbn-arxiv", root=tmp_path)


def test_a_cut_gzip_file_is_named(tmp_path):
    _ogb_files(tmp_path, "time")
    path = tmp_path / "raw" / "edge.csv.gz"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(OptionError, match=r"edge\.csv\.gz cannot be read as gzipped CSV"):
        load_graph("ogbn-arxiv", root=tmp_path)


def _images(path, counts, shape=(28, 28), num_labels=11):
    arrays = {}
    for part, count in zip(("train", "val", "test"), counts, strict=True):
        arrays[f"{part}_images"] = np.zeros((count, *shape), np.uint8)
        arrays[f"{part}_labels"] = (np.arange(count) % num_labels).astype(np.uint8)[:, None]
    return arrays


@pytest.mark.parametrize("name", ["organs", "organc"])
def test_known_releases_of_the_organs_pass_and_other_counts_warn(name, tmp_path):
    for counts in facts.IMAGE_FACTS[name].releases:
        facts.check_images(name, _images(tmp_path, counts))
    with pytest.warns(FalconWarning, match=rf"{name} has .* or .* and this file \(20, 20, 20\)"):
        facts.check_images(name, _images(tmp_path, (20, 20, 20)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (64, 64)}, "organs must have images of 28 by 28 pixels"),
        ({"shape": (28, 28, 3)}, "organs must have images of 28 by 28 pixels"),
        ({"num_labels": 8}, "organs must have the classes 0 to 10, got 8 classes"),
        ({"num_labels": 12}, "organs must have the classes 0 to 10, got 12 classes"),
    ],
)
def test_images_that_are_not_of_the_known_size_are_refused(tmp_path, change, message):
    np.savez(tmp_path / "organsmnist.npz", **_images(tmp_path, (20, 20, 20), **change))
    with pytest.raises(GraphError, match=message):
        load_graph("organs", root=tmp_path)


@pytest.mark.usefixtures("few_for_validation")
def test_known_sizes_of_cora_refuse_other_features_and_warn_of_other_nodes(tmp_path, monkeypatch):
    _planetoid_files(tmp_path)
    with pytest.raises(GraphError, match="cora must have 1433 features, got 3: these are the files of another"):
        load_graph("cora", root=tmp_path)
    monkeypatch.setitem(facts.FACTS, "cora", facts.SetFacts(2708, 3, 2))
    with pytest.warns(FalconWarning, match="cora has 2,708 nodes in every known release, and these files have 7"):
        load_graph("cora", root=tmp_path)
