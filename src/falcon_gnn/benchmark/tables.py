"""Tables of a benchmark beside the paper's figures, as Markdown, CSV and LaTeX."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from falcon_gnn.benchmark.config import Budget
from falcon_gnn.benchmark.metrics import Metric, metric_of
from falcon_gnn.benchmark.paper import PAPER_MODELS, PaperFigure
from falcon_gnn.benchmark.plan import Cell
from falcon_gnn.benchmark.summary import CellFigure, Summary
from falcon_gnn.checks import check_choice
from falcon_gnn.files import replacing
from falcon_gnn.reporting.formats import NOTHING, format_share, format_signed

Format = Literal["md", "csv", "latex"]
SUFFIXES: dict[Format, str] = {"md": ".md", "csv": ".csv", "latex": ".tex"}

_CSV_COLUMNS = (
    "benchmark", "dataset", "model", "method", "centrality", "budget", "metric", "unit", "mean", "ci95", "runs",
    "planned_runs", "kept_nodes", "paper_value", "paper_ci95", "difference", "status",
)  # fmt: skip
_LATEX = {
    "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$",
    "±": r"$\pm$", "\N{MINUS SIGN}": "$-$", NOTHING: "--",
}  # fmt: skip
_LABELS = ("Model", "Reduction", "Centrality")
_WORDS = (*_LABELS, "Data set", "Metric", "verdict")


@dataclass(frozen=True)
class ResultTable:
    """A table as text.

    Attributes:
        title: Heading.
        columns: Names; the first three label the rows.
        rows: Cells.
        notes: What stands below.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def render(summaries: Sequence[Summary], form: Format) -> str:
    """Return the tables of benchmarks as one text.

    Args:
        summaries: The results.
        form: ``md``, ``csv`` or ``latex``.

    Raises:
        OptionError: If the format is another one.
    """
    check_choice("format", form, get_args(Format))
    if form == "csv":
        return _csv(summaries)
    write = render_table if form == "md" else _latex
    return "\n".join(write(table) for summary in summaries for table in make_tables(summary))


def write_tables(summaries: Sequence[Summary], folder: str | Path) -> list[Path]:
    """Write the tables of each benchmark in all three formats and return the files, each whole or not at all."""
    paths = []
    for summary in summaries:
        for form, suffix in SUFFIXES.items():
            path = Path(folder) / f"{summary.name}{suffix}"
            with replacing(path) as temporary:
                temporary.write_text(render([summary], form), encoding="utf-8")
            paths.append(path)
    return paths


def make_tables(summary: Summary) -> list[ResultTable]:
    """Return one table per data set, or per data set and metric where several budgets make the columns."""
    tables: list[ResultTable] = []
    for dataset in summary.datasets:
        if len(_budgets(summary.cells(dataset))) > 1:
            tables.extend(_budget_table(summary, dataset, metric) for metric in summary.metrics[dataset])
        else:
            tables.append(_metric_table(summary, dataset))
    return tables


def format_figure(figure: CellFigure, metric: Metric) -> str:
    """Return mean ± half width with what a reader must know of it in brackets, or why there is none.

    In brackets: the number of runs where some are missing or there is one, and the share kept where the method could
    not keep the planned one.
    """
    if figure.mean is None:
        return figure.status
    text = f"{figure.mean:,.{metric.num_decimals}f}"
    if figure.half_width is not None and not math.isnan(figure.half_width):
        text += f" ± {figure.half_width:.{metric.num_decimals}f}"
    remarks = []
    if figure.num_runs < figure.num_planned:
        remarks.append(f"{figure.num_runs} of {figure.num_planned} runs; {figure.status}")
    elif figure.num_runs == 1:
        remarks.append("1 run")
    if figure.kept is not None and not figure.kept.is_as_planned:
        remarks.append(f"{format_share(figure.kept.num_nodes / figure.kept.num_in_scope)} kept")
    return f"{text} ({'; '.join(remarks)})" if remarks else text


def format_paper(figure: PaperFigure | None) -> str:
    """Return the paper's figure as it prints it."""
    if figure is None:
        return NOTHING
    half_width = figure.half_width
    text = figure.text if figure.text != "-" else NOTHING
    return text if half_width is None else f"{text} ± {half_width}"


def format_difference(figure: CellFigure, metric: Metric) -> str:
    """Return our mean minus the paper's figure, with its sign."""
    return NOTHING if figure.difference is None else format_signed(figure.difference, metric.num_decimals)


def format_budget(budget: Budget | None) -> str:
    """Return a budget as a heading: a share, a number of nodes, or all."""
    if budget is None:
        return "full graph"
    return format_share(budget) if isinstance(budget, float) else f"{budget:,} nodes"


def _metric_table(summary: Summary, dataset: str) -> ResultTable:
    """Return the table with the metrics side by side, each with the paper's figure where it prints any."""
    cells = summary.cells(dataset)
    columns = list(_LABELS)
    rows = [[PAPER_MODELS.get(cell.model, cell.model), cell.method, cell.centrality] for cell in cells]
    for name in summary.metrics[dataset]:
        metric, figures = metric_of(name), [summary.figures[cell, name] for cell in cells]
        has_paper = any(figure.paper is not None for figure in figures)
        columns.extend((_heading(metric), "paper", "difference") if has_paper else (_heading(metric),))
        for row, figure in zip(rows, figures, strict=True):
            row.append(format_figure(figure, metric))
            if has_paper:
                row.extend((format_paper(figure.paper), format_difference(figure, metric)))
    budgets = _budgets(cells)
    kept = f", {format_budget(budgets[0])} kept" if budgets else ""
    title = f"{summary.title}: {dataset}{kept}"
    return _without_empty_labels(ResultTable(title, tuple(columns), tuple(map(tuple, rows)), summary.notes[dataset]))


def _budget_table(summary: Summary, dataset: str, name: str) -> ResultTable:
    """Return the table of one metric with a column per budget, the full graph first."""
    cells, metric = summary.cells(dataset), metric_of(name)
    budgets: list[Budget | None] = list(_budgets(cells))
    if any(cell.budget is None for cell in cells):
        budgets.insert(0, None)
    rows: dict[tuple[str, str, str], dict[Budget | None, str]] = {}
    for cell in cells:
        label = (PAPER_MODELS.get(cell.model, cell.model), cell.method, cell.centrality)
        rows.setdefault(label, {})[cell.budget] = format_figure(summary.figures[cell, name], metric)
    columns = (*_LABELS, *(format_budget(budget) for budget in budgets))
    filled = tuple((*label, *(values.get(budget, "") for budget in budgets)) for label, values in rows.items())
    title = f"{summary.title}: {dataset}, {_heading(metric)}"
    return _without_empty_labels(ResultTable(title, columns, filled, summary.notes[dataset]))


def _without_empty_labels(table: ResultTable) -> ResultTable:
    """Return the table without the label columns in which no row has anything."""
    used = [
        place for place in range(len(table.columns)) if place >= len(_LABELS) or any(row[place] for row in table.rows)
    ]
    return ResultTable(
        table.title,
        tuple(table.columns[place] for place in used),
        tuple(tuple(row[place] for place in used) for row in table.rows),
        table.notes,
    )


def _heading(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


def _budgets(cells: Sequence[Cell]) -> list[Budget]:
    """Return the distinct budgets, the largest first."""
    return sorted({cell.budget for cell in cells if cell.budget is not None}, reverse=True)


def render_table(table: ResultTable) -> str:
    """Return a table in Markdown, its notes as a list below it."""
    lines = [f"### {table.title}", "", _markdown_row(table.columns)]
    lines.append(_markdown_row(["---" if name in _WORDS else "---:" for name in table.columns]))
    lines.extend(_markdown_row(row) for row in table.rows)
    lines.append("")
    lines.extend(f"- {note}" for note in table.notes)
    return "\n".join(lines) + ("\n" if table.notes else "")


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _latex(table: ResultTable) -> str:
    num_labels = sum(name in _LABELS for name in table.columns)
    layout = "l" * num_labels + "r" * (len(table.columns) - num_labels)
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_escape(table.title)}}}",
        rf"  \begin{{tabular}}{{{layout}}}",
    ]
    lines.append(rf"    \toprule {_latex_row(table.columns)} \midrule")
    lines.extend(f"    {_latex_row(row)}" for row in table.rows)
    lines.extend((r"    \bottomrule", r"  \end{tabular}"))
    lines.extend(rf"  \par\small {_escape(note)}" for note in table.notes)
    return "\n".join([*lines, r"\end{table}", ""])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_escape(cell) for cell in cells) + r" \\"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _csv(summaries: Sequence[Summary]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for summary in summaries:
        for (cell, name), figure in summary.figures.items():
            writer.writerow(_csv_row(summary, cell, name, figure))
    return buffer.getvalue()


def _csv_row(summary: Summary, cell: Cell, name: str, figure: CellFigure) -> list[str | int | float]:
    paper = figure.paper
    values = (figure.mean, figure.half_width)
    return [
        summary.name, cell.dataset, cell.model, cell.method, cell.centrality,
        "" if cell.budget is None else cell.budget, name, metric_of(name).unit,
        *("" if value is None or math.isnan(value) else f"{value:.6g}" for value in values),
        figure.num_runs, figure.num_planned,
        "" if figure.kept is None else f"{figure.kept.num_nodes:g}",
        "" if paper is None else paper.text,
        "" if paper is None or paper.half_width is None else paper.half_width,
        "" if figure.difference is None else f"{figure.difference:.6g}",
        figure.status,
    ]  # fmt: skip
