import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.text import Text

from falcon_gnn.errors import OptionError
from falcon_gnn.reduction.report import CollapseReport, FeatureSummary, GraphSummary, LabelSummary
from falcon_gnn.reporting.plots import (
    Line,
    LineAxes,
    cluster_budgets_figure,
    degree_figure,
    feature_shift_figure,
    kept_by_rank_figure,
    label_shares_figure,
    learning_curve_figure,
    lines_figure,
)

LabelsOf = Callable[[int], LabelSummary]


def _heights(axes, label: str) -> list[float]:
    (container,) = [bars for bars in axes.containers if bars.get_label() == label]
    return [bar.get_height() for bar in container]


def _tick_labels(axis) -> list[str]:
    axis.figure.draw_without_rendering()
    return [label.get_text() for label in axis.get_ticklabels()]


def _overlaps(figure) -> list[tuple[str, str]]:
    """Return pairs of texts of the figure whose boxes overlap; tick labels outside the axes are not shown."""
    figure.draw_without_rendering()
    outside = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        outside |= {tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text not in outside]
    return [
        (name, other)
        for position, (name, box) in enumerate(boxes)
        for other, other_box in boxes[position + 1 :]
        if box.overlaps(other_box)
    ]


def test_label_bars_show_shares_in_percent(label_summary: LabelsOf) -> None:
    labels = label_summary(4)
    (axes,) = label_shares_figure(labels).axes
    assert _heights(axes, "Before") == pytest.approx([100 * share for share in labels.shares_before])
    assert _heights(axes, "After") == pytest.approx([100 * share for share in labels.shares_after])


def test_of_twenty_labels_every_second_is_named(label_summary: LabelsOf) -> None:
    (axes,) = label_shares_figure(label_summary(20)).axes
    assert _tick_labels(axes.xaxis) == [str(label) for label in range(0, 20, 2)]


def test_more_than_twenty_labels_are_points_around_the_diagonal(label_summary: LabelsOf) -> None:
    labels = label_summary(121)
    (axes,) = label_shares_figure(labels).axes
    diagonal, *groups = axes.lines
    points = {tuple(point) for group in groups for point in np.round(group.get_xydata(), 9)}
    expected = np.round(100 * np.column_stack([labels.shares_before, labels.shares_after]), 9)
    assert points == {tuple(point) for point in expected}
    assert np.array_equal(diagonal.get_xdata(), diagonal.get_ydata())


def test_the_labels_that_moved_most_are_named() -> None:
    before = [0.01] * 30
    after = [*before[:-3], 0.05, 0.02, 0.09]
    (axes,) = label_shares_figure(LabelSummary("classes", before, after, 0.0, 0.0)).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["Moved most: labels 29, 27, 28"]


def test_label_shares_of_a_regression_target_are_refused() -> None:
    with pytest.raises(OptionError, match="labels must hold the share of at least one label, got none"):
        label_shares_figure(LabelSummary("regression", [], [], None, None))


def test_degrees_are_shares_of_their_own_graph() -> None:
    before = GraphSummary(10, 0, 0, 0, 0.0, 0.0, 0, [5, 5])
    after = GraphSummary(4, 0, 0, 0, 0.0, 0.0, 0, [1, 0, 3])
    (axes,) = degree_figure(before, after).axes
    assert _heights(axes, "Before") == [50, 50, 0]
    assert _heights(axes, "After") == [25, 0, 75]


def test_degree_bins_are_named_by_their_first_degree() -> None:
    summary = GraphSummary(5, 0, 0, 0, 0.0, 0.0, 0, [1] * 5)
    (axes,) = degree_figure(summary, summary).axes
    assert _tick_labels(axes.xaxis) == ["0", "1", "2", "4", "8"]


def test_high_degrees_get_short_names() -> None:
    summary = GraphSummary(16, 0, 0, 0, 0.0, 0.0, 0, [1] * 16)
    (axes,) = degree_figure(summary, summary).axes
    assert _tick_labels(axes.xaxis) == ["0", "2", "8", "32", "128", "512", "2k", "8k"]


def test_kept_and_removed_fill_each_bar() -> None:
    (axes,) = kept_by_rank_figure([0, 1, 4], [4, 4, 4]).axes
    assert _heights(axes, "Kept") == [0, 25, 100]
    assert _heights(axes, "Removed") == [100, 75, 0]
    assert {round(bar.get_y() + bar.get_height()) for bar in axes.containers[1]} == {100}


def test_clusters_are_drawn_largest_first_with_their_own_survivors() -> None:
    (axes,) = cluster_budgets_figure([2, 9, 5], [1, 2, 3]).axes
    assert _heights(axes, "Nodes") == [9, 5, 2]
    assert _heights(axes, "Kept") == [2, 3, 1]


def test_many_clusters_are_one_shape() -> None:
    (axes,) = cluster_budgets_figure(list(range(1, 401)), [1] * 400).axes
    assert [patch.get_data().values.tolist() for patch in axes.patches] == [list(range(400, 0, -1)), [1] * 400]


def test_small_feature_shifts_look_small() -> None:
    (axes,) = feature_shift_figure(FeatureSummary([0.002, -0.001], 0.0015, 0.002)).axes
    assert axes.get_ylim() == (-0.1, 0.1)


def test_feature_shifts_ascend() -> None:
    (axes,) = feature_shift_figure(FeatureSummary([0.3, -0.5, 0.1], 0.3, 0.5)).axes
    assert [bar.get_height() for bar in axes.patches] == [-0.5, 0.1, 0.3]


def test_a_learning_curve_skips_epochs_without_a_score() -> None:
    figure = learning_curve_figure([1, 2, 3, 4], [4.0, 3.0, 2.0, 1.0], [None, 0.5, float("nan"), 0.7], 4)
    loss, score = figure.axes
    assert loss.lines[0].get_xydata().tolist() == [[1, 4], [2, 3], [3, 2], [4, 1]]
    assert score.lines[0].get_xydata().tolist() == [[2, 0.5], [4, 0.7]]


def test_a_learning_curve_marks_the_best_epoch_in_both_parts() -> None:
    figure = learning_curve_figure([1, 2, 3], [3.0, 2.0, 1.0], [0.1, 0.3, 0.2], 2)
    assert [axes.lines[1].get_xdata() for axes in figure.axes] == [[2, 2], [2, 2]]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["Best epoch: 2"]


def test_a_learning_curve_without_a_score_is_the_loss_alone() -> None:
    assert len(learning_curve_figure([1, 2], [2.0, 1.0], [None, None]).axes) == 1


def test_a_learning_curve_of_uneven_lengths_is_refused() -> None:
    with pytest.raises(OptionError, match=r"one length of at least 1, got 2, 1 and 2"):
        learning_curve_figure([1, 2], [1.0], [0.1, 0.2])


def test_a_line_may_be_a_plain_tuple_with_its_interval() -> None:
    (axes,) = lines_figure({"a": ([1, 2], [5, 6], [4, 5], [6, 7]), "b": Line([1, 2], [1, 2])}, LineAxes("x", "y")).axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[1, 5], [2, 6]], [[1, 1], [2, 2]]]
    (band,) = axes.collections
    assert band.get_paths()[0].get_extents().extents.tolist() == [1, 4, 2, 7]


def test_lines_differ_in_marker_as_well_as_colour() -> None:
    (axes,) = lines_figure({str(i): ([1], [i]) for i in range(8)}, LineAxes("x", "y")).axes
    assert len({line.get_marker() for line in axes.lines}) == 8
    assert len({line.get_color() for line in axes.lines}) == 8


def test_a_ninth_line_has_dashes_of_its_own() -> None:
    (axes,) = lines_figure({str(i): ([1], [i]) for i in range(20)}, LineAxes("x", "y")).axes
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 20


def test_reference_lines_are_named_in_the_legend() -> None:
    figure = lines_figure({"a": ([1, 2], [1, 2])}, LineAxes("x", "y", references={"Full graph": 3.0}))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "Full graph"]
    assert figure.axes[0].lines[1].get_ydata() == [3.0, 3.0]


@pytest.mark.parametrize("values", [[700, 800], [200, 900, 5000], [1, 1e6]], ids=["narrow", "some", "wide"])
def test_a_logarithmic_axis_has_at_least_two_short_labels(values: list[float]) -> None:
    (axes,) = lines_figure({"a": (values, values)}, LineAxes("x", "y", log_x=True, log_y=True)).axes
    low, high = axes.get_xlim()
    axes.figure.draw_without_rendering()
    shown = [label.get_text() for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert len(shown) >= 2
    assert max(map(len, shown)) <= 4


def test_no_line_is_refused() -> None:
    with pytest.raises(OptionError, match="series must hold at least one line"):
        lines_figure({}, LineAxes("x", "y"))


@pytest.mark.parametrize("line", [([1, 2], [1]), ([1], [1], [1, 2], [1, 2]), ([[1]], [[1]])])
def test_a_line_of_uneven_arrays_is_refused_by_name(line: tuple[list[int], ...]) -> None:
    with pytest.raises(OptionError, match="series 'cora' must be flat and of one length"):
        lines_figure({"cora": line}, LineAxes("x", "y"))


def test_no_texts_of_the_reports_figures_overlap(
    make_report: Callable[..., CollapseReport], label_summary: LabelsOf
) -> None:
    report = make_report()
    top_heavy = GraphSummary(24, 0, 0, 0, 0.0, 0.0, 0, [1] * 24)
    figures = [
        *(label_shares_figure(label_summary(count)) for count in (1, 2, 14, 20, 121)),
        degree_figure(report.before, report.after),
        degree_figure(top_heavy, top_heavy),
        kept_by_rank_figure(report.kept_by_rank, report.nodes_by_rank),
        *(cluster_budgets_figure([9 * 10**6] * count, [10**6] * count) for count in (1, 2, 60, 61, 20_000)),
        feature_shift_figure(FeatureSummary([0.1] * 10_000, 0.1, 0.1)),
        learning_curve_figure(range(1, 20_001), [1.0] * 20_000, [0.5] * 20_000, 20_000),
    ]
    assert [_overlaps(figure) for figure in figures] == [[]] * len(figures)


def test_no_figure_touches_pyplot() -> None:
    code = (
        "import sys; from falcon_gnn.reporting.plots import LineAxes, lines_figure\n"
        "from falcon_gnn.reporting.style import save_figure\n"
        "lines_figure({'a': ([1], [2])}, LineAxes('x', 'y')).savefig('/dev/null', format='svg')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
