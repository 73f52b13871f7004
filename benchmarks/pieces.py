"""A step in pieces beside the unsplit step: peak of live tensors, resident peak, time; and the peak of an evaluation.

    python benchmarks/pieces.py [--only rows|graphs|evaluation] [--records FILE.jsonl]

rows: SIGN and QSIGN at PPI's shapes (4,491 rows of 150 columns, 1,024 hidden values, 121 labels), with and without
batch norm. graphs: a GCN's full batch on PPI with ``concat_self``, on a drawn connected graph of PPI's size, and on one
of Flickr's. evaluation: all 56,944 nodes of PPI. The steps of one table are taken in turn, so that a busy moment hits
all of them; times are medians, in those of the unsplit step of the table.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.synthetic import SyntheticShape, synthetic_graph
from falcon_gnn.graph import Graph
from falcon_gnn.planning.estimate import estimate_batch
from falcon_gnn.planning.ways import relative_time
from falcon_gnn.reduction.scope import part_in_scope
from falcon_gnn.training.batches import RowBatch, UnsentBatch
from falcon_gnn.training.config import ModelConfig, ModelName, TrainConfig
from falcon_gnn.training.inference import InferenceSettings, make_scorer
from falcon_gnn.training.memory import measure_peak, resident_peak, tensors_within
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import GraphShape, largest_batch, shape_of_graph
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import make_optimizer, pieces_of, training_step
from falcon_gnn.training.targets import Targets
from records import append_records

MIB = 2**20
PPI_ROWS = GraphShape(4_491, 0, 50, 121, "multilabel", 4_491)
SMALL_ROWS = replace(PPI_ROWS, num_nodes=512, num_targets=512)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """A way of taking the step of a table."""

    table: str
    config: TrainConfig

    def describe(self) -> dict[str, Any]:
        """Return what sets the case apart."""
        model, training = self.config.model, self.config
        return {
            "table": self.table, "model": model.model, "bits": model.bits or 32, "batch_norm": model.batch_norm,
            "hidden": model.hidden_channels, "micro_batches": training.micro_batches,
            "keep_matrix": training.keep_matrix, "column_blocks": training.column_blocks,
        }  # fmt: skip


class Step:
    """A model at its training: ``take()`` takes a step."""

    def __init__(self, config: TrainConfig, shape: GraphShape, batch: UnsentBatch) -> None:
        torch.manual_seed(0)
        self.config, self.batch = config, batch
        self.model = build_model(config.model, shape.num_features, shape.num_outputs).train()
        self.optimizer = make_optimizer(self.model, config)

    def take(self) -> None:
        training_step(self.model, self.optimizer, [self.batch], "float32", pieces_of(self.config))

    def peak(self) -> int:
        return measure_peak(self.take, known=lambda: tensors_within([self.model, self.optimizer, self.batch])).total


def measure_in_turn(steps: list[Step], rounds: int) -> list[tuple[int, float]]:
    """Return each step's peak in bytes and its median seconds; a round takes every step once."""
    peaks = [step.peak() for step in steps]
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for times, step in zip(seconds, steps, strict=True):
            start = perf_counter()
            step.take()
            times.append(perf_counter() - start)
    return list(zip(peaks, map(statistics.median, seconds), strict=True))


def drawn_rows(shape: GraphShape) -> RowBatch:
    """Return a batch of rows with three blocks of columns."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(shape.num_nodes, shape.num_outputs, generator=generator) < 0.3).float()
    return RowBatch(
        torch.rand(shape.num_nodes, 3 * shape.num_features, generator=generator), Targets(labels, "multilabel")
    )


def take_two(config: TrainConfig, shape: GraphShape, graph: Graph | None) -> None:
    """Take two steps; what a fresh process is measured at."""
    batch = drawn_rows(shape) if graph is None else next(iter(make_source(graph, config, shape.task, CPU).draw(1)))
    step = Step(config, shape, batch)
    for _ in range(2):
        step.take()


def row_cases() -> Iterator[Case]:
    """Yield the cases of the table of rows."""
    for batch_norm in (False, True):
        table = "rows, batch norm" if batch_norm else "rows"
        base = TrainConfig(ModelConfig("sign", 1_024, 3, 0.2, batch_norm=batch_norm))
        for model in ("sign", "qsign"):
            config = replace(base, model=replace(base.model, model=model, bits=2 if model == "qsign" else None))
            yield Case(table, config)
            for count in (3, 6, 9, 18):
                for keep in (True, False) if batch_norm and model == "sign" else (True,):
                    yield Case(table, replace(config, micro_batches=count, keep_matrix=keep))


def gcn_cases(table: str, hidden: int, *, concat_self: bool) -> Iterator[Case]:
    """Yield the cases of a graph's table."""
    model = ModelConfig("gcn", hidden, 3, 0.2, batch_norm=True, concat_self=concat_self)
    for columns in (1, hidden // 64, hidden // 32):
        yield Case(table, TrainConfig(model, column_blocks=columns))
    for columns in (1, hidden // 64):
        yield Case(table, TrainConfig(replace(model, bits=2), column_blocks=columns))


def gas_cases() -> Iterator[Case]:
    """Yield the cases of PPI's batches of parts with histories."""
    model = ModelConfig("gas", 1_024, 3, 0.2, batch_norm=True, concat_self=True)
    for bits in (None, 2):
        for columns in (1, 16):
            config = TrainConfig(replace(model, bits=bits), num_batches=10, column_blocks=columns)
            yield Case("PPI, GAS", config)


def data_graph() -> Graph | None:
    """Return PPI, from FALCON_DATA or ../shared/datasets."""
    folder = Path(os.environ.get("FALCON_DATA", Path(__file__).resolve().parents[2] / "shared" / "datasets"))
    return load_graph(str(folder / "ppi.npz")) if (folder / "ppi.npz").is_file() else None


def measure_table(cases: list[Case], shape: GraphShape, graph: Graph | None, rounds: int) -> list[dict[str, Any]]:
    """Return a record per case; the first is the unsplit step."""
    batch = (
        drawn_rows(shape) if graph is None else next(iter(make_source(graph, cases[0].config, shape.task, CPU).draw(1)))
    )
    steps = [Step(case.config, shape, batch) for case in cases]
    measured = measure_in_turn(steps, rounds)
    records = []
    for case, (peak, seconds) in zip(cases, measured, strict=True):
        predicted = estimate_batch(shape, largest_batch(shape, case.config), case.config).total
        record = case.describe() | {
            "peak_mib": round(peak / MIB, 1), "predicted_mib": round(predicted / MIB, 1),
            "seconds": round(seconds, 3), "times_unsplit": round(seconds / measured[0][1], 2),
            "times_predicted": round(relative_time(shape, case.config), 2),
        }  # fmt: skip
        records.append(record)
        print(record, flush=True)
    return records


def add_resident(records: list[dict[str, Any]], cases: list[Case], shape: GraphShape) -> None:
    """Add the resident peak of a fresh process to records of rows."""
    for record, case in zip(records, cases, strict=True):
        measured = resident_peak(
            partial(take_two, case.config, shape, None), warm_up=partial(take_two, case.config, SMALL_ROWS, None)
        )
        record["resident_mib"] = round(measured / MIB, 1)
        print(record["model"], record["micro_batches"], record["predicted_mib"], record["resident_mib"], flush=True)


def measure_rows() -> list[dict[str, Any]]:
    """Measure the tables of rows."""
    cases, records = list(row_cases()), []
    for table in dict.fromkeys(case.table for case in cases):
        chosen = [case for case in cases if case.table == table]
        found = measure_table(chosen, PPI_ROWS, None, rounds=7)
        add_resident(found, chosen, PPI_ROWS)
        records += found
    return records


def measure_graphs() -> list[dict[str, Any]]:
    """Measure the tables of graphs."""
    tables: list[tuple[str, Graph | None, int, bool]] = [
        ("PPI", data_graph(), 1_024, True),
        (
            "drawn, PPI's size",
            synthetic_graph(SyntheticShape(44_906, 613_184, num_features=50, num_classes=121)),
            1_024,
            True,
        ),
        (
            "drawn, Flickr's size",
            synthetic_graph(SyntheticShape(44_625, 109_000, num_features=500, num_classes=7)),
            2_048,
            False,
        ),
    ]
    records = []
    for table, graph, hidden, concat_self in tables:
        if graph is None:
            continue
        trained = part_in_scope(graph, None)[0] if table == "PPI" else graph.replace(train_mask=None)
        cases = list(gcn_cases(table, hidden, concat_self=concat_self))
        records += measure_table(cases, shape_of_graph(trained, cases[0].config), trained, rounds=1)
    return records


def measure_gas() -> list[dict[str, Any]]:
    """Measure GAS's steps on the first batch of PPI."""
    graph = data_graph()
    if graph is None:
        return []
    cases, trained = list(gas_cases()), part_in_scope(graph, None)[0]
    return measure_table(cases, shape_of_graph(trained, cases[0].config), trained, rounds=5)


def measure_evaluation() -> list[dict[str, Any]]:
    """Measure the peak of scoring every node of PPI."""
    graph = data_graph()
    records = []
    models: tuple[tuple[ModelName, bool], ...] = (("gcn", True), ("sign", False), ("sign-original", False))
    for name, concat_self in models if graph is not None else ():
        config = ModelConfig(name, 1_024, 3, 0.2, batch_norm=True, concat_self=concat_self)
        assert graph is not None
        model = build_model(config, graph.num_features, 121)
        scorer = make_scorer(config, graph, None, InferenceSettings(CPU))
        score: Callable[[], object] = partial(scorer.outputs, model)
        peak = measure_peak(score, known=partial(tensors_within, model)).total
        start = perf_counter()
        score()
        record = {
            "table": "evaluation", "model": name, "nodes": graph.num_nodes, "peak_mib": round(peak / MIB, 1),
            "seconds": round(perf_counter() - start, 2),
        }  # fmt: skip
        records.append(record)
        print(record, flush=True)
    return records


def main() -> None:
    """Measure what was asked for."""
    tables = {"rows": measure_rows, "graphs": measure_graphs, "gas": measure_gas, "evaluation": measure_evaluation}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tables, help="one of the tables")
    parser.add_argument("--records", type=Path, help="append one JSON line per case to this file")
    options = parser.parse_args()
    for name, measure in tables.items():
        if options.only in (None, name):
            append_records(options.records, measure())


if __name__ == "__main__":
    main()
