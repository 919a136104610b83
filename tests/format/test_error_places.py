"""Errors about damaged files name the file and the offset."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakewright.codec.avro.container import read_container, write_container
from lakewright.errors import FormatError, SchemaError
from lakewright.format import property_keys as keys
from lakewright.format.history import history_files
from lakewright.format.internal_schema import parse_history
from lakewright.format.partitions import format_partition_metadata, read_partition_metadata
from lakewright.format.properties import (
    PROPERTIES_FILE,
    format_properties,
    load_properties,
    parse_properties,
)
from lakewright.format.property_text import property_offset
from lakewright.format.records import CommitMetadata
from lakewright.format.records.json_text import parse_json
from lakewright.format.records.model import read_record
from lakewright.format.table_properties import TableProperties
from lakewright.format.table_schema import resolve_table_schema
from lakewright.format.timeline import load_timeline
from lakewright.metadata.definitions import parse_definitions
from lakewright.runtime.clock import ManualClock
from lakewright.storage.memory import MemoryStorage

SCHEMA = '{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}'
CONTAINER = write_container(SCHEMA, [{"a": 1}], sync=b"0123456789abcdef")


def _partition(data: bytes, name: str = ".hoodie_partition_metadata") -> object:
    storage = MemoryStorage()
    storage.replace(f"p/{name}", data)
    return read_partition_metadata(storage, "p")


def _manifest(data: bytes) -> object:
    storage = MemoryStorage()
    storage.replace(".hoodie/timeline/history/_version_", b"1")
    storage.replace(".hoodie/timeline/history/manifest_1", data)
    eight = {keys.NAME: "t", keys.VERSION: "8", keys.LAYOUT_VERSION: "2"}
    return history_files(storage, TableProperties(eight))


def _properties(data: bytes) -> object:
    storage = MemoryStorage()
    storage.replace(PROPERTIES_FILE, data)
    return load_properties(storage, clock=ManualClock())


@pytest.mark.parametrize(
    ("read", "data", "offset"),
    [
        (lambda d: parse_json(d, path="f"), b'{"a": x}', 6),
        (lambda d: parse_json(d, path="f"), '{"ж": x}'.encode(), 7),
        (lambda d: parse_json(d, path="f"), b'{"a": "\xff"}', 7),
        (lambda d: parse_json(d, path="f"), b"[]", 0),
        (lambda d: CommitMetadata.read(d, path="f"), b'{"partitionToWriteStats": 5}', 0),
        (lambda d: parse_definitions(d, path="f"), b'{"indexDefinitions": ]', 21),
        (lambda d: parse_history(d, path="f"), b'{"schemas": ]', 12),
        (lambda d: parse_history(d, path="f"), b"{}", 0),
        (lambda d: read_record(d, path="f"), CONTAINER, 0),
        (lambda d: read_container(d, path="f"), CONTAINER.replace(b'"long"', b'"lonk"'), 4),
        (lambda d: parse_properties(d, path="f"), b"a=1\nb=\\\n2\nc=\\u12", 10),
        (_partition, format_partition_metadata("1", 2, now_ms=0).replace(b"h=2", b"h=z"), None),
        (lambda d: _partition(d, ".hoodie_partition_metadata.parquet"), b"PAR1" * 9, 28),
        (_manifest, b'{"files": [x]}', 11),
        (_manifest, b'{"files": [{}]}', 0),
        (_properties, b"hoodie.table.name=t\nhoodie.table.checksum=5\n", 20),
        (_properties, b"hoodie.table.name=t\nx=\\u1\n", 20),
    ],
)
def test_an_error_names_the_file_and_the_offset(
    read: Callable[[bytes], object], data: bytes, offset: int | None
) -> None:
    with pytest.raises(FormatError) as caught:
        read(data)
    told = caught.value.context
    assert told["path"]
    assert told["offset"] == (data.index(b"partitionDepth") if offset is None else offset)


def test_the_line_that_decides_a_property_is_found() -> None:
    data = b"# a=0\na=1\r\n  b : 2\ra \\\n  more\n"
    assert property_offset(data, "a") == data.index(b"a \\")
    assert property_offset(data, "b") == data.index(b"  b")
    assert property_offset(data, "none") == 0
    assert property_offset(format_properties({"k": "v"}), "k") == 0


@pytest.mark.parametrize("schema", ["{", '"long"', '{"type":"record"}'])
def test_the_commit_with_an_unusable_schema_is_named(schema: str) -> None:
    path = ".hoodie/20240101000000000.commit"
    metadata = CommitMetadata(extra_metadata={"schema": schema}, operation_type="UPSERT")
    storage = MemoryStorage()
    storage.replace(path, metadata.write_json())
    six = TableProperties({keys.NAME: "t", keys.VERSION: "6", keys.LAYOUT_VERSION: "1"})
    with pytest.raises(SchemaError) as caught:
        resolve_table_schema(storage, six, load_timeline(storage, six))
    assert (caught.value.context["path"], caught.value.context["offset"]) == (path, 0)
