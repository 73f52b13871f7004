"""Launches of a training step on CUDA, counted, with the peak by torch's own allocator beside the prediction.

    python benchmarks/launches.py [--records FILE]

Runs where torch has CUDA. Where a stub stands for the CUDA runtime (kernels are counted, not run; its library is named
by LAUNCH_STUB) Triton's kernels are counted in its place and not compiled; on a card the profiler counts. Budgets,
unsplit, at 4,491 x 1,024 with two hidden layers: QSIGN 120, SIGN 80; GCN at 2 bits on PPI's shape 400; in 18 pieces 18
times as many. An epoch may wait for the card once, for its loss.
"""

import argparse
import ctypes
import gc
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
import triton
from torch import nn

from device_check import Sizes, StockLayers, count_launches, random_graph
from falcon_gnn.graph import Graph
from falcon_gnn.planning.estimate import estimate_batch, estimate_evaluation, estimate_memory
from falcon_gnn.training.batches import Batch, RowBatch
from falcon_gnn.training.config import FeaturesOn, ModelName, TrainConfig
from falcon_gnn.training.crew import Crew
from falcon_gnn.training.evaluation_shapes import evaluation_of_graph
from falcon_gnn.training.inference import InferenceSettings, make_scorer
from falcon_gnn.training.memory import measure_peak
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import row_batch, shape_of_graph, whole_batch
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.state import TrainingState
from falcon_gnn.training.steps import make_optimizer, pieces_of, run_epoch, training_step
from falcon_gnn.training.targets import Targets
from records import append_records
from training import MODEL, PPI

ROWS = 4_491
GRAPH_MODELS = ("gcn", "cluster-gcn", "gas")
CASES: tuple[tuple[str, int | None, int, int | None], ...] = (
    ("stock layers", None, 1, None), ("sign", None, 1, 80), ("qsign", 2, 1, 120), ("sign", None, 18, 18 * 80),
    ("qsign", 2, 18, 18 * 120), ("gcn", None, 1, None), ("gcn", 2, 1, 400), ("cluster-gcn", 2, 1, None),
    ("gas", None, 1, None),
)  # fmt: skip
EPOCHS: tuple[tuple[ModelName, int | None], ...] = (
    ("sign", None), ("qsign", 2), ("gcn", None), ("gcn", 2), ("cluster-gcn", None), ("cluster-gcn", 2), ("gas", None),
    ("gas", 2),
)  # fmt: skip

EVALUATIONS: tuple[tuple[ModelName, bool, int], ...] = (
    ("sign", False, 2**24), ("gcn", False, 2**24), ("gcn", True, 2**24), ("gcn", True, 2**20),
)  # fmt: skip


class Stub:
    """What the stub of the CUDA runtime counts, with Triton's kernels."""

    names = ("launches", "synchronisations", "copies to the host", "copies to the device")

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.shim_get.restype = ctypes.c_long
        self.num_triton = 0
        triton.runtime.jit.JITFunction.run = self._count_kernel

    def _count_kernel(self, *_: Any, **__: Any) -> None:
        self.num_triton += 1

    def count(self, step: Callable[[], object]) -> dict[str, int]:
        self.library.shim_reset()
        self.num_triton = 0
        step()
        counted = {name: int(self.library.shim_get(place)) for place, name in enumerate(self.names)}
        # Products of matrices are calls of cuBLAS, and of cuSPARSE, each a launch of its own.
        counted["products"] = int(self.library.shim_get(7)) + int(self.library.shim_get(8))
        counted["launches"] += self.num_triton + counted["products"]
        return counted | {"triton": self.num_triton}


def set_up(name: str, config: TrainConfig) -> tuple[nn.Module, Batch]:
    """Return a model in training mode and a batch, both on the card."""
    device = torch.device("cuda")
    if name in GRAPH_MODELS:
        graph = random_graph(Sizes())
        batch: Batch = next(make_source(graph, config, "multilabel", device).draw(1)).to(device)
    else:
        targets = Targets((torch.rand(ROWS, PPI.num_outputs) < 0.3).float(), "multilabel")
        batch = RowBatch(torch.rand(ROWS, 150), targets).to(device)
    model = StockLayers(Sizes()) if name == "stock layers" else build_model(config.model, 50, PPI.num_outputs)
    return model.to(device).train(), batch


def measure(name: str, bits: int | None, pieces: int, budget: int | None, stub: Stub | None) -> dict[str, object]:
    """Return what a step of a model starts and needs."""
    is_graph_model, device = name in GRAPH_MODELS, torch.device("cuda")
    options = replace(MODEL, model="sign" if name == "stock layers" else name, bits=bits)  # type: ignore[arg-type]
    options = replace(options, hidden_channels=512 if is_graph_model else 1_024, concat_self=False)
    config = TrainConfig(options, num_batches=10 if options.uses_parts else 1, device="cuda", micro_batches=pieces)
    torch.manual_seed(0)
    model, batch = set_up(name, config)
    optimizer = make_optimizer(model, config)

    def step() -> None:
        training_step(model, optimizer, [batch], config.precision, pieces_of(config))

    step()
    counted = {"launches": count_launches(step, device)} if stub is None else stub.count(step)
    peak = measure_peak(step, device)
    shape = whole_batch(PPI) if is_graph_model else row_batch(ROWS)
    is_predicted = name != "stock layers" and not options.uses_parts
    predicted = round(estimate_batch(PPI, shape, config).total / 2**20, 1) if is_predicted else None
    return {
        "model": name, "bits": bits, "pieces": pieces, **counted, "budget": budget,
        "allocated_mib": round(peak.total / 2**20, 1), "reserved_mib": round((peak.reserved or 0) / 2**20, 1),
        "predicted_mib": predicted,
    }  # fmt: skip


def measure_epoch(
    name: ModelName, bits: int | None, place: FeaturesOn, graph: Graph, stub: Stub | None
) -> dict[str, object]:
    """Return what an epoch of a training on PPI's shape starts and waits for, and the peak of a step in it."""
    num_batches = 1 if name == "gcn" else 10
    config = TrainConfig(
        replace(MODEL, model=name, bits=bits, hidden_channels=512, concat_self=False), num_batches=num_batches,
        num_epochs=2, device="cuda", features_on=place,
    )  # fmt: skip
    training = TrainingState(graph, graph, config, Crew(), None)

    def epoch() -> None:
        run_epoch(training.model, training.optimizer, training.source.draw(2), config)

    epoch()
    counted = count_waits(epoch, training.device) if stub is None else stub.count(epoch)
    peak, predicted = training._measure_memory(), estimate_memory(shape_of_graph(graph, config), config).total
    return {
        "model": name, "bits": bits, "epoch of": num_batches, "features on": place, **counted,
        "allocated_mib": round(peak.total / 2**20, 1), "reserved_mib": round((peak.reserved or 0) / 2**20, 1),
        "predicted_mib": round(predicted / 2**20, 1),
    }  # fmt: skip


def measure_evaluation(name: ModelName, concat_self: bool, piece_bytes: int, graph: Graph) -> dict[str, object]:
    """Return the peak of scoring all nodes of a graph of PPI's shape, Adam's moments included, and the prediction."""
    hidden, device = 1_024 if concat_self or name == "sign" else 512, torch.device("cuda")
    options = replace(MODEL, model=name, bits=None, hidden_channels=hidden, concat_self=concat_self)
    config = TrainConfig(options, device="cuda", eval_piece_bytes=piece_bytes)
    scored = evaluation_of_graph(graph, shape_of_graph(graph, config, graph))
    model = build_model(options, graph.num_features, PPI.num_outputs).to(device)
    scorer = make_scorer(options, graph, None, InferenceSettings(device, piece_bytes=piece_bytes))
    scorer.outputs(model)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    scorer.outputs(model)
    allocated = torch.cuda.max_memory_allocated(device) + 2 * sum(part.nbytes for part in model.parameters())
    return {
        "model": name, "concat_self": concat_self, "evaluation in pieces of": piece_bytes,
        "allocated_mib": round(allocated / 2**20, 1),
        "predicted_mib": round(estimate_evaluation(scored, config) / 2**20, 1),
    }  # fmt: skip


def count_waits(step: Callable[[], object], device: torch.device) -> dict[str, int | None]:
    """Return how often torch waited for the card, as it says itself, and the launches."""
    launches = count_launches(step, device)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = sum("synchronizing CUDA operation" in str(warning.message) for warning in said)
    return {"launches": launches, "synchronisations": waits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, help="append one JSON line per row to this file")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "Sparse CSR tensor support")
    path = os.environ.get("LAUNCH_STUB")
    stub = None if path is None else Stub(path)
    rows = []
    for case in CASES:
        rows.append(measure(*case, stub))
        print(rows[-1], flush=True)
    graph = random_graph(Sizes())
    for name, bits in EPOCHS:
        for place in get_args(FeaturesOn)[1 if name != "gcn" else 2 :]:
            rows.append(measure_epoch(name, bits, place, graph, stub))
            print(rows[-1], flush=True)
    for evaluation in EVALUATIONS:
        rows.append(measure_evaluation(*evaluation, graph))
        print(rows[-1], flush=True)
    facts = {"counted_by": "profiler" if stub is None else "stub", "card": torch.cuda.get_device_capability()}
    append_records(arguments.records, [{**facts, **row} for row in rows])


if __name__ == "__main__":
    main()
