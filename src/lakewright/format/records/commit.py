"""Commit metadata: what a commit, deltacommit or replacecommit wrote and replaced.

One type for both Avro records and for the JSON of version 6: a replacecommit is the one whose
`partition_to_replace_file_ids` is not None. An empty file is default metadata, as a crash may leave
one. JSON keeps unknown fields and the order of all fields, so that reading and writing a file gives
back its bytes; maps that Hudi's readers demand are never None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from lakewright.errors import CorruptFileError
from lakewright.format.records.definitions import record_fields, schema_json
from lakewright.format.records.json_text import format_json, parse_json
from lakewright.format.records.model import (
    AvroRecord,
    Content,
    MisfitError,
    attribute_values,
    content_of,
    encode_container,
    snake_case,
    value_decoder,
)
from lakewright.format.version import TableVersion

__all__ = ["CommitMetadata", "RuntimeStats", "WriteStat"]

_REPLACE = "HoodieReplaceCommitMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStats(AvroRecord):
    """Milliseconds one writer task spent."""

    avro_name: ClassVar[str] = "HoodieRuntimeStats"

    total_scan_time: int | None = None
    total_create_time: int | None = None
    total_upsert_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat(AvroRecord):
    """One file that was written: where it is, what it follows, how much it holds."""

    avro_name: ClassVar[str] = "HoodieWriteStat"

    file_id: str | None = None
    path: str | None = None
    prev_commit: str | None = None
    num_writes: int | None = None
    num_deletes: int | None = None
    num_update_writes: int | None = None
    total_write_bytes: int | None = None
    total_write_errors: int | None = None
    partition_path: str | None = None
    total_log_records: int | None = None
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = None
    num_inserts: int | None = None
    total_log_blocks: int | None = None
    total_corrupt_log_block: int | None = None
    total_rollback_blocks: int | None = None
    file_size_in_bytes: int | None = None
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: Sequence[str] | None = None
    cdc_stats: Mapping[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    total_log_files_compacted: int | None = None
    total_log_read_time_ms: int | None = None
    total_log_size_compacted: int | None = None
    temp_path: str | None = None
    num_updates: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """JSON fields without a meaning here."""
    json_fields: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """JSON fields in the order they were read."""
    column_facts: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """What the writer of a log file found out about its columns; it is not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata(AvroRecord):
    """What one write did, by partition."""

    avro_name: ClassVar[str] = "HoodieCommitMetadata"

    partition_to_write_stats: Mapping[str, Sequence[WriteStat]] = field(default_factory=dict)
    compacted: bool | None = None
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    version: int | None = None
    operation_type: str | None = None
    partition_to_replace_file_ids: Mapping[str, Sequence[str]] | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """JSON fields without a meaning here."""
    json_fields: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """JSON fields in the order they were read."""

    @property
    def schema(self) -> str | None:
        """Avro schema of the table without meta columns, as the commit stored it."""
        return self.extra_metadata.get("schema") or None

    @property
    def write_stats(self) -> Iterator[WriteStat]:
        """Every file written, partition by partition."""
        for stats in self.partition_to_write_stats.values():
            yield from stats

    @property
    def data_paths(self) -> set[str]:
        """Every file that the write made, change logs included."""
        found: set[str] = set()
        for stat in self.write_stats:
            found.update(path for path in (stat.path, *(stat.cdc_stats or ())) if path)
        return found

    @classmethod
    def read(cls, data: bytes, *, path: str = "") -> Self:
        """Metadata from Avro, JSON or an empty file, told by the first bytes."""
        kind = content_of(data, path=path)
        if kind is Content.EMPTY:
            return cls(operation_type="UNKNOWN")
        if kind is Content.AVRO:
            # Named, because the class a slotted dataclass replaces is what bare `super` would see.
            return super(CommitMetadata, cls).read(data, path=path)
        try:
            return cls(**_from_json(cls.__name__, _METADATA_DECODERS, parse_json(data, path=path)))
        except MisfitError as error:
            raise CorruptFileError(
                f"Commit metadata does not fit: {error}.",
                hint="The file is damaged; restore it from another copy of the table.",
                context={"path": path, "offset": 0},
            ) from error

    @classmethod
    def avro_names(cls) -> tuple[str, ...]:
        """Both records of commit metadata."""
        return (cls.avro_name, _REPLACE)

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        """Metadata of a decoded value of either Avro record."""
        return cls(**_without_null_maps(attribute_values(_REPLACE, value), _REPLACED in value))

    def to_avro(self) -> dict[str, Any]:
        """Plain values by Avro field name, for either Avro record."""
        return _to_avro(self)

    def write(self, version: TableVersion) -> bytes:
        """The bytes of the instant file: Avro, or JSON where the version has JSON."""
        if not version.commit_metadata_avro:
            return self.write_json()
        name = self.avro_name if self.partition_to_replace_file_ids is None else _REPLACE
        return encode_container(self.to_avro(), schema_json(name, version.record_level))

    def write_json(self) -> bytes:
        """The JSON text; fields in the order they were read, else in that of Hudi 0.15."""
        stats = {
            partition: [_stat_json(stat) for stat in stats]
            for partition, stats in self.partition_to_write_stats.items()
        }
        known = {
            "partitionToWriteStats": stats,
            "compacted": bool(self.compacted),
            "extraMetadata": self.extra_metadata,
            "operationType": self.operation_type or "UNKNOWN",
        }
        if self.partition_to_replace_file_ids is not None:
            known["partitionToReplaceFileIds"] = self.partition_to_replace_file_ids
        return format_json(_in_order({**known, **self.unknown}, self.json_fields))


_REPLACED = "partitionToReplaceFileIds"


def _to_avro(metadata: CommitMetadata) -> dict[str, Any]:
    return {
        "partitionToWriteStats": {
            partition: [stat.to_avro() for stat in stats]
            for partition, stats in metadata.partition_to_write_stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra_metadata),
        "version": metadata.version,
        "operationType": metadata.operation_type,
        _REPLACED: metadata.partition_to_replace_file_ids,
    }


def _without_null_maps(arguments: dict[str, Any], replaces: bool) -> dict[str, Any]:
    for name in ("partition_to_write_stats", "extra_metadata"):
        arguments[name] = arguments.get(name) or {}
    if replaces:
        name = "partition_to_replace_file_ids"
        arguments[name] = arguments.get(name) or {}
    return arguments


# ---- JSON --------------------------------------------------------------------------------------

_RUNTIME_LAYOUT = ("totalScanTime", "totalUpsertTime", "totalCreateTime")
_STAT_LAYOUT = (
    "fileId",
    "path",
    "cdcStats",
    "prevCommit",
    "numWrites",
    "numDeletes",
    "numUpdateWrites",
    "numInserts",
    "totalWriteBytes",
    "totalWriteErrors",
    "tempPath",
    "partitionPath",
    "totalLogRecords",
    "totalLogFilesCompacted",
    "totalLogSizeCompacted",
    "totalUpdatedRecordsCompacted",
    "totalLogBlocks",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
    "fileSizeInBytes",
    "minEventTime",
    "maxEventTime",
    "runtimeStats",
)
_NULLABLE_NUMBERS = frozenset({"minEventTime", "maxEventTime"})


def _json_stat(value: Any) -> WriteStat:
    return WriteStat(**_from_json("a write stat", _STAT_DECODERS, value))


def _json_runtime(value: Any) -> RuntimeStats | None:
    return None if value is None else RuntimeStats.from_avro(value)


def _json_stats(value: Any) -> dict[str, list[WriteStat]]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(v, list) for v in value.values()):
        raise MisfitError("partitionToWriteStats is not a map of lists")
    return {partition: [_json_stat(s) for s in stats] for partition, stats in value.items()}


_STAT_SPECS = {spec.name: spec for spec in record_fields("HoodieWriteStat")}
_STAT_DECODERS = {
    **{name: value_decoder(spec.type) for name, spec in _STAT_SPECS.items()},
    "runtimeStats": _json_runtime,
}
_METADATA_DECODERS = {
    **{spec.name: value_decoder(spec.type) for spec in record_fields(_REPLACE)},
    "partitionToWriteStats": _json_stats,
}


def _from_json(what: str, decoders: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Constructor arguments of a JSON object; fields without a decoder are kept as unknown."""
    if not isinstance(value, dict):
        raise MisfitError(f"{type(value).__name__} where {what} belongs")
    arguments: dict[str, Any] = {"json_fields": tuple(value), "unknown": {}}
    for key, raw in value.items():
        decode = decoders.get(key)
        if decode is None:
            arguments["unknown"][key] = raw
            continue
        try:
            arguments[snake_case(key)] = decode(raw)
        except MisfitError as error:
            raise MisfitError(f"{key}: {error}") from None
    if decoders is _METADATA_DECODERS:
        return _without_null_maps(arguments, _REPLACED in value)
    return arguments


def _stat_json(stat: WriteStat) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name in (*_STAT_LAYOUT, *(n for n in _STAT_SPECS if n not in _STAT_LAYOUT)):
        value = getattr(stat, snake_case(name))
        if value is None and name not in _STAT_LAYOUT and name not in stat.json_fields:
            continue
        numeric = _STAT_SPECS[name].type.kind in ("int", "long")
        known[name] = 0 if value is None and numeric and name not in _NULLABLE_NUMBERS else value
    if stat.runtime_stats is not None:
        plain = stat.runtime_stats.to_avro()
        known["runtimeStats"] = {name: plain[name] for name in _RUNTIME_LAYOUT}
    return _in_order({**known, **stat.unknown}, stat.json_fields)


def _in_order(fields: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    """Remembered fields first and in their order; the others only if they say something."""
    if not order:
        return fields
    read = {name: fields[name] for name in order if name in fields}
    return {**read, **{k: v for k, v in fields.items() if k not in read and v}}
