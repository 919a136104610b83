"""Schema-on-read: parsing, choosing a version, matching columns by id."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import SchemaError
from lakewright.format.evolution import MISSING, conversion
from lakewright.format.internal_schema import (
    InternalSchemas,
    load_internal_schemas,
    match_columns,
    parse_history,
    parse_internal_schema,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import load_timeline
from lakewright.storage.memory import MemoryStorage

T1, T2, T3 = "20240101000000000", "20240102000000000", "20240103000000000"


def _field(id_: int, name: str, kind: Any = "int") -> dict[str, Any]:
    return {"id": id_, "name": name, "optional": True, "type": kind}


def _schema(version: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "max_column_id": 99,
        "version_id": int(version),
        "type": "record",
        "fields": list(fields),
    }


def _record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "fields": list(fields)}


def _array(id_: int, element: Any) -> dict[str, Any]:
    return {"type": "array", "element_id": id_, "element": element, "element_optional": True}


def _map(id_: int, value: Any) -> dict[str, Any]:
    return {
        "type": "map",
        "key_id": id_,
        "key": "string",
        "value_id": id_ + 1,
        "value": value,
        "value_optional": False,
    }


def _history(*schemas: dict[str, Any]) -> InternalSchemas:
    text = json.dumps({"schemas": list(schemas)}).encode()
    return InternalSchemas(parse_history(text, path="h"))


def test_a_schema_survives_reading_and_writing() -> None:
    tree = _schema(
        T1,
        _field(0, "id", "long"),
        _field(1, "price", "decimal(10, 2)"),
        {
            **_field(2, "s", _record(_field(3, "x"), _field(4, "l", _array(5, "fixed[16]")))),
            "doc": "d",
        },
        _field(6, "m", _map(7, _record(_field(9, "y")))),
    )
    text = json.dumps(tree, separators=(",", ":"))
    assert parse_internal_schema(text).to_json() == text


def test_dashes_in_key_names_of_older_releases_are_accepted() -> None:
    old = {"type": "array", "element-id": 1, "element": "int", "element_optional": True}
    tree = {"version-id": 5, "max_column_id": 1, "type": "record", "fields": [_field(0, "l", old)]}
    assert parse_internal_schema(json.dumps(tree)).version_id == 5


def test_the_version_in_force_is_the_greatest_not_after_the_instant() -> None:
    history = _history(_schema(T2, _field(0, "b")), _schema(T1, _field(0, "a")))
    assert history.for_instant("20231231000000000") is None
    for time, name in [(T1, "a"), ("20240101999999999", "a"), (T2, "b"), (T3, "b")]:
        version = history.for_instant(time)
        assert version is not None and version.record.fields[0].name == name


def test_columns_match_by_id_through_renames_drops_and_re_adding() -> None:
    history = _history(
        _schema(T1, _field(0, "id"), _field(1, "old"), _field(2, "back"), _field(3, "same")),
        _schema(T2, _field(0, "id"), _field(1, "new"), _field(9, "back"), _field(3, "same")),
    )
    assert history.renames(T1) == {"new": "old", "back": MISSING}
    assert history.renames(T2) == {}
    assert history.renames(T1, at=T1) == {}
    assert history.renames("20230101000000000") == {}


def test_names_inside_structs_lists_and_maps_match_by_id_too() -> None:
    def columns(struct: str, x: str, p: str, v: str) -> list[dict[str, Any]]:
        return [
            _field(0, struct, _record(_field(1, x))),
            _field(2, "l", _array(3, _record(_field(4, p)))),
            _field(5, "m", _map(6, _record(_field(8, v)))),
        ]

    history = _history(
        _schema(T1, *columns("s", "x", "p", "v")), _schema(T2, *columns("t", "y", "q", "w"))
    )
    assert history.renames(T1) == {
        "t": "s",
        "t.y": "x",
        "l.element.q": "p",
        "m.value.w": "v",
    }
    matches = {m.column: m for m in match_columns(*history.versions)}
    assert matches["t.y"].stored == "int"


def test_meta_columns_are_in_every_file() -> None:
    history = _history(
        _schema(T1, _field(5, "a")), _schema(T2, _field(0, "_hoodie_commit_time"), _field(5, "a"))
    )
    assert history.renames(T1) == {}


def test_renames_drive_the_conversion_of_a_file() -> None:
    history = _history(
        _schema(T1, _field(1, "old", "float"), _field(2, "back")),
        _schema(T2, _field(1, "new", "double"), _field(9, "back")),
    )
    source = pa.schema({"old": pa.float32(), "back": pa.int32()})
    target = pa.schema({"new": pa.float64(), "back": pa.int32()})
    batch = pa.RecordBatch.from_pydict({"old": [1.1], "back": [5]}, source)
    made = conversion(source, target, renames=history.renames(T1))
    assert made.source_columns == ("old",)
    assert made.apply(batch).to_pylist() == [{"new": 1.1, "back": None}]


def _table(**files: dict[str, Any]) -> tuple[MemoryStorage, TableProperties]:
    storage = MemoryStorage()
    for time in (T1, T2):
        storage.replace(f".hoodie/{time}.commit", b"{}")
    for name, schema in files.items():
        text = json.dumps({"schemas": [schema]}).encode()
        storage.replace(f".hoodie/.schema/{name.replace('__', '.')[1:]}", text)
    return storage, TableProperties({"hoodie.table.version": "6", "hoodie.table.name": "t"})


def _loaded(**files: dict[str, Any]) -> InternalSchemas | None:
    storage, properties = _table(**files)
    return load_internal_schemas(storage, properties, load_timeline(storage, properties))


def test_a_table_without_history_does_not_use_schema_on_read() -> None:
    assert _loaded() is None


def test_the_newest_history_of_a_completed_commit_counts() -> None:
    found = _loaded(
        **{
            f"t{T1}__schemacommit": _schema(T1, _field(0, "a")),
            f"t{T2}__schemacommit": _schema(T2, _field(0, "b")),
            f"t{T3}__schemacommit": _schema(T3, _field(0, "never_completed")),
            f"t{T3}__schemacommit__requested": _schema(T3, _field(0, "x")),
        }
    )
    assert found is not None
    assert [v.version_id for v in found.versions] == [int(T2)]


def test_history_names_may_carry_a_completion_time() -> None:
    found = _loaded(**{f"t{T2}_{T3}__schemacommit": _schema(T2, _field(0, "b"))})
    assert found is not None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"schemas":[1]}',
        '{"schemas":[{"type":"array","element_id":1,"element":"int"}]}',
        '{"schemas":[{"type":"record","fields":[{"id":"x","name":"a","type":"int"}]}]}',
        '{"schemas":[{"type":"record","fields":[{"id":1,"name":"a","type":{"type":"blob"}}]}]}',
        '{"schemas":' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_a_history_that_does_not_parse_names_the_file(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_history(text.encode(), path=".hoodie/.schema/x")
    assert caught.value.context["path"] == ".hoodie/.schema/x"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_history_or_an_error(data: bytes) -> None:
    try:
        parse_history(data, path="h")
    except SchemaError:
        return
