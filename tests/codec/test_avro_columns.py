"""Records to columns and back, against an independent encoder and decoder."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.codec.avro.chains import item_starts
from lakewright.codec.avro.columns import decode_batches, decode_records, encode_records
from lakewright.codec.avro.cursor import PADDING, Chunk
from lakewright.codec.avro.decode import reader_for
from lakewright.codec.avro.scalar import skipper
from lakewright.codec.avro.schema import parse_schema
from lakewright.errors import CorruptFileError, SchemaError
from tests.codec.avro_cases import Case, cases, frame, oracle_decode, oracle_encode, raw_values


def record_of(*types: Any) -> str:
    fields = [{"name": f"c{n}", "type": t} for n, t in enumerate(types)]
    return json.dumps({"type": "record", "name": "row", "fields": fields})


def rows_of(batch: pa.RecordBatch, text: str) -> list[dict[str, Any]]:
    schema = parse_schema(text)
    columns = {f.name: raw_values(batch.column(f.name), f.type) for f in schema.fields}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@given(cases())
@settings(max_examples=50, deadline=None)
def test_decoding_and_encoding_agree_with_the_oracle_for_any_schema(case: Case) -> None:
    schema = parse_schema(case.text)
    batch = decode_records(*case.frames, schema)
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(schema))
    assert rows_of(batch, case.text) == oracle_decode(case.text, case.bodies)
    payload, offsets = encode_records(batch, schema)
    assert payload == b"".join(case.bodies)
    assert np.diff(offsets).tolist() == [len(body) for body in case.bodies]


@given(cases(depth=2, fields=7), st.data())
@settings(max_examples=25, deadline=None)
def test_a_projection_equals_the_columns_of_a_full_decode(case: Case, data: st.DataObject) -> None:
    schema = parse_schema(case.text)
    whole = decode_records(*case.frames, schema)
    wanted = data.draw(st.sets(st.sampled_from(whole.schema.names)))
    part = decode_records(*case.frames, schema, columns=wanted)
    assert part.num_rows == whole.num_rows
    names = [name for name in whole.schema.names if name in wanted]
    assert part.schema.names == names
    for name in names:
        assert part.column(name).equals(whole.column(name))


@given(cases(depth=2), st.integers(1, 50))
@settings(max_examples=15, deadline=None)
def test_a_slice_encodes_as_the_same_rows(case: Case, start: int) -> None:
    schema = parse_schema(case.text)
    batch = decode_records(*case.frames, schema).slice(start)
    payload, _ = encode_records(batch, schema)
    assert payload == b"".join(case.bodies[start:])


def test_logical_types_become_typed_values() -> None:
    text = record_of(
        {"type": "int", "logicalType": "date"},
        {"type": "int", "logicalType": "time-millis"},
        {"type": "long", "logicalType": "time-micros"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
        {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2},
        {"type": "fixed", "name": "d", "size": 5, "logicalType": "decimal", "precision": 10},
    )
    row = {
        "c0": 19_000,
        "c1": 1,
        "c2": 2,
        "c3": 1_700_000_000_001,
        "c4": 1_700_000_000_000_001,
        "c5": 5,
        "c6": b"\xff\x38",
        "c7": b"\x00\x00\x00\x00\x07",
    }
    batch = decode_records(*frame(oracle_encode(text, [row])), parse_schema(text))
    assert batch.to_pylist() == [
        {
            "c0": date(2022, 1, 8),
            "c1": time(0, 0, 0, 1000),
            "c2": time(0, 0, 0, 2),
            "c3": datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC),
            "c4": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC),
            "c5": datetime(1970, 1, 1, 0, 0, 0, 5),
            "c6": Decimal("-2.00"),
            "c7": Decimal("7"),
        }
    ]


def test_unions_of_numbers_are_read_as_the_wider_one() -> None:
    text = record_of(["int", "null", "long"], ["float", "double"])
    rows = [
        {"c0": 1, "c1": 0.1},
        {"c0": 2**40, "c1": 2.0},
        {"c0": None, "c1": -1.5},
    ]
    schema = parse_schema(text)
    batch = decode_records(*frame(oracle_encode(text, rows)), schema)
    assert batch.schema.types == [pa.int64(), pa.float64()]
    assert batch.column(0).to_pylist() == [1, 2**40, None]
    again = decode_records(*_framed(*encode_records(batch, schema)), schema)
    assert again.equals(batch)


def _framed(payload: bytes, offsets: np.ndarray) -> tuple[bytes, np.ndarray, np.ndarray]:
    return payload, offsets[:-1], offsets[1:]


@given(
    st.lists(st.lists(st.text(max_size=3), max_size=9), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 200]),
)
@settings(max_examples=50, deadline=None)
def test_arrays_may_come_in_any_blocks(lists: list[list[str]], random: Any, times: int) -> None:
    text = record_of({"type": "array", "items": "string"}, "long")
    bodies = [_in_blocks(values, random) + b"\x0e" for values in lists] * times
    batch = decode_records(*frame(bodies), parse_schema(text))
    assert batch.column(0).to_pylist() == lists * times
    assert batch.column(1).to_pylist() == [7] * len(bodies)
    tail = decode_records(*frame(bodies), parse_schema(text), columns=["c1"])
    assert tail.column(0).to_pylist() == [7] * len(bodies)


def _in_blocks(values: list[str], random: Any) -> bytes:
    """Random blocks, some with a negative count and the byte size."""
    out = bytearray()
    while values:
        count = random.randint(1, len(values))
        body = b"".join(_long(len(v.encode())) + v.encode() for v in values[:count])
        told = random.random() < 0.5
        out += (_long(-count) + _long(len(body)) if told else _long(count)) + body
        values = values[count:]
    return bytes(out) + b"\x00"


def _long(value: int) -> bytes:
    return oracle_encode('"long"', [value])[0]


def test_one_record_with_a_long_array_and_many_records_with_short_ones_agree() -> None:
    text = record_of({"type": "array", "items": ["null", "string", "long"]})
    values = [None, "a", 5, "é" * 40, -(2**63)] * 4000
    long = decode_records(*frame(oracle_encode(text, [{"c0": values}])), parse_schema(text))
    rows = [{"c0": values[n : n + 5]} for n in range(0, len(values), 5)]
    short = decode_records(*frame(oracle_encode(text, rows)), parse_schema(text))
    assert long.column(0).flatten().equals(short.column(0).flatten())


@pytest.mark.parametrize(
    "items",
    [
        "string",
        "bytes",
        "long",
        ["null", "bytes", "long", "boolean"],
        {"type": "fixed", "name": "f", "size": 3},
        {
            "type": "record",
            "name": "i",
            "fields": [
                {"name": "k", "type": ["null", "string"]},
                {"name": "o", "type": ["null", "long", {"type": "fixed", "name": "f", "size": 2}]},
            ],
        },
    ],
    ids=str,
)
def test_items_are_found_whatever_their_bytes_look_like(items: Any) -> None:
    schema = parse_schema(json.dumps(items))
    for seed in range(4):
        bodies = oracle_encode(json.dumps(items), _misleading(items, 4000, Random(seed)))
        ends = np.cumsum([len(body) for body in bodies]).tolist()
        data = np.frombuffer(b"".join(bodies) + bytes(PADDING + 50), np.uint8)
        chunk = Chunk(data, base=0, first=0, path="")
        frame_end = ends[-1] + 50  # something else follows the array
        found, behind = item_starts(
            reader_for(schema), skipper(schema), chunk, 0, frame_end, len(bodies)
        )
        assert found == [0, *ends[:-1]]
        assert behind == ends[-1]


def test_long_arrays_and_maps_in_a_few_records_agree_with_the_oracle() -> None:
    entry = {"type": "record", "name": "e", "fields": [{"name": "n", "type": ["null", "long"]}]}
    entry["fields"] += [{"name": f, "type": ["null", "string"]} for f in "ab"]
    values = [
        {"n": n * n if n % 7 else None, "a": f"key-{n}" * (n % 3), "b": None} for n in range(20_000)
    ]
    keyed = {f"file-{n}": value for n, value in enumerate(values)}
    for outer, whole in (
        ({"type": "array", "items": entry}, values),
        ({"type": "map", "values": entry}, keyed),
    ):
        text = record_of(outer, "int")
        bodies = oracle_encode(text, [{"c0": whole, "c1": 1}, {"c0": whole, "c1": 3}])
        schema = parse_schema(text)
        batch = decode_records(*frame(bodies), schema)
        assert rows_of(batch, text) == oracle_decode(text, bodies)
        assert encode_records(batch, schema)[0] == b"".join(bodies)
        tail = decode_records(*frame(bodies), schema, columns=["c1"])
        assert tail.column(0).to_pylist() == [1, 3]


def _misleading(items: Any, count: int, random: Random) -> list[Any]:
    """Values of very different sizes whose bytes look like items themselves."""

    def binary() -> bytes:
        size = random.choice([0, 1, 3, 40, 200])
        if random.random() < 0.5:
            return bytes(random.choices([0, 2, 4], k=size))
        return bytes([random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])]) * size

    def number() -> int:
        return random.randint(-(2 ** random.randint(1, 63)), 70)

    def one() -> Any:
        if items == "string":
            return binary().decode("latin-1")
        if items == "bytes":
            return binary()
        if items == "long":
            return number()
        if isinstance(items, list):
            return random.choice([None, binary(), number(), True])
        if items["type"] == "fixed":
            return bytes(random.choices([0, 1, 2], k=3))
        key = None if random.random() < 0.3 else binary().decode("latin-1")
        return {"k": key, "o": random.choice([None, number(), b"\x02\x02"])}

    return [one() for _ in range(count)]


def test_more_records_than_a_chunk_are_joined() -> None:
    text = record_of("string", ["null", "long"], {"type": "map", "values": "int"})
    rows = [
        {"c0": f"k{n}", "c1": n if n % 3 else None, "c2": {"a": n} if n % 2 else {}}
        for n in range(20_000)
    ]
    frames = frame(oracle_encode(text, rows))
    schema = parse_schema(text)
    batch = decode_records(*frames, schema)
    assert batch.num_rows == len(rows)
    assert batch.column(0).to_pylist() == [row["c0"] for row in rows]
    assert batch.column(1).to_pylist() == [row["c1"] for row in rows]
    parts = list(decode_batches(*frames, schema))
    assert len(parts) > 1
    assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(batch)
    assert encode_records(batch, schema)[0] == b"".join(oracle_encode(text, rows))


def test_payloads_beyond_two_gibibytes_are_decoded() -> None:
    text = record_of("string", {"type": "array", "items": "string"})
    rows = [{"c0": f"k{n}", "c1": ["a", "b" * n]} for n in range(200)]
    payload, starts, ends = frame(oracle_encode(text, rows))
    far = (1 << 31) + 12_345
    data = np.zeros(far + len(payload), np.uint8)  # pages that nobody touches cost nothing
    data[:50] = np.frombuffer(payload, np.uint8)[:50]
    data[far:] = np.frombuffer(payload, np.uint8)
    first = np.concatenate([starts[:1], starts + far])
    last = np.concatenate([ends[:1], ends + far])
    batch = decode_records(memoryview(data), first, last, parse_schema(text))
    assert batch.column(0).to_pylist() == ["k0"] + [row["c0"] for row in rows]
    assert batch.column(1).to_pylist() == [["a", ""]] + [row["c1"] for row in rows]


def test_frames_may_come_in_any_order() -> None:
    text = record_of("string", "int")
    rows = [{"c0": "x" * n, "c1": n} for n in range(300)]
    payload, starts, ends = frame(oracle_encode(text, rows))
    order = np.random.default_rng(3).permutation(300)
    batch = decode_records(payload, starts[order], ends[order], parse_schema(text))
    assert batch.column(1).to_pylist() == order.tolist()
    assert batch.column(0).to_pylist() == ["x" * n for n in order.tolist()]


def test_no_records_and_no_columns_are_fine() -> None:
    text = record_of("string", "int")
    none = np.zeros(0, np.int64)
    empty = decode_records(b"", none, none, parse_schema(text))
    assert empty.num_rows == 0 and empty.schema.names == ["c0", "c1"]
    assert encode_records(empty, parse_schema(text))[0] == b""
    rows = oracle_encode(text, [{"c0": "a", "c1": 1}] * 3)
    assert decode_records(*frame(rows), parse_schema(text), columns=[]).num_rows == 3
    bare = parse_schema(record_of())
    assert decode_records(b"", np.zeros(5, np.int64), np.zeros(5, np.int64), bare).num_rows == 5


def test_payloads_may_be_bytes_views_and_arrow_buffers() -> None:
    text = record_of("string")
    payload, starts, ends = frame(oracle_encode(text, [{"c0": "a"}, {"c0": "b"}]))
    for form in (payload, memoryview(payload), pa.py_buffer(payload)):
        assert decode_records(form, starts, ends, parse_schema(text)).column(0).to_pylist() == [
            "a",
            "b",
        ]


def test_an_unknown_column_is_refused() -> None:
    text = record_of("string")
    with pytest.raises(SchemaError, match="no column 'x'"):
        decode_records(b"", np.zeros(0), np.zeros(0), parse_schema(text), columns=["x"])


def test_rows_that_the_schema_cannot_hold_are_refused() -> None:
    text = record_of("string", {"type": "array", "items": "int"})
    schema = parse_schema(text)
    good = {"c0": pa.array(["a"]), "c1": pa.array([[1]], pa.list_(pa.int32()))}
    assert encode_records(pa.record_batch(good), schema)[0] == b"\x02a\x02\x02\x00"
    bad = [
        {"c0": good["c0"]},
        {**good, "c0": pa.array([None], pa.string())},
        {**good, "c0": pa.array([b"\xff"])},
        {**good, "c1": pa.array([[None]], pa.list_(pa.int32()))},
        {**good, "c1": pa.array([None], pa.list_(pa.int32()))},
        {**good, "c1": pa.array([[2**40]], pa.list_(pa.int64()))},
    ]
    for columns in bad:
        with pytest.raises(SchemaError):
            encode_records(pa.record_batch(columns), schema)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        "boolean",
        "int",
        "double",
        "string",
        ["null", "bytes"],
        ["null", "string", "int"],
        ["int", "long"],
        {"type": "enum", "name": "e", "symbols": ["A"]},
        {"type": "fixed", "name": "f", "size": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 5},
        {"type": "array", "items": {"type": "map", "values": "long"}},
        {"type": "record", "name": "i", "fields": [{"name": "x", "type": "long"}]},
        {"type": "record", "name": "i", "fields": []},
    ],
    ids=str,
)
def test_empty_lists_and_maps_of_every_type_are_written(items: Any) -> None:
    text = record_of({"type": "array", "items": items})
    maps = record_of({"type": "map", "values": items})
    for schema in (parse_schema(text), parse_schema(maps)):
        dtype = arrow_schema(schema).types[0]
        batch = pa.record_batch({"c0": pa.array([[], []], dtype)})
        assert encode_records(batch, schema)[0] == b"\x00\x00"
        decoded = decode_records(b"\x00\x00", np.array([0, 1]), np.array([1, 2]), schema)
        assert encode_records(decoded, schema)[0] == b"\x00\x00"
        assert encode_records(decoded.slice(1), schema)[0] == b"\x00"


def test_decimals_and_enums_out_of_range_are_refused() -> None:
    enum = record_of({"type": "enum", "name": "e", "symbols": ["A"]})
    with pytest.raises(SchemaError, match="no symbol"):
        encode_records(pa.record_batch({"c0": pa.array(["B"])}), parse_schema(enum))
    number = record_of({"type": "bytes", "logicalType": "decimal", "precision": 2})
    body = oracle_encode(number, [{"c0": b"\x7f"}])
    with pytest.raises(CorruptFileError, match="more digits"):
        decode_records(*frame(body), parse_schema(number))


def test_decimal_bytes_may_be_longer_than_needed() -> None:
    text = record_of(["null", {"type": "bytes", "logicalType": "decimal", "precision": 4}])
    rows = [{"c0": b"\xff" * 30 + b"\x85"}, {"c0": None}, {"c0": b"\x00" * 40}, {"c0": b""}]
    batch = decode_records(*frame(oracle_encode(text, rows)), parse_schema(text))
    assert batch.column(0).to_pylist() == [Decimal(-123), None, Decimal(0), Decimal(0)]


def test_values_hidden_under_nulls_are_not_written() -> None:
    """Arrow allows any bytes below a null; they must not reach the record."""
    text = record_of(["null", "string"], ["null", {"type": "array", "items": "int"}])
    schema = parse_schema(text)
    bits = pa.py_buffer(b"\x02")
    hidden = pa.Array.from_buffers(
        pa.string(),
        2,
        [bits, pa.py_buffer(np.array([0, 3, 4], np.int32)), pa.py_buffer(b"abcd")],
    )
    lists = pa.Array.from_buffers(
        pa.list_(pa.int32()),
        2,
        [bits, pa.py_buffer(np.array([0, 2, 3], np.int32))],
        children=[pa.array([1, 2, 3], pa.int32())],
    )
    batch = pa.record_batch({"c0": hidden, "c1": lists})
    rows = [{"c0": None, "c1": None}, {"c0": "d", "c1": [3]}]
    assert encode_records(batch, schema)[0] == b"".join(oracle_encode(text, rows))
