"""Predicted peaks against the resident peak of a fresh process, and beside the paper's resource table.

    python benchmarks/memory.py [--only resident|paper] [--out FILE]

resident: for each combination of model, bits, hidden size and graph, a training step is predicted under fake tensors,
and taken in a fresh process whose resident peak above its own baseline is read. paper: the shapes of the paper's table.
"""

import argparse
import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from falcon_gnn.benchmark.paper import PaperPlace, paper_figures
from falcon_gnn.datasets.synthetic import SyntheticShape, synthetic_graph
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline import describe_machine, describe_versions
from falcon_gnn.planning import estimate_memory
from falcon_gnn.training.configs import ModelConfig, TrainConfig
from falcon_gnn.training.memory import resident_peak
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import GraphShape, shape_of_graph
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import largest_batch, make_optimizer, training_step

NUM_LABELS = 10


@dataclass(frozen=True)
class Case:
    """One combination."""

    model: str
    bits: int | None
    hidden: int
    num_nodes: int
    num_features: int

    def config(self) -> TrainConfig:
        model = ModelConfig(self.model, hidden_channels=self.hidden, num_layers=3, batch_norm=True, bits=self.bits)  # type: ignore[arg-type]
        return TrainConfig(model, num_batches=1 if self.model in ("gcn", "sign", "qsign") else 4, device="cpu")

    def graph(self) -> Graph:
        shape = SyntheticShape(
            self.num_nodes, 8 * self.num_nodes, num_features=self.num_features, num_classes=NUM_LABELS
        )
        return synthetic_graph(shape)


CASES = [
    Case(model, bits, hidden, num_nodes, num_features)
    for hidden, num_nodes, num_features in ((512, 20_000, 64), (1_024, 20_000, 200))
    for model, bits in (
        ("gcn", None), ("gcn", 2), ("gcn", 8), ("sign", None), ("qsign", 2), ("qsign", 4), ("qsign", 8),
        ("cluster-gcn", None), ("cluster-gcn", 2), ("gas", None), ("gas", 2),
    )
]  # fmt: skip


def take_steps(case: Case, batch_file: str) -> None:
    """Load a prepared batch and take two training steps on it."""
    batch = torch.load(batch_file, weights_only=False)
    config = case.config()
    model = build_model(config.model, case.num_features, NUM_LABELS).train()
    optimizer = make_optimizer(model, config)
    for _ in range(2):
        training_step(model, optimizer, batch, "float32")


def warm_up(case: Case, batch_file: str) -> None:
    """Take the steps on a small batch, so that libraries are loaded and threads started before the baseline is read."""
    take_steps(case, batch_file)


def write_batch(case: Case, path: Path) -> GraphShape:
    """Write the largest batch of a case to a file and return the shape of its graph."""
    graph, config = case.graph(), case.config()
    torch.save(largest_batch(make_source(graph, config, "classes", torch.device("cpu"))), path)
    return shape_of_graph(graph, config)


def compare(case: Case, folder: Path) -> dict[str, object]:
    """Return the predicted and the resident peak of a case."""
    small = replace(case, num_nodes=200)
    write_batch(small, folder / "small.pt")
    shape = write_batch(case, folder / "batch.pt")
    predicted = estimate_memory(shape, case.config()).total
    measured = resident_peak(
        partial(take_steps, case, str(folder / "batch.pt")), warm_up=partial(warm_up, small, str(folder / "small.pt"))
    )
    return {
        "model": case.model,
        "bits": case.bits,
        "hidden": case.hidden,
        "nodes": case.num_nodes,
        "features": case.num_features,
        "predicted_mib": round(predicted / 2**20, 1),
        "resident_mib": round(measured / 2**20, 1),
        "resident_over_predicted": round(measured / predicted, 3),
    }


def paper_shapes() -> dict[str, tuple[GraphShape, ModelConfig, dict[str, int], int]]:
    """Return, per data set of the paper, its training graph, model, batches and collapsed size."""
    hidden = {"PPI": 1_024, "Organ-S": 2_048, "Organ-C": 2_048, "Flickr": 2_048}
    edges = {"PPI": 613_184, "Organ-S": 319_000, "Organ-C": 310_000, "Flickr": 109_000}
    sizes = {
        "PPI": (44_906, 50, 121, "multilabel", 2, 10, 15_000, True, 0.2),
        "Organ-S": (13_940, 784, 11, "classes", 1, 3, 8_000, False, 0.5),
        "Organ-C": (13_000, 784, 11, "classes", 1, 3, 8_000, False, 0.5),
        "Flickr": (44_625, 500, 7, "classes", 5, 5, 15_000, False, 0.5),
    }
    shapes = {}
    for name, (nodes, features, labels, task, hops, batches, kept, concat, dropout) in sizes.items():
        shape = GraphShape(nodes, edges[name], features, labels, task, nodes)  # type: ignore[arg-type]
        model = ModelConfig(
            hidden_channels=hidden[name], num_layers=3, dropout=dropout, batch_norm=True, num_hops=hops,
            concat_self=concat,
        )  # fmt: skip
        shapes[name] = (shape, model, {"batches": batches}, kept)
    return shapes


def predict_paper_table() -> list[dict[str, object]]:
    """Return the predicted peak beside the paper's GPU memory for the models whose batch follows from the table."""
    figures = paper_figures()
    rows: list[dict[str, object]] = []
    for dataset, (shape, model, options, kept) in paper_shapes().items():
        for name in ("gcn", "sign", "qsign"):
            for size in (shape.num_nodes, kept):
                config = TrainConfig(
                    replace(model, model=name, bits=None, concat_self=model.concat_self and name == "gcn"),
                    num_batches=1 if name == "gcn" else options["batches"],
                )
                predicted = estimate_memory(shape.with_nodes(size), config).total / 2**20
                place = PaperPlace(
                    "main_resource", dataset, name.upper(), "none" if size == shape.num_nodes else "falcon",
                    "" if size == shape.num_nodes else "EC", "gpu_memory",
                )  # fmt: skip
                paper = figures.get(place)
                rows.append(
                    {
                        "data set": dataset,
                        "model": name.upper(),
                        "nodes": size,
                        "predicted MiB": round(predicted, 1),
                        "paper MB": paper.text if paper else "",
                    }
                )
    return rows


def to_markdown(rows: list[dict[str, object]]) -> str:
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join("" if row[c] is None else str(row[c]) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("resident", "paper"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found: dict[str, object] = {"machine": describe_machine(), "versions": describe_versions()}
    if arguments.only != "resident":
        found["paper"] = predict_paper_table()
        print(to_markdown(found["paper"]), "\n", flush=True)  # type: ignore[arg-type]
    if arguments.only != "paper":
        with TemporaryDirectory() as folder:
            rows = []
            for case in CASES:
                rows.append(compare(case, Path(folder)))
                print(rows[-1], flush=True)
        found["resident"] = rows
        print(to_markdown(rows))
    print(json.dumps({"machine": found["machine"], "versions": found["versions"]}))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
