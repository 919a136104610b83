"""The schema of a table at an instant, and where it was found.

The newest completed commit that may change the schema and carries one decides; services such as
compaction and clustering are asked only if no data commit on the active timeline knows. Without
any, the schema of table creation counts, then the footer of a base file. The meta columns come
first where the table fills them; a table with virtual keys does not show them. Partition columns
that are not stored in the files are part of the schema, to be filled from the partition path.

What can go wrong: schema text that does not parse is a `SchemaError` with its instant; a table that
has neither commits nor a creation schema is a `SchemaError` too, because nothing says its columns.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema, from_arrow
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import NO_DEFAULT, Field, Primitive, Record, Union
from lakewright.codec.parquet import ParquetFooter
from lakewright.errors import CorruptFileError, NotFoundError, OptionError, SchemaError
from lakewright.format.instant import Instant
from lakewright.format.records.commit import CommitMetadata
from lakewright.format.records.instants import load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage

__all__ = [
    "META_COLUMNS",
    "OPERATION_COLUMN",
    "TableSchema",
    "record_name",
    "resolve_table_schema",
    "with_meta_columns",
    "without_meta_columns",
]

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
OPERATION_COLUMN = "_hoodie_operation"
SERVICE_OPERATIONS = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})
FILES_TRIED = 4
COMMITS_TRIED = 4
"""How far back files are looked at for what commit metadata does not say."""
LOG_HEAD_BYTES = 1 << 18
CREATE_SCHEMA = "hoodie.table.create.schema"

_OPTIONAL_TEXT = Union((Primitive("null"), Primitive("string")))
_OPERATION_IN_LOG = re.compile(rb'"_hoodie_file_name".{0,256}"_hoodie_operation"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, in Avro and in Arrow."""

    avro: Record
    """With meta columns where the table fills them."""
    arrow: pa.Schema
    source: str
    """Where the schema was found, for people."""
    instant: str | None
    """Requested time of the commit that carries it."""
    partition_columns_from_path: tuple[str, ...] = ()
    """Columns that the files do not store."""

    @property
    def meta_columns(self) -> tuple[str, ...]:
        """The meta columns that the table shows, in order."""
        known = (*META_COLUMNS, OPERATION_COLUMN)
        return tuple(name for name in self.arrow.names if name in known)

    def defaults(self) -> dict[str, object]:
        """Defaults of top-level columns that are not null."""
        return {
            f.name: f.default
            for f in self.avro.fields
            if f.default is not NO_DEFAULT and f.default is not None
        }

    def project(self, columns: Sequence[str] | None, *, meta: bool = True) -> tuple[str, ...]:
        """Checked column names in the asked order; without any, all columns in table order."""
        if columns is None:
            hidden = () if meta else self.meta_columns
            return tuple(name for name in self.arrow.names if name not in hidden)
        unknown = [name for name in columns if name not in self.arrow.names]
        if unknown:
            near = difflib.get_close_matches(unknown[0], self.arrow.names, n=1, cutoff=0.5)
            raise OptionError(
                f"The table has no column {unknown[0]!r}.",
                hint=f"Did you mean {near[0]!r}?"
                if near
                else f"Its columns are: {', '.join(self.arrow.names)}.",
                context={"column": unknown[0]},
            )
        return tuple(dict.fromkeys(columns))


def resolve_table_schema(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    *,
    as_of: str | None = None,
) -> TableSchema:
    """The schema for reading the table, or for reading it as of a requested time."""
    commits = timeline.commits().completed()
    commits = commits if as_of is None else commits.up_to(as_of)
    return _Resolver(storage, properties, commits).resolve()


def with_meta_columns(record: Record, *, operation: bool = False) -> Record:
    """A record with the meta columns in front, as Hudi declares them."""
    names = (*META_COLUMNS, OPERATION_COLUMN) if operation else META_COLUMNS
    meta = tuple(Field(name, _OPTIONAL_TEXT, default=None, doc="") for name in names)
    return replace(record, fields=(*meta, *without_meta_columns(record).fields))


def without_meta_columns(record: Record) -> Record:
    """A record without any meta column."""
    known = (*META_COLUMNS, OPERATION_COLUMN)
    return replace(record, fields=tuple(f for f in record.fields if f.name not in known))


def record_name(table: str) -> tuple[str, str]:
    """Name and namespace that Hudi gives the record of a new table."""
    plain = re.sub(r"^[^A-Za-z_]|(?<=.)[^A-Za-z0-9_]", "__", table, flags=re.ASCII)
    return f"{plain}_record", f"hoodie.{plain}"


class _Resolver:
    """Looks for the schema of one table; every commit is read once at most."""

    def __init__(self, storage: Storage, properties: TableProperties, commits: Timeline) -> None:
        self._storage = storage
        self._properties = properties
        self._newest_first = commits.instants[::-1]
        self._read: dict[Instant, CommitMetadata | None] = {}

    def resolve(self) -> TableSchema:
        """The schema with everything that commits leave out."""
        found = self._from_commits() or self._from_creation() or self._from_files()
        properties, record = self._properties, found.avro
        from_path: tuple[str, ...] = ()
        if properties.drop_partition_columns:
            record = self._with_partition_columns(record)
            from_path = properties.partition_fields
        if properties.populate_meta_fields:
            told = record.field(OPERATION_COLUMN) is not None
            operation = told or self._files_have_operation_column()
            record = with_meta_columns(record, operation=operation)
        else:
            record = without_meta_columns(record)
        arrow = arrow_schema(record)
        return replace(found, avro=record, arrow=arrow, partition_columns_from_path=from_path)

    def _metadata(self, instant: Instant) -> CommitMetadata | None:
        if instant not in self._read:
            try:
                found = load_commit_metadata(self._storage, self._properties, instant)
            except NotFoundError:
                found = None  # archived since the timeline was listed
            self._read[instant] = found
        return self._read[instant]

    def _from_commits(self) -> TableSchema | None:
        service: tuple[Instant, str] | None = None
        for instant in self._newest_first:
            metadata = self._metadata(instant)
            if metadata is None or not metadata.schema:
                continue
            if (metadata.operation_type or "").upper() not in SERVICE_OPERATIONS:
                return self._from_commit(instant, metadata.schema)
            service = service or (instant, metadata.schema)
        return None if service is None else self._from_commit(*service)

    def _from_commit(self, instant: Instant, text: str) -> TableSchema:
        time, source = instant.requested_time, f"{instant.action} {instant.requested_time}"
        path = f"{self._properties.timeline_folder}/{instant.file_name}"
        return _stored_schema(text, source, time, {"path": path, "offset": 0, "instant": time})

    def _from_creation(self) -> TableSchema | None:
        text = self._properties.create_schema
        if text is None:
            return None
        return _stored_schema(text, CREATE_SCHEMA, None, {"property": CREATE_SCHEMA})

    def _from_files(self) -> TableSchema:
        for path in self._written_files(".parquet", commits=len(self._newest_first)):
            footer = self._footer(path)
            if footer is None:
                continue
            if footer.avro_schema is not None:
                place = {"path": path, "offset": 0}
                return _stored_schema(footer.avro_schema, path, None, place)
            name, namespace = record_name(self._properties.name)
            record = from_arrow(footer.schema, name=name, namespace=namespace)
            return TableSchema(record, arrow_schema(record), path, None)
        raise SchemaError(
            "Nothing says what columns the table has: no commit, no creation schema, no base file.",
            hint="Write to the table once, or set hoodie.table.create.schema to its Avro schema.",
            context={"table": self._storage.uri},
        )

    def _with_partition_columns(self, record: Record) -> Record:
        """Partition columns at the end, typed as at creation if that is known, else as text."""
        created = self._from_creation()
        known = {} if created is None else {f.name: f for f in created.avro.fields}
        names = self._properties.partition_fields
        added = tuple(
            known.get(name, Field(name, _OPTIONAL_TEXT, default=None))
            for name in names
            if record.field(name) is None
        )
        return replace(record, fields=(*record.fields, *added))

    def _files_have_operation_column(self) -> bool:
        """No metadata says whether files carry it, so the newest file is looked at."""
        for path in self._written_files(".parquet", commits=COMMITS_TRIED):
            footer = self._footer(path)
            if footer is not None:
                return OPERATION_COLUMN in footer.schema.names
        for path in self._written_files(".log.", commits=COMMITS_TRIED):
            try:
                head = self._storage.read_range(path, 0, LOG_HEAD_BYTES)
            except NotFoundError:
                continue
            return _OPERATION_IN_LOG.search(head) is not None
        return False

    def _footer(self, path: str) -> ParquetFooter | None:
        try:
            with self._storage.open_input(path) as source:
                return ParquetFooter.read(source, path)
        except (NotFoundError, CorruptFileError):
            return None  # cleaned or replaced since; whoever reads a damaged file is told

    def _written_files(self, mark: str, *, commits: int) -> Iterator[str]:
        tried = 0
        for instant in self._newest_first[:commits]:
            metadata = self._metadata(instant)
            for stat in metadata.write_stats if metadata is not None else ():
                if stat.path and mark in stat.path:
                    yield stat.path
                    tried += 1
                    if tried == FILES_TRIED:
                        return


def _stored_schema(
    text: str, source: str, time: str | None, place: Mapping[str, object]
) -> TableSchema:
    """The schema of a text; errors say where it is stored."""
    try:
        record = parse_schema(text)
        if not isinstance(record, Record):
            raise SchemaError(
                f"The schema of {source} is not a record.",
                hint="The commit is damaged; restore it, or read as of an earlier instant.",
            )
        return TableSchema(record, arrow_schema(record), source, time)
    except SchemaError as error:
        error.context |= {"source": source, **place}
        raise
