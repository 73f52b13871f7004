"""Rounds and seconds of the Spark engine beside the local engine, on the same scores and clusters.

    python benchmarks/spark.py --graph ppi.npz --budget 0.334 --centrality EC --selections lowest stratified random
    python benchmarks/spark.py --edges 1e7 --budget 0.3 --driver-rows 0 4000000 --records spark.jsonl

Each selection is contracted once per ``--driver-rows`` (0: every round in Spark). The tables are Parquet files that
Spark reads; the local engine's graph is in memory already, as that of a user who can choose would be. Both results are
compared edge for edge.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import falcon_gnn as fg
from falcon_gnn.errors import require
from falcon_gnn.reduction.centrality import round_scores
from falcon_gnn.spark import engine
from records import append_records

_CHUNK_ROWS = 1 << 21


def start_session(master: str, memory: str) -> Any:
    """Return a local session with that much memory for the JVM."""
    builder = require("pyspark.sql", "spark").SparkSession.builder.master(master).appName("falcon-gnn-benchmark")
    options = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def write_tables(graph: fg.Graph, local: fg.CollapseResult, folder: Path) -> None:
    """Write nodes, edges, and the local engine's scores and clusters as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    ids = np.arange(graph.num_nodes)
    columns: dict[str, NDArray[Any]] = {"node_id": ids}
    if graph.train_mask is not None:
        columns["train_mask"] = graph.train_mask
    parquet.write_table(pa.table(columns), folder / "nodes.parquet")
    inside = local.clusters >= 0
    facts = {
        "node_id": ids[inside],
        "centrality": round_scores(local.centrality[inside]),
        "cluster": local.clusters[inside],
    }
    parquet.write_table(pa.table(facts), folder / "facts.parquet")
    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    with parquet.ParquetWriter(folder / "edges.parquet", schema) as writer:
        for start in range(0, graph.num_nodes, _CHUNK_ROWS // 8):
            stop = min(start + _CHUNK_ROWS // 8, graph.num_nodes)
            targets = graph.indices[graph.indptr[start] : graph.indptr[stop]].astype(np.int64)
            sources = np.repeat(np.arange(start, stop), np.diff(graph.indptr[start : stop + 1]))
            once = sources < targets
            writer.write_table(pa.table([sources[once], targets[once]], schema=schema))


def is_same(local: fg.CollapseResult, found: engine.SparkCollapseResult) -> bool:
    """Return whether both engines kept the same nodes, merged them alike and have the same edges."""
    table = found.assignment.orderBy("node_id").toArrow()
    survivor = table.column("survivor_id").fill_null(-1).to_numpy()
    expected = np.where(local.assignment >= 0, local.kept[local.assignment], -1)
    edges = found.edges.toArrow()
    num_nodes = len(local.assignment)
    pairs = np.sort(edges.column("source").to_numpy() * num_nodes + edges.column("target").to_numpy())
    source, target = local.kept[local.graph.edge_index]
    wanted = np.sort((source * num_nodes + target)[source < target])
    return np.array_equal(survivor, expected) and np.array_equal(pairs, wanted)


def measure_case(
    spark: Any, graph: fg.Graph, config: fg.CollapseConfig, driver_rows: int, folder: Path, *, own_scores: bool
) -> dict[str, Any]:
    """Return the record of one collapse on both engines."""
    start = perf_counter()
    local = fg.collapse(graph, config)
    local_seconds = perf_counter() - start
    write_tables(graph, local, folder)
    facts = spark.read.parquet(str(folder / "facts.parquet"))
    start = perf_counter()
    found = engine.collapse(
        folder / "nodes.parquet",
        folder / "edges.parquet",
        config,
        centrality=None if own_scores else facts,
        clusters=facts,
        spark=spark,
        driver_rows=driver_rows,
    )
    return {
        "num_nodes": found.report["before"]["num_nodes"],
        "num_edges": found.report["before"]["num_edges"],
        "selection": config.selection,
        "centrality": config.centrality,
        "driver_rows": driver_rows,
        "num_rounds": found.report["num_rounds"],
        "num_driver_rows": found.report["num_driver_rows"],
        "num_iterations": found.report["num_iterations"],
        "spark_seconds": perf_counter() - start,
        "spark_stage_seconds": found.report["seconds"],
        "local_seconds": local_seconds,
        "local_stage_seconds": local.report.seconds,
        "is_same": is_same(local, found),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
    }


def markdown_table(records: list[dict[str, Any]]) -> str:
    """Return one row per case."""
    lines = [
        "| edges | centrality | selection | rounds | rows left to the driver | Spark s | of it contraction | local s "
        "| of it contraction | same result |",
        f"|{'---|' * 10}",
    ]
    for record in records:
        cells = [
            f"{record['num_edges']:,}",
            record["centrality"],
            record["selection"],
            str(record["num_rounds"]),
            f"{record['num_driver_rows']:,}",
            f"{record['spark_seconds']:.1f}",
            f"{record['spark_stage_seconds']['contraction']:.1f}",
            f"{record['local_seconds']:.1f}",
            f"{record['local_stage_seconds']['contraction']:.1f}",
            "yes" if record["is_same"] else "NO",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--graph", type=Path, help="any file or folder that load_graph reads")
    source.add_argument("--edges", type=float, help="edges of a power-law graph, N = E / 10")
    parser.add_argument("--budget", type=float, default=0.3, help="share of the nodes to keep")
    parser.add_argument("--centrality", default="DC")
    parser.add_argument("--own-scores", action="store_true", help="let Spark compute the centrality too")
    parser.add_argument("--selections", nargs="+", default=["lowest"], choices=("lowest", "stratified", "random"))
    parser.add_argument("--driver-rows", type=int, nargs="+", default=[0])
    parser.add_argument("--num-clusters", type=int, default=100)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g", help="of the JVM")
    parser.add_argument("--records", type=Path, help="append one JSON line per case to this file")
    return parser.parse_args()


def main() -> None:
    """Run every case and print the table."""
    options = parse_arguments()
    if options.graph is not None:
        graph = fg.load_graph(options.graph)
    else:
        from falcon_gnn.datasets.synthetic import power_law_graph

        graph = power_law_graph(int(options.edges) // 10, int(options.edges))
        graph = graph.replace(train_mask=None, val_mask=None, test_mask=None)
    spark = start_session(options.master, options.memory)
    records = []
    for selection in options.selections:
        for driver_rows in options.driver_rows:
            config = fg.CollapseConfig(
                options.budget, options.centrality, num_clusters=options.num_clusters, selection=selection
            )
            with tempfile.TemporaryDirectory() as folder:
                record = measure_case(spark, graph, config, driver_rows, Path(folder), own_scores=options.own_scores)
            records.append(record)
            print(json.dumps(record), flush=True)
            append_records(options.records, [record])
    print(markdown_table(records))


if __name__ == "__main__":
    main()
