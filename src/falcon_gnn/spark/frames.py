"""What every Spark stage stands on: sessions, lineage cuts, plans of fixed partitions, positions, seeded columns."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.errors import MissingDependencyError, OptionError, require

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

F = require("pyspark.sql.functions", "spark")

ROWS_PER_PARTITION = 1 << 20
_VALUES_PER_UPLOAD = 1 << 24
_PARTITION_SHIFT = 33
"""``monotonically_increasing_id`` holds the partition above this bit and the row in it below."""


def open_session(master: str | None = None) -> "SparkSession":
    """Return the running Spark session, or start one.

    Args:
        master: For example ``"local[2]"`` or ``"spark://host:7077"``; None leaves it to Spark's configuration. A local
            session binds to the loopback address, has no web page and shuffles into few partitions.

    Raises:
        MissingDependencyError: If PySpark or Java is missing.
        OptionError: If Spark does not start.
    """
    builder = require("pyspark.sql", "spark").SparkSession.builder.appName("falcon-gnn")
    if which("java") is None and "JAVA_HOME" not in os.environ:
        msg = "Spark needs Java 17 or newer, and there is no java on the PATH. Install it, or set JAVA_HOME."
        raise MissingDependencyError(msg)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            options = {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                # Spark's 200 are meant for a cluster; here most of a small graph's time would go to empty ones.
                "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
            }
            for name, value in options.items():
                builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        told = str(error).strip().splitlines()
        msg = (
            f"Spark did not start with master {master!r}: {told[0] if told else type(error).__name__}. Use local[2] or "
            "spark://host:7077, and Java 17 or newer."
        )
        raise OptionError(msg) from error


def read_frame(table: "DataFrame | str | Path", spark: "SparkSession", name: str) -> "DataFrame":
    """Return a table given as a DataFrame or as the path of Parquet files.

    Raises:
        OptionError: If it is neither.
    """
    if isinstance(table, str | Path):
        return spark.read.parquet(str(table))
    if isinstance(table, require("pyspark.sql", "spark").DataFrame):
        return table
    msg = f"{name} must be a Spark DataFrame or the path of Parquet files, got {type(table).__name__}."
    raise OptionError(msg)


def source_files(frame: "DataFrame") -> list[str]:
    """Return the files that a table is read from, as :func:`whole_path` writes them; none for one made in memory."""
    jvm = frame.sparkSession.sparkContext._jvm
    return [str(jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file)).toString()) for file in frame.inputFiles()]


def whole_path(spark: "SparkSession", path: str) -> str:
    """Return a path with its storage and from its root, such as ``file:/data/edges.parquet``."""
    target, storage = _storage_of(spark, path)
    return str(storage.makeQualified(target).toString())


def _storage_of(spark: "SparkSession", path: str) -> tuple[Any, Any]:
    """Return a path and the file system that it lies in, which are not part of PySpark's public surface."""
    context = spark.sparkContext
    target = context._jvm.org.apache.hadoop.fs.Path(path)
    return target, target.getFileSystem(context._jsc.hadoopConfiguration())


def write_text(spark: "SparkSession", path: str, text: str) -> None:
    """Write one file, replacing an older one, to any storage that Spark writes to."""
    # Spark itself writes folders of part files only.
    target, storage = _storage_of(spark, path)
    storage.setWriteChecksum(False)
    stream = storage.create(target, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def cut_lineage(frame: "DataFrame") -> "DataFrame":
    """Return the frame computed and stored, so that later plans start from its rows.

    Reliable where the context has a checkpoint folder (``spark.sparkContext.setCheckpointDir``); else in the
    executors' own storage, which does not outlive them.
    """
    has_folder = frame.sparkSession.sparkContext.getCheckpointDir() is not None
    return frame.checkpoint() if has_folder else frame.localCheckpoint()


def count_partitions(spark: "SparkSession", num_rows: int) -> int:
    """Return into how many partitions a frame of ``num_rows`` short rows is cut."""
    return max(int(spark.sparkContext.defaultParallelism), -(-num_rows // ROWS_PER_PARTITION))


@contextmanager
def fixed_partitions(spark: "SparkSession", num_partitions: int) -> Iterator[None]:
    """Plan every shuffle inside with so many partitions, no broadcast joins and no re-planning at run time.

    Iterations keep their frames partitioned by node, so that joins need no further shuffle; adaptive execution would
    merge partitions and lose that, and each broadcast would run the steps before it once more.
    """
    wanted = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": str(num_partitions),
    }
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def number_rows(frame: "DataFrame", keys: Sequence[str], name: str) -> "DataFrame":
    """Return the frame with a column ``name``: the row's position, from 0, in ascending order of distinct ``keys``.

    A ``row_number`` over the whole frame would put it in one task, and one per cluster a whole cluster. Here each task
    numbers its own range of keys, and the driver adds how many rows lie in the ranges before.
    """
    ordered = frame.repartitionByRange(*keys).sortWithinPartitions(*keys)
    # Stored, because the two passes must see the same partitions.
    tagged = cut_lineage(ordered.withColumn("_row", F.monotonically_increasing_id()))
    partition = F.shiftright("_row", _PARTITION_SHIFT)
    sizes = {row["part"]: row["count"] for row in tagged.groupBy(partition.alias("part")).count().collect()}
    width = max(sizes, default=0) + 1
    first = np.cumsum([0, *(sizes.get(part, 0) for part in range(width))])
    position = F.col("_row").bitwiseAND(F.lit((1 << _PARTITION_SHIFT) - 1))
    offset = F.get(F.lit(first.tolist()).cast("array<bigint>"), partition.cast("int"))
    return tagged.withColumn(name, position + offset).drop("_row")


def upload_columns(spark: "SparkSession", columns: Mapping[str, NDArray[Any]]) -> "DataFrame":
    """Return arrays of the driver, of one or two dimensions, as a stored frame.

    They are sent in pieces, so that the driver's JVM never holds all of them.
    """
    import pyarrow as pa

    num_rows = len(next(iter(columns.values())))
    width = max(1, *(int(np.size(values[0])) for values in columns.values())) if num_rows else 1
    step = max(1, _VALUES_PER_UPLOAD // width)
    pieces = []
    for start in range(0, max(num_rows, 1), step):
        part = {name: _arrow_array(values[start : start + step]) for name, values in columns.items()}
        pieces.append(cut_lineage(spark.createDataFrame(pa.table(part))))
    return union_all(pieces)


def _arrow_array(values: NDArray[Any]) -> Any:
    """Return a column of numbers or, for a matrix, of one list per row."""
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    offsets = values.shape[1] * np.arange(len(values) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))


def seeded_column(spark: "SparkSession", values: NDArray[Any], name: str) -> "DataFrame":
    """Return a frame of ``index`` (0 to N-1) and a value for each, drawn on the driver as the local engine draws it."""
    return upload_columns(spark, {"index": np.arange(len(values)), name: values})


def union_all(frames: "Sequence[DataFrame]") -> "DataFrame":
    """Return the rows of all frames, which have the same columns."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole


def summarise_entries(frame: "DataFrame", column: "Column", *metrics: str) -> list[NDArray[np.float64]] | None:
    """Return statistics (``"mean"``, ``"min"``, ``"max"``) of each entry of an array column; None without rows.

    Args:
        frame: The rows.
        column: ``array<double>`` of one length, without missing entries.
        metrics: As MLlib's ``Summarizer`` names them.
    """
    summarizer = require("pyspark.ml.stat", "spark").Summarizer
    vector = require("pyspark.ml.functions", "spark").array_to_vector(column).alias("vector")
    summary = summarizer.metrics(*metrics).summary(F.col("vector")).alias("summary")
    found = first_row(frame.select(vector).agg(F.count(F.lit(1)).alias("rows"), summary))
    return [found["summary"][metric].toArray() for metric in metrics] if found["rows"] else None


def first_row(frame: "DataFrame") -> Any:
    """Return the only row of an aggregate."""
    row = frame.first()
    assert row is not None
    return row
