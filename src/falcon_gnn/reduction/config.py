"""The options of a collapse, checked as far as they can be without a graph."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from falcon_gnn.errors import BudgetError, OptionError
from falcon_gnn.labels import Task
from falcon_gnn.reduction.budgets import SELECTIONS, Selection
from falcon_gnn.reduction.centrality import centrality_name
from falcon_gnn.reduction.contraction import EdgeWeights, Order

Scope = Literal["train", "full"]
Merge = Literal["hub", "mean", "drop"]
GroupRule = Literal["neighbors", "alike"]
ClusterOn = Literal["hops", "teacher"]
BY_GROUPS: dict[str, dict[str, Any]] = {
    "neighbors": {"selection": "lowest", "order": "cluster", "merge": "hub", "edge_weights": "none"},
    "alike": {"merge": "mean", "edge_weights": "sum"},
}
"""What an option is that depends on ``groups`` and is not given."""


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
        selection: ``"lowest"`` (the paper and the default), ``"stratified"`` or ``"random"``: which nodes of a cluster
            survive. For ``groups="neighbors"`` only.
        order: ``"cluster"`` (Alg. 1, the default) or ``"global"``: the order of the merges. Likewise.
        merge: ``"hub"`` (the paper; the default for neighbors): a survivor keeps its own features and labels;
            ``"mean"`` (the default for alike nodes): those of its group; ``"drop"``: no merging, the induced subgraph
            of the survivors.
        edge_weights: ``"none"`` (the paper; the default for neighbors), ``"count"`` or ``"sum"`` (the default for alike
            nodes; without weights as ``"count"``): weights of the reduced graph's edges.
        seed: Draws ties, clusters and samples.
        task: What the labels are: ``"classes"``, ``"multilabel"``, ``"regression"`` or None (told from ``y``).
        num_classes: L for classes; None: largest visible class + 1.
        num_samples: Sources of betweenness; None for exact.
        closeness_samples: Sources of closeness; None for exact.
        groups: Who merges with whom: ``"neighbors"`` (Alg. 1): a node with its strongest neighbor; ``"alike"`` (ours):
            nodes of one class that a GNN sees alike, :mod:`falcon_gnn.reduction.alike`.
        num_hops: For alike nodes: k of the hop features ÃX, …, Ã^k X that are compared.
        cluster_on: For alike nodes: what is compared, ``"hops"``, or where few nodes are labelled ``"teacher"``: the
            outputs of a ridge regression on 2k hops, whose probabilities then also label the groups
            (:mod:`falcon_gnn.reduction.teacher`).

    Raises:
        OptionError: If an option is unknown or out of range.
    """

    node_budget: int | float
    centrality: str = "eigenvector"
    num_clusters: int = 100
    gamma: float = 0.5
    scope: Scope | None = None
    selection: Selection | None = None
    order: Order | None = None
    merge: Merge | None = None
    edge_weights: EdgeWeights | None = None
    seed: int = 0
    task: Task | None = None
    num_classes: int | None = None
    num_samples: int | None = 100
    closeness_samples: int | None = None
    groups: GroupRule = "neighbors"
    num_hops: int = 2
    cluster_on: ClusterOn = "hops"

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
            ("scope", (*get_args(Scope), None)), ("selection", (*SELECTIONS, None)),
            ("order", (*get_args(Order), None)), ("merge", (*get_args(Merge), None)),
            ("edge_weights", (*get_args(EdgeWeights), None)), ("task", (*get_args(Task), None)),
            ("groups", get_args(GroupRule)), ("cluster_on", get_args(ClusterOn)),
        ):  # fmt: skip
            _check_choice(name, getattr(self, name), choices)
        if not (_is_number(self.gamma) and 0 <= self.gamma <= 1):
            msg = f"gamma must lie in [0, 1] (0: labels only, 1: features only), got {self.gamma!r}."
            raise OptionError(msg)
        if not _is_number(self.node_budget) or not self.node_budget > 0:
            msg = f"node_budget must be a positive int (nodes) or a float in (0, 1] (share), got {self.node_budget!r}."
            raise BudgetError(msg)
        for name in ("selection", "order"):
            if self.groups == "alike" and getattr(self, name) is not None:
                msg = (
                    f"{name} is an option of groups='neighbors', where nodes are ranked; got {name}="
                    f"{getattr(self, name)!r} with groups='alike'. Leave it out."
                )
                raise OptionError(msg)
        if self.cluster_on == "teacher" and self.groups != "alike":
            msg = f"cluster_on='teacher' is an option of groups='alike', got groups={self.groups!r}. Set both, or none."
            raise OptionError(msg)
        for name, least in (("num_clusters", 1), ("seed", 0), ("num_hops", 1)):
            _check_count(name, getattr(self, name), least)
        for name in ("num_classes", "num_samples", "closeness_samples"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), 1)

    def resolved(self) -> Self:
        """Return the same with the options that depend on ``groups`` filled in where they are not given."""
        missing = {name: value for name, value in BY_GROUPS[self.groups].items() if getattr(self, name) is None}
        return replace(self, **missing)


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
