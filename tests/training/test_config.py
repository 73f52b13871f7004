import subprocess
import sys

import pytest

from falcon_gnn.errors import OptionError
from falcon_gnn.training.config import ModelConfig, TrainConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "gnc"}, r"model must be one of gcn.*'gnc'.*Did you mean 'gcn'"),
        ({"hidden_channels": 0}, r"hidden_channels must be a whole number of at least 1, got 0"),
        ({"hidden_channels": 10**12}, r"hidden_channels must be at most 2\*\*30, .* got 1000000000000"),
        ({"num_layers": 1.5}, "num_layers"),
        ({"model": "sign-original", "num_layers": 1}, "num_layers must be a whole number of at least 2"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\)"),
        ({"num_hops": -1}, "num_hops"),
        ({"bits": 3}, "bits must be one of 1, 2, 4, 8, None, got 3"),
        ({"bits": "2"}, "bits"),
        ({"model": "sign", "bits": 2}, "qsign"),
        ({"model": "sign", "concat_self": True}, "concat_self"),
        ({"num_parts": 0}, "num_parts"),
    ],
)
def test_impossible_models_are_refused_by_name(options, message):
    with pytest.raises(OptionError, match=message):
        ModelConfig(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "gcn"}, "model must be a ModelConfig"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"num_epochs": 0}, "num_epochs"),
        ({"num_batches": True}, "num_batches"),
        ({"patience": 0}, "patience"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed must be a whole number below"),
        ({"precision": "fp16"}, "precision must be one of float32, tf32, bf16"),
        ({"validation_metric": "f1"}, "validation_metric"),
        ({"task": "class"}, "task"),
        ({"model": ModelConfig("gcn"), "num_batches": 5}, "num_batches=5"),
        ({"model": ModelConfig(model="gas", num_parts=3), "num_batches": 4}, "num_parts must be at least num_batches"),
    ],
)
def test_impossible_trainings_are_refused_by_name(options, message):
    with pytest.raises(OptionError, match=message):
        TrainConfig(**options)


def test_qsign_keeps_two_bits_unless_told_otherwise():
    assert ModelConfig(model="qsign").bits == 2
    assert ModelConfig(model="qsign", bits=4).bits == 4


def test_a_configuration_survives_json():
    config = TrainConfig(model=ModelConfig(model="qsign", num_hops=5), num_batches=3, patience=7)
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_making_a_configuration_does_not_import_torch():
    code = "import sys, falcon_gnn.training.config as c; c.TrainConfig(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
