"""What a reader of a collapse should know: what the input lacked, what an option did not do, what was lost."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from falcon_gnn.reduction.config import CollapseConfig

_MOST_DROPPED = 0.1
_MOST_NAMES = 12
_LEAST_HOMOPHILY = 0.05
"""Between sets where groups of alike nodes kept up with random rows (0.09 and more) and one where not (0.01)."""


def note_input(*, has_x: bool, has_y: bool, is_split: bool, attributes: Collection[str]) -> list[str]:
    """Return notes about what the graph does not have.

    Args:
        has_x: Whether there are features.
        has_y: Whether there are labels.
        is_split: Whether a training mask says which nodes, and whose labels, take part.
        attributes: The names of what else the nodes have.
    """
    notes = []
    missing = [name for name, is_there in (("features (x)", has_x), ("labels (y)", has_y)) if not is_there]
    if missing:
        names = sorted(attributes)
        there = ", ".join(names[:_MOST_NAMES]) + (" ..." if len(names) > _MOST_NAMES else "") if names else "none"
        left = "nothing: this is a collapse by centrality alone" if len(missing) == 2 else "the other alone"
        notes.append(
            f"The graph has no {' and no '.join(missing)}; clusters stand on {left}. Other node attributes: {there}. "
            "If one of these is meant, name it with feature_columns= or label_column= when loading, or pass x= or y=."
        )
    if has_y and not is_split:
        notes.append(
            "There is no training mask: every node takes part, with its label, those meant for tests too. Set masks, "
            "or load with split='random'."
        )
    return notes


def note_options(*, has_own_clusters: bool, groups: str | None, centrality: str | None = None) -> list[str]:
    """Return notes about options that had no effect, as where the caller gave the clusters.

    Args:
        has_own_clusters: Whether the caller gave them.
        groups: The option.
        centrality: Likewise; None where the reduction has none.
    """
    notes = []
    if groups == "alike" and centrality not in (None, CollapseConfig.centrality):
        notes.append(
            f"groups='alike' ranks no nodes: centrality={centrality!r} had no say. Leave it out, or use "
            "groups='neighbors'."
        )
    if has_own_clusters and groups == "alike":
        notes.append(
            "clusters= was given: groups stay inside them, and num_clusters had no say. Leave it out to merge across."
        )
    elif has_own_clusters:
        notes.append(
            "clusters= was given: num_clusters, gamma, the features and the labels had no say in the clusters. Leave "
            "it out to have them made."
        )
    return notes


def note_neighbors(groups: str | None, adjusted_homophily: float | None) -> list[str]:
    """Return a note where groups of alike nodes are made on a graph for which they are not known to pay.

    Args:
        groups: The option.
        adjusted_homophily: As in the report.
    """
    if groups != "alike" or adjusted_homophily is None or adjusted_homophily >= _LEAST_HOMOPHILY:
        return []
    return [
        "Neighbors are of one class hardly more often than by chance (adjusted homophily "
        f"{adjusted_homophily:.2f}; 1 is always, 0 as by chance): groups='alike' may then be no better than as many "
        "random rows, selection='random' with merge='drop'. Compare the two by the validation score."
    ]


def note_losses(
    num_dropped: int,
    num_nodes: int,
    options: Mapping[str, Any],
    shares_before: Sequence[float],
    shares_after: Sequence[float],
) -> list[str]:
    """Return notes about nodes and classes that nothing in the reduced graph stands for.

    Args:
        num_dropped: Nodes in scope without a survivor.
        num_nodes: Nodes in scope.
        options: Those of the reduction, as its report has them; what they already say is not advised.
        shares_before: Shares of the labels before, empty for regression.
        shares_after: And after.
    """
    notes = []
    if options.get("merge") != "drop" and num_dropped > _MOST_DROPPED * num_nodes:
        other = "selection='stratified', or " if options.get("selection") == "lowest" else ""
        notes.append(
            f"{num_dropped:,} of {num_nodes:,} nodes ({num_dropped / num_nodes:.0%}) were dropped: no node of their "
            f"component survives for them to merge into. Use {other}a larger node_budget."
        )
    lost = [i for i, (before, after) in enumerate(zip(shares_before, shares_after, strict=True)) if before > 0 == after]
    if lost:
        names = ", ".join(map(str, lost[:_MOST_NAMES])) + (" ..." if len(lost) > _MOST_NAMES else "")
        present = sum(share > 0 for share in shares_before)
        notes.append(
            f"{len(lost)} of {present} labels have no survivor ({names}), so that nothing can learn them. Use a larger "
            f"node_budget{_other_cures(options)}."
        )
    return notes


def _other_cures(options: Mapping[str, Any]) -> str:
    """Return what beside a larger budget can keep a label: gamma where it has a say, and what only a collapse has."""
    if "gamma" not in options:
        return ""
    has_say = options["groups"] == "neighbors" and options["cluster_on"] == "hops" and options["gamma"] > 0
    is_made = options["num_clusters"] not in (1, "given") and options["selection"] != "herding"
    gamma = ", a smaller gamma (labels weigh more)," if has_say and is_made else ""
    return f"{gamma} or protect= with some of their nodes"
