"""Record keys formed from columns, checked against keys that Hudi stored."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import FormatError, SchemaError, UnsupportedTableError
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.keys import KeySpec, PartitionKind, TextPath, record_keys
from lakewright.format.property_text import parse_properties
from lakewright.format.table_properties import TableProperties
from tests.fixtures import SharedTable, shared_tables, unpack

SIMPLE = KeyGeneratorType.SIMPLE
COMPLEX = KeyGeneratorType.COMPLEX
TABLES = [t for t in shared_tables() if not t.refused]


def _keys(columns: dict[str, Any], *fields: str, **options: Any) -> list[str]:
    options.setdefault("generator", COMPLEX if len(fields) > 1 else SIMPLE)
    batch = pa.RecordBatch.from_pydict(columns)
    spec = KeySpec(record_key_fields=fields, partition_fields=(), **options)
    return list(record_keys(batch, spec).to_pylist())


def test_a_single_key_is_the_bare_text_of_its_value() -> None:
    assert _keys({"id": ["a", "é"]}, "id") == ["a", "é"]
    assert _keys({"id": pa.array([1, -2], pa.int64())}, "id") == ["1", "-2"]
    assert _keys({"id": [True, False]}, "id") == ["true", "false"]
    assert _keys({"id": [1.0, 1e7, 1e-4]}, "id") == ["1.0", "1.0E7", "1.0E-4"]
    assert _keys({"id": pa.array([3.4e10], pa.float32())}, "id") == ["3.3999999E10"]
    assert _keys({"id": [Decimal("50.00")]}, "id") == ["50.00"]
    assert _keys({"id": [date(2022, 1, 8)]}, "id") == ["2022-01-08"]
    assert _keys({"id": [b"\x00\xff"]}, "id") == ["00ff"]
    assert _keys({"id": pa.array(["x"]).dictionary_encode()}, "id") == ["x"]


def test_timestamps_depend_on_the_code_path_of_the_writer() -> None:
    zoned = {"id": pa.array([1483005240120000], pa.timestamp("us", "UTC"))}
    local = {"id": pa.array([1483005240120000], pa.timestamp("us"))}
    assert _keys(zoned, "id") == ["1483005240120000"]
    assert _keys(zoned, "id", text_path=TextPath.ROW) == ["2016-12-29 09:54:00.12"]
    assert _keys(local, "id", text_path=TextPath.ROW) == ["1483005240120000"]


def test_several_fields_are_named_and_joined_with_placeholders() -> None:
    columns = {"id": [2, None, 3], "name": ["Bob", "x", ""]}
    assert _keys(columns, "id", "name") == [
        "id:2,name:Bob",
        "id:__null__,name:x",
        "id:3,name:__empty__",
    ]


def test_a_single_key_may_be_named() -> None:
    assert _keys({"id": ["id3"]}, "id", names_single_key=True) == ["id:id3"]
    generator = KeyGeneratorType.GLOBAL_DELETE
    assert _keys({"id": ["id3"]}, "id", generator=generator) == ["id:id3"]


def test_dots_lead_into_structs() -> None:
    assert _keys({"a": [{"b": {"c": 7}}]}, "a.b.c") == ["7"]


@pytest.mark.parametrize("bad", [None, ""])
def test_a_null_or_empty_key_is_an_error_with_count_and_row(bad: str | None) -> None:
    with pytest.raises(FormatError, match="null or empty in 2 of 3 rows") as caught:
        _keys({"id": ["a", bad, bad]}, "id")
    assert caught.value.context["first_row"] == 1
    with pytest.raises(FormatError, match="1 of 2 rows"):
        _keys({"id": ["a", bad], "n": [None, None]}, "id", "n")


def test_columns_without_text_are_refused() -> None:
    with pytest.raises(SchemaError, match="no text as a key"):
        _keys({"id": [[1]]}, "id")
    with pytest.raises(SchemaError, match="no text as a key"):
        _keys({"id": [b"x"]}, "id", text_path=TextPath.ROW)
    with pytest.raises(SchemaError, match="not among the columns"):
        _keys({"id": ["x"]}, "nope")


def test_keys_that_cannot_be_formed_are_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="class of its own"):
        _keys({"id": ["x"]}, "id", generator=KeyGeneratorType.USER_PROVIDED)
    with pytest.raises(UnsupportedTableError, match="no record key fields"):
        _keys({"id": ["x"]}, generator=KeyGeneratorType.AUTO_RECORD)


@given(st.lists(st.tuples(st.text(max_size=3), st.none() | st.integers(-9, 9)), max_size=20))
def test_composite_keys_agree_with_the_rule_row_by_row(rows: list[tuple[str, int | None]]) -> None:
    rows = [row for row in rows if row[0] or row[1] is not None]
    columns = {
        "a": pa.array([a for a, _ in rows], pa.string()),
        "b": pa.array([b for _, b in rows], pa.int32()),
    }
    wanted = [f"a:{a or '__empty__'},b:{'__null__' if b is None else b}" for a, b in rows]
    assert _keys(columns, "a", "b") == wanted


@pytest.mark.parametrize("shared", TABLES, ids=lambda t: t.id)
def test_keys_formed_from_columns_equal_the_keys_hudi_stored(
    shared: SharedTable, tmp_path: Path
) -> None:
    root = unpack(shared, tmp_path)
    values = parse_properties((root / ".hoodie" / "hoodie.properties").read_bytes())
    properties = TableProperties(values)
    if not properties.record_key_fields:
        pytest.skip("keys of this table were generated")
    for path in sorted(root.rglob("[!.]*.parquet")):
        if ".hoodie" in path.relative_to(root).parts:
            continue
        for batch in pq.ParquetFile(path).iter_batches():
            stored = batch.column("_hoodie_record_key")
            if stored.null_count:
                assert not properties.populate_meta_fields
                continue
            first = properties.record_key_fields[0]
            named = stored[0].as_py().startswith(f"{first}:")
            spec = KeySpec.from_properties(properties, names_single_key=named)
            assert record_keys(batch, spec) == stored


def test_a_spec_tells_time_partitions_of_the_custom_generator() -> None:
    values = {
        "hoodie.table.version": "8",
        "hoodie.table.keygenerator.type": "CUSTOM",
        "hoodie.table.partition.fields": "country:simple,day:TIMESTAMP",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    }
    spec = KeySpec.from_properties(TableProperties(values))
    kinds = [(f.name, f.kind) for f in spec.partition_fields]
    assert kinds == [("country", PartitionKind.SIMPLE), ("day", PartitionKind.TIMESTAMP)]
    assert spec.time_settings["timestamp.type"] == "EPOCHMILLISECONDS"


def test_an_unknown_partition_type_is_an_error() -> None:
    values = {
        "hoodie.table.version": "8",
        "hoodie.table.keygenerator.type": "CUSTOM",
        "hoodie.table.partition.fields": "country:FANCY",
    }
    with pytest.raises(FormatError, match="FANCY"):
        KeySpec.from_properties(TableProperties(values))
