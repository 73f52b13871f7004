"""One page with every figure that the paper prints, ours beside it or the reason why there is none."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from falcon_gnn.benchmark.agreement import Agreement, agreement_of, count_agreements, format_verdict
from falcon_gnn.benchmark.metrics import metric_of
from falcon_gnn.benchmark.paper import PaperFigure, PaperPlace, paper_figures
from falcon_gnn.benchmark.plan import Cell
from falcon_gnn.benchmark.summary import CellFigure, Summary
from falcon_gnn.benchmark.tables import (
    ResultTable,
    format_difference,
    format_figure,
    format_paper,
    render_table,
)
from falcon_gnn.files import replacing

TABLES = {
    "main_result": "Prediction quality",
    "benchmark_falco_vs_agnostic": "FALCON and pure centrality collapse, QSIGN",
    "moreFLP_vsNonFLP": "FALCON and pure centrality collapse, other models",
    "benchmark_falco_vs_coarsen": "FALCON and coarsening",
    "main_resource": "Computational resources",
    "benchmark_label_error": "Label distribution error",
    "contraction_time": "Collapse time",
}
"""The paper's tables by their labels, in the order of the page."""
_REDUCTIONS = {"none": "none", "falcon": "FALCON", "centrality": "pure collapse", "coarsen": "coarsening"}
_NEEDS_GPU = "no GPU here"
_HEAD = """# Every figure of the paper

Made by `falcon-gnn tables results/*.jsonl --paper-page docs/paper_figures.md`; do not edit it.

- The paper's ± is its own 95 % interval over 5 runs, ours that of the mean over our runs (Student t); "1 run" has none.
- A figure is *within* if the two differ by no more than both intervals together. Memory and seconds are a machine's and
  are not judged so.
- "on" names the data where it is not the paper's: PPI with re-derived labels, Organ-A in place of Organ-S, a graph
  drawn in Flickr's size. Such a figure stands there for orientation and says nothing for or against the paper's.
- What differs in training is in [results.md](results.md), and so is what the paper leaves open.
"""


class _Ours(NamedTuple):
    """A figure of ours for a place of the paper's tables."""

    cell: Cell
    figure: CellFigure
    has_paper_data: bool


class _Row(NamedTuple):
    """A row of the page: where, what the paper prints, and ours, if there is any."""

    printed: PaperFigure
    ours: _Ours | None
    agreement: Agreement | None
    reason: str


def write_paper_page(summaries: Sequence[Summary], path: str | Path) -> None:
    """Write the page, whole or not at all."""
    with replacing(Path(path)) as temporary:
        temporary.write_text(paper_page(summaries), encoding="utf-8")


def paper_page(summaries: Sequence[Summary]) -> str:
    """Return the page in Markdown.

    Args:
        summaries: The results of all benchmarks. Of several figures for a place the one with the paper's own data is
            taken, then the one with the most runs.
    """
    ours = _by_place(summaries)
    rows = [_row(printed, ours.get(place, [])) for place, printed in paper_figures().items()]
    parts, tables = [_HEAD, *_counts(rows)], defaultdict(list)
    for row in rows:
        tables[row.printed.place.table, row.printed.place.dataset].append(row)
    for table, title in TABLES.items():
        for (label, dataset), group in tables.items():
            if label == table:
                parts.append(render_table(_table(f"{title}: {dataset}", group)))
    return "\n".join(parts)


def _by_place(summaries: Sequence[Summary]) -> dict[PaperPlace, list[_Ours]]:
    found = defaultdict(list)
    for summary in summaries:
        for (cell, _), figure in summary.figures.items():
            if figure.paper is not None:
                found[figure.paper.place].append(_Ours(cell, figure, cell.dataset == figure.paper.place.dataset))
    return found


def _row(printed: PaperFigure, candidates: Sequence[_Ours]) -> _Row:
    measured = [one for one in candidates if one.figure.mean is not None]
    if not measured:
        return _Row(printed, None, None, _reason(printed.place, candidates))
    best = max(measured, key=lambda one: (one.has_paper_data, one.figure.num_runs))
    return _Row(printed, best, agreement_of(best.cell, printed.place.metric, best.figure), "")


def _reason(place: PaperPlace, candidates: Sequence[_Ours]) -> str:
    """Return why there is no figure: what the records say, or that nothing was ever planned with that data."""
    if place.table == "main_resource":
        return _NEEDS_GPU
    reasons = {one.figure.status for one in candidates if one.figure.status != "no data"}
    if reasons:
        return ", ".join(sorted(reasons))
    return "no data" if candidates or place.dataset in _WITHOUT_STAND_IN else "not run"


_WITHOUT_STAND_IN = ("Organ-C", "Flickr")
"""The paper's sets whose files are not at hand, and for which nothing with labels stands in."""


def _counts(rows: Sequence[_Row]) -> Iterator[str]:
    with_ours = [row for row in rows if row.ours is not None]
    own_data = [row.agreement for row in with_ours if row.agreement and row.ours and row.ours.has_paper_data]
    stand_ins = [row.agreement for row in with_ours if row.agreement and row.ours and not row.ours.has_paper_data]
    yield f"Of {len(rows):,} figures {len(with_ours):,} have ours beside them."
    reasons = Counter(row.reason for row in rows if row.ours is None)
    yield f"The others: {', '.join(f'{reason} {count:,}' for reason, count in reasons.most_common())}.\n"
    yield f"- With the paper's own data: {count_agreements(own_data)}"
    yield f"- With data that stands in: {count_agreements(stand_ins)}\n"


def _table(title: str, rows: Iterable[_Row]) -> ResultTable:
    columns = ("Model", "Reduction", "Centrality", "Metric", "paper", "ours", "on", "difference", "verdict")
    return ResultTable(title, columns, tuple(_cells(row) for row in rows))


def _cells(row: _Row) -> tuple[str, ...]:
    place = row.printed.place
    labels = (place.model, _REDUCTIONS[place.reduction], place.centrality, metric_of(place.metric).title)
    if row.ours is None:
        return (*labels, format_paper(row.printed), row.reason, "", "", "")
    metric, figure = metric_of(place.metric), row.ours.figure
    on = "" if row.ours.has_paper_data else row.ours.cell.dataset
    verdict = "" if row.agreement is None else format_verdict(row.agreement)
    difference = "" if row.agreement is None else format_difference(figure, metric)
    return (*labels, format_paper(row.printed), format_figure(figure, metric), on, difference, verdict)
