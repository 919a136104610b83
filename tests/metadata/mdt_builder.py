"""Metadata-table records, HFiles and log blocks built plainly, with fastavro as the encoder."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from lakewright.format.log_block import BlockType, HeaderKey, LogBlock, encode_block, read_blocks
from lakewright.format.log_content import encode_delete_rows
from lakewright.metadata.records import FileGroupReader
from lakewright.storage.local import LocalStorage
from tests.codec.hfile_builder import Producer, build

PLAIN = Producer("plain", gz=False, checksum=0)
TEXT = {"type": "string", "avro.java.string": "String"}
META = [
    {"name": f"_hoodie_{n}", "type": ["null", "string"], "default": None}
    for n in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
]
WRAPPERS = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": TEXT,
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicrosWrapper": "long",
}


def optional(kind: Any) -> dict[str, Any]:
    """A nullable type with its default."""
    return {"type": ["null", kind], "default": None}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """A record type."""
    return {"type": "record", "name": name, "fields": list(fields)}


def schema_of(generation: str) -> dict[str, Any]:
    """The record of a generation: B (version 6), D (8) or F (9)."""
    wrappers = dict(WRAPPERS)
    if generation != "B":
        wrappers["LocalDateWrapper"] = "int"
    defined: list[Any] = [record(n, {"name": "value", "type": t}) for n, t in wrappers.items()]
    named: list[Any] = list(wrappers)
    if generation == "F":
        items = {"type": "array", "items": ["null", *wrappers]}
        defined.append(record("ArrayWrapper", {"name": "wrappedValues", **optional(items)}))
        named.append("ArrayWrapper")
    counts = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
    stats = [
        {"name": "fileName", **optional(TEXT)},
        {"name": "columnName", **optional(TEXT)},
        {"name": "minValue", "type": ["null", *defined], "default": None},
        {"name": "maxValue", "type": ["null", *named], "default": None},
        *({"name": n, **optional("long")} for n in counts),
        {"name": "isDeleted", "type": "boolean"},
    ]
    location = [
        {"name": "partitionName", **optional(TEXT)},
        {"name": "fileIdHighBits", **optional("long")},
        {"name": "fileIdLowBits", **optional("long")},
        {"name": "fileIndex", **optional("int")},
        {"name": "fileId", **optional(TEXT)},
        {"name": "instantTime", **optional("long")},
        {"name": "fileIdEncoding", "type": "int", "default": 0},
    ]
    if generation != "B":
        stats.append({"name": "isTightBound", "type": "boolean", "default": False})
        location.append({"name": "position", **optional("long")})
    if generation == "F":
        kind = record(
            "HoodieValueTypeInfo",
            {"name": "typeOrdinal", "type": "int"},
            {"name": "additionalInfo", **optional(TEXT)},
        )
        stats.append({"name": "valueType", **optional(kind)})
    info = record(
        "HoodieMetadataFileInfo",
        {"name": "size", "type": "long"},
        {"name": "isDeleted", "type": "boolean"},
    )
    bloom = record(
        "HoodieMetadataBloomFilter",
        {"name": "type", "type": TEXT},
        {"name": "timestamp", "type": TEXT},
        {"name": "bloomFilter", "type": "bytes"},
        {"name": "isDeleted", "type": "boolean"},
    )
    fields = [
        *META,
        {"name": "key", "type": TEXT},
        {"name": "type", "type": "int"},
        {"name": "filesystemMetadata", "type": ["null", {"type": "map", "values": info}]},
        {"name": "BloomFilterMetadata", **optional(bloom)},
        {"name": "ColumnStatsMetadata", **optional(record("HoodieMetadataColumnStats", *stats))},
        {"name": "recordIndexMetadata", **optional(record("HoodieRecordIndexInfo", *location))},
    ]
    if generation != "B":
        deleted = record("HoodieSecondaryIndexInfo", {"name": "isDeleted", "type": "boolean"})
        fields.append({"name": "SecondaryIndexMetadata", **optional(deleted)})
    return {**record("HoodieMetadataRecord", *fields), "namespace": "org.apache.hudi.avro.model"}


SCHEMAS = {g: schema_of(g) for g in "BDF"}
TEXTS = {g: json.dumps(s) for g, s in SCHEMAS.items()}
_PARSED = {g: fastavro.parse_schema(json.loads(t)) for g, t in TEXTS.items()}


def value(type_: int, generation: str = "D", **fields: Any) -> bytes:
    """The bytes of one record."""
    names = {f["name"] for f in SCHEMAS[generation]["fields"]}
    content = dict.fromkeys(names) | {"key": "", "type": type_} | fields
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED[generation], content)
    return out.getvalue()


def files_value(entries: Mapping[str, int | None], type_: int = 2) -> bytes:
    """A record of the files index; None is a tombstone."""
    return value(
        type_,
        filesystemMetadata={
            name: {"size": size or 0, "isDeleted": size is None} for name, size in entries.items()
        },
    )


def wrapper(name: str, content: Any) -> tuple[str, dict[str, Any]]:
    """A bound in its wrapper."""
    return f"org.apache.hudi.avro.model.{name}", {"value": content}


def hfile(cells: Mapping[bytes, bytes], generation: str = "D") -> bytes:
    """An HFile of records."""
    info = {"schema": TEXTS[generation].encode()}
    return build(sorted(cells.items()), PLAIN, block_size=2048, info=info)


def log_blocks(
    steps: Sequence[Mapping[bytes, bytes] | Sequence[str]], generation: str = "D"
) -> list[LogBlock]:
    """Blocks of one log file: a mapping is records, a list is deleted keys."""
    out = b""
    for number, step in enumerate(steps):
        headers = {HeaderKey.INSTANT_TIME: f"{number:017}", HeaderKey.SCHEMA: TEXTS[generation]}
        if isinstance(step, Mapping):
            out += encode_block(BlockType.HFILE_DATA, headers, hfile(step, generation))
        else:
            keys = pa.array(step, pa.string())
            places = pa.array([""] * len(keys), pa.string())
            out += encode_block(BlockType.DELETE, headers, encode_delete_rows(keys, places))
    return read_blocks(out, path="x.log") if out else []


def reader(
    folder: Path,
    base: Mapping[bytes, bytes] | None,
    steps: Sequence[Mapping[bytes, bytes] | Sequence[str]] = (),
    generation: str = "D",
) -> FileGroupReader:
    """A file group of a base file and log blocks."""
    place = None
    if base is not None:
        data = hfile(base, generation)
        (folder / "base.hfile").write_bytes(data)
        place = ("base.hfile", len(data))
    return FileGroupReader(LocalStorage(str(folder)), place, log_blocks(steps, generation))
