import numpy as np
import pytest

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.falcon import collapse


@pytest.fixture
def result():
    """Five nodes: 1 and 2 join 0, 3 survives, 4 has no neighbor and is dropped."""
    graph = Graph.from_edges([[0, 0], [1, 2]], 5)
    return collapse(graph, node_budget=2, centrality=[9.0, 1, 2, 8, 0], num_clusters=1)


def test_values_of_the_survivors_are_lifted_back_to_the_nodes(result):
    assert result.assignment.tolist() == [0, 0, 0, 1, -1]
    np.testing.assert_array_equal(result.lift([0.5, 1.5]), [0.5, 0.5, 0.5, 1.5, np.nan])


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, bool])
def test_whole_numbers_and_bools_have_minus_one_where_there_is_no_survivor(result, dtype):
    assert result.lift(np.array([1, 0], dtype)).tolist() == [1, 1, 1, 0, -1]


def test_rows_of_any_width_and_floats_of_any_width_are_lifted(result):
    lifted = result.lift(np.arange(4, dtype=np.float32).reshape(2, 2))
    assert lifted.dtype == np.float32
    np.testing.assert_array_equal(lifted, [[0, 1], [0, 1], [0, 1], [2, 3], [np.nan, np.nan]])


def test_lifting_the_survivors_own_ids_gives_each_nodes_survivor(result):
    assert result.lift(result.kept).tolist() == [0, 0, 0, 3, -1]


def test_lifting_copies(result):
    values = np.array([1.0, 2.0])
    result.lift(values)[:] = 0
    assert values.tolist() == [1, 2]


@pytest.mark.parametrize("values", [[1.0], [1.0, 2, 3], 1.0])
def test_values_that_are_not_one_row_per_survivor_are_refused(result, values):
    with pytest.raises(OptionError, match=r"values must have one row per reduced node \(2\)"):
        result.lift(values)


def test_a_mapping_is_written_without_pickle(result, tmp_path):
    result.save_mapping(tmp_path / "mapping.npz")
    with np.load(tmp_path / "mapping.npz", allow_pickle=False) as stored:
        assert sorted(stored.files) == [
            "assignment", "centrality", "cluster_budgets", "clusters", "kept", "rank", "removal_order",
        ]  # fmt: skip
        for name in stored.files:
            np.testing.assert_array_equal(stored[name], getattr(result, name))
            assert stored[name].dtype == getattr(result, name).dtype


def test_ctrl_c_while_a_mapping_is_written_leaves_the_old_one(result, tmp_path, monkeypatch):
    result.save_mapping(tmp_path / "mapping.npz")
    old = (tmp_path / "mapping.npz").read_bytes()

    def write_half(file, *_, **__):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", write_half)
    with pytest.raises(KeyboardInterrupt):
        result.save_mapping(tmp_path / "mapping.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["mapping.npz"]
    assert (tmp_path / "mapping.npz").read_bytes() == old


def test_ids_are_int64_and_scores_float64(result):
    for name in ("assignment", "kept", "removal_order", "rank", "clusters", "cluster_budgets"):
        assert getattr(result, name).dtype == np.int64
    assert result.centrality.dtype == np.float64


@pytest.mark.parametrize(
    ("values", "filler"),
    [
        (np.array(["a", "bc"]), ""),
        (np.array([b"a", b"bc"]), b""),
        (np.array(["a", "bc"], np.dtypes.StringDType()), ""),
        (np.array([None, {}], object), None),
        (np.array(["2020-01-01", "2021-06-01"], "datetime64[D]"), np.datetime64("NaT")),
        (np.array([1, 2], "timedelta64[s]"), np.timedelta64("NaT")),
    ],
)
def test_text_dates_and_objects_have_a_filler_of_their_own_kind(result, values, filler):
    lifted = result.lift(values)
    assert lifted[:4].tolist() == [*values[[0, 0, 0, 1]].tolist()]
    assert str(lifted[4]) == str(filler)


@pytest.mark.parametrize("values", [np.array([0, 2**63], np.uint64), np.zeros(2, [("a", "i4")])])
def test_values_that_have_no_filler_are_refused(result, values):
    with pytest.raises(OptionError, match="values must be numbers up to"):
        result.lift(values)


def test_masked_values_and_scores_are_refused(result):
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    with pytest.raises(OptionError, match="values must not have masked entries"):
        result.lift(masked)
    with pytest.raises(OptionError, match="centrality must not have masked entries"):
        collapse(Graph.from_edges([[0], [1]], 2), node_budget=1, centrality=masked)
