"""What a long piece of work says of how far it is."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

import falcon_gnn.progress as progresses
from falcon_gnn import collapse
from falcon_gnn.adjacency import build_adjacency, split_edges
from falcon_gnn.datasets.archive import write_npz
from falcon_gnn.datasets.synthetic import power_law_graph
from falcon_gnn.progress import hearing, part_of_work, tell_share, telling_time_left


@pytest.fixture
def clock(monkeypatch):
    """Let a second pass whenever the time is asked for."""
    seconds = itertools.count()
    monkeypatch.setattr(progresses, "perf_counter", lambda: float(next(seconds)))


def test_without_a_listener_nothing_happens():
    tell_share(0.5)
    with part_of_work(0.2, 0.4):
        tell_share(0.5)


def test_a_part_tells_its_share_of_the_whole():
    heard = []
    with hearing(heard.append):
        with part_of_work(0.2, 0.6):
            tell_share(0.5)
            with part_of_work(0.5, 1.0):
                tell_share(0.5)
        tell_share(0.7)
    tell_share(0.9)
    assert heard == pytest.approx([0.4, 0.5, 0.6, 0.6, 0.7])


def test_the_time_left_supposes_that_the_rest_goes_on_as_fast(clock):
    told = []
    with telling_time_left("work", told.append, seconds_before=8.0):
        tell_share(0.25)  # a second after the start, nine in all: three times as many are left
    assert told == ["work, 25%, 0:00:27 left"]


def test_a_short_work_says_nothing(clock):
    told = []
    with telling_time_left("work", told.append):
        tell_share(0.5)
        tell_share(0.6)
    assert told == []


def test_nothing_is_told_twice_within_a_second(monkeypatch):
    monkeypatch.setattr(progresses, "perf_counter", iter([0.0, 10.0, 10.5, 11.0]).__next__)
    told = []
    with telling_time_left("work", told.append):
        for share in (0.5, 0.6, 0.8):
            tell_share(share)
    assert told == ["work, 50%, 0:00:10 left", "work, 80%, 0:00:03 left"]


def test_an_error_leaves_no_listener():
    heard = []
    with pytest.raises(ZeroDivisionError), hearing(heard.append):
        raise ZeroDivisionError
    tell_share(0.5)
    assert heard == []


def shares_of(function, *arguments):
    """Return what a function tells while it runs."""
    heard = []
    with hearing(heard.append):
        function(*arguments)
    return heard


@pytest.mark.parametrize("centrality", ["degree", "pagerank", "eigenvector", "betweenness", "closeness"])
@pytest.mark.parametrize("groups", ["neighbors", "alike"])
def test_every_stage_of_a_collapse_goes_forward_from_0_to_1(centrality, groups, monkeypatch):
    graph = power_law_graph(2_000, 8_000)
    heard = {}

    def hear_stage(name, *_):
        return hearing(heard.setdefault(name, []).append)

    monkeypatch.setattr("falcon_gnn.reduction.clock.telling_time_left", hear_stage)
    collapse(graph, node_budget=0.3, groups=groups, **({} if groups == "alike" else {"centrality": centrality}))
    assert heard["contraction"][-1] == 1
    long_stages = {"hop features", "grouping"} if groups == "alike" else {"centrality", "selection"}
    assert all(heard[stage] and heard[stage][-1] > 0.4 for stage in long_stages)
    for shares in heard.values():
        assert shares == sorted(shares)
        assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("soft labels", {"soft_labels": 0.3, "centrality": "degree", "merge": "mean"}),
        ("soft labels", {"soft_labels": 0.3, "groups": "alike"}),
        ("teacher", {"cluster_on": "teacher", "groups": "alike"}),
    ],
)
def test_what_a_regression_says_of_labels_goes_forward_to_its_end(stage, options, monkeypatch):
    rng = np.random.default_rng(0)
    graph = power_law_graph(2_000, 8_000)
    graph = graph.replace(x=rng.normal(size=(2_000, 90)), y=rng.integers(0, 80, 2_000))
    heard = {}
    monkeypatch.setattr("falcon_gnn.reduction.ridge._BLOCK_VALUES", 1 << 14)
    monkeypatch.setattr("falcon_gnn.reduction.soft_labels._BLOCK_VALUES", 1 << 16)
    monkeypatch.setattr(
        "falcon_gnn.reduction.clock.telling_time_left", lambda name, *_: hearing(heard.setdefault(name, []).append)
    )
    collapse(graph, node_budget=0.1, **options)
    for name in (stage, "attributes"):
        assert heard[name] == sorted(heard[name])
        assert heard[name][-1] == pytest.approx(1)
    assert sum(share > 0.5 for share in heard[stage]) > 10


def test_stages_that_last_tell_the_time_left(monkeypatch):
    monkeypatch.setattr(progresses, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(progresses, "_TELLING_SECONDS", 0.0)
    told = []
    collapse(power_law_graph(2_000, 8_000), node_budget=0.3, centrality="pagerank", on_stage=told.append)
    with_time = {text.split(",")[0] for text in told if re.fullmatch(r"[a-z ]+, \d+%, \d+:\d\d:\d\d left", text)}
    assert with_time >= {"centrality", "selection", "contraction", "report"}


def test_loading_and_writing_tell_how_far_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("falcon_gnn.datasets.layout.CHUNK_EDGES", 3_000)
    graph = power_law_graph(2_000, 8_000)
    edges, weights = np.tile(graph.edge_index, 400), np.ones(400 * graph.edge_index.shape[1])
    for weight in (None, weights):
        dtype = None if weight is None else weight.dtype
        shares = shares_of(build_adjacency, split_edges(edges, weight), 2_000, dtype)
        assert len(shares) > 1
        assert shares == sorted(shares)
    weighted = replace(graph, edge_weight=np.ones(len(graph.indices)))
    for written in (graph, weighted):
        shares = shares_of(write_npz, written, tmp_path / "graph.npz")
        assert len(shares) > 2
        assert shares == sorted(shares)
        assert shares[-1] == 1
