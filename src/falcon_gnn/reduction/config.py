"""The options of a collapse, checked as far as they can be without a graph."""

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from falcon_gnn.errors import BudgetError, OptionError
from falcon_gnn.labels import Task
from falcon_gnn.reduction.budgets import SELECTIONS, Selection
from falcon_gnn.reduction.centrality import centrality_name
from falcon_gnn.reduction.contraction import EdgeWeights, Order

Scope = Literal["train", "full"]
Merge = Literal["hub", "mean", "drop"]


@dataclass(frozen=True)
class CollapseConfig:
    """The options of a collapse; the defaults are the paper's.

    Attributes:
        node_budget: Ψ: an int (nodes to keep) or a float in (0, 1] (their share of the nodes in scope).
        centrality: ζ: ``degree betweenness closeness pagerank eigenvector random`` or DC BC CC PR EC.
        num_clusters: η, feature-label clusters; 1 is the pure centrality collapse.
        gamma: γ in [0, 1], weight of features against labels in the clustering.
        scope: ``"train"`` collapses the subgraph of the training nodes, ``"full"`` the whole graph with labels outside
            the training mask hidden; None: train if there is a training mask, else full with all labels visible.
        selection: ``"lowest"`` (the paper), ``"stratified"`` or ``"random"``: which nodes of a cluster survive.
        order: ``"cluster"`` (Alg. 1) or ``"global"``: the order of the merges.
        merge: ``"hub"`` (the paper): a survivor keeps its own features and labels; ``"mean"``: those of its group;
            ``"drop"``: no merging, the induced subgraph of the survivors.
        edge_weights: ``"none"`` (the paper), ``"count"`` or ``"sum"``: weights of the reduced graph's edges.
        seed: Draws ties, clusters and samples.
        task: What the labels are: ``"classes"``, ``"multilabel"``, ``"regression"`` or None (told from ``y``).
        num_classes: L for classes; None: largest visible class + 1.
        num_samples: Sources of betweenness; None for exact.
        closeness_samples: Sources of closeness; None for exact.

    Raises:
        OptionError: If an option is unknown or out of range.
    """

    node_budget: int | float
    centrality: str = "eigenvector"
    num_clusters: int = 100
    gamma: float = 0.5
    scope: Scope | None = None
    selection: Selection = "lowest"
    order: Order = "cluster"
    merge: Merge = "hub"
    edge_weights: EdgeWeights = "none"
    seed: int = 0
    task: Task | None = None
    num_classes: int | None = None
    num_samples: int | None = 100
    closeness_samples: int | None = None

    @classmethod
    def recommended(cls, node_budget: int | float, **options: Any) -> Self:
        """Return the options that we recommend in place of the paper's where a model reads the reduced graph.

        PageRank, and survivors that carry the mean of their group; measured in ``docs/budgets.md``.

        Args:
            node_budget: As in the class.
            options: Fields of the class; they override the recommendation.
        """
        return cls(**{"node_budget": node_budget, "centrality": "pagerank", "merge": "mean", **options})

    def __post_init__(self) -> None:
        """Check every option that can be checked without a graph."""
        object.__setattr__(self, "centrality", centrality_name(self.centrality))
        for name, choices in (
            ("scope", (*get_args(Scope), None)), ("selection", SELECTIONS), ("order", get_args(Order)),
            ("merge", get_args(Merge)), ("edge_weights", get_args(EdgeWeights)), ("task", (*get_args(Task), None)),
        ):  # fmt: skip
            _check_choice(name, getattr(self, name), choices)
        if not (_is_number(self.gamma) and 0 <= self.gamma <= 1):
            msg = f"gamma must lie in [0, 1] (0: labels only, 1: features only), got {self.gamma!r}."
            raise OptionError(msg)
        if not _is_number(self.node_budget) or not self.node_budget > 0:
            msg = f"node_budget must be a positive int (nodes) or a float in (0, 1] (share), got {self.node_budget!r}."
            raise BudgetError(msg)
        for name, least in (("num_clusters", 1), ("seed", 0)):
            _check_count(name, getattr(self, name), least)
        for name in ("num_classes", "num_samples", "closeness_samples"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), 1)


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
    """

    node_budget: int | float
    method: str = "variation_neighborhoods"
    scope: Scope | None = None
    seed: int = 0
    task: Task | None = None
    num_classes: int | None = None


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        msg = f"{name} must be one of {', '.join(str(choice) for choice in choices)}, got {value!r}."
        raise OptionError(msg)


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        msg = f"{name} must be a whole number of at least {least}, got {value!r}."
        raise OptionError(msg)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
