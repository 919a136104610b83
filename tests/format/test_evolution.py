"""Rows brought from a file's schema to the table's, checked against a row-wise rule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.parquet import iter_row_groups, open_parquet
from lakewright.errors import SchemaError
from lakewright.format.evolution import MISSING, conversion
from lakewright.format.java_digits import DOUBLE, SINGLE, java_text
from tests.fixtures import SharedTable, expected_rows, shared_tables, unpack

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
UTC_MICROS, UTC_MILLIS = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")


def _converted(
    source: pa.Schema, target: pa.Schema, columns: dict[str, list[Any]], **options: Any
) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict(columns, source)
    result = conversion(source, target, **options).apply(batch)
    result.validate(full=True)
    assert result.schema.equals(target, check_metadata=True)
    return list(result.to_pylist())


def _one(source: pa.DataType, target: pa.DataType, *values: Any) -> list[Any]:
    rows = _converted(pa.schema({"c": source}), pa.schema({"c": target}), {"c": [*values, None]})
    assert rows[-1] == {"c": None}
    return [row["c"] for row in rows[:-1]]


# ---- single type changes ---------------------------------------------------------------------


def test_numbers_widen_numerically() -> None:
    assert _one(pa.int32(), pa.int64(), -5) == [-5]
    assert _one(pa.int8(), pa.int32(), -5) == [-5]
    assert _one(pa.int32(), pa.float32(), 16777217) == [16777216.0]
    assert _one(pa.int64(), pa.float64(), 2**53 + 1) == [float(2**53)]


def test_a_float_becomes_the_double_of_its_decimal_text() -> None:
    assert _one(pa.float32(), pa.float64(), 1.1, 3.4e10, 0.5) == [1.1, 3.3999999e10, 0.5]


def test_numbers_become_text_as_java_writes_them() -> None:
    assert _one(pa.int64(), pa.string(), 10) == ["10"]
    assert _one(pa.float64(), pa.string(), 1.0, 1e10, -0.0) == ["1.0", "1.0E10", "-0.0"]
    assert _one(pa.float32(), pa.large_string(), 1.1) == ["1.1"]
    assert _one(pa.decimal128(10, 2), pa.string(), Decimal("5.00")) == ["5.00"]
    assert _one(pa.date32(), pa.string(), date(2024, 2, 29)) == ["2024-02-29"]


def test_text_becomes_dates_and_decimals_rounded_half_up() -> None:
    assert _one(pa.string(), pa.date32(), "2024-02-29", "2024-3-7") == [
        date(2024, 2, 29),
        date(2024, 3, 7),
    ]
    wanted = [Decimal("1.01"), Decimal("-1.01"), Decimal("100000.00")]
    assert _one(pa.string(), pa.decimal128(10, 2), "1.005", "-1.005", "1.0E5") == wanted
    assert _one(pa.float64(), pa.decimal128(10, 2), 1.005) == [Decimal("1.01")]
    assert _one(pa.int32(), pa.decimal128(5, 2), 7) == [Decimal("7.00")]
    assert _one(pa.int64(), pa.decimal128(38, 30), 7) == [Decimal(7)]


def test_bytes_and_text_are_utf8_of_each_other() -> None:
    assert _one(pa.binary(), pa.string(), "é".encode(), b"a\xff") == ["é", "a�"]
    assert _one(pa.string(), pa.binary(), "é") == ["é".encode()]
    assert _one(pa.binary(2), pa.binary(), b"ab") == [b"ab"]
    assert _one(pa.binary(), pa.binary(2), b"ab") == [b"ab"]


def test_decimals_widen() -> None:
    wider = _one(pa.decimal128(10, 2), pa.decimal128(20, 4), Decimal("1.25"))
    assert wider == [Decimal("1.2500")]
    assert _one(pa.decimal128(38, 2), pa.decimal256(50, 2), Decimal("1.25")) == [Decimal("1.25")]


def test_lost_logical_types_are_restored_from_stored_integers() -> None:
    assert _one(pa.int64(), UTC_MICROS, 5) == [EPOCH + 5 * MICRO]
    assert _one(pa.int64(), pa.timestamp("ms"), 5)[0] == datetime(1970, 1, 1, 0, 0, 0, 5000)
    assert _one(pa.int32(), pa.date32(), 1) == [date(1970, 1, 2)]
    assert _one(UTC_MICROS, pa.int64(), EPOCH + 5 * MICRO) == [5]
    assert _one(pa.date32(), pa.int32(), date(1970, 1, 2)) == [1]


def test_utc_micros_under_a_millis_schema_are_damaged_millis() -> None:
    """Older releases stored milliseconds and annotated them as microseconds."""
    stored = EPOCH + 1577836799999 * MICRO
    assert _one(UTC_MICROS, UTC_MILLIS, stored) == [datetime(2019, 12, 31, 23, 59, 59, 999000, UTC)]


def test_other_unit_changes_keep_the_moment() -> None:
    at = datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)
    assert _one(UTC_MILLIS, UTC_MICROS, at) == [at]
    assert _one(pa.timestamp("us"), pa.timestamp("ms"), datetime(1969, 12, 31, 23, 59, 59, 999900))[
        0
    ] == datetime(1969, 12, 31, 23, 59, 59, 999000)
    assert _one(pa.timestamp("us"), UTC_MICROS, datetime(2020, 1, 1)) == [
        datetime(2020, 1, 1, tzinfo=UTC)
    ]
    seconds = _one(pa.timestamp("s", "UTC"), UTC_MILLIS, datetime(2020, 1, 1, tzinfo=UTC))
    assert seconds == [datetime(2020, 1, 1, tzinfo=UTC)]


def test_names_of_zones_do_not_matter() -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    assert _one(pa.timestamp("us", "+00:00"), UTC_MICROS, at) == [at]


def test_representations_of_text_are_one_type() -> None:
    assert _one(pa.large_string(), pa.string(), "a") == ["a"]
    assert _one(pa.dictionary(pa.int32(), pa.string()), pa.string(), "a", "b", "a") == [
        "a",
        "b",
        "a",
    ]
    assert _one(pa.dictionary(pa.int32(), pa.float32()), pa.float64(), 1.1) == [1.1]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.float32(), pa.int32()),
        (pa.string(), pa.int32()),
        (pa.bool_(), pa.string()),
        (pa.bool_(), pa.int32()),
        (UTC_MICROS, pa.string()),
        (pa.date32(), UTC_MICROS),
        (pa.int32(), UTC_MICROS),
        (pa.decimal128(10, 2), pa.float64()),
        (pa.string(), pa.list_(pa.string())),
        (pa.struct({"a": pa.int32()}), pa.int32()),
        (pa.map_(pa.string(), pa.int32()), pa.list_(pa.int32())),
    ],
    ids=str,
)
def test_other_changes_are_refused_with_column_types_and_file(
    source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(SchemaError) as caught:
        conversion(
            pa.schema({"a": pa.struct({"b": source})}),
            pa.schema({"a": pa.struct({"b": target})}),
            path="p/f.parquet",
        )
    assert caught.value.context == {
        "column": "a.b",
        "stored": str(source),
        "wanted": str(target),
        "path": "p/f.parquet",
    }


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (pa.string(), pa.date32(), "yesterday"),
        (pa.string(), pa.decimal128(4, 2), "12345.6"),
        (pa.string(), pa.decimal128(4, 2), "1_0"),
        (pa.string(), pa.decimal128(4, 2), "NaN"),
        (pa.float64(), pa.decimal128(4, 2), float("nan")),
        (pa.int32(), pa.decimal128(4, 2), 100),
        (pa.decimal128(10, 4), pa.decimal128(10, 2), Decimal("1.2345")),
        (pa.binary(), pa.binary(2), b"abc"),
        (pa.timestamp("s"), pa.timestamp("us"), datetime(9999, 1, 1)),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_when_applied(
    source: pa.DataType, target: pa.DataType, value: Any
) -> None:
    made = conversion(pa.schema({"c": source}), pa.schema({"c": target}), path="f")
    batch = pa.RecordBatch.from_pydict({"c": [value]}, pa.schema({"c": source}))
    if source == pa.timestamp("s"):
        batch = pa.RecordBatch.from_arrays([pa.array([2**62], source)], ["c"])
    with pytest.raises(SchemaError, match="does not fit") as caught:
        made.apply(batch)
    assert caught.value.context["path"] == "f"


# ---- columns ---------------------------------------------------------------------------------


def test_columns_are_matched_by_name_and_missing_ones_are_null() -> None:
    source = pa.schema({"b": pa.int32(), "gone": pa.int32(), "a": pa.string()})
    target = pa.schema({"a": pa.string(), "new": pa.float64(), "b": pa.int64()})
    made = conversion(source, target)
    assert made.source_columns == ("a", "b")
    assert made.absent == ("new",)
    rows = _converted(source, target, {"b": [1], "gone": [2], "a": ["x"]})
    assert rows == [{"a": "x", "new": None, "b": 1}]


def test_case_matters_only_where_both_spellings_exist() -> None:
    target = pa.schema({"Id": pa.int32()})
    assert _converted(pa.schema({"ID": pa.int32()}), target, {"ID": [1]}) == [{"Id": 1}]
    both = pa.schema({"ID": pa.int32(), "Id": pa.int32()})
    assert _converted(both, target, {"ID": [1], "Id": [2]}) == [{"Id": 2}]
    unclear = pa.schema({"ID": pa.int32(), "id": pa.int32()})
    assert _converted(unclear, target, {"ID": [1], "id": [2]}) == [{"Id": None}]
    two = pa.schema({"Id": pa.int32(), "ID": pa.int32()})
    rows = _converted(pa.schema({"ID": pa.int32()}), two, {"ID": [1]})
    assert rows == [{"Id": None, "ID": 1}]


def test_renames_reach_into_nested_columns_and_may_hide_a_column() -> None:
    source = pa.schema(
        {"old": pa.struct({"x": pa.int32()}), "l": pa.list_(pa.struct({"p": pa.int32()}))}
    )
    target = pa.schema(
        {
            "new": pa.struct({"y": pa.int32(), "x": pa.int32()}),
            "l": pa.list_(pa.struct({"q": pa.int32()})),
        }
    )
    renames = {"new": "old", "new.y": "x", "new.x": MISSING, "l.element.q": "p"}
    columns = {"old": [{"x": 1}], "l": [[{"p": 2}]]}
    rows = _converted(source, target, columns, renames=renames)
    assert rows == [{"new": {"y": 1, "x": None}, "l": [{"q": 2}]}]


def test_a_hidden_column_is_missing_although_its_type_is_the_same() -> None:
    schema = pa.schema({"s": pa.struct({"x": pa.int32()}), "c": pa.int32()})
    columns = {"s": [{"x": 1}], "c": [1]}
    rows = _converted(schema, schema, columns, renames={"s.x": MISSING, "c": MISSING})
    assert rows == [{"s": {"x": None}, "c": None}]


def test_constants_win_over_what_the_file_holds() -> None:
    source = pa.schema({"a": pa.int32(), "day": pa.date32()})
    target = pa.schema({"a": pa.int32(), "day": pa.date32(), "n": pa.int64()})
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "day": [None, None]}, source)
    constants = {"day": date(2024, 1, 1), "n": pa.scalar(5, pa.int32())}
    rows = conversion(source, target).apply(batch, constants).to_pylist()
    assert rows == [{"a": a, "day": date(2024, 1, 1), "n": 5} for a in (1, 2)]
    same = conversion(source, source).apply(batch, {"day": date(2024, 1, 1)})
    assert same.column("day").null_count == 0


def test_a_batch_that_fits_is_returned_as_it_is() -> None:
    schema = pa.schema({"a": pa.int32(), "b": pa.list_(pa.string())})
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": [["x"]]}, schema)
    assert conversion(schema, schema).apply(batch) is batch


def test_equal_columns_are_not_copied() -> None:
    source = pa.schema({"a": pa.int32(), "b": pa.string()})
    target = pa.schema({"b": pa.string(), "a": pa.int32()})
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": ["x"]}, source)
    result = conversion(source, target).apply(batch)
    assert result.column("a").buffers()[1].address == batch.column("a").buffers()[1].address


def test_statistics_may_be_used_only_for_columns_stored_as_they_are() -> None:
    source = pa.schema({"A": pa.int32(), "b": pa.int32(), "t": UTC_MICROS})
    target = pa.schema({"a": pa.int32(), "b": pa.string(), "t": UTC_MILLIS, "n": pa.int32()})
    made = conversion(source, target)
    assert [made.stored_as(name) for name in (*target.names, "z")] == ["A", *[None] * 4]


def test_lists_and_maps_are_matched_by_position_whatever_writers_call_them() -> None:
    source = pa.schema(
        {
            "l": pa.list_(pa.field("array", pa.int32(), nullable=False)),
            "m": pa.map_(pa.string(), pa.field("value", pa.float32())),
            "f": pa.list_(pa.int32(), 2),
            "g": pa.large_list(pa.int32()),
        }
    )
    target = pa.schema(
        {
            "l": pa.list_(pa.field("element", pa.int64())),
            "m": pa.map_(pa.string(), pa.float64()),
            "f": pa.list_(pa.field("element", pa.int32())),
            "g": pa.list_(pa.field("element", pa.int32())),
        }
    )
    columns = {
        "l": [[1, 2], None, []],
        "m": [[("k", 1.1)], None, []],
        "f": [[1, 2], None, [3, 4]],
        "g": [[1], None, []],
    }
    rows = _converted(source, target, columns)
    assert rows[0] == {"l": [1, 2], "m": [("k", 1.1)], "f": [1, 2], "g": [1]}
    assert rows[1] == dict.fromkeys("lmfg")
    assert rows[2]["f"] == [3, 4]


# ---- a row-wise oracle -----------------------------------------------------------------------

Rule = Callable[[Any], Any]
LEAVES: list[tuple[pa.DataType, pa.DataType, st.SearchStrategy[Any], Rule]] = [
    (pa.int32(), pa.int32(), st.integers(-9, 9), lambda v: v),
    (pa.int32(), pa.int64(), st.integers(-(2**31), 2**31 - 1), lambda v: v),
    (pa.int32(), pa.string(), st.integers(-(2**31), 2**31 - 1), str),
    (
        pa.float32(),
        pa.float64(),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        lambda v: float(java_text(v, SINGLE)) if v else v,
    ),
    (
        pa.float64(),
        pa.string(),
        st.floats(allow_nan=False, allow_infinity=False),
        lambda v: java_text(v, DOUBLE) if v else str(v),
    ),
    (
        pa.string(),
        pa.decimal128(20, 2),
        st.decimals(-(10**9), 10**9, places=5).map(str),
        lambda v: Decimal(v).quantize(Decimal("0.01"), ROUND_HALF_UP),
    ),
    (pa.date32(), pa.string(), st.dates(), date.isoformat),
    (pa.string(), pa.binary(), st.text(max_size=4), str.encode),
    (
        UTC_MILLIS,
        UTC_MICROS,
        st.integers(-(10**12), 10**12).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
        lambda v: v,
    ),
]


@st.composite
def _evolving(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any, Any, Rule]:
    """A stored type, a wanted type, values of the first, and how one value changes."""
    shape = draw(st.sampled_from(["leaf", "list", "map", "struct"] if depth else ["leaf"]))
    if shape == "leaf":
        return draw(st.sampled_from(LEAVES))
    source, target, values, rule = draw(_evolving(depth - 1))
    each = st.none() | values
    if shape == "list":
        names = draw(st.sampled_from(["array", "element", "item", "bag"]))
        return (
            pa.list_(pa.field(names, source)),
            pa.list_(pa.field("element", target)),
            st.lists(each, max_size=3),
            lambda vs: [None if v is None else rule(v) for v in vs],
        )
    if shape == "map":
        return (
            pa.map_(pa.string(), source),
            pa.map_(pa.string(), target),
            st.lists(st.tuples(st.text(max_size=2), each), max_size=3),
            lambda vs: [(k, None if v is None else rule(v)) for k, v in vs],
        )
    return (
        pa.struct({"gone": pa.int32(), "kept": source}),
        pa.struct({"kept": target, "added": pa.string()}),
        st.fixed_dictionaries({"gone": st.just(1), "kept": each}),
        lambda v: {"kept": None if v["kept"] is None else rule(v["kept"]), "added": None},
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whole_batches_agree_with_converting_each_row(data: st.DataObject) -> None:
    source, target, values, rule = data.draw(_evolving())
    rows = data.draw(st.lists(st.none() | values, max_size=6))
    skipped = data.draw(st.integers(0, len(rows)))
    batch = pa.RecordBatch.from_arrays([pa.array(rows, source)], ["c"])[skipped:]
    made = conversion(pa.schema({"c": source}), pa.schema({"c": target}))
    result = made.apply(batch)
    result.validate(full=True)
    wanted = [None if v is None else rule(v) for v in rows[skipped:]]
    assert result.column(0).to_pylist() == wanted


# ---- real tables -----------------------------------------------------------------------------

LOGICAL = [t for t in shared_tables() if "logical_types" in t.zip and not t.refused]


def _logical_target(schema: pa.Schema) -> pa.Schema:
    """The table schema of the newest commit of these tables, for the columns of interest."""
    wanted = {
        "_hoodie_record_key": pa.string(),
        "ts_millis": UTC_MILLIS,
        "ts_micros": UTC_MICROS,
        "local_ts_millis": pa.timestamp("ms"),
        "local_ts_micros": pa.timestamp("us"),
        "dec_fixed_large": pa.decimal128(18, 9),
    }
    assert set(wanted) <= set(schema.names)
    return pa.schema(wanted)


def _text(value: Any) -> str:
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else str(value)


@pytest.mark.parametrize("shared", LOGICAL, ids=lambda t: t.id)
def test_damaged_logical_types_of_real_tables_are_read_as_hudi_reads_them(
    shared: SharedTable, tmp_path: Path
) -> None:
    root = unpack(shared, tmp_path)
    by_key = {row["_hoodie_record_key"]: row for row in expected_rows(shared)}
    compared = 0
    for path in sorted(root.rglob("[!.]*.parquet")):
        if ".hoodie" in path.relative_to(root).parts:
            continue
        file = open_parquet(path.read_bytes(), path=path.name)
        target = _logical_target(file.schema_arrow)
        made = conversion(file.schema_arrow, target, path=path.name)
        for _, batches in iter_row_groups(file, path=path.name, columns=made.source_columns):
            for row in pa.Table.from_batches(map(made.apply, batches)).to_pylist():
                wanted = by_key.get(row["_hoodie_record_key"])
                if wanted is not None and wanted["_hoodie_file_name"] == path.name:
                    _compare(row, wanted)
                    compared += 1
    assert compared


def _compare(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in row.items():
        expected = wanted[name]
        if name in ("local_ts_millis", "local_ts_micros") and isinstance(expected, int):
            # Hudi 1.0.2 shows these as numbers: as stored, or scaled to microseconds.
            ticks = (value - datetime(1970, 1, 1)) // MICRO
            assert expected in (ticks, ticks // 1000)
        elif name == "ts_millis" and expected.startswith("1970"):
            # Hudi 1.0.2 does not repair: the stored number, taken for microseconds.
            stored = (datetime.fromisoformat(expected) - EPOCH) // MICRO
            assert value == EPOCH + timedelta(milliseconds=stored)
        else:
            assert _text(value) == expected
