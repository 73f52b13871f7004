"""What the survivors carry of their own, in Spark."""

from typing import TYPE_CHECKING

from falcon_gnn.errors import OptionError
from falcon_gnn.graph import MASK_NAMES
from falcon_gnn.spark.frames import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def survivor_rows(nodes: "DataFrame", groups: "DataFrame") -> "DataFrame":
    """Return the survivors' rows of the node table; masks that select none of them are left out.

    Args:
        nodes: The node table.
        groups: ``survivor_id`` of the nodes that have one.

    Raises:
        OptionError: If there is a training mask and no training node survives.
    """
    kept = nodes.join(groups.select(F.col("survivor_id").alias("node_id")).distinct(), "node_id")
    masks = [name for name in MASK_NAMES if name in nodes.columns]
    if not masks:
        return kept
    found = kept.agg(*[F.max(F.col(name).cast("int")).alias(name) for name in masks]).first()
    assert found is not None
    if "train_mask" in masks and not found["train_mask"]:
        msg = "no training node survives this collapse. Pass protect='train_mask', or a larger node_budget."
        raise OptionError(msg)
    return kept.drop(*[name for name in masks if not found[name]])
