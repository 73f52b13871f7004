"""Resident memory while a run trains, above the loaded graph: what lives through the training beside its steps.

    python benchmarks/training_resident.py --records training_resident.jsonl

A drawn graph of Flickr's shape, half of its nodes for training, collapsed to a tenth; QSIGN in 20 batches, two epochs.
With glibc, set MALLOC_MMAP_THRESHOLD_=65536 so that freed arrays go back to the system at once.
"""

import argparse
import os
from pathlib import Path
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, help="append a JSON line to this file")
    options = parser.parse_args()
    row = measure()
    append_records(options.records, [row])
    print(row)


if __name__ == "__main__":
    main()
