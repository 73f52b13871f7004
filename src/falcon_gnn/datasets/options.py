"""What a graph's source may need to be told."""

from dataclasses import dataclass
from pathlib import Path

from falcon_gnn.datasets.splits import Split


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
    """

    root: Path | None = None
    split: Split | None = None
    split_index: int | None = None
    threshold: float | None = None
    num_nodes: int | None = None
    nodes: Path | None = None
