import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn.metrics import accuracy_score, multilabel_confusion_matrix, roc_auc_score

from falcon_gnn.errors import OptionError
from falcon_gnn.evaluation import confidence_interval, evaluate


def _micro_scores(matrices):
    true_negative, false_positive, false_negative, true_positive = matrices.sum(axis=0).ravel()
    return (
        2 * true_positive / (2 * true_positive + false_positive + false_negative),
        true_positive / (true_positive + false_negative),
        true_negative / (true_negative + false_positive),
    )


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_class_scores_follow_from_scikit_learns_confusion_counts(num_labels, seed):
    rng = np.random.default_rng(seed)
    truth, scores = rng.integers(0, num_labels, 40), rng.normal(size=(40, num_labels))
    guess = scores.argmax(axis=1)
    metrics = evaluate(truth, scores, "classes", num_labels)
    expected = _micro_scores(multilabel_confusion_matrix(truth, guess, labels=range(num_labels)))
    assert metrics.accuracy == pytest.approx(accuracy_score(truth, guess))
    assert (metrics.micro_f1, metrics.micro_sensitivity, metrics.micro_specificity) == pytest.approx(expected)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_area_under_the_curve_of_two_classes_is_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    truth, scores = np.append(rng.integers(0, 2, 30), [0, 1, -1]), rng.integers(-2, 3, (33, 2)).astype(np.float32)
    expected = roc_auc_score(truth[:-1], (scores[:, 1] - scores[:, 0])[:-1])
    assert evaluate(truth, scores, "classes", 2).roc_auc == pytest.approx(expected)


@pytest.mark.parametrize(
    ("truth", "predicted"),
    [([0, 1, 2], np.eye(3)), ([0, 1, 1], np.array([0, 1, 1])), ([1, 1], np.array([[0.0, 1.0], [1.0, 0.0]]))],
)
def test_there_is_no_area_without_two_classes_and_scores_of_both(truth, predicted):
    assert np.isnan(evaluate(np.array(truth), predicted, "classes", 3).roc_auc)


@settings(deadline=None)
@given(hnp.arrays(np.int8, (12, 5), elements=st.integers(0, 1)), st.integers(0, 2**32 - 1))
def test_multi_label_scores_follow_from_scikit_learns_confusion_counts(truth, seed):
    truth[0] = [1, 0, 1, 0, 1]
    logits = np.random.default_rng(seed).normal(size=truth.shape)
    metrics = evaluate(truth, logits, "multilabel", 5)
    expected = _micro_scores(multilabel_confusion_matrix(truth, logits > 0))
    assert metrics.accuracy == pytest.approx((truth == (logits > 0)).mean())
    assert (metrics.micro_f1, metrics.micro_sensitivity, metrics.micro_specificity) == pytest.approx(expected)


def test_specificity_of_classes_is_the_papers_relation_to_accuracy():
    truth, guess = np.array([0, 1, 2, 3, 0]), np.array([0, 1, 2, 0, 1])
    metrics = evaluate(truth, guess, "classes", 4)
    assert metrics.micro_specificity == pytest.approx(1 - (1 - metrics.accuracy) / 3)


def test_unlabelled_nodes_do_not_count():
    truth, guess = np.array([0.0, 1.0, np.nan, -1.0]), np.array([0, 0, 1, 1])
    metrics = evaluate(truth, guess, "classes", 2)
    assert (metrics.num_nodes, metrics.accuracy) == (2, 0.5)


def test_a_nan_cell_of_a_multi_label_row_does_not_count():
    truth = np.array([[1.0, np.nan], [0.0, 1.0], [np.nan, np.nan]])
    metrics = evaluate(truth, np.array([[1, 1], [1, 1], [1, 1]]), "multilabel", 2)
    assert (metrics.num_nodes, metrics.accuracy) == (2, pytest.approx(2 / 3))


def test_only_masked_nodes_are_looked_at():
    metrics = evaluate(np.array([0, 1, 1]), np.array([0, 0, 0]), "classes", 2, mask=np.array([True, True, False]))
    assert (metrics.num_nodes, metrics.accuracy) == (2, 0.5)


def test_a_class_the_model_never_saw_counts_as_wrong():
    metrics = evaluate(np.array([0, 5]), np.array([[2.0, 1.0], [2.0, 1.0]]), "classes", 6)
    assert metrics.accuracy == 0.5


def test_without_any_labelled_node_the_scores_are_nan():
    metrics = evaluate(np.array([-1, -1]), np.array([0, 1]), "classes", 2)
    assert metrics.num_nodes == 0
    assert np.isnan(metrics.accuracy)


def test_regression_reports_the_mean_squared_error_over_known_values():
    metrics = evaluate(np.array([1.5, np.nan, 3.0]), np.array([[1.0], [9.0], [3.0]]), "regression", 1)
    assert (metrics.num_nodes, metrics.mean_squared_error) == (2, 0.125)
    assert np.isnan(metrics.accuracy)


def test_a_regression_is_not_compared_with_values_of_another_shape():
    with pytest.raises(OptionError, match=r"predicted must have shape \(3, 2\) .* got \(2, 3\)"):
        evaluate(np.ones((3, 2)), np.ones((2, 3)), "regression", 2)


def test_a_regression_that_predicts_nan_has_no_error_to_be_proud_of():
    metrics = evaluate(np.array([1.0, 2.0]), np.array([np.nan, 2.0]), "regression", 1)
    assert metrics.num_nodes == 2
    assert np.isnan(metrics.mean_squared_error)


def test_a_column_of_class_ids_is_no_column_of_scores():
    truth = np.array([1, 0, 2])
    assert evaluate(truth, truth[:, None], "classes", 3).accuracy == 1
    with pytest.raises(OptionError, match=r"predicted must have shape \(3,\) or \(3, L\).*got \(3, 1\)"):
        evaluate(truth, truth[:, None].astype(float), "classes", 3)
    assert evaluate(np.zeros(3, int), np.ones((3, 1)), "classes", 1).accuracy == 1


def test_predictions_of_another_length_are_refused():
    with pytest.raises(OptionError, match=r"predicted must have shape \(3,\) or \(3, L\).*got \(2,\)"):
        evaluate(np.array([0, 1, 1]), np.array([0, 1]), "classes", 2)


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_interval_equals_scipys_student_t_interval(level):
    values = [86.1, 86.5, 85.9, 86.4, 87.0]
    mean, half_width = confidence_interval(values, level)
    low, high = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert (mean - half_width, mean + half_width) == pytest.approx((low, high))


def test_a_single_run_has_no_interval():
    mean, half_width = confidence_interval([0.5])
    assert mean == 0.5
    assert np.isnan(half_width)


@pytest.mark.parametrize(("values", "level"), [([], 0.95), ([1.0, 2.0], 1.0)])
def test_interval_refuses_nothing_and_impossible_levels(values, level):
    with pytest.raises(OptionError, match="must"):
        confidence_interval(values, level)


def test_importing_the_scores_does_not_import_slow_libraries():
    code = "import sys, falcon_gnn.evaluation; print({'sklearn', 'torch', 'scipy.stats'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
