"""Damage in Parquet files that Arrow takes without a word."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewright.codec.parquet import open_parquet, read_columns
from lakewright.codec.parquet_footer import RawChunk, check_chunks
from lakewright.errors import FormatError, UnsupportedTableError

ROWS = pa.table(
    {"alpha": ["a", "b", "c"], "gamma": ["x", None, "z"], "n": pa.array([1, 2, 3], pa.int64())}
)


def _written(**options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, store_schema=False, compression="none", **options)
    return sink.getvalue()


def _read(data: bytes) -> pa.Table:
    return read_columns(open_parquet(data, path="f.parquet"), path="f.parquet")


def _footer_offset(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def test_a_column_whose_name_is_damaged_is_refused_and_not_missing() -> None:
    data = _written()
    at = data.index(b"gamma", _footer_offset(data))
    for damaged in (b"gammb", b"alpha"):
        with pytest.raises(FormatError, match="not those of the schema") as caught:
            _read(data[:at] + damaged + data[at + 5 :])
        assert caught.value.context == {"path": "f.parquet", "offset": _footer_offset(data)}


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([("a", 2, 4, 50), ("b", 2, 54, 46)], None),
        ([("a", 2, 4, 50), ("b", 2, 4, 50)], "share the pages at 4"),
        ([("a", 2, 4, 51), ("b", 2, 54, 46)], "share the pages at 54"),
        ([("a", 2, 3, 50), ("b", 2, 54, 46)], "share the pages at 3"),
        ([("a", 2, 4, -1), ("b", 2, 54, 46)], "share the pages at 4"),
        ([("a", 2, 4, 50), ("b", 2, 54, 47)], "reach to 101 of 100"),
        ([("a", 2, 4, 50), ("b", 1, 54, 46)], "not those of the schema"),
        ([("b", 2, 4, 50), ("a", 2, 54, 46)], "not those of the schema"),
        ([("a", 2, 4, 50)], "not those of the schema"),
    ],
)
def test_columns_must_be_those_of_the_schema_with_pages_of_their_own(
    chunks: list[tuple[str, int, int, int]], why: str | None
) -> None:
    raw = [RawChunk((n,), kind, 1, at, size, None, None, None) for n, kind, at, size in chunks]
    found = check_chunks([raw], [("a", "INT64"), ("b", "INT64")], 100)
    assert found is None if why is None else why in (found or "")


def test_checksums_of_pages_are_verified() -> None:
    data = _written(write_page_checksum=True, use_dictionary=False)
    at = data.index(b"b", 4)
    damaged = data[:at] + b"q" + data[at + 1 :]
    assert pq.read_table(io.BytesIO(damaged))["alpha"].to_pylist() == ["a", "q", "c"]
    with pytest.raises(FormatError, match=r"(?i)crc") as caught:
        _read(damaged)
    assert caught.value.context == {"path": "f.parquet", "offset": 4}


def _rows_or_refused(data: bytes) -> pa.Table | None:
    try:
        return _read(data)
    except FormatError as refused:
        path, offset = refused.context["path"], refused.context["offset"]
    except UnsupportedTableError as refused:  # a bit turns the magic into that of encrypted files
        path, offset = refused.context["path"], 0
    assert path == "f.parquet" and isinstance(offset, int) and 0 <= offset <= len(data)
    return None


def test_no_bit_of_a_footer_gives_a_column_other_values() -> None:
    data = _written(use_dictionary=False, write_statistics=False)
    begin = _footer_offset(data)
    read = 0
    for place in range(begin, len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            rows = _rows_or_refused(bytes(damaged))
            if rows is None:
                continue
            read += 1
            assert rows.num_rows == ROWS.num_rows
            for field in ROWS.schema:
                at = rows.schema.get_field_index(field.name)
                if at >= 0 and rows.schema.field(at).equals(field):
                    assert rows.column(at).equals(ROWS.column(field.name)), (place, bit)
    assert read
