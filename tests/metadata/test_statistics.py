"""Statistics come in the column's type whatever was stored, and combine as the format says."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime, time
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import MetadataTableError
from lakewright.expr import bind, keep_mask, parse
from lakewright.metadata.bounds import decimals_of_bytes
from lakewright.metadata.keys import column_prefixes, file_digest
from lakewright.metadata.statistics import MANY_PARTITIONS, aligned_ranges, column_statistics
from tests.metadata.mdt_builder import reader, value, wrapper

UTC_US = pa.timestamp("us", "UTC")
MOMENT = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)
MICROS = int(MOMENT.timestamp() * 1_000_000)


def stats_value(
    low: Any,
    high: Any,
    generation: str = "F",
    *,
    kind: tuple[int, str | None] | None = None,
    **more: Any,
) -> bytes:
    fields = {
        "fileName": "f",
        "columnName": "c",
        "minValue": low,
        "maxValue": high,
        "valueCount": 10,
        "nullCount": 1,
        "totalSize": 7,
        "totalUncompressedSize": 8,
        "isDeleted": False,
        "isTightBound": False,
        "valueType": None if kind is None else {"typeOrdinal": kind[0], "additionalInfo": kind[1]},
    }
    return value(3, generation, ColumnStatsMetadata=fields | more)


def key(column: str, partition: str, name: str) -> bytes:
    return column_prefixes([column], [partition])[0] + file_digest(name)


def unscaled(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


AT_15 = 234_560_000_000_000_000
CASES: list[tuple[str, pa.DataType, Any, tuple[int, str | None] | None, Any]] = [
    ("boolean", pa.bool_(), wrapper("BooleanWrapper", True), None, True),
    ("int", pa.int32(), wrapper("IntWrapper", -5), (3, None), -5),
    ("int read as long", pa.int64(), wrapper("IntWrapper", -5), None, -5),
    ("int read as double", pa.float64(), wrapper("IntWrapper", -5), None, -5.0),
    ("long", pa.int64(), wrapper("LongWrapper", 1 << 40), (4, None), 1 << 40),
    ("long too great for int", pa.int32(), wrapper("LongWrapper", 1 << 40), None, None),
    ("float", pa.float32(), wrapper("FloatWrapper", 1.5), (5, None), 1.5),
    ("double", pa.float64(), wrapper("DoubleWrapper", 1.25), (6, None), 1.25),
    ("NaN", pa.float64(), wrapper("DoubleWrapper", float("nan")), None, None),
    ("string", pa.string(), wrapper("StringWrapper", "x"), (7, None), "x"),
    ("bytes", pa.binary(), wrapper("BytesWrapper", b"\x01"), (8, None), b"\x01"),
    ("date of version 1", pa.date32(), wrapper("DateWrapper", 19737), None, date(2024, 1, 15)),
    ("date of version 2", pa.date32(), wrapper("IntWrapper", 19737), (12, None), date(2024, 1, 15)),
    ("local date", pa.date32(), wrapper("LocalDateWrapper", 19737), None, date(2024, 1, 15)),
    (
        "decimal of version 1",
        pa.decimal128(10, 2),
        wrapper("DecimalWrapper", Decimal("234.56")),
        None,
        Decimal("234.56"),
    ),
    (
        "decimal of version 1 after compaction",
        pa.decimal128(10, 2),
        wrapper("BytesWrapper", unscaled(AT_15)),
        None,
        Decimal("234.56"),
    ),
    (
        "decimal of version 2",
        pa.decimal128(10, 2),
        wrapper("BytesWrapper", unscaled(-23456)),
        (10, "10,2"),
        Decimal("-234.56"),
    ),
    ("decimal that does not fit", pa.decimal128(4, 2), wrapper("IntWrapper", 1000), None, None),
    ("timestamp of version 1", UTC_US, wrapper("LongWrapper", MICROS), None, MOMENT),
    ("timestamp wrapper", UTC_US, wrapper("TimestampMicrosWrapper", MICROS), None, MOMENT),
    ("micros of version 2", UTC_US, wrapper("LongWrapper", MICROS), (16, None), MOMENT),
    ("millis of version 2", UTC_US, wrapper("LongWrapper", MICROS // 1000), (15, None), MOMENT),
    (
        "column of millis, version 2",
        pa.timestamp("ms", "UTC"),
        wrapper("LongWrapper", MICROS // 1000),
        (15, None),
        MOMENT,
    ),
    (
        "column of millis, version 1, is not trusted",
        pa.timestamp("ms", "UTC"),
        wrapper("LongWrapper", MICROS // 1000),
        None,
        None,
    ),
    (
        "local timestamp",
        pa.timestamp("us"),
        wrapper("LongWrapper", MICROS),
        (19, None),
        MOMENT.replace(tzinfo=None),
    ),
    (
        "time of day",
        pa.time64("us"),
        wrapper("LongWrapper", 1_000_001),
        (14, None),
        time(0, 0, 1, 1),
    ),
    ("millis of day", pa.time32("ms"), wrapper("IntWrapper", 1_500), None, time(0, 0, 1, 500_000)),
    ("text on a number column", pa.int32(), wrapper("StringWrapper", "5"), None, None),
    ("number on a text column", pa.string(), wrapper("LongWrapper", 5), None, None),
    ("a struct has no order", pa.struct([("a", pa.int32())]), wrapper("IntWrapper", 1), None, None),
    ("no bound", pa.int32(), None, None, None),
]


@pytest.mark.parametrize(
    ("kind", "stored", "value_type", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_stored_bound_is_brought_to_the_type_of_the_column(
    tmp_path: Path, kind: pa.DataType, stored: Any, value_type: Any, expected: Any
) -> None:
    record = stats_value(stored, stored, kind=value_type)
    group = reader(tmp_path, {key("c", "p", "f"): record}, generation="F")
    schema = pa.schema([("c", kind)])
    table = column_statistics([group], schema, ["p"], all_partitions=False)["c"]
    assert table.schema.field("min").type == kind
    assert table.to_pylist() == [
        {
            "partition": "p",
            "file_name": "f",
            "min": expected,
            "max": expected,
            "value_count": 10,
            "null_count": 1,
            "total_size": 7,
            "total_uncompressed_size": 8,
            "is_tight": False,
        }
    ]


@pytest.mark.parametrize("generation", ["B", "D", "F"])
def test_every_generation_of_the_record_is_read(tmp_path: Path, generation: str) -> None:
    low, high = wrapper("IntWrapper", 1), wrapper("IntWrapper", 9)
    group = reader(
        tmp_path, {key("c", "", "f"): stats_value(low, high, generation)}, generation=generation
    )
    schema = pa.schema([("c", pa.int32())])
    (row,) = column_statistics([group], schema, [""], all_partitions=True)["c"].to_pylist()
    assert (row["partition"], row["min"], row["max"]) == ("", 1, 9)


def test_zeros_stored_for_a_column_of_nulls_are_not_bounds(tmp_path: Path) -> None:
    zero = wrapper("IntWrapper", 0)
    record = stats_value(zero, zero, valueCount=5, nullCount=5)
    group = reader(tmp_path, {key("c", "p", "f"): record}, generation="F")
    schema = pa.schema([("c", pa.int32())])
    (row,) = column_statistics([group], schema, ["p"], all_partitions=False)["c"].to_pylist()
    assert (row["min"], row["max"], row["null_count"]) == (None, None, 5)


event = st.tuples(
    st.integers(-9, 9), st.integers(-9, 9), st.sampled_from(["plain", "plain", "tight", "deleted"])
)


def plain_combination(events: list[tuple[int, int, str]]) -> tuple[Any, ...] | None:
    """The documented rule, record by record: low, high, count, deleted."""
    older: tuple[Any, ...] | None = None
    for low, high, kind in events:
        gone = kind == "deleted"
        new = (None, None, 0, True) if gone else (low, high, 10, False)
        if older is None or gone or older[3] or kind == "tight":
            older = new
        else:
            older = (min(older[0], low), max(older[1], high), older[2] + 10, False)
    return None if older is None or older[3] else older


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["f", "g"]), event), min_size=1, max_size=5))
def test_several_records_of_a_file_combine_in_commit_order(
    history: list[dict[str, tuple[int, int, str]]],
) -> None:
    steps = []
    for step in history:
        made = {}
        for name, (low, high, kind) in step.items():
            gone = kind == "deleted"
            made[key("c", "p", name)] = stats_value(
                None if gone else wrapper("IntWrapper", low),
                None if gone else wrapper("IntWrapper", high),
                fileName=name,
                isDeleted=gone,
                isTightBound=kind == "tight",
                valueCount=0 if gone else 10,
                nullCount=0 if gone else 1,
            )
        steps.append(made)
    schema = pa.schema([("c", pa.int32())])
    with tempfile.TemporaryDirectory() as folder:
        group = reader(Path(folder), steps[0], [s for s in steps[1:] if s], generation="F")
        table = column_statistics([group], schema, ["p"], all_partitions=False)["c"]
    expected = {}
    for name in "fg":
        combined = plain_combination([step[name] for step in history if name in step])
        if combined is not None:
            expected[name] = combined[:3]
    found = {r["file_name"]: (r["min"], r["max"], r["value_count"]) for r in table.to_pylist()}
    assert found == expected


def test_columns_partitions_and_deleted_keys_are_told_apart(tmp_path: Path) -> None:
    def number(n: int) -> bytes:
        return stats_value(wrapper("IntWrapper", n), wrapper("IntWrapper", n), fileName=f"f{n}")

    partitions = [f"p{i}" for i in range(MANY_PARTITIONS)]
    content = {
        key("a", "p0", "f1"): number(1),
        key("a", "p1", "f2"): number(2),
        key("b", "p0", "f1"): number(3),
        key("a", "gone", "f4"): number(4),
    }
    group = reader(tmp_path, content, [[key("a", "p1", "f2").decode()]], generation="F")
    schema = pa.schema([("a", pa.int32()), ("b", pa.int64()), ("none", pa.string())])
    for known in (partitions, partitions[:2]):
        found = column_statistics([group], schema, known, all_partitions=False)
        assert [r["min"] for r in found["a"].to_pylist()] == [1]
        assert [r["min"] for r in found["b"].to_pylist()] == [3]
        assert found["none"].num_rows == 0 and found["none"].schema.field("min").type == pa.string()
    assert column_statistics([], schema, ["p0"], all_partitions=True)["a"].num_rows == 0


def test_ranges_are_aligned_for_pruning(tmp_path: Path) -> None:
    def stored(column: str, name: str, low: int, high: int) -> tuple[bytes, bytes]:
        bounds = wrapper("IntWrapper", low), wrapper("IntWrapper", high)
        return key(column, "p", name), stats_value(*bounds, fileName=name)

    content = dict([stored("a", "f", 1, 5), stored("a", "g", 6, 9), stored("b", "g", 0, 0)])
    group = reader(tmp_path, content, generation="F")
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    files, ranges = aligned_ranges(column_statistics([group], schema, ["p"], all_partitions=True))
    assert sorted(files) == [("p", "f"), ("p", "g")]
    kept = keep_mask(bind(parse("a < 6 and b = 1"), schema), ranges, len(files))
    assert dict(zip(files, kept.tolist(), strict=True)) == {("p", "f"): True, ("p", "g"): False}
    assert aligned_ranges({}) == ([], {})


def test_a_record_without_statistics_is_an_error(tmp_path: Path) -> None:
    group = reader(tmp_path, {key("c", "p", "f"): value(3, "F")}, generation="F")
    with pytest.raises(MetadataTableError, match="empty"):
        column_statistics([group], pa.schema([("c", pa.int32())]), ["p"], all_partitions=True)


@given(st.lists(st.one_of(st.none(), st.integers(-(10**37), 10**37)), max_size=20))
def test_unscaled_bytes_become_decimals(numbers: list[int | None]) -> None:
    stored = pa.array([None if n is None else unscaled(n) for n in numbers], pa.binary())
    with localcontext(prec=60):
        expected = [None if n is None else Decimal(n).scaleb(-3) for n in numbers]
    assert decimals_of_bytes(stored, 3).to_pylist() == expected


def test_numbers_that_are_too_long_or_empty_have_no_decimal() -> None:
    stored = pa.array([b"", b"\x01" * 17, b"\xff"], pa.binary())
    assert decimals_of_bytes(stored, 0).to_pylist() == [None, None, Decimal(-1)]
