"""The command line on real tables: every command, every output form, readable errors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakewright.cli.app import app
from tests.fixtures import SHARED_ABSENT, shared_tables, unpack
from tests.quickly import a_few_quickly

TABLES = {t.id: t for t in shared_tables()}
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)
runner = CliRunner()


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    shared = next(t for i, t in TABLES.items() if i.startswith("mor_v8_trips"))
    return unpack(shared, tmp_path)


def run(*args: str) -> str:
    result = runner.invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


def json_rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


COMMANDS = [
    ("table", "properties"),
    ("table", "schema"),
    ("table", "read"),
    ("timeline", "show"),
    ("timeline", "commits"),
    ("files", "show"),
    ("files", "partitions"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_all_output_forms_show_the_same_rows(command: tuple[str, str], trips: Path) -> None:
    as_json = json_rows(run(*command, str(trips), "-o", "json"))
    as_csv = list(csv.DictReader(io.StringIO(run(*command, str(trips), "-o", "csv"))))
    as_text = run(*command, str(trips))
    assert len(as_json) == len(as_csv) > 0
    assert list(as_json[0]) == list(as_csv[0])
    assert all(name in as_text for name in as_json[0] if not name.startswith("_"))


def test_table_show_tells_what_the_table_is(trips: Path) -> None:
    shown = json.loads(run("table", "show", str(trips), "-o", "json"))
    assert shown["type"] == "MERGE_ON_READ" and shown["version"] == "8"
    assert shown["listed by"] == "metadata table" and shown["warnings"] == []
    assert "MERGE_ON_READ" in run("table", "show", str(trips))


def test_read_filters_projects_and_limits(trips: Path) -> None:
    everything = json_rows(run("table", "read", str(trips), "-o", "json"))
    city = everything[0]["city"]
    some = json_rows(
        run("table", "read", str(trips), "-c", "city,fare", "-w", f"city = '{city}'", "-o", "json")
    )
    assert some == [
        {"city": r["city"], "fare": r["fare"]} for r in everything if r["city"] == city
    ] or len(some) == sum(r["city"] == city for r in everything)
    assert len(json_rows(run("table", "read", str(trips), "-n", "1", "-o", "json"))) == 1


def test_log_blocks_and_records_and_hfile_keys(trips: Path) -> None:
    log = next(p for p in trips.rglob(".*.log.*") if ".hoodie" not in p.relative_to(trips).parts)
    name = str(log.relative_to(trips))
    blocks = json_rows(run("log", "blocks", str(trips), name, "-o", "json"))
    records = json_rows(run("log", "records", str(trips), name, "-o", "json"))
    assert len(records) == sum(int(str(b["records"])) for b in blocks) > 0
    hfile = next((trips / ".hoodie" / "metadata" / "files").glob("*.hfile"))
    keys = json_rows(run("hfile", "keys", str(trips), str(hfile.relative_to(trips)), "-o", "json"))
    assert "__all_partitions__" in {k["key"] for k in keys}


def test_instants_show_their_plan_and_metadata(trips: Path) -> None:
    rows = json_rows(run("timeline", "show", str(trips), "-o", "json"))
    time = str(next(r for r in rows if r["state"] == "COMPLETED")["requested_time"])
    shown = json.loads(run("timeline", "instant", str(trips), time))
    assert shown["requested_time"] == time and shown["metadata"] is not None


def test_plan_shows_what_is_skipped(trips: Path) -> None:
    shown = json.loads(run("table", "plan", str(trips), "-w", "city = 'nowhere'", "-o", "json"))
    assert shown["partitions"]["kept"] == 0 and shown["tasks"] == []


@pytest.mark.parametrize(
    ("args", "code", "words"),
    a_few_quickly(
        [
            (["table", "read", "{trips}", "-w", "city = "], 2, "config.filter"),
            (["table", "show", "{missing}"], 1, "table.not_found"),
            (["table", "read", "{trips}", "-c", "citty"], 2, "city"),
            (["timeline", "instant", "{trips}", "1"], 1, "table.instant_not_found"),
        ],
        1,
    ),
)
def test_errors_are_two_lines_and_an_exit_code(
    args: list[str], code: int, words: str, trips: Path, tmp_path: Path
) -> None:
    named = [a.format(missing=tmp_path / "nothing", trips=trips) for a in args]
    done = subprocess.run(
        [sys.executable, "-m", "lakewright.cli.app", *named],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2 and lines[0].startswith("error [") and lines[1].startswith("hint: ")
    assert words in done.stderr


def test_every_command_has_help_that_says_what_it_does() -> None:
    for group in ("table", "timeline", "files", "log", "hfile"):
        text = run(group, "--help")
        assert "Commands" in text
    assert "savepoint" in run("table", "read", "--help")
