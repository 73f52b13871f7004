"""What a page is made of: sections of tables and pictures, all of it plain text and numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from falcon_gnn.reporting import formats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | float | None
"""Text is shown as it is, a number with few digits, None as a dash; :func:`format_cell`."""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: Column names.
        rows: Cells, one per column.
        caption: What the table shows.
        num_text_columns: Leading columns that hold text; the others hold figures and line up on the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    num_text_columns: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure and the words below it, which also stand for the figure where it cannot be seen.

    Attributes:
        figure: The figure.
        caption: The words.
        is_wide: Whether it takes a line of its own.
    """

    figure: "Figure"
    caption: str
    is_wide: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page: a title, tables and pictures in reading order, and plain words above them."""

    title: str
    blocks: Sequence[Table | Picture] = ()
    text: str = ""


@dataclass(frozen=True)
class Tile:
    """A figure to see at first glance: its name, its value, and what it is made of."""

    name: str
    value: str
    detail: str


def format_cell(value: Cell) -> str:
    """Return a table cell as text: whole numbers (int) without decimals, others with two, or three digits if small.

    Example:
        >>> [format_cell(value) for value in (15000, 94.0, 0.01234, "gcn", None)]
        ['15,000', '94.00', '0.0123', 'gcn', '–']
    """
    if value is None:
        return formats.NOTHING
    if isinstance(value, str | int):
        return value if isinstance(value, str) else formats.format_count(value)
    return f"{value:.3g}" if 0 < abs(value) < 0.1 else f"{value:,.2f}"
