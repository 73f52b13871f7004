"""A trained model on disk: ``weights.safetensors`` and ``model.json``; no pickle."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from falcon_gnn.errors import OptionError, require
from falcon_gnn.files import replacing
from falcon_gnn.labels import Task
from falcon_gnn.resources import require_memory
from falcon_gnn.training.config import ModelConfig
from falcon_gnn.training.models import build_model
from falcon_gnn.training.usual_torch import usual_torch

WEIGHTS_FILE, SPEC_FILE = "weights.safetensors", "model.json"


@dataclass(frozen=True)
class ModelSpec:
    """Everything but the weights that is needed to build a trained model again.

    Attributes:
        config: The model's configuration.
        num_features: F, columns of X.
        num_outputs: L.
        task: What the outputs stand for.
        correct: α of the correction of its predictions (:mod:`falcon_gnn.training.correction`), 0 for none.
        smooth: α of their smoothing, 0 for none.
        normalize_hops: Whether the model reads features divided by their length, as in ``TrainConfig``.
    """

    config: ModelConfig
    num_features: int
    num_outputs: int
    task: Task
    correct: float = 0.0
    smooth: float = 0.0
    normalize_hops: bool = False

    @property
    def is_corrected(self) -> bool:
        """Whether the labels of training nodes mend the model's predictions."""
        return self.correct > 0 or self.smooth > 0

    def check_size(self) -> None:
        """Stop before a model is built whose weight matrices do not fit into memory.

        Raises:
            BudgetError: If so.
        """
        hidden, num_hidden = self.config.hidden_channels, self.config.num_layers - 1
        num_inputs = self.num_features * (self.config.num_hops + 1 if self.config.uses_hop_features else 1)
        num_weights = hidden * (num_inputs + (num_hidden - 1) * hidden + self.num_outputs) if num_hidden else 0
        require_memory(
            4 * num_weights,
            f"hold a model of {num_inputs:,} inputs, {num_hidden:,} hidden layers of {hidden:,} channels and "
            f"{self.num_outputs:,} outputs",
            "Lower hidden_channels, or what else makes it large.",
        )

    def build(self) -> nn.Module:
        """Return the model with new weights."""
        with usual_torch():
            return build_model(self.config, self.num_features, self.num_outputs)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the spec that ``dataclasses.asdict`` made a dict of."""
        return cls(**{**values, "config": ModelConfig(**values["config"])})


def save_model(folder: str | Path, spec: ModelSpec, weights: dict[str, Tensor]) -> None:
    """Write a model into a folder, which may hold other files; each file appears whole.

    Args:
        folder: Where to write; made if missing.
        spec: What the weights belong to.
        weights: The model's ``state_dict``.

    Raises:
        MissingDependencyError: If safetensors is not installed.
    """
    safetensors = require("safetensors.torch", "train")
    folder = Path(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    with replacing(folder / WEIGHTS_FILE) as path:
        safetensors.save_file(tensors, path)
    with replacing(folder / SPEC_FILE) as path:
        path.write_text(json.dumps(asdict(spec), indent=2) + "\n", encoding="utf-8")


def load_model(folder: str | Path) -> tuple[nn.Module, ModelSpec]:
    """Return the model that :func:`save_model` wrote, in evaluation mode on the CPU, and its spec.

    Raises:
        OptionError: If the folder holds no such model, or one whose weights do not fit its spec.
        MissingDependencyError: If safetensors is not installed.
    """
    safetensors = require("safetensors.torch", "train")
    folder = Path(folder)
    try:
        spec = ModelSpec.from_dict(json.loads((folder / SPEC_FILE).read_text(encoding="utf-8")))
        weights = safetensors.load_file(folder / WEIGHTS_FILE)
        model = spec.build()
        model.load_state_dict(weights)
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        RuntimeError,
        require("safetensors", "train").SafetensorError,
    ) as error:
        msg = f"{folder} must hold {SPEC_FILE} and {WEIGHTS_FILE} of one model, as training writes them: {error}"
        raise OptionError(msg) from error
    return model.eval(), spec
