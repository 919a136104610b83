"""Which schema a table has: from commits, from its creation, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewright.errors import OptionError, SchemaError
from lakewright.format.property_text import parse_properties
from lakewright.format.table_properties import TableProperties
from lakewright.format.table_schema import (
    META_COLUMNS,
    OPERATION_COLUMN,
    TableSchema,
    record_name,
    resolve_table_schema,
)
from lakewright.format.timeline import load_timeline
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryStorage
from tests.fixtures import SharedTable, expected_rows, shared_tables, unpack

READABLE = [t for t in shared_tables() if not t.refused]


def _avro(*columns: str, kind: Any = "int") -> str:
    fields = [{"name": name, "type": kind} for name in columns]
    return json.dumps({"type": "record", "name": "t", "fields": fields})


class _Table:
    """A version 6 table made of properties and commit files."""

    def __init__(self, **properties: str) -> None:
        self.storage = MemoryStorage()
        values = {"hoodie.table.version": "6", "hoodie.table.name": "t", **properties}
        self.properties = TableProperties(values)

    def commit(
        self, time: str, schema: str | None, operation: str = "UPSERT", *paths: str
    ) -> _Table:
        stats = {"": [{"fileId": "f", "path": path} for path in paths]}
        extra = {} if schema is None else {"schema": schema}
        text = json.dumps(
            {"partitionToWriteStats": stats, "extraMetadata": extra, "operationType": operation}
        )
        self.storage.replace(f".hoodie/{time}.commit", text.encode())
        return self

    def schema(self, as_of: str | None = None) -> TableSchema:
        timeline = load_timeline(self.storage, self.properties)
        return resolve_table_schema(self.storage, self.properties, timeline, as_of=as_of)


T1, T2, T3 = "20240101000000000", "20240102000000000", "20240103000000000"


def test_the_newest_commit_that_may_change_the_schema_decides() -> None:
    table = _Table().commit(T1, _avro("a")).commit(T2, _avro("a", "b"))
    found = table.commit(T3, _avro("z"), "COMPACT").schema()
    assert found.arrow.names == [*META_COLUMNS, "a", "b"]
    assert found.instant == T2
    assert found.source == f"commit {T2}"


def test_a_commit_without_schema_text_is_passed_over() -> None:
    assert _Table().commit(T1, _avro("a")).commit(T2, "").commit(T3, None).schema().instant == T1


def test_the_schema_as_of_an_instant_is_the_one_in_force_then() -> None:
    table = _Table().commit(T1, _avro("a")).commit(T2, _avro("a", "b"))
    assert table.schema(T1).arrow.names == [*META_COLUMNS, "a"]
    assert table.schema("20240101235959999").instant == T1


def test_services_are_asked_before_the_creation_schema() -> None:
    table = _Table(**{"hoodie.table.create.schema": _avro("old")})
    assert table.commit(T1, _avro("new"), "CLUSTER").schema().instant == T1


def test_the_creation_schema_counts_where_no_commit_has_one() -> None:
    found = _Table(**{"hoodie.table.create.schema": _avro("a", kind=["int", "null"])}).schema()
    assert found.source == "hoodie.table.create.schema"
    assert found.arrow.field("a").nullable


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def test_a_base_file_counts_last() -> None:
    table = _Table().commit(T1, None, "UPSERT", "gone.parquet", "f.parquet")
    table.storage.replace("f.parquet", _parquet(pa.table({"a": [1], "s": ["x"]})))
    found = table.schema()
    assert found.source == "f.parquet"
    assert found.arrow.names == [*META_COLUMNS, "a", "s"]
    assert found.avro.name == "hoodie.t.t_record"


def test_a_table_of_which_nothing_is_known_is_an_error() -> None:
    with pytest.raises(SchemaError, match="Nothing says what columns"):
        _Table().schema()


@pytest.mark.parametrize("text", ["{", '"int"', '{"type":"record"}', '{"type":"nope"}'])
def test_schema_text_that_does_not_parse_names_its_instant(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        _Table().commit(T1, text).schema()
    assert caught.value.context["instant"] == T1


def test_a_table_with_virtual_keys_shows_no_meta_columns() -> None:
    table = _Table(**{"hoodie.populate.meta.fields": "false"})
    found = table.commit(T1, _avro("_hoodie_commit_time", "a")).schema()
    assert found.arrow.names == ["a"]
    assert found.meta_columns == ()


def test_meta_columns_are_nullable_text_in_front_once() -> None:
    found = _Table().commit(T1, _avro("a", "_hoodie_record_key")).schema()
    assert found.arrow.names == [*META_COLUMNS, "a"]
    field = found.avro.field("_hoodie_commit_time")
    assert field is not None and field.default is None and field.doc == ""
    assert found.arrow.field("_hoodie_commit_time") == pa.field("_hoodie_commit_time", pa.string())


def test_the_operation_column_is_found_in_a_base_file() -> None:
    table = _Table().commit(T1, _avro("a"), "UPSERT", "f.parquet")
    table.storage.replace("f.parquet", _parquet(pa.table({OPERATION_COLUMN: ["I"], "a": [1]})))
    assert table.schema().meta_columns == (*META_COLUMNS, OPERATION_COLUMN)


def test_the_operation_column_is_found_in_the_head_of_a_log_file() -> None:
    table = _Table().commit(T1, _avro("a"), "UPSERT", ".f_1.log.1_0-0-0")
    text = '{"name":"_hoodie_file_name","type":"string"},{"name":"_hoodie_operation"'
    table.storage.replace(".f_1.log.1_0-0-0", text.encode())
    assert table.schema().meta_columns[-1] == OPERATION_COLUMN


def test_partition_columns_that_are_not_stored_are_added() -> None:
    properties = {
        "hoodie.datasource.write.drop.partition.columns": "true",
        "hoodie.table.partition.fields": "day,city,kept",
        "hoodie.table.create.schema": _avro("a", "city", kind="long"),
    }
    found = _Table(**properties).commit(T1, _avro("a", "kept")).schema()
    assert found.arrow.names == [*META_COLUMNS, "a", "kept", "day", "city"]
    assert found.arrow.field("day").type == pa.string()
    assert found.arrow.field("city").type == pa.int64()
    assert found.partition_columns_from_path == ("day", "city", "kept")


def test_defaults_are_those_that_are_not_null() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "t",
            "fields": [
                {"name": "a", "type": "int", "default": 7},
                {"name": "b", "type": ["null", "int"], "default": None},
                {"name": "c", "type": "int"},
            ],
        }
    )
    assert _Table().commit(T1, text).schema().defaults() == {"a": 7}


def test_projection_checks_names_and_can_hide_meta_columns() -> None:
    found = _Table().commit(T1, _avro("rider", "fare")).schema()
    assert found.project(None, meta=False) == ("rider", "fare")
    assert found.project(None) == (*META_COLUMNS, "rider", "fare")
    assert found.project(["fare", "rider", "fare"]) == ("fare", "rider")
    with pytest.raises(OptionError, match="no column 'ridr'") as caught:
        found.project(["ridr"])
    assert "'rider'" in caught.value.hint


def test_record_names_follow_the_table_name() -> None:
    name, namespace = record_name("hudi-v8-table-mor_table")
    assert namespace == "hoodie.hudi__v8__table__mor_table"
    assert name == "hudi__v8__table__mor_table_record"
    assert record_name("9t") == ("__t_record", "hoodie.__t")


@pytest.mark.parametrize("shared", READABLE, ids=lambda t: t.id)
def test_real_tables_have_exactly_the_columns_hudi_shows(
    shared: SharedTable, tmp_path: Path
) -> None:
    root = unpack(shared, tmp_path)
    storage = LocalStorage(root)
    values = parse_properties(storage.read(".hoodie/hoodie.properties"))
    properties = TableProperties(values)
    found = resolve_table_schema(storage, properties, load_timeline(storage, properties))
    if shared.rows is None or not expected_rows(shared):
        assert found.arrow.names[: len(META_COLUMNS)] == list(META_COLUMNS)
        return
    assert sorted(found.arrow.names) == sorted(expected_rows(shared)[0])
