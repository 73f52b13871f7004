"""The Spark engine gives the local engine's result; every test shares one session of two threads."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import falcon_gnn as fg
from falcon_gnn.cli.commands import app
from falcon_gnn.datasets.archive import write_npz
from falcon_gnn.reduction.budgets import split_budget
from falcon_gnn.reduction.centrality import round_scores
from falcon_gnn.reduction.contraction import merge_into_neighbors, order_removals
from falcon_gnn.reduction.matrix import build_matrix
from falcon_gnn.reduction.scope import encode_scope, resolve_scope

pytest.importorskip("pyspark", reason="the extra spark is not installed")
pa = pytest.importorskip("pyarrow")

from falcon_gnn.spark import centrality as spark_centrality  # noqa: E402
from falcon_gnn.spark import engine  # noqa: E402
from falcon_gnn.spark import job as spark_job  # noqa: E402
from falcon_gnn.spark.centrality import compute_centrality, fill_isolated  # noqa: E402
from falcon_gnn.spark.clustering import matrix_column  # noqa: E402
from falcon_gnn.spark.contraction import Contraction, Keys, contract  # noqa: E402
from falcon_gnn.spark.edges import index_edges  # noqa: E402
from falcon_gnn.spark.frames import F, number_rows, upload_columns  # noqa: E402
from falcon_gnn.spark.labels import encode_labels  # noqa: E402
from falcon_gnn.spark.nodes import describe_columns  # noqa: E402
from falcon_gnn.spark.table_source import upload_graph  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none on the PATH")


@pytest.fixture(scope="session")
def spark() -> Any:
    from pyspark.sql import SparkSession

    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        # Tables of a few rows: compiling a query costs more than running it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        # The JVM's slower compiler costs a short session more than it gives.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    builder = SparkSession.builder.master("local[2]").appName("falcon-gnn-tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def random_graph(rng: np.random.Generator, num_nodes: int, num_edges: int, **arrays: Any) -> fg.Graph:
    edges = rng.integers(0, num_nodes, (2, num_edges))
    return fg.Graph.from_edges(edges, num_nodes, warn_one_way="never", **arrays)


def many_graphs(seed: int, count: int) -> fg.Graph:
    """Return the disjoint union of small random graphs, sparse and dense, so that one job tests them all."""
    rng = np.random.default_rng(seed)
    parts, start = [], 0
    for _ in range(count):
        size = int(rng.integers(1, 12))
        parts.append(start + rng.integers(0, size, (2, int(rng.integers(0, 3 * size)))))
        start += size
    return fg.Graph.from_edges(np.concatenate(parts, axis=1), start, warn_one_way="never")


def node_frame(spark: Any, graph: fg.Graph, ids: np.ndarray, **columns: np.ndarray) -> Any:
    known = {"y": graph.y, "train_mask": graph.train_mask, **columns}
    table = {"node_id": ids, **{name: value for name, value in known.items() if value is not None}}
    if graph.x is not None:
        x = graph.x if isinstance(graph.x, np.ndarray) else graph.x.toarray()
        table["x"] = pa.array(list(np.asarray(x, np.float32)))
    return spark.createDataFrame(pa.table(table))


def edge_frame(spark: Any, graph: fg.Graph, ids: np.ndarray) -> Any:
    source, target = graph.edge_index
    once = source < target
    columns = {"source": ids[source[once]], "target": ids[target[once]]}
    if graph.edge_weight is not None:
        columns["weight"] = graph.edge_weight[once]
    return upload_columns(spark, columns)


def column(frame: Any, name: str) -> list[Any]:
    return frame.toArrow().column(name).to_pylist()


def assert_same(local: fg.CollapseResult, found: engine.SparkCollapseResult, ids: np.ndarray) -> None:
    assignment = found.assignment.orderBy("node_id").toArrow()
    survivor = np.where(local.assignment >= 0, ids[local.kept[local.assignment]], -1).tolist()
    assert [-1 if s is None else s for s in assignment.column("survivor_id").to_pylist()] == survivor
    assert [-1 if r is None else r for r in assignment.column("rank").to_pylist()] == local.rank.tolist()
    assert sorted(column(found.nodes, "node_id")) == ids[local.kept].tolist()
    edges = found.edges.orderBy("source", "target").toArrow()
    source, target = local.graph.edge_index
    once = source < target
    assert edges.column("source").to_pylist() == ids[local.kept[source[once]]].tolist()
    assert edges.column("target").to_pylist() == ids[local.kept[target[once]]].tolist()
    if local.graph.edge_weight is not None:
        np.testing.assert_allclose(edges.column("weight").to_pylist(), local.graph.edge_weight[once])


def collapse_both(
    spark: Any, graph: fg.Graph, config: fg.CollapseConfig, seed: int, **options: Any
) -> tuple[fg.CollapseResult, engine.SparkCollapseResult, np.ndarray]:
    """Collapse with the same tied scores and gappy clusters on both engines, under scattered ids on Spark."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, graph.num_nodes).astype(float)
    clusters = 2 * rng.integers(0, 4, graph.num_nodes)
    ids = np.sort(rng.choice(10 * graph.num_nodes, graph.num_nodes, replace=False)).astype(np.int64)
    local = fg.collapse(graph, config, centrality=scores, clusters=clusters, protect=options.get("protect"))
    if "protect" in options:
        options["protect"] = upload_columns(spark, {"node_id": ids[options["protect"]]})
    found = engine.collapse(
        node_frame(spark, graph, ids),
        edge_frame(spark, graph, ids),
        config,
        centrality=upload_columns(spark, {"node_id": ids, "centrality": scores}),
        clusters=upload_columns(spark, {"node_id": ids, "cluster": clusters}),
        spark=spark,
        **options,
    )
    return local, found, ids


@pytest.mark.filterwarnings("ignore:edge_weights='none'")
def test_weights_of_nodes_follow_the_survivors_as_in_the_local_engine(spark: Any) -> None:
    weights = {"node_weight": np.arange(1.0, 13.0), "self_weight": np.arange(12.0)}
    edges = np.stack([np.arange(11), np.arange(1, 12)])
    graph = fg.Graph.from_edges(edges, 12, edge_weight=np.ones(11), x=np.eye(12), **weights)
    for edge_weights in ("sum", "none"):
        config = fg.CollapseConfig(5, centrality="degree", num_clusters=1, edge_weights=edge_weights)
        local = fg.collapse(graph, config).graph
        found = engine.collapse(*upload_graph(spark, graph), config, spark=spark).nodes.orderBy("node_id")
        for name in weights:
            ours = getattr(local, name)
            assert (name in found.columns) == (ours is not None)
            assert ours is None or column(found, name) == ours.tolist()


def contract_in_spark(
    spark: Any, graph: fg.Graph, rank: np.ndarray, group: np.ndarray, survives: np.ndarray, driver_rows: int
) -> tuple[list[int], Contraction]:
    """Return the survivor of each node, -1 for none, and the figures of the contraction."""
    keys = Keys.for_sizes(graph.num_nodes, int(group.max()) + 1)
    key = np.where(survives, -1 - rank, (group << keys.rank_bits) | rank).tolist()
    source, target = graph.edge_index
    edges = upload_columns(spark, {"u": source[source < target], "v": target[source < target]})
    keyed = upload_columns(spark, {"index": np.arange(graph.num_nodes), "key": np.array(key)})
    result = contract(edges, keyed, keys, driver_rows)
    merges = {row["owner"]: row["other"] for row in result.merges.collect()}
    node = {k: i for i, k in enumerate(key)}
    return [i if survives[i] else node.get(merges.get(key[i]), -1) for i in range(graph.num_nodes)], result


@pytest.mark.parametrize("driver_rows", [0, 800])
def test_parallel_rounds_merge_as_the_sequential_algorithm_does(spark: Any, driver_rows: int) -> None:
    rng = np.random.default_rng(driver_rows)
    graph = many_graphs(driver_rows, 300)
    rank, group = rng.permutation(graph.num_nodes), rng.integers(0, 5, graph.num_nodes)
    survives = rng.random(graph.num_nodes) < 0.3
    order = order_removals(~survives, rank, group, "cluster")
    expected = merge_into_neighbors(graph.indptr, graph.indices, order, rank)
    found, result = contract_in_spark(spark, graph, rank, group, survives, driver_rows)
    assert found == expected.tolist()
    assert (result.num_driver_rows == 0) == (driver_rows == 0)


def test_a_chain_of_merges_longer_than_a_job_is_followed_to_its_survivor(spark: Any) -> None:
    # On a path in ascending rank each node can merge only after the one before it.
    path = fg.Graph.from_edges(np.array([np.arange(7), np.arange(1, 8)]), 8)
    rank = np.arange(8)
    found, result = contract_in_spark(spark, path, rank, np.zeros(8, np.int64), rank == 7, 0)
    assert found == [7] * 8
    assert result.num_rounds == 7


def test_all_leaves_of_a_hub_merge_in_one_round_and_the_hub_in_the_next(spark: Any) -> None:
    num_leaves = 20_000
    star = fg.Graph.from_edges(np.array([np.zeros(num_leaves, np.int64), np.arange(1, num_leaves + 1)]), num_leaves + 1)
    rank = np.roll(np.arange(num_leaves + 1), 1)
    survives = rank == 0
    found, result = contract_in_spark(spark, star, rank, np.zeros(num_leaves + 1, np.int64), survives, 0)
    assert found == [1] * (num_leaves + 1)
    assert result.num_rounds == 2


def test_result_equals_the_local_engine_for_the_papers_options(spark: Any) -> None:
    rng = np.random.default_rng(1)
    mask = rng.random(120) < 0.7
    graph = random_graph(rng, 120, 240, y=rng.integers(0, 3, 120), train_mask=mask)
    local, found, ids = collapse_both(spark, graph, fg.CollapseConfig(node_budget=30), 1, driver_rows=0)
    assert_same(local, found, ids)
    assert found.report["num_dropped"] == local.report.num_dropped
    assert found.report["cluster_kept"] == local.report.cluster_kept


def test_result_equals_the_local_engine_for_stratified_global_weighted_and_protected(spark: Any) -> None:
    rng = np.random.default_rng(2)
    edges = rng.integers(0, 90, (2, 200))
    graph = fg.Graph.from_edges(edges[:, edges[0] < edges[1]], 90, edge_weight=rng.random((edges[0] < edges[1]).sum()))
    config = fg.CollapseConfig(node_budget=0.3, selection="stratified", order="global", edge_weights="sum", seed=3)
    assert_same(*collapse_both(spark, graph, config, 2, protect=np.array([3, 50, 51])))


def test_result_equals_the_local_engine_for_a_random_sample_without_merging(spark: Any) -> None:
    graph = random_graph(np.random.default_rng(3), 80, 160)
    config = fg.CollapseConfig(node_budget=40, selection="random", merge="drop", edge_weights="count", seed=5)
    assert_same(*collapse_both(spark, graph, config, 3))


def test_cora_collapses_as_on_the_local_engine(spark: Any, shared_dataset: Any) -> None:
    graph = fg.load_graph(shared_dataset("cora")).replace(x=None, train_mask=None, val_mask=None, test_mask=None)
    config = fg.CollapseConfig(node_budget=0.3, centrality="degree", num_clusters=7)
    local = fg.collapse(graph, config)
    ids = np.arange(graph.num_nodes)
    found = engine.collapse(
        node_frame(spark, graph, ids),
        edge_frame(spark, graph, ids),
        config,
        clusters=upload_columns(spark, {"node_id": ids, "cluster": local.clusters}),
    )
    assert_same(local, found, ids)
    error = found.report["labels"]["label_distribution_error"]
    assert error == pytest.approx(local.report.labels.label_distribution_error)


def test_pagerank_ends_where_only_rounding_is_left(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = spark_centrality._changes
    monkeypatch.setattr(spark_centrality._PageRank, "tolerance", 1e-2)
    monkeypatch.setattr(spark_centrality, "_changes", lambda *walk: [max(change, 2e-2) for change in changes(*walk)])
    edges = spark.createDataFrame([(0, 1), (0, 2), (0, 3)], "u bigint, v bigint")
    _, num_products = compute_centrality("pagerank", edges, 3, 4, 0)
    assert 30 < num_products < 60


@pytest.mark.parametrize("name", ["degree", "pagerank", "eigenvector"])
def test_centrality_agrees_with_the_local_engine_on_a_disconnected_graph(spark: Any, name: str) -> None:
    from falcon_gnn.reduction.centrality import compute_centrality as compute_local

    # Two dense parts, on which the iterations are short, and three nodes without an edge.
    rng = np.random.default_rng(4)
    edges = np.concatenate([rng.integers(0, 30, (2, 200)), 30 + rng.integers(0, 15, (2, 60))], axis=1)
    graph = fg.Graph.from_edges(edges, 48, warn_one_way="never")
    expected = compute_local(name, graph.indptr, graph.indices)
    source, target = graph.edge_index
    edges = upload_columns(spark, {"u": source[source < target], "v": target[source < target]})
    scores, _ = compute_centrality(name, edges, graph.num_edges, graph.num_nodes, 0)
    index = upload_columns(spark, {"index": np.arange(graph.num_nodes)})
    found = fill_isolated(index, scores).orderBy("index")
    np.testing.assert_allclose(column(found, "centrality"), expected, rtol=1e-11)


def test_scores_are_rounded_as_on_the_local_engine(spark: Any) -> None:
    from falcon_gnn.spark.centrality import round_scores as round_in_spark

    scores = np.array([0.0, -0.0, 1 / 3, 1 / 3 + 1e-12, 9.99999999996e-5, 2e-14, 123456.789012345, 1.0])
    frame = upload_columns(spark, {"centrality": scores})
    np.testing.assert_allclose(column(round_in_spark(frame), "phi"), round_scores(scores), rtol=1e-15)


@pytest.mark.parametrize("is_multilabel", [False, True])
def test_matrix_m_equals_that_of_the_local_engine(spark: Any, is_multilabel: bool) -> None:
    x = np.array([[1.0, 5.0, 2.0], [3.0, 5.0, -2.0], [2.0, 5.0, 0.5], [1.5, 5.0, 1.0]], np.float32)
    classes = np.array([0, 2, -1, 1])
    cells = np.array([[1, np.nan], [0, np.nan], [np.nan, np.nan], [1, np.nan]], np.float32)
    graph = fg.Graph.from_edges(np.array([[0], [1]]), 4, x=x, y=cells if is_multilabel else classes)
    local = build_matrix(graph.x, encode_scope(graph, resolve_scope(graph, None), fg.CollapseConfig(1)), 0.3)
    columns = {"y": pa.array(list(cells))} if is_multilabel else {"y": classes}
    frame = node_frame(spark, graph.replace(y=None), np.arange(4), **columns)
    described = describe_columns(frame)
    labels = encode_labels(frame, described, fg.CollapseConfig(1), "full", 4)
    matrix = matrix_column(frame, described, labels, 0.3)
    found = frame.select("node_id", matrix.alias("m")).orderBy("node_id")
    np.testing.assert_allclose(np.array(column(found, "m")), local.rows(0, 4), rtol=1e-6)


@pytest.mark.parametrize("ends", [[], [2, 2, 3]])
def test_a_graph_without_an_edge_keeps_its_budget_and_drops_the_rest(spark: Any, ends: list[int]) -> None:
    nodes = upload_columns(spark, {"node_id": np.arange(4)})
    edges = upload_columns(spark, {"source": np.array(ends, np.int64), "target": np.array(ends, np.int64)})
    found = engine.collapse(nodes, edges, fg.CollapseConfig(1, centrality="pagerank"))
    assert found.report["num_dropped"] == 3
    assert found.report["cleaning"]["num_self_loops"] == len(ends)
    assert found.nodes.count() == 1
    assert found.edges.count() == 0


def test_own_kmeans_keeps_exact_budgets_and_the_label_error_of_the_local_engine(spark: Any) -> None:
    rng = np.random.default_rng(6)
    y = np.repeat(np.arange(4), [120, 60, 80, 40])
    x = rng.normal(0, 0.2, (300, 3)) + np.eye(4, 3)[y]
    graph = random_graph(rng, 300, 900, x=x.astype(np.float32), y=y)
    config = fg.CollapseConfig(node_budget=90, centrality="degree", num_clusters=8)
    local = fg.collapse(graph, config)
    ids = np.arange(300)
    found = engine.collapse(node_frame(spark, graph, ids), edge_frame(spark, graph, ids), config)
    sizes = np.array(found.report["cluster_sizes"])
    assert found.report["cluster_kept"] == split_budget(sizes, 90).tolist()
    assert len(sizes) == 8
    assert local.report.labels is not None
    gap = found.report["labels"]["label_distribution_error"] - local.report.labels.label_distribution_error
    assert abs(gap) < 0.01


def test_job_writes_tables_that_load_graph_reads(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    graph = random_graph(rng, 60, 150, y=rng.integers(0, 2, 60), train_mask=np.arange(60) % 2 == 0)
    ids = 5 + 2 * np.arange(60)
    node_frame(spark, graph, ids, is_old=np.arange(60) < 3).write.parquet(str(tmp_path / "nodes.parquet"))
    edge_frame(spark, graph, ids).write.parquet(str(tmp_path / "edges.parquet"))
    paths = ["--nodes", str(tmp_path / "nodes.parquet"), "--edges", str(tmp_path / "edges.parquet")]
    config = '{"node_budget": 0.5, "centrality": "degree", "scope": "full", "num_clusters": 1}'
    arguments = [*paths, "--output", str(tmp_path / "out"), "--config", config, "--protect", "is_old"]
    found = spark_job.run(spark_job.parse_arguments(arguments))
    reduced = fg.load_graph(tmp_path / "out")
    assert reduced.num_nodes == 30
    assert reduced.num_edges == found.report["after"]["num_edges"]
    assert {5, 7, 9} <= set(reduced.node_attributes["node_id"].tolist())
    text = (tmp_path / "out" / "report.json").read_text(encoding="utf-8")
    assert json.loads(text)["config"]["node_budget"] == 0.5


def test_the_graph_that_was_collapsed_is_not_replaced(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "my graph"
    graph = random_graph(np.random.default_rng(8), 20, 40)
    node_frame(spark, graph, np.arange(20)).write.parquet(str(folder / "nodes.parquet"))
    edge_frame(spark, graph, np.arange(20)).write.parquet(str(folder / "edges.parquet"))
    tables = [str(folder / "nodes.parquet"), str(folder / "edges.parquet")]
    found = engine.collapse(*tables, fg.CollapseConfig(5, centrality="degree", num_clusters=1), spark=spark)
    job = ["--nodes", tables[0], "--edges", tables[1], "--output", str(folder), "--config", '{"node_budget": 5}']
    for write in (lambda: found.save(folder), lambda: spark_job.run(spark_job.parse_arguments(job))):
        with pytest.raises(fg.OptionError, match=r"whose nodes\.parquet would be replaced"):
            write()
    assert spark.read.parquet(tables[0]).count() == 20
    with pytest.raises(fg.OptionError, match="folder must be a path, got ''"):
        found.save("")


def collapse_by_command(*words: str) -> str:
    arguments = ["collapse", *words, "--node-budget", "20", "--num-clusters", "1", "--engine", "spark"]
    done = CliRunner().invoke(app, [*arguments, "--master", "local[2]"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_command_collapses_any_graph_that_can_be_loaded_as_the_local_engine_does(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    x, cells = csr_array(rng.integers(0, 2, (60, 5)).astype(np.float32)), rng.integers(0, 2, (60, 3)).astype(np.uint8)
    graph = random_graph(rng, 60, 150, x=x, y=cells, node_attributes={"age": np.arange(60, dtype=np.uint8)})
    write_npz(graph, tmp_path / "graph.npz")
    output = collapse_by_command(str(tmp_path / "graph.npz"), "--centrality", "degree", "--out", str(tmp_path / "out"))
    assert "label distribution error" in output
    names = {"nodes.parquet", "edges.parquet", "assignment.parquet", "report.json"}
    assert names == {path.name for path in (tmp_path / "out").iterdir()}
    local = fg.collapse(graph, node_budget=20, centrality="degree", num_clusters=1)
    reduced = fg.load_graph(tmp_path / "out")
    order = np.argsort(reduced.node_attributes["age"])
    assert reduced.node_attributes["age"][order].tolist() == local.kept.tolist()
    assert reduced.num_edges == local.graph.num_edges
    np.testing.assert_array_equal(reduced.x[order], local.graph.x.toarray())
    np.testing.assert_array_equal(reduced.y[order], local.graph.y)


def test_command_lets_spark_read_parquet_tables(spark: Any, tmp_path: Path) -> None:
    graph = random_graph(np.random.default_rng(10), 60, 150)
    ids = 7 + 3 * np.arange(60)
    node_frame(spark, graph, ids).write.parquet(str(tmp_path / "people.parquet"))
    edge_frame(spark, graph, ids).write.parquet(str(tmp_path / "links.parquet"))
    tables = [str(tmp_path / "links.parquet"), "--nodes", str(tmp_path / "people.parquet")]
    collapse_by_command(*tables, "--centrality", "degree", "--out", str(tmp_path / "out"))
    local = fg.collapse(graph, node_budget=20, centrality="degree", num_clusters=1)
    reduced = fg.load_graph(tmp_path / "out")
    assert sorted(reduced.node_attributes["node_id"]) == ids[local.kept].tolist()
    with pytest.raises(fg.OptionError, match="num_nodes has no meaning for Parquet tables"):
        collapse_by_command(*tables, "--centrality", "degree", "--num-nodes", "60", "--out", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "spark", "--memory", "1GiB"], "memory is not known to --engine spark"),
        (["--engine", "spark", "--node-budget", "5", "--centrality", "BC"], "centrality must be one of degree"),
        (["--node-budget", "5", "--master", "local[2]"], "--master is Spark's"),
    ],
)
def test_command_names_options_that_do_not_go_with_the_engine(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["collapse", "digits", "--out", "out", *words])
    assert isinstance(done.exception, fg.OptionError)
    assert message in str(done.exception)


def test_rows_are_numbered_in_order_across_partitions(spark: Any) -> None:
    values = np.random.default_rng(8).permutation(500)
    frame = upload_columns(spark, {"value": values}).repartition(5)
    numbered = number_rows(frame, ["value"], "place").collect()
    assert {row["value"]: row["place"] for row in numbered} == {i: i for i in range(500)}


def test_edges_are_cleaned_and_counted_as_on_the_local_engine(spark: Any) -> None:
    source, target = np.array([0, 1, 2, 2, 3, 1]), np.array([1, 0, 2, 1, 1, 3])
    weight = np.array([2.0, 2.0, 9.0, 1.0, 0.5, 0.5])
    local = fg.Graph.from_edges(np.stack([source, target]), 4, edge_weight=weight, warn_one_way="never")
    frame = upload_columns(spark, {"source": source, "target": target, "weight": weight})
    nodes = upload_columns(spark, {"node_id": np.arange(4), "index": np.arange(4)})
    with pytest.warns(fg.FalconWarning, match="symmetrised: 1 edges had no reverse and 2 had one"):
        found = index_edges(frame, nodes, nodes)
    assert found.cleaning == local.cleaning
    rows = {(row["u"], row["v"]): row["weight"] for row in found.frame.collect()}
    assert rows == {(0, 1): 2.0, (1, 2): 1.0, (1, 3): 0.5}


@pytest.mark.parametrize(
    ("weight", "message"),
    [([1.0, 3.0], r"\(0, 1\) and its reverse differ"), ([1.0, -1.0], "1 have another weight")],
)
def test_bad_weights_are_named(spark: Any, weight: list[float], message: str) -> None:
    columns = {"source": np.array([0, 1]), "target": np.array([1, 0]), "weight": np.array(weight)}
    nodes = upload_columns(spark, {"node_id": np.arange(2), "index": np.arange(2)})
    with pytest.raises(fg.GraphError, match=message):
        index_edges(upload_columns(spark, columns), nodes, nodes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"centrality": "betweenness"}, "centrality must be one of degree, pagerank, eigenvector, random"),
        ({"groups": "alike"}, "groups='alike' is not on the Spark engine yet"),
        ({"selection": "herding"}, "selection='herding' is not on the Spark engine"),
        ({"soft_labels": 0.3}, "soft_labels is not on the Spark engine, got 0.3"),
        ({"centrality": "degree", "merge": "mean"}, "merge='mean' is not computed by the Spark engine"),
    ],
)
def test_what_spark_does_not_compute_is_refused_before_any_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(fg.OptionError, match=message):
        engine.collapse("nodes.parquet", "edges.parquet", fg.CollapseConfig(10, **options))


def test_scores_above_the_whole_doubles_rank_as_they_are(spark: Any) -> None:
    nodes = upload_columns(spark, {"node_id": np.arange(3)})
    edges = upload_columns(spark, {"source": np.array([0, 1]), "target": np.array([1, 2])})
    scores = 2**60 + np.array([2, 0, 1])
    config = fg.CollapseConfig(1, num_clusters=1)
    given = upload_columns(spark, {"node_id": np.arange(3), "centrality": scores})
    found = engine.collapse(nodes, edges, config, centrality=given).assignment.orderBy("node_id")
    assert column(found, "rank") == [2, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"centrality": np.arange(3)}, "centrality must be a Spark DataFrame with numbers in node_id and centrality"),
        ({"clusters": {"node_id": ["a"], "cluster": [0]}}, r"clusters must be .*, got node_id \(string\), cluster"),
        ({"protect": {"id": [0]}}, r"protect must be a Spark DataFrame with numbers in node_id, got id \(bigint\)"),
    ],
)
def test_tables_of_the_caller_that_are_none_are_named(spark: Any, options: dict[str, Any], message: str) -> None:
    nodes = upload_columns(spark, {"node_id": np.arange(3)})
    edges = upload_columns(spark, {"source": np.array([0, 1]), "target": np.array([1, 2])})
    tables = {n: spark.createDataFrame(pa.table(v)) if isinstance(v, dict) else v for n, v in options.items()}
    with pytest.raises(fg.OptionError, match=message):
        engine.collapse(nodes, edges, fg.CollapseConfig(1, centrality="degree", num_clusters=1), **tables)


def test_a_protecting_column_may_have_a_point_in_its_name(spark: Any) -> None:
    nodes = spark.createDataFrame([(0, False), (1, False), (2, True)], "node_id bigint, `keep.me` boolean")
    edges = upload_columns(spark, {"source": np.array([0, 1]), "target": np.array([1, 2])})
    config = fg.CollapseConfig(1, centrality="degree", num_clusters=1)
    assert column(engine.collapse(nodes, edges, config, protect="keep.me").nodes, "node_id") == [2]


def test_a_configuration_of_another_kind_is_named() -> None:
    with pytest.raises(fg.OptionError, match="takes a CollapseConfig, got dict"):
        engine.collapse("nodes.parquet", "edges.parquet", {"node_budget": 10})  # type: ignore[arg-type]


def test_an_edge_to_an_unknown_node_is_named(spark: Any) -> None:
    nodes = upload_columns(spark, {"node_id": np.arange(3)})
    edges = upload_columns(spark, {"source": np.array([0, 1]), "target": np.array([1, 7])})
    with pytest.raises(fg.GraphError, match=r"for example \(1, 7\)"):
        engine.collapse(nodes, edges, fg.CollapseConfig(2, centrality="degree"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": np.arange(3)}, "nodes must have a column node_id"),
        ({"node_id": np.array([0, 1, 1])}, "3 rows with 2 distinct ids"),
        ({"node_id": np.arange(3), "x_0": np.array([0.0, np.nan, 1.0])}, "x must hold the same number of finite"),
        ({"node_id": np.arange(3), "train_mask": np.zeros(3, bool)}, "train_mask must be true or false"),
    ],
)
def test_a_bad_node_table_is_refused(spark: Any, columns: dict[str, np.ndarray], message: str) -> None:
    nodes = upload_columns(spark, columns)
    edges = upload_columns(spark, {"source": np.array([0]), "target": np.array([1])})
    with pytest.raises(fg.GraphError, match=message):
        engine.collapse(nodes, edges, fg.CollapseConfig(2, centrality="degree"))


def test_minus_one_in_multi_label_arrays_is_unknown_as_on_one_machine(spark: Any) -> None:
    cells = np.array([[1, -1, 0], [0, -1, 1], [-1, -1, -1], [1, 1, -1]], np.int64)
    graph = fg.Graph.from_edges(np.array([[0, 1], [1, 2]]), 4, y=cells)
    frame = node_frame(spark, graph, np.arange(4), y=pa.array(list(cells)))
    labels = encode_labels(frame, describe_columns(frame), fg.CollapseConfig(2), "full", 4)
    assert labels is not None
    rows = frame.select("node_id", labels.filled.alias("v"), labels.labelled.alias("l")).orderBy("node_id").collect()
    expected = encode_scope(graph, resolve_scope(graph, None), fg.CollapseConfig(2))
    assert [row["v"] for row in rows] == expected.matrix.tolist()
    assert [row["l"] for row in rows] == expected.labelled.tolist()


@pytest.mark.parametrize(
    ("cells", "message"),
    [([[1.0, 2.0], [0.0, 1.0]], "must hold 1, 0, .* got 2.0"), ([[1.0, -1.0], [-1.0, 1.0]], "nothing but -1 and 1")],
)
def test_multi_label_values_that_are_none_are_refused(spark: Any, cells: Any, message: str) -> None:
    frame = upload_columns(spark, {"node_id": np.arange(2), "y": np.array(cells)})
    with pytest.raises(fg.GraphError, match=message):
        encode_labels(frame, describe_columns(frame), fg.CollapseConfig(1), "full", 2)


def test_labels_below_minus_one_are_counted_in_a_warning(spark: Any) -> None:
    frame = upload_columns(spark, {"node_id": np.arange(5), "y": np.array([1.0, np.nan, -1.0, -2.0, -7.0])})
    with pytest.warns(
        fg.FalconWarning, match=r"y holds 2 labels below -1 \(the lowest: -7\), which count as unlabelled"
    ):
        labels = encode_labels(frame, describe_columns(frame), fg.CollapseConfig(2), "full", 5)
    assert labels is not None
    assert frame.filter(labels.labelled).count() == 1


def test_columns_of_spark_ml_are_read_and_missing_ones_noted(spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    rows = [(i, Vectors.dense([float(i), 1.0]) if i % 2 else Vectors.sparse(2, {0: float(i)}), i % 2) for i in range(4)]
    nodes = spark.createDataFrame(rows, ["node_id", "features", "label"])
    columns = describe_columns(nodes)
    found = nodes.select("node_id", columns.x.alias("x"), columns.y.alias("y")).orderBy("node_id").collect()
    assert [row["x"] for row in found] == [[0, 0], [1, 1], [2, 0], [3, 1]]
    assert [row["y"] for row in found] == [0, 1, 0, 1]
    edges = spark.createDataFrame([(0, 1), (1, 2), (2, 3)], ["source", "target"])
    config = fg.CollapseConfig(2, centrality="degree", num_clusters=1)
    bare = nodes.select("node_id", F.col("label").alias("group"))
    (note,) = engine.collapse(bare, edges, config, spark=spark).report["notes"]
    assert "no features (x) and no labels (y)" in note
    assert "attributes: group" in note
