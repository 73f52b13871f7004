import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falcon_gnn.errors import BudgetError, FalconWarning, GraphError, OptionError
from falcon_gnn.labels import check_labels, class_ids, encode_labels, infer_task, labelled_nodes
from falcon_gnn.reduction.matrix import column_range
from tests import oracles
from tests.tracing import traced_peak

_CLASSES = st.lists(st.integers(-1, 4), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (np.array([0, 1, -1]), "classes"), (np.array([0.0, 2.0, np.nan]), "classes"), (np.array([[1], [0]]), "classes"),
        (np.array([True, False]), "classes"), (np.array([np.nan, np.nan]), "classes"),
        (np.array([0.5, 1.0]), "regression"), (np.array([[0.5], [1.0]]), "regression"),
        (np.array([[0, 1], [1, 1]]), "multilabel"), (np.array([[0.2, 1.0]]), "multilabel"),
    ],
)  # fmt: skip
def test_the_task_is_told_from_the_labels(y, task):
    assert infer_task(y) == task


def test_a_task_that_fits_overrides_what_would_be_told():
    assert infer_task(np.array([1, 2, 3]), "regression") == "regression"
    assert infer_task(np.ones((3, 2)), "regression") == "regression"


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        (np.array([0.5, 1]), "classes", "task='classes' needs whole numbers"),
        (np.ones((3, 2), int), "classes", r"of shape \(N,\), got int64 of shape \(3, 2\)"),
        (np.array([0, 1]), "multilabel", r"needs y of shape \(N, L\), got \(2,\)"),
        (np.array([0, 1]), "ranking", "task must be one of classes, multilabel, regression or None, got 'ranking'"),
    ],
)
def test_a_task_that_does_not_fit_the_labels_is_refused(y, task, message):
    with pytest.raises((GraphError, OptionError), match=message):
        infer_task(y, task)


@given(_CLASSES, st.data())
def test_classes_become_one_hot_rows_and_hidden_ones_zero_rows(classes, data):
    visible = data.draw(st.lists(st.booleans(), min_size=len(classes), max_size=len(classes)))
    encoding = encode_labels(np.array(classes), "classes", visible=np.array(visible))
    assert encoding.matrix.tolist() == oracles.label_vectors(np.array(classes), visible).tolist()
    assert encoding.labelled.tolist() == [v and c >= 0 for v, c in zip(visible, classes, strict=True)]


def test_minus_one_and_nan_are_unlabelled_and_have_zero_vectors():
    """pytorch_geometric 665, 8001; ppnp 9."""
    encoding = encode_labels(np.array([1.0, np.nan, -1.0, 0.0]), "classes")
    assert encoding.matrix.tolist() == [[0, 1], [0, 0], [0, 0], [1, 0]]
    assert encoding.labelled.tolist() == [True, False, False, True]


def test_an_unlabelled_row_of_a_multi_label_matrix_is_all_nan():
    encoding = encode_labels(np.array([[1.0, 0], [np.nan, np.nan], [np.nan, 1]]), "multilabel")
    assert encoding.labelled.tolist() == [True, False, True]
    assert encoding.matrix.tolist() == [[1, 0], [0, 0], [0, 1]]


def test_hidden_labels_do_not_widen_the_vectors():
    encoding = encode_labels(np.array([0, 1, 9]), "classes", visible=np.array([True, True, False]))
    assert encoding.num_labels == 2


def test_the_number_of_classes_may_be_given():
    assert encode_labels(np.array([0, 1]), "classes", num_classes=5).matrix.shape == (2, 5)
    with pytest.raises(OptionError, match="num_classes must be above every visible class, got 2 and a class 3"):
        encode_labels(np.array([0, 3]), "classes", num_classes=2)


def test_labels_that_are_all_hidden_are_still_a_matrix():
    encoding = encode_labels(np.array([-1, -1]), "classes")
    assert encoding.matrix.tolist() == [[0], [0]]
    assert not encoding.labelled.any()


def test_whole_numbers_that_are_no_classes_are_refused_before_memory_is_asked_for():
    """Years or prices as integers would be one-hot vectors of that width."""
    y = np.zeros(1000, np.int64)
    y[0] = 2**40
    with pytest.raises(GraphError, match=r"task='regression'|num_classes"):
        encode_labels(y, "classes")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32, np.float64, bool])
def test_class_ids_are_int64_whatever_the_labels_are(dtype):
    ids = class_ids(np.array([[1], [0]], dtype))
    assert ids.dtype == np.int64
    assert ids.tolist() == [1, 0]


def test_labelled_nodes_of_whole_matrices_are_all():
    assert labelled_nodes(np.zeros((3, 2), np.uint8), "multilabel").all()


def test_the_labels_are_only_read():
    y = np.array([[1.0, np.nan], [np.nan, np.nan]])
    before = y.copy()
    encode_labels(y, "multilabel")
    np.testing.assert_array_equal(y, before)


_FULL = np.array([[1.0, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 1]])


@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_minus_one_in_a_multi_label_matrix_is_as_nan(hidden):
    holes = np.reshape(hidden, (4, 3))
    by_nan, by_minus = np.where(holes, np.nan, _FULL), np.where(holes, -1, _FULL.astype(int))
    assert labelled_nodes(by_minus, "multilabel").tolist() == labelled_nodes(by_nan, "multilabel").tolist()
    first, second = (encode_labels(y, "multilabel") for y in (by_nan, by_minus))
    assert first.matrix.tolist() == second.matrix.tolist()
    assert (first.known is None) == (second.known is None)


@pytest.mark.parametrize("value", [2, 0.5, -2, -1.5])
def test_other_values_of_a_multi_label_matrix_are_refused(value):
    y = _FULL.copy()
    y[2, 1] = value
    with pytest.raises(GraphError, match=rf"must hold 1, 0, .* got {float(value)}. Pass task='regression'"):
        check_labels(y, "multilabel")
    check_labels(y, "multilabel", np.array([True, True, False, True]))
    check_labels(y, "regression")


def test_shares_pass_where_they_are_the_means_of_groups():
    check_labels(np.array([[0.5, 1], [0.25, 0]]), "multilabel", allow_shares=True)


def test_nothing_but_minus_one_and_one_has_two_readings():
    y = np.where(_FULL == 0, -1, 1)
    with pytest.raises(GraphError, match=r"has not the label, or that this is unknown. Use 0 .* NaN for the latter"):
        check_labels(y, "multilabel")
    check_labels(np.where(_FULL == 0, np.nan, 1), "multilabel")
    y[3, 0] = 0
    check_labels(y, "multilabel", np.array([True, True, True, False]))


@pytest.mark.parametrize("y", [np.array([0, 2**63], np.uint64), np.array([0.0, np.nan, 1e300])])
def test_a_label_beyond_int64_is_no_class_and_does_not_become_negative(y):
    assert infer_task(y) == "classes"
    with pytest.raises(GraphError, match=r"y holds a class (9223372036854775808|1e\+300) .* cannot be a class number"):
        encode_labels(y, "classes")


def test_classes_in_half_precision_are_read_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert class_ids(np.array([0, 2, np.nan, -1], np.float16)).tolist() == [0, 2, -1, -1]


def test_labels_below_minus_one_are_counted_in_a_warning():
    y = np.array([0, 1, -1, -2, -7])
    with pytest.warns(FalconWarning, match=r"y holds 2 labels below -1 \(the lowest: -7\), which count as unlabelled"):
        check_labels(y, "classes")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in (y[:3], np.array([0, np.nan]), np.array([1, 0], np.uint8), np.array([True, False])):
            check_labels(known, "classes")
        check_labels(y, "regression")


def test_classes_as_one_hot_rows_warn_with_the_fix():
    y = np.eye(3, dtype=np.int64)[[0, 1, 2, 1]]
    with pytest.warns(FalconWarning, match=r"pass y.argmax\(1\)"):
        check_labels(y, "multilabel")
    check_labels(y, "multilabel", is_told=True)
    y[3, 0] = 1
    check_labels(y, "multilabel")
    unknown = np.eye(3)
    unknown[2, 0] = np.nan
    check_labels(unknown, "multilabel")


def test_what_stands_far_below_in_a_multi_label_matrix_counts():
    y = np.tile(np.eye(2), (200_000, 1))
    with pytest.warns(FalconWarning, match=r"pass y.argmax\(1\)"):
        check_labels(y, "multilabel")
    y[-1] = 1
    check_labels(y, "multilabel")
    y[-1, 0] = 2
    with pytest.raises(GraphError, match=r"got 2\.0"):
        check_labels(y, "multilabel")
    y = np.ones((200_000, 2))
    y[-1, 0] = -1
    with pytest.raises(GraphError, match="Use 0 in place of -1"):
        check_labels(y, "multilabel")
    y[:2, 1], visible = 0, np.arange(len(y)) > 1
    check_labels(y, "multilabel", visible)


@pytest.mark.parametrize("block", [1, 3, 1_000])
def test_labels_are_checked_alike_in_blocks_of_any_size(block, monkeypatch):
    monkeypatch.setattr("falcon_gnn.labels._BLOCK_VALUES", block)
    y, visible = np.eye(3, dtype=np.int64)[[0, 1, 2, 0, 1, 2]], np.arange(6) >= 4
    with pytest.warns(FalconWarning, match=r"pass y.argmax\(1\)"):
        check_labels(y, "multilabel", visible)
    y[0] = 7
    with pytest.warns(FalconWarning, match=r"pass y.argmax\(1\)"):
        check_labels(y, "multilabel", visible)
    y[5, 0] = 2
    with pytest.raises(GraphError, match="got 2"):
        check_labels(y, "multilabel", visible)
    check_labels(y, "multilabel", np.arange(6) == 4)


def test_checking_labels_needs_no_copy_of_them():
    y = np.random.default_rng(0).integers(0, 2, (80_000, 50)).astype(np.uint8)
    visible = np.arange(len(y)) % 2 == 0
    assert traced_peak(lambda: check_labels(y, "multilabel", visible)) < y.nbytes
    assert traced_peak(lambda: check_labels(y, "multilabel")) < y.nbytes


def test_hidden_rows_leave_multi_label_bytes_bytes():
    y = np.array([[1, 0], [0, 1], [1, 1]], np.uint8)
    encoding = encode_labels(y, "multilabel", visible=np.array([True, False, True]))
    assert encoding.values.dtype == np.uint8
    assert encoding.values.tolist() == [[1, 0], [0, 0], [1, 1]]


def test_one_hot_rows_that_do_not_fit_are_refused(monkeypatch):
    encoding = encode_labels(np.array([0, 2]), "classes")
    monkeypatch.setattr("falcon_gnn.resources.available_memory", lambda: 2 * 3)
    assert encoding.matrix.tolist() == [[1, 0, 0], [0, 0, 1]]
    monkeypatch.setattr("falcon_gnn.resources.available_memory", lambda: 2 * 3 - 1)
    with pytest.raises(BudgetError, match="hold one-hot labels of 3 classes for 2 nodes"):
        assert encoding.matrix is None


def test_the_range_of_label_columns_needs_no_doubles_of_all_labels():
    y = np.random.default_rng(0).integers(0, 2, (20_000, 50)).astype(np.uint8)
    encoding = encode_labels(y, "multilabel")
    assert [side.tolist() for side in column_range(encoding)] == [[0.0] * 50, [1.0] * 50]
    assert traced_peak(lambda: column_range(encoding)) < 2 * y.nbytes
