"""File slices and log blocks of real tables, against an independent reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.file_slices import FileSlice, FileSystemView
from lakewright.format.log_block import read_blocks
from lakewright.format.log_scan import SkipReason, select_blocks
from lakewright.format.partitions import list_table, partition_depth, read_partition_metadata
from lakewright.format.properties import load_properties
from lakewright.format.property_text import parse_properties
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.format.view_inputs import block_visibility, load_view
from lakewright.runtime.clock import SystemClock
from lakewright.storage.local import LocalStorage
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack

TABLES = [t for t in shared_tables() if not t.refused]
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)

UNREADABLE = {
    "mor_v9_complex_keygen": "its HFile reader does not know this file",
    "mor_v8_custom_keygen": "it takes the partition type for a part of the name",
    "mor_v6_logical_types": "its Avro types are incomplete",
    "mor_v8_logical_types_parquetlog": "its Avro types are incomplete",
    "cow_v8_logical_types": "its Avro types are incomplete",
}
"""Tables that the independent reader cannot open, by the name of the archive."""

Facts = tuple[str, str, str, str, tuple[str, ...]]


class Opened(NamedTuple):
    shared: SharedTable
    root: Path
    storage: LocalStorage
    properties: TableProperties
    timeline: Timeline
    view: FileSystemView


def open_table(shared: SharedTable, folder: Path) -> Opened:
    root = unpack(shared, folder)
    storage = LocalStorage(root)
    properties = load_properties(storage, clock=SystemClock())
    timeline = load_timeline(storage, properties)
    view = load_view(storage, properties, timeline, listing=list_table(storage))
    return Opened(shared, root, storage, properties, timeline, view)


@pytest.fixture(scope="module", params=TABLES, ids=lambda t: t.id)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return open_table(request.param, tmp_path_factory.mktemp("table"))


def facts(slice_: FileSlice) -> Facts:
    name = slice_.base.name if slice_.base else ""
    logs = tuple(log.name for log in slice_.logs)
    return slice_.group.partition, slice_.group.file_id, slice_.base_instant, name, logs


def oracle_facts(slice_: Any) -> Facts:
    return (
        slice_.partition_path,
        slice_.file_id,
        slice_.creation_instant_time,
        slice_.base_file_name or "",
        tuple(slice_.log_file_names),
    )


def log_instant(name: str) -> str:
    parsed = parse_data_file(name)
    assert isinstance(parsed, LogFileName)
    return parsed.instant


def test_every_file_has_its_slice_and_every_partition_its_metadata(table: Opened) -> None:
    _, _, storage, properties, timeline, view = table
    assert view.orphans() == []
    for partition in list_table(storage):
        metadata = read_partition_metadata(storage, partition)
        assert metadata is not None and metadata.depth == partition_depth(partition)
    visible = block_visibility(properties, timeline)
    for slice_ in view.latest_merged_slices():
        blocks = [b for f in slice_.logs for b in read_blocks(storage.read(f.path), path=f.path)]
        found = select_blocks(blocks, is_visible=visible, latest=None)
        instants = [b.instant for b in found.blocks]
        assert instants == sorted(instants, key=str) and not found.corrupt
        assert all(timeline.contains_completed_or_archived(str(i)) for i in instants)


def test_slices_are_those_of_an_independent_reader(table: Opened) -> None:
    shared, root, _, properties, timeline, view = table
    reason = UNREADABLE.get(Path(shared.zip).stem)
    if reason:
        pytest.skip(f"the independent reader cannot open it: {reason}")
    hudi = pytest.importorskip("hudi")
    listing_only = hudi.HudiTableBuilder.from_base_uri(str(root)).with_hudi_option(
        "hoodie.metadata.enable", "false"
    )
    oracle = listing_only.build()
    expected = sorted(map(oracle_facts, oracle.get_file_slices()))
    assert sorted(map(facts, view.latest_merged_slices())) == expected
    for instant in timeline.commits().completed():
        as_of = instant.requested_time
        options = hudi.HudiReadOptions().with_as_of_timestamp(as_of)
        earlier = [oracle_facts(s) for s in oracle.get_file_slices(options)]
        if properties.version.log_name_has_delta_instant:
            # It leaves later logs in the slice and filters their blocks.
            earlier = [
                (*f[:4], tuple(log for log in f[4] if log_instant(log) <= as_of)) for f in earlier
            ]
        assert sorted(map(facts, view.latest_merged_slices(as_of))) == sorted(earlier)


def test_metadata_tables_are_sliced_by_the_same_rules(table: Opened) -> None:
    root = table.root / ".hoodie" / "metadata"
    if not root.exists():
        assert not table.properties.metadata_partitions
        return
    storage = LocalStorage(root)
    properties = TableProperties(parse_properties(storage.read(".hoodie/hoodie.properties")))
    timeline = load_timeline(storage, properties)
    listing = list_table(storage)
    view = load_view(storage, properties, timeline, listing=listing)
    assert view.orphans() == []
    merged = view.latest_merged_slices()
    assert {s.group.partition for s in merged} == set(listing)
    newest = {s.group: s.base_instant for s in view.all_slices()[::-1]}
    assert {s.group: s.base_instant for s in merged} == newest


def test_blocks_of_a_rolled_back_instant_are_left_out(tmp_path: Path) -> None:
    (shared,) = (t for t in TABLES if t.zip == "mor_v6_parquetlog_rollback.zip")
    _, _, storage, properties, timeline, view = open_table(shared, tmp_path)
    (slice_,) = view.latest_merged_slices()
    assert len(slice_.logs) == 3
    blocks = [b for f in slice_.logs for b in read_blocks(storage.read(f.path), path=f.path)]
    for visible, reason in (
        (block_visibility(properties, timeline), SkipReason.NOT_COMPLETED),
        (None, SkipReason.ROLLED_BACK),
    ):
        found = select_blocks(blocks, is_visible=visible, latest=None)
        assert [b.instant for b in found.blocks] == ["20250126060846931"]
        assert found.skipped == {reason: 1}


def test_a_base_file_of_an_archived_commit_is_live(tmp_path: Path) -> None:
    (shared,) = (t for t in TABLES if t.table == "hudi-v8-table-mor")
    _, _, _, _, timeline, view = open_table(shared, tmp_path)
    archived = [b for b in view.latest_base_files() if b.instant == "20250922133030689"]
    assert len(archived) == 1 and archived[0].file_id.startswith("9ed36c30-")
    assert timeline.starts_at == "20250922133033589"
