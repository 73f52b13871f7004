"""Tables on the disk: Parquet and CSV of every usual dialect, one file or a folder of part files."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falcon_gnn.datasets.reading import reading
from falcon_gnn.errors import GraphError, OptionError

SUFFIXES = (".parquet", ".csv", ".csv.gz")

_BLOCK_BYTES = 1 << 24
_HEAD_BYTES = 1 << 16
_DELIMITERS = ",;\t|"
WEIGHT_FIX = "Turn it into numbers, or rename the column if it is no weight."
TABLE_FIX = "docs/data.md names the columns of an edge list and of a node table."


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written.

    Attributes:
        delimiter: What parts the cells.
        decimal_point: A point, or a comma where something else parts the cells.
        is_quoted: Whether cells are in quotes, within which a line may break.
    """

    delimiter: str = ","
    decimal_point: str = "."
    is_quoted: bool = False


def find_table(folder: Path, stem: str) -> Path | None:
    """Return the table of that name in a folder, a file or a folder of part files, or None."""
    return next((path for suffix in SUFFIXES if (path := folder / f"{stem}{suffix}").exists()), None)


def column_names(path: Path) -> list[str]:
    """Return the names of a table's columns."""
    part = part_files(path)[0]
    if is_parquet(part):
        from pyarrow import parquet

        names: list[str] = parquet.read_schema(part).names
        return names
    with _open_csv(part) as reader:
        return list(reader.schema.names)


def read_batches(
    path: Path, columns: Sequence[str], types: Mapping[str, Any], *, may_break: bool = False, num_rows: int
) -> Iterator[Any]:
    """Yield record batches of the wanted columns, part by part in the order of their names.

    Args:
        path: The table.
        columns: Columns wanted, in this order.
        types: Types of some of them in a CSV file; Parquet has its own.
        may_break: Whether a CSV file has other columns, in which a line may break.
        num_rows: Rows of a batch of Parquet.
    """
    for part in part_files(path):
        with reading(part, "a table", TABLE_FIX):
            if is_parquet(part):
                yield from _parquet_batches(part, columns, num_rows)
            else:
                with _saying_what_is_no_number(types), _open_csv(part, types, columns, may_break=may_break) as reader:
                    yield from reader


def read_whole(path: Path) -> Any:
    """Return a table whole, part files one below the other; a number may be wider in one part than in another."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = []
    for part in part_files(path):
        with reading(part, "a table", TABLE_FIX):
            tables.append(_without_views(parquet.ParquetFile(part).read()) if is_parquet(part) else _read_csv(part))
            check_distinct_names(tables[-1].column_names)
            if tables[-1].column_names != tables[0].column_names:
                _check_same_columns(tables[0].column_names, tables[-1].column_names)
                tables[-1] = tables[-1].select(tables[0].column_names)
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def check_distinct_names(names: Sequence[str], wanted: Collection[str] | None = None) -> None:
    """Stop where two columns bear one name.

    Args:
        names: The names of a table's columns.
        wanted: Those that are looked at; by default all.

    Raises:
        OptionError: If one stands more than once.
    """
    twice = [name for name, count in Counter(names).items() if count > 1 and (wanted is None or name in wanted)]
    if twice:
        msg = (
            f"the names of its columns must be distinct, got {', '.join(map(repr, twice))} more than once. Rename one."
        )
        raise OptionError(msg)


def read_text(path: Path, columns: Iterable[str]) -> Any:
    """Return columns of a CSV table as the text that the file holds."""
    import pyarrow as pa

    wanted = list(columns)
    parts = [_read_csv(part, dict.fromkeys(wanted, pa.string()), wanted) for part in part_files(path)]
    return pa.concat_tables(parts)


def is_parquet(path: Path) -> bool:
    """Tell Parquet from CSV by the name, for a folder by that of its part files."""
    return part_files(path)[0].name.lower().endswith(".parquet")


def part_files(path: Path) -> list[Path]:
    """Return a file itself, or the part files of a folder such as Spark writes, without empty ones.

    Raises:
        OptionError: If a folder has none, or is partitioned by a column.
    """
    if not path.is_dir():
        return [path]
    visible = [part for part in sorted(path.iterdir()) if not part.name.startswith((".", "_"))]
    partitions = [part.name for part in visible if part.is_dir() and "=" in part.name]
    if partitions:
        msg = f"{path} is partitioned ({partitions[0]} ...). Write it again without partitionBy."
        raise OptionError(msg)
    parts = [part for part in visible if part.is_file() and part.name.lower().endswith(SUFFIXES)]
    parts = [part for part in parts if part.stat().st_size] or parts[:1]
    if not parts:
        msg = f"{path} is a folder without {' or '.join(SUFFIXES)} files."
        raise OptionError(msg)
    return parts


def find_dialect(path: Path) -> Dialect:
    """Return how a CSV file is written, by its beginning.

    Raises:
        OptionError: If it is in another encoding than UTF-8.
    """
    import pyarrow as pa

    with pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as stream:
        head = stream.read(_HEAD_BYTES)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        msg = f"{path} is UTF-16. Save it as UTF-8."
        raise OptionError(msg)
    text = head.decode("utf-8-sig", errors="replace")
    header, _, body = re.sub(r'"[^"]*"', '""', text).partition("\n")
    delimiter = max(_DELIMITERS, key=header.count)
    has_comma = delimiter != "," and re.search(
        rf"(?:^|{re.escape(delimiter)})\s*-?\d+,\d+\s*(?:$|\r|{re.escape(delimiter)})", body, re.M
    )
    return Dialect(delimiter, "," if has_comma else ".", '"' in text)


def _without_views(table: Any) -> Any:
    """Return a table, or a batch, with texts and lists in their usual layout where they are stored as views."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        column, kind = table.column(place), str(field.type)
        if kind == "string_view":
            table = table.set_column(place, field.name, column.cast(pa.large_string()))
        elif kind.startswith(("list_view<", "large_list_view<")):
            table = table.set_column(place, field.name, _plain_lists(column))
    return table


def _plain_lists(column: Any) -> Any:
    """Return a column of list views as lists; pyarrow's own cast of them makes an array with an offset too few."""
    import pyarrow as pa
    from pyarrow import compute

    chunk = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    ends = compute.cumulative_sum(compute.fill_null(compute.list_value_length(chunk), 0).cast(pa.int64()))
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    return pa.LargeListArray.from_arrays(starts, chunk.flatten(), mask=chunk.is_null())


def _parquet_batches(path: Path, columns: Sequence[str], num_rows: int) -> Iterator[Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        _check_same_columns(columns, [name for name in columns if name in file.schema_arrow.names])
        for batch in file.iter_batches(num_rows, columns=list(columns)):
            yield _without_views(batch.select(columns))


@contextmanager
def _saying_what_is_no_number(types: Mapping[str, Any]) -> Iterator[None]:
    """Turn pyarrow's error about a cell that is no number into ours; ``types`` has one column of floats at most."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        cell = re.search(r"conversion error to double: invalid value '(.*)'", str(error), re.DOTALL)
        if cell is None:
            raise
        name = next(name for name, kind in types.items() if kind == pa.float64())
        msg = f"column {name} must be a number in every row, got {cell[1]!r}. {WEIGHT_FIX}"
        raise GraphError(msg) from error


def _check_same_columns(wanted: Sequence[str], found: Sequence[str]) -> None:
    if set(wanted) != set(found):
        msg = f"it must have the same columns as the other part files ({', '.join(wanted)}), got {', '.join(found)}."
        raise OptionError(msg)


def _open_csv(
    path: Path, types: Mapping[str, Any] | None = None, columns: Sequence[str] = (), *, may_break: bool = True
) -> Any:
    from pyarrow import csv

    options = csv.ReadOptions(block_size=_BLOCK_BYTES)
    return csv.open_csv(path, options, **_csv_options(path, types, columns, may_break=may_break))


def _read_csv(path: Path, types: Mapping[str, Any] | None = None, columns: Sequence[str] = ()) -> Any:
    from pyarrow import csv

    return csv.read_csv(path, csv.ReadOptions(block_size=_BLOCK_BYTES), **_csv_options(path, types, columns))


def _csv_options(
    path: Path, types: Mapping[str, Any] | None, columns: Sequence[str], *, may_break: bool = True
) -> dict[str, Any]:
    from pyarrow import csv

    dialect = find_dialect(path)
    return {
        "parse_options": csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=may_break or dialect.is_quoted
        ),
        "convert_options": csv.ConvertOptions(
            column_types=types, include_columns=list(columns) or None, decimal_point=dialect.decimal_point
        ),
    }
