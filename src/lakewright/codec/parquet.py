"""Reading Parquet as every Hudi writer has made it: footers, statistics, row groups as batches.

Guarantees: INT96 timestamps arrive as microseconds, two- and three-level lists and both spellings
of maps as Arrow lists and maps, decimals of any physical type as decimals, annotated bytes as their
storage type (no extension types). Row groups are read one at a time, so memory is bounded by the
chosen columns of one row group. Statistics are given only where they are true bounds.

What can go wrong: damaged or cut files raise `CorruptFileError` with the path and the offset of the
footer or of the row group, encrypted files `UnsupportedTableError`; a failing disk or network
raises `StorageError`. A footer is parsed only after its length was checked against the file, so bad
bytes cannot ask for unbounded memory. Checksums of pages are verified where a writer left them;
damage in pages without, and in statistics, cannot be told from other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakewright.codec.parquet_footer import (
    MAGIC,
    SIGNATURE_BYTES,
    TRAILER_BYTES,
    ChunkStatistics,
    RawChunk,
    check_chunks,
    corrupt,
    encrypted,
    read_footer,
    row_group_chunks,
    typed_bounds,
)
from lakewright.codec.thrift import CompactReader, Field
from lakewright.errors import LakewrightError, StorageError

__all__ = [
    "ChunkStatistics",
    "ParquetFile",
    "ParquetFooter",
    "RowGroup",
    "iter_row_groups",
    "open_parquet",
    "read_columns",
    "read_row_group",
    "row_group_range",
]

AVRO_SCHEMA_KEYS = ("parquet.avro.schema", "avro.schema")
BATCH_ROWS = 65_536

_FAILURES = (pa.ArrowException, OSError, ValueError)


class ParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """An open file that keeps its footer's bytes, because Arrow's view of them is not safe.

    Do not ask `metadata.row_group(i).column(j)`: on a damaged footer Arrow ends the process there.
    """

    def __init__(self, source: Any, footer: bytes, base_offset: int, **options: Any) -> None:
        self.footer = footer
        """Its Thrift bytes."""
        self._source = source
        self._base_offset = base_offset
        self._pages_end: int = source.size() - len(footer) - TRAILER_BYTES
        super().__init__(source, **options)

    @property
    def footer_offset(self) -> int:
        """Where the footer begins in the file that is named in errors."""
        return self._base_offset + self._pages_end

    @cached_property
    def all_chunks(self) -> list[list[RawChunk]]:
        """The columns of each row group, nested ones by their leaves; empty if damaged."""
        return row_group_chunks(self.footer)

    @cached_property
    def chunks(self) -> list[dict[str, RawChunk]]:
        """Top-level columns that are not nested, by row group."""
        return [{c.column: c for c in group if c.column is not None} for group in self.all_chunks]

    @cached_property
    def damage(self) -> str | None:
        """How the footer contradicts itself about columns and pages; None if it does not."""
        schema, groups = self.metadata.schema, self.all_chunks
        if len(groups) != self.metadata.num_row_groups:
            return "its row groups cannot be told"
        columns = (schema.column(i) for i in range(len(schema)))
        leaves = [(column.path, column.physical_type) for column in columns]
        return check_chunks(groups, leaves, self._pages_end)

    @cached_property
    def raw_groups(self) -> list[dict[int, Field]]:
        """Row groups as the footer has them; look at `damage` before."""
        groups: list[dict[int, Field]] = CompactReader(self.footer).struct()[4].value.values
        return groups

    def dictionary_encoded(self, columns: Sequence[str], *, path: str) -> ParquetFile:
        """The same file, these leaf columns delivered dictionary-encoded."""
        offset = self._base_offset
        return open_parquet(self._source, path=path, dictionary=columns, base_offset=offset)

    def read_raw(self, begin: int, size: int, *, path: str) -> bytes:
        """Stored bytes of the file."""
        try:
            found: bytes = self._source.read_at(size, begin)
        except _FAILURES as error:
            raise _unreadable(error, path, self._base_offset + begin) from error
        if len(found) != size:
            raise corrupt("it ends in the middle of a column", path, self._base_offset + begin)
        return found

    def offset_of(self, group: int) -> int:
        """Where a row group begins; where the footer does, if that does not tell."""
        chunks = self.all_chunks[group] if group < len(self.all_chunks) else []
        begin = min((chunk.begin for chunk in chunks), default=-1)
        inside = 0 <= begin <= self._pages_end
        return self._base_offset + begin if inside else self.footer_offset


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group as the footer describes it."""

    index: int
    num_rows: int
    byte_size: int
    """Uncompressed bytes of all columns."""
    _chunks: Mapping[str, RawChunk]
    _schema: pa.Schema

    def statistics(self, column: str) -> ChunkStatistics:
        """Bounds of a column that is not nested; all unknown where there are none."""
        return _statistics(self._chunks, self._schema, column, self.num_rows)


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """What the end of a Parquet file says about it."""

    path: str
    num_rows: int
    created_by: str
    schema: pa.Schema
    """Arrow types as `iter_row_groups` will deliver them, without key/value metadata."""
    values: Mapping[str, str]
    """Key/value metadata; values that are not text are left out."""
    row_groups: tuple[RowGroup, ...]

    @classmethod
    def read(cls, source: Any, path: str) -> ParquetFooter:
        """Read the footer of an open file or of a buffer."""
        return cls.of(open_parquet(source, path=path), path)

    @classmethod
    def of(cls, file: ParquetFile, path: str) -> ParquetFooter:
        """The footer of a file that is open already."""
        metadata = file.metadata
        schema = file.schema_arrow.remove_metadata()
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = file.chunks or [{}] * len(groups)
        return cls(
            path=path,
            num_rows=metadata.num_rows,
            created_by=_created_by(metadata),
            schema=schema,
            values=_text_values(metadata.metadata or {}),
            row_groups=tuple(
                RowGroup(i, g.num_rows, g.total_byte_size, chunk, schema)
                for i, (g, chunk) in enumerate(zip(groups, chunks, strict=False))
            ),
        )

    @property
    def avro_schema(self) -> str | None:
        """The Avro schema text that an Avro writer left, meta columns included."""
        return next((self.values[k] for k in AVRO_SCHEMA_KEYS if self.values.get(k)), None)


def open_parquet(
    source: Any,
    *,
    path: str,
    dictionary: Sequence[str] = (),
    pre_buffer: bool = True,
    base_offset: int = 0,
    verify: bool = True,
) -> ParquetFile:
    """Open a file (a `pyarrow.NativeFile`, a buffer or bytes) and read its footer.

    `dictionary` names leaf columns to deliver dictionary-encoded; `pre_buffer` joins the reads of a
    row group, which pays on object stores. `base_offset` is where the source begins in the file at
    `path`, for errors. `verify` computes the checksums of pages that have one.
    """
    if isinstance(source, bytes | bytearray | memoryview | pa.Buffer):
        source = pa.BufferReader(source)
    end = base_offset
    try:
        end += source.size()
        footer = read_footer(source, path, base_offset)
        end -= len(footer) + TRAILER_BYTES
        trailer = len(footer).to_bytes(4, "little") + MAGIC
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + trailer))
        if len(footer) - metadata.serialized_size == SIGNATURE_BYTES:
            raise encrypted(path)
        file = ParquetFile(
            source,
            footer,
            base_offset,
            metadata=metadata,
            read_dictionary=list(dictionary) or None,
            coerce_int96_timestamp_unit="us",
            arrow_extensions_enabled=False,
            pre_buffer=pre_buffer,
            page_checksum_verification=verify,
        )
        _check_names(file.schema_arrow)
        _check_counts(metadata, path, end)
        return file
    except LakewrightError:
        raise
    except _FAILURES as error:
        raise _unreadable(error, path, end) from error


def iter_row_groups(
    file: ParquetFile,
    *,
    path: str,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
    batch_rows: int = BATCH_ROWS,
    use_threads: bool = False,
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Each chosen row group with its batches; batches hold `columns` as asked.

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
    file: ParquetFile,
    group: int,
    *,
    path: str,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The batches of one row group. With no columns at all, batches still carry their row count."""
    names = None if columns is None else list(columns)
    rows = 0
    if file.damage is not None:
        raise corrupt(file.damage, path, file.footer_offset)
    try:
        for batch in file.iter_batches(
            batch_size=batch_rows, row_groups=[group], columns=names, use_threads=use_threads
        ):
            rows += batch.num_rows
            yield batch
        told = file.metadata.row_group(group).num_rows
    except LakewrightError:
        raise
    except _FAILURES as error:
        raise _unreadable(error, path, file.offset_of(group)) from error
    if rows != told:  # Arrow takes a damaged count of values for the end of a column
        raise corrupt(
            f"a row group has {rows} rows where the footer tells {told}",
            path,
            file.offset_of(group),
        )


def read_columns(file: ParquetFile, *, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The whole of a small file, such as the content of a log block."""
    groups = iter_row_groups(file, path=path, columns=columns)
    batches = [batch for _, of_group in groups for batch in of_group]
    if batches:
        return pa.Table.from_batches(batches)
    schema = file.schema_arrow
    names = schema.names if columns is None else columns
    return pa.schema([schema.field(name) for name in names]).empty_table()


def row_group_range(file: ParquetFile, group: int, column: str) -> ChunkStatistics:
    """Bounds of a column that is not nested in one row group of an open file."""
    chunks = file.chunks[group] if group < len(file.chunks) else {}
    rows = file.metadata.row_group(group).num_rows
    return _statistics(chunks, file.schema_arrow, column, rows)


def _statistics(
    chunks: Mapping[str, RawChunk], schema: pa.Schema, column: str, rows: int
) -> ChunkStatistics:
    chunk, index = chunks.get(column), schema.get_field_index(column)
    if chunk is None or index < 0:
        return ChunkStatistics(None, None, None, rows)
    kind = schema.field(index).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_nested(kind):
        return ChunkStatistics(None, None, None, rows)
    return typed_bounds(chunk, kind, rows)


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Names that are not UTF-8 fail here, and not wherever they are first looked at."""
    for field in fields:
        _ = field.name
        if pa.types.is_nested(field.type):
            _check_names(field.type.field(i) for i in range(field.type.num_fields))


def _check_counts(metadata: pq.FileMetaData, path: str, offset: int) -> None:
    counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if sum(counts) != metadata.num_rows or min(counts, default=0) < 0:
        raise corrupt(f"its row groups have {counts} of {metadata.num_rows} rows", path, offset)


def _text_values(raw: Mapping[bytes, bytes]) -> dict[str, str]:
    values = {}
    for key, value in raw.items():
        try:
            values[key.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return values


def _created_by(metadata: pq.FileMetaData) -> str:
    try:
        return metadata.created_by or ""
    except UnicodeDecodeError:
        return ""


def _unreadable(error: Exception, path: str, offset: int) -> LakewrightError:
    if isinstance(error, OSError) and error.errno is not None:
        return StorageError(
            f"Reading a Parquet file failed: {error}.",
            hint="Check that the storage is reachable, then read again.",
            context={"path": path},
            retryable=True,
        )
    return corrupt(str(error), path, offset)
