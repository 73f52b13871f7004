"""What came out of a run, typed; and the one place where it becomes JSON."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from falcon_gnn.evaluation import Metrics
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.provenance import describe_machine, describe_versions
from falcon_gnn.reduction.coarsening.door import CoarsenResult
from falcon_gnn.reduction.result import CollapseResult

if TYPE_CHECKING:  # A collapse is written by this room too, without torch.
    from falcon_gnn.planning.fit import MemoryPlan
    from falcon_gnn.training.memory import MemoryPeak
    from falcon_gnn.training.state import TrainResult


@dataclass(frozen=True)
class GraphSize:
    """How large a graph is.

    Attributes:
        num_nodes: Nodes.
        num_edges: Undirected edges.
        num_features: F.
    """

    num_nodes: int
    num_edges: int
    num_features: int

    @classmethod
    def of(cls, graph: Graph) -> "GraphSize":
        """Return the size of a graph."""
        return cls(graph.num_nodes, graph.num_edges, graph.num_features)


@dataclass(frozen=True)
class StageSeconds:
    """Wall-clock seconds of a run's stages.

    Attributes:
        reduction: The collapse, planning for a memory budget included.
        training: The training with its evaluations.
        correction: The choice of a correction by the training labels; None without one.
    """

    reduction: float
    training: float | None = None
    correction: float | None = None


@dataclass(frozen=True)
class Scores:
    """Scores on the original graph.

    Attributes:
        validation: On its validation nodes; None without any.
        test: On its test nodes; None without any.
    """

    validation: Metrics | None
    test: Metrics | None


@dataclass(frozen=True)
class Correction:
    """What the labels of the training nodes made of the model's predictions.

    Attributes:
        correct: α of the correction, 0 for none.
        smooth: α of the smoothing, 0 for none.
        model_alone: Scores of the model without them.
        labels_alone: Test scores of the labels without the model; None without test nodes.
    """

    correct: float
    smooth: float
    model_alone: Scores
    labels_alone: Metrics | None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReductionOutcome:
    """A training graph that was made and what it took.

    Attributes:
        name: The original graph's name.
        graph: Its size.
        trained_on: Size of what is trained on.
        config: The options, seeds included.
        reduction: The reduced graph, its map and its report; None without a reduction.
        seconds: Wall-clock seconds of each stage.
        machine: Processor, cores, memory and device; no names of hosts or users.
        versions: Versions of Python and of the libraries that matter.
    """

    name: str
    graph: GraphSize
    trained_on: GraphSize
    config: RunConfig
    reduction: CollapseResult | None
    seconds: StageSeconds
    machine: dict[str, Any] = field(default_factory=describe_machine)
    versions: dict[str, str] = field(default_factory=describe_versions)

    def __repr__(self) -> str:
        """Show the sizes; ``to_dict`` shows all."""
        name = f"{self.name!r}, " if self.name else ""
        return f"{type(self).__name__}({name}{self.graph.num_nodes} nodes, trained on {self.trained_on.num_nodes})"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; NaN becomes None."""
        record = {
            "graph": {"name": self.name, **asdict(self.graph)},
            "trained_on": asdict(self.trained_on),
            "config": self.config.to_dict(),
            "reduction": None if self.reduction is None else _reduction_facts(self.reduction),
            "seconds": {stage: value for stage, value in asdict(self.seconds).items() if value is not None},
            "machine": self.machine,
            "versions": self.versions,
        }
        plain: dict[str, Any] = plain_values(record)
        return plain


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RunOutcome(ReductionOutcome):
    """What one run left behind.

    Attributes:
        result: The trained model and its history.
        scores: Scores on the original graph; of the corrected predictions where they were corrected.
        correction: What the training labels did for the predictions; None where they had no part.
        teacher: Test scores of the collapse's teacher without a model; None without a teacher or test nodes.
        plan: What a memory budget led to; None without one.
    """

    result: "TrainResult"
    scores: Scores
    correction: Correction | None = None
    teacher: Metrics | None = None
    plan: "MemoryPlan | None" = None

    @property
    def memory(self) -> "MemoryPeak | None":
        """The measured peak of a training step on the most expensive batch, in bytes by kind; None where not asked."""
        return self.result.memory

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; NaN becomes None."""
        result = self.result
        record = {
            "scores": asdict(self.scores),
            "correction": None if self.correction is None else asdict(self.correction),
            "training": {
                "num_epochs": len(result.epochs),
                "best_epoch": result.best_epoch,
                "best_score": result.best_score,
                "stopped_early": result.stopped_early,
                "num_parameters": result.num_parameters,
                "epoch_seconds_quartiles": list(result.epoch_seconds),
            },
            "memory": None if self.memory is None else {"measure": self.memory.measure, **asdict(self.memory)},
        }
        if self.teacher is not None:
            record["teacher"] = asdict(self.teacher)
        if self.plan is not None:
            estimate = self.plan.estimate
            sums = {"total": estimate.total, "evaluation": self.plan.evaluation_bytes, "budget": self.plan.memory_bytes}
            record["plan"] = asdict(estimate) | sums
        plain: dict[str, Any] = plain_values(record)
        return {**super().to_dict(), **plain}


def plain_values(value: Any) -> Any:
    """Return nested data as JSON can hold it: NumPy numbers as Python's, NaN as None."""
    if isinstance(value, dict):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _reduction_facts(result: CollapseResult) -> dict[str, Any]:
    report = result.report
    labels = report.labels
    error = result.spectral_error if isinstance(result, CoarsenResult) else None
    return {
        "num_dropped": report.num_dropped,
        "seconds": report.seconds,
        "label_distribution_error": labels and labels.label_distribution_error,
        "label_distribution_error_relative": labels and labels.label_distribution_error_relative,
        "adjusted_homophily": report.adjusted_homophily,
        "num_nodes_in_scope": report.before.num_nodes,
        "spectral_error": error and asdict(error),
    }
