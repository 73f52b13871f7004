"""Predicted peaks against the resident peak of a fresh process, and beside the paper's resource table.

    python benchmarks/memory.py [--only resident|pieces|paper] [--records FILE.jsonl]

resident: for each combination of model, bits, hidden size and graph, a training step is predicted under fake tensors,
and taken in a fresh process whose resident peak above its own baseline is read. pieces: the same for steps in
micro-batches and by blocks of columns. paper: the shapes of the paper's table;
the batches of Cluster-GCN and GAS are those of METIS on PPI, on the axial view of the Organ volumes and on a drawn
graph of Flickr's size. Data sets come from FALCON_DATA, else ../shared/datasets; those that are absent are left out.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from falcon_gnn.benchmark.paper import PAPER_MODELS, PaperPlace, paper_figures
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.synthetic import SyntheticShape, synthetic_graph
from falcon_gnn.graph import Graph
from falcon_gnn.labels import Task
from falcon_gnn.planning.estimate import estimate_memory
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.scope import part_in_scope
from falcon_gnn.training.config import ModelConfig, ModelName, TrainConfig
from falcon_gnn.training.memory import resident_peak
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import GraphShape, PartShape, largest_batch, predict_step, shape_of_graph
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import make_optimizer, pieces_of, training_step
from records import append_records, to_markdown

SMALL_NODES = 200
ALL_MODELS: tuple[tuple[ModelName, int | None], ...] = (
    ("gcn", None), ("gcn", 2), ("gcn", 8), ("sign", None), ("qsign", 2), ("qsign", 4), ("qsign", 8),
    ("cluster-gcn", None), ("cluster-gcn", 2), ("gas", None), ("gas", 2),
)  # fmt: skip
FEW_MODELS: tuple[tuple[ModelName, int | None], ...] = (
    ("gcn", None), ("gcn", 2), ("sign", None), ("qsign", 2), ("cluster-gcn", None), ("gas", None),
)  # fmt: skip
KEPT = {"cora": 500, "pubmed": 5_000, "ppi": 15_000}


@dataclass(frozen=True)
class Case:
    """One combination; ``graph`` is a drawn graph's number of features or a data set's name."""

    model: ModelName
    bits: int | None
    hidden: int
    graph: int | str
    num_batches: int = 4
    is_collapsed: bool = False
    pieces: int = 1

    def config(self) -> TrainConfig:
        model = ModelConfig(self.model, hidden_channels=self.hidden, num_layers=3, batch_norm=True, bits=self.bits)
        is_whole = self.model == "gcn" or (model.uses_hop_features and isinstance(self.graph, int))
        training = TrainConfig(model, num_batches=1 if is_whole else self.num_batches, device="cpu")
        if model.uses_hop_features:
            return replace(training, micro_batches=self.pieces)
        return replace(training, column_blocks=self.pieces)

    def training_graph(self) -> Graph | None:
        if isinstance(self.graph, int):
            return synthetic_graph(SyntheticShape(20_000, 160_000, num_features=self.graph, num_classes=10))
        return real_graph(self.graph, KEPT[self.graph] if self.is_collapsed else None)


CASES = [
    *(
        Case(model, bits, hidden, num_features)
        for hidden, num_features in ((512, 64), (1_024, 200))
        for model, bits in ALL_MODELS
    ),
    *(
        Case(model, bits, hidden, name, num_batches, is_collapsed)
        for name, hidden, num_batches in (("cora", 1_536, 5), ("pubmed", 1_536, 10), ("ppi", 1_024, 10))
        for is_collapsed in (False, True)
        for model, bits in FEW_MODELS
    ),
]
PIECE_CASES = [
    Case(model, bits, 1_024, graph, num_batches, pieces=8)
    for graph, num_batches in ((200, 4), ("ppi", 10))
    for model, bits in (*FEW_MODELS, ("cluster-gcn", 2), ("gas", 2))
]


def data_folder() -> Path:
    """Return where the data sets are looked for."""
    return Path(os.environ.get("FALCON_DATA", Path(__file__).resolve().parents[2] / "shared" / "datasets"))


@cache
def real_graph(name: str, num_kept: int | None = None) -> Graph | None:
    """Return a data set's training graph, whole or collapsed by eigenvector centrality; None where it is absent."""
    path = data_folder() / f"{name}.npz"
    if not path.is_file():
        return None
    is_image, is_citation = name.startswith("organ"), name in ("cora", "pubmed")
    graph = load_graph(str(path), threshold=0.965 if is_image else None, split="full" if is_citation else None)
    return part_in_scope(graph, None)[0] if num_kept is None else collapse(graph, CollapseConfig(num_kept)).graph


@cache
def flickr_graph(num_kept: int | None = None) -> Graph:
    """Return a drawn graph of the size of Flickr's training graph, whole or collapsed."""
    graph = synthetic_graph(SyntheticShape(44_625, 109_000, num_features=500, num_classes=7))
    return graph if num_kept is None else collapse(graph, CollapseConfig(num_kept)).graph


def take_steps(case: Case, num_outputs: int, batch_file: str) -> None:
    """Load a prepared batch and take two training steps on it."""
    num_features, batch = torch.load(batch_file, weights_only=False)
    config = case.config()
    model = build_model(config.model, num_features, num_outputs).train()
    optimizer = make_optimizer(model, config)
    for _ in range(2):
        training_step(model, optimizer, [batch], "float32", pieces_of(config))


def write_batch(case: Case, graph: Graph, shape: GraphShape, path: Path) -> None:
    """Write the largest batch that a case makes of a graph."""
    source = make_source(graph, case.config(), shape.task, torch.device("cpu"))
    largest = max(
        source.sizes(case.config().num_epochs), key=lambda drawn: drawn.size.num_entries + drawn.size.num_nodes
    )
    batches = (batch for batch in source.draw(largest.epoch) if len(batch.targets))
    torch.save((graph.num_features, next(islice(batches, largest.position, None))), path)


def compare(case: Case, folder: Path) -> dict[str, object] | None:
    """Return the predicted and the resident peak of a case; a small batch first loads libraries and starts threads."""
    graph = case.training_graph()
    if graph is None:
        return None
    shape = shape_of_graph(graph, case.config())
    small, large = folder / "small.pt", folder / "large.pt"
    write_batch(case, graph.subgraph(np.arange(SMALL_NODES)), shape, small)
    write_batch(case, graph, shape, large)
    predicted = estimate_memory(shape, case.config()).total
    measured = resident_peak(
        partial(take_steps, case, shape.num_outputs, str(large)),
        warm_up=partial(take_steps, case, shape.num_outputs, str(small)),
    )
    return {
        "graph": "drawn" if isinstance(case.graph, int) else case.graph,
        "nodes": graph.num_nodes,
        "features": graph.num_features,
        "model": case.model,
        "bits": case.config().model.bits or 32,
        "hidden": case.hidden,
        "batches": case.config().num_batches,
        **({"pieces": case.pieces} if case.pieces > 1 else {}),
        "predicted_mib": round(predicted / 2**20, 1),
        "resident_mib": round(measured / 2**20, 1),
        "resident_over_predicted": round(measured / predicted, 3),
    }


def compare_all(cases: list[Case]) -> list[dict[str, object]]:
    """Return the rows of all cases whose data is here."""
    rows = []
    with TemporaryDirectory() as folder:
        for case in cases:
            row = compare(case, Path(folder))
            if row is None:
                print(f"{case.graph}: left out, it is not in {data_folder()}")
                continue
            rows.append(row)
            print(row, flush=True)
    return rows


@dataclass(frozen=True)
class PaperSet:
    """A data set of the paper's table: the size of its training graph, its model, its collapse and its partition."""

    nodes: int
    edges: int
    features: int
    labels: int
    task: Task
    hidden: int
    hops: int
    batches: int
    kept: int
    graph: Callable[[int | None], Graph | None]

    def shape(self, num_nodes: int) -> GraphShape:
        whole = GraphShape(self.nodes, self.edges, self.features, self.labels, self.task, self.nodes)
        return whole.with_nodes(num_nodes)

    def config(self, name: ModelName) -> TrainConfig:
        is_ppi, is_graph_model = self.task == "multilabel", name in ("gcn", "gas", "cluster-gcn")
        model = ModelConfig(
            name, hidden_channels=self.hidden, num_layers=3, dropout=0.2 if is_ppi else 0.5, batch_norm=True,
            num_hops=self.hops, concat_self=is_ppi and is_graph_model,
        )  # fmt: skip
        return TrainConfig(model, num_batches=1 if name == "gcn" else self.batches, device="cuda")

    def parts(self, num_nodes: int, config: TrainConfig) -> PartShape | None:
        """Return the largest batch of parts, None for want of data; one METIS part is one batch."""
        graph = self.graph(None if num_nodes == self.nodes else self.kept)
        return None if graph is None else shape_of_graph(graph, config).parts


organ_graph = partial(real_graph, "organamnist_25k")
PAPER_SETS = {
    "PPI": PaperSet(44_906, 613_184, 50, 121, "multilabel", 1_024, 2, 10, 15_000, partial(real_graph, "ppi")),
    "Organ-S": PaperSet(13_940, 205_000, 784, 11, "classes", 2_048, 1, 3, 8_000, organ_graph),
    "Organ-C": PaperSet(13_000, 197_000, 784, 11, "classes", 2_048, 1, 3, 8_000, organ_graph),
    "Flickr": PaperSet(44_625, 109_000, 500, 7, "classes", 2_048, 5, 5, 15_000, flickr_graph),
}


def predict_cell(dataset: str, model: ModelName, num_nodes: int) -> dict[str, object] | None:
    """Return the bytes on the device at the predicted peak beside the paper's; None where a partition is missing."""
    paper_set = PAPER_SETS[dataset]
    config, shape = paper_set.config(model), paper_set.shape(num_nodes)
    if config.model.uses_parts:
        parts = paper_set.parts(num_nodes, config)
        if parts is None:
            return None
        shape = replace(shape, parts=parts)
    predicted = predict_step(shape, largest_batch(shape, config), config).total / 2**20
    is_whole = num_nodes == paper_set.nodes
    place = PaperPlace(
        "main_resource", dataset, PAPER_MODELS[model], "none" if is_whole else "falcon", "" if is_whole else "EC",
        "gpu_memory",
    )  # fmt: skip
    paper = paper_figures()[place]
    return {
        "data set": dataset,
        "model": PAPER_MODELS[model],
        "nodes": num_nodes,
        "predicted MiB": round(predicted, 1),
        "paper MB": paper.text,
        "ratio": None if paper.value is None else round(predicted / paper.value, 2),
    }


def predict_paper_table() -> list[dict[str, object]]:
    """Return the cells of the paper's table that can be predicted here."""
    rows = []
    for dataset, paper_set in PAPER_SETS.items():
        for model in PAPER_MODELS:
            for num_nodes in (paper_set.nodes, paper_set.kept):
                row = predict_cell(dataset, model, num_nodes)  # type: ignore[arg-type]
                if row is None:
                    print(f"{dataset}, {model}: left out, its graph is not in {data_folder()}")
                else:
                    rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("resident", "pieces", "paper"))
    parser.add_argument("--records", type=Path, help="append one JSON line per row to this file")
    arguments = parser.parse_args()
    tables: dict[str, list[dict[str, object]]] = {}
    if arguments.only in (None, "paper"):
        tables["paper"] = predict_paper_table()
    for name, cases in (("resident", CASES), ("pieces", PIECE_CASES)):
        if arguments.only in (None, name):
            tables[name] = compare_all(cases)
    for rows in tables.values():
        print(to_markdown(rows), "\n")
    for name, rows in tables.items():
        facts = {"table": name, "threads": torch.get_num_threads()}
        append_records(arguments.records, [{**facts, **row} for row in rows])


if __name__ == "__main__":
    main()
