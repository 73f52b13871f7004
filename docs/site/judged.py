"""The tables of ``docs/judged.md``, from the records: ``python docs/site/judged.py`` writes them into the page.

Everything from the page's heading "Against the full graph" on is generated.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from falcon_gnn.benchmark.metrics import metric_of
from falcon_gnn.benchmark.plan import Cell
from falcon_gnn.benchmark.records import Records, read_records
from falcon_gnn.benchmark.summary import CellFigure, Summary, summarise
from falcon_gnn.evaluation import confidence_interval
from falcon_gnn.reporting.formats import MINUS, NOTHING, format_signed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "judged.md"
FIRST_HEADING = "## Against the full graph"
_RECORDS = ROOT / "results" / "judged.jsonl"
_LEAST_RUNS = 3
"""Runs from which an interval is worth printing."""
_BUDGETS = (0.3, 0.1, 0.05, 0.02)
_MODELS = {"sign": "SIGN", "gcn": "GCN"}
_SETS = {
    "amazon_photo": "Amazon Photo", "dblp_citationfull": "DBLP", "twitch_de": "Twitch DE",
    "flickr_attr": "Flickr (attributed)", "het_chameleon_filtered": "Chameleon (filtered)",
    "het_minesweeper": "Minesweeper",
}  # fmt: skip
_METHODS = {
    "random rows": "random rows", "random rows with soft labels": "random rows with soft labels", "herding": "herding",
    "random induced": "random induced subgraph", "FALCON, PR": "FALCON, PR", "FALCON, EC": "FALCON, EC",
    "coarsening": "coarsening", "preset": "preset without soft labels", "preset with soft labels": "**preset**",
}  # fmt: skip
_CORRECTED = {"preset": "preset without soft labels, corrected", "preset with soft labels": "preset, corrected"}
_OF_A_GCN = {
    "random rows": "random rows of a GCN", "herding": "herding of a GCN", "preset": "preset of a GCN",
    "preset with soft labels": "preset of a GCN with soft labels",
}  # fmt: skip
"""Methods that have another name for a GCN."""
_RULE = "---:|"

_Runs = Mapping[Cell, Sequence[Mapping[str, Any] | None]]
"""What each run of a cell recorded, one per seed; None where a seed has no run."""


def write_tables() -> str:
    """Return the generated part of the page."""
    records = read_records(_RECORDS)
    (summary,) = summarise(records)
    runs = _runs_by_cell(records)
    lines = [
        FIRST_HEADING, "",
        "Test accuracy of the preset minus that of the full graph, in points (Minesweeper: ROC-AUC), the model alone: "
        "the mean of the differences on the same splits with its 95 % interval, or with the number of splits in "
        "brackets below three.", "", *_paired_lines(runs, "none"), "",
        "Both corrected by the labels:", "", *_paired_lines(runs, "none", is_corrected=True), "",
        "What soft labels add, the model alone: the preset minus that without them.", "",
        *_paired_lines(runs, "preset"), "",
        "## Against as many random rows", "",
        "Likewise, the preset minus as many random rows, the model alone:", "",
        *_paired_lines(runs, "random rows"), "",
        "## The tables", "", *_table_lines(summary),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _runs_by_cell(records: Records) -> _Runs:
    return {
        Cell.of_line(line): [records.runs[one]["record"] if one in records.runs else None for one in line["ids"]]
        for plan in records.plans
        for line in plan["cells"]
    }


def _paired_lines(runs: _Runs, other: str, *, is_corrected: bool = False) -> Iterator[str]:
    """Yield the table of differences between the preset and another method, seed by seed."""
    yield f"| set | {' | '.join(f'{_MODELS[model]}, {_share(budget)}' for model in _MODELS for budget in _BUDGETS)} |"
    yield "|---|" + _RULE * (len(_MODELS) * len(_BUDGETS))
    for dataset, title in _SETS.items():
        name = _metrics(dataset)[0]
        metric = metric_of(name.removesuffix("_alone") if is_corrected else name)
        cells = []
        for model in _MODELS:
            for budget in _BUDGETS:
                pair = [
                    Cell(dataset, model, _name(method, model), "", None if method == "none" else budget)
                    for method in ("preset with soft labels", other)
                ]
                scores = [[None if run is None else metric.read(run) for run in runs.get(cell, ())] for cell in pair]
                cells.append(_difference(scores))
        yield f"| {title} | {' | '.join(cells)} |"


def _difference(pair: Sequence[Sequence[float | None]]) -> str:
    both = [a - b for a, b in zip(*pair, strict=False) if a is not None and b is not None]
    if not both:
        return NOTHING
    mean, half = confidence_interval(both)
    text = format_signed(mean, 1)
    if len(both) < _LEAST_RUNS:
        return f"{text} ({len(both)})"
    low, high = format_signed(mean - half, 1), format_signed(mean + half, 1)
    return f"{text} [{low}, {high}]"


def _table_lines(summary: Summary) -> Iterator[str]:
    yield (
        "Test accuracy in %, the mean over the splits with the half width of its 95 % interval, or with the number of "
        "splits in brackets where they are fewer than five; no interval below three."
    )
    for dataset, title in _SETS.items():
        metrics = _metrics(dataset)
        for name in metrics:
            yield ""
            heading = {"roc_auc_alone": f"{title}, ROC-AUC", "accuracy_alone": title}[name]
            yield f"### {heading + ', accuracy' if name != metrics[0] else heading}"
            yield ""
            yield from _metric_lines(summary, dataset, name)
        yield ""
        for model in _MODELS:
            if (PAGE.parent / "judged" / f"{dataset}_{model}.png").is_file():
                alt = f"{title}: accuracy of the model alone over the share of nodes kept"
                yield f"![{alt}](judged/{dataset}_{model}.png)"


def _metric_lines(summary: Summary, dataset: str, name: str) -> Iterator[str]:
    corrected = name.removesuffix("_alone")
    full = []
    for model, title in _MODELS.items():
        alone, mended = (
            _figure(summary, Cell(dataset, model, "none", "", None), metric) for metric in (name, corrected)
        )
        full.append(f"{title} {alone}, corrected {mended}")
    yield f"Full graph: {'; '.join(full)}."
    yield ""
    yield f"| reduction | {' | '.join(f'{title}, {_share(b)}' for title in _MODELS.values() for b in _BUDGETS)} |"
    yield "|---|" + _RULE * (len(_MODELS) * len(_BUDGETS))
    rows = []
    for method, title in _METHODS.items():
        rows.append((method, title, name))
        if method in _CORRECTED:
            rows.append((method, _CORRECTED[method], corrected))
    for method, title, metric in rows:
        cells = [
            _figure(summary, Cell(dataset, model, _name(method, model), "", budget), metric)
            for model in _MODELS
            for budget in _BUDGETS
        ]
        if any(cell != NOTHING for cell in cells):
            yield f"| {title} | {' | '.join(cells)} |"


def _figure(summary: Summary, cell: Cell, metric: str) -> str:
    found = summary.figures.get((cell, metric))
    if found is None or found.mean is None or not _is_kept(found, cell.budget):
        return NOTHING
    text = f"{found.mean:.1f}".replace("-", MINUS)
    half = math.nan if found.half_width is None else found.half_width
    if found.num_runs >= _LEAST_RUNS and not math.isnan(half):
        text += f" ± {half:.1f}"
    return text if found.num_runs == found.num_planned else f"{text} ({found.num_runs})"


def _is_kept(figure: CellFigure, budget: Any) -> bool:
    """Whether a reduction came down to its budget; a coarsening cannot go below a node per component.

    Splits of one set differ a little in size.
    """
    kept = figure.kept
    return kept is None or kept.num_nodes <= 1.1 * budget * kept.num_in_scope + 1


def _metrics(dataset: str) -> tuple[str, ...]:
    return ("roc_auc_alone", "accuracy_alone") if dataset == "het_minesweeper" else ("accuracy_alone",)


def _name(method: str, model: str) -> str:
    return _OF_A_GCN.get(method, method) if model == "gcn" else method


def _share(budget: float) -> str:
    return f"{100 * budget:g} %"


def main() -> None:
    """Write the generated part into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(FIRST_HEADING)] + write_tables(), encoding="utf-8")


if __name__ == "__main__":
    main()
