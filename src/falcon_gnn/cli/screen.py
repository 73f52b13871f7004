"""What the commands show: the stage now running, tables, and where the files are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


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


def say_written(folder: Path, has_plots: bool) -> None:
    """Say which files a folder now holds, and what the plots would have needed."""
    typer.echo(f"Written to {folder}/: {', '.join(sorted(path.name for path in folder.iterdir() if path.is_file()))}")
    if not has_plots:
        typer.echo("Plots and report.html need the extra report: pip install 'falcon-gnn[report]'")
