"""Schemas: text to types and back, and the Arrow types that they stand for."""

from __future__ import annotations

import json
import pickle
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings

from lakewright.codec.avro.arrow_types import arrow_schema, arrow_type, from_arrow
from lakewright.codec.avro.schema import (
    NO_DEFAULT,
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    parse_schema,
    to_json,
)
from lakewright.errors import SchemaError
from tests.codec.avro_cases import Case, cases


def parse(node: Any) -> Any:
    return parse_schema(json.dumps(node))


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": list(fields), **more}


@given(cases())
@settings(max_examples=25, deadline=None)
def test_any_schema_survives_its_text(case: Case) -> None:
    schema = parse_schema(case.text)
    assert parse_schema(to_json(schema)) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    ours, theirs = json.loads(to_json(schema)), json.loads(case.text)
    canonical = fastavro.schema.to_parsing_canonical_form
    assert canonical(ours) == canonical(theirs)


def test_equal_texts_give_the_same_object() -> None:
    assert parse_schema('"int"') is parse_schema(b'"int"')


def test_names_are_resolved_by_namespace() -> None:
    inner = {"type": "fixed", "name": "f", "size": 2}
    schema = parse(
        record(
            {"name": "a", "type": inner},
            {"name": "b", "type": "f"},
            {"name": "c", "type": "x.y.f"},
            {"name": "d", "type": {"type": "enum", "name": "o.e", "symbols": ["A"]}},
            {"name": "e", "type": ["null", "o.e"]},
            namespace="x.y",
        )
    )
    assert schema.name == "x.y.r" and schema.namespace == "x.y"
    assert [f.type for f in schema.fields[:3]] == [Fixed("x.y.f", 2)] * 3
    assert schema.field("e").type == Union((Primitive("null"), Enum("o.e", ("A",))))
    assert to_json(schema) == (
        '{"type":"record","name":"r","namespace":"x.y","fields":['
        '{"name":"a","type":{"type":"fixed","name":"f","size":2}},'
        '{"name":"b","type":"f"},{"name":"c","type":"f"},'
        '{"name":"d","type":{"type":"enum","name":"e","namespace":"o","symbols":["A"]}},'
        '{"name":"e","type":["null","o.e"]}]}'
    )


def test_unknown_attributes_defaults_aliases_and_docs_are_kept() -> None:
    text = (
        '{"type":"record","name":"r","doc":"why","fields":['
        '{"name":"s","type":{"type":"string","avro.java.string":"String"},"doc":"d","default":"",'
        '"aliases":["t"],"order":"ignore"},'
        '{"name":"m","type":{"type":"map","values":"long","avro.java.string":"String"}},'
        '{"name":"n","type":["null","int"],"default":null}],"aliases":["q"],"x":{"y":[1]}}'
    )
    schema = parse_schema(text)
    assert to_json(schema) == text
    assert schema.fields[0].aliases == ("t",)
    assert schema.fields[1].default is NO_DEFAULT
    assert schema.fields[2].default is None
    assert isinstance(schema.fields[1].type, Map)


def test_a_logical_type_that_is_not_valid_is_ignored_but_kept() -> None:
    for node in (
        {"type": "string", "logicalType": "date"},
        {"type": "bytes", "logicalType": "decimal", "precision": 0},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "fixed", "name": "f", "size": 1, "logicalType": "decimal", "precision": 3},
        {"type": "long", "logicalType": "made-up"},
    ):
        schema = parse(node)
        assert schema.logical is None
        assert json.loads(to_json(schema)) == node


@pytest.mark.parametrize(
    ("node", "what"),
    [
        ("nope", "neither an Avro type nor a name"),
        (5, "must be text"),
        ({"type": 5}, "no 'type'"),
        ({"type": "record", "name": "r"}, "no list of fields"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "two fields"),
        (record({"type": "int"}), "without a name"),
        (record({"name": "n", "type": ["null", "r"]}), "contains itself"),
        (record({"name": "n", "type": record({"name": "x", "type": "int"})}), "defined twice"),
        ({"type": "enum", "name": "e", "symbols": ["A", "A"]}, "twice"),
        ({"type": "enum", "name": "e"}, "no list of symbols"),
        ({"type": "fixed", "name": "f", "size": -1}, "size"),
        ({"type": "fixed", "name": "f", "size": True}, "size"),
        ({"type": "fixed", "size": 1}, "no name"),
        (["int", "int"], "two branches"),
        (["null", ["int"]], "union directly inside a union"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(node: Any, what: str) -> None:
    with pytest.raises(SchemaError, match=what) as caught:
        parse(node)
    assert caught.value.hint


def test_hostile_schemas_are_refused_quickly() -> None:
    deep = '{"type":"array","items":' * 500 + '"int"' + "}" * 500
    with pytest.raises(SchemaError, match="nested deeper"):
        parse_schema(deep)
    with pytest.raises(SchemaError):
        parse_schema("[" * 100_000)
    doubling = record(
        {"name": "a0", "type": {"type": "fixed", "name": "t0", "size": 1}},
        *(
            {
                "name": f"a{n}",
                "type": {
                    "type": "record",
                    "name": f"t{n}",
                    "fields": [
                        {"name": "x", "type": f"t{n - 1}"},
                        {"name": "y", "type": f"t{n - 1}"},
                    ],
                },
            }
            for n in range(1, 60)
        ),
    )
    with pytest.raises(SchemaError, match="unfolds"):
        parse(doubling)
    with pytest.raises(SchemaError, match="not JSON"):
        parse_schema("{")
    with pytest.raises(SchemaError, match="UTF-8"):
        parse_schema(b"\xff")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("null", pa.null()),
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("bytes", pa.binary()),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, pa.timestamp("ns")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 1},
            pa.decimal256(39, 1),
        ),
        ({"type": "fixed", "name": "f", "size": 3}, pa.binary(3)),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        (
            {"type": "array", "items": ["null", "int"]},
            pa.list_(pa.field("element", pa.int32())),
        ),
        (
            {"type": "map", "values": "int"},
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        ),
        (["long", "int"], pa.int64()),
        (["null", "float", "double"], pa.float64()),
        (
            ["string", "null", "int"],
            pa.struct([("member0", pa.string()), ("member1", pa.int32())]),
        ),
        (["int"], pa.int32()),
        (["null"], pa.null()),
    ],
)
def test_every_type_has_its_arrow_type(node: Any, expected: pa.DataType) -> None:
    assert arrow_type(parse(node)) == expected


def test_types_without_a_column_form_are_refused() -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 77}
    huge = {"type": "fixed", "name": "f", "size": 1 << 20}
    for node in (wide, huge, []):
        with pytest.raises(SchemaError, match="No column type"):
            arrow_type(parse(node))
    for column in (pa.uint64(), pa.month_day_nano_interval(), pa.map_(pa.int32(), pa.int32())):
        with pytest.raises(SchemaError, match="No column type"):
            from_arrow(pa.schema([("c", column)]), name="r", namespace="")


def test_arrow_schemas_become_the_records_that_hudi_declares() -> None:
    columns = pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("price", pa.decimal128(10, 5)),
            pa.field("point", pa.struct([pa.field("x", pa.float64()), ("d", pa.decimal128(5, 2))])),
            pa.field("list", pa.list_(pa.struct([pa.field("y", pa.int32(), nullable=False)]))),
            pa.field("map", pa.map_(pa.string(), pa.int64())),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("wall", pa.timestamp("us")),
        ]
    )
    schema = from_arrow(columns, name="t_record", namespace="hoodie.t")
    assert schema.name == "hoodie.t.t_record"
    assert schema.fields[0].default is NO_DEFAULT and schema.fields[1].default is None
    null = Primitive("null")
    parent = "hoodie.t.t_record"
    price = Fixed(f"{parent}.price.fixed", 5, "decimal", 10, 5)
    assert schema.field("price").type == Union((null, price))
    point = schema.field("point").type.optional
    assert isinstance(point, Record) and point.name == f"{parent}.point"
    assert point.field("d").type.optional.name == f"{parent}.point.d.fixed"
    items = schema.field("list").type.optional
    assert isinstance(items, Array) and items.items.optional.name == f"{parent}.list"
    assert parse_schema(to_json(schema)) == schema
    assert arrow_schema(schema).equals(columns)
    assert '"name":"fixed","namespace":"hoodie.t.t_record.price","size":5,' in to_json(schema)
