"""What we want to know of a card, in under ten minutes; on the CPU as far as that goes, at a tenth of the size.

    python benchmarks/device_check.py [--device cuda] [--out device_check.json]

Numerics against the CPU, the same weights twice, and at the shapes of the paper's PPI for SIGN, QSIGN, GCN, Cluster-GCN
and GAS: peak beside the prediction, launches of a step, time of an epoch, with torch's own layers beside. Prints one
table and writes one JSON. Data are random.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

from falcon_gnn.graph import Graph
from falcon_gnn.planning.estimate import estimate_memory
from falcon_gnn.provenance import describe_machine, describe_versions
from falcon_gnn.quantization import bitmask, codec, hidden_ops
from falcon_gnn.quantization.kernel_choice import kernels_for
from falcon_gnn.training.batches import Batch
from falcon_gnn.training.config import ModelConfig, ModelName, TrainConfig
from falcon_gnn.training.history import Histories
from falcon_gnn.training.memory import measure_peak
from falcon_gnn.training.models import build_model
from falcon_gnn.training.shapes import shape_of_graph
from falcon_gnn.training.sources import make_source
from falcon_gnn.training.steps import make_optimizer, own_settings, run_epoch, training_step
from records import to_markdown

NUM_FEATURES, NUM_LABELS, NUM_BATCHES = 50, 121, 10
MODELS: tuple[tuple[ModelName, int | None], ...] = (
    ("sign", None), ("qsign", 2), ("gcn", None), ("gcn", 2), ("cluster-gcn", None), ("cluster-gcn", 2), ("gas", None),
    ("gas", 2),
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Sizes of the graph and of the layers; those of PPI and of the paper's options."""

    num_nodes: int = 44_906
    num_edges: int = 613_184
    hidden: int = 1_024


def random_graph(sizes: Sizes) -> Graph:
    """Return a graph with many labels for each node; its edges join near nodes, so that it falls into parts."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, sizes.num_nodes, sizes.num_edges)
    second = (first + rng.geometric(0.01, sizes.num_edges)) % sizes.num_nodes
    labels = (rng.random((sizes.num_nodes, NUM_LABELS)) < 0.3).astype(np.uint8)
    x = rng.random((sizes.num_nodes, NUM_FEATURES), dtype=np.float32)
    edges = np.stack([first, second])[:, first != second]
    return Graph.from_edges(edges, sizes.num_nodes, x=x, y=labels)


def config_of(name: ModelName, bits: int | None, sizes: Sizes, device: str, **options: object) -> TrainConfig:
    """Return a model with the paper's sizes."""
    model = ModelConfig(
        name, hidden_channels=sizes.hidden, num_layers=3, dropout=0.2, batch_norm=True, num_hops=2, bits=bits
    )
    return replace(TrainConfig(model, num_batches=1 if name == "gcn" else NUM_BATCHES, device=device), **options)  # type: ignore[arg-type]


def check_numerics(device: torch.device) -> dict[str, float]:
    """Return how far results on the device lie from plain torch's on the CPU, in shares of the largest value."""
    torch.manual_seed(0)
    worst: dict[str, float] = {}
    for shape in ((4_491, 1_024), (1_000, 257), (3, 7)):
        x, channels = torch.randn(shape), shape[1]
        norm = [x.mean(0), 1 / (x.std(0) + 1), torch.rand(channels), torch.randn(channels)]
        results = [
            all_results(x.to(at), [part.to(at) for part in norm], codec.draw_seeds(-(-shape[0] // 256)).fill_(7))
            for at in (torch.device("cpu"), device)
        ]
        for name, expected in results[0].items():
            distance = (results[1][name].cpu().double() - expected.double()).abs().max()
            worst[name] = max(worst.get(name, 0.0), float(distance / expected.abs().max().clamp(min=1e-30)))
    return worst


def all_results(x: Tensor, norm: list[Tensor], seeds: Tensor) -> dict[str, Tensor]:
    """Return what the operators make of a matrix."""
    coded = {f"{bits} bits": codec.dequantize(codec.quantize(x, bits, seed=seeds)) for bits in (1, 2, 4, 8)}
    blocks = {"ReLU and dropout": _dropped(x.clone(), seeds), "hidden block": _activated(x, norm, seeds)}
    return {**coded, **blocks, "way back": _gone_back(x, norm, seeds)}


def _dropped(x: Tensor, seeds: Tensor) -> Tensor:
    bitmask.relu_dropout_(x, seeds, 0.2)
    return x


def _activated(x: Tensor, norm: list[Tensor], seeds: Tensor) -> Tensor:
    out = torch.empty_like(x)
    hidden_ops.activate(x, norm, seeds, seeds, 0.2, 2, out)
    return out


def _gone_back(x: Tensor, norm: list[Tensor], seeds: Tensor) -> Tensor:
    out, gradient = torch.empty_like(x), x.sin()
    mask, *codes = hidden_ops.activate(x, norm, seeds, seeds, 0.2, 2, out)
    sums = hidden_ops.mask_gradient_(gradient, mask, codes, 2, norm[2:], bitmask.keep_factor(0.2), out)
    return torch.cat([gradient, out, sums])


def check_histories(device: torch.device) -> dict[str, bool]:
    """Return whether the card reads and writes histories in host memory itself, and whether it does so rightly."""
    histories, ids = Histories(1_000, 257, 1), torch.randperm(1_000)[:300]
    if device.type == "cuda":
        histories.lock(device)
    at, values = (ids.to(device) if histories.is_locked else ids), torch.randn(300, 257)
    histories.push(0, at, values.to(device))
    pulled = histories.pull(0, at.flip(0), device).cpu()
    kept = histories.levels[0]
    is_right = torch.equal(pulled, values.flip(0)) and torch.equal(kept[ids], values)
    return {"in place": histories.is_locked, "right": is_right and int(kept.any(1).sum()) == 300}


def check_determinism(graph: Graph, sizes: Sizes, device: str) -> dict[str, bool]:
    """Return whether two trainings of two epochs give the same weights, with deterministic algorithms."""
    same = {}
    for name, bits in (("qsign", 2), ("gcn", None)):
        runs = []
        for _ in range(2):
            config = config_of(name, bits, sizes, device, deterministic=True)  # type: ignore[arg-type]
            with own_settings(config, torch.device(device)):
                run = Run(graph, config)
                run.epoch(1), run.epoch(2)
                runs.append([parameter.detach().clone() for parameter in run.model.parameters()])
        same[name] = all(map(torch.equal, *runs))
    return same


class Run:
    """A model in training on the graph."""

    def __init__(self, graph: Graph, config: TrainConfig) -> None:
        self.config, self.device = config, torch.device(config.device)
        self.model = build_model(config.model, NUM_FEATURES, NUM_LABELS).to(self.device).train()
        self.optimizer = make_optimizer(self.model, config)
        self.source = make_source(graph, config, "multilabel", self.device)

    def epoch(self, number: int) -> float:
        """Train for one epoch and return its seconds."""
        wait(self.device)
        start = perf_counter()
        run_epoch(self.model, self.optimizer, self.source.draw(number), self.config)
        wait(self.device)
        return perf_counter() - start

    def batch(self) -> Batch:
        """Return the first batch, on the device."""
        return next(islice(self.source.draw(1), 1)).to(self.device)

    def facts(self, graph: Graph, num_epochs: int) -> dict[str, object]:
        """Return what is measured of the model."""
        times = [self.epoch(number) for number in range(1, num_epochs + 1)]
        batch = self.batch()
        step = lambda: training_step(self.model, self.optimizer, [batch], self.config.precision)  # noqa: E731
        peak, launches = measure_peak(step, self.device), count_launches(step, self.device)
        predicted = estimate_memory(shape_of_graph(graph, self.config), self.config).total
        return {
            "peak_mib": round(peak.total_mib, 1),
            "peak_of": peak.measure,
            "reserved_mib": None if peak.reserved is None else round(peak.reserved / 2**20, 1),
            "predicted_mib": round(predicted / 2**20, 1),
            "launches": launches,
            "epoch_seconds": round(median(times[1:]), 4),
        }


class StockLayers(nn.Module):
    """The layers of SIGN as torch has them."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for width in (3 * NUM_FEATURES, sizes.hidden):
            blocks += [nn.Linear(width, sizes.hidden), nn.BatchNorm1d(sizes.hidden), nn.ReLU(), nn.Dropout(0.2)]
        self.layers = nn.Sequential(*blocks, nn.Linear(sizes.hidden, NUM_LABELS))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        outputs: Tensor = self.layers(x)
        return outputs


def stock_facts(graph: Graph, sizes: Sizes, device: str, num_epochs: int) -> dict[str, object]:
    """Return what is measured of SIGN's layers as torch has them, on the same batches."""
    run = Run(graph, config_of("sign", None, sizes, device))
    run.model = StockLayers(sizes).to(run.device).train()
    run.optimizer = make_optimizer(run.model, run.config)
    return run.facts(graph, num_epochs) | {"predicted_mib": None}


def count_launches(step: Callable[[], object], device: torch.device) -> int | None:
    """Return the kernels that a step starts on the device; None on the CPU."""
    if device.type != "cuda":
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        wait(device)
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())  # type: ignore[attr-defined]


def wait(device: torch.device) -> None:
    """Wait until the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("device_check.json"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    sizes = Sizes() if device.type == "cuda" else Sizes(4_491, 61_318, 128)
    graph, started = random_graph(sizes), perf_counter()
    has_kernels = device.type == "cuda" and kernels_for(device) is not None
    numerics, same = check_numerics(device), check_determinism(graph, sizes, arguments.device)
    histories = check_histories(device)
    rows = []
    for name, bits in MODELS:
        try:
            run = Run(graph, config_of(name, bits, sizes, arguments.device))
            facts = run.facts(graph, arguments.epochs)
        except RuntimeError as error:
            facts = dict.fromkeys(("peak_mib", "peak_of", "reserved_mib", "predicted_mib", "launches", "epoch_seconds"))
            facts["peak_of"] = str(error).splitlines()[0]
        rows.append({"model": name + (f", {bits} bits" if bits else ""), **facts})
    rows.append({"model": "torch's layers", **stock_facts(graph, sizes, arguments.device, arguments.epochs)})
    found = {
        "machine": describe_machine(arguments.device), "versions": describe_versions(), "has_kernels": has_kernels,
        "sizes": vars(sizes), "distance_to_cpu": numerics, "same_twice": same, "histories": histories,
        "rows": rows,
        "seconds": round(perf_counter() - started, 1),
    }  # fmt: skip
    print(to_markdown(rows))
    print("distance to the CPU:", {name: f"{value:.1e}" for name, value in numerics.items()}, "the same twice:", same)
    print("histories:", histories)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
