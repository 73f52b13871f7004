"""A collapse as a job for ``spark-submit``, or for ``python -m falcon_gnn.spark.job``.

It reads ``nodes`` and ``edges`` as Parquet, collapses, and writes the reduced tables, the assignment and the report.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from falcon_gnn.errors import OptionError
from falcon_gnn.reduction.config import CollapseConfig, with_options
from falcon_gnn.spark.contraction import DRIVER_ROWS
from falcon_gnn.spark.engine import SparkCollapseResult, check_folder, collapse
from falcon_gnn.spark.frames import open_session, whole_path


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", required=True, help="Parquet with node_id and perhaps x, y, train_mask ...")
    parser.add_argument("--edges", required=True, help="Parquet with source, target and perhaps weight")
    parser.add_argument("--output", required=True, help="folder that gets the reduced tables; existing ones go")
    parser.add_argument(
        "--config",
        required=True,
        help='fields of CollapseConfig as JSON, \'{"node_budget": 0.3, "centrality": "degree"}\', or a JSON file',
    )
    parser.add_argument("--protect", help="true-or-false node column: nodes that are never removed")
    parser.add_argument(
        "--driver-rows", type=int, default=DRIVER_ROWS, help="state size from which the driver finishes"
    )
    parser.add_argument(
        "--checkpoints", help="shared folder that intermediate tables are stored in; survives executors"
    )
    parser.add_argument("--master", help="for example local[2]; spark-submit sets it otherwise")
    return parser.parse_args(arguments)


def read_config(text: str) -> CollapseConfig:
    """Return the options of a collapse from JSON, given as it is or as a file.

    Raises:
        OptionError: If it is no JSON object, or holds what is no option.
        BudgetError: If there is no node budget.
    """
    try:
        options = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"--config must be a JSON object or a file that holds one, got {text!r}: {error}"
        raise OptionError(msg) from error
    return with_options(CollapseConfig, None, options, "CollapseConfig")


def run(options: argparse.Namespace) -> SparkCollapseResult:
    """Collapse the tables and write the result."""
    config = read_config(options.config)
    spark = open_session(options.master)
    if options.checkpoints is not None:
        spark.sparkContext.setCheckpointDir(options.checkpoints)
    check_folder(spark, options.output, [whole_path(spark, path) for path in (options.nodes, options.edges)])
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
