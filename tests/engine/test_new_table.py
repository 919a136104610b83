"""Creating tables: the properties that Hudi stores for the same choices, and one winner."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import Record
from lakewright.engine.new_table import NewTable
from lakewright.engine.snapshot import load_snapshot
from lakewright.engine.table_creation import create_table
from lakewright.errors import ConfigError, LakewrightError, SchemaError, TableError
from lakewright.format.creation_schema import creation_schema, data_schema
from lakewright.format.properties import PROPERTIES_FILE, load_properties
from lakewright.runtime.clock import ManualClock
from lakewright.runtime.random import SeededRandom
from lakewright.storage.base import Storage
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryStorage
from tests.fixtures import shared_tables, unpack

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("sub", pa.int32()),
        ("region", pa.string()),
        ("day", pa.string()),
        ("at_ms", pa.int64()),
        ("ts", pa.int64()),
        ("amount", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64())])),
    ]
)
TEXT_TIMES = {
    "timestamp.type": "DATE_STRING",
    "input.dateformat": "yyyy-MM-dd",
    "output.dateformat": "yyyyMMdd",
}

OURS = {
    "hoodie.table.create.schema": "Hudi stores it only for tables created by SQL; without it a "
    "table without rows would have no columns",
}
OF_SQL = {
    "hoodie.database.name": "SQL names the database default",
    "hoodie.table.checksum": "covers the name of the database",
    "hoodie.table.timeline.timezone": "0.15 leaves the default LOCAL out when SQL creates a table",
}
"""What differs in tables that SQL created, from those that a first write made."""


def _spec(**choices: Any) -> NewTable:
    given: dict[str, Any] = {
        "name": "trips",
        "schema": SCHEMA,
        "key_fields": ("id",),
        "partition_fields": ("region",),
        "ordering_fields": ("ts",),
    }
    return NewTable(**{**given, **choices})


# ---- against real tables -----------------------------------------------------------------------

RECORDED = json.loads(Path(__file__).with_name("hudi_properties.json").read_text())
"""Options of first writes, and the properties that Hudi 0.15.0 and 1.0.2 made of them."""


@pytest.mark.parametrize("table", RECORDED, ids=lambda t: t["properties"]["hoodie.table.name"])
def test_properties_are_those_of_hudi_for_the_same_options(table: dict[str, Any]) -> None:
    numbers = ("at_ms",)
    columns = [(n, pa.int64() if n in numbers else pa.string()) for n in table["columns"]]
    spec = NewTable.from_hudi(table["options"], pa.schema(columns), version=table["version"])
    real, mine = table["properties"], spec.properties()
    allowed = {*OURS, *spec.remembered()}
    if real.get("hoodie.database.name"):
        allowed |= set(OF_SQL)
    differ = {k for k in {*real, *mine} if real.get(k) != mine.get(k)}
    assert differ <= allowed, {k: (real.get(k), mine.get(k)) for k in differ - allowed}


@pytest.mark.parametrize(
    "table",
    [t for t in RECORDED if "hoodie.table.create.schema" in t["properties"]],
    ids=lambda t: t["properties"]["hoodie.table.name"],
)
def test_the_schema_of_creation_is_that_of_hudi(table: dict[str, Any]) -> None:
    text = table["properties"]["hoodie.table.create.schema"]
    record = parse_schema(text)
    assert isinstance(record, Record)
    name = record.name.rpartition(".")[2].removesuffix("_record")
    mine = NewTable(name=name, schema=arrow_schema(record)).properties()
    assert mine["hoodie.table.create.schema"] == text


# ---- the schema --------------------------------------------------------------------------------


def test_nullable_columns_are_declared_as_hudi_declares_them() -> None:
    record = _spec().avro_schema()
    created = json.loads(_spec().properties()["hoodie.table.create.schema"])
    kinds = {f["name"]: f["type"] for f in created["fields"]}
    assert created["name"] == "trips_record" and created["namespace"] == "hoodie.trips"
    assert kinds["id"] == "string"
    assert kinds["sub"] == ["int", "null"]
    assert kinds["tags"] == [{"type": "array", "items": ["string", "null"]}, "null"]
    assert "default" not in created["fields"][1]
    assert data_schema(creation_schema(record)) == record


# ---- choices -----------------------------------------------------------------------------------


def test_merge_rules_are_stored_in_the_words_of_the_version() -> None:
    payload = "hoodie.compaction.payload.class"
    eight = _spec(merge_mode="commit_time_ordering").properties()
    assert eight["hoodie.record.merge.mode"] == "COMMIT_TIME_ORDERING"
    assert eight[payload].endswith("OverwriteWithLatestAvroPayload")
    six = _spec(version=6, type="mor", merge_mode="EVENT_TIME_ORDERING").properties()
    assert six[payload].endswith("DefaultHoodieRecordPayload")
    assert "hoodie.record.merge.mode" not in six
    plain = _spec(version=6).properties()
    assert payload not in plain
    remembered = _spec(version=6, merge_mode="EVENT_TIME_ORDERING")
    assert remembered.properties()[payload].endswith("DefaultHoodieRecordPayload")
    assert remembered.remembered() == {payload}


def test_the_key_generator_follows_from_the_fields() -> None:
    def of(**choices: Any) -> str:
        return _spec(**choices).properties()["hoodie.table.keygenerator.type"]

    assert of() == "SIMPLE"
    assert of(partition_fields=()) == "NON_PARTITION"
    assert of(key_fields=("id", "sub")) == "COMPLEX"
    assert of(partition_fields=("region:simple",)) == "CUSTOM"
    assert of(key_generator="SIMPLE_AVRO") == "SIMPLE_AVRO"
    six = _spec(version=6, key_generator="org.apache.hudi.keygen.ComplexAvroKeyGenerator")
    stored = six.properties()["hoodie.table.keygenerator.class"]
    assert stored == "org.apache.hudi.keygen.ComplexAvroKeyGenerator"


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ({"version": 9}, ConfigError, "read only here"),
        ({"version": 5}, LakewrightError, "version 5 is not supported"),
        ({"type": "heap"}, ConfigError, "type=heap is not known"),
        ({"name": ""}, ConfigError, "not a name"),
        ({"name": "a/b"}, ConfigError, "not a name"),
        ({"key_fields": ("idd",)}, SchemaError, "key field 'idd' is not among the columns"),
        ({"key_fields": ("id", "id")}, ConfigError, "given twice"),
        ({"key_fields": ("tags",)}, SchemaError, "cannot be a key field"),
        ({"partition_fields": ("place",)}, SchemaError, "cannot be a partition field"),
        ({"ordering_fields": ("place",)}, SchemaError, "cannot be a ordering field"),
        ({"ordering_fields": ("ts", "sub")}, ConfigError, "takes one ordering field"),
        ({"ordering_fields": (), "merge_mode": "EVENT_TIME_ORDERING"}, ConfigError, "needs an ord"),
        ({"merge_mode": "SOMEHOW"}, ConfigError, "merge_mode=SOMEHOW is not known"),
        ({"merge_mode": "CUSTOM"}, ConfigError, "needs a payload class"),
        ({"merge_strategy_id": "x"}, ConfigError, "not a strategy id"),
        ({"key_generator": "MAGIC"}, ConfigError, "key_generator=MAGIC is not known"),
        ({"key_generator": "com.acme.Keys"}, ConfigError, "cannot be run here"),
        ({"key_generator": "GLOBAL_DELETE"}, ConfigError, "cannot be run here"),
        ({"key_generator": "NON_PARTITION"}, ConfigError, "contradicts the partition fields"),
        ({"key_generator": "SIMPLE", "key_fields": ("id", "sub")}, ConfigError, "one key field"),
        ({"key_generator": "CUSTOM"}, ConfigError, "needs a type"),
        ({"key_generator": "SIMPLE", "partition_fields": ("day:SIMPLE",)}, ConfigError, "no types"),
        ({"partition_fields": ("day:WEEK",)}, ConfigError, "unknown type WEEK"),
        ({"partition_fields": ("day:TIMESTAMP",)}, ConfigError, "need a pattern"),
        ({"time_settings": TEXT_TIMES}, ConfigError, "no partition field is a time"),
        ({"time_settings": {"timestamp.tipe": "x"}}, ConfigError, "is no setting"),
        (
            {"partition_fields": ("at_ms:TIMESTAMP",), "time_settings": TEXT_TIMES},
            ConfigError,
            "DATE_STRING does not fit",
        ),
        (
            {
                "partition_fields": ("at_ms:TIMESTAMP",),
                "time_settings": {
                    "timestamp.type": "EPOCHMICROSECONDS",
                    "output.dateformat": "yyyy",
                },
            },
            ConfigError,
            "every reader",
        ),
        (
            {
                "partition_fields": ("day:TIMESTAMP",),
                "time_settings": {**TEXT_TIMES, "input.dateformat": "yy-MM-dd"},
            },
            ConfigError,
            "years of two digits",
        ),
        ({"populate_meta_fields": False, "key_fields": ()}, ConfigError, "formed again"),
        ({"drop_partition_columns": True, "partition_fields": ()}, ConfigError, "has none"),
        (
            {"drop_partition_columns": True, "ordering_fields": ("region",)},
            ConfigError,
            "cannot be dropped",
        ),
        ({"cdc": "EVERYTHING"}, ConfigError, "cdc=EVERYTHING is not known"),
        ({"timeline_timezone": "MARS"}, ConfigError, "timeline_timezone=MARS"),
        ({"extra": {"hoodie.table.type": "MERGE_ON_READ"}}, ConfigError, "contradicts"),
        ({"schema": pa.schema([])}, SchemaError, "at least one column"),
        ({"schema": '"string"'}, SchemaError, "not a record"),
        ({"schema": pa.schema([("a b", pa.int32())])}, SchemaError, "no legal Avro name"),
        ({"schema": pa.schema([("a", pa.int8()), ("A", pa.int8())])}, SchemaError, "ignore case"),
        ({"schema": SCHEMA.append(pa.field("x", pa.uint64()))}, SchemaError, "uint64"),
        (
            {"schema": SCHEMA.append(pa.field("_hoodie_commit_time", pa.string()))},
            SchemaError,
            "reserved",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    choices: dict[str, Any], error: type[LakewrightError], message: str
) -> None:
    storage = MemoryStorage()
    with pytest.raises(error, match=message):
        create_table(storage, _spec(**choices), clock=ManualClock(), random=SeededRandom(1))
    assert list(storage.walk()) == []


# ---- creating ----------------------------------------------------------------------------------


def _create(storage: Storage, seed: int = 1, **choices: Any) -> dict[str, str]:
    made = create_table(storage, _spec(**choices), clock=ManualClock(), random=SeededRandom(seed))
    return dict(made.values)


@pytest.mark.parametrize("version", [6, 8])
def test_a_created_table_is_read_as_an_empty_one(version: int, tmp_path: Path) -> None:
    for storage in (LocalStorage(tmp_path / "t"), MemoryStorage()):
        made = _create(storage, version=version, type="mor")
        assert dict(load_properties(storage, clock=ManualClock()).values) == made
        snapshot = load_snapshot(storage, clock=ManualClock())
        assert not snapshot.timeline.instants
        assert snapshot.schema.arrow.names[5:] == SCHEMA.names
    folders = {str(p.relative_to(tmp_path / "t")) for p in (tmp_path / "t").rglob("*")}
    own = {6: {".hoodie/archived"}, 8: {".hoodie/timeline", ".hoodie/timeline/history"}}
    assert folders == own[version] | {
        ".hoodie",
        ".hoodie/.aux",
        ".hoodie/.aux/.bootstrap",
        ".hoodie/.aux/.bootstrap/.fileids",
        ".hoodie/.aux/.bootstrap/.partitions",
        ".hoodie/.schema",
        ".hoodie/.temp",
        ".hoodie/hoodie.properties",
    }


def test_the_layout_is_that_of_an_empty_table_of_hudi(tmp_path: Path) -> None:
    found = [t for t in shared_tables() if Path(t.zip).stem == "cow_v6_empty"]
    if not found:
        pytest.skip("the shared tables are not there")
    real = unpack(found[0], tmp_path / "real")
    _create(LocalStorage(tmp_path / "mine"), version=6)

    def names(root: Path) -> set[str]:
        return {str(p.relative_to(root)) for p in root.rglob("*") if p.suffix != ".crc"}

    assert {n for n in names(real) if n.startswith(".hoodie")} - names(tmp_path / "mine") == set()


def test_nothing_is_created_over_a_table_or_in_a_foreign_folder() -> None:
    storage = MemoryStorage()
    _create(storage)
    before = storage.read(PROPERTIES_FILE)
    with pytest.raises(TableError, match="There is a table"):
        _create(storage, name="other")
    assert storage.read(PROPERTIES_FILE) == before
    foreign = MemoryStorage()
    foreign.replace("data/part-0.parquet", b"x")
    with pytest.raises(TableError, match="is not empty: there is data"):
        _create(foreign)
    assert [info.path for info in foreign.walk()] == ["data/part-0.parquet"]


def test_a_creation_that_was_killed_can_be_done_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "t")
    _create(storage)
    storage.delete(PROPERTIES_FILE)
    _create(storage)
    objects = MemoryStorage()
    _create(objects)
    objects.delete(PROPERTIES_FILE)
    _create(objects)


def test_of_many_creators_one_wins(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "t")
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        try:
            _create(storage, seed=number, name=f"t{number}")
            outcomes.append(f"t{number}")
        except TableError:
            outcomes.append("lost")

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [o for o in outcomes if o != "lost"]
    assert len(outcomes) == 8 and len(won) == 1
    assert load_properties(storage, clock=ManualClock()).name == won[0]
