"""Avro in the shared set of real tables: instant files and log blocks."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest

from lakewright.codec.avro.columns import decode_records, encode_records
from lakewright.codec.avro.container import MAGIC, read_container, write_container
from lakewright.codec.avro.schema import Record, parse_schema, to_json
from tests.codec.avro_cases import oracle_decode, raw_values
from tests.fixtures import SHARED, SHARED_ABSENT

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason=SHARED_ABSENT)


def _files() -> Iterator[tuple[str, bytes]]:
    for archive in sorted(SHARED.glob("*.zip")):
        with zipfile.ZipFile(archive) as z:
            for info in z.infolist():
                if not info.is_dir() and not info.filename.endswith((".crc", ".parquet")):
                    yield f"{archive.stem}/{info.filename}", z.read(info)


def _avro_blocks(data: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Schema text and record bodies of the Avro data blocks of a log file."""
    pos = 0
    while data[pos : pos + 6] == b"#HUDI#":
        size, _version, kind = struct.unpack_from(">qii", data, pos + 6)
        at, headers = pos + 26, {}
        for _ in range(struct.unpack_from(">i", data, pos + 22)[0]):
            ordinal, length = struct.unpack_from(">ii", data, at)
            headers[ordinal] = data[at + 8 : at + 8 + length]
            at += 8 + length
        if kind == 3:
            bodies, record = [], at + 16
            for _ in range(struct.unpack_from(">i", data, at + 12)[0]):
                (length,) = struct.unpack_from(">i", data, record)
                bodies.append(data[record + 4 : record + 4 + length])
                record += 4 + length
            yield headers[2].decode(), bodies
        pos += size + 14


def test_every_instant_file_is_written_again_byte_for_byte() -> None:
    seen, texts = 0, set()
    for name, data in _files():
        if data[:4] != MAGIC:
            continue
        file = read_container(data, path=name)
        assert write_container(file.schema_json, file.records, sync=file.sync) == data, name
        seen += 1
        texts.add(file.schema_json)
    assert seen >= 500
    for text in texts:
        assert to_json(parse_schema(text)) == text


def test_every_avro_log_block_is_decoded_and_encoded_as_the_oracle_does() -> None:
    blocks = records = 0
    for name, data in _files():
        if ".log." not in name:
            continue
        for text, bodies in _avro_blocks(data):
            schema = parse_schema(text)
            assert isinstance(schema, Record)
            assert to_json(schema) == text, name
            payload = b"".join(bodies)
            ends = np.cumsum([len(body) for body in bodies])
            starts = np.concatenate([[0], ends[:-1]])
            batch = decode_records(payload, starts, ends, schema, path=name)
            expected = oracle_decode(text, bodies)
            for field in schema.fields:
                got = raw_values(batch.column(field.name), field.type)
                assert got == [row[field.name] for row in expected], (name, field.name)
            assert encode_records(batch, schema)[0] == payload, name
            blocks += 1
            records += len(bodies)
    assert blocks > 30
    assert records > 40
