import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from falcon_gnn.errors import MissingDependencyError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.report import CollapseReport, FeatureSummary, GraphSummary, LabelSummary
from falcon_gnn.reporting import html as html_module
from falcon_gnn.reporting.html import write_report
from falcon_gnn.reporting.plots import LineAxes, lines_figure
from falcon_gnn.reporting.sections import Picture, Section, Table

MakeReport = Callable[..., CollapseReport]
LabelsOf = Callable[[int], LabelSummary]
HOSTILE = '<script>alert("x")</script> & <img src=http://evil.example onerror=x>'
_VOID = {"meta", "link", "img", "br"}


class _Page(HTMLParser):
    """What a page holds: tags with attributes, unclosed tags, and ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def _written(report: CollapseReport, folder: Path, **options: object) -> str:
    write_report(report, folder / "report.html", **options)  # type: ignore[arg-type]
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(make_report: MakeReport, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _written(make_report(), tmp_path_factory.mktemp("page"))


def test_the_page_loads_nothing_and_runs_nothing(text: str) -> None:
    page = _Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|//|@import|url\((?!#)", text)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_the_page_is_well_formed_and_its_ids_are_unique(text: str) -> None:
    page = _Page(text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert page.open == []
    assert len(ids) == len(set(ids)) > 0


def test_the_page_holds_every_figure_of_the_report(text: str) -> None:
    titles = ["Degree distribution", "Label shares", "Kept and removed over centrality", "Cluster budgets"]
    assert _Page(text).count("svg") == 5
    assert [title for title in titles if f">{title}</text>" not in text] == []


def test_the_page_prints_the_figures_of_the_collapse(text: str) -> None:
    words = re.sub(r"<[^>]+>", " ", text)
    for shown in ("37.5%", "300.0 MiB", "1.5 s", "−0.250", "eigenvector", "Self-loops removed", "9 of 12 connected"):
        assert shown in words


def test_the_same_report_gives_the_same_bytes(text: str, make_report: MakeReport, tmp_path: Path) -> None:
    assert _written(make_report(), tmp_path) == text


def test_a_report_read_back_from_json_gives_the_same_page(text: str, make_report: MakeReport, tmp_path: Path) -> None:
    assert _written(json.loads(make_report().to_json()), tmp_path) == text


@pytest.mark.parametrize("given", [{}, {"before": None}, {"before": {"num_nodes": 1}}])
def test_a_dictionary_that_is_no_report_is_refused(given: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="report must be a CollapseReport or the dictionary its to_dict"):
        write_report(given, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_hostile_text_is_shown_and_not_obeyed(make_report: MakeReport, tmp_path: Path) -> None:
    figure = lines_figure({HOSTILE: ([1, 2], [1, 2])}, LineAxes(HOSTILE, HOSTILE, HOSTILE))
    section = Section(HOSTILE, [Table([HOSTILE], [[HOSTILE]], HOSTILE), Picture(figure, HOSTILE)], HOSTILE)
    report = make_report(config={HOSTILE: HOSTILE}, seconds={HOSTILE: 1.0})
    written = _written(report, tmp_path, title=HOSTILE, sections=[section])
    page = _Page(written)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert page.open == []
    assert written.count("&lt;script&gt;") >= 10


def test_added_sections_stand_before_the_options(make_report: MakeReport, tmp_path: Path) -> None:
    table = Table(("Model", "Accuracy (%)"), [("QSIGN", 94.5), ("SIGN", None)], "On the test nodes.")
    text = _written(make_report(), tmp_path, sections=[Section("Training", [table])])
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles[-2:] == ["Training", "Options, input and cost"]
    assert '<th scope="row">QSIGN</th><td class="number">94.50</td>' in re.sub(r"\s*\n\s*", "", text)


def test_a_page_without_optional_parts_is_whole(
    make_report: MakeReport, one_node: GraphSummary, tmp_path: Path
) -> None:
    parts = {"labels": None, "features": None, "cluster_sizes": [1], "cluster_kept": [1], "num_dropped": 0}
    report = make_report(before=one_node, after=one_node, kept_by_rank=[1], nodes_by_rank=[1], **parts)
    page = _Page(_written(report, tmp_path))
    assert (page.open, page.count("svg")) == ([], 3)


@pytest.mark.parametrize("num_labels", [1, 20, 21, 121])
def test_any_number_of_labels_has_a_plot_and_a_table(
    make_report: MakeReport, label_summary: LabelsOf, num_labels: int, tmp_path: Path
) -> None:
    text = _written(make_report(labels=label_summary(num_labels)), tmp_path)
    assert ("Label shares</text>" in text) == (num_labels <= 20)
    assert (f"Shares of {num_labels} labels</text>" in text) == (num_labels > 20)


def test_features_that_did_not_move_need_no_figure(make_report: MakeReport, tmp_path: Path) -> None:
    assert "No feature's mean moved" in _written(
        make_report(features=FeatureSummary([0.0, 0.0], 0.0, 0.0)), tmp_path
    ).replace("&#39;", "'")


@pytest.mark.parametrize("case", ["plain", "regression", "one node", "multilabel"])
def test_the_report_of_a_real_collapse_becomes_a_page(case: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    num_nodes = 1 if case == "one node" else 60
    edges = np.sort(rng.integers(0, num_nodes, (2, 3 * num_nodes)), axis=0)
    targets = {"regression": rng.normal(size=num_nodes), "multilabel": rng.integers(0, 2, (num_nodes, 121))}
    graph = Graph.from_edges(
        edges, num_nodes, x=None if case == "plain" else rng.random((num_nodes, 3)), y=targets.get(case)
    )
    report = collapse(graph, node_budget=1.0 if num_nodes == 1 else 0.4, num_clusters=1, centrality="degree").report
    assert _Page(_written(report, tmp_path)).open == []


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_a_missing_library_names_the_extra_and_writes_nothing(
    missing: str, make_report: MakeReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingDependencyError, match=rf"{missing} is needed.*falcon-gnn\[report\]"):
        write_report(make_report(), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_halfway_leaves_the_old_page_and_no_other_file(
    make_report: MakeReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail_halfway(file: Path, text: str, **options: str) -> None:
        with file.open("w") as half:
            half.write(text[: len(text) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(html_module.Path, "write_text", fail_halfway)
    with pytest.raises(KeyboardInterrupt):
        write_report(make_report(), path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report.html", "old")]
