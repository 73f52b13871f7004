"""The figures that the paper prints, to stand beside our own."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PAPER_MODELS = {"gcn": "GCN", "gas": "GAS", "cluster-gcn": "ClusterGCN", "sign": "SIGN", "qsign": "QSIGN"}
"""The paper's names of the models."""


@dataclass(frozen=True)
class PaperPlace:
    """A cell of the paper's tables.

    Attributes:
        table: Label of the table.
        dataset: The paper's name of the data set.
        model: The paper's name of the model; empty where nothing is trained.
        reduction: ``none``, ``falcon``, ``centrality`` or ``coarsen``.
        centrality: DC, BC, PR, CC, EC, or empty.
        metric: As :data:`falcon_gnn.benchmark.metrics.METRICS` names it.
    """

    table: str
    dataset: str
    model: str
    reduction: str
    centrality: str
    metric: str


@dataclass(frozen=True)
class PaperFigure:
    """What the paper prints in a cell.

    Attributes:
        place: Where.
        text: As printed: a number, ``OOM`` or ``-``.
        value: The number, or None.
        half_width: Of its 95 % interval, or None.
    """

    place: PaperPlace
    text: str
    value: float | None
    half_width: float | None


@cache
def paper_figures() -> dict[PaperPlace, PaperFigure]:
    """Return every figure of the paper's tables."""
    text = files("falcon_gnn.benchmark").joinpath("data/paper_results.csv").read_text(encoding="utf-8")
    figures = map(_figure, csv.DictReader(text.splitlines()))
    return {figure.place: figure for figure in figures}


def _place(row: dict[str, str]) -> PaperPlace:
    return PaperPlace(row["table"], row["dataset"], row["model"], row["reduction"], row["centrality"], row["metric"])


def _figure(row: dict[str, str]) -> PaperFigure:
    text, half_width = row["paper_value"], row["paper_ci95"]
    is_number = text not in ("OOM", "-")
    return PaperFigure(_place(row), text, float(text) if is_number else None, float(half_width) if half_width else None)
