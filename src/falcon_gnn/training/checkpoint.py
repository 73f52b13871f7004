"""The whole state of an unfinished training in one safetensors file, so that it continues bit for bit; no pickle."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from falcon_gnn.errors import OptionError, require
from falcon_gnn.files import replacing
from falcon_gnn.graph import Graph

_NUM_HASHED = 2**18
"""Values of an array that tell a graph from another."""
_CPU_GENERATOR, _CUDA_GENERATOR = "generator.cpu", "generator.cuda"


@dataclass(frozen=True)
class Checkpoint:
    """What a training needs to go on.

    Attributes:
        tensors: Weights, best weights, optimiser state, histories and random generators, by name.
        facts: JSON values: the configuration, sizes and what happened in each epoch.
    """

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose name starts with ``prefix`` and a dot, without it."""
        start = len(prefix) + 1
        return {name[start:]: tensor for name, tensor in self.tensors.items() if name.startswith(f"{prefix}.")}


def write_checkpoint(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; an older one at ``path`` stays whole until the new one is."""
    safetensors = require("safetensors.torch", "train")
    tensors: dict[str, Tensor] = {}
    known: set[int] = set()
    for name, tensor in checkpoint.tensors.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        # The format refuses tensors that share memory; a copy of all others would double the histories of GAS.
        tensors[name] = plain.clone() if storage in known else plain
        known.add(storage)
    with replacing(path) as temporary:
        safetensors.save_file(tensors, temporary, metadata={"facts": json.dumps(checkpoint.facts)})


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Return the checkpoint in a file.

    Raises:
        OptionError: If the file is missing or not a whole checkpoint.
    """
    with _reading(path) as file:
        facts = json.loads(file.metadata()["facts"])
        return Checkpoint({name: file.get_tensor(name) for name in file.keys()}, facts)  # noqa: SIM118


def check_checkpoint(path: str | Path) -> None:
    """Stop where there is no checkpoint to go on from; no tensor is read.

    Raises:
        OptionError: As :func:`read_checkpoint`.
    """
    with _reading(path) as file:
        json.loads(file.metadata()["facts"])


@contextmanager
def _reading(path: str | Path) -> Iterator[Any]:
    """Yield an open file of tensors, and turn what is wrong with it into an error of ours."""
    safetensors = require("safetensors", "train")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            yield file
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        msg = f"checkpoint {path} must be a file that an interrupted training wrote. Start anew without resume: {error}"
        raise OptionError(msg) from error


def fingerprint(graph: Graph, *, reads_features: bool = True) -> str:
    """Return a text that tells a graph from others: a hash of its shapes and of values from all over its arrays.

    Of a large array some 2**18 values count, evenly spaced, in float64: types may differ, and no array of a large graph
    is read as a whole.

    Args:
        graph: The graph.
        reads_features: Whether the values of ``x``, and each of ``label_distribution``, count. The means of a collapse
            may differ in their last bits; of its distribution the mean square counts then, in four decimals.
    """
    arrays: list[NDArray[Any] | None] = [
        graph.indptr, graph.indices, graph.edge_weight, graph.y, graph.train_mask, graph.val_mask, graph.test_mask,
        *(weight for weight in (graph.node_weight, graph.self_weight) if weight is not None),
    ]  # fmt: skip
    if graph.x is not None and reads_features:
        arrays += [graph.x.data, graph.x.indices] if issparse(graph.x) else [graph.x]
    if graph.label_distribution is not None:
        shares = graph.label_distribution
        arrays.append(shares if reads_features else _sharpness(shares))
    digest = blake2b(repr(None if graph.x is None else graph.x.shape).encode(), digest_size=8)
    for array in arrays:
        digest.update(repr(None if array is None else array.shape).encode())
        if array is not None and array.size:
            rows = array[:: max(1, array.size // _NUM_HASHED)]
            digest.update(np.ascontiguousarray(rows, np.float64).tobytes())
    return digest.hexdigest()


def _sharpness(distribution: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean over some rows of what their squares sum to, rounded, shape ``(1,)``: 1 where all are certain."""
    rows = distribution[:: max(1, distribution.size // _NUM_HASHED)].astype(np.float64)
    return np.array([round(float(np.square(rows).sum(axis=1).mean()), 4)])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as ``<parameter number>.<name>``."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": tensor for number, entry in state.items() for name, tensor in entry.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give an optimiser the state that :func:`optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def generator_tensors(device: torch.device) -> dict[str, Tensor]:
    """Return the state of torch's random generators on the CPU and, where it is one, on the CUDA device."""
    states = {_CPU_GENERATOR: torch.get_rng_state()}
    if device.type == "cuda":
        states[_CUDA_GENERATOR] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(tensors: dict[str, Tensor], device: torch.device) -> None:
    """Give torch's random generators the states that :func:`generator_tensors` returned."""
    torch.set_rng_state(tensors[_CPU_GENERATOR])
    if device.type == "cuda" and _CUDA_GENERATOR in tensors:
        torch.cuda.set_rng_state(tensors[_CUDA_GENERATOR], device)
