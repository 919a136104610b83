"""Upserts of some columns: what rows become, and which log blocks may say that they are partial."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from lakewright.engine.new_table import NewTable
from lakewright.engine.table_creation import create_table
from lakewright.errors import InputError
from lakewright.format.log_block import read_blocks
from lakewright.runtime import ManualClock, SeededRandom
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from tests.engine.keyed.positions import log_files
from tests.engine.keyed.tables import QuickTable
from tests.quickly import a_few_quickly
from tests.txn.tables import START_MS

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("p", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("a", pa.int64()),
        pa.field("b", pa.string()),
        pa.field("c", pa.list_(pa.int32())),
    ]
)
KEYS = [f"k{i}" for i in range(12)]
EVENT, COMMIT = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"
SHAPES = [
    (version, type_, mode, index, True)
    for version in (6, 8)
    for type_ in ("cow", "mor")
    for mode in (EVENT, COMMIT)
    for index in ("SIMPLE", "GLOBAL_BLOOM", "BUCKET")
] + [(6, "cow", EVENT, "SIMPLE", False), (8, "mor", COMMIT, "BUCKET", False)]


def table_of(
    version: int, type_: str, mode: str, schema: pa.Schema = SCHEMA, *, meta: bool = True
) -> QuickTable:
    clock = ManualClock(START_MS)
    storage = MemoryStorage(MemoryBucket(clock=clock))
    spec = NewTable(
        name="t",
        schema=schema,
        type=type_,  # type: ignore[arg-type]
        version=version,
        key_fields=("id",),
        partition_fields=("p",),
        ordering_fields=() if version == 6 and mode == COMMIT else ("ts",),
        merge_mode=mode,
        populate_meta_fields=meta,
        timeline_timezone="UTC",
    )
    create_table(storage, spec, clock=clock, random=SeededRandom(1))
    return QuickTable(storage, clock)


def some_row(rng: random.Random, key: str, ts: int) -> dict[str, Any]:
    return {
        "id": key,
        "p": f"p{int(key[1:]) % 2}",
        "ts": ts,
        "a": rng.choice([None, rng.randrange(99)]),
        "b": rng.choice([None, "", "wört"]),
        "c": rng.choice([None, [], [1, None, 3]]),
    }


def joined(older: dict[str, Any] | None, newer: dict[str, Any], mode: str) -> dict[str, Any]:
    """What becomes of the columns of two versions of a row."""
    older = older or {}
    if mode == EVENT and older and older["ts"] > newer["ts"]:
        older, newer = newer, older
    return {**older, **newer}


@pytest.mark.parametrize(("version", "type_", "mode", "index", "meta"), a_few_quickly(SHAPES, 8))
def test_only_the_named_columns_change(
    version: int, type_: str, mode: str, index: str, meta: bool
) -> None:
    rng = random.Random(f"{version}{type_}{mode}{index}")
    table = table_of(version, type_, mode, meta=meta)
    options = {
        "hoodie.index.type": index,
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.parquet.small.file.limit": "0",  # a base file that is written anew takes updates
    }
    # Hudi 1.0 joins columns only where event time orders rows, and not for a global index.
    joins = (version, type_, mode, index) == (8, "mor", EVENT, "SIMPLE")
    first = [some_row(rng, key, 5) for key in KEYS[:9]]
    table.upsert(pa.Table.from_pylist(first, SCHEMA), options=options)
    model = {row["id"]: row for row in first}
    logged: dict[str, dict[str, Any]] = {}
    for columns in (["a"], ["b", "c"], ["c", "a"], ["b"]):
        given = [some_row(rng, key, rng.choice([4, 6])) for key in rng.sample(KEYS, 6)]
        names = [name for name in SCHEMA.names if name in ("id", "p", "ts", *columns)]
        sent = pa.Table.from_pylist(given, SCHEMA).select(names)
        done = table.upsert(sent, columns=columns, options=options)
        for row in given:
            key = row["id"]
            taken = {name: row[name] for name in names if name != "ts" or mode == EVENT}
            if key not in model:
                model[key] = {**dict.fromkeys(SCHEMA.names), **taken}
            elif joins:  # rows in logs meet each other first
                logged[key] = joined(logged.get(key), taken, mode)
            elif mode == COMMIT or model[key]["ts"] <= row["ts"]:
                model[key] = {**model[key], **taken}
        wanted = {
            key: joined(row, logged[key], mode) if key in logged else row
            for key, row in model.items()
        }
        found = {row["id"]: row for row in table.scan(meta=False).to_arrow().to_pylist()}
        assert found == wanted
        assert done.instant is not None
        for path in log_files(table, done.instant):
            for block in read_blocks(table.storage.read(path), path=path):
                assert block.is_partial == joins


def test_new_rows_that_would_lack_a_needed_column_are_refused() -> None:
    schema = SCHEMA.set(4, pa.field("b", pa.string(), nullable=False))
    table = table_of(8, "mor", EVENT, schema)
    row = {"id": "k1", "p": "p1", "ts": 1, "a": 1, "b": "x", "c": None}
    table.upsert(pa.Table.from_pylist([row], schema))
    before = table.files()
    new = pa.table({"id": ["k2"], "p": ["p0"], "ts": [1], "a": [2]})
    with pytest.raises(InputError, match="does not allow b to be null"):
        table.upsert(new, columns=["a"])
    with pytest.raises(InputError, match="lack ts"):
        table.upsert(new.drop_columns(["ts"]), columns=["a"])
    assert table.files() == before
