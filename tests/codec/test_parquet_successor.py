"""Successors of Parquet files: equal rows, whatever is taken over and whatever is written anew."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import replace
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.parquet import ParquetFile, open_parquet, read_columns, row_group_range
from lakewright.codec.parquet_splice import Splice
from lakewright.codec.parquet_successor import SuccessorSink
from lakewright.codec.parquet_writer import ParquetPolicy, ParquetSink
from lakewright.codec.thrift import CompactReader, struct_bytes
from tests.corpus import committed_tables

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("d", pa.decimal128(18, 4)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("yes", pa.bool_()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("deep", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])),
        pa.field("map", pa.map_(pa.string(), pa.int64())),
    ]
)
NEW_NAME = "the new file"


def row(number: int) -> dict[str, Any]:
    if number % 7 == 3:
        return {"id": f"k{number}"}
    return {
        "id": f"k{number}",
        "name": "old",
        "n": number,
        "x": number / 3,
        "d": Decimal(number) / 4,
        "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number),
        "day": dt.date(2024, 1, 1 + number % 28),
        "yes": number % 2 == 0,
        "raw": bytes([number % 256]) * (number % 5),
        "tags": [None, "ä"][: number % 3],
        "deep": {"a": number, "b": None},
        "map": [("k", number)] if number % 2 else [],
    }


def rows(start: int, count: int) -> pa.Table:
    return pa.Table.from_pylist([row(i) for i in range(start, start + count)], SCHEMA)


def other(group: pa.Table, columns: set[str]) -> pa.Table:
    """Other values for a name and some columns, in the order of the schema."""
    names = pa.array([NEW_NAME] * group.num_rows).dictionary_encode()
    named = group.set_column(1, pa.field("name", names.type), names)
    later = rows(5000, group.num_rows)
    for at, field in enumerate(SCHEMA):
        if field.name in columns - {"name"}:
            named = named.set_column(at, field, later[field.name])
    return named.select([n for n in SCHEMA.names if n == "name" or n in columns])


def written(groups: list[pa.Table], policy: ParquetPolicy) -> bytes:
    out = pa.BufferOutputStream()
    sink = ParquetSink(out, groups[0].schema, policy, unique=["id"], repeated=["name"])
    for group in groups:
        for batch in group.to_batches():
            sink.write(batch)
        sink.flush()
    sink.close({"who": "older"})
    return bytes(out.getvalue())


def opened(data: bytes) -> ParquetFile:
    return open_parquet(data, path="t.parquet")


def successor(out: Any, older: ParquetFile, policy: ParquetPolicy) -> SuccessorSink:
    made = SuccessorSink.of(
        out, SCHEMA, policy, older=older, path="t.parquet", unique=["id"], repeated=["name"]
    )
    assert made is not None
    return made


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    kept=st.integers(0, 31),
    between=st.lists(st.integers(0, 20), min_size=6, max_size=6),
    codecs=st.tuples(*[st.sampled_from(["zstd", "snappy", "uncompressed", "gzip"])] * 2),
    columns=st.lists(st.sets(st.sampled_from(SCHEMA.names[1:])), min_size=5, max_size=5),
)
def test_rows_come_in_order_taken_over_or_not(
    sizes: list[int],
    kept: int,
    between: list[int],
    codecs: tuple[str, str],
    columns: list[set[str]],
) -> None:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    groups = [rows(start, size) for start, size in zip(starts, sizes, strict=True)]
    older = opened(written(groups, ParquetPolicy(codec=codecs[0])))
    out = pa.BufferOutputStream()
    sink = successor(out, older, ParquetPolicy(codec=codecs[1]))
    wanted: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        fresh = rows(1000 * number, between[number])
        for batch in fresh.to_batches():
            sink.write(batch)
        wanted += fresh.to_pylist()
        if kept >> number & 1:
            changed = other(group, columns[number])
            sink.take_over(number, changed)
            wanted += [
                {**r, **n} for r, n in zip(group.to_pylist(), changed.to_pylist(), strict=True)
            ]
    last = rows(9000, between[5])
    for batch in last.to_batches():
        sink.write(batch)
    wanted += last.to_pylist()
    assert sink.rows == len(wanted)
    sink.close({"who": "newer", "ü": "ß"})
    data = bytes(out.getvalue())
    file = opened(data)
    assert file.damage is None
    assert read_columns(file, path="").to_pylist() == wanted
    assert file.metadata.num_rows == len(wanted)
    assert file.metadata.metadata == {b"who": b"newer", "ü".encode(): "ß".encode()}
    assert pq.read_table(io.BytesIO(data)).to_pylist() == wanted
    simple = [name for name in SCHEMA.names if name not in ("map", "tags", "deep")]
    found = pl.read_parquet(io.BytesIO(data), columns=simple).rows()
    assert found == [tuple(r[name] for name in simple) for r in wanted]
    for n in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(n)
        assert group.total_byte_size == sum(
            group.column(i).total_uncompressed_size for i in range(group.num_columns)
        )
        place = group.column(0)
        data_page, dictionary = place.data_page_offset, place.dictionary_page_offset
        assert (dictionary if place.has_dictionary_page else data_page) == file.offset_of(n)


@settings(max_examples=40, deadline=None)
@given(
    keep=st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=4),
    codec=st.sampled_from(["zstd", "uncompressed", "snappy"]),
    same=st.booleans(),
    known=st.booleans(),
)
def test_some_rows_of_a_row_group_are_taken(
    keep: list[list[bool]], codec: str, same: bool, known: bool
) -> None:
    """Whether a column repeats another one, is known already, or has a dictionary, or not."""
    policy = ParquetPolicy(codec=codec, dictionary=("name",))
    groups = []
    for number, mask in enumerate(keep):
        group = rows(100 * number, len(mask))
        copy = group["id"] if same else pa.chunked_array([["x"] * len(mask)])
        groups.append(group.append_column(pa.field("copy", pa.string(), nullable=False), copy))
    schema = groups[0].schema
    older = opened(written(groups, policy))
    out = pa.BufferOutputStream()
    sink = SuccessorSink.of(out, schema, policy, older=older, path="t.parquet", unique=["id"])
    assert sink is not None
    for number, (mask, group) in enumerate(zip(keep, groups, strict=True)):
        ids = {"id": group["id"].combine_chunks()} if known else {}
        some = sink.some_rows(number, pa.array(mask), ids, without=frozenset({"n"}))
        assert some.twins == ({"copy": "id"} if same else {})
        new = pa.array([7] * some.table.num_rows, pa.int64())
        sink.take_rows(number, replace(some, table=some.table.append_column("n", new)))
    sink.close({})
    wanted = [
        {**row, "n": 7}
        for group, mask in zip(groups, keep, strict=True)
        for row in group.filter(pa.array(mask)).to_pylist()
    ]
    data = bytes(out.getvalue())
    file = opened(data)
    assert file.damage is None
    assert sink.rows == file.metadata.num_rows == len(wanted)
    assert read_columns(file, path="").to_pylist() == wanted
    simple = [name for name in schema.names if name not in ("map", "tags", "deep")]
    found = pl.read_parquet(io.BytesIO(data), columns=simple).rows()
    assert found == [tuple(r[name] for name in simple) for r in wanted]
    begin = 0
    for n in range(file.metadata.num_row_groups):
        here = wanted[begin : begin + file.metadata.row_group(n).num_rows]
        begin += len(here)
        for name in ("id", "name", "copy", "x"):
            values = [r[name] for r in here if r[name] is not None]
            told = row_group_range(file, n, name)
            assert told.null_count == len(here) - len(values)
            if values:
                assert (told.minimum, told.maximum) == (min(values), max(values))


def test_statistics_stay_with_their_rows() -> None:
    older = opened(written([rows(0, 50), rows(50, 50)], ParquetPolicy()))
    out = pa.BufferOutputStream()
    sink = successor(out, older, ParquetPolicy())
    for group in (1, 0):
        sink.take_over(group, other(rows(0, 50), set()))
    sink.close({})
    newer = pq.ParquetFile(pa.BufferReader(out.getvalue())).metadata
    before = pq.ParquetFile(pa.BufferReader(written([rows(0, 50), rows(50, 50)], ParquetPolicy())))
    for here, there in ((0, 1), (1, 0)):
        for n in range(newer.num_columns):
            new, old = newer.row_group(here).column(n), before.metadata.row_group(there).column(n)
            if new.path_in_schema == "name":
                assert (new.statistics.min, new.statistics.max) == (NEW_NAME, NEW_NAME)
            elif old.statistics is not None:
                assert new.statistics.equals(old.statistics)


@pytest.mark.parametrize("codec", ["snappy", "uncompressed", "lz4", "zstd", "gzip", "brotli"])
def test_codecs_of_files_are_told_apart(codec: str) -> None:
    older = opened(written([rows(0, 5)], ParquetPolicy(codec=codec)))
    for wanted in ("snappy", "uncompressed", "lz4", "zstd", "gzip", "brotli"):
        sink = successor(pa.BufferOutputStream(), older, ParquetPolicy(codec=wanted))
        assert sink.is_compressed_alike(0) is (wanted == codec)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.set(2, pa.field("n", pa.int32())),
        lambda s: s.set(1, pa.field("name", pa.string(), nullable=False)),
        lambda s: s.set(4, pa.field("d", pa.decimal128(18, 3))),
        lambda s: s.set(5, pa.field("at", pa.timestamp("ms", "UTC"))),
        lambda s: s.set(5, pa.field("at", pa.timestamp("us"))),
        lambda s: s.set(8, pa.field("raw", pa.string())),
        lambda s: s.append(pa.field("more", pa.int64())),
        lambda s: s.remove(3),
        lambda s: pa.schema([s.field(1), s.field(0), *list(s)[2:]]),
    ],
)
def test_other_columns_have_no_successor(change: Any) -> None:
    schema = change(SCHEMA)
    older = opened(written([schema.empty_table()], ParquetPolicy()))
    out = pa.BufferOutputStream()
    made = SuccessorSink.of(out, SCHEMA, ParquetPolicy(), older=older, path="")
    assert made is None
    assert out.tell() == 0


def test_files_that_are_not_to_be_trusted_have_no_successor() -> None:
    data = written([rows(0, 20)], ParquetPolicy())
    made = opened(written([SCHEMA.empty_table()], ParquetPolicy()))
    assert Splice.like(pa.BufferOutputStream(), opened(data), made) is not None
    plain = io.BytesIO()
    pl.from_arrow(rows(0, 20).select(["id", "n"])).write_parquet(plain)  # type: ignore[union-attr]
    like = opened(written([rows(0, 1).select(["id", "n"])], ParquetPolicy()))
    assert Splice.like(pa.BufferOutputStream(), opened(plain.getvalue()), like) is None


def test_footers_of_every_writer_are_written_again_as_they_were(tmp_path: Any) -> None:
    seen = 0
    for table in committed_tables():
        root = table.unpack(tmp_path / table.name)
        for path in sorted(root.rglob("*.parquet"))[:3]:
            footer = opened(path.read_bytes()).footer
            assert struct_bytes(CompactReader(footer).struct()) == footer
            seen += 1
    assert seen
