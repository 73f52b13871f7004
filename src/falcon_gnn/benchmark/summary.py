"""From records to the figures of each table cell: mean, interval, the paper's figure, and why one is missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from falcon_gnn.benchmark.metrics import metric_of
from falcon_gnn.benchmark.paper import PAPER_MODELS, PaperFigure, PaperPlace, paper_figures
from falcon_gnn.benchmark.plan import Cell
from falcon_gnn.benchmark.records import Line, Records, list_names, name_failures
from falcon_gnn.errors import OptionError
from falcon_gnn.evaluation import confidence_interval
from falcon_gnn.reduction.budgets import resolve_budget

_MEASURES = {"tensors": "live tensors", "allocated": "bytes allocated by torch on the card"}
"""What a record's peak is a peak of, by its field ``measure``; records without it are of tensors."""


@dataclass(frozen=True)
class CellFigure:
    """One figure of a table.

    Attributes:
        mean: Over the runs, in the metric's unit; None if there is none.
        half_width: Of the 95 % interval (Student t); NaN for a single run.
        num_runs: Runs in the mean.
        num_planned: Runs that the benchmark asks for.
        paper: What the paper prints there, or None.
        kept: Nodes trained on, and the nodes that the budget is a share of; None without a reduction.
        status: Why runs are missing (``out of memory``, ``failed``, ``no data``, ``not run`` or ``not measured``), or
            empty.
    """

    mean: float | None
    half_width: float | None
    num_runs: int
    num_planned: int
    paper: PaperFigure | None
    kept: "Kept | None"
    status: str

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's figure."""
        if self.mean is None or self.paper is None or self.paper.value is None:
            return None
        return self.mean - self.paper.value


class Kept(NamedTuple):
    """What is left of a graph, mean over the runs.

    Attributes:
        num_nodes: Nodes left.
        num_in_scope: Nodes there were.
        is_as_planned: Whether every run kept as many as the budget says; a coarsening cannot go below one node per
            component.
    """

    num_nodes: float
    num_in_scope: int
    is_as_planned: bool


class _Entry(NamedTuple):
    """A cell and the plan that it is taken from."""

    line: Mapping[str, Any]
    plan: Line


@dataclass(frozen=True)
class Summary:
    """A benchmark's results.

    Attributes:
        name: The benchmark's.
        title: Heading of its tables.
        kind: What its runs do.
        metrics: Names of the figures, by data set, in order.
        paper_table: Label of the paper's table, or None.
        figure: The metric drawn over the budgets, or None.
        drawn_methods: The methods drawn; empty: all.
        figures: By cell and metric.
        notes: What a reader must know, by data set.
    """

    name: str
    title: str
    kind: str
    metrics: Mapping[str, tuple[str, ...]]
    paper_table: str | None
    figure: str | None
    drawn_methods: tuple[str, ...]
    figures: Mapping[tuple[Cell, str], CellFigure]
    notes: Mapping[str, tuple[str, ...]]

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets, in order."""
        return tuple(self.metrics)

    def cells(self, dataset: str) -> tuple[Cell, ...]:
        """Return the cells of a data set, in order."""
        return tuple(dict.fromkeys(cell for cell, _ in self.figures if cell.dataset == dataset))


def summarise(records: Records) -> tuple[Summary, ...]:
    """Return the results of every benchmark in the records.

    Where a benchmark was planned more than once (with other overrides, say), each cell is taken from the latest plan
    that has a run of it.

    Raises:
        OptionError: If there is no plan, or a plan asks for an unknown metric.
    """
    if not records.plans:
        msg = "the records hold no benchmark. Give a file that falcon-gnn bench wrote."
        raise OptionError(msg)
    names = dict.fromkeys(plan["plan"] for plan in records.plans)
    return tuple(_summarise([plan for plan in records.plans if plan["plan"] == name], records) for name in names)


def _summarise(plans: list[Line], records: Records) -> Summary:
    latest = plans[-1]
    entries = _entries(plans, records)
    metrics: dict[str, tuple[str, ...]] = {}
    figures: dict[tuple[Cell, str], CellFigure] = {}
    for cell, entry in entries.items():
        metrics.setdefault(cell.dataset, tuple(entry.plan["datasets"][cell.dataset]["metrics"]))
        for metric in _all_metrics(metrics[cell.dataset], latest["figure"]):
            figures[cell, metric] = _figure(cell, entry, metric, records)
    notes = {name: tuple(_notes(name, entries, records)) for name in metrics}
    return Summary(
        name=latest["plan"],
        title=latest["title"],
        kind=latest["kind"],
        metrics=metrics,
        paper_table=latest["paper"],
        figure=latest["figure"],
        drawn_methods=tuple(latest["drawn_methods"]),
        figures=figures,
        notes=notes,
    )


def _entries(plans: list[Line], records: Records) -> dict[Cell, _Entry]:
    """Return each cell with the latest plan that has a run of it, else the first plan.

    A cell whose runs a later plan shows under another name (a method was renamed, say) is left out.
    """
    entries: dict[Cell, _Entry] = {}
    last_cells = {run_id: cells for plan in plans for run_id, cells in _cells_by_run(plan).items()}
    for plan in plans:
        for line in plan["cells"]:
            cell = Cell.of_line(line)
            if any(cell not in last_cells[run_id] for run_id in line["ids"]):
                continue
            if cell not in entries or _has_run(line, records):
                entries[cell] = _Entry(line, plan)
    return entries


def _has_run(line: Mapping[str, Any], records: Records) -> bool:
    return any(run_id in records.runs for run_id in line["ids"])


def _cells_by_run(plan: Line) -> dict[str, set[Cell]]:
    cells: dict[str, set[Cell]] = {}
    for line in plan["cells"]:
        for run_id in line["ids"]:
            cells.setdefault(run_id, set()).add(Cell.of_line(line))
    return cells


def _all_metrics(metrics: tuple[str, ...], figure: str | None) -> tuple[str, ...]:
    return metrics if figure is None or figure in metrics else (*metrics, figure)


def _figure(cell: Cell, entry: _Entry, metric: str, records: Records) -> CellFigure:
    # A seed, a budget or a centrality that a file names twice is one run, not two.
    read, ids = metric_of(metric).read, list(dict.fromkeys(entry.line["ids"]))
    done = [records.runs[run_id]["record"] for run_id in ids if run_id in records.runs]
    values = [value for record in done if (value := read(record)) is not None]
    mean, half_width = confidence_interval(values) if values else (None, None)
    status = "" if len(values) == len(ids) else _status(cell, ids, records)
    return CellFigure(
        mean, half_width, len(values), len(ids), _paper_figure(cell, entry, metric), _kept(cell, done), status
    )


def _kept(cell: Cell, records: list[Mapping[str, Any]]) -> Kept | None:
    counts = [record["trained_on"]["num_nodes"] for record in records if record.get("reduction")]
    if not counts or cell.budget is None:
        return None
    num_in_scope = records[0]["reduction"]["num_nodes_in_scope"]
    planned = resolve_budget(cell.budget, num_in_scope)
    return Kept(sum(counts) / len(counts), num_in_scope, all(count == planned for count in counts))


def _status(cell: Cell, ids: list[str], records: Records) -> str:
    errors = [records.errors[run_id] for run_id in ids if run_id in records.errors]
    if any(error.get("out_of_memory") for error in errors):
        return "out of memory"
    if errors:
        return "failed"
    if all(run_id in records.runs for run_id in ids):
        return "not measured"
    return "no data" if cell.dataset in records.missing_data else "not run"


def _paper_figure(cell: Cell, entry: _Entry, metric: str) -> PaperFigure | None:
    table, (dataset, reduction) = entry.plan["paper"], entry.line["paper"]
    if table is None or dataset is None or reduction is None:
        return None
    model = PAPER_MODELS.get(cell.model, cell.model)
    return paper_figures().get(PaperPlace(table, dataset, model, reduction, cell.centrality, metric))


def _notes(dataset: str, entries: Mapping[Cell, _Entry], records: Records) -> Iterator[str]:
    """Yield a data set's own note, what was overridden, and the errors of its cells."""
    own = {cell: entry for cell, entry in entries.items() if cell.dataset == dataset}
    plans = {entry.plan["plan"] + str(entry.plan["overrides"]): entry.plan for entry in own.values()}
    yield from dict.fromkeys(note for plan in plans.values() if (note := plan["datasets"][dataset]["note"]))
    yield from _override_notes(own, records)
    if dataset in records.missing_data and not any(_has_run(entry.line, records) for entry in own.values()):
        yield f"No data: {records.missing_data[dataset]}"
    if any("gpu_memory" in plan["datasets"][dataset]["metrics"] for plan in plans.values()):
        yield from _memory_notes(own, records)
    failed = [run_id for entry in own.values() for run_id in entry.line["ids"] if run_id in records.errors]
    errors = ((run_id, records.errors[run_id]) for run_id in failed)
    yield from name_failures({error.get("run", run_id): error["error"] for run_id, error in errors})


def _override_notes(own: Mapping[Cell, _Entry], records: Records) -> Iterator[str]:
    """Yield what was overridden, and in which cells where others that were run, failed or not, do without it."""
    with_runs = {
        cell: entry
        for cell, entry in own.items()
        if _has_run(entry.line, records) or any(run_id in records.errors for run_id in entry.line["ids"])
    }
    texts = {cell: _override_text(entry.plan["overrides"]) for cell, entry in (with_runs or own).items()}
    for text in dict.fromkeys(texts.values()):
        cells = [cell.name for cell, other in texts.items() if other == text]
        where = "" if len(cells) == len(texts) else f" ({list_names(cells, 'cells')})"
        if text:
            yield f"Differs from the configuration{where}: {text}."


def _memory_notes(own: Mapping[Cell, _Entry], records: Records) -> Iterator[str]:
    """Yield what the peaks of a data set's runs are peaks of."""
    runs = [records.runs[run_id] for entry in own.values() for run_id in entry.line["ids"] if run_id in records.runs]
    found = [memory for run in runs if (memory := run["record"].get("memory"))]
    kinds = [_MEASURES[kind] for kind in sorted({memory.get("measure", "tensors") for memory in found})]
    if kinds:
        yield f"Peak memory is that of {' in some runs, in others of '.join(kinds)}."


def _override_text(overrides: Mapping[str, Any]) -> str:
    """Return the overrides that change a run, not those that only choose among the file's."""
    told = {key: value for key, value in overrides.items() if key not in ("datasets", "methods", "models")}
    return ", ".join(f"{key} = {value}" for key, value in told.items())
