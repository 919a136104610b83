"""The JVM reads a slice only where it reads exactly what lakewright reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.spark import routing
from lakewright.spark.routing import Routing, route
from tests.spark.tables import Files, cow_table

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])


def rows(schema: pa.Schema = SCHEMA, n: int = 2) -> pa.Table:
    return (
        pa.Table.from_batches([], schema)
        if not n
        else pa.table([pa.nulls(n, field.type) for field in schema], schema=schema)
    )


def routed(
    path: Path, commits: dict[str, Files], schema: pa.Schema = SCHEMA, **scan: object
) -> Routing:
    table = lw.Table.open(cow_table(path, commits, schema))
    chosen = table.scan(**scan)  # type: ignore[arg-type]
    return route(chosen, chosen.plan().tasks)


def test_files_of_the_tables_own_schema_go_to_the_jvm(tmp_path: Path) -> None:
    found = routed(tmp_path / "t", {"20240101000000000": {"": [rows(), rows()]}})
    assert (len(found.jvm), len(found.workers), found.reasons) == (2, 0, {})


@pytest.mark.parametrize(
    ("stored", "asked", "jvm"),
    [
        ([("id", pa.string()), ("v", pa.int32())], ["v"], False),  # widened since
        ([("id", pa.string()), ("v", pa.int32())], ["id"], True),  # ... but not asked for
        ([("id", pa.string())], ["v"], True),  # missing: null for both
        ([("id", pa.string()), ("V", pa.int64())], ["v"], False),  # another case
        ([("id", pa.string()), ("v", pa.int64()), ("V", pa.int64())], ["v"], False),
        ([("id", pa.string()), ("at", pa.timestamp("us", "UTC"))], ["at"], False),  # lost unit
        ([("id", pa.string()), ("at", pa.int64())], ["at"], False),  # lost logical type
        ([("id", pa.binary()), ("v", pa.int64())], ["id"], False),
    ],
)
def test_a_file_that_spark_would_read_differently_goes_to_a_worker(
    stored: list[tuple[str, pa.DataType]], asked: list[str], jvm: bool, tmp_path: Path
) -> None:
    old = rows(pa.schema(stored))
    commits = {"20240101000000000": {"": [old]}, "20240102000000000": {"": [rows()]}}
    found = routed(tmp_path / "t", commits, columns=asked)
    assert len(found.jvm) == 1 + jvm
    assert found.reasons == ({} if jvm else {routing.EVOLVED: 1})


def test_a_column_that_only_the_filter_needs_counts_too(tmp_path: Path) -> None:
    old = rows(pa.schema([("id", pa.string()), ("v", pa.int32())]))
    found = routed(
        tmp_path / "t", {"20240101000000000": {"": [old]}}, columns=["id"], where="v = 1"
    )
    assert found.reasons == {routing.EVOLVED: 1}


@pytest.mark.parametrize(
    "kind",
    [
        pa.time32("ms"),
        pa.time64("us"),
        pa.timestamp("ns", "UTC"),
        pa.binary(4),
        pa.list_(pa.time32("ms")),
        pa.struct([("a", pa.int32()), ("A", pa.int32())]),
        pa.map_(pa.string(), pa.timestamp("ns")),
    ],
    ids=str,
)
def test_types_that_spark_does_not_read_from_parquet_go_to_workers(
    kind: pa.DataType, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", kind)])
    commits = {"20240101000000000": {"": [rows(schema)]}}
    assert routed(tmp_path / "t", commits, schema).reasons == {routing.TYPES: 1}


def test_columns_that_spark_cannot_tell_apart_go_to_workers(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64()), ("V", pa.int64())])
    commits = {"20240101000000000": {"": [rows(schema)]}}
    assert routed(tmp_path / "t", commits, schema).reasons == {routing.ALIKE: 1}
    one = routed(tmp_path / "u", commits, schema, columns=["id"])
    assert len(one.jvm) == 1


def test_nested_columns_of_equal_types_go_to_the_jvm_whatever_names_lists_have(
    tmp_path: Path,
) -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("l", pa.list_(pa.field("element", pa.struct([("a", pa.decimal128(5, 1))])))),
            ("m", pa.map_(pa.string(), pa.int32())),
        ]
    )
    stored = pa.schema(
        [
            ("id", pa.string()),
            ("l", pa.list_(pa.field("item", pa.struct([("a", pa.decimal128(5, 1))])))),
            ("m", pa.map_(pa.string(), pa.int32())),
        ]
    )
    other = pa.schema([("id", pa.string()), ("l", pa.list_(pa.struct([("b", pa.int32())])))])
    commits = {"20240101000000000": {"": [rows(stored), rows(other)]}}
    found = routed(tmp_path / "t", commits, schema)
    assert (len(found.jvm), len(found.workers)) == (1, 1)


def test_a_broken_footer_is_left_to_a_worker(tmp_path: Path) -> None:
    path = cow_table(tmp_path / "t", {"20240101000000000": {"": [rows(), rows()]}}, SCHEMA)
    broken = sorted(path.glob("*.parquet"))[1]
    broken.write_bytes(b"PAR1" + b"\0" * 100)
    scan = lw.Table.open(path).scan()
    assert route(scan, scan.plan().tasks).reasons == {routing.UNREADABLE: 1}


def test_what_the_jvm_cannot_reach_goes_to_workers(tmp_path: Path) -> None:
    path = cow_table(tmp_path / "t", {"20240101000000000": {"": [rows()]}}, SCHEMA)
    scan = lw.Table.open(path).scan()
    found = route(scan, scan.plan().tasks, unreachable="far away")
    assert (found.jvm, found.reasons) == ((), {"far away": 1})


def test_of_many_files_one_footer_per_commit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = rows(pa.schema([("id", pa.string()), ("v", pa.int32())]), 1)
    commits: dict[str, Files] = {
        "20240101000000000": {"p": [old] * 80},
        "20240102000000000": {"p": [rows(n=1)] * 70},
    }
    read: list[str] = []
    judged = routing._judged

    def counted(snapshot: object, path: str, schema: pa.Schema) -> str | None:
        read.append(path)
        return judged(snapshot, path, schema)  # type: ignore[arg-type]

    monkeypatch.setattr(routing, "_judged", counted)
    path = cow_table(tmp_path / "t", commits, SCHEMA)
    scan = lw.Table.open(path).scan()
    found = route(scan, scan.plan().tasks)
    assert (len(found.jvm), found.reasons) == (70, {routing.EVOLVED: 80})
    assert len(read) == 2
    # A clustering may copy files of different schemas, so all of its files are looked at.
    read.clear()
    for state in ("commit", "commit.requested", "inflight"):
        name = path / ".hoodie" / f"20240102000000000.{state}"
        name.rename(
            name.with_name(
                "20240102000000000.replacecommit"
                + ("" if state == "commit" else f".{state.removeprefix('commit.')}")
            )
        )
    scan = lw.Table.open(path).scan()
    found = route(scan, scan.plan().tasks)
    assert (len(found.jvm), len(read)) == (70, 71)
