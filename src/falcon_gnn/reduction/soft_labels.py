"""Labels of a reduced graph that say how sure they are (ours)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.graph import Graph
from falcon_gnn.labels import LabelEncoding
from falcon_gnn.progress import part_of_work
from falcon_gnn.reduction.attributes import Groups
from falcon_gnn.reduction.grouping import IdArray, group_members
from falcon_gnn.reduction.ridge import FloatArray, RidgeLabels

_BLOCK_VALUES = 1 << 20
"""Doubles of labels that are averaged together."""


@dataclass(frozen=True)
class SoftLabels:
    """(1 - s)·y + s·p for the labelled nodes in scope; p is what a ridge regression says of a node without its label.

    Attributes:
        share: s.
        encoding: The visible classes.
        ridge: Fitted on them.
    """

    share: float
    encoding: LabelEncoding
    ridge: RidgeLabels

    def of_groups(self, graph: Graph, groups: Groups, *, is_mean: bool) -> NDArray[np.float32]:
        """Return the soft label of each survivor, shape ``(num_kept, L)``; without any, the shares of the classes.

        Args:
            graph: The input; its ``label_distribution`` stands for y where it has one, its ``node_weight`` weighs.
            groups: The groups.
            is_mean: Whether a survivor has the mean of its group's labelled members, or its own.
        """
        num_kept = len(groups.kept)
        members, owner = groups.kept, np.arange(num_kept)
        if is_mean:
            starts, members = group_members(groups.assignment, num_kept)
            owner = np.repeat(owner, np.diff(starts))
        is_labelled = self.encoding.labelled[members]
        members, owner = members[is_labelled], owner[is_labelled]
        num_labels = self.encoding.num_labels
        width = num_labels if graph.label_distribution is None else max(num_labels, graph.label_distribution.shape[1])
        totals, weights = np.zeros((num_kept, width)), np.zeros(num_kept)
        for part in self._blocks(len(members)):
            ids = groups.scope_ids[members[part]]
            weight = np.ones(len(ids)) if graph.node_weight is None else graph.node_weight[ids].astype(np.float64)
            with part_of_work(part.start / len(members), (part.start + len(ids)) / len(members)):
                rows = self._rows(graph, members[part], ids, width) * weight[:, None]
            # Members of a group follow one another.
            first = np.flatnonzero(np.diff(owner[part], prepend=-1))
            totals[owner[part][first]] += np.add.reduceat(rows, first, axis=0)
            weights[owner[part][first]] += np.add.reduceat(weight, first)
        known = weights > 0
        totals[known] /= weights[known, None]
        totals[~known, :num_labels] = self.ridge.mean
        return totals.astype(np.float32)

    def _rows(self, graph: Graph, nodes: IdArray, ids: IdArray, width: int) -> FloatArray:
        given = graph.label_distribution
        own: NDArray[Any] = self.encoding.rows(nodes) if given is None else given[ids]
        rows = np.zeros((len(nodes), width))
        rows[:, : own.shape[1]] = (1 - self.share) * own
        rows[:, : self.encoding.num_labels] += self.share * self.ridge.left_out(nodes)
        return rows

    def _blocks(self, num_nodes: int) -> Iterator[slice]:
        step = max(1, _BLOCK_VALUES // self.encoding.num_labels)
        return (slice(start, start + step) for start in range(0, num_nodes, step))
