"""The schema after a write: what is added, promoted, filled, refused, and how rows get there."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.codec.avro.arrow_types import arrow_schema, from_arrow
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import Record
from lakewright.errors import InputError, SchemaError, UnsupportedTableError
from lakewright.format.internal_schema import InternalRecord, InternalSchema, InternalSchemas
from lakewright.format.table_schema import with_meta_columns
from lakewright.format.write_schema import WriteSchema, reconcile

UTC = dt.UTC


def table(*fields: Any) -> Record:
    return from_arrow(pa.schema(list(fields)), name="t_record", namespace="hoodie.t")


def rows(made: WriteSchema, **columns: Any) -> list[dict[str, Any]]:
    kinds = {f.name: f.type for f in made.rows.source}
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values, kinds.get(name))
        for name, values in columns.items()
    }
    converted = made.rows.apply(pa.RecordBatch.from_pydict(arrays))
    assert converted.schema.equals(arrow_schema(made.record))
    converted.validate(full=True)
    return list(converted.to_pylist())


def one(have: pa.DataType, values: pa.Array) -> tuple[WriteSchema, list[Any]]:
    """A table with one column, and rows with one column of the same name."""
    made = reconcile(table(("c", have)), pa.schema([("c", values.type)]))
    return made, [r["c"] for r in rows(made, c=values)]


def test_rows_of_the_same_schema_pass_without_a_copy() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.list_(pa.field("element", pa.int64())))])
    made = reconcile(table(*schema), schema)
    batch = pa.RecordBatch.from_pydict({"a": ["x"], "b": [[1, None]]}, schema=schema)
    assert made.rows.apply(batch) is batch or made.rows.apply(batch).equals(batch)
    assert made.rows.apply(batch)["a"].buffers()[2].address == batch["a"].buffers()[2].address
    assert not made.changes_table and made.record == table(*schema)


def test_new_columns_come_last_and_are_nullable() -> None:
    before = table(pa.field("id", pa.string(), nullable=False), ("n", pa.int64()))
    incoming = pa.schema(
        [
            pa.field("first", pa.float64(), nullable=False),
            ("n", pa.int64()),
            ("id", pa.string()),
            ("s", pa.struct([("x", pa.decimal128(5, 2))])),
        ]
    )
    made = reconcile(before, incoming)
    assert [f.name for f in made.record.fields] == ["id", "n", "first", "s"]
    assert made.added == ("first", "s") and made.promoted == ()
    declared = json.loads(made.text)["fields"]
    assert declared[2] == {"name": "first", "type": ["null", "double"], "default": None}
    struct = declared[3]["type"][1]
    assert (struct["name"], struct["namespace"]) == ("s", "hoodie.t.t_record")
    assert struct["fields"][0]["type"][1]["namespace"] == "hoodie.t.t_record.s.x"
    got = rows(made, first=[1.5], n=[2], id=["k"], s=[{"x": Decimal("1.25")}])
    assert got == [{"id": "k", "n": 2, "first": 1.5, "s": {"x": Decimal("1.25")}}]


def test_names_and_namespaces_of_the_table_are_kept() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "triprec",
            "fields": [
                {
                    "name": "fare",
                    "type": {
                        "type": "record",
                        "name": "their_name",
                        "namespace": "other.place",
                        "fields": [{"name": "amount", "type": "int"}],
                    },
                },
                {"name": "note", "type": ["string", "null"]},
            ],
        }
    )
    before = parse_schema(text)
    assert isinstance(before, Record)
    incoming = pa.schema(
        [
            ("fare", pa.struct([("amount", pa.int64()), ("currency", pa.string())])),
            ("note", pa.string()),
        ]
    )
    made = reconcile(before, incoming)
    assert made.added == ("fare.currency",) and made.promoted == ("fare.amount",)
    stored = json.loads(made.text)
    assert stored["name"] == "triprec" and "namespace" not in stored
    fare = stored["fields"][0]["type"]
    assert (fare["name"], fare["namespace"]) == ("their_name", "other.place")
    assert [f["type"] for f in fare["fields"]] == ["long", ["null", "string"]]
    assert stored["fields"][1] == {"name": "note", "type": ["null", "string"], "default": None}


def test_missing_columns_are_null_where_the_table_allows_it() -> None:
    made = reconcile(table(("a", pa.int64()), ("b", pa.string())), pa.schema([("a", pa.int64())]))
    assert rows(made, a=[1, 2]) == [{"a": 1, "b": None}, {"a": 2, "b": None}]
    required = table(("a", pa.int64()), pa.field("b", pa.string(), nullable=False))
    with pytest.raises(SchemaError, match="lack column b"):
        reconcile(required, pa.schema([("a", pa.int64())]))
    nested = table(("s", pa.struct([("x", pa.int64()), ("y", pa.int64())])))
    made = reconcile(nested, pa.schema([("s", pa.struct([("y", pa.int64())]))]))
    assert rows(made, s=[{"y": 1}, None]) == [{"s": {"x": None, "y": 1}}, {"s": None}]
    strict = table(("s", pa.struct([pa.field("x", pa.int64(), nullable=False)])))
    with pytest.raises(SchemaError, match=r"s\.x"):
        reconcile(strict, pa.schema([("s", pa.struct([("y", pa.int64())]))]))


@pytest.mark.parametrize(
    ("have", "come", "after"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
    ],
)
def test_wider_rows_promote_the_column_at_every_level(
    have: pa.DataType, come: pa.DataType, after: pa.DataType
) -> None:
    def nested(kind: pa.DataType) -> pa.Schema:
        return pa.schema(
            [
                ("c", kind),
                ("s", pa.struct([("c", kind)])),
                ("l", pa.list_(pa.field("element", kind))),
                ("m", pa.map_(pa.string(), kind)),
            ]
        )

    made = reconcile(table(*nested(have)), nested(come))
    assert made.promoted == ("c", "s.c", "l.element", "m.value") and made.added == ()
    assert arrow_schema(made.record).equals(nested(after))


@pytest.mark.parametrize(
    ("have", "come"),
    [
        (pa.int64(), pa.int32()),
        (pa.float32(), pa.int32()),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(12, 2), pa.int32()),
    ],
)
def test_narrower_rows_are_widened(have: pa.DataType, come: pa.DataType) -> None:
    made, values = one(have, pa.array([1, None, 7], come))
    assert not made.changes_table
    assert values == [1, None, 7]


FLAVOURS: list[tuple[pa.DataType, pa.Array, list[Any] | None]] = [
    (pa.string(), pa.array(["a", None], pa.large_string()), ["a", None]),
    (pa.string(), pa.array(["a", None], pa.string_view()), ["a", None]),
    (pa.string(), pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    (pa.string(), pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), ["{}"]),
    (pa.string(), pa.array([b"a"], pa.binary()), ["a"]),
    (pa.binary(), pa.array(["\xe4"], pa.string()), ["\xe4".encode()]),
    (pa.binary(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    (pa.binary(), pa.array([b"ab"], pa.large_binary()), [b"ab"]),
    (pa.int32(), pa.array([-1, None], pa.int8()), [-1, None]),
    (pa.int32(), pa.array([65535], pa.uint16()), [65535]),
    (pa.int64(), pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    (pa.float32(), pa.array(np.array([1.5], np.float16)), [1.5]),
    (pa.date32(), pa.array([dt.date(1969, 5, 1)], pa.date64()), [dt.date(1969, 5, 1)]),
    (
        pa.timestamp("us", "UTC"),
        pa.array([1_000], pa.timestamp("ns", "Europe/Berlin")),
        [dt.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)],
    ),
    (
        pa.timestamp("us", "UTC"),
        pa.array([-1], pa.timestamp("s", "UTC")),
        [dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)],
    ),
    (
        pa.timestamp("ms", "UTC"),
        pa.array([5000], pa.timestamp("us", "UTC")),
        [dt.datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)],
    ),
    (pa.time64("us"), pa.array([3_000], pa.time64("ns")), [dt.time(0, 0, 0, 3)]),
    (pa.decimal128(9, 2), pa.array([Decimal("1.50")], pa.decimal256(40, 4)), None),
    (pa.decimal128(9, 2), pa.array([Decimal("1.50")], pa.decimal256(30, 4)), [Decimal("1.50")]),
    (pa.decimal128(9, 2), pa.array([Decimal("1.5")], pa.decimal128(2, 1)), [Decimal("1.50")]),
    (
        pa.list_(pa.field("element", pa.int64())),
        pa.array([[1], None], pa.large_list(pa.int32())),
        [[1], None],
    ),
    (
        pa.list_(pa.field("element", pa.int64())),
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        [[1, 2]],
    ),
    (pa.int64(), pa.nulls(2), [None, None]),
    (pa.struct([("x", pa.int64())]), pa.nulls(1), [None]),
]


@pytest.mark.parametrize(("have", "values", "expected"), FLAVOURS, ids=lambda v: str(v)[:40])
def test_arrow_flavours_are_stored_as_the_table_says(
    have: pa.DataType, values: pa.Array, expected: list[Any] | None
) -> None:
    if expected is None:
        with pytest.raises(SchemaError, match="Column c"):
            one(have, values)
        return
    made, got = one(have, values)
    assert got == expected and not made.changes_table


@pytest.mark.parametrize(
    ("have", "values"),
    [
        (pa.timestamp("us", "UTC"), pa.array([1_001], pa.timestamp("ns", "UTC"))),
        (pa.timestamp("ms", "UTC"), pa.array([5_001], pa.timestamp("us", "UTC"))),
        (pa.float64(), pa.array([2**53 + 1], pa.int64())),
        (pa.float32(), pa.array([2**24 + 1], pa.int32())),
        (pa.string(), pa.array([b"\xff"], pa.binary())),
        (pa.decimal128(4, 2), pa.array([100], pa.int32())),
        (pa.decimal128(4, 2), pa.array([Decimal("1.125")], pa.decimal128(5, 3))),
        (pa.decimal128(4, 2), pa.array([Decimal("123.4")], pa.decimal128(5, 1))),
        (pa.date32(), pa.array([1], pa.int64()).cast(pa.date64(), safe=False).view(pa.date64())),
    ],
    ids=lambda v: str(v)[:30],
)
def test_values_that_do_not_fit_are_refused_and_never_changed(
    have: pa.DataType, values: pa.Array
) -> None:
    with pytest.raises(InputError, match="column c"):
        one(have, values)


@pytest.mark.parametrize(
    ("have", "come"),
    [
        (pa.int32(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int32()),
        (pa.int32(), pa.bool_()),
        (pa.date32(), pa.int32()),
        (pa.date32(), pa.string()),
        (pa.int64(), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.int64()),
        (pa.int64(), pa.decimal128(5, 0)),
        (pa.decimal128(5, 2), pa.float64()),
        (pa.struct([("x", pa.int64())]), pa.int64()),
        (pa.int64(), pa.struct([("x", pa.int64())])),
        (pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.bool_())),
        (pa.int64(), pa.uint64()),
        (pa.int64(), pa.duration("s")),
    ],
    ids=str,
)
def test_incompatible_types_are_refused_before_any_row_is_seen(
    have: pa.DataType, come: pa.DataType
) -> None:
    with pytest.raises(SchemaError, match=r"Column c\b"):
        reconcile(table(("c", have)), pa.schema([("c", come)]))
    nested = pa.schema([("c", pa.struct([("x", come)]))])
    with pytest.raises(SchemaError, match=r"Column c\.x"):
        reconcile(table(("c", pa.struct([("x", have)]))), nested)


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
        pa.map_(pa.int32(), pa.string()),
        pa.struct([]),
        pa.null(),
        pa.list_(pa.null()),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.list_view(pa.int64()),
    ],
    ids=str,
)
def test_types_that_no_table_holds_cannot_be_added(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"[Cc]olumn new"):
        reconcile(table(("a", pa.int64())), pa.schema([("a", pa.int64()), ("new", kind)]))


@pytest.mark.parametrize("name", ["1st", "a b", "a.b", "größe", ""])
def test_names_that_avro_does_not_know_cannot_be_added(name: str) -> None:
    with pytest.raises(SchemaError, match="not a name in Avro"):
        reconcile(table(("a", pa.int64())), pa.schema([(name, pa.int64())]))
    with pytest.raises(SchemaError, match="not a name in Avro"):
        reconcile(table(("a", pa.int64())), pa.schema([("s", pa.struct([(name, pa.int64())]))]))


def test_columns_match_without_regard_to_case_and_twins_are_refused() -> None:
    made = reconcile(table(("userId", pa.int64())), pa.schema([("USERID", pa.int64())]))
    assert rows(made, USERID=[1]) == [{"userId": 1}]
    for names in (("a", "A"), ("a", "a")):
        with pytest.raises(SchemaError, match="cannot be told apart"):
            reconcile(table(("a", pa.int64())), pa.schema([(n, pa.int64()) for n in names]))


def test_nulls_are_refused_where_the_table_has_none() -> None:
    inner = pa.field("x", pa.int64(), nullable=False)
    element = pa.field("element", pa.int64(), nullable=False)
    before = table(
        pa.field("id", pa.string(), nullable=False),
        ("s", pa.struct([inner])),
        ("l", pa.list_(element)),
        ("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
    )
    loose = pa.schema(
        [
            ("id", pa.string()),
            ("s", pa.struct([("x", pa.int64())])),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    made = reconcile(before, loose)

    def batch(**values: Any) -> pa.RecordBatch:
        good = {"id": "k", "s": {"x": 1}, "l": [1], "m": [("a", 1)]}
        return pa.RecordBatch.from_pylist([good, {**good, **values}], schema=loose)

    assert made.rows.apply(batch(s=None, l=None, m=None)).num_rows == 2
    wrong: dict[str, dict[str, Any]] = {
        "id": {"id": None},
        "s.x": {"s": {"x": None}},
        "l.element": {"l": [1, None]},
        "m.value": {"m": [("a", None)]},
    }
    for path, values in wrong.items():
        with pytest.raises(InputError, match=f"Column {path} has 1 nulls"):
            made.rows.apply(batch(**values))
        sliced = batch(**values).slice(0, 1)
        assert made.rows.apply(sliced).num_rows == 1


def test_meta_columns_of_incoming_rows_are_ignored() -> None:
    before = with_meta_columns(table(("a", pa.int64())))
    incoming = pa.schema([("_hoodie_commit_time", pa.string()), ("a", pa.int64())])
    made = reconcile(before, incoming)
    assert [f.name for f in made.record.fields] == ["a"]
    assert rows(made, _hoodie_commit_time=["1"], a=[2]) == [{"a": 2}]


def test_batches_of_another_schema_than_the_first_are_refused() -> None:
    made = reconcile(table(("a", pa.int64())), pa.schema([("a", pa.int64())]))
    for other in ({"a": ["x"]}, {"b": [1]}):
        with pytest.raises(InputError, match="began with"):
            made.rows.apply(pa.RecordBatch.from_pydict(other))


def test_a_schema_on_read_history_is_refused() -> None:
    history = InternalSchemas((InternalSchema(1, 0, InternalRecord(())),))
    with pytest.raises(UnsupportedTableError, match="schema-on-read"):
        reconcile(table(("a", pa.int64())), pa.schema([("a", pa.int64())]), history=history)


LEAVES = [pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.date32()]


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(LEAVES), min_size=1),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(LEAVES), min_size=1),
)
def test_a_second_write_of_the_same_rows_changes_nothing(
    have: dict[str, pa.DataType], come: dict[str, pa.DataType]
) -> None:
    incoming = pa.schema(list(come.items()))
    try:
        made = reconcile(table(*have.items()), incoming)
    except SchemaError:
        return
    again = reconcile(made.record, incoming)
    assert again.record == made.record and not again.changes_table
    back = reconcile(made.record, pa.schema(list(have.items())))
    assert back.record == made.record
    names = [f.name for f in made.record.fields]
    assert names[: len(have)] == list(have) and set(names) == set(have) | set(come)
