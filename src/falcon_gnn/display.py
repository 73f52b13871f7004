"""Where a progress bar can be drawn."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def can_draw(console: "Console") -> bool:
    """Whether a bar can be drawn on a console: on a terminal, or in a notebook with ipywidgets.

    In a file or a pipe it would be rows of control characters, also where colors are asked for (``FORCE_COLOR``).

    Args:
        console: Of Rich, which draws in a notebook by ipywidgets.
    """
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.file.isatty() and not console.is_dumb_terminal
