"""The metadata tables of real tables say what their folders and files say."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewright.errors import FormatError, MetadataTableError
from lakewright.format.partitions import ListedFile, list_table
from lakewright.format.properties import load_properties
from lakewright.format.table_schema import resolve_table_schema
from lakewright.format.timeline import load_timeline
from lakewright.metadata.table import MetadataTable
from lakewright.runtime.clock import SystemClock
from lakewright.storage.local import LocalStorage
from tests.fixtures import SHARED_ABSENT, SharedTable, expected_rows, shared_tables, unpack

TABLES = [t for t in shared_tables() if not t.refused]
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)


class Opened:
    """A table and its metadata table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.storage = LocalStorage(str(path))
        self.properties = load_properties(self.storage, clock=SystemClock())
        self.timeline = load_timeline(self.storage, self.properties)
        self.metadata = MetadataTable.open(self.storage, self.properties, self.timeline)

    @property
    def schema(self) -> pa.Schema:
        return resolve_table_schema(self.storage, self.properties, self.timeline).arrow


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Opened] = {}

    def get(table: SharedTable) -> Opened:
        if table.id not in made:
            made[table.id] = Opened(unpack(table, tmp_path_factory.mktemp("table")))
        return made[table.id]

    return get


def table_named(zip_name: str) -> SharedTable:
    return next(t for t in TABLES if t.zip == zip_name)


def sizes(listing: Mapping[str, Iterable[ListedFile]]) -> dict[tuple[str, str], int]:
    return {(p, file.name): file.size for p, files in listing.items() for file in files}


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.id)
def test_the_listing_equals_the_folders(table: SharedTable, unpacked: Any) -> None:
    opened = unpacked(table)
    listed = "files" in opened.properties.metadata_partitions
    assert (opened.metadata is not None) == listed
    if opened.metadata is None:
        return
    listing = list_table(opened.storage)
    assert opened.metadata.partitions() == sorted(listing)
    assert sizes(opened.metadata.files(sorted(listing))) == sizes(listing)
    assert opened.metadata.file_table(sorted(listing)).num_rows == sum(map(len, listing.values()))


def footer(path: Path, column: str) -> dict[str, Any] | None:
    metadata = pq.read_metadata(path)
    chunks = [
        chunk
        for g in range(metadata.num_row_groups)
        for chunk in (metadata.row_group(g).column(c) for c in range(metadata.num_columns))
        if chunk.path_in_schema == column
    ]
    if not chunks:
        return None
    told = [c.statistics for c in chunks if c.statistics is not None]
    ranged = [s for s in told if s.has_min_max]
    return {
        "value_count": sum(c.num_values for c in chunks),
        "null_count": sum(
            c.num_values if c.statistics is None else c.statistics.null_count for c in chunks
        ),
        "total_size": sum(c.total_compressed_size for c in chunks),
        "total_uncompressed_size": sum(c.total_uncompressed_size for c in chunks),
        "min": min((s.min for s in ranged), default=None),
        "max": max((s.max for s in ranged), default=None),
    }


def comparable(bound: Any, kind: pa.DataType) -> Any:
    """A footer's bound in the type of the column; local timestamps come as plain numbers."""
    if pa.types.is_timestamp(kind):
        number = pa.scalar(bound, pa.int64()) if isinstance(bound, int) else pa.scalar(bound)
        return number.cast(kind).as_py()
    return bound


WITH_STATISTICS = [
    "mor_v6_colstats.zip",
    "mor_v6_comprehensive_types.zip",
    "cow_v8_logical_types.zip",
    "mor_v8_trips_8i3u1d.zip",
    "cow_v9_simple_meta.zip",
    "mor_v9_complex_meta.zip",
]


@pytest.mark.parametrize("zip_name", WITH_STATISTICS)
def test_statistics_equal_the_footers_of_base_files(zip_name: str, unpacked: Any) -> None:
    opened = unpacked(table_named(zip_name))
    names = opened.metadata.statistics_columns()
    schema = pa.schema([f for f in opened.schema if f.name in names])
    compared = bounds = 0
    for name, statistics in opened.metadata.column_stats(schema).items():
        kind = schema.field(name).type
        for row in statistics.to_pylist():
            if not row["file_name"].endswith(".parquet"):
                continue
            found = footer(opened.path / row["partition"] / row["file_name"], name)
            if found is None:
                continue
            for count in ("value_count", "null_count", "total_size", "total_uncompressed_size"):
                assert row[count] == found[count], (name, row)
            compared += 1
            if row["min"] is not None:
                assert row["min"] == comparable(found["min"], kind), (name, row)
                assert row["max"] == comparable(found["max"], kind), (name, row)
                bounds += 1
    assert compared > 20 and bounds > 0.7 * compared


@pytest.mark.parametrize("zip_name", WITH_STATISTICS)
def test_ranges_hold_the_values_of_the_current_rows(zip_name: str, unpacked: Any) -> None:
    opened = unpacked(table_named(zip_name))
    schema = opened.schema
    files, ranges = opened.metadata.pruning_ranges(
        ["_hoodie_record_key"], opened.metadata.partitions(), schema
    )
    bounds = ranges["_hoodie_record_key"]
    known = list(zip(files, bounds.min.to_pylist(), bounds.max.to_pylist(), strict=True))
    for row in expected_rows(table_named(zip_name)):
        place, file_id = row["_hoodie_partition_path"], row["_hoodie_file_name"].partition("_")[0]
        assert any(
            low is not None and low <= row["_hoodie_record_key"] <= high
            for (partition, name), low, high in known
            if partition == place and name.lstrip(".").startswith(file_id)
        )


@pytest.mark.parametrize("zip_name", ["mor_v8_trips_8i3u1d.zip", "cow_v9_simple_meta.zip"])
def test_statistics_of_partitions_cover_their_files(zip_name: str, unpacked: Any) -> None:
    opened = unpacked(table_named(zip_name))
    schema = pa.schema([opened.schema.field("_hoodie_record_key")])
    partitions = opened.metadata.partition_stats(schema)["_hoodie_record_key"].to_pylist()
    assert {p["partition"] for p in partitions} <= set(opened.metadata.partitions())
    rows = expected_rows(table_named(zip_name))
    for told in partitions:
        assert told["file_name"] == told["partition"]
        keys = [
            r["_hoodie_record_key"]
            for r in rows
            if r["_hoodie_partition_path"] == told["partition"]
        ]
        assert all(told["min"] <= k <= told["max"] for k in keys)
    one = partitions[0]["partition"]
    only = opened.metadata.partition_stats(schema, [one])["_hoodie_record_key"]
    assert only["partition"].to_pylist() == [one]


WITH_RECORD_INDEX = [t for t in TABLES if t.rows is not None]


@pytest.mark.parametrize("table", WITH_RECORD_INDEX, ids=lambda t: t.id)
def test_the_record_index_points_to_file_groups_that_hold_the_key(
    table: SharedTable, unpacked: Any
) -> None:
    opened = unpacked(table)
    if "record_index" not in opened.properties.metadata_partitions:
        return
    rows = expected_rows(table)
    homes: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        file_id = row["_hoodie_file_name"].partition("_")[0]
        homes.setdefault(row["_hoodie_record_key"], set()).add(
            (row["_hoodie_partition_path"], file_id)
        )
    keys = [*homes, "no such key"]
    found = opened.metadata.record_index(pa.array(keys)).to_pylist()
    assert found[-1]["file_id"] is None
    for location in found[:-1]:
        assert (location["partition"], location["file_id"]) in homes[location["key"]]


@pytest.mark.parametrize(
    ("zip_name", "index", "column"),
    [
        ("mor_v8_trips_8i3u1d.zip", "secondary_index_rider_idx", "rider"),
        ("cow_v9_simple_meta.zip", "secondary_index_merchant_idx", "merchant_name"),
        ("mor_v9_complex_meta.zip", "secondary_index_merchant_idx", "merchant_name"),
    ],
)
def test_a_secondary_index_knows_the_keys_of_every_value(
    zip_name: str, index: str, column: str, unpacked: Any
) -> None:
    opened = unpacked(table_named(zip_name))
    rows = expected_rows(table_named(zip_name))
    found = opened.metadata.secondary_index(index, [r[column] for r in rows])
    pairs = set(zip(found["value"].to_pylist(), found["key"].to_pylist(), strict=True))
    assert pairs == {(r[column], r["_hoodie_record_key"]) for r in rows}


def test_a_secondary_index_of_dates_is_asked_by_days(unpacked: Any) -> None:
    opened = unpacked(table_named("cow_v9_simple_meta.zip"))
    found = opened.metadata.secondary_index("secondary_index_txn_date_idx", ["19737"])
    assert sorted(found["key"].to_pylist()) == ["TXN-001", "TXN-003"]


def test_an_index_that_is_not_there_is_named(unpacked: Any) -> None:
    opened = unpacked(table_named("mor_v6_services.zip"))
    with pytest.raises(MetadataTableError, match="no index record_index"):
        opened.metadata.record_index(pa.array(["a"]))
    assert "c" not in opened.metadata.statistics_columns()


@pytest.fixture
def copied(unpacked: Any, tmp_path: Path) -> Path:
    source = unpacked(table_named("mor_v8_trips_8i3u1d.zip")).path
    return Path(shutil.copytree(source, tmp_path / "copy"))


OWN = ".hoodie/metadata/.hoodie/timeline"


def test_a_metadata_table_that_was_left_behind_is_not_trusted(copied: Path) -> None:
    newest = max((copied / ".hoodie/timeline").glob("*.deltacommit")).name[:17]
    for file in (copied / OWN).glob(f"{newest}*"):
        file.unlink()
    with pytest.raises(MetadataTableError, match=f"stale: deltacommit {newest}"):
        Opened(copied)


@pytest.mark.parametrize("damage", ["no folder", "no properties", "another version", "no timeline"])
def test_a_metadata_table_that_cannot_be_opened_is_an_error(copied: Path, damage: str) -> None:
    folder = copied / ".hoodie/metadata"
    properties = folder / ".hoodie/hoodie.properties"
    if damage == "no folder":
        shutil.rmtree(folder)
    elif damage == "no properties":
        properties.unlink()
    elif damage == "no timeline":
        shutil.rmtree(copied / OWN)
    else:
        properties.write_text(properties.read_text().replace("version=8", "version=9"))
    with pytest.raises(MetadataTableError):
        Opened(copied)


def test_files_of_an_instant_that_did_not_complete_are_not_listed(copied: Path) -> None:
    before = Opened(copied)
    assert before.metadata is not None
    newest = max(
        (i for i in before.timeline.completed() if i.action == "deltacommit"),
        key=lambda i: i.requested_time,
    )
    (copied / ".hoodie/timeline" / newest.file_name).unlink()
    after = Opened(copied)
    assert after.metadata is not None
    listing = list_table(after.storage)
    names = {f.name for files in listing.values() for f in files if newest.requested_time in f.name}
    told = after.metadata.files(after.metadata.partitions())
    assert names
    others = {k: size for k, size in sizes(listing).items() if k[1] not in names}
    assert sizes(told) == others


def test_a_stray_file_group_is_noticed(copied: Path) -> None:
    folder = copied / ".hoodie/metadata/files"
    (log,) = folder.glob("*0-0-0")
    (folder / log.name.replace("files-0000", "files-0002")).write_bytes(log.read_bytes())
    opened = Opened(copied)
    assert opened.metadata is not None
    with pytest.raises(MetadataTableError, match="numbered"):
        opened.metadata.partitions()


def test_damaged_files_give_an_error_or_a_listing_and_nothing_else(copied: Path) -> None:
    rng = random.Random(3)
    folder = copied / ".hoodie/metadata/files"
    originals = {p: p.read_bytes() for p in sorted(folder.iterdir()) if p.stat().st_size > 200}
    failures = 0
    for _ in range(60):
        path, data = rng.choice(list(originals.items()))
        mutated = bytearray(data)
        mutated[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(mutated))
        try:
            opened = Opened(copied)
            assert opened.metadata is not None
            opened.metadata.files(opened.metadata.partitions())
        except FormatError:
            failures += 1
        path.write_bytes(data)
    assert failures
