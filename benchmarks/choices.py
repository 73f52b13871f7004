"""What memory buys for each model on PPI: blocks, bits or fewer nodes; what a step needs, how long it takes, what fits.

    python benchmarks/choices.py [--records FILE.jsonl]

Three layers of 1,024 hidden values, batch norm, 10 batches where a model has batches, ``concat_self`` for the models
that read a graph. Every way takes its first batch's step: the peak is of live tensors, the steps of a model are taken
in turn, and times are medians in those of its unsplit step on all nodes at full precision. A collapse keeps the number
of batches, so that its step stands for its epoch.

For the full-batch GCN it also predicts how many nodes of a graph like PPI (as many edges, features and labels per node)
fit: on a card of 4 GB, of which 3 GiB are for tensors once the driver's context and the allocator's gaps are taken off,
and in 2 GB of memory, of which 1.2 GiB are left beside a process with torch and the graph.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.training_graph import reduce_training_graph
from falcon_gnn.planning.estimate import estimate_memory
from falcon_gnn.training.config import ModelConfig, ModelName, TrainConfig
from falcon_gnn.training.shapes import GraphShape, shape_of_graph
from falcon_gnn.training.sources import make_source
from pieces import CPU, MIB, Step, data_graph, measure_in_turn
from records import append_records

CARD_BYTES, MEMORY_BYTES = 3 * 2**30, int(1.2 * 2**30)
SHARES = (0.3, 0.1)
ROUNDS = 2


@dataclass(frozen=True)
class Way:
    """A way of training a model on PPI.

    Attributes:
        name: What is given up.
        config: The training.
        share: Training nodes that are kept.
    """

    name: str
    config: TrainConfig
    share: float = 1.0


def ways_of(model: ModelName) -> Iterator[Way]:
    """Yield what is compared for a model; the first is the unsplit step of all nodes at full precision."""
    reads_graph = model in ("gcn", "cluster-gcn", "gas")
    spec = ModelConfig(model, 1_024, 3, 0.2, batch_norm=True, concat_self=reads_graph)
    whole = TrainConfig(spec, num_batches=1 if model == "gcn" else 10)
    yield Way("all", whole)
    if reads_graph:
        coded = replace(whole, model=replace(spec, bits=2))
        yield Way("16 blocks", replace(whole, column_blocks=16))
        yield Way("2 bits", coded)
        yield Way("2 bits, 16 blocks", replace(coded, column_blocks=16))
    else:
        yield Way("9 pieces", replace(whole, micro_batches=9))
        yield Way("9 pieces, none kept", replace(whole, micro_batches=9, keep_matrix=False))
        yield Way("2 bits", replace(whole, model=replace(spec, model="qsign", bits=2)))
    for share in SHARES:
        yield Way(f"{share:.0%} of the nodes", whole, share)


def kept_graphs(graph: Graph) -> dict[float, Graph]:
    """Return what is trained on for each share of nodes, by the recommended collapse, contracted."""
    training = TrainConfig(ModelConfig("gcn", concat_self=True))
    whole = reduce_training_graph(graph, RunConfig(training)).graph
    reduced = {s: reduce_training_graph(graph, RunConfig.recommended(training, s)).graph for s in SHARES}
    return {1.0: whole} | reduced


def largest_multiple(shape: GraphShape, way: Way, budget: int, device: str) -> float:
    """Return how many times the graph could be as large for its step to fit a budget, by prediction."""
    config = replace(way.config, device=device)

    def peak(multiple: float) -> int:
        nodes, edges = round(shape.num_nodes * multiple), round(shape.num_edges * multiple)
        larger = replace(shape, num_nodes=nodes, num_edges=edges, num_targets=nodes)
        return estimate_memory(larger.with_nodes(round(nodes * way.share)), config).total

    low, high = 0.5, 1.0
    while abs(high - low) > 0.005 * high:
        # The peak is linear in the size but for what does not depend on it.
        slope = (peak(high) - peak(low)) / (high - low)
        low, high = high, max(0.01, high + (budget - peak(high)) / slope)
    return high


def measure(model: ModelName, graphs: dict[float, Graph]) -> list[dict[str, Any]]:
    """Return a record per way of a model."""
    ways = list(ways_of(model))
    shape = shape_of_graph(graphs[1.0], ways[0].config)
    steps = [
        Step(way.config, shape, next(iter(make_source(graphs[way.share], way.config, shape.task, CPU).draw(1))))
        for way in ways
    ]
    measured = measure_in_turn(steps, ROUNDS)
    records = []
    for way, (peak, seconds) in zip(ways, measured, strict=True):
        record: dict[str, Any] = {
            "table": "choices", "model": model, "way": way.name, "nodes": graphs[way.share].num_nodes,
            "peak_mib": round(peak / MIB, 1), "seconds": round(seconds, 3),
            "times": round(seconds / measured[0][1], 2),
        }  # fmt: skip
        if model == "gcn":
            for name, budget, device in (("card", CARD_BYTES, "cuda"), ("memory", MEMORY_BYTES, "cpu")):
                record[f"nodes_{name}"] = round(shape.num_nodes * largest_multiple(shape, way, budget, device), -3)
        records.append(record)
        print(record, flush=True)
    return records


def main() -> None:
    """Measure every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gcn", "cluster-gcn", "gas", "sign"])
    parser.add_argument("--records", type=Path, help="append one JSON line per way to this file")
    options = parser.parse_args()
    graph = data_graph()
    if graph is None:
        parser.error(f"PPI is not at hand: set FALCON_DATA ({os.environ.get('FALCON_DATA')}) to the folder of ppi.npz")
    graphs = kept_graphs(graph)
    for model in options.models:
        append_records(options.records, measure(model, graphs))


if __name__ == "__main__":
    main()
