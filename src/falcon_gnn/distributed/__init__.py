"""Work that one process does not hold: the collapse on Spark, and training on several devices.

Nothing is imported here but on use: ``falcon_gnn.distributed.spark`` needs the extra ``spark`` and Java 17 or newer.
"""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.distributed.spark import SparkCollapseResult

__all__ = ["SparkCollapseResult"]

__getattr__, __dir__ = lazy_exports(__name__, {"SparkCollapseResult": "falcon_gnn.distributed.spark"})
