"""Cost of a collapse over graph size: seconds per stage, edges per second, peak resident memory, bytes per edge.

    python benchmarks/scale.py --edges 1e6 1e7 1e8 --centralities DC PR EC --records scale.jsonl --plot scale.png

Seeded power-law graphs (N = E / 10, 16 float32 features, 10 classes) are written as folders of ``.npy`` files, then
each case is loaded, collapsed to 30 % and saved by a fresh process (``alike`` among the centralities: groups of alike
nodes, which need none). Kernels are compiled before the clock starts.

    python benchmarks/scale.py --edges 1e8 --centralities PR --against ../earlier --rounds 2 --records scale.jsonl

runs the same cases from another checkout in turn with this one. ``--rates`` first measures what the memory of the
machine allows: reads at random from vectors of several sizes, and a stream.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from records import append_records

GIB = 2**30
EDGES_PER_NODE = 10
ALIKE = "alike"
SAMPLING_SECONDS = 0.05
ROOT = Path(__file__).resolve().parents[1]
RATE_BYTES = (1 << 20, 1 << 22, 1 << 23, 1 << 24, 40_000_000, 80_000_000)
STAGES = (
    "load", "centrality", "hop features", "clustering", "selection", "grouping", "contraction", "attributes", "report",
    "save",
)  # fmt: skip


class StageMeter:
    """Wall-clock seconds, CPU seconds of all threads and peak resident memory of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}
        self._stage: str | None = None
        self._start = self._cpu_start = 0.0

    def hear(self, stage: str) -> None:
        """Begin a stage that a collapse tells of; how far it is comes behind its name."""
        if "," not in stage:
            self.begin(stage)

    def begin(self, stage: str | None) -> None:
        """End the stage that runs, if any, and begin another; None ends the last one."""
        now, cpu_now = perf_counter(), process_time()
        if self._stage is not None:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._start
            self.cpu_seconds[self._stage] = self.cpu_seconds.get(self._stage, 0.0) + cpu_now - self._cpu_start
            self.peak_bytes[self._stage] = max(self.peak_bytes.get(self._stage, 0), peak_resident_bytes())
            reset_peak()
        self._stage, self._start, self._cpu_start = stage, perf_counter(), process_time()


def peak_resident_bytes() -> int:
    """Return the peak resident size of this process (VmHWM), file pages included, since it was last reset."""
    return memory_of("self", "VmHWM")


def memory_of(process: int | str, field: str) -> int:
    """Return the bytes that the system states for a process: VmHWM, or RssAnon for what no file backs."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    message = f"/proc/{process}/status has no {field}; this benchmark needs Linux."
    raise OSError(message)


def reset_peak() -> None:
    """Let VmHWM start again from the present resident size."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def measure_case(folder: Path, num_drawn: int, centrality: str) -> dict[str, Any]:
    """Return the record of one collapse; run in a process of its own."""
    import falcon_gnn as fg
    from falcon_gnn.datasets.folders import write_folder
    from falcon_gnn.datasets.synthetic import power_law_graph

    config = fg.CollapseConfig(node_budget=0.3, num_clusters=10, scope="full")
    config = replace(config, groups="alike") if centrality == ALIKE else replace(config, centrality=centrality)
    fg.collapse(power_law_graph(1_000, 5_000), config)
    meter = StageMeter()
    start, cpu_start = perf_counter(), process_time()
    meter.begin("load")
    graph = fg.load_graph(folder)
    result = fg.collapse(graph, config, on_stage=meter.hear)
    meter.begin("save")
    with tempfile.TemporaryDirectory(dir=folder.parent) as output:
        write_folder(result.graph, Path(output) / "reduced")
    meter.begin(None)
    seconds = perf_counter() - start
    peak = max(meter.peak_bytes.values())
    return {
        "centrality": centrality,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_edges_drawn": num_drawn,
        "num_kept": result.graph.num_nodes,
        "num_edges_kept": result.graph.num_edges,
        "seconds": seconds,
        "cpu_seconds": process_time() - cpu_start,
        "edges_per_second": graph.num_edges / seconds,
        "peak_bytes": peak,
        "bytes_per_edge": peak / graph.num_edges,
        "stage_seconds": meter.seconds,
        "stage_cpu_seconds": meter.cpu_seconds,
        "stage_peak_bytes": meter.peak_bytes,
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
    }


def run_case(folder: Path, num_edges: int, centrality: str, checkout: Path = ROOT) -> dict[str, Any]:
    """Return the record of one collapse, made by a fresh process from a checkout of this project.

    That process is looked at from here: compiled loops let no thread of its own run beside them.
    """
    command = [sys.executable, "benchmarks/scale.py", "--case", str(folder.resolve()), str(num_edges), centrality]
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
    anonymous_bytes = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=checkout, env=environment) as case:
        while case.poll() is None:
            # A process that is about to end has no such line any more.
            with suppress(OSError):
                anonymous_bytes = max(anonymous_bytes, memory_of(case.pid, "RssAnon"))
            sleep(SAMPLING_SECONDS)
        assert case.stdout is not None
        lines = case.stdout.read().splitlines()
    if case.returncode:
        raise subprocess.CalledProcessError(case.returncode, command)
    record: dict[str, Any] = json.loads(lines[-1])
    return {"commit": commit_of(checkout), **record, "peak_anonymous_bytes": anonymous_bytes}


def commit_of(checkout: Path) -> str:
    """Return the commit that is checked out."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=checkout).stdout.strip()


def measure_rates() -> dict[str, Any]:
    """Return nanoseconds per read at random from float64 vectors of several sizes, and bytes read in order a second.

    All threads read at once; times are wall-clock seconds over all reads, the best of three.
    """
    from falcon_gnn._kernels.neighbor_sums import add_neighbors

    num_rows, width = 1_000_000, 40
    indptr = np.arange(0, num_rows * width + 1, width)
    draws, totals = np.random.default_rng(0).random(num_rows * width), np.zeros(num_rows)
    nanoseconds = {}
    for num_bytes in RATE_BYTES:
        values = np.ones(num_bytes // 8)
        indices = (draws * len(values)).astype(np.int32)
        nanoseconds[str(num_bytes)] = 1e9 * _best_of_three(add_neighbors, indptr, indices, values, totals) / len(draws)
    # Rows that read one value again and again cost what their ids cost.
    stream = _best_of_three(add_neighbors, indptr, np.zeros(num_rows * width, np.int32), np.ones(1), totals)
    return {
        "measure": "rates",
        "random_read_nanoseconds": nanoseconds,
        "stream_bytes_per_second": 4 * len(draws) / stream,
        "cores": len(os.sched_getaffinity(0)),
    }


def _best_of_three(function: Callable[..., Any], *arguments: Any) -> float:
    function(*arguments)
    seconds = []
    for _ in range(3):
        start = perf_counter()
        function(*arguments)
        seconds.append(perf_counter() - start)
    return min(seconds)


def make_graph(num_edges: int, folder: Path) -> None:
    """Write the power-law graph of ``num_edges`` drawn edges unless it is there."""
    from falcon_gnn.datasets.synthetic import SyntheticShape, write_synthetic_folder

    if not folder.exists():
        write_synthetic_folder(SyntheticShape(num_edges // EDGES_PER_NODE, num_edges), folder)


def fit_exponent(records: Sequence[dict[str, Any]], measure: str) -> float:
    """Return b of measure ~ E^b by least squares on logarithms."""
    sizes = np.log([record["num_edges"] for record in records])
    costs = np.log([record[measure] for record in records])
    return float(np.polyfit(sizes, costs, 1)[0])


def markdown_table(records: Sequence[dict[str, Any]]) -> str:
    """Return one row per case: totals, then seconds per stage."""
    titles = [
        "edges",
        "commit",
        "centrality",
        "seconds",
        "CPU s",
        "million edges/s",
        "peak GiB",
        "without files GiB",
        "bytes/edge",
        *STAGES,
    ]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for record in records:
        stages = [f"{record['stage_seconds'].get(stage, 0.0):.1f}" for stage in STAGES]
        cells = [
            f"{record['num_edges']:,}",
            record["commit"],
            record["centrality"],
            f"{record['seconds']:.1f}",
            f"{record['cpu_seconds']:.1f}",
            f"{record['edges_per_second'] / 1e6:.2f}",
            f"{record['peak_bytes'] / GIB:.2f}",
            f"{record['peak_anonymous_bytes'] / GIB:.2f}",
            f"{record['bytes_per_edge']:.0f}",
            *stages,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot_costs(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw seconds and peak memory over edges, both axes logarithmic, one line per centrality."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    panels = zip(axes, (("seconds", 1.0, "seconds"), ("peak_bytes", GIB, "peak resident GiB")), strict=True)
    for axis, (measure, unit, title) in panels:
        for centrality in dict.fromkeys(record["centrality"] for record in records):
            chosen = [record for record in records if record["centrality"] == centrality]
            sizes = [record["num_edges"] for record in chosen]
            axis.loglog(sizes, [record[measure] / unit for record in chosen], marker="o", label=centrality)
        axis.set(xlabel="undirected edges", ylabel=title)
        axis.grid(visible=True, alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=120)


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, nargs="+", default=[1e6, 1e7], help="undirected edges of each graph")
    parser.add_argument("--centralities", nargs="+", default=["DC", "PR", "EC"])
    parser.add_argument("--folder", type=Path, help="where the graphs are kept; default: a temporary folder")
    parser.add_argument("--records", type=Path, help="append one JSON line per case to this file")
    parser.add_argument("--plot", type=Path, help="draw cost over size into this PNG file")
    parser.add_argument("--against", type=Path, help="another checkout, whose cases are run in turn with this one's")
    parser.add_argument("--rounds", type=int, default=1, help="how often each case is run")
    parser.add_argument("--rates", action="store_true", help="measure random and ordered reads first")
    parser.add_argument("--case", nargs=3, metavar=("FOLDER", "EDGES", "CENTRALITY"), help=argparse.SUPPRESS)
    return parser.parse_args()


def run_all(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Make each graph, run its cases and return their records."""
    records: list[dict[str, Any]] = []
    if options.rates:
        rates = measure_rates()
        print(json.dumps(rates), file=sys.stderr)
        append_records(options.records, [rates])
    for num_edges in (int(size) for size in options.edges):
        graph_folder = folder / f"power_law_{num_edges}"
        start = perf_counter()
        make_graph(num_edges, graph_folder)
        print(f"graph of {num_edges:,} edges at hand in {perf_counter() - start:.1f} s", file=sys.stderr)
        checkouts = [ROOT] if options.against is None else [options.against, ROOT]
        turns = product(options.centralities, range(options.rounds), checkouts)
        for centrality, _, checkout in turns:
            record = run_case(graph_folder, num_edges, centrality, checkout)
            records.append(record)
            print(json.dumps(record), file=sys.stderr)
            append_records(options.records, [record])
    return records


def main() -> None:
    """Run one case or all of them."""
    options = parse_arguments()
    if options.case is not None:
        folder, num_edges, centrality = options.case
        print(json.dumps(measure_case(Path(folder), int(num_edges), centrality)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        records = run_all(options, options.folder or Path(temporary))
    print(markdown_table(records))
    for centrality in dict.fromkeys(record["centrality"] for record in records):
        own = [record for record in records if record["commit"] == commit_of(ROOT)]
        chosen = [record for record in own if record["centrality"] == centrality]
        if len({record["num_edges"] for record in chosen}) > 1:
            time, memory = fit_exponent(chosen, "seconds"), fit_exponent(chosen, "peak_bytes")
            print(f"\n{centrality}: seconds grow as E^{time:.2f}, peak memory as E^{memory:.2f}")
    if options.plot is not None:
        plot_costs(records, options.plot)


if __name__ == "__main__":
    main()
