"""Which Parquet files Arrow reads exactly as Spark would, by what their footers say."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewright.codec.parquet import open_parquet
from lakewright.codec.parquet_footer import read_footer, row_group_chunks
from lakewright.spark.parquet_match import LEGACY, NAMES, TYPES, VALUES, mismatch

UTC = pa.timestamp("us", "UTC")
EVERY_TYPE = pa.schema(
    [
        ("flag", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", UTC),
        ("local", pa.timestamp("us")),
        ("money", pa.decimal128(12, 2)),
        ("list", pa.list_(pa.field("element", pa.date32()))),
        ("nested", pa.struct([("x", pa.int64()), ("inner", pa.struct([("at", UTC)]))])),
        ("pairs", pa.map_(pa.string(), pa.struct([("y", pa.list_(pa.float64()))]))),
    ]
)


def verdict(table: pa.Table, wanted: pa.Schema | None = None, **options: Any) -> str | None:
    """What is said about a file that Arrow writes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    source = pa.BufferReader(sink.getvalue())
    chunks = row_group_chunks(read_footer(source, "f"))
    return mismatch(open_parquet(source, path="f"), chunks, wanted or table.schema)


def one(kind: pa.DataType, *values: Any) -> pa.Table:
    """A table of one column."""
    return pa.table({"c": pa.array(values, kind)})


def asked(kind: pa.DataType, name: str = "c") -> pa.Schema:
    return pa.schema([(name, kind)])


@pytest.mark.parametrize("options", [{}, {"store_schema": False}, {"version": "1.0"}])
def test_every_plain_type_passes(options: dict[str, Any]) -> None:
    day, at = dt.date(1900, 1, 1), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)
    row = {
        **dict.fromkeys(["i8", "i16", "i32", "i64", "f32", "f64"], 1),
        "flag": True,
        "text": "é",
        "raw": b"\xff",
        "day": day,
        "at": at,
        "local": at.replace(tzinfo=None),
        "money": Decimal("9999999999.99"),
        "list": [day, None],
        "nested": {"x": None, "inner": {"at": at}},
        "pairs": [("k", {"y": [1.0]})],
    }
    table = pa.Table.from_pylist([row, dict.fromkeys(row)], EVERY_TYPE)
    assert verdict(table, **options) is None
    assert verdict(table.slice(1), **options) is None  # statistics say that all are null
    assert verdict(table.slice(0, 0), **options) is None
    assert verdict(table, EVERY_TYPE.remove(2).remove(0), **options) is None


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.uint32(), pa.int32()),
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.int32()),
        (pa.float32(), pa.float64()),
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.binary(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.binary(4), pa.binary()),
        (pa.timestamp("ms", "UTC"), UTC),
        (pa.timestamp("ns", "UTC"), UTC),
        (pa.timestamp("us"), UTC),
        (UTC, pa.timestamp("us")),
        (pa.timestamp("us", "Asia/Tokyo"), UTC),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.time64("us"), pa.int64()),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.struct([("a", pa.int64())])),
        (
            pa.struct([("a", pa.int64()), ("b", pa.int64())]),
            pa.struct([("b", pa.int64()), ("a", pa.int64())]),
        ),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.null(), pa.int32()),
    ],
)
def test_another_type_is_left_to_spark(stored: pa.DataType, wanted: pa.DataType) -> None:
    assert verdict(one(stored, None), asked(wanted)) == TYPES


def test_types_that_only_the_arrow_schema_tells_apart_are_left_to_spark() -> None:
    """Spark does not read Arrow's schema, so what the format itself says counts as well."""
    unsigned = one(pa.uint32(), 1)
    assert verdict(unsigned, asked(pa.int32()), store_schema=False) == TYPES
    ancient = one(pa.timestamp("us"), 0)
    as_int96 = {"use_deprecated_int96_timestamps": True}
    assert verdict(ancient, **as_int96) == TYPES
    assert verdict(ancient, asked(UTC), **as_int96, store_schema=False) == TYPES


def test_old_and_ambiguous_forms_of_lists_are_left_to_spark() -> None:
    plain = one(pa.list_(pa.int64()), [1])
    assert verdict(plain) is None
    assert verdict(plain, use_compliant_nested_type=False) == TYPES
    assert verdict(one(pa.list_(pa.struct([("element", pa.int64())])), [{"element": 1}])) == TYPES


def test_names_that_spark_matches_otherwise_are_left_to_spark() -> None:
    table = pa.table({"c": [1], "D": [2], "d": [3], "e.f": [4]})
    assert verdict(table, asked(pa.int64())) is None
    for name in ("C", "D", "d", "e.f", "missing"):
        assert verdict(table, asked(pa.int64(), name)) == NAMES


@pytest.mark.parametrize(
    "table",
    [
        one(pa.date32(), dt.date(2000, 1, 1), dt.date(1899, 12, 31)),
        one(UTC, -2_208_988_800_000_001),
        one(pa.timestamp("us"), -2_208_988_800_000_001),
        one(pa.list_(pa.date32()), [dt.date(1, 1, 1)]),
        one(pa.struct([("d", pa.date32())]), {"d": dt.date(1582, 10, 4)}),
    ],
)
def test_values_of_older_calendars_are_left_to_spark(table: pa.Table) -> None:
    assert verdict(table) == VALUES


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.date32(), dt.date(2000, 1, 1)), (UTC, 0), (pa.decimal128(5, 2), Decimal("1.00"))],
)
def test_values_of_which_nothing_is_known_are_left_to_spark(kind: pa.DataType, value: Any) -> None:
    assert verdict(one(kind, value, None), write_statistics=False) == VALUES
    assert verdict(one(kind, value, None)) is None
    later = pa.concat_tables([one(kind, value), one(kind, None)])
    assert verdict(later, row_group_size=1) is None


@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize("value", [100_000, -100_000])
def test_decimals_wider_than_declared_are_left_to_spark(value: int, as_integer: bool) -> None:
    bits = pa.py_buffer(value.to_bytes(16, "little", signed=True))
    wide = pa.Array.from_buffers(pa.decimal128(5, 2), 1, [None, bits])
    table = pa.table({"c": wide})
    assert verdict(table, store_decimal_as_integer=as_integer) == VALUES


def test_files_of_old_calendars_are_left_to_spark_by_their_marks() -> None:
    for mark in ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"):
        table = one(pa.int64(), 1).replace_schema_metadata({mark: ""})
        assert verdict(table) == LEGACY
