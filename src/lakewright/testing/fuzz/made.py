"""Seeds made by our own encoders: small files in which every road of a reader begins.

Real files are better witnesses of the format; these are smaller, and hold what few tables have:
change blocks, arrays of ordering values, partial updates, uncompressed pages.
"""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakewright.codec.avro.datum import write_datum
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.roaring import encode_positions
from lakewright.format.log_block import BlockType, HeaderKey, encode_block, rollback_block
from lakewright.format.log_content import encode_avro_content, encode_delete_rows

__all__ = [
    "EVERY_TYPE",
    "avro_bodies",
    "delete_contents",
    "log_files",
    "parquet_files",
]

_DECIMAL: Final = {"logicalType": "decimal", "precision": 10, "scale": 2}
EVERY_TYPE: Final = json.dumps(
    {
        "type": "record",
        "name": "row",
        "namespace": "made",
        "fields": [
            {"name": "_hoodie_record_key", "type": ["null", "string"], "default": None},
            {"name": "flag", "type": ["null", "boolean"]},
            {"name": "small", "type": "int"},
            {"name": "large", "type": ["long", "null"]},
            {"name": "real", "type": ["null", "float"]},
            {"name": "exact", "type": ["null", {"type": "bytes", **_DECIMAL}]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "moment", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
            {"name": "hash", "type": {"type": "fixed", "name": "h", "size": 4}},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "sizes", "type": ["null", {"type": "map", "values": "long"}]},
            {
                "name": "inner",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "in",
                        "fields": [
                            {"name": "a", "type": "double"},
                            {"name": "b", "type": {"type": "array", "items": "int"}},
                        ],
                    },
                ],
            },
            {"name": "any", "type": ["null", "string", "long", {"type": "array", "items": "int"}]},
        ],
    }
)
_RARE_FIELDS: Final[dict[str, Any]] = {
    "clock": {"type": "int", "logicalType": "time-millis"},
    "fine_clock": ["null", {"type": "long", "logicalType": "time-micros"}],
    "nanos": {"type": "long", "logicalType": "timestamp-nanos"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "number": ["null", "int", "long"],
    "real": ["float", "double", "null"],
    "exact": {"type": "fixed", "name": "f9", "size": 9, **_DECIMAL},
    "long_exact": {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 10},
    "wide": ["null", {"type": "fixed", "name": "f40", "size": 40}],
    "triples": {"type": "array", "items": {"type": "fixed", "name": "f3", "size": 3}},
    "nothing": {"type": "array", "items": "null"},
    "words": {"type": "array", "items": "string"},
    "nested": {"type": "array", "items": {"type": "map", "values": ["null", "boolean"]}},
    "only": ["string"],
    "uuid": {"type": "string", "logicalType": "uuid"},
}
RARE_TYPES: Final = json.dumps(
    {
        "type": "record",
        "name": "rare",
        "fields": [{"name": n, "type": t} for n, t in _RARE_FIELDS.items()],
    }
)
_FEW: Final = json.dumps(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "_hoodie_record_key", "type": ["null", "string"], "default": None},
            {"name": "n", "type": ["null", "long"], "default": None},
        ],
    }
)
_CHANGE: Final = json.dumps(
    {
        "type": "record",
        "name": "hoodie_cdc",
        "fields": [{"name": n, "type": ["null", "string"]} for n in ("op", "ts_ms", "before")],
    }
)


def _row(n: int) -> dict[str, Any]:
    return {
        "_hoodie_record_key": f"key-{n}",
        "flag": [None, True, False][n % 3],
        "small": n * 7919 - 5000,
        "large": None if n % 5 == 0 else n * 2**40,
        "real": None if n % 4 == 0 else float(n),
        "exact": None if n % 3 == 0 else (n * 100).to_bytes(4, "big", signed=True),
        "day": 19_000 + n,
        "moment": 1_700_000_000_000_000 + n,
        "kind": "AB"[n % 2],
        "hash": bytes([n % 256] * 4),
        "tags": [None if k % 2 else f"t{k}" for k in range(n % 4)],
        "sizes": None if n % 4 == 1 else {f"m{k}": n * k for k in range(n % 3)},
        "inner": None if n % 2 else {"a": n / 7, "b": list(range(n % 3))},
        "any": [None, "text", 5, [1, 2, 3]][n % 4],
    }


def _rare_row(n: int) -> dict[str, Any]:
    return {
        "clock": n * 1000,
        "fine_clock": None if n % 2 else n,
        "nanos": n - 5,
        "local": -n,
        "number": [None, n, n << 40][n % 3],
        "real": [None, 0.5, 1e300][n % 3],
        "exact": (-n).to_bytes(9, "big", signed=True),
        "long_exact": (n**20).to_bytes(20, "big", signed=True),
        "wide": None if n % 3 else bytes(40),
        "triples": [b"abc"] * (n % 3),
        "nothing": [None] * (n % 4),
        "words": [f"w{k}" for k in range(n % 3)],
        "nested": [{"a": None, "b": True}] * (n % 2),
        "only": "x",
        "uuid": "",
    }


def rare_type_bodies(count: int = 10) -> list[bytes]:
    """Records of `RARE_TYPES`; two of them with arrays in several blocks that tell their sizes."""
    bodies = avro_bodies(RARE_TYPES, [_rare_row(n) for n in range(count)])
    plain = write_datum(["w0", "w1"], parse_schema('{"type":"array","items":"string"}'))
    in_blocks = b"\x01\x06\x04w0" + b"\x01\x06\x04w1" + b"\x00"  # counts of -1, sizes of 3
    return [body.replace(plain, in_blocks) if n % 4 == 1 else body for n, body in enumerate(bodies)]


_POINT: Final = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": "float"}, {"name": "label", "type": ["null", "string"]}],
}
LONG_ARRAY: Final = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": {"type": "array", "items": _POINT}}],
    }
)


def long_array_body(items: int = 16_400) -> bytes:
    """One record whose array is long enough to be decoded by guessing where its items begin."""
    points = [{"x": 0.5, "label": "a" if n % 7 == 0 else None} for n in range(items)]
    return avro_bodies(LONG_ARRAY, [{"a": points}])[0]


def avro_bodies(schema_text: str, rows: list[dict[str, Any]]) -> list[bytes]:
    """Encoded records."""
    schema = parse_schema(schema_text)
    return [write_datum(row, schema) for row in rows]


@lru_cache(maxsize=1)
def every_type_bodies(count: int = 12) -> tuple[bytes, ...]:
    """Records of `EVERY_TYPE`."""
    return tuple(avro_bodies(EVERY_TYPE, [_row(n) for n in range(count)]))


def _avro_content(bodies: list[bytes] | tuple[bytes, ...]) -> bytes:
    offsets = np.cumsum([0, *map(len, bodies)]).astype(np.int64)
    return encode_avro_content(b"".join(bodies), offsets)


def _headers(instant: str, schema: str, **more: str) -> dict[HeaderKey, str]:
    named = {HeaderKey[key]: text for key, text in more.items()}
    return {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema, **named}


def delete_contents() -> dict[str, bytes]:
    """Contents of delete blocks, one per kind of ordering value."""
    keys = pa.array(["key-1", "key-22", "ключ", "k" * 70])
    partitions = pa.array(["", "2024/01/01", "д", "p=1"])
    values = {
        "none": None,
        "int": pa.array([1, None, 3, -4], pa.int32()),
        "long": pa.array([1, 2**40, None, -(2**62)], pa.int64()),
        "double": pa.array([1.5, -0.0, None, 1e300]),
        "float": pa.array([1.5, -0.0, None, 3.0], pa.float32()),
        "text": pa.array(["a", None, "ж" * 9, ""]),
        "bytes": pa.array([b"\x00", None, b"\xff" * 9, b""]),
        "boolean": pa.array([True, False, None, True]),
        "decimal": pa.array(
            [Decimal("1.50"), None, Decimal("-7"), Decimal(0)], pa.decimal128(12, 2)
        ),
        "moment": pa.array([1, 2, None, -5], pa.timestamp("us", "UTC")),
        "day": pa.array([1, 2, None, -5], pa.date32()),
    }
    return {
        name: encode_delete_rows(keys, partitions, ordering) for name, ordering in values.items()
    } | {"array": _delete_with_arrays()}


def _delete_with_arrays() -> bytes:
    """Several ordering values per record, which only version 9 writes."""
    one = b"\x02" + b"\x0akey-1" + b"\x02\x00" + b"\x18\x02"  # key, partition, branch 12, present
    items = b"\x06" + b"\x04\x0a" + b"\x06\x80\x80\x01" + b"\x0e\x04ab" + b"\x00"
    payload = b"\x02" + one + items + b"\x00"
    return struct.pack(">ii", 3, len(payload)) + payload


def parquet_files() -> dict[str, bytes]:
    """Parquet files with few rows: plain and compressed, flat and nested, old and new pages."""
    flat = pa.table(
        {
            "_hoodie_record_key": [f"key-{n}" for n in range(6)],
            "n": pa.array([1, None, 3, 4, 5, 6], pa.int64()),
            "d": pa.array([1.5, None, 2.5, 3.5, 0.0, -1.0]),
            "b": [True, False, None, True, True, False],
            "x": pa.array(
                [Decimal("1.50"), None, Decimal("-7"), Decimal(0)] + [None] * 2,
                pa.decimal128(12, 2),
            ),
            "t": pa.array([1, 2, None, -5, 7, 8], pa.timestamp("us", "UTC")),
            "u": pa.array([1, 2, None, 2**32 - 1, 7, 8], pa.uint32()),
            "day": pa.array([1, 2, None, -5, 7, 8], pa.date32()),
            "clock": pa.array([1, 2, None, 5, 7, 8], pa.time64("us")),
            "f": pa.array([b"abc", None, b"def"] * 2, pa.binary(3)),
        }
    )
    nested = pa.table(
        {
            "k": ["a", "b", "c"],
            "l": [[1, None], [], None],
            "s": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
            "m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        }
    )
    return {
        "flat-plain": _parquet(flat, compression="none", use_dictionary=False),
        "flat-dictionary": _parquet(flat, compression="none", row_group_size=2),
        "flat-integers": _parquet(
            flat,
            compression="none",
            store_decimal_as_integer=True,
            use_deprecated_int96_timestamps=True,
        ),
        "flat-gzip": _parquet(flat, compression="gzip", version="1.0"),
        "flat-snappy-v2": _parquet(flat, compression="snappy", data_page_version="2.0"),
        "nested-plain": _parquet(nested, compression="none"),
        "nested-zstd": _parquet(nested, compression="zstd"),
        "empty": _parquet(flat.slice(0, 0), compression="none"),
    }


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, **options)
    return bytes(sink.getvalue())


def log_files() -> dict[str, bytes]:
    """Log files with blocks of every type that a data table has."""
    every = every_type_bodies()
    few = avro_bodies(_FEW, [{"_hoodie_record_key": f"k{n}", "n": n} for n in range(5)])
    change = avro_bodies(_CHANGE, [{"op": "i", "ts_ms": "1", "before": None}] * 3)
    deletes = delete_contents()
    avro, delete = BlockType.AVRO_DATA, BlockType.DELETE
    first = encode_block(avro, _headers("001", _FEW), _avro_content(few))
    second = encode_block(avro, _headers("002", EVERY_TYPE), _avro_content(every))
    partial = _headers("003", _FEW, IS_PARTIAL="true")
    placed = _headers(
        "004",
        _FEW,
        RECORD_POSITIONS=encode_positions(np.array([1, 5, 6, 7, 2**33])),
        BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS="000",
    )
    compacted = _headers("005", _FEW, COMPACTED_BLOCK_TIMES="001,003")
    flat = parquet_files()["flat-plain"]
    return {
        "avro": first + second,
        "rolled-back": first + second + rollback_block(instant="009", target="001"),
        "deletes": first
        + b"".join(
            encode_block(delete, {HeaderKey.INSTANT_TIME: f"1{n:02}"}, content)
            for n, content in enumerate(deletes.values())
        ),
        "special": encode_block(avro, partial, _avro_content(few))
        + encode_block(avro, placed, _avro_content(few))
        + encode_block(avro, compacted, _avro_content(few)),
        "parquet": encode_block(BlockType.PARQUET_DATA, _headers("001", _FEW), flat) + first,
        "changes": encode_block(
            BlockType.CDC_DATA, _headers("001", _CHANGE), _avro_content(change)
        ),
        "cut": first + second[:-30] + first,
        "empty": encode_block(avro, _headers("001", _FEW), _avro_content([])),
    }
