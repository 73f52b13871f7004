"""Cost of choosing a correction (correct and smooth) over graph size: seconds and peak resident memory.

    python benchmarks/correction.py --edges 1e6 1e7 --labels 16 --records correction.jsonl

Seeded power-law graphs (N = E / 10) with random labels and a random model; a fifth of the nodes validates and a half
of the training nodes was removed. One process after a warm-up; run each size in one of its own to compare peaks.
"""

import argparse
import resource
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from falcon_gnn.datasets.synthetic import power_law_graph
from falcon_gnn.provenance import describe_machine
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.correction import choose_correction
from falcon_gnn.training.models import build_model
from falcon_gnn.training.weights import ModelSpec
from records import append_records


def measure(num_edges: int, num_labels: int) -> dict[str, float]:
    """Return the seconds of one choice among all corrections, prediction included, and the process's peak in GiB."""
    rng = np.random.default_rng(0)
    drawn = power_law_graph(num_edges // 10, num_edges)
    num_nodes = drawn.num_nodes
    part = rng.integers(0, 5, num_nodes)
    graph = drawn.replace(
        x=rng.normal(size=(num_nodes, 16)).astype(np.float32), y=rng.integers(0, num_labels, num_nodes),
        train_mask=part < 3, val_mask=part == 3, test_mask=part == 4,
    )  # fmt: skip
    config = ModelConfig("sign", hidden_channels=64, num_layers=2, num_hops=1)
    spec = ModelSpec(config, 16, num_labels, "classes")
    model = build_model(config, 16, num_labels)
    started = perf_counter()
    choose_correction(model, spec, graph, unseen=np.flatnonzero(part < 3)[::2])
    seconds = perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"edges": graph.num_edges, "nodes": num_nodes, "labels": num_labels, "seconds": seconds, "peak_gib": peak}


def main() -> None:
    """Measure every size and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", nargs="+", type=float, default=[1e6])
    parser.add_argument("--labels", type=int, default=16)
    parser.add_argument("--records", type=Path, help="append one JSON line per size to this file")
    options = parser.parse_args()
    print(describe_machine(), f"{torch.get_num_threads()} threads")
    measure(10_000, options.labels)
    for num_edges in options.edges:
        row = measure(int(num_edges), options.labels)
        append_records(options.records, [{**row, "threads": torch.get_num_threads()}])
        print({name: round(value, 2) for name, value in row.items()})


if __name__ == "__main__":
    main()
