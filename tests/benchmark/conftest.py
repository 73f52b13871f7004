"""A benchmark that takes a fraction of a second: a drawn graph of 90 nodes, two epochs."""

from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = """
title = "Tiny"
kind = "{kind}"
seeds = {seeds}
{models}

[table]
metrics = {metrics}

[training]
num_epochs = 2
patience = "none"
learning_rate = 0.01

[model]
hidden_channels = 4
num_layers = 2

[collapse]
centrality = "degree"
num_clusters = 3
node_budget = 20

[datasets.tiny]
synthetic = {{ num_nodes = 90, num_edges = 200, num_features = 4, num_classes = 3 }}
"""


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a configuration file and returns its path."""

    def write(
        *tables: str, kind: str = "train", seeds: int = 1, models: str = '["sign"]', metrics: str = '["accuracy"]'
    ) -> Path:
        trains = kind in ("train", "resources")
        head = HEAD.format(kind=kind, seeds=seeds, metrics=metrics, models=f"models = {models}" if trains else "")
        path = tmp_path / "tiny.toml"
        path.write_text("\n".join([head, *tables]), encoding="utf-8")
        return path

    return write


FALCON = "[methods.FALCON]"
NONE = '[methods.none]\nreduction = "none"'
