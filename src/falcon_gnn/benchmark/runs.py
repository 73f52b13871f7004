"""Runs a benchmark: what is not recorded yet, one record each, on past failures."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from falcon_gnn.benchmark.arguments import BenchOptions, Choice
from falcon_gnn.benchmark.execute import Workplace
from falcon_gnn.benchmark.plan import Plan, PlannedRun, choose_runs, make_plan
from falcon_gnn.benchmark.progress import BenchProgress
from falcon_gnn.benchmark.records import Records, RecordWriter, read_records
from falcon_gnn.benchmark.workers import Done, run_here, run_in_processes
from falcon_gnn.errors import OptionError
from falcon_gnn.files import check_writable

_TIMED = ("collapse_time", "resources")


@dataclass(frozen=True)
class BenchOutcome:
    """What a call of :func:`run_benchmark` did.

    Attributes:
        num_done: Runs recorded by this call.
        num_skipped: Chosen runs that had been recorded before.
        num_left: Chosen runs that are still to be done, failed ones included.
        failed: The error of each run that failed, by its name.
        missing_data: The error of each data set that could not be loaded, by its name.
    """

    num_done: int
    num_skipped: int
    num_left: int
    failed: Mapping[str, str]
    missing_data: Mapping[str, str]

    @property
    def is_complete(self) -> bool:
        """Whether nothing failed."""
        return not self.failed and not self.missing_data


@dataclass
class _Tally:
    """Records each line and counts what it says."""

    writer: RecordWriter
    benchmark: str
    num_done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    missing_data: dict[str, str] = field(default_factory=dict)

    def take(self, run: PlannedRun, line: Mapping[str, Any]) -> None:
        """Record a line; that a data set is not there is recorded once, not once per run."""
        if "missing_data" in line:
            if line["missing_data"] not in self.missing_data:
                self.writer.append(line)
            self.missing_data[line["missing_data"]] = line["error"]
            return
        self.writer.append({**line, "benchmark": self.benchmark})
        if "error" in line:
            self.failed[run.name] = line["error"]
        else:
            self.num_done += 1


def run_benchmark(
    config_path: str | Path, records_path: str | Path, options: BenchOptions | None = None, *, progress: bool = True
) -> BenchOutcome:
    """Do the runs of a configuration file that are not recorded yet, one line of JSON each.

    It can be stopped at any time and called again: at most the runs in progress are lost.

    Args:
        config_path: The TOML file.
        records_path: The record file; it may hold other benchmarks' records, and runs that they share are done once.
        options: Where the data is, what differs from the file, which runs, and how many at the same time.
        progress: Whether to draw a bar with the time left; every run is logged under ``falcon_gnn``.

    Raises:
        OptionError: If the file, an override or a choice is wrong, a line of the records is no JSON, or runs that are
            timed are to share the machine.
    """
    options = options or BenchOptions()
    plan = make_plan(config_path, options.settings)
    if options.num_workers > 1 and plan.config.kind in _TIMED:
        msg = f"num_workers must be 1 for kind={plan.config.kind!r}: runs at the same time spoil each other's times."
        raise OptionError(msg)
    records = read_records(records_path)
    chosen = _chosen(plan, options.only)
    todo = [run for run in chosen if run.run_id not in records.runs]
    todo = todo[: options.max_runs] if options.max_runs is not None else todo
    check_writable(records_path, is_folder=False, option="records")
    writer = RecordWriter(records_path)
    _note_plan(writer, records, describe_plan(plan))
    tally = _Tally(writer, plan.config.name)
    with BenchProgress(plan.config.name, len(todo), active=progress) as bar, closing(_results(todo, options)) as done:
        for run, line in done:
            tally.take(run, line)
            # Where it cannot be told, as when what reads the output has ended, the run is recorded.
            bar.report(run, line)
    num_recorded = sum(run.run_id in records.runs for run in chosen)
    num_left = len(chosen) - num_recorded - tally.num_done
    return BenchOutcome(tally.num_done, num_recorded, num_left, tally.failed, tally.missing_data)


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Return the line that tells, for each cell of a benchmark's tables, the ids of its runs."""
    config = plan.config
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    papers = {dataset.name: dataset.paper for dataset in config.datasets}
    for run in plan.runs:
        key = tuple(asdict(run.cell).values())
        paper = [papers[run.cell.dataset], run.paper_reduction]
        cells.setdefault(key, {**asdict(run.cell), "paper": paper, "ids": []})["ids"].append(run.run_id)
    return {
        "plan": config.name,
        "title": config.title,
        "kind": config.kind,
        "paper": config.paper,
        "figure": config.figure,
        "drawn_methods": list(config.drawn_methods),
        "overrides": dict(config.overrides),
        "datasets": {
            dataset.name: {
                "note": dataset.note,
                "metrics": [metric for metric in config.metrics if metric not in dataset.without_metrics],
            }
            for dataset in config.datasets
        },
        "cells": list(cells.values()),
    }


def _chosen(plan: Plan, only: Choice) -> tuple[PlannedRun, ...]:
    """Return the chosen runs, each once."""
    chosen = tuple({run.run_id: run for run in choose_runs(plan.runs, only)}.values())
    if not chosen:
        wanted = ", ".join(f"{label}={'|'.join(sorted(values))}" for label, values in only.items())
        msg = f"no run of {plan.config.name} fits {wanted or 'the configuration'}. Its first run: {_first(plan)}."
        raise OptionError(msg)
    return chosen


def _first(plan: Plan) -> str:
    return plan.runs[0].name if plan.runs else "none"


def _note_plan(writer: RecordWriter, records: Records, line: Mapping[str, Any]) -> None:
    """Record the plan unless it is the last one recorded under its name."""
    earlier = [plan for plan in records.plans if plan["plan"] == line["plan"]]
    if not earlier or earlier[-1] != line:
        writer.append(line)


def _results(todo: Sequence[PlannedRun], options: BenchOptions) -> Generator[Done, None, None]:
    place = Workplace(options.data_folder, options.num_workers, options.download)
    return run_here(todo, place) if options.num_workers == 1 else run_in_processes(todo, place)
