"""The plots over the node budget."""

import pytest

from falcon_gnn.benchmark.figures import make_figures, write_figures
from falcon_gnn.benchmark.records import Records
from falcon_gnn.benchmark.summary import summarise

pytest.importorskip("matplotlib")


def run(accuracy, kept):
    scores = {"test": {"accuracy": accuracy}}
    reduction = {"num_nodes_in_scope": 200}
    return {"record": {"scores": scores, "trained_on": {"num_nodes": kept}, "reduction": reduction}}


def records(figure="accuracy", drawn=()):
    runs = {"full": run(0.9, 200), "half": run(0.8, 100), "tenth": run(0.6, 24), "other": run(0.5, 100)}
    cells = [("none", None, "full"), ("FALCON", 0.5, "half"), ("FALCON", 0.1, "tenth"), ("other", 0.5, "other")]
    plan = {
        "plan": "small", "title": "T", "kind": "train", "paper": None, "figure": figure, "drawn_methods": list(drawn),
        "overrides": {}, "datasets": {"a/b": {"note": "", "metrics": ["accuracy"]}},
        "cells": [
            {"dataset": "a/b", "model": "sign", "method": method, "centrality": "", "budget": budget,
             "paper": [None, None], "ids": [run_id]}
            for method, budget, run_id in cells
        ],
    }  # fmt: skip
    return Records([plan], runs)


def drawn(records):
    (summary,) = summarise(records)
    (figure,) = make_figures(summary).values()
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_each_method_is_a_line_over_the_share_that_it_really_kept():
    line = drawn(records())["FALCON"]
    assert line.get_xdata().tolist() == [12, 50]
    assert line.get_ydata() == pytest.approx([60, 80])


def test_the_full_graph_is_a_horizontal_line():
    assert set(drawn(records())["full graph"].get_ydata()) == {90}


def test_only_the_methods_that_are_asked_for_are_drawn():
    assert set(drawn(records(drawn=["FALCON"]))) == {"FALCON", "full graph"}


def test_a_benchmark_without_a_figure_draws_nothing(tmp_path):
    assert write_figures(summarise(records(figure=None)), tmp_path) == []


def test_figures_are_written_under_a_name_that_is_fit_for_a_file(tmp_path):
    assert [path.name for path in write_figures(summarise(records()), tmp_path)] == ["small_a-b_sign.png"]
