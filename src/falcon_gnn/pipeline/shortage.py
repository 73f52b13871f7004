"""What to say when memory runs out in a training: how much was needed, how much is free, what would fit."""

from pathlib import Path

from falcon_gnn.errors import BudgetError, OutOfMemoryError
from falcon_gnn.graph import Graph
from falcon_gnn.planning.budget_text import free_memory
from falcon_gnn.planning.estimate import estimate_evaluation, estimate_memory
from falcon_gnn.planning.fit import fit_shape, shape_of_scoring
from falcon_gnn.resources import format_bytes
from falcon_gnn.training.config import TrainConfig
from falcon_gnn.training.shapes import shape_of_graph

_PHRASES = ("out of memory", "not enough memory", "can't allocate memory", "of memory are needed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a device or on the machine."""
    text = f"{type(error).__name__} {error}".lower()
    return isinstance(error, MemoryError) or "outofmemory" in text or any(phrase in text for phrase in _PHRASES)


def explain_shortage(
    graph: Graph, label_graph: Graph, config: TrainConfig, checkpoint: Path | None
) -> OutOfMemoryError:
    """Return the error of a training that ran out of memory, with the smallest change that fits.

    Args:
        graph: What was trained on.
        label_graph: The original graph, on which the model is scored.
        config: The model and how it was trained.
        checkpoint: Where the state was written, or None.
    """
    shape = shape_of_graph(graph, config, label_graph)
    scored, free = shape_of_scoring(label_graph, config), free_memory(config.device)
    phases = {"a step": estimate_memory(shape, config).total, "an evaluation": estimate_evaluation(scored, config)}
    phase = max(phases, key=lambda name: phases[name])
    needed = format_bytes(phases[phase], round_up=True)
    parts = [f"training ran out of memory: {phase} needs {needed} by prediction"]
    if free is not None:
        parts.append(f"{format_bytes(free)} are free")
        try:
            plan = fit_shape(shape, config, free, scored)
        except BudgetError:
            parts.append(f"no smaller {phase.split()[-1]} of this model fits")
        else:
            changes = _changes(config, plan.training)
            if plan.needs_collapse:
                changes.append(f"{plan.node_budget:,} of {plan.num_nodes:,} nodes")
            fix = ", ".join(changes) or f"fewer other programs on the machine: {phase} itself fits"
            parts.append(f"what fits is {fix}")
    if checkpoint is not None and checkpoint.exists():
        parts.append(f"{checkpoint} is whole, go on with resume")
    return OutOfMemoryError("; ".join(parts) + ".")


def _changes(config: TrainConfig, fitting: TrainConfig) -> list[str]:
    """Return the options in which a plan differs from what was asked for."""
    names = ("micro_batches", "keep_matrix", "column_blocks", "num_batches", "eval_piece_bytes")
    found = [f"{name}={getattr(fitting, name)}" for name in names if getattr(fitting, name) != getattr(config, name)]
    bits = fitting.model.bits
    return found if bits == config.model.bits else [*found, f"bits={bits}"]
