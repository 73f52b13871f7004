"""What a collapse returns: the reduced graph, the exact map both ways, and the report."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from falcon_gnn.errors import OptionError
from falcon_gnn.files import replacing, write_archive
from falcon_gnn.graph import Graph
from falcon_gnn.graph_checks import as_array
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.reduction.report import CollapseReport

IdArray = NDArray[np.int64]
_LARGEST = np.iinfo(np.int64).max
_FILLERS: dict[str, Any] = {
    **dict.fromkeys("fc", np.nan), **dict.fromkeys("iub", -1), **dict.fromkeys("mM", "NaT"),
    **dict.fromkeys("UT", ""), "S": b"", "O": None,
}  # fmt: skip
"""What stands for nodes without a survivor, by the kind of the array."""


@dataclass(frozen=True, eq=False, repr=False)
class CollapseResult:
    """A reduced graph and the exact map between it and the input; N_all input nodes, n survivors.

    Attributes:
        graph: The reduced graph.
        assignment: Survivor (index in ``graph``) each input node is part of, int64, shape ``(N_all,)``; -1: dropped or
            out of scope.
        kept: Input ids of the survivors, ascending, int64, shape ``(n,)``.
        removal_order: Input ids in the order of their removal, dropped ones included, int64.
        rank: Position in the total order of centrality, shape ``(N_all,)``; -1 out of scope.
        clusters: Feature-label cluster, shape ``(N_all,)``; -1 out of scope.
        centrality: Φ, float64, shape ``(N_all,)``; NaN out of scope.
        cluster_budgets: Nodes kept per cluster, shape ``(num_clusters,)``; sums to n.
        report: Before and after in figures.
        config: The options used.
        teacher: With ``cluster_on="teacher"``, what the teacher says of each input node: probabilities of the classes,
            shape ``(N_all, L)``; NaN out of scope. Compare it with the model trained on the groups: on few labels the
            teacher alone is often as good.
    """

    graph: Graph
    assignment: IdArray
    kept: IdArray
    removal_order: IdArray
    rank: IdArray
    clusters: IdArray
    centrality: NDArray[np.float64]
    cluster_budgets: IdArray
    report: CollapseReport
    config: CollapseConfig
    teacher: NDArray[np.float64] | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        """Show the sizes before and after; the arrays are too long for it."""
        return f"{type(self).__name__}({len(self.assignment)} nodes to {self.graph!r})"

    def lift(self, values: ArrayLike) -> NDArray[Any]:
        """Return values of the reduced nodes on the input's nodes.

        Args:
            values: One row per reduced node, shape ``(n, ...)``; also a tensor, such as a model gives (bfloat16
                becomes float32).

        Returns:
            The value of each node's survivor, shape ``(N_all, ...)``; where none, NaN (floats), -1 (whole numbers and
            booleans, as int64), NaT (dates), None (objects) or no text.

        Raises:
            OptionError: If ``values`` has another number of rows, or is of a kind without such a filler.
        """
        given = as_array(values, "values", OptionError)
        if given.ndim == 0 or len(given) != len(self.kept):
            msg = f"values must have one row per reduced node ({len(self.kept)}), got shape {given.shape}."
            raise OptionError(msg)
        if given.dtype.kind not in _FILLERS or (given.dtype.kind == "u" and given.max(initial=0) > _LARGEST):
            msg = (
                f"values must be numbers up to 2**63 - 1, dates, text or objects, got {given.dtype}. Lift ids instead."
            )
            raise OptionError(msg)
        if given.dtype.kind in "ub":
            given = given.astype(np.int64)
        lifted = given[np.maximum(self.assignment, 0)]
        lifted[self.assignment < 0] = _FILLERS[given.dtype.kind]
        return lifted

    def save_mapping(self, path: str | Path) -> None:
        """Write the map and the per-node arrays to an ``.npz`` file without pickle, whole or not at all."""
        names = ("assignment", "kept", "removal_order", "rank", "clusters", "centrality", "cluster_budgets")
        with replacing(path) as temporary:
            write_archive(temporary, {name: getattr(self, name) for name in names})


def spread_to_input(values: NDArray[Any], ids: IdArray, num_nodes: int, filler: float) -> NDArray[Any]:
    """Return per-node values of the scope on all input nodes, ``filler`` elsewhere; a whole scope's as they are."""
    if len(ids) == num_nodes:
        return values
    result = np.full((num_nodes, *values.shape[1:]), filler, values.dtype)
    result[ids] = values
    return result
