import json

import pytest
import torch

from falcon_gnn.errors import OptionError
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.weights import ModelSpec, load_model, save_model

SPEC = ModelSpec(ModelConfig(model="qsign", hidden_channels=4, batch_norm=True), 5, 3, "classes")


def _save(folder, spec=SPEC):
    model = spec.build()
    save_model(folder, spec, model.state_dict())
    return model


@pytest.mark.parametrize("name", ["gcn", "qsign", "sign-original", "gas"])
def test_a_saved_model_comes_back_with_its_weights_and_spec(tmp_path, name):
    spec = ModelSpec(ModelConfig(model=name, hidden_channels=4, batch_norm=True, bits=2), 5, 3, "multilabel")
    model = _save(tmp_path / "run", spec)
    loaded, loaded_spec = load_model(tmp_path / "run")
    assert loaded_spec == spec
    assert not loaded.training
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_a_model_is_two_files_without_pickle(tmp_path):
    _save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "weights.safetensors"]
    assert json.loads((tmp_path / "model.json").read_text())["config"]["model"] == "qsign"


def test_saving_again_replaces_the_files_and_leaves_others(tmp_path):
    (tmp_path / "record.json").write_text("{}")
    _save(tmp_path)
    second = _save(tmp_path)
    assert torch.equal(next(load_model(tmp_path)[0].parameters()), next(second.parameters()))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.json", None),
        ("weights.safetensors", None),
        ("model.json", b"{"),
        ("model.json", b"{}"),
        ("weights.safetensors", b"\x05\x00\x00\x00\x00\x00\x00\x00abcde"),
    ],
)
def test_a_missing_or_broken_file_is_named(tmp_path, name, content):
    _save(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match=r"model\.json and weights\.safetensors"):
        load_model(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path):
    _save(tmp_path)
    wider = ModelSpec(ModelConfig(model="qsign", hidden_channels=9), 5, 3, "classes")
    _save(tmp_path / "wider", wider)
    (tmp_path / "wider" / "weights.safetensors").replace(tmp_path / "weights.safetensors")
    with pytest.raises(OptionError, match="of one model"):
        load_model(tmp_path)
