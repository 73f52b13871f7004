"""What a table can show: the name of each figure, its unit, and where it stands in a record."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from falcon_gnn.checks import check_choice

Record = Mapping[str, Any]

_MIB = 2**20
_NOT_COLLAPSE = ("report",)
"""Stages that are no part of the paper's collapse time."""


@dataclass(frozen=True)
class Metric:
    """A figure of a record.

    Attributes:
        title: As a table's heading shows it.
        unit: Its unit.
        num_decimals: As the paper prints it.
        read: Takes it out of a record, in its unit; None if it is not there.
    """

    title: str
    unit: str
    num_decimals: int
    read: Callable[[Record], float | None]


def _score(part: str, name: str) -> Callable[[Record], float | None]:
    def read(record: Record) -> float | None:
        scores = (record.get("scores") or {}).get(part) or {}
        return _scaled(scores.get(name), 100)

    return read


def _score_alone(part: str, name: str) -> Callable[[Record], float | None]:
    """Read a score of the model without the labels that mend its predictions; the score itself where none do."""
    with_help = _score(part, name)

    def read(record: Record) -> float | None:
        correction = record.get("correction")
        return with_help(record if correction is None else {"scores": correction["model_alone"]})

    return read


def _label_error(name: str) -> Callable[[Record], float | None]:
    return lambda record: _scaled((record.get("reduction") or {}).get(name), 100)


def _teacher_accuracy(record: Record) -> float | None:
    return _scaled((record.get("teacher") or {}).get("accuracy"), 100)


def _memory(record: Record) -> float | None:
    return _scaled((record.get("memory") or {}).get("total"), 1 / _MIB)


def _epoch_time(record: Record) -> float | None:
    quartiles = (record.get("training") or {}).get("epoch_seconds_quartiles")
    return None if not quartiles else _scaled(quartiles[1], 1000)


def _collapse_time(record: Record) -> float | None:
    seconds = (record.get("reduction") or {}).get("seconds")
    return None if not seconds else sum(value for stage, value in seconds.items() if stage not in _NOT_COLLAPSE)


def _spectral_error(record: Record) -> float | None:
    return _scaled(((record.get("reduction") or {}).get("spectral_error") or {}).get("epsilon"), 1)


def _num_edges(record: Record) -> float | None:
    return _scaled((record.get("trained_on") or {}).get("num_edges"), 1)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


METRICS: dict[str, Metric] = {
    "accuracy": Metric("Accuracy", "%", 2, _score("test", "accuracy")),
    "micro_f1": Metric("Micro-F1", "%", 2, _score("test", "micro_f1")),
    "roc_auc": Metric("ROC-AUC", "%", 2, _score("test", "roc_auc")),
    "accuracy_alone": Metric("Accuracy, model alone", "%", 2, _score_alone("test", "accuracy")),
    "roc_auc_alone": Metric("ROC-AUC, model alone", "%", 2, _score_alone("test", "roc_auc")),
    "teacher_accuracy": Metric("Accuracy, teacher alone", "%", 2, _teacher_accuracy),
    "sensitivity": Metric("Sensitivity", "%", 2, _score("test", "micro_sensitivity")),
    "specificity": Metric("Specificity", "%", 2, _score("test", "micro_specificity")),
    "validation_accuracy": Metric("Validation accuracy", "%", 2, _score("validation", "accuracy")),
    "validation_micro_f1": Metric("Validation micro-F1", "%", 2, _score("validation", "micro_f1")),
    "gpu_memory": Metric("Peak memory", "MiB", 1, _memory),
    "epoch_time": Metric("Epoch time", "ms", 1, _epoch_time),
    "label_distribution_error": Metric("Label error", "%", 3, _label_error("label_distribution_error")),
    "label_distribution_error_relative": Metric(
        "Relative label error", "%", 2, _label_error("label_distribution_error_relative")
    ),
    "collapse_time": Metric("Collapse time", "s", 2, _collapse_time),
    "spectral_error": Metric("Restricted spectral error", "", 3, _spectral_error),
    "num_edges": Metric("Edges", "", 0, _num_edges),
}


def metric_of(name: str) -> Metric:
    """Return a metric by its name.

    Raises:
        OptionError: If there is none of that name.
    """
    check_choice("metric", name, tuple(METRICS))
    return METRICS[name]
