"""What a run, a collapse, a plan and a prediction leave on the disk, each file whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.datasets.load import GRAPH_FILE
from falcon_gnn.errors import MissingDependencyError, OptionError
from falcon_gnn.files import replacing
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.comparison import draw_learning_curve, training_section
from falcon_gnn.pipeline.outcome import RunOutcome, plain_values
from falcon_gnn.reduction.config import Scope
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.training.config import TrainConfig

RECORD_FILE = "record.json"
REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
MAPPING_FILE = "mapping.npz"
CURVE_FILE = "learning_curve.png"
CHECKPOINT_FILE = "checkpoint.safetensors"

_REDUCTION_FILES = (MAPPING_FILE, REPORT_FILE, PAGE_FILE)
COLLAPSE_FILES = (GRAPH_FILE, *_REDUCTION_FILES)
"""What :func:`write_collapse` writes; the page needs the extra ``report``."""


def write_collapse(
    graph: Graph,
    result: CollapseResult,
    folder: str | Path,
    *,
    title: str = "Collapse report",
    outcomes: Mapping[str, RunOutcome] | None = None,
) -> bool:
    """Write ``graph.npz``, ``mapping.npz``, ``report.json`` and ``report.html``, each whole or not at all.

    Where the page cannot be written, an earlier collapse's is removed.

    Args:
        graph: The input of the collapse.
        result: What came of it.
        folder: Where to write.
        title: Heading of the page.
        outcomes: Runs for the page to compare, by the name to show.

    Returns:
        Whether ``report.html`` was written; it needs the extra ``report``.
    """
    from falcon_gnn.datasets.archive import write_npz

    folder = Path(folder)
    write_npz(result.graph, folder / GRAPH_FILE)
    return _write_reduction(graph, result, folder, title, outcomes or {})


def write_run(graph: Graph, outcome: RunOutcome, folder: str | Path) -> bool:
    """Write the record, the best weights, the learning curve, and the map and report of the reduction.

    The map and report of an earlier run in the folder, as its record tells, are removed where this one has none: they
    would be taken for this run's. Beside a ``graph.npz`` they are those of a collapse, and stay.

    Args:
        graph: The original graph.
        outcome: What came of the run.
        folder: Where to write.

    Returns:
        Whether the plots were written; they need the extra ``report``.
    """
    from falcon_gnn.training.weights import save_model

    folder = Path(folder)
    is_stale = outcome.reduction is None and _had_reduction(folder) and not (folder / GRAPH_FILE).exists()
    save_model(folder, outcome.result.spec, outcome.result.weights)
    write_json(outcome.to_dict(), folder / RECORD_FILE)
    has_plots = _write_curve(outcome, folder / CURVE_FILE)
    if outcome.reduction is not None:
        model = outcome.config.training.model.model
        _write_reduction(graph, outcome.reduction, folder, "Collapse and training", {model: outcome})
    for name in _REDUCTION_FILES if is_stale else ():
        (folder / name).unlink(missing_ok=True)
    return has_plots


def _had_reduction(folder: Path) -> bool:
    """Whether a folder holds the record of a run with a reduction."""
    try:
        record = json.loads((folder / RECORD_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and bool(record.get("reduction"))


def run_files(outcome: RunOutcome) -> tuple[str, ...]:
    """Return the names of what a run writes into its folder; curve and page need the extra ``report``."""
    from falcon_gnn.training.weights import SPEC_FILE, WEIGHTS_FILE

    names = (CHECKPOINT_FILE, SPEC_FILE, WEIGHTS_FILE, RECORD_FILE, CURVE_FILE)
    return names if outcome.reduction is None else (*names, *_REDUCTION_FILES)


def check_resumable(folder: str | Path | None) -> None:
    """Stop before the work where a run has no checkpoint to go on from.

    Args:
        folder: The run's folder.

    Raises:
        OptionError: If there is none, or it is no whole checkpoint.
    """
    from falcon_gnn.training.checkpoint import check_checkpoint

    if folder is None:
        msg = "resume needs the folder of the run to go on with, got out=None. Pass the out of that run."
        raise OptionError(msg)
    check_checkpoint(Path(folder) / CHECKPOINT_FILE)


def write_json(value: dict[str, Any], path: str | Path) -> None:
    """Write a JSON file, whole or not at all; NaN becomes null."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(plain_values(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_peak_curves(
    graph: Graph, configs: Mapping[str, TrainConfig], memory: str, path: str | Path, *, scope: Scope | None = None
) -> None:
    """Draw the predicted peak of a training step over the node budget, one line per configuration.

    Args:
        graph: The original graph.
        configs: Configurations by the name to show.
        memory: A budget to draw as a reference, as :func:`falcon_gnn.planning.budget_text.parse_memory` reads it.
        path: The ``.png`` or ``.svg`` file to write.
        scope: As in :class:`falcon_gnn.RunConfig`.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    from falcon_gnn.planning.budget_text import device_memory, parse_memory
    from falcon_gnn.planning.fit import predict_curve
    from falcon_gnn.reporting.plots import Line, LineAxes, lines_figure
    from falcon_gnn.reporting.style import save_figure

    lines = {}
    for name, config in configs.items():
        budgets, peaks = predict_curve(graph, config, scope=scope)
        lines[name] = Line(budgets, [peak / 2**20 for peak in peaks])
    device = next(iter(configs.values())).device
    limit = parse_memory(memory, lambda: device_memory(device)) / 2**20
    axes = LineAxes(
        "Nodes kept", "Predicted peak (MiB)", "Peak of a training step", log_y=True,
        references={f"budget: {memory}": limit},
    )  # fmt: skip
    save_figure(lines_figure(lines, axes), path)


def predict_to_file(folder: str | Path, graph: Graph, path: str | Path) -> int:
    """Label the nodes of a graph with the model of a run and write a Parquet (or ``.csv``) table.

    Columns: ``node_id`` (the graph's own ids where it has them; as text where they are neither numbers nor text alone),
    ``prediction``, and but for regression ``probability``. Several outputs, as of multi-label (0 and 1 each) and of a
    regression target of several columns, are a list in Parquet and a column each in CSV: ``prediction_0``,
    ``prediction_1`` and so on, then ``probability_0`` and so on.

    Args:
        folder: A folder that :func:`falcon_gnn.run` wrote.
        graph: Any graph with the features that the model was trained on; where the run corrected its predictions, with
            the labels of training nodes as well.
        path: The table to write.

    Returns:
        The number of nodes labelled.

    Raises:
        OptionError: If the folder holds no model, or the path ends otherwise.
        GraphError: If the graph's features do not fit it.
    """
    check_table_name(path)
    from falcon_gnn.training.correction import predict_corrected
    from falcon_gnn.training.weights import load_model

    model, spec = load_model(folder)
    scores = predict_corrected(model, spec, graph)
    ids = graph.node_attributes.get("node_id", np.arange(graph.num_nodes))
    _write_table({"node_id": ids, **_prediction_columns(scores, spec.task)}, path)
    return graph.num_nodes


def check_table_name(path: str | Path) -> None:
    """Stop at a table that is neither Parquet nor CSV by its name.

    Raises:
        OptionError: If so.
    """
    if Path(path).suffix not in (".csv", ".parquet"):
        msg = f"path must end in .parquet or .csv, got {str(path)!r}."
        raise OptionError(msg)


def _write_reduction(
    graph: Graph, result: CollapseResult, folder: Path, title: str, outcomes: Mapping[str, RunOutcome]
) -> bool:
    result.save_mapping(folder / MAPPING_FILE)
    write_json(result.report.to_dict(), folder / REPORT_FILE)
    from falcon_gnn.reporting.drawing import draw_section
    from falcon_gnn.reporting.html import write_report

    try:
        training = [training_section(outcomes)] if outcomes else []
        sections = [*training, draw_section(graph, result)]
        write_report(result.report, folder / PAGE_FILE, title=title, sections=sections)
    except MissingDependencyError:
        (folder / PAGE_FILE).unlink(missing_ok=True)
        return False
    return True


def _write_curve(outcome: RunOutcome, path: Path) -> bool:
    from falcon_gnn.reporting.style import save_figure

    try:
        save_figure(draw_learning_curve(outcome), path)
    except MissingDependencyError:
        path.unlink(missing_ok=True)
        return False
    return True


def _prediction_columns(scores: NDArray[np.float32], task: str) -> dict[str, NDArray[Any]]:
    """Return what a table shows of a model's outputs, shape ``(N,)`` each, or ``(N, L)`` for several outputs."""
    if task == "regression":
        return {"prediction": scores[:, 0] if scores.shape[1] == 1 else scores}
    if task == "multilabel":
        probability = 1 / (1 + np.exp(-scores.astype(np.float64)))
        return {"prediction": (scores > 0).astype(np.uint8), "probability": probability.astype(np.float32)}
    shifted = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return {
        "prediction": scores.argmax(axis=1),
        "probability": (shifted.max(axis=1) / shifted.sum(axis=1)).astype(np.float32),
    }


def _write_table(columns: Mapping[str, NDArray[Any]], path: str | Path) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    is_csv = Path(path).suffix == ".csv"
    shown: dict[str, Any] = {}
    for name, values in columns.items():
        if values.ndim == 1:
            shown[name] = [str(value) for value in values] if values.dtype.hasobject else values
        elif is_csv:
            shown |= {f"{name}_{i}": column for i, column in enumerate(values.T)}
        else:
            shown[name] = list(values)
    table = pa.table({name: pa.array(values) for name, values in shown.items()})
    with replacing(path) as temporary:
        if is_csv:
            pyarrow.csv.write_csv(table, temporary)
        else:
            pyarrow.parquet.write_table(table, temporary)
