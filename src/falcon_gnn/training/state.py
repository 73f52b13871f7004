"""The state of a training: model, optimiser, best weights and history; one step forward, saved and restored."""

import math
import time
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falcon_gnn.errors import ConvergenceError, OptionError
from falcon_gnn.evaluation import Metrics, evaluate, score_title
from falcon_gnn.graph import Graph
from falcon_gnn.labels import labelled_nodes
from falcon_gnn.training.checkpoint import (
    Checkpoint,
    fingerprint,
    generator_tensors,
    optimizer_tensors,
    restore_generators,
    restore_optimizer,
)
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.crew import Crew
from falcon_gnn.training.history import HistoryBatches
from falcon_gnn.training.inference import InferenceSettings, make_scorer
from falcon_gnn.training.memory import MemoryPeak, measure_peak, tensors_within
from falcon_gnn.training.partition import BatchSize, DrawnBatch, undominated
from falcon_gnn.training.progress import EpochRecord
from falcon_gnn.training.residence import place_features
from falcon_gnn.training.sources import HopSource, check_same_features, make_source
from falcon_gnn.training.steps import group_size, make_optimizer, pieces_of, run_epoch, training_step
from falcon_gnn.training.targets import check_metric, require_labels, resolve_task
from falcon_gnn.training.weights import ModelSpec

_NUM_MEASURED = 3
"""Batches that are measured where none is the largest in every figure."""


@dataclass(frozen=True)
class TrainResult:
    """A trained model and how it came about.

    Attributes:
        spec: What builds the model again: ``spec.build()``, then ``load_state_dict(weights)``.
        weights: The best epoch's ``state_dict``, on the CPU.
        epochs: What happened in each epoch.
        best_epoch: The first epoch with the best validation score; the last epoch without validation nodes.
        best_score: That score, higher is better; None without validation nodes.
        stopped_early: Whether ``patience`` ended the training.
        epoch_seconds: Lower quartile, median and upper quartile of an epoch's training time.
        validation: Scores of the best weights on the validation nodes of the evaluation graph, or None without any.
        test: Likewise on its test nodes.
        num_parameters: Trained values.
        memory: The measured peak of a training step on the most expensive batch of all epochs (also of those that early
            stopping left out), where the configuration asks for it. Where no batch is the largest in every figure, the
            three that need about the most are measured.
    """

    spec: ModelSpec
    weights: dict[str, Tensor]
    epochs: tuple[EpochRecord, ...]
    best_epoch: int
    best_score: float | None
    stopped_early: bool
    epoch_seconds: tuple[float, float, float]
    validation: Metrics | None
    test: Metrics | None
    num_parameters: int
    memory: MemoryPeak | None = None

    def model(self) -> nn.Module:
        """Return the model with the best weights, in evaluation mode on the CPU."""
        model = self.spec.build()
        model.load_state_dict(self.weights)
        return model.eval()


class Judge:
    """Scores a model on fixed nodes of a graph.

    Args:
        graph: The graph, with labels.
        node_ids: The nodes, shape ``(n,)``.
        spec: What the model is.
        settings: Where and in what pieces.
    """

    def __init__(self, graph: Graph, node_ids: NDArray[np.int64], spec: ModelSpec, settings: InferenceSettings) -> None:
        self.labels, self.spec = require_labels(graph)[node_ids], spec
        self.scorer = make_scorer(spec.config, graph, node_ids, settings)

    def metrics(self, model: nn.Module) -> Metrics:
        """Return the scores of a model's outputs for these nodes."""
        return evaluate(self.labels, self.scorer.outputs(model), self.spec.task, self.spec.num_outputs)


class TrainingState:
    """A training between two epochs; arguments as in ``train``.

    In a crew of several processes all have the same weights, and the writer alone has scores.

    Raises:
        GraphError: If features, labels or masks are missing or do not fit.
    """

    def __init__(
        self, graph: Graph, eval_graph: Graph, config: TrainConfig, crew: Crew, hop_source: HopSource | None
    ) -> None:
        check_same_features(graph, eval_graph, "eval_graph")
        task, num_outputs = resolve_task(graph, eval_graph, config.task, config.num_classes)
        check_metric(config.validation_metric, eval_graph, task, num_outputs)
        self.config, self.crew, self.eval_graph = config, crew, eval_graph
        self.device = crew.device(config.device)
        self.spec = ModelSpec(config.model, graph.num_features, num_outputs, task, normalize_hops=config.normalize_hops)
        self.spec.check_size()
        self.model = self.spec.build().to(self.device)
        source = make_source(graph, config, task, self.device, hop_source)
        place_features(source, graph, self.spec, config, self.device)
        self.source = crew.share(source, self.model, config)
        self.optimizer = make_optimizer(self.model, config)
        self.replica = crew.replicate(self.model)
        self.inference = InferenceSettings(self.device, None, config.normalize_hops, config.eval_piece_bytes)
        self.validation = self._judge(eval_graph.val_mask)
        self.epochs: list[EpochRecord] = []
        self.best_epoch, self.best_score = 0, None if self.validation is None else -math.inf
        self.best_weights: dict[str, Tensor] = {}
        self.num_nodes = graph.num_nodes
        self.fingerprints = {
            "training graph": fingerprint(graph, reads_features=False),
            "original graph": fingerprint(eval_graph),
            "hops_from": "reduced" if hop_source is None else "original",
        }

    @property
    def is_stalled(self) -> bool:
        """Whether the score has not improved for ``patience`` evaluations."""
        patience = self.config.patience
        if patience is None or self.validation is None:
            return False
        return (len(self.epochs) - self.best_epoch) // self.config.eval_every >= patience

    @property
    def is_finished(self) -> bool:
        """Whether no epoch is left to train."""
        return self.is_stalled or len(self.epochs) >= self.config.num_epochs

    def advance(self) -> EpochRecord:
        """Train for one epoch, score it if it is due, and remember the weights if they are the best so far.

        Raises:
            ConvergenceError: If the loss is not finite.
        """
        epoch = len(self.epochs) + 1
        started = self._synchronized_time()
        loss = self._train_epoch(epoch)
        seconds = self._synchronized_time() - started
        if not math.isfinite(loss):
            msg = (
                f"the training loss became {loss} in epoch {epoch}. Lower learning_rate ({self.config.learning_rate})."
            )
            raise ConvergenceError(msg)
        is_due = epoch % self.config.eval_every == 0 or epoch == self.config.num_epochs
        score = self._score(self.validation.metrics(self.model)) if self.validation is not None and is_due else None
        is_best = self.best_score is None or (score is not None and score > self.best_score)
        if is_best and self.crew.is_writer:
            self.best_epoch, self.best_score = epoch, score
            self.best_weights = {name: value.detach().to("cpu", copy=True) for name, value in self._weights().items()}
        self.epochs.append(EpochRecord(epoch, loss, score, seconds))
        return self.epochs[-1]

    def result(self) -> TrainResult:
        """Score the best weights and return everything; nothing can be trained any more afterwards.

        In a process that is not the crew's writer the weights are the last ones, and there are no scores.

        Raises:
            ConvergenceError: If no epoch had a finite validation score, so that none is the best.
        """
        if not self.crew.is_writer:
            self.best_weights, self.best_epoch = self._weights(), len(self.epochs)
        if not self.best_weights:
            score = score_title(self.config.validation_metric, self.spec.task)
            msg = (
                f"no epoch is the best: the {score} on validation nodes was never finite. Look for values of y or x "
                "there that are too large, or lower learning_rate."
            )
            raise ConvergenceError(msg)
        self.model.load_state_dict(self.best_weights)
        validation = None if self.validation is None else self.validation.metrics(self.model)
        judge = self._judge(self.eval_graph.test_mask)
        test = None if judge is None else judge.metrics(self.model)
        # What scores a model holds tensors on the device, which are no part of a training step.
        self.validation = judge = None
        low, median, high = np.quantile([record.seconds for record in self.epochs], [0.25, 0.5, 0.75]).tolist()
        return TrainResult(
            spec=self.spec,
            weights=self.best_weights,
            epochs=tuple(self.epochs),
            best_epoch=self.best_epoch,
            best_score=self.best_score,
            stopped_early=len(self.epochs) < self.config.num_epochs,
            epoch_seconds=(low, median, high),
            validation=validation,
            test=test,
            num_parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            memory=self._measure_memory() if self.config.measure_memory else None,
        )

    def _train_epoch(self, epoch: int) -> float:
        """Train on the batches of an epoch and return the mean loss."""
        self.crew.begin_epoch(self.config.seed, epoch)
        loss = run_epoch(self.replica, self.optimizer, self.source.draw(epoch), self.config)
        return self.crew.mean(loss)

    def _measure_memory(self) -> MemoryPeak:
        """Return the peak of a step on the most expensive batch of all epochs, which is drawn again for it.

        The steps spoil the weights: they are the last thing done with them.
        """
        self.model.train()
        candidates = undominated(self.source.sizes(self.config.num_epochs))
        candidates.sort(key=lambda drawn: self._rough_bytes(drawn.size), reverse=True)
        return max(map(self._measure_batch, candidates[:_NUM_MEASURED]), key=lambda peak: peak.total)

    def _measure_batch(self, drawn: DrawnBatch) -> MemoryPeak:
        batches = (batch for batch in self.source.draw(drawn.epoch) if len(batch.targets))
        batch = next(islice(batches, drawn.position, None)).to(self.device)
        # Of a group of batches two are enough: the second meets the gradients of the first.
        group = [batch] * min(2, group_size(self.config))
        return measure_peak(
            lambda: training_step(self.model, self.optimizer, group, self.config.precision, pieces_of(self.config)),
            self.device,
            known=lambda: tensors_within([self.model, self.optimizer, batch]),
        )

    def _rough_bytes(self, size: BatchSize) -> float:
        """Return about what a batch needs, to compare batches that differ in several figures."""
        model = self.spec.config
        hidden = model.hidden_channels * model.num_layers
        per_node = 4 * (hidden + self.spec.num_features)
        entries = size.num_entries + size.halo_entries + 2 * (size.input_entries + size.feature_entries)
        return per_node * size.num_nodes + 4 * model.hidden_channels * size.halo_nodes + 8 * entries

    def checkpoint(self) -> Checkpoint:
        """Return the whole state."""
        groups = {
            "model": self._weights(),
            "best": self.best_weights,
            "optimizer": optimizer_tensors(self.optimizer),
            "history": self._histories(),
            "generator": generator_tensors(self.device),
        }
        tensors = {f"{group}.{name}": value for group, part in groups.items() for name, value in part.items()}
        facts = {
            "training": self._identity(),
            "epochs": [asdict(record) for record in self.epochs],
            "best_epoch": self.best_epoch,
            "best_score": self.best_score,
        }
        return Checkpoint(tensors, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over the state of an earlier run.

        Raises:
            OptionError: If it was a run of another configuration or graph.
        """
        theirs, ours = checkpoint.facts["training"], self._identity()
        # A checkpoint of 0.2.0 has none of these.
        theirs = self.fingerprints | theirs
        different = sorted(name for name in ours if theirs.get(name) != ours[name])
        if different:
            shown = ", ".join(f"{name} ({theirs.get(name)} there, {ours[name]} here)" for name in different)
            msg = f"checkpoint is of another training: {shown}. Use the same values, or leave out resume to start anew."
            raise OptionError(msg)
        self.model.load_state_dict(checkpoint.group("model"))
        restore_optimizer(self.optimizer, checkpoint.group("optimizer"))
        for name, history in self._histories().items():
            history.copy_(checkpoint.group("history")[name])
        if self.crew.num_devices == 1:
            restore_generators(checkpoint.group("generator"), self.device)
        self.best_weights = checkpoint.group("best")
        self.best_epoch, self.best_score = checkpoint.facts["best_epoch"], checkpoint.facts["best_score"]
        self.epochs = [EpochRecord(**record) for record in checkpoint.facts["epochs"]]

    def _identity(self) -> dict[str, Any]:
        """Return what two runs must share for one to continue the other."""
        options = self.config.to_dict()
        model = options.pop("model")
        # Pieces change no number, so that a run that was out of memory can go on in smaller ones.
        for name in (
            "num_epochs",
            "device",
            "measure_memory",
            "column_blocks",
            "keep_matrix",
            "eval_piece_bytes",
            "features_on",
        ):
            options.pop(name)
        if not self.config.model.uses_parts:
            options.pop("micro_batches")
        sizes = {
            "num_features": self.spec.num_features,
            "num_outputs": self.spec.num_outputs,
            "num_nodes": self.num_nodes,
        }
        return {**model, **options, **sizes, **self.fingerprints, "task": self.spec.task}

    def _weights(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = self.model.state_dict()
        return weights

    def _histories(self) -> dict[str, Tensor]:
        levels = self.source.histories.levels if isinstance(self.source, HistoryBatches) else []
        return {str(level): history for level, history in enumerate(levels)}

    def _judge(self, mask: NDArray[np.bool_] | None) -> Judge | None:
        if mask is None or not self.crew.is_writer:
            return None
        node_ids = np.flatnonzero(mask & labelled_nodes(require_labels(self.eval_graph), self.spec.task))
        return Judge(self.eval_graph, node_ids, self.spec, self.inference) if node_ids.size else None

    def _score(self, metrics: Metrics) -> float:
        if self.spec.task == "regression":
            return -metrics.mean_squared_error
        return float(getattr(metrics, self.config.validation_metric))

    def _synchronized_time(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
