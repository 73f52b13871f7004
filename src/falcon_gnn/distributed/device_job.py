"""A run as a job for ``torchrun``: collapse if asked to, train on several devices, score and write a run's folder."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from torch import distributed

from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.splits import Split
from falcon_gnn.distributed.device_training import DeviceJob, fit_config, open_group, resolve_device_type, train_share
from falcon_gnn.distributed.shards import Place
from falcon_gnn.errors import FalconError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline import CHECKPOINT_FILE, RunConfig, reduce_training_graph, run
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.configs import BITS, ModelConfig, ModelName, Precision, TrainConfig
from falcon_gnn.training.sources import HopSource
from falcon_gnn.training.state import TrainResult

_MODEL_OPTIONS = ("model", "hidden_channels", "num_layers", "dropout", "batch_norm", "num_hops", "bits", "num_parts")
_TRAIN_OPTIONS = (
    "learning_rate",
    "weight_decay",
    "num_epochs",
    "num_batches",
    "patience",
    "eval_every",
    "seed",
    "precision",
    "device",
)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the job's options, named as those of ``falcon-gnn train``."""
    parser = argparse.ArgumentParser(prog="falcon_gnn.distributed.data_parallel", description=__doc__)
    parser.add_argument("source", help="a data set's name, or the path of a graph file or folder")
    parser.add_argument("--out", "-o", required=True, type=Path, help="folder to write to")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--sync-batch-norm", action="store_true", help="moments over the whole batch")
    _add_graph_options(parser)
    _add_model_options(parser)
    _add_train_options(parser)
    return parser.parse_args(arguments)


def make_config(options: argparse.Namespace) -> RunConfig:
    """Return what the options ask for.

    Raises:
        OptionError: If an option is not allowed.
    """
    model = ModelConfig(**{name: getattr(options, name) for name in _MODEL_OPTIONS})
    training = TrainConfig(model=model, **{name: getattr(options, name) for name in _TRAIN_OPTIONS})
    if options.node_budget is None:
        return RunConfig(training, scope=options.scope)
    budget = float(options.node_budget) if "." in options.node_budget else int(options.node_budget)
    reduction = CollapseConfig(budget, centrality=options.centrality, scope=options.scope, seed=options.seed)
    return RunConfig(training, reduction, scope=options.scope)


def read_place() -> Place:
    """Return which process torchrun says this is.

    Raises:
        OptionError: If torchrun did not start it.
    """
    try:
        rank, num_devices, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except KeyError as error:
        msg = (
            f"torchrun must start this module, got no {error} in the environment. Run: torchrun --nproc-per-node 2 -m "
            "falcon_gnn.distributed.data_parallel ..."
        )
        raise OptionError(msg) from error
    return Place(rank, num_devices, local_rank)


def run_job(options: argparse.Namespace, place: Place) -> None:
    """Do one process's part of the run; rank 0 also writes the record, the weights and the plots.

    Raises:
        OptionError: If the graph and the options do not fit.
    """
    config = make_config(options)
    fit_config(config.training, place.num_devices)
    with open_group(resolve_device_type(config.training.device), place, "env://"):
        graph = _load_in_turn(options, place)
        train_with = _share_trainer(options, place)
        if place.rank == 0:
            run(graph, config, name=options.source, out=options.out, resume=options.resume, train_with=train_with)
        else:
            trained_on = reduce_training_graph(graph, config)
            train_with(trained_on.graph, config.training, eval_graph=graph)


def main() -> None:
    """Run the job of the command line; an error of ours ends it with its message and exit status 2."""
    options = parse_arguments()
    try:
        run_job(options, read_place())
    except FalconError as error:
        sys.stderr.write(f"falcon-gnn: {error}\n")
        raise SystemExit(2) from error
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"falcon-gnn: {interrupt}\n")
        raise SystemExit(130) from interrupt


def _share_trainer(options: argparse.Namespace, place: Place) -> Callable[..., TrainResult]:
    """Return what takes the place of ``train`` in a run: this process's share of the training."""

    def train(
        graph: Graph,
        config: TrainConfig,
        *,
        eval_graph: Graph,
        hop_source: HopSource | None = None,
        progress: bool = True,
        **_: object,
    ) -> TrainResult | None:
        job = DeviceJob(
            graph=graph,
            config=config,
            eval_graph=eval_graph,
            hop_source=hop_source,
            checkpoint=options.out / CHECKPOINT_FILE,
            resume=options.resume,
            progress=progress,
            synchronize_batch_norm=options.sync_batch_norm,
        )
        return train_share(job, place)

    return train  # type: ignore[return-value]  # Only rank 0, which has a result, makes use of it.


def _load_in_turn(options: argparse.Namespace, place: Place) -> Graph:
    """Return the graph, read by rank 0 first, which may have to fetch or convert it."""
    if place.rank != 0:
        distributed.barrier()
    graph = load_graph(
        options.source, root=options.root, split=options.split, split_index=options.split_index, seed=options.seed
    )
    if place.rank == 0:
        distributed.barrier()
    return graph


def _add_graph_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, help="folder with the raw files of a named data set")
    parser.add_argument("--split", choices=get_args(Split))
    parser.add_argument("--split-index", type=int)
    parser.add_argument("--node-budget", help="collapse first, to so many nodes (500) or a share (0.3)")
    parser.add_argument("--centrality", default="eigenvector")
    parser.add_argument("--scope", choices=("train", "full"))


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=get_args(ModelName), default="qsign")
    parser.add_argument("--hidden", dest="hidden_channels", type=int, default=256)
    parser.add_argument("--layers", dest="num_layers", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--batch-norm", action="store_true")
    parser.add_argument("--hops", dest="num_hops", type=int, default=2)
    parser.add_argument("--bits", type=int, choices=BITS)
    parser.add_argument("--parts", dest="num_parts", type=int, help="by default one per batch and device")


def _add_train_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", dest="num_batches", type=int, default=1, help="global batches per epoch")
    parser.add_argument("--epochs", dest="num_epochs", type=int, default=200)
    parser.add_argument("--patience", type=int, default=50)
    parser.add_argument("--eval-every", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--precision", choices=get_args(Precision), default="float32")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
