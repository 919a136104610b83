"""The archived timeline of versions 8 and 9: manifests, ranges, duplicates, real histories."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import CorruptFileError, NotFoundError
from lakewright.format import property_keys as keys
from lakewright.format.archived_timeline import archived_instants, archived_times
from lakewright.format.history import (
    HISTORY_SCHEMA,
    HistoryFile,
    encode_history_file,
    format_manifest,
    history_files,
    read_history,
)
from lakewright.format.records import (
    CommitMetadata,
    CompactionPlan,
    RequestedReplaceMetadata,
)
from lakewright.format.records.definitions import schema_json
from lakewright.format.table_properties import TableProperties
from lakewright.format.version import TableVersion
from lakewright.storage.memory import MemoryStorage
from tests.fixtures import SHARED_ABSENT, shared_tables
from tests.format.timeline_tables import readable_tables

needs_shared = pytest.mark.skipif(not shared_tables(), reason=SHARED_ABSENT)
EIGHT = TableVersion.of(8)
PROPERTIES = TableProperties({keys.NAME: "t", keys.VERSION: "8", keys.LAYOUT_VERSION: "2"})
FOLDER = ".hoodie/timeline/history"
NO_TEXT = pa.array([None], pa.string())


def rows(*times: str, action: str = "commit", done: str = "9") -> pa.Table:
    n = len(times)
    columns = [list(times), [f"{t}{done}" for t in times], [action] * n, [None] * n, [None] * n]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, HISTORY_SCHEMA, strict=True)],
        schema=HISTORY_SCHEMA,
    )


def put(storage: MemoryStorage, table: pa.Table, *, level: int = 0) -> HistoryFile:
    times = table.column("requested_time").to_pylist()
    name = f"{min(times)}_{max(times)}_{level}.parquet"
    data = encode_history_file(table)
    storage.replace(f"{FOLDER}/{name}", data)
    return HistoryFile.of(name, len(data))


def publish(storage: MemoryStorage, version: int, *files: HistoryFile) -> None:
    storage.replace(f"{FOLDER}/manifest_{version}", format_manifest(files))
    storage.replace(f"{FOLDER}/_version_", str(version).encode())


def times(storage: MemoryStorage, **bounds: str) -> list[str]:
    return archived_times(storage, PROPERTIES, **bounds).column("requested_time").to_pylist()


# ---- manifests ---------------------------------------------------------------------------------


def test_a_manifest_has_the_text_of_hudi() -> None:
    files = [
        HistoryFile.of("20250922133010859_20250922133023329_0.parquet", 3126),
        HistoryFile.of("20250922133025778_20250922133030689_0.parquet", 4671),
    ]
    assert format_manifest(files) == (
        b'{\n  "files" : [ {\n    "fileName" : "20250922133010859_20250922133023329_0.parquet",\n'
        b'    "fileLen" : 3126\n  }, {\n'
        b'    "fileName" : "20250922133025778_20250922133030689_0.parquet",\n'
        b'    "fileLen" : 4671\n  } ]\n}'
    )


def test_only_files_of_the_current_manifest_belong_to_the_history() -> None:
    storage = MemoryStorage()
    old, new = put(storage, rows("1")), put(storage, rows("2"))
    put(storage, rows("3"))
    publish(storage, 1, old)
    publish(storage, 2, old, new)
    assert history_files(storage, PROPERTIES) == (old, new)
    storage.replace(f"{FOLDER}/_version_", b"1")
    assert times(storage) == ["1"]


@pytest.mark.parametrize("version_file", [None, b"", b"new", b"7", b"\xff"])
def test_without_a_usable_version_the_highest_manifest_counts(version_file: bytes | None) -> None:
    storage = MemoryStorage()
    files = [put(storage, rows(str(i))) for i in range(1, 4)]
    for version in (2, 9, 10):
        publish(storage, version, *files[: version % 4])
    storage.replace(f"{FOLDER}/manifest_11x", b"{}")
    storage.delete(f"{FOLDER}/_version_")
    if version_file is not None:
        storage.replace(f"{FOLDER}/_version_", version_file)
    assert times(storage) == ["1", "2"]


def test_no_history_is_an_empty_one() -> None:
    assert archived_times(MemoryStorage(), PROPERTIES).schema.names == [
        "requested_time",
        "completion_time",
        "action",
    ]
    storage = MemoryStorage()
    storage.replace(f"{FOLDER}/manifest_1", b"")
    storage.replace(f"{FOLDER}/_version_", b"1")
    assert times(storage) == []
    assert list(archived_instants(storage, PROPERTIES)) == []


@pytest.mark.parametrize(
    "text",
    [b"{", b"[]", b'{"files":1}', b'{"files":[1]}', b'{"files":[{"fileName":"x","fileLen":1}]}'],
)
def test_a_damaged_manifest_is_corrupt_with_its_path(text: bytes) -> None:
    storage = MemoryStorage()
    storage.replace(f"{FOLDER}/manifest_1", text)
    storage.replace(f"{FOLDER}/_version_", b"1")
    with pytest.raises(CorruptFileError) as caught:
        times(storage)
    assert caught.value.context["path"] == f"{FOLDER}/manifest_1"


# ---- rows --------------------------------------------------------------------------------------


def test_files_outside_the_range_are_not_opened() -> None:
    storage = MemoryStorage()
    files = [put(storage, rows(f"{i}1", f"{i}2", f"{i}3")) for i in range(1, 4)]
    publish(storage, 1, *files)
    for outside in (files[0], files[2]):
        storage.replace(f"{FOLDER}/{outside.name}", b"never read")
    assert times(storage, begin="20", end="22") == ["21", "22"]
    assert times(storage, begin="22", end="22") == ["22"]


def test_overlapping_files_come_sorted_and_the_first_of_equal_instants_wins() -> None:
    storage = MemoryStorage()
    first = put(storage, rows("1", "4", "6", done="-first"), level=1)
    second = put(storage, rows("2", "4", "5", done="-second"))
    publish(storage, 1, first, second)
    found = archived_times(storage, PROPERTIES).to_pydict()
    assert found["requested_time"] == ["1", "2", "4", "5", "6"]
    assert found["completion_time"][2] == "4-first"


def test_a_missing_completion_time_is_the_requested_time() -> None:
    storage = MemoryStorage()
    table = rows("1", "2").set_column(1, "completion_time", pa.array([None, "5"], pa.string()))
    publish(storage, 1, put(storage, table))
    assert archived_times(storage, PROPERTIES).column("completion_time").to_pylist() == ["1", "5"]


def test_only_asked_columns_are_read() -> None:
    storage = MemoryStorage()
    publish(storage, 1, put(storage, rows("1")))
    assert read_history(storage, PROPERTIES, columns=["action"]).to_pydict() == {
        "action": ["commit"]
    }


def test_a_history_that_is_compacted_under_the_reader_is_read_again() -> None:
    storage = MemoryStorage()
    old = put(storage, rows("1", "2"))
    publish(storage, 1, old)
    read = storage.read

    class Compacting:
        def __getattr__(self, name: str) -> object:
            return getattr(storage, name)

        def read(self, path: str) -> bytes:
            if path.endswith("_0.parquet"):
                publish(storage, 2, put(storage, rows("1", "2"), level=1))
                storage.delete(f"{FOLDER}/{old.name}")
                storage.delete(f"{FOLDER}/manifest_1")
            return read(path)

    found = archived_times(Compacting(), PROPERTIES)  # type: ignore[arg-type]
    assert found.column("requested_time").to_pylist() == ["1", "2"]


def test_a_file_that_stays_missing_is_corrupt() -> None:
    storage = MemoryStorage()
    publish(storage, 1, HistoryFile.of("1_2_0.parquet", 10))
    with pytest.raises(CorruptFileError, match="missing") as caught:
        times(storage)
    assert isinstance(caught.value.__cause__, NotFoundError)


@pytest.mark.parametrize(
    "damage",
    [b"", b"PAR1", encode_history_file(rows("1"))[:-20], encode_history_file(rows("1"))[20:]],
)
def test_a_damaged_file_is_corrupt_with_its_path(damage: bytes) -> None:
    storage = MemoryStorage()
    file = put(storage, rows("1"))
    publish(storage, 1, file)
    storage.replace(f"{FOLDER}/{file.name}", damage)
    with pytest.raises(CorruptFileError) as caught:
        times(storage)
    assert caught.value.context["path"] == f"{FOLDER}/{file.name}"


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"instantTime": ["1"], "completionTime": ["2"]}),
        pa.table({"instantTime": NO_TEXT, "completionTime": ["2"], "action": ["c"]}),
        pa.table({"instantTime": [1.5], "completionTime": ["2"], "action": [[1]]}),
    ],
)
def test_a_file_with_other_columns_is_corrupt(table: pa.Table) -> None:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    storage = MemoryStorage()
    storage.replace(f"{FOLDER}/1_1_0.parquet", sink.getvalue())
    publish(storage, 1, HistoryFile.of("1_1_0.parquet", len(sink.getvalue())))
    with pytest.raises(CorruptFileError):
        times(storage)


@given(st.lists(st.lists(st.integers(10, 60), min_size=1, unique=True), max_size=5), st.data())
@settings(max_examples=40, deadline=None)
def test_any_files_and_range_agree_with_a_dictionary(
    batches: list[list[int]], data: st.DataObject
) -> None:
    storage, files, model = MemoryStorage(), [], {}
    for level, batch in enumerate(batches):
        names = [str(t) for t in sorted(batch)]
        files.append(put(storage, rows(*names, done=f"-{level}"), level=level))
        for name in names:
            model.setdefault(name, f"{name}-{level}")
    publish(storage, 1, *files)
    begin = data.draw(st.none() | st.integers(10, 60).map(str))
    end = data.draw(st.none() | st.integers(10, 60).map(str))
    found = read_history(storage, PROPERTIES, begin=begin, end=end)
    expected = {
        t: model[t] for t in sorted(model) if (not begin or t >= begin) and (not end or t <= end)
    }
    assert found.column("requested_time").to_pylist() == list(expected)
    assert found.column("completion_time").to_pylist() == list(expected.values())


def test_large_files_are_read_from_an_open_file() -> None:
    count = 70_000
    storage = MemoryStorage()
    file = put(storage, rows(*(f"2025{i:013}" for i in range(count))))
    publish(storage, 1, HistoryFile(file.name, 2 << 20, file.first, file.last, 0))
    assert archived_times(storage, PROPERTIES).num_rows == count


def test_a_written_file_has_the_schema_and_footer_of_hudi() -> None:
    file = pq.ParquetFile(io.BytesIO(encode_history_file(rows("1", "2"))))
    assert str(file.schema).splitlines()[2:-1] == [
        "  optional binary field_id=-1 instantTime (String);",
        "  optional binary field_id=-1 completionTime (String);",
        "  optional binary field_id=-1 action (String);",
        "  optional binary field_id=-1 metadata;",
        "  optional binary field_id=-1 plan;",
        "  required int32 field_id=-1 version;",
    ]
    assert file.metadata.metadata == {
        b"parquet.avro.schema": schema_json("HoodieLSMTimelineInstant").encode(),
        b"writer.model.name": b"avro",
    }
    assert file.metadata.num_row_groups == 1
    assert file.metadata.row_group(0).column(0).compression == "GZIP"


# ---- records and real histories ----------------------------------------------------------------


def test_archived_instants_carry_typed_plan_and_metadata() -> None:
    storage = MemoryStorage()
    done = CommitMetadata(operation_type="COMPACT", compacted=True)
    plan = CompactionPlan(operations=[])
    table = rows("1", "2")
    table = table.set_column(3, "metadata", pa.array([done.write(EIGHT), b'{"compacted":true}']))
    table = table.set_column(4, "plan", pa.array([plan.write(EIGHT), None], pa.binary()))
    publish(storage, 1, put(storage, table))
    first, second = archived_instants(storage, PROPERTIES)
    assert first.metadata == done and first.plan == plan and first.action == "commit"
    assert isinstance(second.metadata, CommitMetadata) and second.metadata.compacted
    assert second.plan is None


@needs_shared
def test_real_histories_are_read_whole() -> None:
    seen = 0
    for table in readable_tables():
        if not table.properties.version.history_is_lsm:
            continue
        whole = list(archived_instants(table.storage, table.properties))
        found = archived_times(table.storage, table.properties)
        assert found.column("requested_time").to_pylist() == [i.requested_time for i in whole]
        for instant in whole:
            assert isinstance(instant.metadata, CommitMetadata)
            assert instant.completion_time > instant.requested_time
            if instant.metadata.operation_type == "COMPACT":
                assert isinstance(instant.plan, CompactionPlan)
            elif instant.metadata.operation_type == "CLUSTER":
                assert isinstance(instant.plan, RequestedReplaceMetadata)
            seen += 1
    assert seen == 22


@needs_shared
def test_rewriting_a_real_history_file_keeps_its_schema_and_rows() -> None:
    (table,) = [t for t in readable_tables() if t.name == "mor_v8_services/hudi-v8-table-mor"]
    whole = read_history(table.storage, table.properties, columns=HISTORY_SCHEMA.names)
    real = history_files(table.storage, table.properties)
    assert [(f.first, f.last, f.level) for f in real] == [
        ("20250922133010859", "20250922133023329", 0),
        ("20250922133025778", "20250922133030689", 0),
    ]
    theirs = pq.ParquetFile(
        io.BytesIO(table.storage.read(f"{table.properties.history_folder}/{real[0].name}"))
    )
    ours = pq.ParquetFile(io.BytesIO(encode_history_file(whole)))
    assert str(ours.schema).splitlines()[3:] == str(theirs.schema).splitlines()[3:]
    assert ours.metadata.metadata.keys() == theirs.metadata.metadata.keys()
    manifest = table.storage.read(f"{table.properties.history_folder}/manifest_2")
    assert format_manifest(real) == manifest
