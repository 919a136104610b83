"""What a metadata table begins with, and what changes of files become in it."""

from __future__ import annotations

import pytest

from lakewright.format import property_keys as keys
from lakewright.format.instant import Instant, State
from lakewright.format.partitions import ListedFile
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.metadata.creation import (
    committed_files,
    first_instant,
    is_beginning,
    metadata_properties,
)
from lakewright.metadata.file_changes import FileChanges, files_records, written_files
from lakewright.metadata.files import folded_lists
from lakewright.metadata.record_schema import META_FIELDS, commit_schema, written_schema
from lakewright.metadata.records import Part

T1, T2, T3 = (f"2024010100000{i}000" for i in (1, 2, 3))
BASE = "7d1d0c1e-0000-4000-8000-000000000000-0_0-1-0_{}.parquet"


def table(name: str, version: int) -> TableProperties:
    layout = TableVersion.of(version).layout_version
    values = {keys.NAME: name, keys.VERSION: str(version), keys.LAYOUT_VERSION: str(layout)}
    return TableProperties(values)


def timeline(*instants: tuple[str, State]) -> Timeline:
    return Timeline.of(
        Instant(time, "commit", state, time if state is State.COMPLETED else None, f"{time}.commit")
        for time, state in instants
    )


@pytest.mark.parametrize(
    ("name", "version", "checksum"),
    [("hudi-v6-table-mor_table", 6, "2553568492"), ("v8_trips_8i3u1d", 8, "380169000")],
)
def test_the_properties_are_those_of_hudi(name: str, version: int, checksum: str) -> None:
    made = metadata_properties(table(name, version))
    assert made.values[keys.CHECKSUM] == checksum
    assert made.name == f"{name}_metadata" and made.base_file_format == "HFILE"
    assert made.version == TableVersion.of(version) and not made.populate_meta_fields


def test_beginnings_have_the_times_that_hudi_gives_them() -> None:
    done = timeline((T1, State.COMPLETED), (T2, State.INFLIGHT))
    six, eight = table("t", 6), table("t", 8)
    assert first_instant(six, Timeline.of([])) == "00000000000000010"
    assert first_instant(six, done) == f"{T1}010"
    assert first_instant(six, done, [f"{T1}010"]) == f"{T1}011"
    assert first_instant(eight, done) == "00000000000000000"
    assert first_instant(eight, done, ["00000000000000000"]) == "00000000000000001"
    assert first_instant(eight, done, ["00000000000000003", T1]) == "00000000000000004"
    assert first_instant(six, done, [f"{T1}001"]) == f"{T1}010"
    assert all(map(is_beginning, (f"{T1}010", "00000000000000001")))
    assert not any(map(is_beginning, (T1, f"{T1}001", f"{T1}006")))


def test_files_of_pending_and_later_writes_are_left_out() -> None:
    done = timeline((T1, State.COMPLETED), (T2, State.INFLIGHT))
    files = [ListedFile(BASE.format(t), 7, 0) for t in (T1, T2, T3)]
    found = committed_files(done, {"a": files, "empty": []})
    assert found == FileChanges({"a": {BASE.format(T1): 7}}, partitions=("a",))


@pytest.mark.parametrize("version", [6, 8])
def test_changes_become_lists_that_say_the_same(version: int) -> None:
    stats = {
        "a": [
            WriteStat(path="a/x", file_size_in_bytes=3, cdc_stats={"a/x.cdc": 2}),
            WriteStat(path="a/x", file_size_in_bytes=5),
        ],
        "": [WriteStat(path="y", file_size_in_bytes=1)],
        "none": [],
    }
    changes = written_files(CommitMetadata(partition_to_write_stats=stats))
    known = TableVersion.of(version)
    records = files_records(changes, version=known)
    gone = files_records(FileChanges(removed={"a": ["x"]}), version=known)
    schema = written_schema(known)
    parts = [Part(r.keys, r.values, schema, "f") for r in (records, gone)]
    folded = folded_lists(parts)
    names = iter(folded.names.to_pylist())
    told = {
        key.decode(): {next(names) for _ in range(count)}
        for key, count in zip(folded.keys.to_pylist(), folded.counts.tolist(), strict=True)
    }
    assert told == {"__all_partitions__": {".", "a"}, ".": {"y"}, "a": {"x.cdc"}}


def test_a_commit_tells_its_columns_without_meta_columns() -> None:
    for version in (6, 8):
        known = TableVersion.of(version)
        assert META_FIELDS[0] in written_schema(known)
        assert not any(name in commit_schema(known) for name in META_FIELDS)
