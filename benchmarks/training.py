"""Memory and epoch time of training at the paper's PPI shapes, side by side in one run.

    python benchmarks/training.py [--rows 4491 1500] [--epochs 7] [--device cpu|cuda] [--records FILE]

Peaks are those of one whole training step with Adam: on CUDA what the allocator handed out, on the CPU the bytes of
live tensors with every operator's temporaries. Times are medians of alternating epochs on random data of the shape.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from falcon_gnn.training.batches import RowBatch
from falcon_gnn.training.config import ModelConfig, ModelName, TrainConfig
from falcon_gnn.training.memory import measure_peak
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import GraphShape, predict_step, row_batch, whole_batch
from falcon_gnn.training.steps import make_optimizer, training_step
from falcon_gnn.training.targets import Targets
from records import append_records, to_markdown

PPI = GraphShape(44_906, 613_184, 50, 121, "multilabel", 44_906)
MODEL = ModelConfig("sign", hidden_channels=1_024, num_layers=3, dropout=0.2, batch_norm=True, num_hops=2)
PAPER = {("sign", 4491): 177.3, ("sign", 1500): 81.4, ("qsign", 4491): 116.9, ("qsign", 1500): 69.1, ("gcn", 0): 2347.3}


def config_of(model: ModelName, device: str) -> TrainConfig:
    return TrainConfig(replace(MODEL, model=model, bits=None), device=device)


class Steps:
    """Training steps of one model on random rows."""

    def __init__(self, model: ModelName, rows: int, device: str) -> None:
        torch.manual_seed(0)
        config = config_of(model, device)
        self.model = build_model(config.model, PPI.num_features, PPI.num_outputs).to(device).train()
        self.optimizer = make_optimizer(self.model, config)
        targets = Targets((torch.rand(rows, PPI.num_outputs) < 0.3).float(), "multilabel")
        self.batch = RowBatch(torch.rand(rows, 150), targets).to(torch.device(device))
        self.device = torch.device(device)

    def step(self) -> None:
        training_step(self.model, self.optimizer, [self.batch], "float32")

    def seconds(self, num_steps: int) -> float:
        self._wait()
        start = perf_counter()
        for _ in range(num_steps):
            self.step()
        self._wait()
        return perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def measure_rows(rows: int, epochs: int, device: str) -> list[dict[str, object]]:
    models: tuple[ModelName, ...] = ("sign", "qsign")
    runs = {name: Steps(name, rows, device) for name in models}
    peaks = {name: run_peak(run) for name, run in runs.items()}
    times: dict[ModelName, list[float]] = {name: [] for name in runs}
    for _ in range(epochs):
        for name, run in runs.items():
            times[name].append(run.seconds(10) / 10)
    return [
        {
            "model": name,
            "rows": rows,
            "peak_mib": round(peaks[name] / 2**20, 1),
            "predicted_mib": round(predict_step(PPI, row_batch(rows), config_of(name, device)).total / 2**20, 1),
            "paper_mb": PAPER.get((name, rows)),
            "step_seconds": round(median(times[name]), 4),
            "ratio_to_sign": round(median(q / s for q, s in zip(times[name], times["sign"], strict=True)), 3),
        }
        for name in runs
    ]


def run_peak(run: Steps) -> int:
    return measure_peak(run.step, run.device).total


def measure_gcn() -> list[dict[str, object]]:
    """Predict the full-batch GCN on PPI's training graph; that this equals the measure is a unit test."""
    rows: list[dict[str, object]] = []
    for name, bits in (("gcn", None), ("gcn2", 2)):
        config = TrainConfig(replace(MODEL, model="gcn", bits=bits, concat_self=True))
        peak = predict_step(PPI, whole_batch(PPI), config).total
        rows.append(
            {
                "model": "gcn, concat_self" + (f", {bits} bits" if bits else ""),
                "rows": PPI.num_nodes,
                "peak_mib": None,
                "predicted_mib": round(peak / 2**20, 1),
                "paper_mb": PAPER.get((name, 0)),
                "step_seconds": None,
                "ratio_to_sign": None,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4491, 1500])
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--records", type=Path, help="append one JSON line per row to this file")
    arguments = parser.parse_args()
    rows = [row for size in arguments.rows for row in measure_rows(size, arguments.epochs, arguments.device)]
    rows += measure_gcn()
    print(to_markdown(rows))
    facts = {"device": arguments.device, "threads": torch.get_num_threads()}
    append_records(arguments.records, [{**facts, **row} for row in rows])


if __name__ == "__main__":
    main()
