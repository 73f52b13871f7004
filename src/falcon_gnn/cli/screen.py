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
    from falcon_gnn.pipeline.outcome import RunOutcome
    from falcon_gnn.reduction.report import CollapseReport


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


def print_runs(outcomes: "Mapping[str, RunOutcome]") -> None:
    """Print runs side by side.

    Args:
        outcomes: The runs, by the name to show.
    """
    from falcon_gnn.pipeline.comparison import compare_runs
    from falcon_gnn.reporting.sections import format_cell
    from falcon_gnn.reporting.terminal import make_table

    compared = compare_runs(outcomes)
    table = make_table(compared.caption, compared.columns)
    for row in compared.rows:
        table.add_row(*map(format_cell, row))
    print_table(table)
