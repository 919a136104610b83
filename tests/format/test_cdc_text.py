"""Images as text: to the letter what Hudi printed, and always the values themselves.

The texts of `HUDI` are what Hudi 0.15.0 (hash order, Avro) and 1.2.0 (table order) answered to
change queries.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.codec.avro.arrow_types import from_arrow
from lakewright.format.cdc_text import record_texts, row_texts, scala_map_order

FLAT = pa.schema(
    [
        ("id", pa.string()),
        ("sub", pa.int32()),
        ("region", pa.string()),
        ("day", pa.string()),
        ("at_ms", pa.int64()),
        ("ts", pa.int64()),
        ("b", pa.bool_()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("dt", pa.date32()),
        ("tm", pa.timestamp("us", "UTC")),
    ]
)
ROW: dict[str, Any] = {
    "id": "k01",
    "sub": 1,
    "region": "south",
    "day": "2024-02-01",
    "at_ms": 1706659200001,
    "ts": 100,
    "b": False,
    "i32": -2147483646,
    "i64": -9223372036854775806,
    "f": -1.1,
    "d": -5.5e299,
    "s": "z'\"\\|0",
    "bin": b"\x00",
    "dt": date(1970, 12, 11),
    "tm": -113011258998999,
}
META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]


def rows(*values: dict[str, Any], schema: pa.Schema = FLAT) -> pa.StructArray:
    return pa.RecordBatch.from_pylist(list(values), schema).to_struct_array()


def avro(schema: pa.Schema) -> Any:
    return from_arrow(schema, name="t", namespace="n")


def test_columns_come_in_the_order_that_hudi_prints() -> None:
    names = [
        *META,
        *["id", "sub", "region", "day", "at_ms", "ts", "name", "amount", "pieces", "flag"],
    ]
    wanted = [
        "at_ms",
        *META[2:],
        "_hoodie_commit_seqno",
        *["region", "sub", "amount", "flag", "name"],
        "_hoodie_commit_time",
        *["ts", "pieces", "day", "id"],
    ]
    assert [names[i] for i in scala_map_order(names)] == wanted


def test_columns_come_in_the_order_that_hudi_prints_after_the_map_has_grown() -> None:
    columns = "id sub region day at_ms ts b i8 i16 i32 i64 f d s bin dec big dt tm"
    names = [*META, *columns.split()]
    printed = (
        "at_ms _hoodie_record_key _hoodie_partition_path b i64 i16 _hoodie_file_name "
        "_hoodie_commit_seqno s region sub bin d dt i8 _hoodie_commit_time big f dec i32 ts tm "
        "day id"
    )
    assert [names[i] for i in scala_map_order(names)] == printed.split()


def test_a_row_is_printed_as_spark_rows_are() -> None:
    printed = (
        '{"id":"k01","sub":1,"region":"south","day":"2024-02-01","at_ms":1706659200001,"ts":100,'
        '"b":false,"i32":-2147483646,"i64":-9223372036854775806,"f":-1.1,"d":-5.5E299,'
        '"s":"z\'\\"\\\\|0","bin":"AA==","dt":344,"tm":-113011258998999}'
    )
    assert row_texts(rows(ROW), hash_order=False).to_pylist() == [printed]


def test_a_row_is_printed_as_avro_records_are() -> None:
    printed = (
        '{"id": "k01", "sub": 1, "region": "south", "day": "2024-02-01", "at_ms": 1706659200001, '
        '"ts": 100, "b": false, "i32": -2147483646, "i64": -9223372036854775806, "f": -1.1, '
        '"d": -5.5E299, "s": "z\'\\"\\\\|0", "bin": "\\u0000", "dt": 344, "tm": -113011258998999}'
    )
    assert record_texts(rows(ROW), avro(FLAT)).to_pylist() == [printed]


def test_decimals_are_bytes_in_avro_records_and_numbers_in_rows() -> None:
    schema = pa.schema([("dec", pa.decimal128(10, 2)), ("big", pa.decimal128(30, 10))])
    values = {"dec": Decimal("-99999998.01"), "big": Decimal("-12345678901234567889.0000000001")}
    image = rows(values, schema=schema)
    assert record_texts(image, avro(schema)).to_pylist() == [
        '{"dec": [-3, -85, -12, 28, -57], '
        '"big": [-2, 113, 22, -16, 9, 60, -116, 31, 20, 79, 98, -37, -1]}'
    ]
    assert row_texts(image, hash_order=False).to_pylist() == [
        '{"dec":-99999998.01,"big":-12345678901234567889.0000000001}'
    ]


def test_nested_columns_are_printed_as_hudi_1_2_does() -> None:
    schema = pa.schema(
        [
            ("st", pa.struct([("a", pa.int32()), ("c", pa.struct([("y", pa.list_(pa.int32()))]))])),
            ("m", pa.map_(pa.string(), pa.struct([("u", pa.string())]))),
            ("aa", pa.list_(pa.list_(pa.string()))),
        ]
    )
    image = rows(
        {"st": {"a": 3, "c": None}, "m": [("ä", {"u": "u0"})], "aa": [["x", None], []]},
        {"st": {"a": None, "c": {"y": [0]}}, "m": [], "aa": None},
        schema=schema,
    )
    assert row_texts(image, hash_order=False).to_pylist() == [
        '{"st":{"a":3},"m":{"ä":{"u":"u0"}},"aa":[["x",null],[]]}',
        '{"st":{"c":{"y":[0]}},"m":{}}',
    ]
    assert record_texts(image, avro(schema)).to_pylist() == [
        '{"st": {"a": 3, "c": null}, "m": {"ä": {"u": "u0"}}, "aa": [["x", null], []]}',
        '{"st": {"a": null, "c": {"y": [0]}}, "m": {}, "aa": null}',
    ]


def test_a_missing_image_has_no_text() -> None:
    image = rows(ROW).take(pa.array([0, None]))
    assert row_texts(image, hash_order=True).is_null().to_pylist() == [False, True]
    assert record_texts(image, avro(FLAT)).is_null().to_pylist() == [False, True]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_json_number_is_quoted(value: float) -> None:
    schema = pa.schema([("d", pa.float64())])
    word = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    assert row_texts(rows({"d": value}, schema=schema), hash_order=False)[0].as_py() == (
        f'{{"d":"{word}"}}'
    )


VALUES = st.fixed_dictionaries(
    {
        "t": st.none() | st.text(max_size=6),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "b": st.none() | st.binary(max_size=4),
        "l": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "s": st.none() | st.fixed_dictionaries({"x": st.none() | st.booleans()}),
        "m": st.none()
        | st.lists(
            st.tuples(st.text(max_size=3), st.integers(0, 9)), max_size=3, unique_by=lambda p: p[0]
        ),
    }
)
KINDS = pa.schema(
    [
        ("t", pa.string()),
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("b", pa.binary()),
        ("l", pa.list_(pa.string())),
        ("s", pa.struct([("x", pa.bool_())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)


def plain(value: dict[str, Any], binary: Any) -> dict[str, Any]:
    """What the printed text must parse to."""
    whole = {**value, "b": None if value["b"] is None else binary(value["b"])}
    return {**whole, "m": None if value["m"] is None else dict(value["m"])}


@given(st.lists(VALUES, min_size=1, max_size=4), st.booleans())
def test_printed_rows_parse_to_their_values_without_nulls(
    values: list[dict[str, Any]], hashed: bool
) -> None:
    for text, value in zip(
        row_texts(rows(*values, schema=KINDS), hash_order=hashed).to_pylist(), values, strict=True
    ):
        whole = plain(value, lambda b: base64.b64encode(b).decode())
        wanted = {k: v for k, v in whole.items() if v is not None}
        if wanted.get("s") == {"x": None}:
            wanted["s"] = {}
        assert json.loads(text) == wanted


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_printed_records_parse_to_their_values(values: list[dict[str, Any]]) -> None:
    image = rows(*values, schema=KINDS)
    texts = record_texts(image, avro(KINDS)).to_pylist()
    assert [json.loads(t) for t in texts] == [
        plain(v, lambda b: b.decode("latin-1")) for v in values
    ]
