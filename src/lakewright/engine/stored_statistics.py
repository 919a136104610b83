"""Statistics of columns as the data files themselves tell them, to be held against an index.

A base file tells them in its footer, a log file by its rows. Both come as tables of one shape, the
one in which the metadata table gives its statistics out: a table per column, a row per file. Bounds
are in the type that the table has for the column now; a bound that cannot be told is null.

Rules of Hudi that are kept: a footer without a count of nulls tells only nulls; a log file has no
sizes; deletes are no rows, and a log file of deletes has statistics of none; maps in log files are
counted as nulls; text there is ordered by UTF-16, bytes by their sign, as Java orders both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hashing import ByteRows
from lakewright.codec.parquet import ParquetFile, open_parquet, read_row_group
from lakewright.codec.parquet_footer import typed_bounds
from lakewright.engine.base_footer import text_bounds
from lakewright.expr.coerce import is_bytes, is_text
from lakewright.format.block_rows import avro_batches, open_parquet_block, placed, record_schema
from lakewright.format.log_block import BlockType, HeaderKey, LogBlock, read_blocks
from lakewright.metadata.statistics import statistics_schema
from lakewright.storage.base import Storage

__all__ = [
    "ColumnFacts",
    "FileStatistics",
    "base_file_statistics",
    "column_bounds",
    "leaf_types",
    "log_file_statistics",
    "row_statistics",
    "statistics_tables",
]

BATCH_ROWS = 65_536


_SIGN: Final = np.uint8(0x80)
_SIGN_BYTES: Final = bytes(byte ^ 0x80 for byte in range(256))


class ColumnFacts(NamedTuple):
    """What one file tells about one column; bounds are Python values, None if there are none."""

    minimum: Any | None
    maximum: Any | None
    value_count: int
    null_count: int
    total_size: int
    total_uncompressed_size: int


_NO_ROWS: Final = ColumnFacts(None, None, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """What one file tells about its columns, by their names; dots lead into nested ones."""

    partition: str
    name: str
    columns: Mapping[str, ColumnFacts]


def base_file_statistics(storage: Storage, path: str) -> dict[str, ColumnFacts]:
    """The statistics in the footer of a base file, of every column that is not repeated."""
    with storage.open_input(path) as source:
        file = open_parquet(source, path=path, pre_buffer=False)
        kinds = leaf_types(file.schema_arrow)
        found: dict[str, ColumnFacts] = {}
        for group in file.all_chunks:
            for chunk in group:
                name = ".".join(chunk.names)
                kind = kinds.get(name)
                bounds = typed_bounds(chunk, kind, 0) if kind is not None else (None, None)
                told = ColumnFacts(
                    bounds[0],
                    bounds[1],
                    chunk.values,
                    chunk.values if chunk.null_count is None else chunk.null_count,
                    chunk.size,
                    chunk.plain_size,
                )
                found[name] = _widened(found.get(name), told)
    return found


def leaf_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Types of the columns of a file by their dotted names; not of those in lists and maps."""
    found: dict[str, pa.DataType] = {}
    open_fields = [(field.name, field.type) for field in schema]
    while open_fields:  # bounded by the fields of the schema
        name, kind = open_fields.pop()
        if pa.types.is_struct(kind):
            open_fields += [(f"{name}.{inner.name}", inner.type) for inner in kind]
        elif not pa.types.is_nested(kind):
            found[name] = kind
    return found


def log_file_statistics(
    storage: Storage, path: str, *, counts: Callable[[str], bool]
) -> dict[str, ColumnFacts]:
    """Statistics of the rows of a log file, of blocks whose instant `counts`."""
    found: dict[str, ColumnFacts] = {}
    for block in read_blocks(storage.read(path), path=path):
        if not counts(block.instant or ""):
            continue
        if block.type is BlockType.DELETE and HeaderKey.SCHEMA in block.headers:
            for field in record_schema(block).fields:
                found.setdefault(field.name, _NO_ROWS)
        elif block.type in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA):
            for batch in _rows(block):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    found[name] = _widened(found.get(name), _facts(column))
    return found


def row_statistics(
    rows: pa.RecordBatch | None, deleted: Iterable[str] = ()
) -> dict[str, ColumnFacts]:
    """What `log_file_statistics` will find in a file of these rows, and of deletes whose block
    names the columns `deleted`."""
    found: dict[str, ColumnFacts] = {}
    if rows is not None:
        found = {n: _facts(c) for n, c in zip(rows.schema.names, rows.columns, strict=True)}
    return {**dict.fromkeys(deleted, _NO_ROWS), **found}


def _rows(block: LogBlock) -> Iterator[pa.RecordBatch]:
    if block.type is BlockType.AVRO_DATA:
        yield from avro_batches([block], rows_max=BATCH_ROWS)
        return
    file: ParquetFile = open_parquet_block(block)
    with placed(block):
        for group in range(file.metadata.num_row_groups):
            yield from read_row_group(file, group, path=block.path)


def _facts(column: pa.Array) -> ColumnFacts:
    low, high = column_bounds(column)
    nulls = len(column) if pa.types.is_map(column.type) else column.null_count
    return ColumnFacts(low, high, len(column), nulls, 0, 0)


def column_bounds(column: pa.Array) -> tuple[Any | None, Any | None]:
    """The least and the greatest value, as Java orders them; None where there are none."""
    kind = column.type
    if column.null_count == len(column) or pa.types.is_nested(kind):
        return None, None
    if is_bytes(kind):
        return _signed_bounds(column.drop_null())
    if is_text(kind):
        return text_bounds(column.drop_null())
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return None, None
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _signed_bounds(values: pa.Array) -> tuple[bytes, bytes]:
    """Bounds in the order of Java's byte buffers, whose bytes have a sign."""
    rows = ByteRows.of(values)
    offsets = np.append(rows.starts, rows.starts[-1:] + rows.lengths[-1:])
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(rows.data ^ _SIGN)]
    found = pc.min_max(pa.Array.from_buffers(pa.large_binary(), len(values), buffers))
    low, high = (found[end].as_py().translate(_SIGN_BYTES) for end in ("min", "max"))
    return low, high


def _widened(known: ColumnFacts | None, more: ColumnFacts) -> ColumnFacts:
    """Both together; a part with values and without bounds leaves the whole without bounds."""
    if known is None:
        return more
    low: Any = known.minimum
    high: Any = known.maximum
    if known.value_count == known.null_count:
        low, high = more.minimum, more.maximum
    elif more.value_count != more.null_count:
        bounded = None not in (low, more.minimum, high, more.maximum)
        low = min(low, more.minimum) if bounded else None
        high = max(high, more.maximum) if bounded else None
    counts = (a + b for a, b in zip(known[2:], more[2:], strict=True))
    return ColumnFacts(low, high, *counts)


def statistics_tables(files: Iterable[FileStatistics], columns: pa.Schema) -> dict[str, pa.Table]:
    """A table per column; files that do not tell about a column have no row in its table."""
    rows: dict[str, list[tuple[Any, ...]]] = {field.name: [] for field in columns}
    for file in files:
        for name in rows.keys() & file.columns.keys():
            # One object per file and column: they come from one footer each.
            rows[name].append((file.partition, file.name, *file.columns[name]))
    return {field.name: _table(rows[field.name], field.type) for field in columns}


def _table(rows: list[tuple[Any, ...]], kind: pa.DataType) -> pa.Table:
    schema = statistics_schema(kind)
    columns = list(zip(*rows, strict=True)) if rows else [()] * (len(schema) - 1)
    arrays = [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.string())]
    arrays += [_typed(values, kind) for values in columns[2:4]]
    arrays += [pa.array(values, pa.int64()) for values in columns[4:]]
    return pa.table([*arrays, pa.array([False] * len(rows), pa.bool_())], schema=schema)


def _typed(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    """Bounds in the type of the column, null where they have no place in it."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([_fitting(value, kind) for value in values], kind)


def _fitting(value: Any, kind: pa.DataType) -> Any | None:
    try:
        return pa.scalar(value).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None
