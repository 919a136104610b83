"""Damaged bytes: a result or a clear error, quickly, and without more memory than they justify."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakewright.codec.avro.columns import decode_records
from lakewright.codec.avro.container import read_container, write_container
from lakewright.codec.avro.datum import read_datum
from lakewright.codec.avro.schema import parse_schema
from lakewright.errors import CorruptFileError, FormatError, SchemaError
from tests.codec.avro_cases import frame, oracle_encode, raw_values

EVERYTHING = json.dumps(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "key", "type": "string"},
            {"name": "flag", "type": ["null", "boolean"]},
            {"name": "small", "type": "int"},
            {"name": "large", "type": ["long", "null"]},
            {"name": "real", "type": ["null", "double"]},
            {"name": "blob", "type": ["null", "bytes"]},
            {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B", "C"]}},
            {"name": "hash", "type": {"type": "fixed", "name": "h", "size": 4}},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "points", "type": {"type": "array", "items": "float"}},
            {"name": "sizes", "type": ["null", {"type": "map", "values": "long"}]},
            {
                "name": "inner",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "in",
                        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
                    },
                ],
            },
            {
                "name": "any",
                "type": ["null", "string", "double", {"type": "array", "items": "int"}],
            },
        ],
    }
)


def _row(n: int) -> dict[str, Any]:
    return {
        "key": f"key-{n}",
        "flag": [None, True, False][n % 3],
        "small": (n * 7919) % 100_000 - 50_000,
        "large": None if n % 5 == 0 else (n * 2**40 - 2**60) // 3,
        "real": None if n % 4 == 0 else n / 7,
        "blob": None if n % 3 else bytes([n % 256]) * (n % 9),
        "kind": "ABC"[n % 3],
        "hash": bytes([n % 256] * 4),
        "tags": [None if k % 2 else f"t{k}" for k in range(n % 4)],
        "points": [float(k) for k in range(n % 3)],
        "sizes": None if n % 4 == 1 else {f"m{k}": n * k for k in range(n % 3)},
        "inner": None if n % 2 else {"a": n, "b": "ü" * (n % 3)},
        "any": [None, "text", 1.5, [1, 2, 3]][n % 4],
    }


ROWS = 128  # more than the lanes below which arrays are walked one by one


def _mutated(payload: bytes, starts: np.ndarray, ends: np.ndarray, seed: int) -> tuple[bytes, int]:
    """Some bytes of one record replaced, flipped, or filled with ones; the record's number."""
    random = np.random.default_rng(seed)
    damaged = bytearray(payload)
    record = int(random.integers(len(starts)))
    size = int(ends[record] - starts[record])
    for _ in range(int(random.integers(1, 4))):
        at = int(starts[record]) + int(random.integers(size))
        kind = int(random.integers(4))
        if kind == 0:
            damaged[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            damaged[at] = int(random.integers(256))
        elif kind == 2:
            until = min(at + int(random.integers(1, 12)), int(ends[record]))
            damaged[at:until] = b"\xff" * (until - at)
        else:
            damaged[at] = int(random.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFE]))
    return bytes(damaged), record


def _alone(body: bytes) -> dict[str, Any] | None:
    """One record by the other decoder of this package; None when it is damaged."""
    try:
        row, behind = read_datum(body, parse_schema(EVERYTHING))
    except CorruptFileError:
        return None
    return dict(row) if behind == len(body) else None


@pytest.mark.parametrize(("rows", "seeds"), [(ROWS, range(500)), (3, range(2000, 3000))])
def test_a_damaged_payload_is_read_as_the_scalar_decoder_reads_it_or_refused(
    rows: int, seeds: range
) -> None:
    schema = parse_schema(EVERYTHING)
    bodies = oracle_encode(EVERYTHING, [_row(n) for n in range(rows)])
    payload, starts, ends = frame(bodies)
    refused = 0
    for seed in seeds:
        damaged, record = _mutated(payload, starts, ends, seed)
        expected = _alone(damaged[starts[record] : ends[record]])
        if expected is None:
            with pytest.raises(CorruptFileError) as caught:
                decode_records(damaged, starts, ends, schema, path="x.log")
            refused += 1
            assert caught.value.context["path"] == "x.log"
            assert caught.value.context["record"] == record
            continue
        batch = decode_records(damaged, starts, ends, schema, path="x.log")
        for field in schema.fields:
            value = raw_values(batch.column(field.name).slice(record, 1), field.type)[0]
            assert repr(value) == repr(expected[field.name]), (seed, field.name)
    assert refused > len(seeds) // 3


def test_a_damaged_long_array_is_read_as_the_scalar_decoder_reads_it_or_refused() -> None:
    fields = [{"name": f, "type": ["null", "string", "long"]} for f in "abc"]
    items = {"type": "array", "items": {"type": "record", "name": "i", "fields": fields}}
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": items}]})
    schema = parse_schema(text)
    values = [
        {"a": None, "b": "some text", "c": 5},
        {"a": "", "b": -(2**40), "c": None},
    ] * 10_000
    payload, starts, ends = frame(oracle_encode(text, [{"c": values}]))
    for seed in range(15):
        damaged, _ = _mutated(payload, starts, ends, seed)
        try:
            expected = read_datum(damaged[starts[0] :], schema)[0]["c"]
        except CorruptFileError:
            with pytest.raises(CorruptFileError):
                decode_records(damaged, starts, ends, schema)
            continue
        if read_datum(damaged[starts[0] :], schema)[1] == ends[0] - starts[0]:
            got = decode_records(damaged, starts, ends, schema).column(0)
            assert raw_values(got, schema.fields[0].type)[0] == expected


def test_a_damaged_payload_under_a_projection_ends_quickly() -> None:
    schema = parse_schema(EVERYTHING)
    payload, starts, ends = frame(oracle_encode(EVERYTHING, [_row(n) for n in range(ROWS)]))
    for seed in range(300):
        damaged, _ = _mutated(payload, starts, ends, seed)
        try:
            decode_records(damaged, starts, ends, schema, columns=["key", "any"])
        except CorruptFileError:
            continue


@pytest.mark.parametrize("lanes", [1, 500])
@pytest.mark.parametrize(
    ("schema", "body", "what"),
    [
        ("long", b"\xff" * 11, "64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "64 bits"),
        ("long", b"\x80", "behind the end"),
        ("int", b"\x80\x80\x80\x80\x10", "32 bits"),
        ("string", b"\x01", "negative"),
        ("string", b"\x06ab", "behind the end"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "behind the end"),
        ("string", b"\x04\xc3\x28", "UTF-8"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("double", b"\x00" * 7, "behind the end"),
        (["null", "long"], b"\x04", "branch"),
        (["null", "long"], b"\x01", "branch"),
        (["null", "string", "int"], b"\x06", "branch"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", "symbol"),
        ({"type": "fixed", "name": "f", "size": 40}, b"\x00" * 39, "behind the end"),
        ({"type": "array", "items": "long"}, b"\x02", "fit"),
        ({"type": "array", "items": "long"}, b"\x02\x00", "behind the end"),
        ({"type": "array", "items": "long"}, b"\x80\x80\x80\x80\x80\x80\x80\x80\x02", "fit"),
        ({"type": "array", "items": "long"}, b"\xff" * 9 + b"\x01\x00\x00", "fit"),
        ({"type": "array", "items": "string"}, b"\x01\x06\x02a\x00", "byte size"),
        ({"type": "array", "items": "string"}, b"\x01\x7e\x02a\x00", "record"),
        ({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x80\x80\x80\x02\x00", "fit"),
        ({"type": "map", "values": "null"}, b"\xfe\xff\xff\xff\x0f\x00", "fit"),
        ("null", b"\x00", "longer"),
    ],
)
def test_each_kind_of_damage_is_named(schema: Any, body: bytes, what: str, lanes: int) -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": schema}]})
    with pytest.raises(CorruptFileError, match=what) as caught:
        decode_records(*frame([body] * lanes), parse_schema(text), path="a/b.log")
    assert caught.value.context["path"] == "a/b.log"
    assert caught.value.context["record"] == 0


def test_the_bad_record_is_named_by_its_number() -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": "string"}]})
    bodies = [b"\x02a"] * 20_000
    bodies[17_000] = b"\x02\xff"
    with pytest.raises(CorruptFileError, match="17000") as caught:
        decode_records(*frame(bodies), parse_schema(text))
    assert caught.value.context["offset"] == 17_000 * 6 + 4
    assert "column 'c'" in caught.value.message


def test_offsets_are_those_of_the_payload_even_for_frames_far_apart() -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": "string"}]})
    payload = b"\x02a" + bytes(3 << 20) + b"\x02\xff"
    starts, ends = np.array([0, len(payload) - 2]), np.array([2, len(payload)])
    with pytest.raises(CorruptFileError) as caught:
        decode_records(payload, starts, ends, parse_schema(text))
    assert caught.value.context["record"] == 1
    assert caught.value.context["offset"] == len(payload) - 2


def test_frames_outside_the_payload_are_refused() -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": []})
    for start, end in ((-1, 0), (0, 2), (1, 0)):
        with pytest.raises(CorruptFileError):
            decode_records(b"x", np.array([start]), np.array([end]), parse_schema(text))
    with pytest.raises(FormatError):
        decode_records(b"x", np.array([0, 0]), np.array([0]), parse_schema(text))


@pytest.mark.parametrize("lanes", [1, 2000])
def test_a_few_bytes_cannot_ask_for_much_memory(lanes: int) -> None:
    nulls = {"type": "array", "items": {"type": "array", "items": "null"}}
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": nulls}]})
    body = (b"\x02" + b"\xfe\xff\x03\x00") * 30 + b"\x00"
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        with pytest.raises(CorruptFileError):
            decode_records(*frame([body] * lanes), parse_schema(text))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000 + lanes * len(body) * 500
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_damaged_container_is_read_or_refused() -> None:
    good = write_container(EVERYTHING, [_row(n) for n in range(4)], sync=bytes(range(16)))
    random = np.random.default_rng(5)
    refused = []
    for _ in range(1500):
        damaged = bytearray(good)
        for _ in range(int(random.integers(1, 4))):
            damaged[int(random.integers(len(good)))] = int(random.integers(256))
        try:
            read_container(bytes(damaged), path="x")
        except FormatError as error:
            refused.append(error.context["path"])
    assert set(refused) == {"x"}
    for size in range(len(good)):
        if size in (0, len(good)):
            continue
        try:
            read_container(good[:size], path="x")
        except (CorruptFileError, SchemaError):
            continue
        assert size == good.index(bytes(range(16))) + 16  # a file without blocks is whole
