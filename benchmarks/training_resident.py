"""Resident memory of whole trainings: above the loaded graph, and of the command from its start to its end.

    python benchmarks/training_resident.py [--only epoch|command] [--source CHECKOUT/src] [--records FILE.jsonl]

epoch: what lives through a training beside its steps. A drawn graph of Flickr's shape, half of its nodes for training,
collapsed to a tenth; QSIGN in 20 batches, two epochs. command: the peak of `falcon-gnn train` on PPI, one epoch and its
evaluations, SIGN and a GCN with `concat_self` of three layers of 1,024, unsplit and in pieces; `--source` measures
another checkout, for a before and an after. With glibc, set MALLOC_MMAP_THRESHOLD_=65536 so that freed arrays go back
to the system at once.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from falcon_gnn.datasets.synthetic import SyntheticShape, synthetic_graph
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.run import run
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.state import TrainingState
from records import append_records


def resident_bytes() -> int:
    """Return the resident size of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure() -> dict[str, float]:
    """Return how far the resident size lies above that with the graph loaded, at the end of an epoch."""
    drawn = synthetic_graph(SyntheticShape(89_250, 449_878, num_features=500, num_classes=7))
    trains = np.random.default_rng(0).random(drawn.num_nodes) < 0.5
    graph = drawn.replace(train_mask=trains, val_mask=None, test_mask=None)
    del drawn
    training = TrainConfig(ModelConfig("qsign"), num_epochs=2, num_batches=20, measure_memory=False, device="cpu")
    reduction = CollapseConfig(0.1, centrality="degree", num_clusters=1)
    seen: list[int] = []
    original = TrainingState._train_epoch

    def watched(state: TrainingState, epoch: int) -> float:
        loss = original(state, epoch)
        seen.append(resident_bytes())
        return loss

    before = resident_bytes()
    with mock.patch.object(TrainingState, "_train_epoch", watched):
        run(graph, RunConfig(training, reduction), progress=False)
    return {"resident_mib": round((max(seen) - before) / 2**20, 1)}


COMMON = ("--hidden-channels=1024", "--num-layers=3", "--dropout=0.2", "--num-epochs=1")
SIGN = ("--model=sign", "--num-batches=10")
GCN = ("--model=gcn", "--concat-self")
CASES = {
    "SIGN": SIGN,
    "SIGN, 9 pieces": (*SIGN, "--micro-batches=9"),
    "SIGN, 18 pieces, no matrix kept": (*SIGN, "--micro-batches=18", "--no-keep-matrix", "--eval-piece-bytes=4194304"),
    "GCN": GCN,
    "GCN, 16 blocks of columns": (*GCN, "--column-blocks=16"),
    "GCN, 2 bits": (*GCN, "--bits=2"),
    "GCN, 2 bits, 16 blocks of columns": (*GCN, "--bits=2", "--column-blocks=16"),
}
_PEAK_OF_CHILD = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def measure_commands(source: Path | None, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the peak resident size of a process that loads PPI, and of each training of it."""
    data = Path(os.environ.get("FALCON_DATA", Path(__file__).resolve().parents[2] / "shared" / "datasets")) / "ppi.npz"
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source)}
    load = (sys.executable, "-c", f"import torch, falcon_gnn; graph = falcon_gnn.load_graph({str(data)!r})")
    with tempfile.TemporaryDirectory() as folder:
        train = (sys.executable, "-m", "falcon_gnn", "train", str(data), *COMMON)
        cases: dict[str, tuple[str, ...]] = {"torch and the graph, no training": load}
        cases |= {name: (*train, f"--out={folder}/{name}", *options) for name, options in CASES.items()}
        for name in names or cases:
            command = [sys.executable, "-c", _PEAK_OF_CHILD, *cases[name]]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
            peak = int(done.stdout.splitlines()[-1]) * 1024
            yield {"command": name, "is_other_source": source is not None, "peak_mib": round(peak / 2**20, 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("epoch", "command"), help="one of the two")
    parser.add_argument("--cases", nargs="*", default=[], help="names of commands; all by default")
    parser.add_argument("--source", type=Path, help="measure the command of this source folder")
    parser.add_argument("--records", type=Path, help="append JSON lines to this file")
    options = parser.parse_args()
    if options.only != "command":
        row = measure()
        append_records(options.records, [row])
        print(row)
    if options.only != "epoch":
        for row in measure_commands(options.source, options.cases):
            append_records(options.records, [row])
            print(row, flush=True)


if __name__ == "__main__":
    main()
