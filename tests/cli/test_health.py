"""`lakewright table health`: what it prints, in every form, and how it ends."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakewright as lw
from lakewright.cli.app import app

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64())])
DUE = ["-s", "hoodie.compact.inline.max.delta.commits=2"]
runner = CliRunner()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    made = lw.Table.create(tmp_path / "t", schema=SCHEMA, type="mor", key=["id"], ordering=["ts"])
    for ts in range(2):
        made.upsert(pa.table({"id": ["a"], "ts": [ts]}, schema=SCHEMA))
    return tmp_path / "t"


def test_a_healthy_table_ends_with_zero(table: Path) -> None:
    done = runner.invoke(app, ["table", "health", str(table)])
    assert done.exit_code == 0 and done.stdout.strip().endswith("healthy")


def test_what_needs_action_ends_with_five_and_names_the_command(table: Path) -> None:
    done = runner.invoke(app, ["table", "health", str(table), *DUE])
    assert done.exit_code == 5
    assert "compaction.overdue" in done.stdout
    assert f"$ lakewright compaction run {table}" in done.stdout


def test_programs_get_the_same_as_json_and_csv(table: Path) -> None:
    done = runner.invoke(app, ["table", "health", str(table), *DUE, "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 5 and found["healthy"] is False
    [finding] = found["findings"]
    assert finding["severity"] == "action" and finding["code"] == "compaction.overdue"
    rows = runner.invoke(app, ["table", "health", str(table), *DUE, "-o", "csv"]).stdout
    [row] = csv.DictReader(io.StringIO(rows))
    assert {k: v or None for k, v in row.items()} == finding


def test_the_command_that_is_named_resolves_it(table: Path) -> None:
    done = runner.invoke(app, ["table", "health", str(table), *DUE, "--json"])
    command = json.loads(done.stdout)["findings"][0]["command"].split()[1:]
    assert runner.invoke(app, [*command, *DUE]).exit_code == 0
    assert runner.invoke(app, ["table", "health", str(table), *DUE]).exit_code == 0
