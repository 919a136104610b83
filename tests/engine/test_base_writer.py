"""Base files: what is in them, what their footers say, and what is left when a write fails."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.bloom import DYNAMIC, SIMPLE, BloomFilter
from lakewright.codec.parquet import ParquetFooter
from lakewright.codec.parquet_writer import ParquetPolicy
from lakewright.engine.base_footer import FooterKeys, key_bounds
from lakewright.engine.base_writer import append_to_base_file, write_base_files
from lakewright.engine.write_context import BloomPolicy, WriteContext, WriteToken
from lakewright.errors import FencedError, InputError, OptionError, SchemaError
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.partitions import list_partitions, read_partition_metadata
from lakewright.format.properties import load_properties
from lakewright.format.records.commit import WriteStat
from lakewright.format.records.instants import load_commit_metadata
from lakewright.format.table_schema import META_COLUMNS
from lakewright.format.timeline import load_timeline
from lakewright.runtime import ManualClock, ThreadSpawner
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.markers import MarkerType, read_markers
from tests.corpus import CommittedTable, committed_tables
from tests.engine.writing import (
    INSTANT,
    LATER,
    ROWS,
    base_of,
    context,
    data_files,
    incoming,
    shut,
)

TOKEN = WriteToken(3, 7, 11)
SMALL_BLOOM = BloomPolicy(entries=20)


def create(
    storage: Any, written: WriteContext, *batches: pa.RecordBatch, partition: str = "", **more: Any
) -> list[WriteStat]:
    return write_base_files(
        storage,
        written,
        partition=partition,
        file_id_prefix="00000000-0000-0000-0000-000000000001",
        token=TOKEN,
        batches=iter(batches),
        clock=ManualClock(),
        **more,
    )


def read(storage: Any, stat: WriteStat) -> pa.Table:
    return pq.read_table(pa.BufferReader(storage.read(stat.path)))


def footer(storage: Any, stat: WriteStat) -> ParquetFooter:
    assert stat.path is not None
    return ParquetFooter.read(storage.read(stat.path), stat.path)


def test_new_rows_get_the_five_meta_columns_in_front() -> None:
    storage = MemoryStorage()
    written = context(storage)
    [stat] = create(storage, written, incoming(written, ["a", "b"], "day=1"), partition="day=1")
    name = f"00000000-0000-0000-0000-000000000001-0_3-7-11_{INSTANT}.parquet"
    assert stat.path == f"day=1/{name}"
    table = read(storage, stat)
    assert table.column_names == [*META_COLUMNS, "id", "n"]
    assert table.to_pylist() == [
        {
            "_hoodie_commit_time": INSTANT,
            "_hoodie_commit_seqno": f"{INSTANT}_3_{i}",
            "_hoodie_record_key": key,
            "_hoodie_partition_path": "day=1",
            "_hoodie_file_name": name,
            "id": key,
            "n": i,
        }
        for i, key in enumerate(["a", "b"])
    ]
    assert not table.schema.field("id").nullable


def test_the_footer_tells_bounds_filter_and_schema_as_hudi_does() -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=SMALL_BLOOM)
    keys = ["id3", "id4"]
    [stat] = create(storage, written, incoming(written, keys))
    values = dict(footer(storage, stat).values)
    assert set(values) == {
        "org.apache.hudi.bloomfilter",
        "hoodie_bloom_filter_type_code",
        "hoodie_min_record_key",
        "hoodie_max_record_key",
        "parquet.avro.schema",
        "writer.model.name",
    }
    assert values["hoodie_bloom_filter_type_code"] == DYNAMIC
    assert (values["hoodie_min_record_key"], values["hoodie_max_record_key"]) == ("id3", "id4")
    assert values["org.apache.hudi.bloomfilter"] == BloomFilter.build(keys, entries=20).encode()
    assert parse_schema(values["parquet.avro.schema"]) == parse_schema(written.avro_schema)


def test_a_simple_filter_leaves_its_type_out() -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=BloomPolicy(kind=SIMPLE, entries=20))
    values = footer(storage, create(storage, written, incoming(written, ["a"]))[0]).values
    assert "hoodie_bloom_filter_type_code" not in values
    filter_ = BloomFilter.decode(values["org.apache.hudi.bloomfilter"], SIMPLE)
    assert filter_.might_contain(["a"]).all()


def test_without_a_filter_the_bounds_are_still_told() -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=None)
    values = footer(storage, create(storage, written, incoming(written, ["a"]))[0]).values
    assert "org.apache.hudi.bloomfilter" not in values
    assert values["hoodie_min_record_key"] == "a"


def test_virtual_keys_leave_the_meta_columns_empty_but_the_file_name() -> None:
    storage = MemoryStorage()
    written = context(storage, populate_meta=False)
    rows = incoming(written, ["a", "b"], "p")
    assert rows.schema.names == ["_hoodie_partition_path", "id", "n"]
    [stat] = create(storage, written, rows, partition="p")
    first = read(storage, stat).to_pylist()[0]
    assert [first[name] for name in META_COLUMNS[:4]] == [None] * 4
    assert first["_hoodie_file_name"] == (stat.path or "").split("/")[1]
    assert set(footer(storage, stat).values) == {"parquet.avro.schema", "writer.model.name"}


def test_no_rows_make_no_file() -> None:
    storage = MemoryStorage()
    written = context(storage)
    assert create(storage, written, incoming(written, [])) == []
    assert create(storage, written) == []
    assert data_files(storage) == [] and read_markers(storage, INSTANT) is None


def test_the_partition_is_marked_once_and_found_by_listing() -> None:
    storage = MemoryStorage()
    written = context(storage)
    create(storage, written, incoming(written, ["a"], "y=1/m=2"), partition="y=1/m=2")
    assert list_partitions(storage) == ["y=1/m=2"]
    told = read_partition_metadata(storage, "y=1/m=2")
    assert told is not None and (told.commit_time, told.depth) == (INSTANT, 2)
    later = context(storage, instant=LATER)
    create(storage, later, incoming(later, ["b"], "y=1/m=2"), partition="y=1/m=2")
    assert read_partition_metadata(storage, "y=1/m=2") == told


def test_the_partition_can_be_marked_by_a_parquet_file() -> None:
    storage = MemoryStorage()
    written = context(storage, partition_metafile="parquet")
    create(storage, written, incoming(written, ["a"]))
    assert storage.exists(".hoodie_partition_metadata.parquet")
    told = read_partition_metadata(storage, "")
    assert told is not None and (told.commit_time, told.depth) == (INSTANT, 0)


def test_every_file_has_a_marker_of_its_kind() -> None:
    storage = MemoryStorage()
    written = context(storage)
    [stat] = create(storage, written, incoming(written, ["a"], "p"), partition="p")
    [marker] = read_markers(storage, INSTANT) or []
    assert (marker.data_path, marker.type) == (stat.path, MarkerType.CREATE)
    later = context(storage, instant=LATER)
    grown = append(storage, later, base_of(stat), incoming(later, ["b"], "p"))
    [marker] = read_markers(storage, LATER) or []
    assert (marker.data_path, marker.type) == (grown.path, MarkerType.MERGE)


def append(storage: Any, written: WriteContext, base: Any, *batches: pa.RecordBatch) -> WriteStat:
    return append_to_base_file(
        storage,
        written,
        partition=base.partition,
        base=base,
        token=WriteToken(0, 1, 2),
        batches=iter(batches),
        clock=ManualClock(),
    )


def test_appending_keeps_the_meta_columns_of_old_rows_but_the_file_name() -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=SMALL_BLOOM)
    [old] = create(storage, written, incoming(written, ["b", "d"], "p"), partition="p")
    before = read(storage, old).to_pylist()
    later = context(storage, instant=LATER, bloom=SMALL_BLOOM)
    new = append(storage, later, base_of(old), incoming(later, ["a", "c"], "p"))
    after = read(storage, new).to_pylist()
    name = (new.path or "").split("/")[1]
    assert after[:2] == [{**row, "_hoodie_file_name": name} for row in before]
    assert [row["_hoodie_commit_seqno"] for row in after[2:]] == [f"{LATER}_0_0", f"{LATER}_0_1"]
    assert {row["_hoodie_commit_time"] for row in after[2:]} == {LATER}
    assert (new.file_id, new.prev_commit) == (old.file_id, INSTANT)
    assert (new.num_writes, new.num_inserts, new.num_update_writes) == (4, 2, 0)
    values = footer(storage, new).values
    assert (values["hoodie_min_record_key"], values["hoodie_max_record_key"]) == ("a", "d")
    keys = ["b", "d", "a", "c"]
    assert values["org.apache.hudi.bloomfilter"] == BloomFilter.build(keys, entries=20).encode()
    assert storage.exists(old.path or "")


def test_appending_brings_old_rows_to_the_new_schema() -> None:
    storage = MemoryStorage()
    narrow = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int32())])
    written = context(storage, narrow)
    [old] = create(storage, written, incoming(written, ["a"], id=["a"], n=[1]))
    wide = pa.schema([narrow.field("id"), ("n", pa.int64()), ("more", pa.list_(pa.string()))])
    later = context(storage, wide, instant=LATER)
    rows = incoming(later, ["b"], id=["b"], n=[2**40], more=[["x", None]])
    table = read(storage, append(storage, later, base_of(old), rows))
    assert table["n"].to_pylist() == [1, 2**40]
    assert table["more"].to_pylist() == [None, ["x", None]]
    assert table.schema.field("n").type == pa.int64()


def test_appending_to_virtual_keys_keeps_the_columns_empty() -> None:
    storage = MemoryStorage()
    written = context(storage, populate_meta=False)
    [old] = create(storage, written, incoming(written, ["a"]))
    later = context(storage, instant=LATER, populate_meta=False)
    new = append(storage, later, base_of(old), incoming(later, ["b"]))
    rows = read(storage, new).to_pylist()
    assert [r["_hoodie_record_key"] for r in rows] == [None, None]
    assert {r["_hoodie_file_name"] for r in rows} == {new.path}


def test_files_roll_at_their_size_and_sequence_numbers_go_on() -> None:
    storage = MemoryStorage()
    policy = ParquetPolicy(codec="uncompressed", row_group_rows=200, dictionary=())
    limit = 100_000
    written = context(storage, parquet=policy, bloom=SMALL_BLOOM, max_file_bytes=limit)
    keys = [f"key-{i:08d}" for i in range(5000)]
    batches = [incoming(written, keys[i : i + 700], "p") for i in range(0, 5000, 700)]
    stats = create(storage, written, *batches, partition="p")
    assert [s.file_id for s in stats] == [
        f"00000000-0000-0000-0000-000000000001-{n}" for n in range(len(stats))
    ]
    assert len(stats) > 2
    for stat in stats[:-1]:
        assert 0.8 * limit < (stat.file_size_in_bytes or 0) < 1.2 * limit
    tables = [read(storage, stat) for stat in stats]
    together = pa.concat_tables(tables)
    assert together["_hoodie_record_key"].to_pylist() == keys
    assert together["_hoodie_commit_seqno"].to_pylist() == [f"{INSTANT}_3_{i}" for i in range(5000)]
    for stat, table in zip(stats, tables, strict=True):
        assert set(table["_hoodie_file_name"].to_pylist()) == {(stat.path or "")[2:]}
        assert stat.num_writes == stat.num_inserts == table.num_rows


def test_without_a_size_everything_stays_in_one_file() -> None:
    storage = MemoryStorage()
    policy = ParquetPolicy(row_group_rows=10)
    written = context(storage, parquet=policy, bloom=None, max_file_bytes=None)
    [stat] = create(storage, written, incoming(written, [str(i) for i in range(100)]))
    assert len(footer(storage, stat).row_groups) == 10


def test_a_closed_fence_publishes_nothing_before_and_during_the_write() -> None:
    storage = MemoryStorage()
    written = context(storage)

    def rows() -> Iterator[pa.RecordBatch]:
        yield incoming(written, ["a"])
        shut(storage)

    shut(storage)
    with pytest.raises(FencedError):
        create(storage, written, incoming(written, ["a"]))
    assert read_markers(storage, INSTANT) is None
    with pytest.raises(FencedError):
        write_base_files(
            storage,
            context(storage),
            partition="",
            file_id_prefix="f",
            token=TOKEN,
            batches=rows(),
            clock=ManualClock(),
        )
    assert data_files(storage) == []


@pytest.mark.parametrize("local", [False, True])
def test_a_write_that_fails_leaves_no_file(local: bool, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path) if local else MemoryStorage()
    written = context(storage)

    def rows() -> Iterator[pa.RecordBatch]:
        yield incoming(written, ["a"] * 1000)
        raise InputError("No more rows.", hint="None.")

    for spawner in (None, ThreadSpawner()):
        with pytest.raises(InputError, match="No more rows"):
            write_base_files(
                storage,
                written,
                partition="p",
                file_id_prefix="f",
                token=TOKEN,
                batches=rows(),
                clock=ManualClock(),
                spawner=spawner,
            )
    names = [info.path for info in storage.walk("p")]
    assert names == ["p/.hoodie_partition_metadata"]


def test_an_empty_key_is_refused_beside_the_encoder_too() -> None:
    storage = MemoryStorage()
    written = context(storage)
    for spawner in (None, ThreadSpawner()):
        with pytest.raises(Exception, match="empty or missing key"):
            create(storage, written, incoming(written, ["a", ""]), spawner=spawner)
    assert data_files(storage) == []


def test_rows_of_other_columns_are_refused() -> None:
    storage = MemoryStorage()
    written = context(storage)
    wrong = pa.RecordBatch.from_pydict({"id": ["a"]})
    with pytest.raises(SchemaError, match="does not have the columns"):
        create(storage, written, wrong)


def test_the_context_travels() -> None:
    written = context(MemoryStorage(), bloom=SMALL_BLOOM)
    assert pickle.loads(pickle.dumps(written)) == written
    assert str(pickle.loads(pickle.dumps(TOKEN))) == "3-7-11"


def test_columns_that_the_table_does_not_store_are_left_out() -> None:
    storage = MemoryStorage()
    written = context(storage, ROWS, not_stored=("n",))
    assert written.schema.names == [*META_COLUMNS, "id"]
    assert '"n"' not in written.avro_schema


def test_impossible_filters_are_refused() -> None:
    with pytest.raises(OptionError, match="CUCKOO"):
        BloomPolicy(kind="CUCKOO")
    with pytest.raises(OptionError, match="entries"):
        BloomPolicy(entries=0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_bounds_are_in_the_order_of_java_strings(keys: list[str]) -> None:
    def java(key: str) -> bytes:
        return key.encode("utf-16-be")

    written = context(MemoryStorage(), bloom=None)
    collected = FooterKeys(written)
    for part in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
        collected.add(pa.array(part, pa.string()))
    values = collected.values()
    assert values["hoodie_min_record_key"] == min(keys, key=java)
    assert values["hoodie_max_record_key"] == max(keys, key=java)
    padded = pa.array(["\U0001f600", *keys, "\uffff"], pa.string()).slice(1, len(keys))
    assert key_bounds(padded) == key_bounds(pa.array(keys, pa.string()))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 7),
    st.booleans(),
)
def test_rows_come_back_whatever_the_batches_and_row_groups(
    rows: list[tuple[str, int | None]], size: int, beside: bool
) -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=SMALL_BLOOM, parquet=ParquetPolicy(row_group_rows=size))
    keys, numbers = [k for k, _ in rows], [n for _, n in rows]
    batch = incoming(written, keys, "p", id=keys, n=numbers)
    parts = [batch.slice(i, size) for i in range(0, len(rows), size)]
    spawner = ThreadSpawner() if beside else None
    [stat] = create(storage, written, *parts, partition="p", spawner=spawner)
    table = read(storage, stat)
    assert table["id"].to_pylist() == table["_hoodie_record_key"].to_pylist() == keys
    assert table["n"].to_pylist() == numbers
    text = footer(storage, stat).values["org.apache.hudi.bloomfilter"]
    assert text == BloomFilter.build(keys, entries=20).encode()


# ---- beside files and commits that real Hudi wrote ----------------------------------------------


def _real(table: CommittedTable, tmp_path: Path) -> tuple[LocalStorage, list[WriteStat], int]:
    storage = LocalStorage(table.unpack(tmp_path))
    properties = load_properties(storage, clock=ManualClock())
    timeline = load_timeline(storage, properties)
    stats = [
        stat
        for instant in timeline.commits().completed()
        for stat in load_commit_metadata(storage, properties, instant).write_stats
        if isinstance(parse_data_file((stat.path or "").rpartition("/")[2]), BaseFileName)
    ]
    return storage, stats, properties.version.number


@pytest.mark.parametrize("table", committed_tables(), ids=lambda t: t.name)
def test_footers_of_real_files_are_reproduced_from_their_keys(
    table: CommittedTable, tmp_path: Path
) -> None:
    storage, stats, _ = _real(table, tmp_path)
    compared = 0
    for stat in stats[:4]:
        if not storage.exists(stat.path or ""):
            continue  # cleaned since
        real = footer(storage, stat)
        if "org.apache.hudi.bloomfilter" not in real.values:
            continue
        keys = pq.read_table(
            pa.BufferReader(storage.read(stat.path or "")), columns=["_hoodie_record_key"]
        )["_hoodie_record_key"]
        world = MemoryStorage()
        made = FooterKeys(context(world))
        for chunk in keys.chunks:
            made.add(chunk)
        ours = made.values()
        for name in (
            "org.apache.hudi.bloomfilter",
            "hoodie_bloom_filter_type_code",
            "hoodie_min_record_key",
            "hoodie_max_record_key",
        ):
            assert ours.get(name) == real.values.get(name), name
        compared += 1
    if not compared:
        pytest.skip("no base file with a filter is left of it")


def _shape(stat: WriteStat) -> dict[str, Any]:
    """What does not depend on names, rows and time."""
    plain = {f.name: getattr(stat, f.name) for f in dataclasses.fields(stat)}
    for name in ("json_fields", "unknown"):
        del plain[name]
    merged = stat.prev_commit != "null"
    for name in ("file_id", "path", "partition_path", "prev_base_file", "prev_commit"):
        plain[name] = plain[name] is None or type(plain[name]).__name__
    for name in ("num_writes", "num_inserts", "total_write_bytes", "file_size_in_bytes"):
        plain[name] = type(plain[name]).__name__
    times = stat.runtime_stats
    assert times is not None
    plain["runtime_stats"] = (
        times.total_scan_time,
        times.total_create_time if merged else 0,
        0 if merged else times.total_upsert_time,
    )
    return plain


@pytest.mark.parametrize("table", committed_tables(), ids=lambda t: t.name)
def test_write_stats_look_like_those_of_real_commits(table: CommittedTable, tmp_path: Path) -> None:
    _, real, version = _real(table, tmp_path)
    storage = MemoryStorage()
    number = version if version in (6, 8) else 8
    written = context(storage, version=number, bloom=None)
    [new] = create(storage, written, incoming(written, ["a"], "p"), partition="p")
    later = context(storage, version=number, instant=LATER, bloom=None)
    grown = append(storage, later, base_of(new), incoming(later, ["b"], "p"))
    created = [s for s in real if s.prev_commit == "null" and s.num_writes == s.num_inserts]
    merged = [
        s
        for s in real
        if s.prev_commit != "null"
        and not s.num_update_writes
        and not s.num_deletes
        and not s.total_log_files_compacted
        and s.cdc_stats is None
    ]
    for ours, theirs in ((new, created), (grown, merged)):
        for stat in theirs:
            assert _shape(ours) == _shape(stat)
