"""What a page says about a collapse: a headline, four figures to see first, and the sections."""

from collections.abc import Mapping
from typing import Any

from falcon_gnn.reduction.report import CollapseReport, FeatureSummary, LabelSummary
from falcon_gnn.reporting import plots
from falcon_gnn.reporting.formats import (
    MINUS,
    NOTHING,
    format_count,
    format_ratio,
    format_seconds,
    format_share,
    format_signed,
)
from falcon_gnn.reporting.sections import Picture, Section, Table, Tile
from falcon_gnn.resources import format_bytes

MOST_LABEL_ROWS = 20
_NUM_FEATURE_ROWS = 10
_SIZE_ROWS = {
    "num_nodes": "Nodes",
    "num_edges": "Edges",
    "num_components": "Connected components",
    "num_isolated": "Isolated nodes",
    "mean_degree": "Mean degree",
    "median_degree": "Median degree",
    "max_degree": "Largest degree",
}
_SELECTION_RULES = {
    "lowest": "In each cluster the nodes of lowest centrality are removed.",
    "stratified": "In each cluster the survivors are spread evenly over centrality.",
    "random": "In each cluster the survivors are a random sample.",
    "herding": "In each class the survivors are those whose mean follows that of the class.",
}
_ALIKE_RULE = (
    "Nodes of one class, or of one feature-label cluster, that a GNN sees alike share a group; the node nearest to its "
    "group's mean stands for it."
)
_CLEANING_ROWS = {
    "num_self_loops": "Self-loops removed",
    "num_duplicates": "Repeats of an edge folded into one",
    "num_one_way": "Pairs listed in one direction",
    "num_two_way": "Pairs listed in both directions",
}


def write_headline(report: CollapseReport) -> str:
    """Return the collapse in two or three short sentences."""
    before, after = report.before, report.after
    sentences = [
        f"{'The training graph' if report.scope == 'train' else 'The graph'} went from "
        f"{_count(before.num_nodes, 'node')} to {after.num_nodes:,} and from {_count(before.num_edges, 'edge')} to "
        f"{after.num_edges:,}."
    ]
    sentences.append(
        f"{_count(report.num_dropped, 'node')} {_were(report.num_dropped)} dropped."
        if report.num_dropped
        else "No node was dropped."
    )
    error = report.labels.label_distribution_error if report.labels else None
    if error is not None:
        sentences.append(f"Label shares moved by {_points(error)} percentage points on average.")
    return " ".join(sentences)


def list_tiles(report: CollapseReport) -> list[Tile]:
    """Return the four figures to see first."""
    num_nodes, num_edges = report.before.num_nodes, report.before.num_edges
    return [
        _share_tile("Nodes kept", report.after.num_nodes, num_nodes),
        _share_tile("Edges left", report.after.num_edges, num_edges),
        _share_tile("Nodes dropped", report.num_dropped, num_nodes),
        _label_tile(report.labels),
    ]


def explain_dropped(report: CollapseReport) -> str:
    """Return in plain words why nodes were dropped, or nothing where none were."""
    if not report.num_dropped:
        return ""
    nodes, were = _count(report.num_dropped, "node"), _were(report.num_dropped)
    if report.config.get("merge") == "drop":
        return f'{nodes} {were} removed without merging, as merge="drop" asks. The map has {MINUS}1 for them.'
    num_lost = report.before.num_components - report.after.num_components
    other = ', selection="stratified"' if report.config.get("selection") == "lowest" else ""
    return (
        f"{num_lost:,} of {_count(report.before.num_components, 'connected component')} had only removable nodes: "
        f"no survivor was left there to merge into, so all of {'its' if num_lost == 1 else 'their'} nodes "
        f"({report.num_dropped:,}) were dropped and the map has {MINUS}1 for them. A larger node budget{other} or "
        "protected nodes keep more components."
    )


def list_sections(report: CollapseReport) -> list[Section]:
    """Return the sections about a collapse."""
    return [
        _size_section(report),
        _label_section(report),
        _selection_section(report),
        _feature_section(report.features),
        _run_section(report),
    ]


def _size_section(report: CollapseReport) -> Section:
    rows = []
    for field, name in _SIZE_ROWS.items():
        before, after = getattr(report.before, field), getattr(report.after, field)
        rows.append((name, format_count(before), format_count(after), format_ratio(after, before)))
    figure = plots.degree_figure(report.before, report.after)
    caption = "Share of nodes by degree, in bins that double: 0, 1, 2 to 3, 4 to 7 and so on."
    scope = "the training nodes and the edges between them" if report.scope == "train" else "every node of the graph"
    alike = ""
    if report.adjusted_homophily is not None:
        more = "less" if report.adjusted_homophily < 0 else "more"
        alike = (
            f" Neighbors are of one class {more} often than by chance by {abs(report.adjusted_homophily):.2f} "
            "(adjusted homophily: 1 for always, 0 for as by chance, below 0 for less often)."
        )
    table = Table(("", "Before", "After", "After / before"), rows)
    return Section("Size and degrees", (table, Picture(figure, caption)), f"In scope: {scope}.{alike}")


def _label_section(report: CollapseReport) -> Section:
    labels = report.labels
    if labels is None or not labels.shares_before:
        reason = "The graph has no labels." if labels is None else "No node in scope has a visible label."
        if labels is not None and labels.task == "regression":
            reason = "The target is a number (regression), so there are no label shares to compare."
        return Section("Labels", (), reason)
    num_labels = len(labels.shares_before)
    error, relative = labels.label_distribution_error or 0.0, labels.label_distribution_error_relative or 0.0
    text = (
        f"The label error is how far a label's share moved, averaged over {_count(num_labels, 'label')}: "
        f"{_points(error)} percentage points, or {format_share(relative)} of the label's own share."
    )
    if report.teacher_accuracy is not None:
        who = "teacher" if report.config.get("cluster_on") == "teacher" else "regression behind the soft labels"
        accuracy = format_share(report.teacher_accuracy)
        text += f" The {who} names {accuracy} of the labelled nodes right when each is left out."
    caption = (
        "Share of labelled nodes that carry each label."
        if num_labels <= plots.MOST_LABEL_BARS
        else "One point per label; on the dashed line its share is what it was."
    )
    return Section("Labels", (Picture(plots.label_shares_figure(labels), caption), _label_table(labels)), text)


def _label_table(labels: LabelSummary) -> Table:
    """Return all labels, or of many those whose share moved most."""
    shares = list(zip(labels.shares_before, labels.shares_after, strict=True))
    shown = list(range(len(shares)))
    caption = ""
    if len(shares) > MOST_LABEL_ROWS:
        shown = sorted(shown, key=lambda label: -abs(shares[label][1] - shares[label][0]))[:MOST_LABEL_ROWS]
        caption = f"The {MOST_LABEL_ROWS} of {len(shares):,} labels whose share moved most."
    largest = 100 * max(abs(after - before) for before, after in shares)
    num_decimals = 2 if largest >= 0.05 or largest == 0 else 4
    rows = [
        (str(label), f"{100 * before:.{num_decimals}f}", f"{100 * after:.{num_decimals}f}", change)
        for label in shown
        for before, after in [shares[label]]
        for change in [format_signed(100 * (after - before), num_decimals)]
    ]
    return Table(("Label", "Before (%)", "After (%)", "Change (points)"), rows, caption)


def _selection_section(report: CollapseReport) -> Section:
    is_alike = report.config.get("groups") == "alike"
    clusters = plots.cluster_budgets_figure(report.cluster_sizes, report.cluster_kept)
    shares = [kept / size for kept, size in zip(report.cluster_kept, report.cluster_sizes, strict=True) if size]
    num_clusters = _count(len(report.cluster_sizes), _cluster_name(report.config))
    spread = (
        f"{num_clusters}: {format_share(shares[0])} of the nodes kept."
        if len(shares) == 1
        else f"{num_clusters}: between {format_share(min(shares))} and {format_share(max(shares))} of the nodes kept."
    )
    if is_alike:
        return Section("What was kept", (Picture(clusters, spread),), _ALIKE_RULE)
    ranks = plots.kept_by_rank_figure(report.kept_by_rank, report.nodes_by_rank)
    rank_caption = f"Nodes in {len(report.nodes_by_rank)} equal parts by centrality; the blue part of each survives."
    blocks = (
        Picture(ranks, rank_caption if len(report.nodes_by_rank) > 1 else "The only node survives."),
        Picture(clusters, spread),
    )
    return Section("What was kept", blocks, _SELECTION_RULES.get(str(report.config.get("selection")), ""))


def _cluster_name(options: Mapping[str, Any]) -> str:
    """Return what the budget was split over: classes and the caller's own clusters are no feature-label clusters."""
    if "method" in options:  # Coarsening.
        return "connected component"
    has_others = options.get("num_clusters") == "given" or options.get("cluster_on") == "teacher"
    is_plain = options.get("groups") != "alike" and options.get("selection") != "herding"
    return "feature-label cluster" if is_plain and not has_others else "cluster"


def _feature_section(features: FeatureSummary | None) -> Section:
    if features is None:
        return Section("Features", (), "The graph has no features.")
    if not features.max_absolute_shift:
        return Section("Features", (), "No feature's mean moved.")
    shifts = features.mean_shift
    order = sorted(range(len(shifts)), key=lambda column: -abs(shifts[column]))
    rows = [(str(column), format_signed(shifts[column], 3)) for column in order[:_NUM_FEATURE_ROWS] if shifts[column]]
    text = (
        f"The mean of a feature moved by {features.mean_absolute_shift:.3f} standard deviations on average over "
        f"{_count(len(shifts), 'feature')}, and by {features.max_absolute_shift:.3f} at most."
    )
    caption = f"The {len(rows)} features whose mean moved most." if len(rows) < len(shifts) else ""
    figure = plots.feature_shift_figure(features)
    picture = Picture(figure, "Mean after minus mean before, in standard deviations before; 0 for a constant feature.")
    return Section("Features", (picture, Table(("Feature", "Shift (standard deviations)"), rows, caption)), text)


def _run_section(report: CollapseReport) -> Section:
    options = Table(("Option", "Value"), [(n, _option(n, v, report)) for n, v in report.config.items()], "", 2)
    cleaning = [(name, getattr(report.cleaning, field)) for field, name in _CLEANING_ROWS.items()]
    total = sum(report.seconds.values())
    seconds = [
        (stage.capitalize(), format_seconds(value), format_ratio(value, total))
        for stage, value in report.seconds.items()
    ]
    blocks = (
        options,
        Table(("Edge list as read", "Count"), cleaning),
        Table(("Stage", "Time", "Share"), [*seconds, ("Total", format_seconds(total), format_ratio(total, total))]),
    )
    peak = "unknown" if report.peak_memory_bytes is None else format_bytes(report.peak_memory_bytes)
    return Section("Options, input and cost", blocks, f"Peak memory of the process: {peak}.")


def _option(name: str, value: Any, report: CollapseReport) -> str:
    """Return an option as it was used; where None left the choice to the collapse, what was chosen."""
    if value is None:
        found = {"scope": report.scope, "task": report.labels.task if report.labels else "no labels"}
        exact = ("num_samples", "closeness_samples")
        return f"automatic: {found[name]}" if name in found else "exact" if name in exact else "automatic"
    if isinstance(value, int) and name != "seed":
        return format_count(value)
    if isinstance(value, float):
        # A node budget of 1.0 is all nodes, one of 1 is a node.
        return f"{value:.1f}" if value == round(value) else f"{value:g}"
    return str(value)


def _share_tile(name: str, part: int, whole: int) -> Tile:
    return Tile(name, format_ratio(part, whole), f"{part:,} of {whole:,}")


def _label_tile(labels: LabelSummary | None) -> Tile:
    if labels is None or labels.label_distribution_error is None:
        reasons = {"regression": "regression target"}
        return Tile("Label error", NOTHING, reasons.get(labels.task, "no visible label") if labels else "no labels")
    relative = format_share(labels.label_distribution_error_relative or 0.0)
    return Tile("Label error", f"{_points(labels.label_distribution_error)} points", f"{relative} of a label's share")


def _points(error: float) -> str:
    """Return an average distance of shares in percentage points, with the decimals it takes to see it."""
    points = error * 100
    if points == 0:
        return "0"
    return f"{points:.2f}" if points >= 0.01 else f"{points:.4f}" if points >= 0.0001 else "under 0.0001"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
