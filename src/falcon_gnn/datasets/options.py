"""What a graph's source may need to be told, and the names that features, labels and ids go by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

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


def split_names(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names given as a sequence or as one text with commas."""
    if names is None:
        return None
    return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)


def pick_names(option: str, wanted: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the known names that are wanted, patterns such as ``v*`` in the order of the known names.

    Args:
        option: The option that wants them, for the message.
        wanted: Names or patterns.
        known: What is there.

    Raises:
        OptionError: If one is not there.
    """
    picked: list[str] = []
    for name in wanted:
        found = [name] if name in known else [other for other in known if fnmatchcase(other, name)]
        if not found:
            there = ", ".join(map(repr, known)) or "nothing"
            msg = f"{option} must name what is there ({there}), got {name!r}."
            raise OptionError(msg)
        picked += [other for other in found if other not in picked]
    return picked
