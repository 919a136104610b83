"""Partition paths formed from columns, checked against paths that Hudi stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import ConfigError, InputError, UnsupportedTableError
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.key_spec import KeySpec, PartitionField, PartitionKind, TextPath
from lakewright.format.partition_paths import partition_paths
from lakewright.format.partition_values import DEFAULT_PARTITION, partition_path_values
from lakewright.format.property_text import parse_properties
from lakewright.format.table_properties import TableProperties
from lakewright.format.time_patterns import compile_pattern
from tests.fixtures import SharedTable, shared_tables, unpack

TABLES = [t for t in shared_tables() if not t.refused]
INPUT, OUTPUT = "input.dateformat", "output.dateformat"


def _paths(columns: dict[str, Any], **options: Any) -> list[str]:
    fields = tuple(PartitionField(name) for name in columns)
    spec = KeySpec(("id",), fields, KeyGeneratorType.COMPLEX, **options)
    return list(partition_paths(pa.RecordBatch.from_pydict(columns), spec).to_pylist())


def _time_paths(values: Any, settings: dict[str, str], **options: Any) -> list[str]:
    field = PartitionField("t", PartitionKind.TIMESTAMP)
    spec = KeySpec(("id",), (field,), KeyGeneratorType.TIMESTAMP, time_settings=settings, **options)
    return list(partition_paths(pa.RecordBatch.from_pydict({"t": values}), spec).to_pylist())


def test_plain_values_are_folders_and_null_is_the_default_partition() -> None:
    columns = {"a": ["x", None, ""], "n": pa.array([1, None, 3], pa.int32())}
    assert _paths(columns) == [
        "x/1",
        f"{DEFAULT_PARTITION}/{DEFAULT_PARTITION}",
        f"{DEFAULT_PARTITION}/3",
    ]
    assert _paths({"a": ["x"], "n": [1]}, hive_style=True) == ["a=x/n=1"]


def test_values_are_escaped_where_the_table_escapes() -> None:
    assert _paths({"a": ["p/q", "é:"]}) == ["p/q", "é:"]
    assert _paths({"a": ["p/q", "é:"]}, url_encode=True, hive_style=True) == ["a=p%2Fq", "a=é%3A"]


def test_slash_separated_dates_become_folders() -> None:
    assert _paths({"d": ["2024-01-15"]}, slash_separated_dates=True) == ["2024/01/15"]


def test_timestamps_are_numbers_or_sql_text() -> None:
    column = {"t": pa.array([1678451400000000], pa.timestamp("us", "UTC"))}
    assert _paths(column) == ["1678451400000000"]
    assert _paths(column, sql_timestamps=True) == ["2023-03-10 12%3A30%3A00"]
    assert _paths(column, text_path=TextPath.ROW) == ["2023-03-10 12:30:00.0"]


def test_a_table_without_partitions_has_the_empty_path() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    spec = KeySpec(("a",), (), KeyGeneratorType.NON_PARTITION)
    assert partition_paths(batch, spec).to_pylist() == ["", ""]


@pytest.mark.parametrize(
    ("kind", "settings", "value", "path"),
    [
        ("EPOCHMILLISECONDS", {OUTPUT: "yyyy-MM-dd hh"}, 1747102000000, "2025-05-13 02"),
        ("EPOCHMILLISECONDS", {OUTPUT: "yyyy-MM-dd hh"}, 1749204000000, "2025-06-06 10"),
        (
            "SCALAR",
            {OUTPUT: "yyyy-MM-dd hh", "timestamp.scalar.time.unit": "DAYS"},
            20000,
            "2024-10-04 12",
        ),
        ("EPOCHMILLISECONDS", {OUTPUT: "yyyy/MM/dd/HH"}, 1705489200000, "2024/01/17/11"),
        ("UNIX_TIMESTAMP", {OUTPUT: "yyyy/MM/dd"}, 1705485600, "2024/01/17"),
        ("UNIX_TIMESTAMP", {OUTPUT: "yyyy/MM/dd"}, 1705485600.9, "2024/01/17"),
        ("EPOCHMILLISECONDS", {OUTPUT: "yyyy-MM-dd"}, None, "1970-01-01"),
        ("EPOCHMILLISECONDS", {OUTPUT: "HH", "timezone": "GMT+8:00"}, 0, "08"),
        ("EPOCHMILLISECONDS", {OUTPUT: "HH Z", "output.timezone": "Asia/Kolkata"}, 0, "05 +0530"),
        (
            "DATE_STRING",
            {INPUT: "yyyy-MM-dd'T'HH:mm:ss.SSSZ", OUTPUT: "yyyy/MM/dd/HH"},
            "2023-04-03T12:01:00.123Z",
            "2023/04/03/12",
        ),
        (
            "DATE_STRING",
            {INPUT: "yyyy-MM-dd'T'HH:mmZ", OUTPUT: "HH", "output.timezone": "UTC"},
            "2023-04-03T12:01+02:00",
            "10",
        ),
        ("DATE_STRING", {INPUT: "yyyyMMdd,yyyy-MM-dd", OUTPUT: "yyyy/MM"}, "2024-2-9", "2024/02"),
        ("", {INPUT: "yyyy-MM-dd", OUTPUT: "yyyy"}, "2024-02-09", "2024"),
        (
            "DATE_STRING",
            {INPUT: "dd MMM yyyy hh a", OUTPUT: "MM-dd HH"},
            "9 Feb 2024 12 am",
            "02-09 00",
        ),
        ("DATE_STRING", {INPUT: "yyyy-MM-dd", OUTPUT: "yyyy-MM-dd"}, None, "1970-01-01"),
    ],
)
def test_times_are_formatted_by_the_tables_pattern(
    kind: str, settings: dict[str, str], value: Any, path: str
) -> None:
    column = pa.array([value], pa.string() if INPUT in settings else None)
    column = column.cast(pa.int64()) if pa.types.is_null(column.type) else column
    assert _time_paths(column, {"timestamp.type": kind, **settings}) == [path]


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"timestamp.type": "EPOCHMILLISECONDS"}, ConfigError, "pattern is not set"),
        ({OUTPUT: "yyyy"}, ConfigError, "unknown kind none"),
        (
            {OUTPUT: "yyyy", "timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "WEEKS"},
            ConfigError,
            "WEEKS",
        ),
        ({OUTPUT: "GG", "timestamp.type": "UNIX_TIMESTAMP"}, ConfigError, "letter 'G'"),
        ({OUTPUT: "'x", "timestamp.type": "UNIX_TIMESTAMP"}, ConfigError, "quote"),
        (
            {OUTPUT: "yyyy", INPUT: "yyyy", "timestamp.type": "DATE_STRING"},
            InputError,
            "no input pattern",
        ),
    ],
)
def test_settings_that_do_not_work_are_named(
    settings: dict[str, str], error: type[Exception], match: str
) -> None:
    values = ["2024-01-01"] if INPUT in settings else [1]
    with pytest.raises(error, match=match):
        _time_paths(values, settings)


def test_paths_of_a_class_of_its_own_are_refused() -> None:
    spec = KeySpec(("a",), (PartitionField("a"),), KeyGeneratorType.USER_PROVIDED)
    with pytest.raises(UnsupportedTableError):
        partition_paths(pa.RecordBatch.from_pydict({"a": [1]}), spec)


def test_types_that_version_6_does_not_store_must_be_told() -> None:
    values = {
        "hoodie.table.version": "6",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        "hoodie.table.partition.fields": "a",
        "hoodie.table.recordkey.fields": "id",
    }
    batch = pa.RecordBatch.from_pydict({"a": ["x"]})
    silent = KeySpec.from_properties(TableProperties(values))
    with pytest.raises(ConfigError, match="Nothing says whether"):
        partition_paths(batch, silent)
    assert partition_path_values("x", silent, batch.schema) == {}
    kinds = {"a": PartitionKind.SIMPLE}
    told = KeySpec.from_properties(TableProperties(values), partition_kinds=kinds)
    assert partition_paths(batch, told).to_pylist() == ["x"]


@given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), min_size=1, max_size=9))
def test_formatting_agrees_with_python_and_parsing_undoes_it(moments: list[datetime]) -> None:
    epoch = datetime(1970, 1, 1)
    millis = [(m - epoch) // timedelta(milliseconds=1) for m in moments]
    pattern = compile_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS")
    texts = pattern.format(pa.array(millis, pa.int64()))
    assert texts.to_pylist() == [m.isoformat(timespec="milliseconds") for m in moments]
    assert pattern.parse(texts).local_ms.to_pylist() == millis
    other = compile_pattern("EEE EEEE MMM MMMM D w a hh k K yy").format(
        pa.array(millis, pa.int64())
    )
    hours = [(m.hour % 12 or 12, m.hour or 24, m.hour % 12) for m in moments]
    assert other.to_pylist() == [
        f"{m:%a %A %b %B} {m.timetuple().tm_yday} {m.isocalendar().week} {m:%p} "
        f"{h:02d} {k} {big_k} {m.year % 100:02d}"
        for m, (h, k, big_k) in zip(moments, hours, strict=True)
    ]


@pytest.mark.parametrize("shared", TABLES, ids=lambda t: t.id)
def test_paths_formed_from_columns_equal_the_paths_hudi_stored(
    shared: SharedTable, tmp_path: Path
) -> None:
    root = unpack(shared, tmp_path)
    values = parse_properties((root / ".hoodie" / "hoodie.properties").read_bytes())
    spec = KeySpec.from_properties(TableProperties(values))
    if "multi_partition" in shared.zip:
        spec = KeySpec(
            spec.record_key_fields,
            spec.partition_fields,
            spec.generator,
            hive_style=spec.hive_style,
            sql_timestamps=True,
        )
    for path in sorted(root.rglob("[!.]*.parquet")):
        folder = path.parent.relative_to(root)
        if ".hoodie" in folder.parts:
            continue
        file = pq.ParquetFile(path)
        if "epochmillis" in shared.zip and file.schema_arrow.field("ts_millis").type == pa.string():
            continue  # a later SQL update turned the column into text; its paths were kept
        for batch in file.iter_batches():
            formed = set(partition_paths(batch, spec).to_pylist())
            assert formed == {"" if folder == Path() else folder.as_posix()}


def test_the_moment_of_a_null_time_is_one_unit_after_1970() -> None:
    settings = {
        "timestamp.type": "SCALAR",
        "timestamp.scalar.time.unit": "DAYS",
        OUTPUT: "yyyy-MM-dd",
    }
    assert _time_paths(pa.array([None, 0], pa.int64()), settings) == ["1970-01-02", "1970-01-01"]
    assert datetime(1970, 1, 2, tzinfo=UTC).timestamp() == 86400
