"""Parquet files as Hudi's readers need them: physical types, row groups, dictionaries, footers."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.parquet import ParquetFooter, open_parquet, read_columns
from lakewright.codec.parquet_writer import CODECS, ParquetPolicy, ParquetSink, dictionary_columns
from lakewright.errors import OptionError, SchemaError

UTC = dt.UTC


def written(
    table: pa.Table, policy: ParquetPolicy | None = None, values: dict[str, str] | None = None
) -> pa.Buffer:
    out = pa.BufferOutputStream()
    sink = ParquetSink(out, table.schema, policy or ParquetPolicy())
    for batch in table.to_batches():
        while batch.num_rows:
            room = sink.room(batch)
            sink.write(batch.slice(0, room))
            batch = batch.slice(room)
    sink.close(values or {})
    return out.getvalue()


def types_of(data: pa.Buffer) -> dict[str, tuple[str, str, str]]:
    schema = pq.ParquetFile(pa.BufferReader(data)).metadata.schema
    columns = [schema.column(i) for i in range(len(schema))]
    return {c.path: (c.physical_type, str(c.logical_type), c.converted_type) for c in columns}


def test_physical_types_are_those_that_every_jvm_reader_knows() -> None:
    table = pa.table(
        {
            "text": pa.array(["a"]),
            "day": pa.array([dt.date(2024, 1, 1)]),
            "us": pa.array([dt.datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "ms": pa.array([dt.datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC")),
            "small": pa.array([Decimal("1.10")], pa.decimal128(5, 2)),
            "large": pa.array([Decimal("1.10")], pa.decimal128(38, 2)),
            "list": pa.array([[1, None]], pa.list_(pa.field("element", pa.int32()))),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    found = types_of(written(table))
    assert found["text"] == ("BYTE_ARRAY", "String", "UTF8")
    assert found["day"] == ("INT32", "Date", "DATE")
    assert found["us"][0] == found["ms"][0] == "INT64"
    assert (found["us"][2], found["ms"][2]) == ("TIMESTAMP_MICROS", "TIMESTAMP_MILLIS")
    assert found["small"][0] == found["large"][0] == "FIXED_LEN_BYTE_ARRAY"
    assert set(found) >= {"list.list.element", "map.key_value.key", "map.key_value.value"}
    file = pq.ParquetFile(pa.BufferReader(written(table)))
    assert file.metadata.format_version == "1.0"
    assert file.schema_arrow.field("small").type == pa.decimal128(5, 2)
    assert b"ARROW:schema" not in (file.metadata.metadata or {})


def test_no_encoding_is_newer_than_parquet_one() -> None:
    table = pa.table({"few": ["a", "b"] * 5000, "many": [str(i) for i in range(10_000)]})
    metadata = pq.ParquetFile(pa.BufferReader(written(table))).metadata
    for i in range(2):
        encodings = set(metadata.row_group(0).column(i).encodings)
        assert encodings <= {"PLAIN", "RLE", "PLAIN_DICTIONARY"}


@pytest.mark.parametrize("codec", ["zstd", "GZIP", "snappy", "uncompressed", "lz4", "brotli"])
def test_the_codec_is_the_one_that_was_asked_for(codec: str) -> None:
    data = written(pa.table({"a": list(range(1000))}), ParquetPolicy(codec=codec, level=1))
    stored = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0).compression
    expected = {"uncompressed": "UNCOMPRESSED", "lz4": "LZ4"}.get(codec.lower(), codec.upper())
    assert stored == expected
    assert pq.read_table(pa.BufferReader(data))["a"].to_pylist() == list(range(1000))


def test_unknown_codecs_and_empty_sizes_are_refused_before_anything_is_written() -> None:
    with pytest.raises(OptionError, match="lzo"):
        ParquetPolicy(codec="lzo")
    with pytest.raises(OptionError, match="at least one"):
        ParquetPolicy(row_group_rows=0)
    assert set(CODECS) >= {"zstd", "gzip", "snappy", "uncompressed"}
    assert pickle.loads(pickle.dumps(ParquetPolicy(codec="gzip"))) == ParquetPolicy(codec="gzip")


def test_row_groups_end_at_their_rows_and_at_their_bytes() -> None:
    table = pa.table({"a": list(range(1000))})
    by_rows = pq.read_metadata(pa.BufferReader(written(table, ParquetPolicy(row_group_rows=300))))
    assert [by_rows.row_group(i).num_rows for i in range(4)] == [300, 300, 300, 100]
    small = ParquetPolicy(row_group_bytes=2000)
    by_bytes = pq.read_metadata(pa.BufferReader(written(table, small)))
    assert [by_bytes.row_group(i).num_rows for i in range(4)] == [250] * 4


def test_a_row_group_can_be_ended_early_and_limited() -> None:
    out = pa.BufferOutputStream()
    table = pa.table({"a": list(range(10))})
    sink = ParquetSink(out, table.schema, ParquetPolicy())
    batch = table.to_batches()[0]
    sink.limit_row_group(4)
    assert sink.room(batch) == 4
    assert sink.write(batch.slice(0, 4)) is True
    assert (sink.rows, sink.rows_written) == (4, 4)
    sink.limit_row_group(100)
    assert sink.write(batch.slice(4, 3)) is False
    assert (sink.rows, sink.rows_written) == (7, 4)
    sink.flush()
    sink.flush()
    sink.close({})
    metadata = pq.read_metadata(pa.BufferReader(out.getvalue()))
    assert [metadata.row_group(i).num_rows for i in range(2)] == [4, 3]


def test_a_file_without_rows_has_its_columns_and_its_footer() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int64())])
    data = written(schema.empty_table(), values={"k": "v"})
    footer = ParquetFooter.read(data, "f")
    assert (footer.num_rows, footer.schema, dict(footer.values)) == (0, schema, {"k": "v"})


def test_footer_values_are_given_at_the_end_and_read_back_as_they_are() -> None:
    values = {"hoodie_min_record_key": "ключ,1", "long": "x" * 500_000, "empty": ""}
    footer = ParquetFooter.read(written(pa.table({"a": [1]}), values=values), "f")
    assert dict(footer.values) == values


def test_dictionaries_are_for_columns_that_repeat() -> None:
    rows = 2000
    table = pa.table(
        {
            "unique": [f"k{i}" for i in range(rows)],
            "few": [i % 7 for i in range(rows)],
            "flag": [i % 2 == 0 for i in range(rows)],
            "s": [{"kind": "x", "at": i} for i in range(rows)],
            "tags": [["a", "b"] for _ in range(rows)],
            "m": pa.array([[("k", i)] for i in range(rows)], pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(rows, pa.string()),
        }
    )
    chosen = dictionary_columns(table)
    assert set(chosen) == {"few", "s.kind", "tags.list.element", "m.key_value.key", "nothing"}
    assert "few" not in dictionary_columns(table, unique=frozenset({"few"}))
    assert "unique" in dictionary_columns(table, repeated=("unique",))
    explicit = written(table, ParquetPolicy(dictionary=("unique",)))
    group = pq.read_metadata(pa.BufferReader(explicit)).row_group(0)
    with_dictionary = {
        group.column(i).path_in_schema
        for i in range(group.num_columns)
        if group.column(i).has_dictionary_page
    }
    assert with_dictionary == {"unique"}


def test_dictionary_encoded_batches_are_stored_as_their_values() -> None:
    out = pa.BufferOutputStream()
    plain = pa.schema([("name", pa.string())])
    sink = ParquetSink(out, plain, ParquetPolicy())
    for value in ("first", "second"):
        encoded = pa.array([value] * 3).dictionary_encode()
        sink.write(pa.RecordBatch.from_arrays([encoded], names=["name"]))
    sink.close({})
    file = open_parquet(out.getvalue(), path="f")
    assert file.schema_arrow.field("name").type == pa.string()
    read = read_columns(file, path="f")["name"].to_pylist()
    assert read == ["first"] * 3 + ["second"] * 3


def test_nulls_in_a_required_column_are_an_error_and_not_a_file() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    sink = ParquetSink(pa.BufferOutputStream(), schema, ParquetPolicy())
    sink.write(pa.RecordBatch.from_arrays([pa.array([None], pa.string())], schema=schema))
    with pytest.raises(SchemaError, match="id"):
        sink.close({})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), TEXT),
    (pa.binary(), st.binary(max_size=8)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 12))
    columns = {}
    for i in range(draw(st.integers(1, 4))):
        kind, values = draw(st.sampled_from(LEAVES))
        shape = draw(st.sampled_from(["plain", "list", "struct", "map"]))
        value: st.SearchStrategy[Any] = st.none() | values
        if shape == "list":
            kind = pa.list_(pa.field("element", kind))
            value = st.none() | st.lists(value, max_size=3)
        elif shape == "struct":
            kind = pa.struct([("a", kind), ("b", pa.int64())])
            value = st.none() | st.fixed_dictionaries({"a": value, "b": st.just(7)})
        elif shape == "map":
            kind = pa.map_(pa.string(), kind)
            value = st.none() | st.dictionaries(TEXT, value, max_size=2).map(lambda d: [*d.items()])
        columns[f"c{i}"] = pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), kind)
    return pa.table(columns)


@settings(max_examples=80, deadline=None)
@given(tables(), st.integers(1, 5))
def test_every_table_comes_back_equal_from_our_reader_and_from_arrow(
    table: pa.Table, group: int
) -> None:
    data = written(table, ParquetPolicy(row_group_rows=group))
    ours = read_columns(open_parquet(data, path="f"), path="f")
    assert ours.schema.equals(table.schema)
    assert ours.to_pylist() == table.to_pylist()
    assert pq.read_table(pa.BufferReader(data)).to_pylist() == table.to_pylist()
