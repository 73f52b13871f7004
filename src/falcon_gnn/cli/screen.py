"""What the commands show: the stage now running, tables, the log, and where the files are."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from falcon_gnn.display import can_draw
from falcon_gnn.errors import FalconWarning

if TYPE_CHECKING:
    from rich.table import Table

    from falcon_gnn.pipeline.outcome import Correction, RunOutcome
    from falcon_gnn.reduction.report import CollapseReport
    from falcon_gnn.training.memory import MemoryPeak


@contextmanager
def show_stages() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the stage now running, on standard error, while there is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not can_draw(console):
        yield lambda stage: None
        return
    status = console.status("starting")
    status.start()

    def show(stage: str) -> None:
        # These draw a bar of their own; two live displays cannot share a terminal.
        if stage in ("training", "downloading"):
            status.stop()
        else:
            status.update(stage)
            status.start()

    try:
        yield show
    finally:
        status.stop()


@contextmanager
def show_warnings() -> Iterator[None]:
    """Show our own warnings of what is inside as a line each, without the place in the code that Python puts there."""
    usual = warnings.formatwarning

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if issubclass(category, FalconWarning):
            return f"falcon-gnn: warning: {message}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = usual


class _Lines(logging.Handler):
    """Writes each record as a line to what is standard error at the time: a bar may stand there."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


@contextmanager
def show_log() -> Iterator[None]:
    """Show what the library logs of the experiments inside, a line each, on standard error."""
    logger, handler = logging.getLogger("falcon_gnn.benchmark"), _Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def print_table(table: object) -> None:
    """Print a table, as wide as the terminal, or 160 columns where there is none."""
    from rich.console import Console

    console = Console()
    # Where the output is a file or a pipe there is no width to fit.
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)


def print_collapse(report: "CollapseReport") -> None:
    """Print what a collapse did."""
    from falcon_gnn.reporting.terminal import collapse_table

    print_table(collapse_table(report))


def say_compiled() -> None:
    """Say whether the seconds above hold the compilation that only a first run needs."""
    from falcon_gnn._kernels import is_kept, num_compiled

    if num_compiled() and is_kept():
        typer.echo("Seconds of this first run include compiling; the next finds the compiled code on the disk.")
    elif num_compiled():
        typer.echo(
            "Seconds include compiling, and so will the next run's: there is no folder to keep compiled code in. Name "
            "one that you can write to in NUMBA_CACHE_DIR."
        )


def say_written(folder: Path, names: Iterable[str], has_plots: bool) -> None:
    """Say which files were written to a folder, and what the plots would have needed.

    Args:
        folder: The folder, which may hold other files.
        names: What a command writes; what is not there could not be.
        has_plots: Whether the plots were written.
    """
    written = sorted(name for name in names if (folder / name).exists())
    typer.echo(f"Written to {folder}/: {', '.join(written)}")
    if not has_plots:
        typer.echo("Plots and report.html need the extra report: pip install 'falcon-gnn[report]'")


def runs_table(outcomes: "Mapping[str, RunOutcome]") -> "Table":
    """Return runs side by side: what each trained on, its scores on the original graph, memory and time.

    Args:
        outcomes: The runs, by the name to show.
    """
    from falcon_gnn.reporting.formats import NOTHING
    from falcon_gnn.reporting.terminal import make_table

    is_scored = any(outcome.scores.test is not None for outcome in outcomes.values())
    title = "Trained, and scored on the original graph" if is_scored else "Trained; no test node to score on"
    scores = {name: _test_scores(outcome) for name, outcome in outcomes.items()}
    headings = list(dict.fromkeys(heading for shown in scores.values() for heading in shown))
    table = make_table(title, ["run", "trained on", *headings, "peak memory", "epoch time", "epochs"])
    for name, outcome in outcomes.items():
        result, memory = outcome.result, outcome.memory
        table.add_row(
            name,
            f"{outcome.trained_on.num_nodes:,} nodes",
            *(scores[name].get(heading, NOTHING) for heading in headings),
            NOTHING if memory is None else _peak(memory),
            f"{1000 * result.epoch_seconds[1]:.1f} ms",
            f"{len(result.epochs):,} (best {result.best_epoch:,})",
        )
    return table


def _test_scores(outcome: "RunOutcome") -> dict[str, str]:
    """Return the scores on the test nodes that say something of the task, by their headings."""
    from falcon_gnn.reporting.formats import NOTHING
    from falcon_gnn.reporting.terminal import percent

    test = outcome.scores.test
    if outcome.result.spec.task == "regression":
        return {"test mean squared error": NOTHING if test is None else f"{test.mean_squared_error:.4g}"}
    return {
        "test accuracy": percent(None if test is None else test.accuracy),
        "micro-F1": percent(None if test is None else test.micro_f1),
    }


def _peak(memory: "MemoryPeak") -> str:
    """Return a peak with what it is a peak of, where that is not live tensors."""
    what = "" if memory.measure == "tensors" else f" {memory.measure}"
    return f"{memory.total_mib:,.1f} MiB{what}"


def correction_line(correction: "Correction | None") -> str:
    """Return what the labels of the training nodes did for the predictions."""
    from falcon_gnn.reporting.terminal import percent

    if correction is None:
        return "Not corrected: that takes classes or multi-label, labelled training nodes and validation nodes."
    if correction.correct == correction.smooth == 0:
        return "No correction by the training labels helped on held-out nodes."
    tests = {"model": correction.model_alone.test, "labels": correction.labels_alone}
    alone = [f"the {name} alone {percent(test.accuracy)}" for name, test in tests.items() if test is not None]
    steps = f"correct {correction.correct}, smooth {correction.smooth}"
    tail = f"; accuracy of {', of '.join(alone)}" if alone else ""
    return f"Corrected by the training labels ({steps}){tail}."
