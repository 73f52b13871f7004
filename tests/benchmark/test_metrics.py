"""Figures taken out of a record."""

from falcon_gnn.benchmark.metrics import metric_of

PLAIN = {"scores": {"test": {"accuracy": 0.5, "roc_auc": 0.75}}, "correction": None}
CORRECTED = {
    "scores": {"test": {"accuracy": 0.5}},
    "correction": {"model_alone": {"test": {"accuracy": 0.25, "roc_auc": 0.125}}},
}


def test_the_score_of_the_model_alone_is_the_one_before_the_correction():
    assert metric_of("accuracy").read(CORRECTED) == 50
    assert metric_of("accuracy_alone").read(CORRECTED) == 25
    assert metric_of("roc_auc_alone").read(CORRECTED) == 12.5


def test_without_a_correction_the_model_is_alone():
    assert metric_of("accuracy_alone").read(PLAIN) == metric_of("accuracy").read(PLAIN) == 50
    assert metric_of("roc_auc_alone").read({"scores": {"test": {"accuracy": 0.5}}}) is None
