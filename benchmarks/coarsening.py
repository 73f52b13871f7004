"""The coarsening baseline beside FALCON: seconds, memory, spectral error and label distribution error.

    python benchmarks/coarsening.py --folder ../shared/datasets --records coarsening.jsonl

Each data set is reduced to the paper's node budget by every method in one process of its own, kernels compiled before
the clock starts. Memory is the peak resident size above what was resident before, the graph included. The spectral
error is Loukas' ε, and its mean over components weighted by nodes, on the first ten eigenvectors of each component.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Literal

from falcon_gnn.graph import Graph
from falcon_gnn.reduction.result import CollapseResult
from records import append_records

CASES: dict[str, tuple[int, Literal["full"] | None]] = {
    "cora": (500, "full"),
    "pubmed": (5_000, "full"),
    "ppi": (15_000, None),
    "organamnist_25k": (8_000, None),
}
MIB = 2**20


def reductions() -> dict[str, Callable[[Graph, int], CollapseResult]]:
    """Return the methods by name; each takes a graph and a node budget."""
    import falcon_gnn as fg
    from falcon_gnn.reduction.coarsening.door import coarsen

    return {
        "variation neighborhoods": lambda graph, budget: coarsen(graph, node_budget=budget),
        "heavy edge": lambda graph, budget: coarsen(graph, node_budget=budget, method="heavy_edge"),
        "FALCON EC": lambda graph, budget: fg.collapse(graph, node_budget=budget),
        "FALCON PR": lambda graph, budget: fg.collapse(graph, node_budget=budget, centrality="pagerank"),
    }


def memory_bytes(field: str) -> int:
    """Return ``VmRSS`` (resident now) or ``VmHWM`` (its peak since the last reset) of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    message = f"/proc/self/status has no {field}; this benchmark needs Linux."
    raise OSError(message)


def measure(graph: Graph, budget: int, reduce: Callable[[Graph, int], CollapseResult]) -> dict[str, Any]:
    """Return what one reduction costs and loses."""
    from falcon_gnn.reduction.coarsening.spectrum import restricted_spectral_error

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, start, cpu_start = memory_bytes("VmRSS"), perf_counter(), process_time()
    result = reduce(graph, budget)
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    peak = memory_bytes("VmHWM") - before
    error = restricted_spectral_error(graph, result.assignment)
    labels = result.report.labels
    assert labels is not None
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": peak,
        "num_nodes_before": result.report.before.num_nodes,
        "num_nodes": result.graph.num_nodes,
        "num_edges": result.graph.num_edges,
        "num_dropped": result.report.num_dropped,
        "epsilon": error.epsilon,
        "mean_error": error.mean,
        "label_error": labels.label_distribution_error,
        "label_error_relative": labels.label_distribution_error_relative,
        "load_average": os.getloadavg()[0],
    }


def measure_dataset(path: Path) -> list[dict[str, Any]]:
    """Return one record per method; run in a process of its own."""
    import falcon_gnn as fg
    from falcon_gnn.errors import FalconWarning

    budget, split = CASES[path.stem]
    graph = fg.load_graph(path, split=split)
    digits = fg.load_graph("digits")
    records = []
    for name, reduce in reductions().items():
        reduce(digits, 700)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FalconWarning)
            records.append({"dataset": path.stem, "method": name, **measure(graph, budget, reduce)})
    return records


def markdown_table(records: Sequence[dict[str, Any]]) -> str:
    """Return one row per data set and method."""
    titles = (
        "data set", "method", "nodes", "kept", "edges kept", "seconds", "CPU s", "peak MiB", "ε", "mean error",
        "label error %", "relative %",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for record in records:
        cells = [
            record["dataset"],
            record["method"],
            f"{record['num_nodes_before']:,}",
            f"{record['num_nodes']:,}",
            f"{record['num_edges']:,}",
            f"{record['seconds']:.1f}",
            f"{record['cpu_seconds']:.1f}",
            f"{record['peak_bytes'] / MIB:.0f}",
            f"{record['epsilon']:.2f}",
            f"{record['mean_error']:.2f}",
            f"{100 * record['label_error']:.2f}",
            f"{100 * record['label_error_relative']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def run_dataset(path: Path) -> list[dict[str, Any]]:
    """Return the records of one data set, made by a fresh process."""
    command = [sys.executable, __file__, "--case", str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    records: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return records


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("../shared/datasets"), help="where the .npz files are")
    parser.add_argument("--datasets", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--records", type=Path, help="append one JSON line per data set and method to this file")
    parser.add_argument("--case", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure one data set or all of them."""
    options = parse_arguments()
    if options.case is not None:
        print(json.dumps(measure_dataset(options.case)))
        return
    records = []
    for name in options.datasets:
        records += run_dataset(options.folder / f"{name}.npz")
        print(f"{name} measured", file=sys.stderr)
    append_records(options.records, records)
    print(markdown_table(records))


if __name__ == "__main__":
    main()
