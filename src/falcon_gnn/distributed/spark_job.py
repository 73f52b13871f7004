"""A collapse as a job for ``spark-submit``, or for ``python -m falcon_gnn.distributed.spark_job``.

It reads ``nodes`` and ``edges`` as Parquet, collapses, and writes the reduced tables, the assignment and the report.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from falcon_gnn.distributed.spark import SparkCollapseResult, collapse
from falcon_gnn.distributed.spark_centrality import SPARK_CENTRALITIES
from falcon_gnn.distributed.spark_contraction import DRIVER_ROWS
from falcon_gnn.distributed.spark_frames import open_session
from falcon_gnn.reduction.budgets import SELECTIONS
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.contraction import ORDERS

_CONFIG_OPTIONS = (
    "centrality",
    "num_clusters",
    "gamma",
    "scope",
    "selection",
    "order",
    "merge",
    "edge_weights",
    "seed",
)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the job's options; the names are those of :class:`CollapseConfig`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", required=True, help="Parquet with node_id and perhaps x, y, train_mask ...")
    parser.add_argument("--edges", required=True, help="Parquet with source, target and perhaps weight")
    parser.add_argument("--output", required=True, help="folder that gets the reduced tables; existing ones go")
    parser.add_argument("--node-budget", required=True, type=parse_budget, help="nodes (500) or their share (0.3)")
    parser.add_argument("--centrality", default="degree", help=f"{', '.join(SPARK_CENTRALITIES)}, or DC PR EC")
    parser.add_argument("--num-clusters", type=int, default=100)
    parser.add_argument("--gamma", type=float, default=0.5)
    parser.add_argument("--scope", choices=("train", "full"))
    parser.add_argument("--selection", choices=SELECTIONS, default="lowest")
    parser.add_argument("--order", choices=ORDERS, default="cluster")
    parser.add_argument("--merge", choices=("hub", "drop"), default="hub")
    parser.add_argument("--edge-weights", choices=("none", "count", "sum"), default="none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--protect", help="true-or-false node column: nodes that are never removed")
    parser.add_argument(
        "--driver-rows", type=int, default=DRIVER_ROWS, help="state size from which the driver finishes"
    )
    parser.add_argument(
        "--checkpoints", help="shared folder that intermediate tables are stored in; survives executors"
    )
    parser.add_argument("--master", help="for example local[2]; spark-submit sets it otherwise")
    return parser.parse_args(arguments)


def parse_budget(text: str) -> int | float:
    """Return a number of nodes (``"500"``) or, with a decimal point, a share (``"0.3"``)."""
    return float(text) if "." in text else int(text)


def run(options: argparse.Namespace) -> SparkCollapseResult:
    """Collapse the tables and write the result."""
    spark = open_session(options.master)
    if options.checkpoints is not None:
        spark.sparkContext.setCheckpointDir(options.checkpoints)
    config = CollapseConfig(options.node_budget, **{name: getattr(options, name) for name in _CONFIG_OPTIONS})
    result = collapse(
        options.nodes, options.edges, config, protect=options.protect, spark=spark, driver_rows=options.driver_rows
    )
    result.save(options.output)
    return result


def main() -> None:
    """Run the job of the command line and print its report."""
    report = run(parse_arguments()).report
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
