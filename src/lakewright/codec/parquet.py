"""Reading Parquet as every Hudi writer has made it: footers, statistics, row groups as batches.

Guarantees: INT96 timestamps arrive as microseconds, two- and three-level lists and both spellings
of maps as Arrow lists and maps, decimals of any physical type as decimals, annotated bytes as their
storage type (no extension types). Row groups are read one at a time, so memory is bounded by the
chosen columns of one row group. Statistics are given only where they are true bounds.

What can go wrong: damaged or cut files raise `CorruptFileError` with the path, encrypted files
`UnsupportedTableError`; a failing disk or network raises `StorageError`. A footer is parsed only
after its length was checked against the file, so bad bytes cannot ask for unbounded memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakewright.errors import (
    CorruptFileError,
    LakewrightError,
    StorageError,
    UnsupportedTableError,
)

__all__ = [
    "ChunkStatistics",
    "ParquetFooter",
    "RowGroup",
    "iter_row_groups",
    "open_parquet",
    "read_row_group",
    "row_group_range",
]

AVRO_SCHEMA_KEYS = ("parquet.avro.schema", "avro.schema")
ENCRYPTED_MAGIC = b"PARE"
BATCH_ROWS = 65_536


class ChunkStatistics(NamedTuple):
    """Bounds of one column in one row group; None is unknown. Bounds hold for non-null values."""

    minimum: Any | None
    maximum: Any | None
    null_count: int | None
    row_count: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group as the footer describes it."""

    index: int
    num_rows: int
    byte_size: int
    """Uncompressed bytes of all columns."""
    _metadata: pq.FileMetaData
    _leaves: Mapping[str, int]

    def statistics(self, column: str) -> ChunkStatistics:
        """Bounds of a column that is not nested; all unknown where there are none."""
        leaf = self._leaves.get(column)
        unknown = ChunkStatistics(None, None, None, self.num_rows)
        if leaf is None:
            return unknown
        try:
            found = self._metadata.row_group(self.index).column(leaf).statistics
        except (pa.ArrowException, OSError, ValueError):
            return unknown
        return unknown if found is None else _bounds(found, self.num_rows)


@dataclass(frozen=True)
class ParquetFooter:
    """What the end of a Parquet file says about it."""

    path: str
    num_rows: int
    created_by: str
    schema: pa.Schema
    """Arrow types as `iter_row_groups` will deliver them, without key/value metadata."""
    values: Mapping[str, str]
    """Key/value metadata; values that are not text are left out."""
    _metadata: pq.FileMetaData

    @classmethod
    def read(cls, source: Any, path: str) -> ParquetFooter:
        """Read the footer of an open file or of a buffer."""
        return cls.of(open_parquet(source, path=path), path)

    @classmethod
    def of(cls, file: pq.ParquetFile, path: str) -> ParquetFooter:
        """The footer of a file that is open already."""
        metadata = file.metadata
        return cls(
            path=path,
            num_rows=metadata.num_rows,
            created_by=metadata.created_by or "",
            schema=file.schema_arrow.remove_metadata(),
            values=_text_values(metadata.metadata or {}),
            _metadata=metadata,
        )

    @cached_property
    def row_groups(self) -> tuple[RowGroup, ...]:
        """The row groups in file order."""
        leaves = _leaves(self._metadata)
        groups = (self._metadata.row_group(i) for i in range(self._metadata.num_row_groups))
        return tuple(
            RowGroup(i, g.num_rows, g.total_byte_size, self._metadata, leaves)
            for i, g in enumerate(groups)
        )

    @property
    def avro_schema(self) -> str | None:
        """The Avro schema text that an Avro writer left, meta columns included."""
        return next((self.values[k] for k in AVRO_SCHEMA_KEYS if self.values.get(k)), None)


def open_parquet(
    source: Any, *, path: str, dictionary: Sequence[str] = (), pre_buffer: bool = True
) -> pq.ParquetFile:
    """Open a file (a `pyarrow.NativeFile`, a buffer or bytes) and read its footer.

    `dictionary` names leaf columns to deliver dictionary-encoded; `pre_buffer` joins the reads of a
    row group, which pays on object stores.
    """
    if isinstance(source, bytes | bytearray | memoryview | pa.Buffer):
        source = pa.BufferReader(source)
    try:
        return pq.ParquetFile(
            source,
            read_dictionary=list(dictionary) or None,
            coerce_int96_timestamp_unit="us",
            arrow_extensions_enabled=False,
            pre_buffer=pre_buffer,
        )
    except LakewrightError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(error, source, path) from error


def iter_row_groups(
    file: pq.ParquetFile,
    *,
    path: str,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
    batch_rows: int = BATCH_ROWS,
    use_threads: bool = False,
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Each chosen row group with its batches; batches hold `columns` in file order.

    A row group's batches must be taken before the next row group is asked for.
    """
    chosen = range(file.metadata.num_row_groups) if row_groups is None else row_groups
    for group in chosen:
        yield (
            group,
            read_row_group(
                file,
                group,
                path=path,
                columns=columns,
                batch_rows=batch_rows,
                use_threads=use_threads,
            ),
        )


def read_row_group(
    file: pq.ParquetFile,
    group: int,
    *,
    path: str,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The batches of one row group. With no columns at all, batches still carry their row count."""
    names = None if columns is None else list(columns)
    try:
        yield from file.iter_batches(
            batch_size=batch_rows, row_groups=[group], columns=names, use_threads=use_threads
        )
    except LakewrightError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(error, None, path, file) from error


def row_group_range(file: pq.ParquetFile, group: int, column: str) -> ChunkStatistics:
    """Bounds of a column that is not nested in one row group of an open file."""
    metadata = file.metadata
    rows = metadata.row_group(group).num_rows
    byte_size = metadata.row_group(group).total_byte_size
    return RowGroup(group, rows, byte_size, metadata, _leaves(metadata)).statistics(column)


def _leaves(metadata: pq.FileMetaData) -> dict[str, int]:
    """Leaf positions of top-level columns that are not nested, by name."""
    schema = metadata.schema
    leaves = (schema.column(i) for i in range(metadata.num_columns))
    return {
        leaf.name: i
        for i, leaf in enumerate(leaves)
        if leaf.max_repetition_level == 0 and leaf.path == leaf.name
    }


def _bounds(found: Any, rows: int) -> ChunkStatistics:
    nulls = found.null_count if found.has_null_count else None
    if not found.has_min_max:
        return ChunkStatistics(None, None, nulls, rows)
    try:
        low, high = found.min, found.max
    except (OverflowError, ValueError, pa.ArrowException):
        # A date beyond Python's years, or text that is not UTF-8: no bound we could compare with.
        return ChunkStatistics(None, None, nulls, rows)
    if any(isinstance(b, float) and math.isnan(b) for b in (low, high)):
        return ChunkStatistics(None, None, nulls, rows)
    return ChunkStatistics(low, high, nulls, rows)


def _text_values(raw: Mapping[bytes, bytes]) -> dict[str, str]:
    values = {}
    for key, value in raw.items():
        try:
            values[key.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return values


def _unreadable(
    error: Exception, source: Any, path: str, file: pq.ParquetFile | None = None
) -> LakewrightError:
    context = {"path": path}
    if isinstance(error, OSError) and error.errno is not None:
        return StorageError(
            f"Reading a Parquet file failed: {error}.",
            hint="Check that the storage is reachable, then read again.",
            context=context,
            retryable=True,
        )
    if _is_encrypted(source, file):
        return UnsupportedTableError(
            "The file uses Parquet encryption, which lakewright does not read.",
            hint="Rewrite the table without Parquet encryption, or read it with Hudi.",
            context=context,
        )
    return CorruptFileError(
        f"The Parquet file cannot be read: {error}.",
        hint="The file is damaged or cut; restore it, or roll back the instant that wrote it.",
        context=context,
    )


def _is_encrypted(source: Any, file: pq.ParquetFile | None) -> bool:
    try:
        if file is not None:
            return _has_hidden_columns(file.metadata)
        if hasattr(source, "read_at") and source.size() >= len(ENCRYPTED_MAGIC):
            tail = source.read_at(len(ENCRYPTED_MAGIC), source.size() - len(ENCRYPTED_MAGIC))
        else:
            source.seek(-len(ENCRYPTED_MAGIC), 2)
            tail = source.read(len(ENCRYPTED_MAGIC))
        return bytes(tail) == ENCRYPTED_MAGIC
    except (pa.ArrowException, OSError, ValueError, AttributeError):
        return False


def _has_hidden_columns(metadata: pq.FileMetaData) -> bool:
    """Whether a column's own metadata cannot be read although the footer could: encryption."""
    if metadata.num_row_groups == 0:
        return False
    group = metadata.row_group(0)
    for i in range(group.num_columns):
        try:
            group.column(i)
        except OSError:
            return True
    return False
