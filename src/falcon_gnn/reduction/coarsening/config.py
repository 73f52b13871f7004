"""The options of the coarsening baseline."""

from dataclasses import dataclass
from typing import Literal, get_args

from falcon_gnn.checks import check_choice, plain_numbers
from falcon_gnn.labels import Task
from falcon_gnn.reduction.config import CollapseConfig, Scope

CoarsenMethod = Literal["variation_neighborhoods", "heavy_edge"]


@dataclass(frozen=True)
class CoarsenConfig:
    """The options of the coarsening baseline (Huang et al. 2021).

    Attributes:
        node_budget: As in :class:`CollapseConfig`.
        method: ``"variation_neighborhoods"`` (Loukas 2019) or ``"heavy_edge"`` matching.
        scope: As in :class:`CollapseConfig`.
        seed: Draws what the method draws.
        task: As in :class:`CollapseConfig`.
        num_classes: As in :class:`CollapseConfig`.

    Raises:
        BudgetError: If the budget is out of range.
        OptionError: If another option is unknown or out of range.
    """

    node_budget: int | float
    method: CoarsenMethod = "variation_neighborhoods"
    scope: Scope | None = None
    seed: int = 0
    task: Task | None = None
    num_classes: int | None = None

    def __post_init__(self) -> None:
        """Check every option that can be checked without a graph."""
        plain_numbers(self)
        check_choice("method", self.method, get_args(CoarsenMethod))
        self.pooling  # noqa: B018

    @property
    def pooling(self) -> CollapseConfig:
        """How attributes and edges of a group are pooled, in the terms of a collapse."""
        return CollapseConfig(
            self.node_budget, centrality="degree", num_clusters=1, scope=self.scope, merge="mean", edge_weights="sum",
            seed=self.seed, task=self.task, num_classes=self.num_classes,
        )  # fmt: skip
