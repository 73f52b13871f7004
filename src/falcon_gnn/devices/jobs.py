"""A run as each process of a team does it: all reduce and train, rank 0 also scores, records and writes."""

from pathlib import Path
from typing import Any

from torch import distributed

from falcon_gnn.devices.team import Team
from falcon_gnn.graph import Graph
from falcon_gnn.pipeline.options import RunConfig
from falcon_gnn.pipeline.outcome import RunOutcome
from falcon_gnn.pipeline.run import run, train_prepared
from falcon_gnn.pipeline.training_graph import prepare


def run_on_team(
    graph: Graph,
    config: RunConfig,
    team: Team,
    *,
    memory: str | int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **options: Any,
) -> RunOutcome | None:
    """Do this process's part of a run.

    Args:
        graph: The original graph, the same in every process.
        config: What to do, likewise.
        team: The processes.
        memory: As in :func:`falcon_gnn.run`; several devices take no step in pieces.
        out: As in :func:`falcon_gnn.run`; on storage that all processes see where ``resume`` is wanted.
        resume: As in :func:`falcon_gnn.run`.
        options: Further arguments of :func:`falcon_gnn.run`; rank 0 alone makes use of them.

    Returns:
        What the run left behind, on rank 0; None elsewhere.

    Raises:
        OptionError: If several devices cannot train this, or the graph and the options do not fit.
        BudgetError: If the budget does not fit the graph.
    """
    team.fit(config.training)
    if team.is_writer:
        outcome = run(graph, config, memory=memory, prefer="speed", out=out, resume=resume, crew=team, **options)
        distributed.barrier()
        return outcome
    config, trained_on, _ = prepare(graph, config, memory, prefer="speed")
    train_prepared(trained_on, graph, config, out, resume=resume, progress=False, crew=team)
    # The others would end, and with them the group, while rank 0 scores and writes.
    distributed.barrier()
    return None
