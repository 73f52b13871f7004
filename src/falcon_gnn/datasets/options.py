"""What a graph's source may need to be told, and the names that features, labels and ids go by."""

from dataclasses import dataclass
from pathlib import Path

from falcon_gnn.checks import check_flag, check_kind, check_whole, is_number
from falcon_gnn.datasets.splits import Split
from falcon_gnn.errors import OptionError

LABEL_NAMES = ("label", "labels", "node_label", "node_labels")
FEATURE_NAMES = ("feat", "feats", "features", "node_feat", "node_feats", "node_features")
"""What DGL, Spark ML, OGB and others call ``y`` and ``x``; read where neither is there."""


@dataclass(frozen=True)
class LoadOptions:
    """What a graph's source may need to be told; the keyword arguments of :func:`falcon_gnn.load_graph`.

    Attributes:
        root: Folder with the raw files of a named data set; ``data`` by default.
        split: Which nodes train: ``public`` (the source's own masks), ``full`` (all that are neither validation nor
            test) or ``random``. By default the source's own masks, if any.
        split_index: Which split, where the source holds several.
        threshold: Cosine above which two images of an image set are linked.
        num_nodes: Number of nodes, for an edge list without a node table.
        nodes: Node table of an edge list.
        label_column: Column or array with the labels; several, separated by commas or as a pattern such as ``tag_*``,
            are multi-label.
        feature_columns: Columns or arrays with the features; ``v*`` stands for all that begin with v.
        id_column: Column of the node table with the ids that the edges use.
        download: Fetch the missing raw files of a named data set from their publisher.
    """

    root: Path | None = None
    split: Split | None = None
    split_index: int | None = None
    threshold: float | None = None
    num_nodes: int | None = None
    nodes: Path | None = None
    label_column: str | None = None
    feature_columns: tuple[str, ...] | None = None
    id_column: str | None = None
    download: bool = False

    def __post_init__(self) -> None:
        """Check the kinds; what fits a source only that source tells."""
        check_whole("split_index", self.split_index, 0, or_none=True)
        check_whole("num_nodes", self.num_nodes, 1, or_none=True)
        for name in ("label_column", "id_column"):
            check_kind(name, getattr(self, name), str, type(None))
        if not (self.threshold is None or is_number(self.threshold)):
            msg = f"threshold must be a cosine in [-1, 1) or None, got {self.threshold!r}."
            raise OptionError(msg)
        check_flag("download", self.download)
