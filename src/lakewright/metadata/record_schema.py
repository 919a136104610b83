"""The schema of the metadata table's records, as it is written.

All indexes share one record; a record has one of its parts and nulls for the others. Tables of
version 6 get the fields that Hudi 0.15 knows, later ones those of 1.0. What is read is decoded with
the schema that stands beside it, never with this one. The text carries no documentation: it stands
in every log block.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import AvroType, Record, Union
from lakewright.errors import UnsupportedTableError
from lakewright.format.records.definitions import NAMESPACE
from lakewright.format.version import RecordLevel, TableVersion

__all__ = [
    "BLOOM_FILTER",
    "COLUMN_STATS",
    "FILE_LIST",
    "META_FIELDS",
    "RECORD_INDEX",
    "SECONDARY_INDEX",
    "RecordKind",
    "commit_schema",
    "part_type",
    "written_record",
    "written_schema",
]

FILE_LIST: Final = "filesystemMetadata"
BLOOM_FILTER: Final = "BloomFilterMetadata"
COLUMN_STATS: Final = "ColumnStatsMetadata"
RECORD_INDEX: Final = "recordIndexMetadata"
SECONDARY_INDEX: Final = "SecondaryIndexMetadata"

META_FIELDS: Final = tuple(
    f"_hoodie_{name}"
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
)

_TEXT: Final = {"type": "string", "avro.java.string": "String"}
_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
_WRAPPED: Final[dict[str, Any]] = {
    "Boolean": "boolean",
    "Int": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "Bytes": "bytes",
    "String": _TEXT,
    "Date": "int",
    "Decimal": _DECIMAL,
    "TimeMicros": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicros": "long",
}


class RecordKind(IntEnum):
    """What a record is about: its `type`."""

    PARTITION_LIST = 1
    FILE_LIST = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


def written_schema(version: TableVersion) -> str:
    """The schema of what is written into the metadata table of a table of this version."""
    if not version.writable:
        raise UnsupportedTableError(
            f"The metadata table of a table of version {version} cannot be written.",
            hint="Write the table with Hudi, or downgrade it to version 8.",
            context={"property": "hoodie.table.version", "value": version.number},
        )
    return _text(version.record_level)


def commit_schema(version: TableVersion) -> str:
    """The same without meta columns: what a commit of the metadata table says of its columns."""
    tree = json.loads(written_schema(version))
    kept = [field for field in tree["fields"] if field["name"] not in META_FIELDS]
    return json.dumps({**tree, "fields": kept}, separators=(",", ":"))


def written_record(version: TableVersion) -> Record:
    """The same schema, parsed."""
    return _parsed(written_schema(version))


def part_type(record: Record, part: str) -> AvroType | None:
    """The type of one part of a record, without its null branch; None if it has no such part."""
    field = record.field(part)
    if field is None:
        return None
    return field.type.optional if isinstance(field.type, Union) else field.type


@lru_cache(maxsize=8)
def _parsed(text: str) -> Record:
    record = parse_schema(text)
    assert isinstance(record, Record)
    return record


@lru_cache(maxsize=8)
def _text(level: RecordLevel) -> str:
    newer = level >= RecordLevel.R1_0_0
    fields = [
        *({"name": name, **_optional("string")} for name in META_FIELDS),
        _field("key", _TEXT),
        _field("type", "int"),
        _field(FILE_LIST, ["null", {**_map(_file_info()), "avro.java.string": "String"}]),
        {"name": BLOOM_FILTER, **_optional(_bloom_filter())},
        {"name": COLUMN_STATS, **_optional(_column_stats(newer=newer))},
        {"name": RECORD_INDEX, **_optional(_record_index(newer=newer))},
    ]
    if newer:
        flag = _record("HoodieSecondaryIndexInfo", _field("isDeleted", "boolean"))
        fields.append({"name": SECONDARY_INDEX, **_optional(flag)})
    tree = {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "namespace": NAMESPACE,
        "fields": fields,
    }
    return json.dumps(tree, separators=(",", ":"))


def _file_info() -> dict[str, Any]:
    return _record("HoodieMetadataFileInfo", _field("size", "long"), _field("isDeleted", "boolean"))


def _bloom_filter() -> dict[str, Any]:
    return _record(
        "HoodieMetadataBloomFilter",
        _field("type", _TEXT),
        _field("timestamp", _TEXT),
        _field("bloomFilter", "bytes"),
        _field("isDeleted", "boolean"),
    )


def _column_stats(*, newer: bool) -> dict[str, Any]:
    wrapped = {**_WRAPPED, "LocalDate": "int"} if newer else _WRAPPED
    wrappers = [_record(f"{name}Wrapper", _field("value", t)) for name, t in wrapped.items()]
    counts = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
    fields = [
        {"name": "fileName", **_optional(_TEXT)},
        {"name": "columnName", **_optional(_TEXT)},
        {"name": "minValue", "type": ["null", *wrappers], "default": None},
        {"name": "maxValue", "type": ["null", *(w["name"] for w in wrappers)], "default": None},
        *({"name": name, **_optional("long")} for name in counts),
        _field("isDeleted", "boolean"),
    ]
    if newer:
        fields.append({**_field("isTightBound", "boolean"), "default": False})
    return _record("HoodieMetadataColumnStats", *fields)


def _record_index(*, newer: bool) -> dict[str, Any]:
    fields = [
        {"name": "partitionName", **_optional(_TEXT)},
        {"name": "fileIdHighBits", **_optional("long")},
        {"name": "fileIdLowBits", **_optional("long")},
        {"name": "fileIndex", **_optional("int")},
        {"name": "fileId", **_optional(_TEXT)},
        {"name": "instantTime", **_optional("long")},
        {**_field("fileIdEncoding", "int"), "default": 0},
    ]
    if newer:
        fields.append({"name": "position", **_optional("long")})
    return _record("HoodieRecordIndexInfo", *fields)


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def _optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}
