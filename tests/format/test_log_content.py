"""Contents of log blocks: record frames, delete records, positions."""

from __future__ import annotations

import io
import json
import struct
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.avro.columns import decode_records
from lakewright.codec.avro.schema import Record, parse_schema
from lakewright.errors import CorruptFileError, FormatError, SchemaError, UnsupportedTableError
from lakewright.format.delete_ordering import OrderingBranch
from lakewright.format.log_block import BlockType, HeaderKey, LogBlock, encode_block, read_blocks
from lakewright.format.log_content import (
    avro_frames,
    avro_frames_of,
    block_runs,
    delete_rows,
    delete_rows_of,
    encode_avro_content,
    encode_delete_rows,
    parquet_content,
    record_counts,
    record_positions,
)
from tests.fixtures import SHARED_ABSENT, shared_tables, unpack

WRAPPERS = [
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", "string"),
    ("DateWrapper", "int"),
    ("DecimalWrapper", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}),
    ("TimeMicrosWrapper", "long"),
    ("TimestampMicrosWrapper", "long"),
]


def wrapper(name: str, value: Any) -> dict[str, Any]:
    fields = [{"name": "value", "type": value}]
    return {"type": "record", "name": name, "fields": fields}


ARRAY = {
    "type": "record",
    "name": "ArrayWrapper",
    "fields": [
        {
            "name": "wrappedValues",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": [
                        "null",
                        *(n for n, _ in WRAPPERS),
                        wrapper("LocalDateWrapper", "int"),
                    ],
                },
            ],
        }
    ],
}
DELETES = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "HoodieDeleteRecord",
                        "fields": [
                            {"name": "recordKey", "type": ["null", "string"]},
                            {"name": "partitionPath", "type": ["null", "string"]},
                            {
                                "name": "orderingVal",
                                "type": ["null", *(wrapper(*w) for w in WRAPPERS), ARRAY],
                            },
                        ],
                    },
                },
            }
        ],
    }
)


def block_of(content: bytes, kind: BlockType = BlockType.DELETE, **headers: str) -> LogBlock:
    named = {HeaderKey[k]: v for k, v in headers.items()}
    (block,) = read_blocks(encode_block(kind, named, content), path="p")
    return block


def oracle_payload(records: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, DELETES, {"deleteRecordList": records})
    return out.getvalue()


def delete_block(payload: bytes) -> LogBlock:
    return block_of(struct.pack(">ii", 3, len(payload)) + payload)


def ordering(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    return name, {"value": value}


def deletes(*values: Any) -> LogBlock:
    records = [
        {"recordKey": f"k{i}", "partitionPath": "p", "orderingVal": v} for i, v in enumerate(values)
    ]
    return delete_block(oracle_payload(records))


# ---- Avro frames -------------------------------------------------------------------------------


@given(st.lists(st.lists(st.binary(max_size=30), max_size=8), min_size=1, max_size=5))
def test_frames_of_joined_blocks_cut_out_every_record(contents: list[list[bytes]]) -> None:
    blocks = []
    for bodies in contents:
        offsets = np.concatenate(([0], np.cumsum([len(b) for b in bodies]))).astype(np.int64)
        content = encode_avro_content(b"".join(bodies), offsets)
        expected = struct.pack(">ii", 3, len(bodies))
        expected += b"".join(struct.pack(">i", len(b)) + b for b in bodies)
        assert content == expected
        blocks.append(block_of(content, BlockType.AVRO_DATA))
        starts, ends = avro_frames(blocks[-1])
        assert [content[s:e] for s, e in zip(starts, ends, strict=True)] == bodies
    payload, starts, ends = avro_frames_of(blocks)
    assert [bytes(payload[s:e]) for s, e in zip(starts, ends, strict=True)] == [
        body for bodies in contents for body in bodies
    ]
    assert record_counts(blocks).tolist() == list(map(len, contents))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0\3",
        struct.pack(">ii", 3, 1),
        struct.pack(">ii", 3, -1),
        struct.pack(">ii", 3, 2**31 - 1) + b"\0" * 40,
        struct.pack(">iii", 3, 1, -1),
        struct.pack(">iii", 3, 1, 5) + b"four",
        struct.pack(">iii", 3, 1, 3) + b"four",
        struct.pack(">iiii", 3, 2, 2**31 - 1, 0),
    ],
)
def test_records_that_do_not_fill_their_block_are_corruption(content: bytes) -> None:
    with pytest.raises(CorruptFileError) as caught:
        avro_frames(block_of(content, BlockType.AVRO_DATA))
    assert caught.value.context == {"path": "p", "offset": 0}


def test_an_unknown_avro_content_version_is_refused() -> None:
    with pytest.raises(FormatError, match="version 4"):
        avro_frames(block_of(struct.pack(">ii", 4, 0), BlockType.AVRO_DATA))
    with pytest.raises(FormatError, match="DELETE"):
        avro_frames(block_of(struct.pack(">ii", 3, 0), BlockType.DELETE))


def test_runs_break_at_schema_type_partiality_and_size() -> None:
    empty = struct.pack(">ii", 3, 0)
    a = block_of(empty, BlockType.AVRO_DATA, SCHEMA="a")
    b = block_of(empty, BlockType.AVRO_DATA, SCHEMA="b")
    partial = block_of(empty, BlockType.AVRO_DATA, SCHEMA="b", IS_PARTIAL="true")
    delete = block_of(empty, BlockType.DELETE, SCHEMA="b")
    runs = list(block_runs([a, a, b, partial, delete, delete, a]))
    assert runs == [[a, a], [b], [partial], [delete, delete], [a]]
    assert list(block_runs([a, a, a], bytes_max=2 * a.length)) == [[a, a], [a]]
    first = block_of(empty, BlockType.AVRO_DATA, INSTANT_TIME="1")
    second = block_of(empty, BlockType.AVRO_DATA, INSTANT_TIME="2")
    assert list(block_runs([first, second])) == [[first, second]]
    assert list(block_runs([first, first, second], by_instant=True)) == [[first] * 2, [second]]
    assert list(block_runs([a, a], bytes_max=1)) == [[a], [a]]
    assert list(block_runs([])) == []


def test_parquet_content_is_a_view_and_only_of_parquet_blocks() -> None:
    block = block_of(b"PAR1....PAR1", BlockType.PARQUET_DATA)
    assert parquet_content(block).to_pybytes() == b"PAR1....PAR1"
    with pytest.raises(FormatError, match="DELETE"):
        parquet_content(block_of(b"", BlockType.DELETE))


# ---- delete records ----------------------------------------------------------------------------


def test_the_delete_payloads_of_real_tables_read_and_write_back() -> None:
    cases = {
        "020206696431021432303233" + "2d30312d3031040000": ("id1", "2023-01-01"),
        "02020e54584e2d3030350212726567696f6e3d6575040000": ("TXN-005", "region=eu"),
        "020202330200040000": ("3", ""),
        "02020e54584e2d30303402187265636f72645f696e646578040000": ("TXN-004", "record_index"),
    }
    for payload, (key, partition) in cases.items():
        rows = delete_rows(delete_block(bytes.fromhex(payload)))
        assert rows.keys.to_pylist() == [key] and rows.partitions.to_pylist() == [partition]
        assert rows.unordered.tolist() == [True]
        content = encode_delete_rows(pa.array([key]), pa.array([partition]))
        assert content == struct.pack(">ii", 3, len(payload) // 2) + bytes.fromhex(payload)


def test_an_empty_delete_block_has_no_rows() -> None:
    rows = delete_rows(delete_block(b"\0"))
    assert len(rows) == 0 and rows.ordering_as(pa.int64()).to_pylist() == []
    empty = pa.array([], pa.string())
    assert encode_delete_rows(empty, empty).hex() == "000000030000000100"
    assert len(delete_rows_of([])) == 0


PRESENT = {
    "BooleanWrapper": st.booleans(),
    "IntWrapper": st.integers(-(2**31), 2**31 - 1),
    "LongWrapper": st.integers(-(2**63), 2**63 - 1),
    "FloatWrapper": st.floats(width=32, allow_nan=False),
    "DoubleWrapper": st.floats(allow_nan=False),
    "BytesWrapper": st.binary(max_size=200),
    "StringWrapper": st.text(max_size=100),
    "DateWrapper": st.integers(-(2**31), 2**31 - 1),
    "DecimalWrapper": st.decimals(-(10**14), 10**14, places=15),
    "TimeMicrosWrapper": st.integers(0, 86_399_999_999),
    "TimestampMicrosWrapper": st.integers(-(2**63), 2**63 - 1),
}
SCALARS = st.one_of(st.none(), *(st.tuples(st.just(n), s) for n, s in PRESENT.items()))
ARRAYS = st.lists(SCALARS, max_size=4)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.text(max_size=80), st.none() | st.text(max_size=80), SCALARS | ARRAYS),
        max_size=12,
    ),
    st.integers(1, 3),
)
def test_every_wrapper_decodes_as_an_independent_decoder_says(
    entries: list[tuple[str, str | None, Any]], parts: int
) -> None:
    def stored(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, list):
            return "ArrayWrapper", {"wrappedValues": [stored(v) for v in value]}
        return ordering(*value)

    records = [
        {"recordKey": k, "partitionPath": p, "orderingVal": stored(v)} for k, p, v in entries
    ]
    size = max(len(records) // parts, 1)
    chunks = [records[i : i + size] for i in range(0, len(records), size)]
    rows = delete_rows_of([delete_block(oracle_payload(c)) for c in chunks])
    assert rows.keys.to_pylist() == [k for k, _, _ in entries]
    assert rows.partitions.to_pylist() == [p for _, p, _ in entries]
    assert list(map(bool, rows.unordered)) == [
        v is None or v == ("IntWrapper", 0) for _, _, v in entries
    ]
    values = rows.ordering
    for i, (_, _, value) in enumerate(entries):
        if isinstance(value, list):
            assert values.branches[i] == OrderingBranch.ARRAY
            assert values.parts is not None and values.part_offsets is not None
            begin, end = values.part_offsets[i : i + 2].tolist()
            assert end - begin == len(value)
            for k, part in enumerate(value):
                assert_value(values.parts, begin + k, part)
        else:
            assert_value(values, i, value)


def assert_value(values: Any, i: int, value: Any) -> None:
    names = ["", *(n for n, _ in WRAPPERS)]
    if value is None:
        assert values.branches[i] == 0
        return
    name, plain = value
    assert values.branches[i] == names.index(name)
    if name in ("FloatWrapper", "DoubleWrapper"):
        assert values.reals[i] == plain
    elif name == "StringWrapper":
        assert values.raw[i].as_py() == plain.encode()
    elif name == "BytesWrapper":
        assert values.raw[i].as_py() == plain
    elif name == "DecimalWrapper":
        unscaled = int.from_bytes(values.raw[i].as_py(), "big", signed=True)
        digits = Decimal(unscaled).as_tuple()
        assert Decimal(digits._replace(exponent=-15)) == plain  # exact, whatever the precision
    else:
        assert values.integers[i] == int(plain)


ORDERING_COLUMNS = [
    pa.array([5, None, -7, 2**31 - 1], pa.int32()),
    pa.array([0, None, -7, 2**62], pa.int64()),
    pa.array([0.5, None, -0.0, float("inf")], pa.float32()),
    pa.array([0.1, None, -1e300, 0.0], pa.float64()),
    pa.array(["", None, "é😀", "x" * 300], pa.string()),
    pa.array([b"", None, b"\0\xff", b"x" * 300], pa.binary()),
    pa.array([True, None, False, True], pa.bool_()),
    pa.array([date(2024, 2, 29), None, date(1969, 12, 31), date(1970, 1, 2)], pa.date32()),
    pa.array([1, None, -1, 1_700_000_000_000], pa.int64()).cast(pa.timestamp("ms", "UTC")),
    pa.array([1, None, -1, 2**62], pa.int64()).cast(pa.timestamp("us", "UTC")),
    pa.array([1, None, -1, 2**62], pa.int64()).cast(pa.timestamp("us")),
    pa.array([1, None, 86_399_999_999, 7], pa.int64()).cast(pa.time64("us")),
    pa.array([1, None, 86_399_999, 7], pa.int32()).cast(pa.time32("ms")),
    pa.array([Decimal("0.00"), None, Decimal("-0.01"), Decimal("12345678901.25")]).cast(
        pa.decimal128(18, 2)
    ),
]


@pytest.mark.parametrize("column", ORDERING_COLUMNS, ids=lambda c: str(c.type))
def test_ordering_values_survive_writing_and_reading(column: pa.Array) -> None:
    keys = pa.array(["a", "b", "c", "d"])
    partitions = pa.array(["p"] * 4)
    for sliced in (slice(0, 4), slice(1, 3)):
        content = encode_delete_rows(keys[sliced], partitions[sliced], column[sliced])
        rows = delete_rows(block_of(content))
        assert rows.keys.equals(keys[sliced])
        assert rows.ordering_as(column.type).equals(column[sliced])
        assert rows.ordering_as([column.type])[0].equals(column[sliced])
        assert rows.unordered.tolist() == column[sliced].is_null().to_pylist()


@pytest.mark.parametrize("column", ORDERING_COLUMNS, ids=lambda c: str(c.type))
def test_written_payloads_are_those_of_an_independent_encoder(column: pa.Array) -> None:
    kinds = {
        "int32": "IntWrapper",
        "date32[day]": "IntWrapper",
        "time32[ms]": "IntWrapper",
        "float": "FloatWrapper",
        "double": "DoubleWrapper",
        "string": "StringWrapper",
        "binary": "BytesWrapper",
        "bool": "BooleanWrapper",
        "decimal128(18, 2)": "DecimalWrapper",
    }
    name = kinds.get(str(column.type), "LongWrapper")
    raw = column
    if name in ("IntWrapper", "LongWrapper"):
        raw = column.cast(f"int{column.type.bit_width}")
    records = [
        {
            "recordKey": f"k{i}",
            "partitionPath": "",
            "orderingVal": ordering("IntWrapper", 0) if v is None else ordering(name, v),
        }
        for i, v in enumerate(raw.to_pylist())
    ]
    keys = pa.array([r["recordKey"] for r in records])
    content = encode_delete_rows(keys, pa.array([""] * 4), column)
    assert content[8:] == oracle_payload(records)


def test_dates_can_be_written_as_date_wrappers() -> None:
    column = pa.array([date(2024, 1, 1)], pa.date32())
    content = encode_delete_rows(
        pa.array(["k"]), pa.array([""]), column, date_wrapper=OrderingBranch.DATE
    )
    expected = {
        "recordKey": "k",
        "partitionPath": "",
        "orderingVal": ordering("DateWrapper", 19723),
    }
    assert content[8:] == oracle_payload([expected])
    assert delete_rows(block_of(content)).ordering_as(pa.date32()).equals(column)


def test_deletes_without_key_are_not_written() -> None:
    with pytest.raises(SchemaError, match="key"):
        encode_delete_rows(pa.array([None], pa.string()), pa.array([""]))
    with pytest.raises(SchemaError, match="list"):
        encode_delete_rows(pa.array(["k"]), pa.array([""]), pa.array([[1]]))
    wide = pa.array([Decimal("1e16")], pa.decimal128(38, 0))
    with pytest.raises(SchemaError, match="decimal"):
        encode_delete_rows(pa.array(["k"]), pa.array([""]), wide)


def test_values_are_converted_to_the_type_of_the_ordering_column() -> None:
    def converted(target: pa.DataType, *values: Any) -> list[Any]:
        return list(delete_rows(deletes(*values)).ordering_as(target).to_pylist())

    def long(value: int) -> Any:
        return ordering("LongWrapper", value)

    def integer(value: int) -> Any:
        return ordering("IntWrapper", value)

    assert converted(pa.int64(), integer(3), long(4), None, integer(0), long(0)) == [
        3, 4, None, None, 0,
    ]  # fmt: skip
    assert converted(pa.int32(), long(4)) == [4]
    assert converted(pa.float64(), integer(3), ordering("FloatWrapper", 0.5)) == [3.0, 0.5]
    assert converted(
        pa.decimal128(10, 2), ordering("DecimalWrapper", Decimal("1.50")), long(2)
    ) == [
        Decimal("1.50"),
        Decimal("2.00"),
    ]
    assert converted(pa.date32(), integer(19723), ordering("DateWrapper", 19723)) == [
        date(2024, 1, 1),
        date(2024, 1, 1),
    ]
    millis = pa.timestamp("ms", "UTC")
    rows = delete_rows(
        deletes(
            long(9_999_999_999_999),
            long(10_000_000_000_000_000),
            ordering("TimestampMicrosWrapper", 1_700_000_000_123_456),
        )
    )
    assert rows.ordering_as(millis).cast(pa.int64()).to_pylist() == [
        9_999_999_999_999,
        10_000_000_000_000,
        1_700_000_000_123,
    ]


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (pa.string(), ordering("LongWrapper", 5)),
        (pa.int64(), ordering("StringWrapper", "5")),
        (pa.int32(), ordering("LongWrapper", 2**40)),
        (pa.bool_(), ordering("IntWrapper", 1)),
        (pa.int64(), ordering("DoubleWrapper", 0.5)),
        (pa.decimal128(10, 2), ordering("DecimalWrapper", Decimal("1.505"))),
        (pa.struct([("a", pa.int32())]), ordering("LongWrapper", 5)),
    ],
)
def test_values_that_do_not_fit_the_column_are_errors(target: pa.DataType, value: Any) -> None:
    with pytest.raises(SchemaError, match="ordering value"):
        delete_rows(deletes(value)).ordering_as(target)


def test_several_ordering_columns_come_as_columns() -> None:
    def array(*parts: Any) -> tuple[str, dict[str, Any]]:
        return "ArrayWrapper", {"wrappedValues": list(parts)}

    rows = delete_rows(
        deletes(
            array(ordering("LongWrapper", 5), ordering("StringWrapper", "x")),
            ordering("IntWrapper", 0),
            array(ordering("IntWrapper", 0), ordering("IntWrapper", 0)),
            None,
            array(None, None),
        )
    )
    assert rows.unordered.tolist() == [False, True, False, True, False]
    numbers, texts = rows.ordering_as([pa.int64(), pa.string()])
    assert numbers.to_pylist() == [5, None, 0, None, None]
    assert texts.to_pylist() == ["x", None, None, None, None]
    with pytest.raises(SchemaError, match="2 ordering values"):
        rows.ordering_as([pa.int64()] * 3)
    with pytest.raises(SchemaError, match="LONG"):
        delete_rows(deletes(ordering("LongWrapper", 5))).ordering_as([pa.int64()] * 2)
    unordered = delete_rows(deletes(None)).ordering_as([pa.int64(), pa.string()])
    assert [c.to_pylist() for c in unordered] == [[None], [None]]
    dates = delete_rows(deletes(array(("LocalDateWrapper", {"value": 3}))))
    assert dates.ordering_as([pa.date32()])[0].to_pylist() == [date(1970, 1, 4)]


@pytest.mark.parametrize("version", [1, 2])
def test_serialised_java_objects_are_refused_with_advice(version: int) -> None:
    with pytest.raises(UnsupportedTableError, match=f"version {version}") as caught:
        delete_rows(block_of(struct.pack(">ii", version, 1) + b"\0"))
    assert "Compact" in caught.value.hint


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\2",
        b"\2\0",
        b"\0\0",
        b"\2\2\2a\2\0\4",
        b"\2\2\1a\2\0\4\0\0",
        b"\2\2\2\xff\2\0\4\0\0",
        b"\2\2\2a\4\0\4\0\0",
        b"\2\2\2a\2\0\x1a\0\0",
        b"\2\2\2a\2\0\5\0\0",
        b"\2\2\2a\2\0\6" + b"\xff" * 11 + b"\0",
        b"\2\2\2a\2\0\6" + b"\xff" * 9 + b"\x7f\0",
        b"\xfe\xff\xff\xff\x0f\2\2a\2\0\4\0\0",
        b"\2\2\xfe\xff\xff\xff\x0fa\2\0\4\0\0",
        b"\2\2\2a\2\0\x18\2\xfe\xff\xff\xff\x0f\0",
        b"\2\2\2a\2\0\x0a\0\0\0",
    ],
)
def test_broken_delete_payloads_are_corruption(payload: bytes) -> None:
    with pytest.raises(CorruptFileError) as caught:
        delete_rows(delete_block(payload))
    assert caught.value.context == {"path": "p", "offset": 0}


@given(st.binary(max_size=80))
def test_random_delete_payloads_decode_or_are_corruption(payload: bytes) -> None:
    try:
        rows = delete_rows(delete_block(payload))
    except CorruptFileError:
        return
    assert len(rows) <= len(payload)


def test_a_wrong_payload_length_is_corruption() -> None:
    with pytest.raises(CorruptFileError, match="claims"):
        delete_rows(block_of(struct.pack(">ii", 3, 2) + b"\0"))
    with pytest.raises(FormatError, match="version 9"):
        delete_rows(block_of(struct.pack(">ii", 9, 1) + b"\0"))


def test_array_blocks_with_a_byte_size_are_read_too() -> None:
    record = b"\2\2a\2\0\4\2"
    sized = b"\1" + bytes([len(record) << 1]) + record
    rows = delete_rows(delete_block(sized + b"\2" + record + b"\0"))
    assert rows.keys.to_pylist() == ["a", "a"]
    assert rows.ordering_as(pa.int32()).to_pylist() == [1, 1]


# ---- positions ---------------------------------------------------------------------------------


def test_positions_count_only_with_their_base_file() -> None:
    text = "AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAQAEAAAAAAAAQACAAQABQA="
    named = block_of(
        b"",
        RECORD_POSITIONS=text,
        BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS="20250922133044188",
    )
    found = record_positions(named)
    assert found is not None and found.base_instant == "20250922133044188"
    assert found.positions.tolist() == [0, 1, 2, 4, 5]
    assert record_positions(block_of(b"", RECORD_POSITIONS=text)) is None
    assert record_positions(block_of(b"")) is None


# ---- real tables -------------------------------------------------------------------------------

MERGE_ON_READ = [t for t in shared_tables() if t.type == "MERGE_ON_READ" and not t.refused]


@pytest.mark.skipif(not MERGE_ON_READ, reason=SHARED_ABSENT)
@pytest.mark.parametrize("shared", MERGE_ON_READ, ids=lambda t: t.id)
def test_real_blocks_decode_as_an_independent_decoder_says(shared: Any, tmp_path: Path) -> None:
    table = unpack(shared, tmp_path)
    for file in sorted(table.rglob(".*.log.*")):
        if ".hoodie" in file.parts or file.suffix == ".crc" or file.name.startswith("._"):
            continue
        for run in block_runs(read_blocks(file.read_bytes(), path=file.name)):
            if run[0].type is BlockType.AVRO_DATA:
                assert_avro_run(run)
            elif run[0].type is BlockType.DELETE:
                assert_delete_run(run)


def assert_avro_run(run: list[LogBlock]) -> None:
    schema = parse_schema(run[0].schema)
    assert isinstance(schema, Record)
    payload, starts, ends = avro_frames_of(run)
    batch = decode_records(payload, starts, ends, schema, path=run[0].path)
    assert batch.num_rows == sum(record_counts(run).tolist())
    oracle = fastavro.parse_schema(json.loads(run[0].schema))
    expected = [
        fastavro.schemaless_reader(io.BytesIO(bytes(payload[s:e])), oracle)
        for s, e in zip(starts, ends, strict=True)
    ]
    for meta in ("_hoodie_record_key", "_hoodie_commit_time", "_hoodie_file_name"):
        assert batch.column(meta).to_pylist() == [r[meta] for r in expected]
    positions = record_positions(run[0])
    if positions is not None:
        assert len(positions.positions) == record_counts(run[:1])[0]


def assert_delete_run(run: list[LogBlock]) -> None:
    rows = delete_rows_of(run)
    expected = [
        record
        for block in run
        for record in fastavro.schemaless_reader(io.BytesIO(bytes(block.content[8:])), DELETES)[
            "deleteRecordList"
        ]
    ]
    assert rows.keys.to_pylist() == [r["recordKey"] for r in expected]
    assert rows.partitions.to_pylist() == [r["partitionPath"] for r in expected]
    assert rows.unordered.all()
    written = encode_delete_rows(rows.keys, rows.partitions)
    assert written == b"".join(bytes(b.content) for b in run)


def test_numbers_of_another_width_are_told_apart_from_the_column() -> None:
    block = read_blocks(
        encode_block(
            BlockType.DELETE,
            {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: "{}"},
            encode_delete_rows(
                pa.array(["a", "b"]), pa.array(["p", "p"]), pa.array([5, 7], pa.int32())
            ),
        ),
        path="log",
    )[0]
    ordering = delete_rows(block).ordering
    assert ordering.of_other_class(pa.int64()).tolist() == [True, True]
    assert ordering.of_other_class(pa.int32()).tolist() == [False, False]
    assert ordering.of_other_class(pa.string()).tolist() == [False, False]
