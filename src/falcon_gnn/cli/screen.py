"""What the commands show: the stage now running, tables, and where the files are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from falcon_gnn.reduction.report import CollapseReport


@contextmanager
def show_stages() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the stage now running, on standard error, while there is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    status = console.status("starting")
    status.start()

    def show(stage: str) -> None:
        # The training draws its own bar; two live displays cannot share a terminal.
        if stage == "training":
            status.stop()
        else:
            status.update(stage)
            status.start()

    try:
        yield show
    finally:
        status.stop()


def print_table(table: object) -> None:
    """Print a table, as wide as the terminal, or 160 columns where there is none."""
    from rich.console import Console

    console = Console()
    # Where the output is a file or a pipe there is no width to fit.
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)


def print_collapse(report: "CollapseReport") -> None:
    """Print what a collapse did, and whether its seconds hold the compilation that only a first run needs."""
    from falcon_gnn._kernels import num_compiled
    from falcon_gnn.reporting.terminal import collapse_table

    print_table(collapse_table(report))
    if num_compiled():
        typer.echo("Seconds of this first run include compiling; the next finds the compiled code on the disk.")


def say_written(folder: Path, has_plots: bool) -> None:
    """Say which files a folder now holds, and what the plots would have needed."""
    typer.echo(f"Written to {folder}/: {', '.join(sorted(path.name for path in folder.iterdir() if path.is_file()))}")
    if not has_plots:
        typer.echo("Plots and report.html need the extra report: pip install 'falcon-gnn[report]'")
