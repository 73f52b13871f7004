"""One run, from the original graph to scores on it."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

import numpy as np

from falcon_gnn.checks import check_choice, check_kind
from falcon_gnn.errors import require
from falcon_gnn.evaluation import Metrics, evaluate
from falcon_gnn.files import check_writable
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import require_graph
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.outcome import Correction, GraphSize, ReductionOutcome, RunOutcome, Scores, StageSeconds
from falcon_gnn.pipeline.outputs import CHECKPOINT_FILE, check_resumable, write_run
from falcon_gnn.pipeline.shortage import explain_shortage, is_out_of_memory
from falcon_gnn.pipeline.training_graph import TrainingGraph, prepare, reduce_training_graph
from falcon_gnn.planning.budget_text import Prefer
from falcon_gnn.provenance import describe_machine
from falcon_gnn.reduction.clock import OnStage
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.correction import CorrectedScores, choose_correction
from falcon_gnn.training.crew import Crew
from falcon_gnn.training.state import TrainResult
from falcon_gnn.training.steps import resolve_device
from falcon_gnn.training.trainer import train


def run(
    graph: Graph,
    config: RunConfig | None = None,
    *,
    name: str = "",
    memory: str | int | None = None,
    prefer: Prefer = "nodes",
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    on_stage: OnStage | None = None,
    log_dir: str | Path | None = None,
    crew: Crew | None = None,
) -> RunOutcome:
    """Reduce, train and score on the original graph.

    Args:
        graph: The original graph, with the masks to train, validate and test on.
        config: What to do; by default QSIGN is trained on the whole training graph.
        name: The graph's name, for the record.
        memory: Bytes that a training step may take, as
            :func:`falcon_gnn.planning.budget_text.parse_memory` reads them: sets the
            node budget of ``config.reduction``, which must be a FALCON collapse, and batches, pieces and bits.
        prefer: What to keep of a memory budget: all ``nodes``, by steps in pieces, or ``speed``, by fewer nodes.
        out: A folder for the record, the best weights, the learning curve, the map and the report; those of an earlier
            run are replaced, or removed where this one has none.
        resume: Go on from the checkpoint in ``out``.
        progress: Whether to show a progress bar where standard error is a terminal.
        on_stage: Called with the name of each stage as it begins.
        log_dir: A folder for TensorBoard curves.
        crew: The processes that train together, this one being their writer; see ``falcon_gnn.devices``.

    Raises:
        GraphError: If ``graph`` is no ``Graph``, or lacks what training needs.
        OptionError: If the graph and the options do not fit.
        BudgetError: If the budget does not fit the graph.
        ConvergenceError: If the loss becomes NaN or infinite, or a centrality does not converge.
        OutOfMemoryError: If memory runs out in the training.
        MissingDependencyError: If there is a ``log_dir`` and tensorboard is not installed.

    Example:
        >>> import falcon_gnn as fg
        >>> graph = fg.load_graph("digits")
        >>> training = fg.TrainConfig(fg.ModelConfig("sign", hidden_channels=32), num_epochs=5, learning_rate=0.01)
        >>> outcome = fg.run(graph, fg.RunConfig(training, fg.CollapseConfig(0.34)), progress=False)
        >>> outcome.trained_on.num_nodes, outcome.scores.test.num_nodes, outcome.memory.total < 2**24
        (367, 359, True)
    """
    require_graph(graph, Graph)
    if out is not None:
        check_writable(out)
    if resume:
        check_resumable(out)
    if log_dir is not None:
        check_writable(log_dir, option="log_dir")
        require("tensorboard", "tensorboard")
    config = RunConfig() if config is None else config
    check_kind("config", config, RunConfig)
    check_choice("prefer", prefer, get_args(Prefer))
    tell = on_stage or (lambda _: None)
    started = perf_counter()
    tell("reduction")
    config, trained_on, plan = prepare(graph, config, memory, on_stage, prefer=prefer)
    reduced_at = perf_counter()
    tell("training")
    result = train_prepared(
        trained_on, graph, config, out, resume=resume, progress=progress, log_dir=log_dir, crew=crew
    )
    trained_at = perf_counter()
    seconds = StageSeconds(reduced_at - started, trained_at - reduced_at)
    scores, correction = Scores(result.validation, result.test), None
    if config.correct_and_smooth:
        tell("correction")
        corrected = _correct(graph, result, config.training, trained_on.reduction)
        seconds = replace(seconds, correction=perf_counter() - trained_at)
        if corrected is not None:
            spec = corrected.spec
            correction = Correction(spec.correct, spec.smooth, scores, corrected.labels_alone)
            scores, result = Scores(corrected.validation, corrected.test), replace(result, spec=spec)
    outcome = RunOutcome(
        name=name,
        graph=GraphSize.of(graph),
        trained_on=GraphSize.of(trained_on.graph),
        config=config,
        reduction=trained_on.reduction,
        seconds=seconds,
        result=result,
        scores=scores,
        correction=correction,
        teacher=_score_teacher(graph, result, trained_on.reduction),
        plan=plan,
        machine=describe_machine(config.training.device),
    )
    if out is not None:
        tell("files")
        write_run(graph, outcome, out)
    return outcome


def train_prepared(
    trained_on: TrainingGraph, graph: Graph, config: RunConfig, out: str | Path | None, **options: Any
) -> TrainResult:
    """Train on a prepared graph, scored on the original one, with the checkpoint in the run's folder.

    Args:
        trained_on: As :func:`falcon_gnn.pipeline.training_graph.prepare` returns it.
        graph: The original graph.
        config: Likewise.
        out: The run's folder, or None.
        options: Further arguments of :func:`falcon_gnn.training.trainer.train`.

    Raises:
        OutOfMemoryError: If memory runs out.
    """
    checkpoint = None if out is None else Path(out) / CHECKPOINT_FILE
    try:
        return train(
            trained_on.graph,
            config.training,
            eval_graph=graph,
            hop_source=trained_on.hop_source,
            checkpoint=checkpoint,
            **options,
        )
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        # What the failed step holds is let go of with its frames, before a smaller one is looked for.
        error.__traceback__ = None
    raise explain_shortage(trained_on.graph, graph, config.training, checkpoint)


def run_reduction(graph: Graph, config: RunConfig, *, name: str = "") -> ReductionOutcome:
    """Reduce only; arguments as in :func:`run`."""
    started = perf_counter()
    trained_on = reduce_training_graph(graph, config)
    return ReductionOutcome(
        name=name,
        graph=GraphSize.of(graph),
        trained_on=GraphSize.of(trained_on.graph),
        config=config,
        reduction=trained_on.reduction,
        seconds=StageSeconds(perf_counter() - started),
    )


def _score_teacher(graph: Graph, result: TrainResult, reduction: CollapseResult | None) -> Metrics | None:
    """Return how good the teacher of a collapse is on the test nodes in its scope."""
    if reduction is None or reduction.teacher is None or graph.test_mask is None:
        return None
    asked = graph.test_mask & ~np.isnan(reduction.teacher[:, 0])
    if not asked.any():
        return None
    return evaluate(np.asarray(graph.y), reduction.teacher, result.spec.task, result.spec.num_outputs, asked)


def _correct(
    graph: Graph, result: TrainResult, training: TrainConfig, reduction: CollapseResult | None
) -> CorrectedScores | None:
    """Return what the training labels make of a model's predictions; removed nodes, unless averaged, help to choose."""
    model = result.model().to(resolve_device(training.device))
    unseen = None
    if reduction is not None and reduction.config.merge != "mean":
        unseen = np.setdiff1d(np.arange(graph.num_nodes), reduction.kept, assume_unique=True)
    return choose_correction(model, result.spec, graph, training.validation_metric, unseen)
