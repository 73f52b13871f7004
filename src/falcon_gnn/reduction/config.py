"""The options of a collapse, checked as far as they can be without a graph."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, get_args

from falcon_gnn.checks import check_choice, check_whole, is_number, plain_numbers
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

Config = TypeVar("Config", bound="HasBudget")


class HasBudget(Protocol):
    """A configuration of a reduction."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True)
class CollapseConfig:
    """The options of a collapse; the defaults are the paper's.

    Attributes:
        node_budget: Nodes to keep (Ψ): a whole number, or with a decimal point their share of the nodes in scope, above
            0 and at most 1.0.
        centrality: What ranks the nodes (ζ): ``degree``, ``betweenness``, ``closeness``, ``pagerank``, ``eigenvector``
            or ``random``; or DC, BC, CC, PR, EC.
        num_clusters: Feature-label clusters (η); 1 is the pure centrality collapse.
        gamma: Weight of features against labels in the clusters (γ), from 0 to 1.
        scope: What is collapsed: ``train``, the subgraph of the training nodes, or ``full``, the whole graph with the
            labels outside the training mask hidden. By default train if there is a training mask, else full with all
            labels visible.
        selection: Which nodes of a cluster survive, for neighbors: all but the ``lowest`` (the paper and the default),
            ``stratified``, ``random``, or ``herding``: of each class the nodes whose mean follows that of the class
            (:mod:`falcon_gnn.reduction.herding`), a baseline of others that takes no clusters.
        order: Order of the merges, for neighbors: ``cluster`` by cluster (Alg. 1, the default) or ``global``.
        merge: What a survivor carries: its own features and labels (``hub``, the paper and the default for neighbors),
            the ``mean`` of its group (the default for alike nodes), or ``drop``: its own, and nothing is merged. The
            last gives the induced subgraph of the survivors.
        edge_weights: Weights of the reduced graph's edges: ``none`` (the paper and the default for neighbors),
            ``count``, or ``sum`` (the default for alike nodes). Without weights the last two are the same.
        seed: Draws ties, clusters and samples; on the command also a random split.
        task: What the labels are: ``classes``, ``multilabel`` or ``regression``; told from the labels by default.
        num_classes: Number of classes (L); by default the largest visible class + 1.
        num_samples: Sources of betweenness; none for exact.
        closeness_samples: Sources of closeness; exact by default.
        groups: Who merges with whom: a node with its strongest neighbor (``neighbors``, Alg. 1), or nodes of one class
            that a GNN sees ``alike`` (ours). See :mod:`falcon_gnn.reduction.alike`.
        num_hops: Hops k of the features ÃX, …, Ã^k X that alike nodes are compared by, and that herding follows.
        cluster_on: What alike nodes are compared by: ``hops``, or where few nodes are labelled the outputs of a
            ``teacher``. That is a ridge regression on 2k hops, whose probabilities then also label the groups
            (:mod:`falcon_gnn.reduction.teacher`). Nodes selected at random or by herding can be labelled so too, which
            is a baseline.
        soft_labels: Share, from 0 to 0.5, of what other nodes say of a node in its label (ours): a class becomes
            probabilities, of which a ridge regression on X, hops and neighbors' labels has this share. A group has the
            mean of its members. Other labels than classes, and those of a graph without features, stay as they are.
            See :mod:`falcon_gnn.reduction.soft_labels`.

    Raises:
        BudgetError: If the budget is out of range.
        OptionError: If another option is unknown or out of range.
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
    soft_labels: float = 0.0

    @classmethod
    def recommended(cls, node_budget: int | float, **options: Any) -> Self:
        """Return the options that we recommend in place of the paper's: groups of alike nodes (``docs/judged.md``).

        Args:
            node_budget: As in the class.
            options: Fields of the class; they override the recommendation.
        """
        return cls(**{"node_budget": node_budget, "groups": "alike", **options})

    def __post_init__(self) -> None:
        """Check every option that can be checked without a graph."""
        plain_numbers(self)
        object.__setattr__(self, "centrality", centrality_name(self.centrality))
        for name, choices in (
            ("scope", (*get_args(Scope), None)), ("selection", (*SELECTIONS, None)),
            ("order", (*get_args(Order), None)), ("merge", (*get_args(Merge), None)),
            ("edge_weights", (*get_args(EdgeWeights), None)), ("task", (*get_args(Task), None)),
            ("groups", get_args(GroupRule)), ("cluster_on", get_args(ClusterOn)),
        ):  # fmt: skip
            check_choice(name, getattr(self, name), choices)
        if not (is_number(self.gamma) and 0 <= self.gamma <= 1):
            msg = f"gamma must lie in [0, 1] (0: labels only, 1: features only), got {self.gamma!r}."
            raise OptionError(msg)
        if not (is_number(self.soft_labels) and 0 <= self.soft_labels <= 0.5):
            msg = (
                "soft_labels must lie in [0, 0.5], so that a node's own label stays the likeliest, got "
                f"{self.soft_labels!r}."
            )
            raise OptionError(msg)
        if not is_number(self.node_budget) or not self.node_budget > 0:
            msg = f"node_budget must be a positive int (nodes) or a float in (0, 1] (share), got {self.node_budget!r}."
            raise BudgetError(msg)
        for name in ("selection", "order"):
            if self.groups == "alike" and getattr(self, name) is not None:
                msg = (
                    f"{name} is an option of groups='neighbors', where nodes are ranked; got {name}="
                    f"{getattr(self, name)!r} with groups='alike'. Leave it out."
                )
                raise OptionError(msg)
        if self.cluster_on == "teacher" and self.groups != "alike" and self.selection not in ("random", "herding"):
            msg = (
                "cluster_on='teacher' is an option of groups='alike', and of selection='random' and 'herding', got "
                f"groups={self.groups!r} with selection={self.selection!r}. Set one of them, or leave it out."
            )
            raise OptionError(msg)
        if self.cluster_on == "teacher" and self.soft_labels > 0:
            msg = (
                f"soft_labels={self.soft_labels!r} has no meaning with cluster_on='teacher', whose probabilities label "
                "the groups. Leave one of them out."
            )
            raise OptionError(msg)
        reads_hops = self.groups == "alike" or self.selection == "herding" or self.cluster_on == "teacher"
        least_hops = 1 if reads_hops or self.soft_labels > 0 else 0
        for name, least in (("num_clusters", 1), ("seed", 0), ("num_hops", least_hops)):
            check_whole(name, getattr(self, name), least)
        for name in ("num_classes", "num_samples", "closeness_samples"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)

    def resolved(self) -> Self:
        """Return the same with the options that depend on ``groups`` filled in where they are not given."""
        missing = {name: value for name, value in BY_GROUPS[self.groups].items() if getattr(self, name) is None}
        return replace(self, **missing)


def with_options(kind: type[Config], config: Config | None, options: Mapping[str, Any], door: str) -> Config:
    """Return a configuration with keyword options applied.

    Args:
        kind: What it is.
        config: One to start from, or None.
        options: Fields of it.
        door: The function that was called, for the messages.

    Raises:
        OptionError: If an option is unknown or out of range.
        BudgetError: If there is no node budget.
    """
    known = {entry.name for entry in fields(kind)}
    unknown = sorted(set(options) - known)
    if unknown:
        msg = f"{door}() takes the options {', '.join(sorted(known))}, got {', '.join(unknown)}."
        raise OptionError(msg)
    if config is None and "node_budget" not in options:
        msg = "node_budget is needed: an int (nodes to keep) or a float in (0, 1] (their share)."
        raise BudgetError(msg)
    if config is not None and not isinstance(config, kind):
        msg = f"{door}() takes a {kind.__name__}, got {type(config).__name__}. Or give the options as keywords."
        raise OptionError(msg)
    return kind(**options) if config is None else replace(config, **options)
