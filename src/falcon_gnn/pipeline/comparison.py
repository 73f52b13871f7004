"""Runs side by side, for the terminal and for the page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from falcon_gnn.evaluation import score_title, shown_score
from falcon_gnn.pipeline.outcome import Correction, RunOutcome
from falcon_gnn.reporting.formats import NOTHING
from falcon_gnn.reporting.sections import Picture, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from falcon_gnn.training.memory import MemoryPeak


def compare_runs(outcomes: Mapping[str, RunOutcome]) -> Table:
    """Return what each run trained on, its scores on the original graph, memory of a step and median time of an epoch.

    Args:
        outcomes: The runs, by the name to show.
    """
    is_scored = any(outcome.scores.test is not None for outcome in outcomes.values())
    caption = "Trained, and scored on the original graph" if is_scored else "Trained; no test node to score on"
    scores = {name: _test_scores(outcome) for name, outcome in outcomes.items()}
    headings = list(dict.fromkeys(heading for shown in scores.values() for heading in shown))
    rows = [
        (
            name,
            f"{outcome.trained_on.num_nodes:,} nodes",
            *(scores[name].get(heading, NOTHING) for heading in headings),
            NOTHING if outcome.memory is None else _peak(outcome.memory),
            f"{1000 * outcome.result.epoch_seconds[1]:.1f} ms",
            f"{len(outcome.result.epochs):,} (best {outcome.result.best_epoch:,})",
        )
        for name, outcome in outcomes.items()
    ]
    return Table(["run", "trained on", *headings, "peak memory", "epoch time", "epochs"], rows, caption)


def training_section(outcomes: Mapping[str, RunOutcome]) -> Section:
    """Return the part of a page about runs: the table of them, and of a single one its learning curve and its peak.

    Args:
        outcomes: The runs, by the name to show.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    table = compare_runs(outcomes)
    columns = [column[0].upper() + column[1:] for column in table.columns]
    blocks: list[Table | Picture] = [Table(columns, table.rows, f"{table.caption}.")]
    sentences = ["Peak memory is that of one training step, epoch time the median."]
    if len(outcomes) == 1:
        (outcome,) = outcomes.values()
        caption = "Training loss and validation score of each epoch; the weights of the best one are kept."
        blocks.append(Picture(draw_learning_curve(outcome), caption))
        if outcome.memory is not None:
            blocks.append(_split_peak(outcome.memory))
        if outcome.config.correct_and_smooth:
            sentences.append(describe_correction(outcome.correction))
    return Section("Training", blocks, " ".join(sentences))


def draw_learning_curve(outcome: RunOutcome) -> "Figure":
    """Return the training loss and the validation score over the epochs of a run.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    from falcon_gnn.reporting.plots import learning_curve_figure

    result, metric = outcome.result, outcome.config.training.validation_metric
    task = result.spec.task
    return learning_curve_figure(
        [record.epoch for record in result.epochs],
        [record.loss for record in result.epochs],
        [None if record.score is None else shown_score(record.score, task) for record in result.epochs],
        result.best_epoch,
        score_name=f"Validation {score_title(metric, task)}",
    )


def describe_correction(correction: Correction | None) -> str:
    """Return what the labels of the training nodes did for the predictions."""
    if correction is None:
        return "Not corrected: that takes classes or multi-label, labelled training nodes and validation nodes."
    if correction.correct == correction.smooth == 0:
        return "No correction by the training labels helped on held-out nodes."
    tests = {"model": correction.model_alone.test, "labels": correction.labels_alone}
    alone = [f"the {name} alone {_percent(test.accuracy)}" for name, test in tests.items() if test is not None]
    steps = f"correct {correction.correct}, smooth {correction.smooth}"
    tail = f"; accuracy of {', of '.join(alone)}" if alone else ""
    return f"Corrected by the training labels ({steps}){tail}."


def _test_scores(outcome: RunOutcome) -> dict[str, str]:
    """Return the scores on the test nodes that say something of the task, by their headings."""
    test = outcome.scores.test
    if outcome.result.spec.task == "regression":
        return {"test mean squared error": NOTHING if test is None else f"{test.mean_squared_error:.4g}"}
    return {
        "test accuracy": NOTHING if test is None else _percent(test.accuracy),
        "micro-F1": NOTHING if test is None else _percent(test.micro_f1),
    }


def _percent(share: float) -> str:
    return f"{share:.2%}"


def _split_peak(memory: "MemoryPeak") -> Table:
    """Return what a peak holds, by kind."""
    from falcon_gnn.training.memory import KINDS

    rows = [(kind, getattr(memory, kind) / 2**20) for kind in KINDS]
    return Table(["Kind", "MiB at the peak"], [*rows, ("total", memory.total_mib)], "What the peak memory holds.")


def _peak(memory: "MemoryPeak") -> str:
    """Return a peak with what it is a peak of, where that is not live tensors."""
    what = "" if memory.measure == "tensors" else f" {memory.measure}"
    return f"{memory.total_mib:,.1f} MiB{what}"
