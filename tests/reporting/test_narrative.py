from collections.abc import Callable
from typing import Any

import pytest

from falcon_gnn.adjacency import EdgeCleaning
from falcon_gnn.reduction.report import CollapseReport, GraphSummary, LabelSummary
from falcon_gnn.reporting.narrative import explain_dropped, list_sections, list_tiles, write_headline
from falcon_gnn.reporting.sections import Picture, Section, Table, format_cell

MakeReport = Callable[..., CollapseReport]
LabelsOf = Callable[[int], LabelSummary]


def _section(report: CollapseReport, title: str) -> Section:
    return {section.title: section for section in list_sections(report)}[title]


def _tables(section: Section) -> list[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]


def test_the_headline_tells_sizes_drops_and_label_error(make_report: MakeReport) -> None:
    assert write_headline(make_report()) == (
        "The training graph went from 1,000 nodes to 300 and from 4,000 edges to 1,500. 50 nodes were dropped. "
        "Label shares moved by 1.00 percentage points on average."
    )


def test_the_headline_of_a_graph_without_labels_says_nothing_of_them(make_report: MakeReport) -> None:
    headline = write_headline(make_report(scope="full", labels=None, num_dropped=0))
    assert headline == "The graph went from 1,000 nodes to 300 and from 4,000 edges to 1,500. No node was dropped."


def test_the_tiles_hold_shares_and_what_they_are_made_of(make_report: MakeReport) -> None:
    assert [(tile.value, tile.detail) for tile in list_tiles(make_report())] == [
        ("30%", "300 of 1,000"),
        ("37.5%", "1,500 of 4,000"),
        ("5%", "50 of 1,000"),
        ("1.00 points", "5% of a label's share"),
    ]


def test_dropped_nodes_are_explained_by_components_without_a_survivor(make_report: MakeReport) -> None:
    explanation = explain_dropped(make_report())
    assert explanation.startswith("9 of 12 connected components had only removable nodes")
    assert "their nodes (50) were dropped" in explanation


def test_a_collapse_without_merging_explains_drops_by_the_option(make_report: MakeReport) -> None:
    explanation = explain_dropped(make_report(config={"merge": "drop"}))
    assert explanation.startswith('50 nodes were removed without merging, as merge="drop" asks')


def test_nothing_is_explained_where_nothing_was_dropped(make_report: MakeReport) -> None:
    assert explain_dropped(make_report(num_dropped=0)) == ""


def test_a_few_labels_are_all_listed_in_their_order(make_report: MakeReport, label_summary: LabelsOf) -> None:
    (table,) = _tables(_section(make_report(labels=label_summary(3)), "Labels"))
    assert list(table.rows) == [
        ("0", "25.00", "26.00", "+1.00"),
        ("1", "50.00", "49.00", "−1.00"),
        ("2", "75.00", "76.00", "+1.00"),
    ]


def test_of_many_labels_the_twenty_that_moved_most_are_listed(make_report: MakeReport) -> None:
    before = [0.5] * 121
    after = [0.5 + label / 1000 for label in range(121)]
    labels = LabelSummary("multilabel", before, after, 0.06, 0.12)
    (table,) = _tables(_section(make_report(labels=labels), "Labels"))
    assert [row[0] for row in table.rows] == [str(label) for label in range(120, 100, -1)]
    assert table.caption == "The 20 of 121 labels whose share moved most."


def test_tiny_label_changes_are_not_rounded_away(make_report: MakeReport) -> None:
    labels = LabelSummary("classes", [0.5, 0.5], [0.50001, 0.49999], 0.00001, 0.00002)
    (table,) = _tables(_section(make_report(labels=labels), "Labels"))
    assert [row[3] for row in table.rows] == ["+0.0010", "−0.0010"]


@pytest.mark.parametrize(("cluster_on", "who"), [("hops", "regression behind the soft labels"), ("teacher", "teacher")])
def test_what_labels_were_mixed_with_is_said_with_how_good_it_is(
    make_report: MakeReport, cluster_on: str, who: str
) -> None:
    report = make_report(teacher_accuracy=0.982, config={"cluster_on": cluster_on})
    assert f"The {who} names 98.2% of the labelled nodes right" in _section(report, "Labels").text
    assert "names" not in _section(make_report(), "Labels").text


def test_sections_without_their_data_say_why(make_report: MakeReport) -> None:
    regression = LabelSummary("regression", [], [], None, None)
    unlabelled = LabelSummary("classes", [], [], None, None)
    assert _section(make_report(labels=None), "Labels").text == "The graph has no labels."
    assert "regression" in _section(make_report(labels=regression), "Labels").text
    assert "visible label" in _section(make_report(labels=unlabelled), "Labels").text
    assert _section(make_report(features=None), "Features").text == "The graph has no features."


def test_features_are_listed_by_the_size_of_their_shift(make_report: MakeReport) -> None:
    (table,) = _tables(_section(make_report(), "Features"))
    assert list(table.rows) == [("1", "−0.250"), ("0", "+0.100")]


def test_options_left_open_show_what_was_chosen(make_report: MakeReport) -> None:
    report = make_report(config={"scope": None, "task": None, "num_samples": None, "node_budget": 15000, "seed": 2024})
    options = dict(_tables(_section(report, "Options, input and cost"))[0].rows)
    assert options == {
        "scope": "automatic: train",
        "task": "automatic: classes",
        "num_samples": "exact",
        "node_budget": "15,000",
        "seed": "2024",
    }


def test_a_budget_of_all_nodes_does_not_read_as_one_node(make_report: MakeReport) -> None:
    def shown(budget: float) -> object:
        return dict(_tables(_section(make_report(config={"node_budget": budget}), "Options, input and cost"))[0].rows)

    assert shown(1.0) == {"node_budget": "1.0"}
    assert shown(1) == {"node_budget": "1"}


def test_neighbors_that_are_rarely_of_one_class_are_so_less_often_than_by_chance(make_report: MakeReport) -> None:
    def told(homophily: float) -> str:
        return _section(make_report(adjusted_homophily=homophily), "Size and degrees").text

    assert "of one class more often than by chance by 0.25" in told(0.25)
    assert "of one class less often than by chance by 0.25" in told(-0.25)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"num_clusters": 100}, "2 feature-label clusters"),
        ({"num_clusters": "given"}, "2 clusters"),
        ({"num_clusters": 100, "selection": "herding"}, "2 clusters"),
        ({"num_clusters": 100, "selection": "random", "cluster_on": "teacher"}, "2 clusters"),
        ({"method": "heavy_edge"}, "2 connected components"),
    ],
)
def test_only_what_features_and_labels_make_is_called_so(
    make_report: MakeReport, options: dict[str, Any], name: str
) -> None:
    *_, clusters = _section(make_report(config=options), "What was kept").blocks
    assert isinstance(clusters, Picture)
    assert clusters.caption.startswith(f"{name}: ")


def test_a_selection_that_was_used_is_not_advised_against_drops(make_report: MakeReport) -> None:
    assert 'selection="stratified"' in explain_dropped(make_report())
    explanation = explain_dropped(make_report(config={"selection": "stratified"}))
    assert explanation.endswith("A larger node budget or protected nodes keep more components.")


def test_the_cleaning_of_the_input_is_counted(make_report: MakeReport) -> None:
    report = make_report(cleaning=EdgeCleaning(3, 5, 7, 11))
    assert [row[1] for row in _tables(_section(report, "Options, input and cost"))[1].rows] == [3, 5, 7, 11]


def test_stage_seconds_add_up_to_the_total(make_report: MakeReport) -> None:
    (*_, seconds) = _tables(_section(make_report(), "Options, input and cost"))
    assert list(seconds.rows) == [
        ("Centrality", "250 ms", "14.3%"),
        ("Clustering", "1.5 s", "85.7%"),
        ("Total", "1.75 s", "100%"),
    ]


def test_a_graph_of_one_node_has_no_ratios_of_zero(make_report: MakeReport, one_node: GraphSummary) -> None:
    (table,) = _tables(_section(make_report(before=one_node, after=one_node), "Size and degrees"))
    assert ("Edges", "0", "0", "–") in table.rows


def test_cells_of_one_column_keep_their_decimals() -> None:
    assert [format_cell(value) for value in (94.0, 94.25, 3, 0.0, None)] == ["94.00", "94.25", "3", "0.00", "–"]


def test_groups_of_alike_nodes_have_no_picture_of_ranks(make_report: MakeReport) -> None:
    report = make_report(config={"groups": "alike"}, kept_by_rank=[], nodes_by_rank=[])
    section = _section(report, "What was kept")
    assert len(section.blocks) == 1
    assert "nearest to its group's mean" in section.text
