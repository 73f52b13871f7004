"""The demonstration on embedded real data: collapse, train with and without, compare."""

from dataclasses import dataclass, replace
from pathlib import Path

from falcon_gnn.datasets.load import load_graph
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.outcome import RunOutcome
from falcon_gnn.pipeline.outputs import COLLAPSE_FILES, write_collapse, write_json
from falcon_gnn.pipeline.run import run
from falcon_gnn.reduction.clock import OnStage
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.report import CollapseReport
from falcon_gnn.training.config import ModelConfig, ModelName, TrainConfig

NODE_BUDGET = 0.34
_RECORDS_FILE = "records.json"
DEMO_FILES = (*COLLAPSE_FILES, _RECORDS_FILE)
"""What the demonstration writes; the page needs the extra ``report``."""
_TRAINING = TrainConfig(
    ModelConfig("sign", hidden_channels=512, num_layers=3, dropout=0.5, batch_norm=True, num_hops=2),
    learning_rate=0.002,
    num_epochs=60,
    patience=20,
)


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration found.

    Attributes:
        report: The collapse.
        outcomes: The runs, by the name to show.
        has_page: Whether the HTML page was written.
    """

    report: CollapseReport
    outcomes: dict[str, RunOutcome]
    has_page: bool


def run_demo(out: str | Path, on_stage: OnStage) -> Demonstration:
    """Collapse ``digits`` to 34 %, train SIGN and QSIGN on the full and on the collapsed graph, write the report."""
    out = Path(out)
    on_stage("loading")
    graph = load_graph("digits")
    reduction = CollapseConfig(NODE_BUDGET, centrality="pagerank")
    result = collapse(graph, reduction, on_stage=on_stage)
    models: tuple[ModelName, ...] = ("sign", "qsign")
    outcomes = {
        f"{model.upper()}, {size}": _train(graph, model, chosen, on_stage)
        for model in models
        for size, chosen in (("full graph", None), ("collapsed", reduction))
    }
    has_page = write_collapse(graph, result, out, title="digits collapsed", outcomes=outcomes)
    write_json({name: outcome.to_dict() for name, outcome in outcomes.items()}, out / _RECORDS_FILE)
    return Demonstration(result.report, outcomes, has_page)


def _train(graph: Graph, model: ModelName, reduction: CollapseConfig | None, on_stage: OnStage) -> RunOutcome:
    training = replace(_TRAINING, model=replace(_TRAINING.model, model=model))
    return run(graph, RunConfig(training, reduction), name="digits", on_stage=on_stage)
