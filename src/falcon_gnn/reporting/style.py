"""How every figure looks, and how it becomes a file or a piece of a page."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from falcon_gnn.errors import OptionError, require
from falcon_gnn.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = {
    "ink": ("#1d232b", "#e7ecf2"),
    "muted": ("#57616d", "#a3aebb"),
    "grid": ("#d9dfe6", "#343c46"),
    "card": ("#ffffff", "#1a2027"),
    "removed": ("#cfd6de", "#434d59"),
    "before": ("#8b96a3", "#8591a0"),
    "after": ("#0b66c3", "#5cabff"),
    "accent": ("#b8480b", "#ff9a56"),
    "green": ("#0a7f5a", "#3fc796"),
    "violet": ("#8a3fa8", "#d492ef"),
    "ochre": ("#8c6a00", "#dfb93a"),
    "teal": ("#10788c", "#4cc6dc"),
    "rose": ("#b92b5f", "#ff86ae"),
}
"""Colours by role: on a light ground, on a dark one. Figures hold the first; a page swaps them by name."""

LIGHT = {name: light for name, (light, _) in PALETTE.items()}
SERIES = tuple(LIGHT[name] for name in ("after", "accent", "green", "violet", "ochre", "teal", "rose", "muted"))
MARKERS = "osD^vPX*"
WIDTH, HEIGHT = 4.3, 3.1
"""Inches. At this width the text stays readable when a page shrinks the figure to a phone."""

_RC = {
    "axes.axisbelow": True,
    "axes.edgecolor": LIGHT["muted"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": LIGHT["ink"],
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.unicode_minus": True,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.facecolor": "white",
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 0.7,
    "legend.borderaxespad": 0.3,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "falcon-gnn",
    "text.color": LIGHT["ink"],
    "text.parse_math": False,
    "xtick.color": LIGHT["muted"],
    "xtick.labelcolor": LIGHT["ink"],
    "xtick.labelsize": 10,
    "ytick.color": LIGHT["muted"],
    "ytick.labelcolor": LIGHT["ink"],
    "ytick.labelsize": 10,
}
_SUFFIXES = (".png", ".svg")


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the look to everything drawn or saved inside, and leave matplotlib's settings as they were.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    with require("matplotlib", "report").rc_context(_RC):
        yield


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> "Figure":
    """Return an empty figure whose parts are kept from overlapping; not known to pyplot, so nothing has to close it.

    Args:
        width: Inches.
        height: Inches.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    require("matplotlib", "report")
    figure: Figure = require("matplotlib.figure", "report").Figure(figsize=(width, height), layout="constrained")
    return figure


def check_can_save(path: str | Path) -> None:
    """Stop before the work where its figure could not be saved; arguments and errors as in :func:`save_figure`."""
    if Path(path).suffix.lower() not in _SUFFIXES:
        msg = f"path must end in {' or '.join(_SUFFIXES)}, got {str(path)!r}."
        raise OptionError(msg)
    require("matplotlib", "report")


def save_figure(figure: "Figure", path: str | Path) -> None:
    """Write a figure on white to a ``.png`` or ``.svg`` file, whole or not at all; same figure, same bytes.

    Args:
        figure: The figure.
        path: Its suffix says the format.

    Raises:
        OptionError: If the suffix is another one.
        MissingDependencyError: If matplotlib is not installed.
    """
    check_can_save(path)
    suffix = Path(path).suffix.lower()
    with replacing(path) as temporary, figure_style():
        figure.savefig(temporary, format=suffix[1:], dpi=200, metadata=_metadata(suffix), facecolor="white")


def inline_svg(figure: "Figure", prefix: str, alt: str) -> str:
    """Return a figure as an SVG element for a page: colours by name, ids that begin with ``prefix``, nothing to load.

    Args:
        figure: The figure.
        prefix: Unique in the page; matplotlib's ids are the same in every figure.
        alt: What the figure shows, in words, for those who cannot see it.
    """
    buffer = io.BytesIO()
    with figure_style():
        figure.savefig(buffer, format="svg", metadata=_metadata(".svg"), facecolor="none")
    root = ElementTree.fromstring(buffer.getvalue())
    _drop(root, ("metadata", "style"))
    for element in root.iter():
        element.tag = _local_name(element.tag)
        element.attrib = {_local_name(key): _adapt(key, value, prefix) for key, value in element.attrib.items()}
    view_box = root.attrib["viewBox"]
    root.attrib = {"viewBox": view_box, "role": "img", "aria-label": alt}
    return ElementTree.tostring(root, encoding="unicode")


def _metadata(suffix: str) -> dict[str, Any]:
    return {"Software": None} if suffix == ".png" else {"Date": None, "Creator": None}


def _drop(root: ElementTree.Element, names: tuple[str, ...]) -> None:
    for parent in list(root.iter()):
        for child in list(parent):
            if _local_name(child.tag) in names:
                parent.remove(child)


def _local_name(name: str) -> str:
    return name.rpartition("}")[2]


def _adapt(key: str, value: str, prefix: str) -> str:
    """Return an SVG attribute with its ids prefixed and its colours named, so that a dark page can change them."""
    name = _local_name(key)
    if name == "id":
        return prefix + value
    if name == "href":
        return value.replace("#", f"#{prefix}")
    value = value.replace("url(#", f"url(#{prefix}")
    for color, code in LIGHT.items():
        value = value.replace(code, f"var(--{color})")
    return value
