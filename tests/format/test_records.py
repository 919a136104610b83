"""Records of the timeline: schemas, Avro and JSON bytes, real files of every release."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakewright.codec.avro.container import read_container
from lakewright.errors import CorruptFileError, FormatError, LakewrightError
from lakewright.format.instant import State
from lakewright.format.records import (
    ActionInstant,
    AvroRecord,
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    CompactionPlan,
    IndexPartitionInfo,
    IndexPlan,
    RequestedReplaceMetadata,
    RuntimeStats,
    WriteStat,
    file_name,
    load_cleaner_plan,
    load_compaction_plan,
    load_plan,
    load_record,
    load_requested_replace,
    load_rollback_plan,
    read_instant,
)
from lakewright.format.records.definitions import (
    NAMESPACE,
    TypeSpec,
    record_fields,
    record_names,
    schema_json,
)
from lakewright.format.records.instants import record_kind
from lakewright.format.records.json_text import format_json, parse_json
from lakewright.format.records.model import (
    Content,
    content_of,
    encode_container,
    read_record,
    record_class,
    snake_case,
)
from lakewright.format.version import SUPPORTED_VERSIONS, RecordLevel, TableVersion
from tests.fixtures import SHARED_ABSENT, shared_tables
from tests.format.timeline_tables import readable_tables

needs_shared = pytest.mark.skipif(not shared_tables(), reason=SHARED_ABSENT)
SIX, EIGHT = TableVersion.of(6), TableVersion.of(8)
COLUMNAR = {"HoodieLSMTimelineInstant"}
"""Read as columns, never as objects."""


# ---- definitions -------------------------------------------------------------------------------


def test_every_record_has_a_class_with_exactly_its_fields() -> None:
    for name in set(record_names()) - COLUMNAR:
        expected = {snake_case(spec.name) for spec in record_fields(name)}
        kind = record_class(name)
        attributes = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
        extra = {"unknown", "json_fields"} if name in _JSON_RECORDS else set()
        extra |= {"column_facts"} if name == "HoodieWriteStat" else set()
        if name == "HoodieCommitMetadata":
            extra |= {"partition_to_replace_file_ids"}
        assert attributes == expected | extra, name


_JSON_RECORDS = {"HoodieCommitMetadata", "HoodieReplaceCommitMetadata", "HoodieWriteStat"}


def test_releases_write_the_fields_they_know() -> None:
    def stat_fields(level: RecordLevel) -> int:
        node = json.loads(schema_json("HoodieWriteStat", level))
        return len(node["fields"])

    assert [stat_fields(level) for level in RecordLevel] == [17, 17, 22, 31]
    assert "missingSchedulePartitions" not in schema_json("HoodieCompactionPlan", RecordLevel.R0_15)
    assert "extraMetadata" not in schema_json("HoodieCleanerPlan", RecordLevel.R0_14)


def _comparable(node: Any) -> Any:
    """A schema without what only documents it."""
    if isinstance(node, list):
        return [_comparable(n) for n in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") in ("array", "map"):
        # Hudi's sources put defaults inside these types, where Avro gives them no meaning.
        node = {k: v for k, v in node.items() if k != "default"}
    return {k: _comparable(v) for k, v in node.items() if k != "doc"}


@needs_shared
def test_schemas_embedded_in_real_files_are_those_of_some_release() -> None:
    embedded = set()
    for table in readable_tables():
        for instant in table.files():
            data = read_instant(table.storage, table.properties, instant)
            if data[:4] == b"Obj\x01":
                embedded.add(read_container(data, path="").schema_json)
    assert len(embedded) >= 14
    for text in embedded:
        real = _comparable(json.loads(text))
        ours = [json.loads(schema_json(real["name"], level)) for level in RecordLevel]
        assert real in ours, real["name"]


# ---- Avro bytes --------------------------------------------------------------------------------

INDEX_PLAN_BODY = bytes.fromhex(
    "0002 0202 0002 02387365636f6e646172795f696e6465785f6d65726368616e745f696478"
    "02223230323630333037313632363531303733 0200 00"
)
INDEX_PLAN_SYNC = bytes.fromhex("fef138f5beafd901ad4b6ac6881110ef")
INDEX_PLAN = IndexPlan(
    index_partition_infos=[
        IndexPartitionInfo(
            metadata_partition_path="secondary_index_merchant_idx",
            index_upto_instant="20260307162651073",
            extra_metadata={},
        )
    ]
)


def test_an_index_plan_has_the_bytes_of_a_real_one() -> None:
    schema = schema_json("HoodieIndexPlan")
    assert len(schema) == 719
    data = encode_container(INDEX_PLAN.to_avro(), schema, sync=INDEX_PLAN_SYNC)
    assert len(data) == 831
    assert data.startswith(b"Obj\x01\x02\x16avro.schema\x9e\x0b" + schema.encode() + b"\x00")
    assert data.endswith(
        INDEX_PLAN_SYNC + bytes.fromhex("0274") + INDEX_PLAN_BODY + INDEX_PLAN_SYNC
    )
    assert IndexPlan.read(data) == INDEX_PLAN
    assert read_record(data) == INDEX_PLAN


def test_the_same_record_always_has_the_same_bytes() -> None:
    assert INDEX_PLAN.write(EIGHT) == INDEX_PLAN.write(EIGHT)
    other = dataclasses.replace(INDEX_PLAN, version=2)
    assert INDEX_PLAN.write(EIGHT)[-16:] != other.write(EIGHT)[-16:]


@needs_shared
def test_every_real_avro_instant_file_is_written_back_byte_for_byte() -> None:
    kinds: dict[str, int] = {}
    for table in readable_tables():
        for instant in table.files():
            data = read_instant(table.storage, table.properties, instant)
            if not data or content_of(data, path="") is not Content.AVRO:
                continue
            record = load_record(table.storage, table.properties, instant)
            assert record is not None
            real = read_container(data, path="")
            again = encode_container(record.to_avro(), real.schema_json, sync=real.sync)
            assert again == data, (table.name, instant.file_name)
            kinds[type(record).__name__] = kinds.get(type(record).__name__, 0) + 1
    assert set(kinds) == {
        "CleanMetadata",
        "CleanerPlan",
        "CommitMetadata",
        "CompactionPlan",
        "IndexCommitMetadata",
        "IndexPlan",
        "RequestedReplaceMetadata",
        "RollbackMetadata",
        "RollbackPlan",
    }
    assert sum(kinds.values()) > 400


@needs_shared
def test_every_real_json_instant_file_is_written_back_byte_for_byte() -> None:
    count = 0
    for table in readable_tables():
        for instant in table.files():
            data = read_instant(table.storage, table.properties, instant)
            if not data or content_of(data, path="") is not Content.JSON:
                continue
            record = load_record(table.storage, table.properties, instant)
            assert isinstance(record, CommitMetadata)
            assert record.write(SIX) == data, (table.name, instant.file_name)
            again = CommitMetadata.read(record.write(EIGHT))
            assert again.extra_metadata == record.extra_metadata
            assert [s.path for s in again.write_stats] == [s.path for s in record.write_stats]
            count += 1
    assert count > 100


def _values(spec: TypeSpec) -> st.SearchStrategy[Any]:
    if spec.is_record:
        found = _records(spec.kind)
    elif spec.item is not None and spec.kind == "array":
        found = st.lists(_values(spec.item), max_size=2)
    elif spec.item is not None:
        found = st.dictionaries(st.text(max_size=3), _values(spec.item), max_size=2)
    else:
        found = {
            "string": st.text(max_size=5),
            "bytes": st.binary(max_size=5),
            "boolean": st.booleans(),
            "int": st.integers(-(2**31), 2**31 - 1),
            "long": st.integers(-(2**63), 2**63 - 1),
            "double": st.floats(allow_nan=False),
        }[spec.kind]
    return st.none() | found if spec.nullable else found


def _records(name: str) -> st.SearchStrategy[Any]:
    kind: Any = record_class(name)
    fields = {snake_case(s.name): _values(s.type) for s in record_fields(name)}
    if kind is CommitMetadata:
        for required in ("partition_to_write_stats", "extra_metadata"):
            fields[required] = fields[required].map(lambda v: v or {})
        if name == "HoodieReplaceCommitMetadata":
            fields["partition_to_replace_file_ids"] = fields["partition_to_replace_file_ids"].map(
                lambda v: v or {}
            )
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


ROOTS = sorted(set(record_names()) - COLUMNAR - {"HoodieArchivedMetaEntry"})


@given(data=st.data(), name=st.sampled_from(ROOTS))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=80)
def test_any_record_survives_writing_and_reading(data: st.DataObject, name: str) -> None:
    record = data.draw(_records(name))
    assert type(record).read(record.write(EIGHT)) == record
    assert read_record(record.write(EIGHT)) == record


@given(
    stats=st.dictionaries(st.text(max_size=3), st.lists(_records("HoodieWriteStat"), max_size=2))
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=20)
def test_any_commit_metadata_keeps_its_files_through_json(
    stats: dict[str, list[WriteStat]],
) -> None:
    metadata = CommitMetadata(partition_to_write_stats=stats, operation_type="UPSERT")
    text = metadata.write(SIX)
    again = CommitMetadata.read(text)
    assert [s.path for s in again.write_stats] == [s.path for s in metadata.write_stats]
    assert again.write(SIX) == text


def test_fields_of_newer_releases_take_their_default_in_older_files() -> None:
    plan = CompactionPlan(operations=[], missing_schedule_partitions=["p"])
    old = CompactionPlan.read(plan.write(SIX))
    assert old.missing_schedule_partitions is None
    assert CompactionPlan.read(plan.write(EIGHT)) == plan


def test_fields_nobody_knows_are_skipped() -> None:
    schema = json.loads(schema_json("HoodieIndexPlan"))
    schema["fields"].append({"name": "tomorrow", "type": "string"})
    data = encode_container({**INDEX_PLAN.to_avro(), "tomorrow": "x"}, json.dumps(schema))
    assert IndexPlan.read(data) == INDEX_PLAN


def test_a_file_with_another_record_is_an_error_that_names_both() -> None:
    with pytest.raises(CorruptFileError) as caught:
        CompactionPlan.read(INDEX_PLAN.write(EIGHT), path=".hoodie/1.compaction.requested")
    assert "HoodieIndexPlan" in caught.value.message
    assert "HoodieCompactionPlan" in caught.value.message
    assert caught.value.context["path"] == ".hoodie/1.compaction.requested"


def _forged(name: str, fields: list[dict[str, Any]], value: dict[str, Any]) -> bytes:
    schema = {"type": "record", "name": name, "namespace": NAMESPACE, "fields": fields}
    return encode_container(value, json.dumps(schema))


@pytest.mark.parametrize(
    ("fields", "value", "words"),
    [
        ([], {}, "no field partitionPath"),
        ([{"name": "partitionPath", "type": "long"}], {"partitionPath": 1}, "int where string"),
        ([{"name": "partitionPath", "type": "null"}], {"partitionPath": None}, "NoneType"),
    ],
)
def test_a_record_whose_own_schema_does_not_fit_is_corrupt(
    fields: list[dict[str, Any]], value: dict[str, Any], words: str
) -> None:
    data = _forged("HoodieSavepointPartitionMetadata", fields, value)
    with pytest.raises(CorruptFileError, match=words):
        read_record(data)


def test_a_record_unknown_to_hudi_is_corrupt() -> None:
    with pytest.raises(CorruptFileError, match="HoodieNothing"):
        read_record(_forged("HoodieNothing", [], {}))


@given(st.integers(0, 830), st.integers(0, 255))
@settings(max_examples=100)
def test_damaged_bytes_read_or_raise_an_error_of_the_house(position: int, byte: int) -> None:
    data = bytearray(INDEX_PLAN.write(EIGHT))
    data[position % len(data)] = byte
    for broken in (bytes(data), bytes(data[:position])):
        try:
            IndexPlan.read(broken)
        except LakewrightError:
            continue


# ---- JSON --------------------------------------------------------------------------------------

NAME = "5023772b-1fc6-4d7b-a563-21257d92e366-0"
LOG = f".{NAME}_20250922132151286.log.1_0-121-135"
DELTA_COMMIT = """{
  "partitionToWriteStats" : {
    "2023-01-01" : [ {
      "fileId" : "5023772b-1fc6-4d7b-a563-21257d92e366-0",
      "path" : "2023-01-01/$LOG",
      "cdcStats" : null,
      "prevCommit" : "20250922132151286",
      "numWrites" : 1,
      "numDeletes" : 0,
      "numUpdateWrites" : 1,
      "numInserts" : 0,
      "totalWriteBytes" : 947,
      "totalWriteErrors" : 0,
      "tempPath" : null,
      "partitionPath" : "2023-01-01",
      "totalLogRecords" : 0,
      "totalLogFilesCompacted" : 0,
      "totalLogSizeCompacted" : 0,
      "totalUpdatedRecordsCompacted" : 0,
      "totalLogBlocks" : 0,
      "totalCorruptLogBlock" : 0,
      "totalRollbackBlocks" : 0,
      "fileSizeInBytes" : 947,
      "minEventTime" : null,
      "maxEventTime" : null,
      "runtimeStats" : {
        "totalScanTime" : 0,
        "totalUpsertTime" : 222,
        "totalCreateTime" : 0
      },
      "logVersion" : 1,
      "logOffset" : 0,
      "baseFile" : "5023772b-1fc6-4d7b-a563-21257d92e366-0_0-88-103_20250922132151286.parquet",
      "logFiles" : [ "$LOG" ],
      "recordsStats" : {
        "val" : null
      }
    } ]
  },
  "compacted" : false,
  "extraMetadata" : {
    "schema" : "{\\"type\\":\\"record\\"}"
  },
  "operationType" : "UPSERT"
}""".replace("$LOG", LOG)
STAT = WriteStat(
    file_id=NAME,
    path=f"2023-01-01/{LOG}",
    prev_commit="20250922132151286",
    num_writes=1,
    num_update_writes=1,
    total_write_bytes=947,
    partition_path="2023-01-01",
    file_size_in_bytes=947,
    runtime_stats=RuntimeStats(total_scan_time=0, total_create_time=0, total_upsert_time=222),
    log_version=1,
    log_offset=0,
    base_file=f"{NAME}_0-88-103_20250922132151286.parquet",
    log_files=[LOG],
    unknown={"recordsStats": {"val": None}},
)


def test_a_delta_commit_made_here_has_the_json_of_hudi() -> None:
    metadata = CommitMetadata(
        partition_to_write_stats={"2023-01-01": [STAT]},
        extra_metadata={"schema": '{"type":"record"}'},
        operation_type="UPSERT",
    )
    assert metadata.write(SIX).decode() == DELTA_COMMIT


def test_a_delta_commit_of_hudi_is_read_with_all_its_fields() -> None:
    metadata = CommitMetadata.read(DELTA_COMMIT.encode())
    (stat,) = metadata.write_stats
    assert stat.log_files == [LOG] and stat.num_writes == 1
    assert stat.runtime_stats == STAT.runtime_stats
    assert stat.unknown == {"recordsStats": {"val": None}}
    assert metadata.schema == '{"type":"record"}'
    assert metadata.partition_to_replace_file_ids is None
    assert metadata.write(SIX).decode() == DELTA_COMMIT


def test_a_replacecommit_has_its_file_ids_last_and_empty_objects_keep_a_blank() -> None:
    metadata = CommitMetadata(
        operation_type="CLUSTER", partition_to_replace_file_ids={"p": ["a", "b"], "q": []}
    )
    assert metadata.write(SIX) == (
        b'{\n  "partitionToWriteStats" : { },\n  "compacted" : false,\n  "extraMetadata" : { },\n'
        b'  "operationType" : "CLUSTER",\n  "partitionToReplaceFileIds" : {\n'
        b'    "p" : [ "a", "b" ],\n    "q" : [ ]\n  }\n}'
    )
    assert CommitMetadata.read(metadata.write(SIX)) == dataclasses.replace(
        metadata, compacted=False
    )
    assert CommitMetadata.read(metadata.write(EIGHT)) == metadata


def test_changing_a_json_value_keeps_the_order_and_the_unknown_fields() -> None:
    text = b'{"operationType":"UPSERT","tomorrow":[1.50,"x"],"extraMetadata":{}}'
    metadata = dataclasses.replace(CommitMetadata.read(text), extra_metadata={"k": "v"})
    assert metadata.write(SIX) == (
        b'{\n  "operationType" : "UPSERT",\n  "tomorrow" : [ 1.50, "x" ],\n'
        b'  "extraMetadata" : {\n    "k" : "v"\n  }\n}'
    )


def test_null_maps_read_as_empty_ones() -> None:
    text = b'{"partitionToWriteStats":null,"extraMetadata":null,"partitionToReplaceFileIds":null}'
    metadata = CommitMetadata.read(text)
    assert metadata.partition_to_write_stats == {} and metadata.extra_metadata == {}
    assert metadata.partition_to_replace_file_ids == {}


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"{]",
        b'{"partitionToWriteStats":[]}',
        b'{"partitionToWriteStats":{"p":{}}}',
        b'{"partitionToWriteStats":{"p":[1]}}',
        b'{"partitionToWriteStats":{"p":[{"numWrites":"1"}]}}',
        b'{"partitionToWriteStats":{"p":[{"numWrites":1.5}]}}',
        b'{"partitionToWriteStats":{"p":[{"runtimeStats":[]}]}}',
        b'{"extraMetadata":{"k":1}}',
        b'{"operationType":1}',
        b'{"compacted":1}',
        b'{"a":"\xff"}',
        b"{" + b'"a":{' * 5000,
    ],
)
def test_json_that_is_no_commit_metadata_is_corrupt_with_its_path(text: bytes) -> None:
    with pytest.raises(CorruptFileError) as caught:
        CommitMetadata.read(text, path="x.commit")
    assert caught.value.context["path"] == "x.commit"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@settings(max_examples=40, deadline=None)
def test_any_json_object_survives_printing(value: Any) -> None:
    text = format_json({"a": value})
    assert parse_json(text, path="") == {"a": value} == json.loads(text)


def test_control_characters_are_escaped_as_jackson_escapes_them() -> None:
    assert format_json('\x00\x1f\b\t\n\f\r"\\/é\x7f') == (
        '"\\u0000\\u001F\\b\\t\\n\\f\\r\\"\\\\/é\x7f"'.encode()
    )


# ---- empty files and dispatch ------------------------------------------------------------------


def test_an_empty_commit_is_default_metadata() -> None:
    metadata = CommitMetadata.read(b"")
    assert metadata == CommitMetadata(operation_type="UNKNOWN")
    assert list(metadata.write_stats) == []


def test_an_empty_replace_request_has_no_plan() -> None:
    assert RequestedReplaceMetadata.read(b"").clustering_plan is None


@pytest.mark.parametrize("kind", [CleanerPlan, CleanMetadata, CompactionPlan])
def test_an_empty_plan_or_clean_is_corrupt(kind: type[AvroRecord]) -> None:
    with pytest.raises(FormatError):
        kind.read(b"")


def test_bytes_that_are_neither_avro_nor_json_are_corrupt() -> None:
    assert content_of(b"  \n{}", path="") is Content.JSON
    with pytest.raises(CorruptFileError) as caught:
        CommitMetadata.read(b"PAR1", path="x.commit")
    assert caught.value.context == {"path": "x.commit", "offset": 0}


def test_kinds_of_records_by_action_and_state() -> None:
    assert record_kind("commit", State.REQUESTED) is CommitMetadata
    assert record_kind("replacecommit", State.REQUESTED) is RequestedReplaceMetadata
    assert record_kind("replacecommit", State.INFLIGHT) is CommitMetadata
    assert record_kind("clean", State.INFLIGHT) is CleanerPlan
    assert record_kind("schemacommit", State.COMPLETED) is None


def test_overwrites_are_requested_with_four_nulls() -> None:
    for version in SUPPORTED_VERSIONS:
        body = read_container(RequestedReplaceMetadata().write(version), path="").records[0]
        assert body == {
            "operationType": None,
            "clusteringPlan": None,
            "extraMetadata": None,
            "version": None,
        }


def test_what_java_unboxes_is_never_null_by_default() -> None:
    assert CompactionPlan().version == 2
    assert CleanerPlan(policy="KEEP_LATEST_COMMITS").version == 2
    assert CommitMetadata().version is None


def test_stored_paths_are_cut_to_file_names() -> None:
    assert file_name("file:/tmp/t/p/x.parquet") == "x.parquet"
    assert file_name("x.parquet") == "x.parquet"
    assert file_name("") is None and file_name(None) is None


# ---- plans of real tables ----------------------------------------------------------------------


@needs_shared
def test_plans_of_real_instants_are_found_in_every_state() -> None:
    seen = set()
    for table in readable_tables():
        where = (table.storage, table.properties)
        for instant in table.files():
            if instant.action == "compaction":
                plan = load_compaction_plan(*where, instant)
                assert plan.version == 2 and plan.operations
                assert all("/" not in (o.data_file_path or "") for o in plan.operations)
                assert load_plan(*where, instant) == plan
            elif instant.completed_action == "replacecommit":
                request = load_requested_replace(*where, instant)
                clustering = request.operation_type == "CLUSTER"
                assert (request.clustering_plan is not None) == clustering
                if instant.completed:
                    done = load_record(*where, instant)
                    assert isinstance(done, CommitMetadata)
                    assert (done.operation_type == "CLUSTER") == clustering
                    assert done.partition_to_replace_file_ids is not None
            elif instant.action == "clean":
                assert load_cleaner_plan(*where, instant).version == 2
            elif instant.action == "rollback":
                assert load_rollback_plan(*where, instant).instant_to_rollback is not None
            seen.add((instant.action, instant.state))
    assert {a for a, _ in seen} >= {"compaction", "clustering", "replacecommit", "clean"}


@needs_shared
def test_commits_of_real_compactions_give_their_plan() -> None:
    plans = 0
    for table in readable_tables():
        for instant in table.files():
            if instant.action == "commit" and instant.completed:
                done = load_record(table.storage, table.properties, instant)
                plan = load_plan(table.storage, table.properties, instant)
                assert isinstance(done, CommitMetadata)
                assert (plan is not None) == (done.operation_type == "COMPACT")
                plans += plan is not None
    assert plans > 10


def test_an_instant_of_a_plan_is_named_as_on_disk() -> None:
    plan = CleanerPlan(
        policy="KEEP_LATEST_COMMITS",
        earliest_instant_to_retain=ActionInstant(timestamp="1", action="commit", state="COMPLETED"),
    )
    assert plan.to_avro()["earliestInstantToRetain"] == {
        "timestamp": "1",
        "action": "commit",
        "state": "COMPLETED",
    }
