"""Encodings of keys that Hudi does not store, told from rows of real and of made-up tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewright.codec.avro.schema import to_json
from lakewright.engine.key_detection import detect_keys
from lakewright.engine.new_table import NewTable
from lakewright.engine.row_options import RowOptions
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.engine.table_creation import create_table
from lakewright.errors import ConfigError, InputError
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.keys import KeySpec, PartitionField, PartitionKind, TextPath, record_keys
from lakewright.format.partition_paths import partition_paths
from lakewright.format.partitions import PARTITION_METADATA_FILE
from lakewright.format.row_keys import RowKeys, refuse_rows_without_key
from lakewright.format.table_schema import META_COLUMNS
from lakewright.runtime.clock import ManualClock
from lakewright.runtime.random import SeededRandom
from lakewright.storage.local import LocalStorage
from tests.fixtures import shared_tables, unpack

INSTANT = "20240101000000000"
UTC_MICROS = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("at", UTC_MICROS),
        ("region", pa.string()),
        ("day", pa.string()),
        ("n", pa.int64()),
    ]
)
DAY = {"timestamp.type": "DATE_STRING", "input.dateformat": "yyyy-MM-dd", "timezone": "UTC"}


def _rows(**columns: list[Any]) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    filled = {
        "id": [f"k{i}" for i in range(count)],
        "at": [datetime(2024, 1, 1, 12, 30, i, 120000, tzinfo=UTC) for i in range(count)],
        "region": ["north"] * count,
        "day": ["2024-01-31"] * count,
        "n": list(range(count)),
    }
    return pa.RecordBatch.from_pydict({**filled, **columns}, schema=SCHEMA)


def _table(root: Path, rows: pa.RecordBatch | None, way: dict[str, Any], **spec: Any) -> Snapshot:
    """A version 6 table with one base file whose keys and paths were formed in a given way."""
    storage = LocalStorage(root)
    made = create_table(
        storage,
        NewTable(name="t", schema=SCHEMA, version=6, **spec),
        clock=ManualClock(),
        random=SeededRandom(1),
    )
    if rows is not None:
        told = {f.split(":")[0]: f.split(":")[1] for f in spec["partition_fields"] if ":" in f}
        kinds = {name: PartitionKind(kind) for name, kind in told.items()}
        _write(root, rows, KeySpec.from_properties(made, partition_kinds=kinds), way)
    return load_snapshot(storage, clock=ManualClock())


def _write(root: Path, rows: pa.RecordBatch, spec: KeySpec, way: dict[str, Any]) -> None:
    spec = replace(spec, **way)
    keys, paths = record_keys(rows, spec), partition_paths(rows, spec)
    stats: dict[str, list[dict[str, Any]]] = {}
    for number, path in enumerate(dict.fromkeys(paths.to_pylist())):
        name = f"{number:08d}-0000-0000-0000-000000000000-0_0-0-0_{INSTANT}.parquet"
        kept = pa.array([p == path for p in paths.to_pylist()])
        meta = {
            META_COLUMNS[0]: pa.array([INSTANT] * len(rows)),
            META_COLUMNS[1]: pa.array([f"{INSTANT}_0_{i}" for i in range(len(rows))]),
            META_COLUMNS[2]: keys,
            META_COLUMNS[3]: paths,
            META_COLUMNS[4]: pa.array([name] * len(rows)),
        }
        table = pa.table({**meta, **dict(zip(rows.schema.names, rows.columns, strict=True))})
        (root / path).mkdir(parents=True, exist_ok=True)
        (root / path / PARTITION_METADATA_FILE).write_text(f"commitTime={INSTANT}\n")
        pq.write_table(table.filter(kept), root / path / name)
        stats[path] = [{"fileId": name.split("_")[0], "path": f"{path}/{name}", "numWrites": 1}]
    schema = to_json(NewTable(name="t", schema=SCHEMA).avro_schema())
    commit = {
        "partitionToWriteStats": stats,
        "compacted": False,
        "extraMetadata": {"schema": schema},
        "operationType": "INSERT",
    }
    (root / ".hoodie" / f"{INSTANT}.commit").write_text(json.dumps(commit))


# ---- real tables -------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", shared_tables(), ids=lambda t: t.id)
def test_keys_and_paths_of_real_tables_are_formed_as_they_are_stored(
    shared: Any, tmp_path: Path
) -> None:
    if shared.refused or shared.version == 9:
        pytest.skip("not a table that is written here")
    snapshot = load_snapshot(LocalStorage(unpack(shared, tmp_path)), clock=ManualClock())
    spec = detect_keys(snapshot)
    first = (snapshot.properties.record_key_fields or ("",))[0]
    for path in sorted(Path(snapshot.storage.uri.removeprefix("file://")).rglob("[!.]*.parquet")):
        if ".hoodie" in path.parts or not snapshot.properties.populate_meta_fields:
            continue
        batch = pq.read_table(path).combine_chunks().to_batches()[0]
        if snapshot.properties.record_key_fields:
            stored = batch.column(META_COLUMNS[2])
            assert record_keys(batch, spec) == stored
            if len(snapshot.properties.record_key_fields) == 1:
                assert spec.names_single_key == stored[0].as_py().startswith(f"{first}:")
        if all(f.kind is not PartitionKind.UNKNOWN for f in spec.partition_fields):
            assert partition_paths(batch, spec) == batch.column(META_COLUMNS[3])


# ---- made-up tables ----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True])
def test_a_complex_key_of_one_field_is_told_from_rows(named: bool, tmp_path: Path) -> None:
    choices = {"key_fields": ("id",), "partition_fields": ("region",), "key_generator": "COMPLEX"}
    snapshot = _table(tmp_path, _rows(n=[1, 2]), {"names_single_key": named}, **choices)
    assert detect_keys(snapshot).names_single_key is named
    assert detect_keys(snapshot, RowOptions(complex_keys_bare=not named)).names_single_key is named
    with pytest.raises(ConfigError, match="cannot be formed") as caught:
        detect_keys(snapshot, RowOptions(complex_keys_bare=named))
    assert "complex_keys_bare" in caught.value.hint


@pytest.mark.parametrize("path", list(TextPath))
def test_timestamps_in_keys_are_told_from_rows(path: TextPath, tmp_path: Path) -> None:
    choices = {"key_fields": ("at",), "partition_fields": ("region",)}
    snapshot = _table(tmp_path, _rows(n=[1, 2]), {"text_path": path}, **choices)
    assert detect_keys(snapshot).text_path is path


def test_texts_of_another_zone_need_the_zone(tmp_path: Path) -> None:
    choices = {"key_fields": ("at",), "partition_fields": ("region",)}
    way = {"text_path": TextPath.ROW, "zone": "Asia/Tokyo"}
    snapshot = _table(tmp_path, _rows(n=[1, 2]), way, **choices)
    with pytest.raises(ConfigError, match="cannot be formed") as caught:
        detect_keys(snapshot)
    assert "key_zone" in caught.value.hint
    assert detect_keys(snapshot, RowOptions(key_zone="Asia/Tokyo")).text_path is TextPath.ROW


@pytest.mark.parametrize(
    "way",
    [{}, {"text_path": TextPath.ROW}, {"sql_timestamps": True}],
    ids=["number", "text", "sql"],
)
def test_folders_of_timestamps_are_told_from_paths(way: dict[str, Any], tmp_path: Path) -> None:
    choices = {"key_fields": ("id",), "partition_fields": ("at",)}
    snapshot = _table(tmp_path, _rows(n=[1, 2]), way, **choices)
    spec = detect_keys(snapshot)
    assert spec.sql_timestamps is way.get("sql_timestamps", False)
    assert spec.text_path is way.get("text_path", TextPath.AVRO)


def test_rows_that_do_not_tell_are_not_guessed_at(tmp_path: Path) -> None:
    choices = {"key_fields": ("id",), "partition_fields": ("at",)}
    snapshot = _table(tmp_path, _rows(at=[None, None]), {}, **choices)
    with pytest.raises(ConfigError, match="2 rows of the table do not tell") as caught:
        detect_keys(snapshot)
    assert "sql_timestamps" in caught.value.hint
    told = RowOptions(sql_timestamps=True)
    assert detect_keys(snapshot, told).sql_timestamps


def test_types_of_custom_partitions_are_told_from_paths(tmp_path: Path) -> None:
    choices = {
        "key_fields": ("id",),
        "partition_fields": ("region:SIMPLE", "day:TIMESTAMP"),
        "time_settings": {**DAY, "output.dateformat": "yyyyMMdd"},
    }
    snapshot = _table(tmp_path / "rows", _rows(n=[1, 2]), {}, **choices)
    kinds = [f.kind for f in detect_keys(snapshot).partition_fields]
    assert kinds == [PartitionKind.SIMPLE, PartitionKind.TIMESTAMP]
    empty = _table(tmp_path / "empty", None, {}, **choices)
    unknown = detect_keys(empty)
    assert {f.kind for f in unknown.partition_fields} == {PartitionKind.UNKNOWN}
    with pytest.raises(ConfigError, match="Nothing says whether"):
        partition_paths(_rows(n=[1]), unknown)
    told = RowOptions(partition_types={"region": "SIMPLE", "day": "TIMESTAMP"})
    paths = partition_paths(_rows(n=[1]), detect_keys(empty, told))
    assert paths.to_pylist() == ["north/20240131"]


def test_a_table_without_rows_takes_what_all_its_releases_write(tmp_path: Path) -> None:
    choices = {"key_fields": ("id",), "partition_fields": ("at",), "key_generator": "COMPLEX"}
    snapshot = _table(tmp_path, None, {}, **choices)
    spec = detect_keys(snapshot)
    assert not spec.names_single_key
    assert spec.text_path is TextPath.AVRO
    assert not spec.sql_timestamps
    told = RowOptions(complex_keys_bare=False, consistent_timestamps=True)
    assert detect_keys(snapshot, told).names_single_key
    assert detect_keys(snapshot, told).text_path is TextPath.ROW


# ---- rows to be written ------------------------------------------------------------------------


def _spec(*fields: str) -> KeySpec:
    return KeySpec(fields, (PartitionField("region"),), KeyGeneratorType.SIMPLE)


def test_rows_get_their_key_and_path_in_front() -> None:
    rows = RowKeys(_spec("id"), instant=INSTANT).add_to(_rows(n=[1, 2]))
    assert rows.schema.names[:3] == ["_hoodie_record_key", "_hoodie_partition_path", "id"]
    assert rows.column(0).to_pylist() == ["k0", "k1"]
    virtual = RowKeys(_spec("id"), instant=INSTANT, populate_meta=False).add_to(_rows(n=[1]))
    assert virtual.schema.names[:2] == ["_hoodie_partition_path", "id"]


def test_keys_are_generated_where_there_are_no_key_fields() -> None:
    keys = RowKeys(_spec(), instant=INSTANT, task=3)
    made = [k for _ in range(2) for k in keys.add_to(_rows(n=[1, 2])).column(0).to_pylist()]
    assert made == [f"{INSTANT}_3_{i}" for i in range(4)]
    with pytest.raises(ConfigError, match="must store the keys"):
        RowKeys(_spec(), instant=INSTANT, populate_meta=False)


def test_rows_without_a_key_are_shown() -> None:
    rows = _rows(id=["a", None, "", None, None], region=["x" * 99] * 5)
    with pytest.raises(InputError, match="null or empty in 4 of 5 rows") as caught:
        RowKeys(_spec("id"), instant=INSTANT).add_to(rows)
    assert caught.value.context["first_row"] == 1
    sample = str(caught.value.context["sample"])
    assert sample.count("[") == 3
    assert "n=1" in sample and "n=2" in sample and "x" * 39 + "…" in sample


def test_keys_that_another_engine_formed_are_looked_at_too() -> None:
    rows = RowKeys(_spec("id"), instant=INSTANT).add_to(_rows(n=[7, 8]))
    refuse_rows_without_key(rows, _spec("id"))
    broken = rows.set_column(0, "_hoodie_record_key", pa.array([None, "k"], pa.string()))
    with pytest.raises(InputError, match="1 of 2 rows") as caught:
        refuse_rows_without_key(broken, _spec("id"))
    assert "n=7" in str(caught.value.context["sample"])
