"""Base files as Hudi's writers make them, and what damaged or encrypted ones must lead to."""

from __future__ import annotations

import base64
import contextlib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.parquet import (
    ParquetFooter,
    iter_row_groups,
    open_parquet,
    read_columns,
    row_group_range,
)
from lakewright.codec.parquet_footer import row_group_chunks
from lakewright.errors import CorruptFileError, UnsupportedTableError
from tests.fixtures import SHARED, SHARED_ABSENT, unzip

ROWS = pa.table(
    {
        "id": pa.array([1, None, 3, 4], pa.int32()),
        "price": pa.array([Decimal("1.50"), None, Decimal("-9.99"), Decimal("2.00")]),
        "at": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        "day": pa.array([1, 2, 3, 4], pa.date32()),
        "ratio": [1.0, 2.0, float("nan"), 0.5],
        "name": ["a", "é", None, "z"],
        "tags": [["x"], [], None, ["y", "z"]],
        "far": pa.array([2**62, 1, 2, 3], pa.timestamp("us", "UTC")),
    }
)


def _written(table: pa.Table = ROWS, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"store_schema": False, "compression": "gzip", **options})
    return sink.getvalue().to_pybytes()


def _read(data: bytes, columns: list[str] | None = None) -> pa.Table:
    return read_columns(open_parquet(data, path="f.parquet"), path="f.parquet", columns=columns)


def _base_files(archive: str, into: Path) -> list[Path]:
    if not SHARED.exists():
        pytest.skip(SHARED_ABSENT)
    root = unzip(SHARED / archive, into)
    return [p for p in sorted(root.rglob("[!.]*.parquet")) if ".hoodie" not in p.parts]


def test_a_footer_tells_rows_row_groups_and_statistics() -> None:
    footer = ParquetFooter.read(_written(row_group_size=2), "f.parquet")
    assert footer.num_rows == 4
    assert [g.num_rows for g in footer.row_groups] == [2, 2]
    first, second = footer.row_groups
    assert first.statistics("id") == (1, 1, 1, 2)
    assert second.statistics("price")[:2] == (Decimal("-9.99"), Decimal("2.00"))
    assert first.statistics("day")[:2] == (date(1970, 1, 2), date(1970, 1, 3))
    assert first.statistics("at").minimum == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert second.statistics("name") == ("z", "z", 1, 2)


def test_statistics_that_are_no_bounds_are_unknown() -> None:
    file = open_parquet(_written(row_group_size=2), path="f.parquet")
    assert row_group_range(file, 0, "far")[:2] == (None, None)
    assert row_group_range(file, 0, "tags")[:2] == (None, None)
    assert row_group_range(file, 0, "absent") == (None, None, None, 2)


def test_int96_timestamps_arrive_as_microseconds() -> None:
    data = _written(ROWS.select(["at"]), use_deprecated_int96_timestamps=True)
    column = _read(data).column("at")
    assert column.type == pa.timestamp("us")
    assert column.cast(pa.int64()).to_pylist() == [1, 2, 3, 4]
    assert ParquetFooter.read(data, "f").row_groups[0].statistics("at")[:2] == (None, None)


@pytest.mark.parametrize("as_integer", [True, False])
def test_decimals_of_any_physical_type_are_decimals(as_integer: bool) -> None:
    data = _written(ROWS.select(["price"]), store_decimal_as_integer=as_integer)
    assert _read(data).column("price").combine_chunks() == ROWS["price"].combine_chunks()


def test_annotated_bytes_are_not_extension_types() -> None:
    uuids = pa.array([b"\x00" * 16], pa.binary(16))
    column = pa.ExtensionArray.from_storage(pa.uuid(), uuids)
    assert _read(_written(pa.table({"u": column}))).column("u").type == pa.binary(16)


def test_only_asked_columns_are_read_and_counting_needs_none() -> None:
    data = _written(row_group_size=3)
    assert _read(data, ["name", "id"]).column_names == ["name", "id"]
    file = open_parquet(data, path="f")
    counted = [
        sum(batch.num_rows for batch in batches)
        for _, batches in iter_row_groups(file, path="f", columns=[])
    ]
    assert counted == [3, 1]


def test_real_base_files_keep_their_hudi_footer(tmp_path: Path) -> None:
    for path in _base_files("cow_v6_nonpartitioned.zip", tmp_path):
        footer = ParquetFooter.read(path.read_bytes(), path.name)
        assert footer.values["org.apache.hudi.bloomfilter"]
        assert footer.values["hoodie_min_record_key"] <= footer.values["hoodie_max_record_key"]
        assert footer.avro_schema is not None
        assert '"_hoodie_commit_time"' in footer.avro_schema


def test_two_level_lists_and_old_maps_of_real_files_are_lists_and_maps(tmp_path: Path) -> None:
    for path in _base_files("cow_v6_no_metafields.zip", tmp_path):
        table = _read(path.read_bytes())
        assert pa.types.is_struct(table.schema.field("arrayField").type.value_type)
        assert pa.types.is_map(table.schema.field("mapField").type)
        assert all(len(row["mapField"]) == 2 for row in table.to_pylist())


def test_a_file_without_rows_still_has_its_columns() -> None:
    empty = _read(_written(ROWS.slice(0, 0)), ["name", "id"])
    assert empty.num_rows == 0
    assert empty.schema.types == [pa.string(), pa.int32()]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_files_are_refused_by_name(plaintext_footer: bool) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Kms(encryption.KmsClient):  # type: ignore[misc, name-defined]
        def __init__(self, _: object) -> None:
            encryption.KmsClient.__init__(self)

        def wrap_key(self, key: bytes, _: str) -> bytes:
            return base64.b64encode(key)

        def unwrap_key(self, key: bytes, _: str) -> bytes:
            return base64.b64decode(key)

    settings_ = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["id"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(Kms)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings_)
    data = _written(ROWS.select(["id", "day"]), encryption_properties=properties)
    with pytest.raises(UnsupportedTableError, match="encryption") as caught:
        _read(data)
    assert caught.value.context["path"] == "f.parquet"


@pytest.mark.parametrize("kept", [0, 4, 11, 100, -1, -9])
def test_a_cut_file_is_corrupt_and_named(kept: int) -> None:
    with pytest.raises(CorruptFileError) as caught:
        _read(_written()[:kept])
    assert caught.value.context["path"] == "f.parquet"


WHOLE = _written(row_group_size=2)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), max_size=4))
def test_flipped_bytes_are_read_or_called_corrupt(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(WHOLE)
    for at, change in flips:
        damaged[at] ^= change
    with contextlib.suppress(CorruptFileError, UnsupportedTableError):
        footer = ParquetFooter.read(bytes(damaged), "f.parquet")
        for group in footer.row_groups:
            assert all(len(group.statistics(name)) == 4 for name in footer.schema.names)
        _read(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_footer_bytes_of_any_kind_give_chunks_or_nothing(footer: bytes) -> None:
    assert isinstance(row_group_chunks(footer), list)


def test_statistics_agree_with_those_that_arrow_reads(tmp_path: Path) -> None:
    for path in _base_files("cow_v8_nonpartitioned.zip", tmp_path):
        footer = ParquetFooter.read(path.read_bytes(), path.name)
        group = pq.ParquetFile(path).metadata.row_group(0)
        for i in range(group.num_columns):
            chunk = group.column(i)
            if "." in chunk.path_in_schema or chunk.statistics is None:
                continue
            ours = footer.row_groups[0].statistics(chunk.path_in_schema)
            assert ours.null_count == chunk.statistics.null_count
            if chunk.statistics.has_min_max:
                assert ours[:2] == (chunk.statistics.min, chunk.statistics.max)
