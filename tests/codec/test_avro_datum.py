"""Single values and container files."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.avro.container import read_container, write_container
from lakewright.codec.avro.datum import Branch, read_datum, write_datum
from lakewright.codec.avro.schema import parse_schema
from lakewright.errors import CorruptFileError, FormatError, SchemaError
from tests.codec.avro_cases import Case, cases, oracle_decode, without_logical

SYNC = bytes(range(100, 116))


def parse(node: Any) -> Any:
    return parse_schema(json.dumps(node))


@given(cases(depth=3))
@settings(max_examples=25, deadline=None)
def test_values_agree_with_the_oracle_both_ways(case: Case) -> None:
    schema = parse_schema(case.text)
    for row, body in list(zip(case.rows, case.bodies, strict=True))[:8]:
        assert read_datum(b"?" + body + b"!", schema, 1) == (row, 1 + len(body))
        assert write_datum(row, schema) == body


@given(cases(depth=2), st.sampled_from(["null", "deflate"]), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_files_of_the_oracle_are_read(case: Case, codec: str, interval: int) -> None:
    out = io.BytesIO()
    schema = fastavro.parse_schema(without_logical(json.loads(case.text)))
    rows = case.rows[:20]
    fastavro.writer(out, schema, rows, codec=codec, sync_interval=interval, sync_marker=SYNC)
    got = read_container(out.getvalue(), path="x")
    assert got.records == rows
    assert (got.codec, got.sync) == (codec, SYNC)


@given(cases(depth=2))
@settings(max_examples=15, deadline=None)
def test_the_oracle_reads_our_files(case: Case) -> None:
    rows = case.rows[:20]
    text = json.dumps(without_logical(json.loads(case.text)))
    data = write_container(text, rows, sync=SYNC)
    assert list(fastavro.reader(io.BytesIO(data))) == oracle_decode(text, case.bodies[:20])
    again = read_container(data, path="x")
    assert again.records == rows and again.schema_json == text


def test_a_file_has_the_one_shape_that_hudi_writes() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
    data = write_container(text, [{"a": 1}], sync=SYNC)
    key = b"\x02\x16avro.schema"
    assert data == (
        b"Obj\x01" + key + b"\x82\x01" + text.encode() + b"\x00" + SYNC + b"\x02\x02\x02" + SYNC
    )
    empty = write_container(text, [], sync=SYNC)
    assert empty == data[: -(3 + 16)]
    assert read_container(empty, path="x").records == []


def test_unions_take_the_branch_that_fits_or_the_named_one() -> None:
    schema = parse(["null", "int", "long", "float", "double", "string", "bytes", "boolean"])
    for value, branch in [
        (None, 0),
        (5, 1),
        (2**40, 2),
        (1.5, 4),
        ("a", 5),
        (b"a", 6),
        (True, 7),
        (Branch(2, 5), 2),
        (Branch(3, 1.5), 3),
    ]:
        data = write_datum(value, schema)
        assert data[0] == 2 * branch
        plain = value.value if isinstance(value, Branch) else value
        assert read_datum(data, schema) == (plain, len(data))
    with pytest.raises(SchemaError, match="fits no branch"):
        write_datum([1], schema)
    with pytest.raises(SchemaError, match="no union branch"):
        write_datum(Branch(8, 1), schema)


def test_missing_fields_take_their_default() -> None:
    schema = parse(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "a", "type": ["int", "null"], "default": 7},
                {"name": "b", "type": "bytes", "default": "\u00ff"},
                {"name": "c", "type": {"type": "map", "values": "bytes"}, "default": {"k": "x"}},
                {"name": "d", "type": "long"},
            ],
        }
    )
    data = write_datum({"d": 1}, schema)
    assert read_datum(data, schema)[0] == {"a": 7, "b": b"\xff", "c": {"k": b"x"}, "d": 1}
    with pytest.raises(SchemaError, match="needs the field 'd'"):
        write_datum({"a": 1}, schema)
    with pytest.raises(SchemaError, match="no field e"):
        write_datum({"d": 1, "e": 2}, schema)


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ("null", 0),
        ("boolean", 1),
        ("int", 2**31),
        ("int", True),
        ("long", 2**63),
        ("long", 1.0),
        ("float", "x"),
        ("float", 1e300),
        ("bytes", "text"),
        ("string", b"bytes"),
        ("string", "\ud800"),
        ({"type": "fixed", "name": "f", "size": 2}, b"abc"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, "text"),
        ({"type": "map", "values": "int"}, [1]),
        ({"type": "record", "name": "r", "fields": []}, 5),
    ],
)
def test_values_that_do_not_fit_are_refused(node: Any, value: Any) -> None:
    with pytest.raises(SchemaError):
        write_datum(value, parse(node))


def test_damage_names_its_offset() -> None:
    with pytest.raises(CorruptFileError, match="negative") as caught:
        read_datum(b"\x02\x01", parse(["null", "string"]))
    assert caught.value.context == {"offset": 1}
    array = parse({"type": "array", "items": "null"})
    with pytest.raises(CorruptFileError, match="without bytes"):
        read_datum(b"\xfe\xff\xff\xff\xff\xff\x01\x00", array)


def test_containers_with_wrong_markers_counts_or_codecs_are_refused() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
    good = write_container(text, [{"a": 1}], sync=SYNC)
    body = len(good) - 16 - 3
    cases_of_damage = {
        "magic": b"Obj\x02" + good[4:],
        "sync marker": good[:-1] + b"?",
        "claims 40 records": good[:body] + b"\x50\x02\x02" + SYNC,
        "longer than its records": good[:body] + b"\x02\x04\x02\x02" + SYNC,
        "does not fit the file": good[:body] + b"\x02\x7e\x02" + SYNC,
    }
    for what, data in cases_of_damage.items():
        with pytest.raises(CorruptFileError, match=what) as caught:
            read_container(data, path="t/x.commit")
        assert caught.value.context["path"] == "t/x.commit"
    header = b"\x02\x14avro.codec\x0csnappy"
    with pytest.raises(FormatError, match="snappy"):
        read_container(good[:4] + header + good[4:], path="x")
    bomb = zlib.compress(bytes(1000), 9, -15)[:-3]
    header = b"\x02\x14avro.codec\x0edeflate"
    cut = good[:4] + header + good[4:body] + b"\x02" + bytes([2 * len(bomb)]) + bomb + SYNC
    with pytest.raises(CorruptFileError, match="cut"):
        read_container(cut, path="x")
    with pytest.raises(FormatError, match="16"):
        write_container(text, [], sync=b"short")
