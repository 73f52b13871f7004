"""What a person sees while a benchmark runs: a bar with the time left, and a line per run in the log."""

import logging
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from falcon_gnn.benchmark.plan import PlannedRun
from falcon_gnn.display import can_draw

_LOG = logging.getLogger(__name__)


class BenchProgress:
    """Logs every finished run, and draws a bar on standard error or in a notebook.

    Args:
        name: The benchmark's name.
        num_runs: Runs to be done.
        active: Whether to draw the bar.
    """

    def __init__(self, name: str, num_runs: int, *, active: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (
            TextColumn(name),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self.progress = Progress(*columns, console=console, disable=not (active and can_draw(console)))
        self.task = self.progress.add_task(name, total=num_runs, left="")
        self.num_runs, self.num_finished, self.num_missing = num_runs, 0, 0
        self.missing_data: set[str] = set()
        self.started = time.monotonic()

    def __enter__(self) -> Self:
        """Show the bar."""
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bar as it is."""
        self.progress.stop()

    def report(self, run: PlannedRun, line: Mapping[str, Any]) -> None:
        """Tell of a run and of the time left, which goes by the mean of those done."""
        self.num_finished += 1
        self.num_missing += "missing_data" in line
        left = self._time_left()
        self.progress.update(self.task, completed=self.num_finished, left=left)
        # That a data set is not there is told once, not once per run.
        if line.get("missing_data") not in self.missing_data:
            level = logging.WARNING if "error" in line else logging.INFO
            tail = f" ({left})" if left else ""
            _LOG.log(level, "[%d/%d] %s: %s%s", self.num_finished, self.num_runs, run.name, _result(line), tail)
        if "missing_data" in line:
            self.missing_data.add(line["missing_data"])

    def _time_left(self) -> str:
        num_timed = self.num_finished - self.num_missing
        if num_timed == 0:
            return ""
        seconds = (time.monotonic() - self.started) / num_timed * (self.num_runs - self.num_finished)
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"about {hours}:{minutes:02}:{rest:02} left"


def _result(line: Mapping[str, Any]) -> str:
    if "missing_data" in line:
        return f"{line['missing_data']} is left out: {line['error']}"
    if "error" in line:
        return f"FAILED: {line['error']}"
    seconds = f"{line['conditions']['total_seconds']:.1f} s"
    record = line["record"]
    if "scores" in record:
        score = record["training"]["best_score"]
        epochs = f"{record['training']['num_epochs']} epochs, {seconds}"
        error = (record["scores"]["validation"] or {}).get("mean_squared_error")
        # A regression is scored by minus its error.
        shown = score if error is None else error
        return epochs if score is None else f"validation {shown:.4f}, {epochs}"
    return f"{record['trained_on']['num_nodes']:,} nodes, {seconds}"
