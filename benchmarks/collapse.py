"""The collapse beside a plain NetworkX and scikit-learn implementation, stage by stage; its memory and start-up time.

    python benchmarks/collapse.py --centralities DC PR EC BC CC --repeat 5 --records collapse.jsonl

Both run in one process on the training graph of PPI (44,906 nodes, 613,184 edges, to 15,000, 100 clusters), ours after
a warm-up that compiles the kernels. The plain one is `tests/oracles.py`: NetworkX's centralities and contraction,
scikit-learn's scaler and K-means with its defaults. It contracts in the order that ours does, and must end in the same
groups. The data set is looked for in ``FALCON_DATA``, then in ``../shared/datasets``.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from records import append_records

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

NODE_BUDGET = 15_000
NUM_CLUSTERS = 100
NUM_SAMPLES = 100
CLOSENESS_SOURCES = 500
SECTIONS = ("speed", "alike", "flickr", "memory", "start", "labels")
PLANETOID = ("cora", "citeseer", "pubmed")
STAGES = ("centrality", "clustering", "selection", "contraction")
MEMORY_CASES = (
    ("ppi", "degree"), ("ppi", "betweenness"), ("ppi", "closeness"), ("ppi", "eigenvector"),
    ("pubmed", "eigenvector"), ("pubmed", "closeness"), ("coauthor_cs", "eigenvector"), ("het_tolokers", "eigenvector"),
    ("flickr shape", "closeness"),
)  # fmt: skip

Keep = Callable[[dict[str, Any]], None]
"""Takes a row to keep as a record."""


@dataclass
class Timing:
    """Seconds per stage of one implementation, for one centrality."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns, and remember how long it took."""
        print(f"  {stage} …", end="", file=sys.stderr, flush=True)
        start = perf_counter()
        value = function(*arguments)
        self.seconds[stage] = perf_counter() - start
        print(f" {self.seconds[stage]:.3g} s", file=sys.stderr)
        return value

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())


def load(name: str) -> Any:
    """Return a data set by name; "flickr shape" is a synthetic graph of Flickr's size."""
    import falcon_gnn as fg
    from falcon_gnn.datasets.synthetic import flickr_shape, synthetic_graph

    if name == "flickr shape":
        return synthetic_graph(flickr_shape()).replace(train_mask=None, val_mask=None, test_mask=None)
    folders = [os.environ.get("FALCON_DATA"), ROOT.parent / "shared" / "datasets"]
    paths = [Path(folder) / f"{name}.npz" for folder in folders if folder is not None]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        sys.exit(f"{name}.npz is neither in FALCON_DATA nor in ../shared/datasets.")
    return fg.load_graph(path, split="full" if name in PLANETOID else None)


def config_for(centrality: str, num_nodes: int) -> Any:
    """Return the benchmark's options: 15,000 nodes, or a third of a graph that has fewer."""
    import falcon_gnn as fg

    budget = NODE_BUDGET if num_nodes > 2 * NODE_BUDGET else num_nodes // 3
    return fg.CollapseConfig(budget, centrality=centrality, num_clusters=NUM_CLUSTERS, num_samples=NUM_SAMPLES)


def collapse_repeatedly(graph: Any, centrality: str, repeat: int) -> tuple[Any, Timing]:
    """Return a result of ours and the median seconds per stage over ``repeat`` runs after one to warm up."""
    import falcon_gnn as fg

    config = config_for(centrality, graph.num_nodes)
    fg.collapse(graph, config)
    results = [fg.collapse(graph, config) for _ in range(repeat)]
    stages = results[0].report.seconds
    return results[0], Timing({s: statistics.median(r.report.seconds[s] for r in results) for s in stages})


def collapse_plainly(graph: Any, result: Any) -> Timing:
    """Return the seconds per stage of the plain implementation, for the same centrality, ranks and clusters.

    Closeness is measured for 500 nodes and multiplied up.
    """
    from tests import oracles

    ids = np.flatnonzero(graph.train_mask)
    part = graph.replace(val_mask=None, test_mask=None).subgraph(ids)
    pairs = part.edge_index[:, part.edge_index[0] < part.edge_index[1]].T.tolist()
    plain = oracles.networkx_graph(pairs, part.num_nodes)
    name = result.config.centrality
    rng = np.random.default_rng(0)
    num_sources = {"betweenness": NUM_SAMPLES, "closeness": CLOSENESS_SOURCES}.get(name)
    sources = None if num_sources is None else rng.choice(part.num_nodes, num_sources, replace=False).tolist()

    timing = Timing()
    timing.time("centrality", oracles.networkx_centrality, plain, name, sources)
    if name == "closeness":
        timing.seconds["centrality"] *= part.num_nodes / CLOSENESS_SOURCES
    timing.time("clustering", _cluster_plainly, part)
    rank, clusters = result.rank[ids].tolist(), result.clusters[ids].tolist()
    order = timing.time("selection", _select_plainly, rank, clusters)
    stands_for = timing.time("contraction", oracles.networkx_contract, plain, order, rank)
    kept = np.searchsorted(ids, result.kept)
    ours = result.assignment[ids]
    assert np.array_equal(np.where(ours >= 0, kept[ours], -1), stands_for), "the two implementations disagree"
    return timing


def _cluster_plainly(part: Any) -> Any:
    from tests import oracles

    return oracles.sklearn_clusters(oracles.sklearn_matrix(part.x, part.y, 0.5), NUM_CLUSTERS, 0)


def _select_plainly(rank: list[int], clusters: list[int]) -> list[int]:
    from tests import oracles

    removed, _ = oracles.choose_removed(rank, clusters, NODE_BUDGET, set(), "lowest")
    return oracles.removal_order(removed, rank, clusters, "cluster")


def speed_section(keep: Keep, centralities: Sequence[str], repeat: int) -> Iterator[str]:
    """Yield the table of both implementations' seconds per stage, and their ratios."""
    graph = load("ppi")
    yield "| centrality | stage | plain, s | falcon-gnn, s | times faster |"
    yield "|---|---|---:|---:|---:|"
    for centrality in centralities:
        print(centrality, file=sys.stderr)
        result, ours = collapse_repeatedly(graph, centrality, repeat)
        theirs = collapse_plainly(graph, result)
        name = result.config.centrality
        times = {"seconds": ours.seconds, "plain_seconds": theirs.seconds, "num_runs": repeat}
        keep({"centrality": name, **times, "is_extrapolated": name == "closeness", "networkx": version("networkx")})
        for stage in STAGES:
            yield _row(name, stage, theirs.seconds[stage], ours.seconds[stage])
        rest = sum(seconds for stage, seconds in ours.seconds.items() if stage not in STAGES)
        yield f"| {name} | scope, attributes, report | | {rest:.3g} | |"
        yield _row(name, "**whole**", theirs.total, ours.total)


def _row(name: str, stage: str, theirs: float, ours: float) -> str:
    extrapolated = " (extrapolated)" if name == "closeness" and stage in ("centrality", "**whole**") else ""
    return f"| {name} | {stage} | {theirs:.3g}{extrapolated} | {ours:.3g} | {theirs / ours:.3g} |"


def alike_section(keep: Keep, repeat: int) -> Iterator[str]:
    """Yield the seconds of groups of alike nodes on the same graph, beside Algorithm 1 by degree, in turns."""
    import falcon_gnn as fg

    graph = load("ppi")
    neighbors = config_for("degree", graph.num_nodes)
    alike = fg.CollapseConfig(NODE_BUDGET, num_clusters=NUM_CLUSTERS, groups="alike")
    runs: dict[str, list[dict[str, float]]] = {"neighbors": [], "alike": []}
    for _ in range(repeat + 1):
        for groups, config in (("neighbors", neighbors), ("alike", alike)):
            start = perf_counter()
            seconds = fg.collapse(graph, config).report.seconds
            runs[groups].append({**seconds, "whole": perf_counter() - start})
    yield "| groups | seconds | of it |"
    yield "|---|---:|---|"
    for groups, (_, *timed) in runs.items():
        medians = {stage: statistics.median(run[stage] for run in timed) for stage in timed[0]}
        keep({"groups": groups, "num_kept": NODE_BUDGET, "seconds": medians, "num_runs": repeat})
        parts = ", ".join(f"{stage} {value:.2f}" for stage, value in medians.items() if stage != "whole")
        yield f"| {groups} | {medians['whole']:.2f} | {parts} |"


def flickr_section(keep: Keep, repeat: int) -> Iterator[str]:
    """Yield the seconds of exact closeness on a synthetic graph of Flickr's shape."""
    from falcon_gnn.reduction.centrality import closeness_centrality

    graph = load("flickr shape")
    seconds = []
    for _ in range(max(1, min(repeat, 3))):
        start = perf_counter()
        closeness_centrality(graph.indptr, graph.indices)
        seconds.append(perf_counter() - start)
    keep({"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "seconds": seconds})
    yield (
        f"Exact closeness on a synthetic graph of Flickr's shape ({graph.num_nodes:,} nodes, {graph.num_edges:,} "
        f"edges): {statistics.median(seconds):.3g} s."
    )


def memory_section(keep: Keep) -> Iterator[str]:
    """Yield peak memory above the input and M, each case in a process of its own."""
    yield "| graph | centrality | directed edges | M, MB | peak above input and M, MB | bytes per edge |"
    yield "|---|---|---:|---:|---:|---:|"
    for name, centrality in MEMORY_CASES:
        command = [sys.executable, __file__, "--memory-case", name, centrality]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        case = json.loads(done.stdout.splitlines()[-1])
        keep({"graph": name, "centrality": centrality, **case})
        above = case["peak_bytes"] - case["matrix_bytes"]
        yield (
            f"| {name} | {centrality} | {case['num_directed_edges']:,} | {case['matrix_bytes'] / 1e6:.1f} | "
            f"{above / 1e6:.1f} | {above / case['num_directed_edges']:.1f} |"
        )


def measure_memory(name: str, centrality: str) -> dict[str, int]:
    """Return the peak resident bytes of a collapse above those before it, with the bytes of M."""
    import falcon_gnn as fg
    from falcon_gnn.reduction.matrix import build_matrix
    from falcon_gnn.reduction.scope import encode_scope, resolve_scope

    graph = load(name)
    config = config_for(centrality, graph.num_nodes if graph.train_mask is None else int(graph.train_mask.sum()))
    _warm_up(graph, config)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    fg.collapse(graph, config)
    peak = _resident("VmHWM") - before
    scope = resolve_scope(graph, None)
    matrix = build_matrix(graph.x, encode_scope(graph, scope, config), config.gamma, scope.ids)
    assert matrix is not None
    rows = matrix.rows(0, matrix.num_rows)
    size = rows.nbytes if isinstance(rows, np.ndarray) else rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes
    return {"peak_bytes": peak, "matrix_bytes": size, "num_directed_edges": len(scope.indices)}


def _warm_up(graph: Any, config: Any) -> None:
    """Collapse a graph of a few nodes of the same types, so that compiled code and libraries are in memory before."""
    from dataclasses import replace

    import falcon_gnn as fg

    ids = np.arange(200) if graph.train_mask is None else np.flatnonzero(graph.train_mask)[:200]
    arrays = {"x": graph.x[ids], "y": graph.y[ids]}
    if graph.train_mask is not None:
        arrays["train_mask"] = np.arange(200) < 150
    ring = np.stack([np.arange(200), np.roll(np.arange(200), 1)])
    fg.collapse(fg.Graph.from_edges(ring, 200, **arrays), replace(config, node_budget=60, num_clusters=2))


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def start_section(keep: Keep) -> Iterator[str]:
    """Yield the seconds of `import falcon_gnn` and of the command's help, the best of five fresh processes."""
    commands = {"`import falcon_gnn`": [sys.executable, "-c", "import falcon_gnn"]}
    script = shutil.which("falcon-gnn", path=str(Path(sys.executable).parent))
    if script is not None:
        commands["`falcon-gnn --help`"] = [script, "--help"]
    for name, command in commands.items():
        seconds = []
        for _ in range(5):
            start = perf_counter()
            done = subprocess.run(command, capture_output=True, check=False)
            seconds.append(perf_counter() - start)
        keep({"command": name.strip("`"), "seconds": seconds, "has_failed": done.returncode != 0})
        outcome = f"{min(seconds):.2f} s" if done.returncode == 0 else "failed"
        yield f"{name}: {outcome}, the interpreter's own start included."
        yield ""


def label_section(keep: Keep) -> Iterator[str]:
    """Yield both label errors for our K-means and for scikit-learn's own seeding on all rows, over five seeds.

    ± is the half width of the 95 % interval of the mean (Student t).
    """
    from scipy import stats
    from tests import oracles

    import falcon_gnn as fg

    graph = load("ppi")
    ids = np.flatnonzero(graph.train_mask)
    matrix = oracles.sklearn_matrix(graph.x[ids], graph.y[ids], 0.5)
    yield "| K-means | label error | relative label error |"
    yield "|---|---:|---:|"
    errors: dict[str, list[tuple[float, float]]] = {"ours": [], "scikit-learn, k-means++ on all rows": []}
    for seed in range(5):
        clusters = np.full(graph.num_nodes, -1)
        clusters[ids] = oracles.sklearn_clusters(matrix, NUM_CLUSTERS, seed)
        config = fg.CollapseConfig(NODE_BUDGET, num_clusters=NUM_CLUSTERS, seed=seed)
        for name, given in zip(errors, (None, clusters), strict=True):
            labels = fg.collapse(graph, config, clusters=given).report.to_dict()["labels"]
            pair = (labels["label_distribution_error"], labels["label_distribution_error_relative"])
            errors[name].append(pair)
            keep({"kmeans": name, "seed": seed, "label_error": pair[0], "label_error_relative": pair[1]})
    for name, values in errors.items():
        mean = 100 * np.mean(values, axis=0)
        half_width = 100 * stats.t.ppf(0.975, len(values) - 1) * stats.sem(values, axis=0)
        yield f"| {name} | {mean[0]:.3f} ± {half_width[0]:.3f} % | {mean[1]:.2f} ± {half_width[1]:.2f} % |"


def describe_machine() -> str:
    """Return the processor, the cores in use and the versions that matter."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "scikit-learn", "networkx"))
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, {packages}."


def main() -> None:
    """Run the sections asked for and print them as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--centralities", nargs="+", default=["DC", "PR", "EC", "BC", "CC"])
    parser.add_argument("--repeat", type=int, default=5, help="runs of ours, of which the median is taken")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--out", type=Path, help="also write the Markdown here")
    parser.add_argument("--records", type=Path, help="append one JSON line per row to this file")
    parser.add_argument("--memory-case", nargs=2, metavar=("GRAPH", "CENTRALITY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_case:
        print(json.dumps(measure_memory(*options.memory_case)))
        return
    sections: dict[str, Callable[[Keep], Iterator[str]]] = {
        "speed": lambda keep: speed_section(keep, options.centralities, options.repeat),
        "alike": lambda keep: alike_section(keep, options.repeat),
        "flickr": lambda keep: flickr_section(keep, options.repeat),
        "memory": memory_section,
        "start": start_section,
        "labels": label_section,
    }
    lines = [describe_machine()]
    for name in options.sections:
        rows: list[dict[str, Any]] = []
        lines += ["", *sections[name](rows.append)]
        append_records(options.records, [{"section": name, **row} for row in rows])
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
