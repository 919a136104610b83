"""Avro object container files: small files with their schema inside, as timelines have them.

Reading takes any number of blocks, codec `null` or `deflate`, and checks every sync marker. Writing
gives the one shape that Hudi writes: a header with nothing but `avro.schema`, and one block.

What can go wrong: a file that is cut, damaged or inconsistent is a `CorruptFileError`, a codec that
is not read a `FormatError`, an unusable schema a `SchemaError`; each names the path.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from lakewright.codec.avro.datum import DatumReader, datum_reader, write_datum
from lakewright.codec.avro.scalar import Damage, read_long
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import AvroType, Map, Primitive, min_size
from lakewright.errors import CorruptFileError, FormatError, SchemaError

__all__ = ["MAGIC", "SYNC_SIZE", "Container", "read_container", "write_container"]

MAGIC: Final = b"Obj\x01"
SYNC_SIZE: Final = 16
INFLATED_BYTES_MIN: Final = 4 << 20
INFLATED_PER_BYTE: Final = 32
"""What a compressed block may inflate to; Hudi itself never compresses these small files."""
EMPTY_RECORDS_MAX: Final = 1 << 16
"""Records without bytes in one block; nothing else bounds their number."""

_HEADER: Final = Map(Primitive("bytes"))


@dataclass(frozen=True, slots=True)
class Container:
    """A container file as values."""

    schema: AvroType
    schema_json: str
    codec: str
    sync: bytes
    records: list[Any]


def read_container(data: bytes | memoryview, *, path: str) -> Container:
    """Everything in a container file; records as `datum` reads them."""
    try:
        return _read(data, path)
    except Damage as damage:
        _corrupt(damage.what, path, damage.offset, damage)
    except SchemaError as error:
        error.context.setdefault("path", path)
        error.context["offset"] = len(MAGIC)  # of the header that holds the schema
        raise


def write_container(schema_json: str, records: Sequence[Any], *, sync: bytes) -> bytes:
    """A container file with this schema text and sync marker; no block when there is no record."""
    if len(sync) != SYNC_SIZE:
        raise FormatError(
            f"A sync marker has {SYNC_SIZE} bytes, not {len(sync)}.",
            hint="Pass 16 random bytes.",
        )
    schema = parse_schema(schema_json)
    header = write_datum({"avro.schema": schema_json.encode("utf-8")}, _HEADER)
    parts = [MAGIC, header, sync]
    if records:
        body = b"".join(write_datum(record, schema) for record in records)
        parts += [_long(len(records)), _long(len(body)), body, sync]
    return b"".join(parts)


def _long(value: int) -> bytes:
    return write_datum(value, Primitive("long"))


def _corrupt(what: str, path: str, offset: int, cause: Exception | None = None) -> NoReturn:
    raise CorruptFileError(
        f"The Avro file cannot be read: {what}.",
        hint="The file is cut or damaged; compare it with another copy.",
        context={"path": path, "offset": offset},
    ) from cause


def _read(data: bytes | memoryview, path: str) -> Container:
    if bytes(data[:4]) != MAGIC:
        _corrupt("it does not begin with the Avro magic", path, 0)
    header, pos = datum_reader(_HEADER)(data, 4, len(data))
    if "avro.schema" not in header:
        _corrupt("its header has no avro.schema", path, 4)
    try:
        schema_json = header["avro.schema"].decode("utf-8")
        codec = header.get("avro.codec", b"null").decode("utf-8")
    except UnicodeDecodeError as error:
        _corrupt("its header is not UTF-8", path, 4, error)
    if codec not in ("null", "deflate"):
        raise FormatError(
            f"The Avro file is compressed with '{codec}', which is not supported.",
            hint="Write it again with codec null or deflate; Hudi writes codec null.",
            context={"path": path, "offset": len(MAGIC)},
        )
    sync = bytes(data[pos : pos + SYNC_SIZE])
    if len(sync) != SYNC_SIZE:
        raise Damage(pos, "its header is cut")
    schema = parse_schema(schema_json)
    records = _blocks(data, pos + SYNC_SIZE, sync, codec, schema)
    return Container(schema, schema_json, codec, sync, records)


def _blocks(
    data: bytes | memoryview, pos: int, sync: bytes, codec: str, schema: AvroType
) -> list[Any]:
    records: list[Any] = []
    reader, record_min = datum_reader(schema), min_size(schema)
    while pos < len(data):
        start = pos
        count, pos = read_long(data, pos, len(data))
        size, pos = read_long(data, pos, len(data))
        if count < 0 or not 0 <= size <= len(data) - pos - SYNC_SIZE:
            raise Damage(start, "a block does not fit the file")
        if bytes(data[pos + size : pos + size + SYNC_SIZE]) != sync:
            raise Damage(pos + size, "a sync marker differs from the header's")
        body = data[pos : pos + size]
        if codec == "deflate":
            body = _inflate(bytes(body), start)
        room = len(body) // record_min if record_min else EMPTY_RECORDS_MAX - len(records)
        if count > room:
            raise Damage(start, f"a block of {len(body)} bytes claims {count} records")
        _read_block(body, count, reader, records, pos if codec == "null" else 0)
        pos += size + SYNC_SIZE
    return records


def _read_block(
    body: bytes | memoryview, count: int, reader: DatumReader, records: list[Any], base: int
) -> None:
    pos = 0
    try:
        for _ in range(count):  # bounded by the bytes of the block
            record, pos = reader(body, pos, len(body))
            records.append(record)
    except Damage as damage:
        raise Damage(base + damage.offset, damage.what) from None
    if pos != len(body):
        raise Damage(base + pos, "a block is longer than its records")


def _inflate(body: bytes, offset: int) -> bytes:
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    limit = INFLATED_BYTES_MIN + INFLATED_PER_BYTE * len(body)
    try:
        plain = engine.decompress(body, limit)
    except zlib.error as error:
        raise Damage(offset, f"a block does not inflate ({error})") from None
    if not engine.eof:
        raise Damage(offset, f"a compressed block is cut or inflates to more than {limit} bytes")
    return plain
