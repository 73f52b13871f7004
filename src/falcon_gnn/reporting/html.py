"""The report as one self-contained page: nothing to load, nothing to run."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from falcon_gnn.adjacency import EdgeCleaning
from falcon_gnn.errors import OptionError, require
from falcon_gnn.files import replacing
from falcon_gnn.reduction.report import CollapseReport, FeatureSummary, GraphSummary, LabelSummary
from falcon_gnn.reporting import narrative
from falcon_gnn.reporting.sections import Picture, Section, Table, format_cell
from falcon_gnn.reporting.style import PALETTE, inline_svg

_PARTS = {
    "before": GraphSummary,
    "after": GraphSummary,
    "labels": LabelSummary,
    "features": FeatureSummary,
    "cleaning": EdgeCleaning,
}


def write_report(
    report: CollapseReport | Mapping[str, Any],
    path: str | Path,
    *,
    title: str = "Collapse report",
    sections: Sequence[Section] = (),
) -> None:
    """Write a page about a collapse to a file, whole or not at all; same report, same bytes.

    Args:
        report: The report of a collapse, or its :meth:`~falcon_gnn.reduction.report.CollapseReport.to_dict`, as read
            back from JSON.
        path: The ``.html`` file.
        title: Heading of the page.
        sections: More sections, shown before the options and costs of the collapse, such as what was trained.

    Raises:
        OptionError: If ``report`` is a dictionary without the fields of a report.
        MissingDependencyError: If matplotlib or jinja2 is not installed.
    """
    require("matplotlib", "report")
    page = render_report(_typed_report(report), title, sections)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def render_report(report: CollapseReport, title: str, sections: Sequence[Section]) -> str:
    """Return the page as HTML."""
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("falcon_gnn.reporting", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    numbers = count(1)

    def draw(picture: Picture) -> Any:
        return jinja2.utils.markupsafe.Markup(inline_svg(picture.figure, f"f{next(numbers)}-", picture.caption))

    *about_graph, about_run = narrative.list_sections(report)
    text: str = environment.get_template("report.html.j2").render(
        title=title,
        headline=narrative.write_headline(report),
        tiles=narrative.list_tiles(report),
        dropped=narrative.explain_dropped(report),
        notes=report.notes,
        sections=[*about_graph, *sections, about_run],
        palette=PALETTE,
        draw=draw,
        format_cell=format_cell,
        is_table=lambda block: isinstance(block, Table),
    )
    return text


def _typed_report(report: CollapseReport | Mapping[str, Any]) -> CollapseReport:
    if isinstance(report, CollapseReport):
        return report
    try:
        parts = {name: kind(**report[name]) if report[name] is not None else None for name, kind in _PARTS.items()}
        return CollapseReport(**{**report, **parts})
    except (KeyError, TypeError) as error:
        msg = f"report must be a CollapseReport or the dictionary its to_dict() returns ({error})."
        raise OptionError(msg) from error
