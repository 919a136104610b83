"""Folder names of partitions, and what may be concluded from them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.keys import (
    DEFAULT_PARTITION,
    KeySpec,
    PartitionField,
    PartitionKind,
    escape,
    partition_path_values,
    unescape,
)


def _spec(*fields: str, kind: PartitionKind = PartitionKind.SIMPLE, **options: Any) -> KeySpec:
    generator = options.pop("generator", KeyGeneratorType.COMPLEX)
    parts = tuple(PartitionField(name, kind) for name in fields)
    return KeySpec(("id",), parts, generator, **options)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("2023-03-10 12:30:00", "2023-03-10 12%3A30%3A00"),
        (
            'a=b/c%d{e}[f]^"g"#h?i*j\\k\'l',
            "a%3Db%2Fc%25d%7Be}%5Bf%5D%5E%22g%22%23h%3Fi%2Aj%5Ck%27l",
        ),
        ("é ~+&", "é ~+&"),
        ("\x01\x7f\n", "%01%7F%0A"),
        ("", DEFAULT_PARTITION),
        (None, DEFAULT_PARTITION),
    ],
)
def test_values_are_escaped_as_hive_does(value: str | None, name: str) -> None:
    assert escape(value) == name


@given(st.text(min_size=1))
def test_unescaping_undoes_escaping(value: str) -> None:
    assert unescape(escape(value)) == value
    assert not set(escape(value)) & set("\"#'*/:=?\\{[]^")


@pytest.mark.parametrize("text", ["100%", "%", "%4", "%zz", "50%_off"])
def test_stray_percent_signs_stay(text: str) -> None:
    assert unescape(text) == text


def test_a_real_path_of_seven_fields_gives_its_values() -> None:
    path = (
        "part_str=electronics/part_int=2023/part_date=2023-03-10/part_bigint=10000000002/"
        "part_decimal=50.00/part_timestamp=2023-03-10 12%3A30%3A00/part_bool=false"
    )
    schema = pa.schema(
        {
            "part_str": pa.string(),
            "part_int": pa.int32(),
            "part_date": pa.date32(),
            "part_bigint": pa.int64(),
            "part_decimal": pa.decimal128(10, 2),
            "part_timestamp": pa.timestamp("us", "UTC"),
            "part_bool": pa.bool_(),
        }
    )
    certain = {
        "part_str": "electronics",
        "part_int": 2023,
        "part_date": date(2023, 3, 10),
        "part_bigint": 10000000002,
        "part_decimal": Decimal("50.00"),
        "part_bool": False,
    }
    assert partition_path_values(path, _spec(*schema.names, hive_style=True), schema) == certain
    dropped = _spec(*schema.names, hive_style=True, drops_partition_columns=True)
    moment = datetime(2023, 3, 10, 12, 30, tzinfo=UTC)
    assert partition_path_values(path, dropped, schema) == {**certain, "part_timestamp": moment}


def test_with_one_field_the_whole_path_is_the_value() -> None:
    schema = pa.schema({"day": pa.string()})
    assert partition_path_values("2018/08/31", _spec("day"), schema) == {"day": "2018/08/31"}


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        ("a/b/c", _spec("x", "y")),
        ("x=1/z=2", _spec("x", "y", hive_style=True)),
        ("1", _spec("x", hive_style=True)),
        ("p", _spec("x", generator=KeyGeneratorType.USER_PROVIDED)),
        ("p", _spec()),
    ],
)
def test_a_path_of_another_shape_says_nothing(path: str, spec: KeySpec) -> None:
    schema = pa.schema({"x": pa.int32(), "y": pa.int32()})
    assert partition_path_values(path, spec, schema) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "007"),
        (pa.int32(), "3000000000"),
        (pa.int32(), "1.0"),
        (pa.bool_(), "True"),
        (pa.date32(), "2024-1-2"),
        (pa.date32(), "2024-02-30"),
        (pa.decimal128(10, 2), "50.0"),
        (pa.decimal128(10, 2), "x"),
        (pa.float64(), "1"),
        (pa.float64(), "NaN"),
        (pa.timestamp("us", "UTC"), "1483023240000000"),
        (pa.binary(), "ff"),
    ],
)
def test_text_that_is_not_the_one_spelling_of_a_value_is_left_out(
    kind: pa.DataType, text: str
) -> None:
    assert partition_path_values(text, _spec("x"), pa.schema({"x": kind})) == {}


def test_formatted_times_never_stand_for_the_column() -> None:
    spec = _spec("at", kind=PartitionKind.TIMESTAMP)
    for kind in (pa.int64(), pa.string(), pa.date32()):
        assert partition_path_values("2024-01-17", spec, pa.schema({"at": kind})) == {}


def test_the_default_partition_is_null_only_where_it_cannot_be_empty_text() -> None:
    schema = pa.schema({"n": pa.int32(), "s": pa.string()})
    path = f"{DEFAULT_PARTITION}/{DEFAULT_PARTITION}"
    assert partition_path_values(path, _spec("n", "s"), schema) == {"n": None}
    dropped = _spec("n", "s", drops_partition_columns=True)
    assert partition_path_values(path, dropped, schema) == {"n": None, "s": None}


def test_escapes_are_undone_only_where_the_table_escapes() -> None:
    schema = pa.schema({"s": pa.string()})
    assert partition_path_values("a%2Fb", _spec("s"), schema) == {"s": "a%2Fb"}
    assert partition_path_values("a%2Fb", _spec("s", url_encode=True), schema) == {"s": "a/b"}


def test_slash_separated_dates_are_believed_only_without_a_stored_column() -> None:
    schema = pa.schema({"day": pa.string()})
    stored = _spec("day", slash_separated_dates=True)
    assert partition_path_values("2024/01/15", stored, schema) == {}
    dropped = _spec("day", slash_separated_dates=True, drops_partition_columns=True)
    assert partition_path_values("2024/01/15", dropped, schema) == {"day": "2024-01-15"}


def test_nested_partition_fields_are_typed_through_structs() -> None:
    schema = pa.schema({"a": pa.struct({"b": pa.int32()})})
    assert partition_path_values("5", _spec("a.b"), schema) == {"a.b": 5}
    assert partition_path_values("5", _spec("a.c"), schema) == {}
