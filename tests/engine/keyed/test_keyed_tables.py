"""Keyed writes on tables of all kinds: key generators, schemas that grow, tables of real Hudi."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewright.engine.keyed.writer import KeyedWriter
from lakewright.engine.new_table import NewTable
from lakewright.engine.operations import UPSERT
from lakewright.engine.row_source import RowSource
from lakewright.engine.table_creation import create_table
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.errors import OptionError
from lakewright.format.buckets import bucket_of_file
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime import ManualClock, SeededRandom, ThreadSpawner
from lakewright.runtime.spawn import Task
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from tests.corpus import CommittedTable, committed_tables
from tests.engine.keyed.tables import BUCKETS, QuickTable, Shape, new_table, rows
from tests.format.java_hash import slow_bucket
from tests.txn.tables import START_MS, NeverRuns

EACH = pytest.mark.parametrize(
    ("version", "type_"), [(6, "cow"), (6, "mor"), (8, "cow"), (8, "mor")]
)
KEYED = ("_hoodie_record_key", "_hoodie_partition_path")


# ---- key generators ----------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("city", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("n", pa.int64()),
    ]
)
DAY_US = 86_400_000_000
GENERATORS: dict[str, dict[str, Any]] = {
    "simple": {"key_fields": ("id",), "partition_fields": ("city",), "hive_style": True},
    "complex": {"key_fields": ("id", "name"), "partition_fields": ("city", "name")},
    "none": {"key_fields": ("name",)},
    "dropped": {
        "key_fields": ("id",),
        "partition_fields": ("city",),
        "drop_partition_columns": True,
    },
    "custom": {
        "key_fields": ("id",),
        "partition_fields": ("city:SIMPLE", "name:SIMPLE"),
        "key_generator": "CUSTOM",
        "url_encode": True,
    },
}


def some(*numbers: int, n: int = 0) -> pa.Table:
    values = {
        "id": [*numbers],
        "name": [f"n{i % 2}:x,y" if i % 3 else f"n{i}" for i in numbers],
        "city": ["köln" if i % 2 else "s f" for i in numbers],
        "at": pa.array([i * DAY_US for i in numbers], SCHEMA.field("at").type),
        "n": [n] * len(numbers),
    }
    return pa.table(values, schema=SCHEMA)


@pytest.mark.parametrize(("version", "type_"), [(6, "mor"), (8, "cow")])
@pytest.mark.parametrize("kind", GENERATORS)
def test_keys_of_every_generator_find_their_rows(version: int, type_: str, kind: str) -> None:
    clock = ManualClock(START_MS)
    storage = MemoryStorage(MemoryBucket(clock=clock))
    spec = NewTable(
        name="t",
        schema=SCHEMA,
        type=type_,  # type: ignore[arg-type]
        version=version,
        ordering_fields=("n",),
        timeline_timezone="UTC",
        **GENERATORS[kind],
    )
    create_table(storage, spec, clock=clock, random=SeededRandom(1))
    table = QuickTable(storage, clock)
    # Version 6 forgets the types of CUSTOM partition fields.
    fields = {"hoodie.datasource.write.partitionpath.field": ",".join(spec.partition_fields)}
    how = {"options": fields if kind == "custom" else {}}
    numbers = (1, 2, 3, 6, 9, 12) if kind != "none" else (3, 6, 9, 12)
    assert table.upsert(some(*numbers), **how).inserted == len(numbers)
    result = table.upsert(some(3, 6, 15, n=1), **how)
    assert (result.inserted, result.updated) == (1, 2)
    gone = table.delete(some(6, 12), **how)
    assert (gone.deleted, gone.ignored) == (2, 0)
    assert table.delete(where="id = 9", **how).deleted == 1
    found = table.scan(meta=False).to_arrow().sort_by("id").to_pylist()
    kept = [i for i in (*numbers, 15) if i not in (6, 9, 12)]
    expected = [row for i in kept for row in some(i, n=int(i in (3, 15))).to_pylist()]
    assert found == expected


# ---- schemas -----------------------------------------------------------------------------------


@EACH
def test_an_upsert_may_bring_new_columns_and_wider_types(version: int, type_: str) -> None:
    shape = Shape(type=type_, version=version, ordering=pa.int32())
    table = new_table(shape)
    table.upsert(rows(shape, [("k0", "a", 1, 10), ("k1", "a", 1, 11), ("k2", "b", 1, 12)]))
    wider = rows(shape, [("k1", "a", 2, 21), ("k3", "b", 2, 23)])
    wider = wider.set_column(2, "ts", pa.array([2**40, 2**41]))
    wider = wider.append_column("note", pa.array(["x", None]))
    table.upsert(wider)
    late = rows(shape, [("k1", "a", 3, 31), ("k0", "a", 3, 30)])
    table.upsert(late)
    found = table.scan(columns=["id", "ts", "v", "note"]).to_arrow().sort_by("id")
    assert found.schema.field("ts").type == pa.int64()
    # The late row of k1 has an ordering value that is too small to win.
    assert found.to_pydict() == {
        "id": ["k0", "k1", "k2", "k3"],
        "ts": [3, 2**40, 1, 2**41],
        "v": [30, 21, 12, 23],
        "note": [None, "x", None, None],
    }


# ---- ways of working ---------------------------------------------------------------------------


@EACH
def test_memory_and_threads_change_nothing(version: int, type_: str) -> None:
    shape = Shape(type=type_, version=version)
    given = [(f"k{i}", "abcd"[i % 4], i % 7, i) for i in range(60)]
    contents = []
    for memory, threads in ((1 << 30, 1), (0, 3)):
        table = new_table(shape)
        for first in (0, 20):
            options = WriteOptions.from_hudi(shape.options, table=table.properties)
            batches = rows(shape, given[first : first + 40]).to_batches(max_chunksize=7)
            source = RowSource(pa.Table.from_batches(batches))
            access = replace(table.access(options), spawner=OnlyProducers())
            job = WriteJob.prepare(access, options, UPSERT, source.schema)
            KeyedWriter(job, MergerRegistry(), threads, memory).upsert(source)
        found = table.scan(columns=["id", "p", "ts", "v"]).to_arrow().to_pylist()
        contents.append(sorted(found, key=lambda row: row["id"]))
    assert contents[0] == contents[1] and len(contents[0]) == 60


class OnlyProducers(NeverRuns):
    """Threads for files only: heartbeats would run away from a clock that stands still."""

    def spawn(self, fn: Any, name: str) -> Task[Any]:
        """A thread if it is one that writes files."""
        threads = ThreadSpawner()
        return threads.spawn(fn, name) if "producer" in name else super().spawn(fn, name)


# ---- tables of real Hudi -----------------------------------------------------------------------

REAL = [
    t for t in committed_tables() if t.table_version in (6, 8) and "schema_on_read" not in t.name
]


def loaded(real: CommittedTable, folder: Path) -> QuickTable:
    """The table in memory, its files as old as they were."""
    root = real.unpack(folder)
    files = sorted((p for p in root.rglob("*") if p.is_file()), key=lambda p: p.stat().st_mtime_ns)
    clock = ManualClock(files[0].stat().st_mtime_ns // 1_000_000)
    storage = MemoryStorage(MemoryBucket(clock=clock))
    for file in files:
        behind = file.stat().st_mtime_ns // 1_000_000 - clock.now_ms()
        clock.advance(max(0, behind) / 1000)
        storage.replace(str(file.relative_to(root)), file.read_bytes())
    clock.advance(5)
    table = QuickTable(storage, clock)
    table._sole_writer = True
    return table


def content(table: QuickTable) -> dict[tuple[str, str], dict[str, Any]]:
    found = table.scan().to_arrow().to_pylist()
    kept = {tuple(row[name] for name in KEYED): row for row in found}
    assert len(kept) == len(found)
    return {
        key: {name: v for name, v in row.items() if not name.startswith("_hoodie_")}
        | {"_hoodie_commit_time": row["_hoodie_commit_time"]}
        for key, row in sorted(kept.items())
    }


@pytest.mark.parametrize("real", REAL, ids=lambda t: t.name)
def test_tables_of_real_hudi_go_on_with_our_keyed_writes(
    real: CommittedTable, tmp_path: Path
) -> None:
    """Pending compactions, log-only groups, partial blocks, change data, archived commits."""
    table = loaded(real, tmp_path)
    options = {"hoodie.metadata.enable": "false"}
    if "bucket" in real.name:
        options |= {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    before = content(table)
    data = table.scan(meta=False).to_arrow()
    stored = table.scan(columns=list(KEYED)).to_arrow()
    places = [tuple(row.values()) for row in stored.to_pylist()]
    same = data.slice(0, 2)
    field = table.properties.record_key_fields[-1]
    at = data.schema.get_field_index(field)
    fresh = data.slice(2, 2)
    others = [
        f"{value}999" if isinstance(value, str) else value + 999
        for value in fresh[field].to_pylist()
    ]
    key = pa.array(others, fresh[field].type)
    fresh = fresh.set_column(at, data.schema.field(at), key)
    result = table.upsert(pa.concat_tables([same, fresh]), options=options)
    after = content(table)
    expected = dict(before)
    for place in places[:2]:
        expected[place] = before[place] | {"_hoodie_commit_time": result.instant}
    added = [place for place in after if place not in before]
    assert len(added) == 2
    assert {k: v for k, v in after.items() if k not in added} == expected
    assert all(after[place]["_hoodie_commit_time"] == result.instant for place in added)
    gone = table.delete(stored.slice(0, 3), options=options)
    assert gone.deleted >= 3
    assert content(table).keys() == after.keys() - set(places[:3])


# ---- buckets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "as_1x", "spans"),
    [(6, False, False), (6, True, True), (8, False, True), (8, None, True)],
)
def test_keys_with_a_colon_fall_into_the_buckets_of_the_release_that_writes_the_table(
    version: int, as_1x: bool | None, spans: bool
) -> None:
    shape = Shape(type="mor", version=version, index="BUCKET", partitioned=False)
    table = new_table(shape)
    options = WriteOptions.from_hudi(shape.options, table=table.properties, bucket_keys_as_1x=as_1x)
    keys = [f"{n}:30" for n in range(8)]
    for ts in (1, 2):
        table.upsert(rows(shape, [(key, "", ts, ts) for key in keys]), options=options)
    found = table.scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in found) == keys
    for row in found:
        wanted = slow_bucket(row["id"], ["id"], BUCKETS, spans=spans)
        assert bucket_of_file(row["_hoodie_file_name"]) == wanted


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_keys_whose_bucket_depends_on_the_release_are_refused_at_version_6(verb: str) -> None:
    shape = Shape(type="mor", version=6, index="BUCKET", partitioned=False)
    table = new_table(shape)
    table.upsert(rows(shape, [("plain", "", 1, 1)]), options=shape.options)
    before = table.timeline.instants
    given = rows(shape, [(f"{n}:30", "", 1, 1) for n in range(8)])
    with pytest.raises(OptionError, match=r"4 keys, as '\d:30'.*bucket_keys_as_1x"):
        getattr(table, verb)(given, options=shape.options)
    assert [i for i in table.timeline.instants if i not in before and i.action != "rollback"] == []
    assert [row["id"] for row in table.scan().to_arrow().to_pylist()] == ["plain"]
