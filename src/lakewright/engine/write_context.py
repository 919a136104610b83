"""What every task of one write needs besides its rows and a storage: one value that travels.

A `WriteContext` is made once, by whoever began the instant, and sent to the tasks; it pickles. The
schema is that of the files: the five meta columns first (also where the table leaves them empty),
then the operation column where the table has one, then the stored columns of the table in order.
Partition columns that the table does not store are not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.codec.avro.schema import parse_schema, to_json
from lakewright.codec.avro.types import Record
from lakewright.codec.bloom import (
    DEFAULT_ENTRIES,
    DEFAULT_FPP,
    DEFAULT_MAX_ENTRIES,
    DYNAMIC,
    SIMPLE,
    BloomBuilder,
)
from lakewright.codec.parquet_writer import ParquetPolicy
from lakewright.errors import OptionError
from lakewright.format.cdc import LoggingMode
from lakewright.format.table_schema import META_COLUMNS, OPERATION_COLUMN, with_meta_columns
from lakewright.format.version import TableVersion
from lakewright.txn.fence import Fence

__all__ = ["MAX_FILE_BYTES", "BloomPolicy", "LogPolicy", "WriteContext", "WriteToken"]

MAX_FILE_BYTES = 125_829_120
COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS


@dataclass(frozen=True, slots=True)
class BloomPolicy:
    """How large the bloom filters in footers are; the defaults are Hudi's."""

    kind: str = DYNAMIC
    entries: int = DEFAULT_ENTRIES
    fpp: float = DEFAULT_FPP
    max_entries: int = DEFAULT_MAX_ENTRIES

    def __post_init__(self) -> None:
        if self.kind not in (SIMPLE, DYNAMIC):
            raise OptionError(
                f"There is no bloom filter of type {self.kind!r}.",
                hint=f"Choose {DYNAMIC} or {SIMPLE} for hoodie.bloom.index.filter.type.",
                context={"option": "hoodie.bloom.index.filter.type"},
            )
        if self.entries < 1 or not 0 < self.fpp < 1:
            raise OptionError(
                f"A bloom filter cannot have {self.entries} entries at a rate of {self.fpp}.",
                hint="hoodie.index.bloom.num_entries is at least 1, hoodie.index.bloom.fpp between "
                "0 and 1.",
            )

    def builder(self) -> BloomBuilder:
        """An empty filter of this size."""
        return BloomBuilder(
            kind=self.kind, entries=self.entries, fpp=self.fpp, max_entries=self.max_entries
        )


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """How log files come about; the sizes are Hudi's."""

    parquet: bool = False
    """Rows are Parquet files inside of blocks; otherwise Avro records."""
    max_block_bytes: int = 256 << 20
    positions: bool = True
    """Blocks tell which rows of the base file they change, where the table version allows it."""
    statistics: bool = False
    """Whoever writes rows tells what their columns hold, because an index wants to know."""


DEFAULT_LOG: Final = LogPolicy()
DEFAULT_BLOOM: Final = BloomPolicy()
DEFAULT_PARQUET: Final = ParquetPolicy()


@dataclass(frozen=True, slots=True)
class WriteToken:
    """Which task attempt wrote a file: no two attempts have the same."""

    task: int = 0
    stage: int = 0
    attempt: int = 0

    def __str__(self) -> str:
        return f"{self.task}-{self.stage}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Everything about one write that all its tasks share."""

    instant: str
    version: TableVersion
    fence: Fence
    schema: pa.Schema
    """Columns of the files, meta columns first."""
    avro_schema: str
    """The same in Avro, for footers."""
    populate_meta: bool = True
    """Whether the meta columns are filled; otherwise only the file name is."""
    parquet: ParquetPolicy = DEFAULT_PARQUET
    bloom: BloomPolicy | None = DEFAULT_BLOOM
    """None leaves the filter out of the footers."""
    max_file_bytes: int | None = MAX_FILE_BYTES
    """Size at which a writer goes on with a new file; None never does (bucket indexes)."""
    partition_metafile: Literal["text", "parquet"] = "text"
    log: LogPolicy = DEFAULT_LOG
    changes: LoggingMode | None = None
    """What is kept of changes beside base files that are merged; None is nothing."""

    @classmethod
    def of(
        cls,
        record: Record,
        *,
        instant: str,
        version: TableVersion,
        fence: Fence,
        populate_meta: bool = True,
        not_stored: tuple[str, ...] = (),
        parquet: ParquetPolicy = DEFAULT_PARQUET,
        bloom: BloomPolicy | None = DEFAULT_BLOOM,
        max_file_bytes: int | None = MAX_FILE_BYTES,
        partition_metafile: Literal["text", "parquet"] = "text",
        log: LogPolicy = DEFAULT_LOG,
        changes: LoggingMode | None = None,
    ) -> WriteContext:
        """The context of a write with this table schema; `not_stored` columns are left out."""
        kept = tuple(f for f in record.fields if f.name not in not_stored)
        stored = with_meta_columns(
            Record(record.name, kept, record.doc, record.props),
            operation=record.field(OPERATION_COLUMN) is not None,
        )
        return cls(
            instant=instant,
            version=version,
            fence=fence,
            schema=arrow_schema(stored),
            avro_schema=to_json(stored),
            populate_meta=populate_meta,
            parquet=parquet,
            bloom=bloom,
            max_file_bytes=max_file_bytes,
            partition_metafile=partition_metafile,
            log=log,
            changes=changes,
        )

    @property
    def data_schema(self) -> pa.Schema:
        """The columns that rows bring along, without any meta column."""
        known = (*META_COLUMNS, OPERATION_COLUMN)
        return pa.schema([f for f in self.schema if f.name not in known])

    @property
    def merged_schema(self) -> pa.Schema:
        """The columns in which versions of rows meet; each file names itself in all its rows."""
        return pa.schema([f for f in self.schema if f.name != FILE_NAME])

    def log_schema(self, columns: frozenset[str] | None) -> tuple[pa.Schema, str]:
        """The columns of log rows that bring only `columns` along (None: all), and in Avro."""
        if columns is None:
            return self.schema, self.avro_schema
        kept = columns | set(META_COLUMNS)
        record = parse_schema(self.avro_schema)
        assert isinstance(record, Record)
        partial = replace(record, fields=tuple(f for f in record.fields if f.name in kept))
        return pa.schema([f for f in self.schema if f.name in kept]), to_json(partial)

    @property
    def incoming_schema(self) -> pa.Schema:
        """What batches to be written must look like."""
        names = (RECORD_KEY, PARTITION_PATH) if self.populate_meta else (PARTITION_PATH,)
        first = [pa.field(name, pa.string(), nullable=False) for name in names]
        return pa.schema([*first, *self.data_schema])
