"""The commands of the metadata table, on a real one."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakewright as lw
from lakewright.cli.app import app
from lakewright.errors import InputError
from tests.corpus import committed_tables

TABLE = next(t for t in committed_tables() if t.name == "v9_mor_metadata_indexes")
runner = CliRunner()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return TABLE.unpack(tmp_path)


def run(*args: str, code: int = 0) -> str:
    result = runner.invoke(app, list(args))
    assert result.exit_code == code, result.output
    return result.stdout


def test_show_tells_indexes_state_size_and_how_far_it_is(table: Path) -> None:
    shown = json.loads(run("metadata", "show", str(table), "--json"))
    assert [i["index"] for i in shown["indexes"]] == [
        "column_stats",
        "files",
        "partition_stats",
        "record_index",
    ]
    assert shown["trusted"] and shown["problem"] is None
    assert shown["synced to"] >= shown["last commit"]
    assert all(i["state"] == "built" and i["file_groups"] > 0 for i in shown["indexes"])
    stored = (table / ".hoodie/metadata").rglob("*-0_*")
    assert shown["bytes"] == sum(f.stat().st_size for f in stored if not f.name.endswith(".crc"))
    text = run("metadata", "show", str(table))
    assert "trusted     yes" in text and "record_index: 2 file groups" in text


def test_a_read_without_a_damaged_metadata_table_says_so_and_how_to_repair_it(table: Path) -> None:
    command = [sys.executable, "-m", "lakewright.cli.app", "table", "read", str(table), "-o", "csv"]
    sound = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sound.stderr == ""
    for file in (table / ".hoodie/metadata/files").glob("*.hfile"):
        file.write_bytes(file.read_bytes()[:100])
    read = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sorted(read.stdout.splitlines()) == sorted(sound.stdout.splitlines())
    [warning] = read.stderr.splitlines()
    assert warning.startswith("warning: ") and str(table) in warning
    assert "damaged" in warning and "lakewright metadata rebuild" in warning
    assert "path=files/" in warning and "offset=" in warning


def test_verify_ends_with_1_and_a_row_for_each_difference(table: Path) -> None:
    assert run("metadata", "verify", str(table), "--index", "files", "-o", "json") == ""
    gone = min(p for p in table.rglob("*.parquet") if ".hoodie" not in p.relative_to(table).parts)
    size = gone.stat().st_size
    gone.unlink()
    told = json.loads(run("metadata", "verify", str(table), "--index", "files", "--json", code=1))
    assert told == {
        "index": "files",
        "kind": "unexpected",
        "key": f"{gone.parent.relative_to(table)}/{gone.name}",
        "expected": None,
        "found": {"size": size},
    }
    as_csv = run("metadata", "verify", str(table), "--index", "files", "-o", "csv", code=1)
    (row,) = csv.DictReader(io.StringIO(as_csv))
    assert row["kind"] == "unexpected" and gone.name in row["key"]


def test_a_table_without_metadata_table_has_nothing_to_show(tmp_path: Path) -> None:
    made = lw.Table.create(tmp_path / "t", schema=pa.schema([("id", pa.string())]), key=["id"])
    for command in (["show"], ["verify"], ["drop"]):
        run("metadata", *command, made.uri, code=3)


def test_rebuild_makes_a_damaged_metadata_table_right_again(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string())])
    made = lw.Table.create(tmp_path / "t", schema=schema, key=["id"])
    enabled = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
    }
    made.append(pa.table({"id": ["a"]}), options=enabled)
    before = made.properties.metadata_partitions
    assert "column_stats" in before
    for file in (tmp_path / "t/.hoodie/metadata/column_stats").glob(".*.log.1_[!0]*"):
        file.write_bytes(b"damaged")
    run("metadata", "verify", made.uri, code=1)
    told = json.loads(run("metadata", "rebuild", made.uri, "--json"))
    assert told == {"indexes": list(before), "left_out": []}
    run("metadata", "verify", made.uri)
    assert made.scan().count() == 1


def test_drop_removes_the_claim_and_the_folder(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string())])
    made = lw.Table.create(tmp_path / "t", schema=schema, key=["id"])
    made.append(pa.table({"id": ["a"]}), options={"hoodie.metadata.enable": "true"})
    assert made.properties.metadata_partitions
    run("metadata", "drop", made.uri)
    assert made.properties.metadata_partitions == ()
    assert not (tmp_path / "t/.hoodie/metadata").exists()
    assert made.scan().count() == 1
    run("metadata", "drop", made.uri, code=3)


def test_build_adds_an_index_and_refuses_names_that_it_does_not_know(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string())])
    made = lw.Table.create(tmp_path / "t", schema=schema, key=["id"])
    made.append(pa.table({"id": ["a"]}), options={"hoodie.metadata.enable": "true"})
    before = made.properties.metadata_partitions
    for command in (["build", made.uri, "recrod_index"], ["rebuild", made.uri, "--index", "x"]):
        refused = runner.invoke(app, ["metadata", *command]).exception
        assert isinstance(refused, InputError) and "record_index" in (refused.hint or "")
    assert made.properties.metadata_partitions == before
    told = json.loads(run("metadata", "build", made.uri, "record_index", "--json"))
    assert told == {"indexes": ["record_index"], "left_out": []}
    run("metadata", "build", made.uri, "record_index", code=3)
    run("metadata", "verify", made.uri)


def test_build_makes_a_record_index_per_partition(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    made = lw.Table.create(tmp_path / "t", schema=schema, key=["id"], partition=["city"])
    rows = pa.table({"id": ["a", "a", "b"], "city": ["x", "y", "y"]}, schema=schema)
    made.append(rows)
    told = run("metadata", "build", made.uri, "record_index", "--per-partition", "--json")
    assert "record_index" in json.loads(told)["indexes"]
    shown = json.loads(run("metadata", "show", made.uri, "--json"))["indexes"]
    assert [i["file_groups"] for i in shown if i["per_partition"]] == [2]
    assert "per partition" in run("metadata", "show", made.uri)
    run("metadata", "verify", made.uri)
    wrong = ["metadata", "build", made.uri, "record_index", "--all-keys"]
    assert "has a record index per partition" in str(runner.invoke(app, wrong).exception)


def test_build_makes_a_secondary_index_and_its_record_index(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("at", pa.list_(pa.int64()))])
    made = lw.Table.create(tmp_path / "t", schema=schema, key=["id"], version=8)
    rows = pa.table({"id": ["a", "b"], "city": ["x", "y"], "at": [[1], []]}, schema=schema)
    made.append(rows, options={"hoodie.metadata.enable": "true"})
    told = json.loads(run("metadata", "build", made.uri, "--secondary", "by_city=city", "--json"))
    assert told == {"indexes": ["record_index", "secondary_index_by_city"], "left_out": []}
    assert made.scan(where="city = 'y'").to_arrow()["id"].to_pylist() == ["b"]
    run("metadata", "verify", made.uri)
    run("metadata", "build", made.uri, "--secondary", "by_city=city", code=3)


@pytest.mark.parametrize(
    ("given", "version", "reason"),
    [
        ("by_city", 8, "is no secondary index"),
        ("by_city=", 8, "is no secondary index"),
        ("by_city=town", 8, "there is no such column"),
        ("by_city=at", 8, "its values are no texts"),
        ("../city=city", 8, "becomes a folder"),
        ("by_id=city", 8, "knows that index on id"),
        ("by_city=city", 6, "version 6 have no secondary indexes"),
    ],
)
def test_what_a_secondary_index_cannot_be_on(
    tmp_path: Path, given: str, version: int, reason: str
) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("at", pa.list_(pa.int64()))])
    made = lw.Table.create(tmp_path / "t", schema=schema, key=["id"], version=version)
    rows = pa.table({"id": ["a"], "city": ["x"], "at": [[1]]}, schema=schema)
    made.append(rows, options={"hoodie.metadata.enable": "true"})
    if version == 8:
        made.metadata.build(secondary={"by_id": "id"})
    before = sorted(p.name for p in (tmp_path / "t").rglob("*"))
    refused = runner.invoke(app, ["metadata", "build", made.uri, "--secondary", given]).exception
    assert isinstance(refused, InputError) and reason in str(refused) and refused.hint
    assert sorted(p.name for p in (tmp_path / "t").rglob("*")) == before


def test_drop_takes_some_indexes_away_for_good(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    made = lw.Table.create(tmp_path / "t", schema=schema, key=["id"], version=8)
    wanted = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    made.append(pa.table({"id": ["a"], "city": ["x"]}), options=wanted)
    made.metadata.build("column_stats", secondary={"by_city": "city"})
    for needed, by in (("record_index", "secondary_index_by_city"), ("files", "column_stats")):
        refused = runner.invoke(app, ["metadata", "drop", made.uri, "--index", needed]).exception
        assert isinstance(refused, InputError) and f"needed by {by}" in str(refused)
    assert len(made.properties.metadata_partitions) == 4
    run("metadata", "drop", made.uri, "--index", "secondary_index_by_city")
    made.upsert(pa.table({"id": ["b"], "city": ["y"]}), options=wanted)
    assert {*made.properties.metadata_partitions} == {"files", "column_stats", "record_index"}
    assert not (tmp_path / "t/.hoodie/metadata/secondary_index_by_city").exists()
    run("metadata", "verify", made.uri)
    run("metadata", "drop", made.uri, "--index", "secondary_index_by_city", code=3)
    made.metadata.build(secondary={"by_city": "id"})
    assert made.scan(where="city = 'y'").to_arrow()["id"].to_pylist() == ["b"]
