"""Mean, interval, the paper's figure and the difference, computed by hand; the three formats; missing cells."""

import csv
import io
import math

import pytest

from falcon_gnn.benchmark.paper import PaperPlace, paper_figures
from falcon_gnn.benchmark.records import Records
from falcon_gnn.benchmark.summary import summarise
from falcon_gnn.benchmark.tables import render, write_tables
from falcon_gnn.errors import OptionError


def cell(ids, method="FALCON", centrality="PR", budget=500, model="qsign", paper="falcon"):
    return {
        "dataset": "Cora", "model": model, "method": method, "centrality": centrality, "budget": budget,
        "paper": ["Cora", paper], "ids": ids,
    }  # fmt: skip


def plan(*cells, paper="benchmark_falco_vs_coarsen", overrides=None, note=""):
    return {
        "plan": "cora", "title": "FALCON & 5 % more", "kind": "train", "paper": paper, "figure": None,
        "drawn_methods": [], "overrides": overrides or {}, "cells": list(cells),
        "datasets": {"Cora": {"note": note, "metrics": ["accuracy"]}},
    }  # fmt: skip


def run(accuracy, kept=500):
    scores = {"test": {"accuracy": accuracy}}
    reduction = {"num_nodes_in_scope": 1208}
    return {"record": {"scores": scores, "trained_on": {"num_nodes": kept}, "reduction": reduction}}


THREE = {"a": run(0.82), "b": run(0.84), "c": run(0.86)}


def only_figure(records):
    (summary,) = summarise(records)
    (figure,) = summary.figures.values()
    return figure


def test_mean_interval_and_difference_are_those_of_a_calculation_by_hand():
    figure = only_figure(Records([plan(cell(["a", "b", "c"]))], dict(THREE)))
    assert figure.mean == pytest.approx(84.0)
    # Student t with 2 degrees of freedom: 4.3027; standard deviation 2; 3 runs.
    assert figure.half_width == pytest.approx(4.3027 * 2 / math.sqrt(3), rel=1e-4)
    assert (figure.paper.value, figure.paper.half_width) == (84.36, 0.62)
    assert figure.difference == pytest.approx(-0.36)


def test_markdown_shows_ours_the_papers_and_the_difference():
    text = render(summarise(Records([plan(cell(["a", "b", "c"]), note="Read me.")], dict(THREE))), "md")
    assert text.splitlines() == [
        "### FALCON & 5 % more: Cora, 500 nodes kept",
        "",
        "| Model | Reduction | Centrality | Accuracy (%) | paper | difference |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        "| QSIGN | FALCON | PR | 84.00 ± 4.97 | 84.36 ± 0.62 | \N{MINUS SIGN}0.36 |",
        "",
        "- Read me.",
    ]


def test_latex_escapes_what_means_something_there():
    text = render(summarise(Records([plan(cell(["a", "b", "c"]))], dict(THREE))), "latex")
    assert r"\caption{FALCON \& 5 \% more: Cora, 500 nodes kept}" in text
    assert r"\begin{tabular}{lllrrr}" in text
    assert r"QSIGN & FALCON & PR & 84.00 $\pm$ 4.97 & 84.36 $\pm$ 0.62 & $-$0.36 \\" in text


def test_latex_keeps_what_an_error_quotes():
    failed = {"a": {"run": "r", "error": "x^2 ~ {a: $1} < 3 \\n", "out_of_memory": False}}
    shown = render(summarise(Records(plans=[plan(cell(["a"]))], errors=failed)), "latex")
    assert r"x\textasciicircum{}2 \textasciitilde{} \{a: \$1\} $<$ 3 \textbackslash{}n" in shown


def test_csv_has_one_row_per_figure():
    (row,) = csv.DictReader(io.StringIO(render(summarise(Records([plan(cell(["a", "b", "c"]))], dict(THREE))), "csv")))
    assert (row["mean"], row["ci95"], row["paper_value"], row["difference"]) == ("84", "4.96828", "84.36", "-0.36")
    assert (row["budget"], row["runs"], row["planned_runs"], row["status"]) == ("500", "3", "3", "")


def test_an_unknown_format_is_refused():
    with pytest.raises(OptionError, match="format must be one of md, csv, latex, got 'html'"):
        render(summarise(Records([plan(cell(["a"]))], dict(THREE))), "html")


@pytest.mark.parametrize(
    ("records", "status"),
    [
        (Records(), "not run"),
        (Records(errors={"a": {"run": "r", "error": "x", "out_of_memory": True}}), "out of memory"),
        (Records(errors={"a": {"run": "r", "error": "x", "out_of_memory": False}}), "failed"),
        (Records(missing_data={"Cora": "not there"}), "no data"),
        (Records(runs={"a": {"record": {"scores": None, "reduction": None}}}), "not measured"),
    ],
)
def test_a_cell_without_a_figure_says_why(records, status):
    records.plans.append(plan(cell(["a"])))
    assert only_figure(records).status == status
    assert f"| QSIGN | FALCON | PR | {status} | 84.36 ± 0.62 | – |" in render(summarise(records), "md")


def test_a_failure_is_quoted_below_the_table():
    records = Records([plan(cell(["a"]))], errors={"a": {"run": "Cora, seed 0", "error": "x", "out_of_memory": False}})
    assert "- Failed (Cora, seed 0): x" in render(summarise(records), "md")


def test_an_error_that_says_no_more_than_its_run_is_quoted_too():
    shown = render(summarise(Records(plans=[plan(cell(["a"]))], errors={"a": {"error": "E: x"}})), "md")
    assert "| failed |" in shown
    assert "- Failed (a): E: x" in shown


def test_a_mean_over_some_of_the_runs_says_so():
    text = render(summarise(Records([plan(cell(["a", "b", "z"]))], dict(THREE))), "md")
    assert "| 83.00 ± 12.71 (2 of 3 runs; not run) |" in text


def test_a_run_that_a_plan_names_twice_counts_once():
    figure = only_figure(Records(plans=[plan(cell(["a", "b", "c", "a"]))], runs=THREE))
    assert (figure.num_runs, figure.num_planned) == (3, 3)
    assert figure.mean == pytest.approx(84)


def test_a_single_run_has_no_interval():
    assert "| 82.00 (1 run) |" in render(summarise(Records([plan(cell(["a"]))], dict(THREE))), "md")


def test_a_budget_that_could_not_be_kept_is_told():
    text = render(summarise(Records([plan(cell(["a"], budget=0.1))], {"a": run(0.82, 323)})), "md")
    assert "| 82.00 (1 run; 26.7% kept) |" in text


@pytest.mark.parametrize("options", [{"paper": None}, {"paper": "contraction_time"}])
def test_where_the_paper_prints_nothing_only_our_figures_are_shown(options):
    text = render(summarise(Records([plan(cell(["a", "b"]), **options)], dict(THREE))), "md")
    assert "| QSIGN | FALCON | PR | 83.00 ± 12.71 |" in text


def test_several_budgets_make_the_columns_the_full_graph_first():
    cells = [
        cell(["a"], budget=None, method="none", centrality=""),
        cell(["b"], budget=0.1, centrality=""),
        cell(["c"], budget=0.5, centrality=""),
    ]
    runs = {"a": run(0.82, 1208), "b": run(0.84, 121), "c": run(0.86, 604)}
    text = render(summarise(Records([plan(*cells)], runs)), "md")
    assert "### FALCON & 5 % more: Cora, Accuracy (%)" in text
    assert "| Model | Reduction | full graph | 50% | 10% |" in text
    assert "| QSIGN | none | 82.00 (1 run) |  |  |" in text
    assert "| QSIGN | FALCON |  | 86.00 (1 run) | 84.00 (1 run) |" in text


def test_the_latest_plan_that_has_a_run_of_a_cell_counts():
    plans = [
        plan(cell(["a"]), cell(["b"], centrality="DC")),
        plan(cell(["c"]), cell(["z"], centrality="DC"), overrides={"training.num_epochs": 3}),
    ]
    (summary,) = summarise(Records(plans, dict(THREE)))
    assert [figure.mean for figure in summary.figures.values()] == pytest.approx([86.0, 84.0])
    assert summary.notes["Cora"] == (
        "Differs from the configuration (qsign, FALCON, PR, 500): training.num_epochs = 3.",
    )


def test_a_note_names_no_cells_where_it_holds_for_all_that_were_run():
    cells = cell(["a"]), cell(["b"], centrality="DC"), cell(["z"], centrality="EC")
    (summary,) = summarise(Records([plan(*cells, overrides={"seeds": 1})], dict(THREE)))
    assert summary.notes["Cora"] == ("Differs from the configuration: seeds = 1.",)


def test_a_method_that_was_renamed_is_shown_under_its_last_name():
    plans = [plan(cell(["a", "b"], method="old")), plan(cell(["a", "b", "c"], method="new"))]
    (summary,) = summarise(Records(plans, dict(THREE)))
    assert [place.method for place, _ in summary.figures] == ["new"]


def test_two_cells_of_one_run_are_both_shown():
    (summary,) = summarise(Records([plan(cell(["a"], method="x"), cell(["a"], method="y"))], dict(THREE)))
    assert [(place.method, figure.mean) for (place, _), figure in summary.figures.items()] == [("x", 82), ("y", 82)]


def test_records_without_a_benchmark_are_refused():
    with pytest.raises(OptionError, match="hold no benchmark"):
        summarise(Records(runs=dict(THREE)))


def test_the_tables_are_written_in_all_formats(tmp_path):
    paths = write_tables(summarise(Records([plan(cell(["a"]))], dict(THREE))), tmp_path / "out")
    assert [path.name for path in paths] == ["cora.md", "cora.csv", "cora.tex"]
    assert all(path.stat().st_size for path in paths)


def test_all_of_the_papers_figures_are_at_hand():
    figures = paper_figures()
    place = PaperPlace("main_result", "PPI", "QSIGN", "falcon", "EC", "micro_f1")
    assert len(figures) == 1150
    assert (figures[place].value, figures[place].half_width) == (97.71, 0.05)
    missing = figures[PaperPlace("main_result", "Flickr", "GCN", "none", "", "accuracy")]
    assert (missing.text, missing.value) == ("OOM", None)


def memory_run(measure):
    named = {} if measure is None else {"measure": measure}
    return {"record": {"memory": {"total": 3 * 2**20, **named}, "trained_on": {"num_nodes": 500}}}


@pytest.mark.parametrize(
    ("measures", "told"),
    [
        ((None, "tensors"), "live tensors"),
        (("allocated", "allocated"), "bytes allocated by torch on the card"),
        (("tensors", "allocated"), "bytes allocated by torch on the card in some runs, in others of live tensors"),
    ],
)
def test_a_table_of_peaks_names_which_memory_they_are_of(measures, told):
    line = plan(cell(["a", "b"]), paper=None)
    line["datasets"]["Cora"]["metrics"] = ["gpu_memory"]
    text = render(summarise(Records([line], dict(zip("ab", map(memory_run, measures), strict=True)))), "md")
    assert f"- Peak memory is that of {told}." in text.splitlines()


def test_a_table_without_peaks_names_no_memory():
    assert "Peak memory" not in render(summarise(Records([plan(cell(["a"]))], {"a": memory_run("tensors")})), "md")
