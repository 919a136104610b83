"""The commands of services: plan, run, and what they tell when there is nothing to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakewright as lw
from lakewright.cli.app import app
from lakewright.cli.running import tell
from lakewright.runtime.events import Event
from lakewright.services.savepoint import create_savepoint

QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
runner = CliRunner()


def rows(*ids: str, n: int = 1) -> pa.Table:
    return pa.table({"id": [*ids], "n": [n] * len(ids)})


@pytest.fixture
def table(tmp_path: Path) -> lw.Table:
    made = lw.Table.create(tmp_path / "t", schema=rows("a").schema, key=["id"], type="mor")
    for n in range(3):
        made.upsert(rows("a", "b", n=n), options=QUIET)
    return made


def run(*args: str, code: int = 0) -> str:
    result = runner.invoke(app, list(args))
    assert result.exit_code == code, result.output
    return result.stdout


def told(*args: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(run(*args, "--json"))
    return found


def values(table: lw.Table) -> list[int]:
    found: list[int] = table.scan(columns=["n"]).to_arrow()["n"].to_pylist()
    return found


def commits(table: lw.Table) -> list[str]:
    return [i.requested_time for i in table.timeline.commits().completed()]


def test_the_newest_commit_is_rolled_back_after_a_look(table: lw.Table) -> None:
    newest = commits(table)[-1]
    planned = told("rollback", "plan", table.uri, newest)
    assert planned["becomes"] == "nothing" and values(table) == [2, 2]
    done = told("rollback", "run", table.uri, newest)
    assert done["instant"] == newest and values(table) == [1, 1]
    assert "becomes" in run("rollback", "plan", table.uri, commits(table)[-1])


def test_a_plan_is_taken_away_by_name(table: lw.Table) -> None:
    always = ("-s", "hoodie.compact.inline.max.delta.commits=1")
    instant = json.loads(run("compaction", "schedule", table.uri, *always))["instant"]
    run("rollback", "run", table.uri, instant, "--unschedule")
    assert not table.timeline.pending().instants


def test_the_table_goes_back_to_a_savepoint(table: lw.Table) -> None:
    made = told("savepoint", "create", table.uri, commits(table)[-1], "-m", "before")
    assert made["comment"] == "before"
    assert told("savepoint", "list", table.uri)["instant"] == made["instant"]
    run("restore", "run", table.uri, code=3)
    table.upsert(rows("a", "c", n=9), options=QUIET)
    planned = run("restore", "plan", table.uri, "-o", "json")
    assert len(planned.splitlines()) == 1
    done = told("restore", "run", table.uri)
    assert done["to"] == made["instant"] and values(table) == [2, 2]
    run("savepoint", "delete", table.uri, str(made["instant"]))
    run("savepoint", "list", table.uri, code=3)
    assert told("restore", "run", table.uri, "--to", commits(table)[0])["undone"]
    assert values(table) == [0, 0]


def test_old_files_are_cleaned_after_a_look(table: lw.Table) -> None:
    policy = "hoodie.clean.policy=KEEP_LATEST_FILE_VERSIONS"
    settings = ("-s", policy, "-s", "hoodie.clean.fileversions.retained=1")
    run("clean", "plan", table.uri, *settings, code=3)
    table.services.compaction.run({"hoodie.compact.inline.max.delta.commits": "1"})
    planned = run("clean", "plan", table.uri, *settings, "--json").splitlines()
    done = told("clean", "run", table.uri, *settings)
    assert done["files_deleted"] == len(planned) > 0
    run("clean", "run", table.uri, *settings, code=3)


def test_old_instants_are_archived_after_a_look(tmp_path: Path) -> None:
    made = lw.Table.create(tmp_path / "t", schema=rows("a").schema, key=["id"])
    settings = [
        part
        for pair in (
            "hoodie.keep.min.commits=2",
            "hoodie.keep.max.commits=3",
            "hoodie.clean.commits.retained=1",
        )
        for part in ("-s", pair)
    ]
    run("archive", "plan", made.uri, *settings, code=3)
    for n in range(6):
        made.upsert(rows("a", n=n), options=QUIET)
    planned = run("archive", "plan", made.uri, *settings, "--json").splitlines()
    done = told("archive", "run", made.uri, *settings)
    assert done["archived"] == len(planned) > 0
    run("archive", "run", made.uri, *settings, code=3)


def test_refusals_have_an_exit_code_and_a_hint(table: lw.Table) -> None:
    create_savepoint(table.opened(None)[0])
    command = ["rollback", "run", table.uri, commits(table)[-1]]
    shown = subprocess.run(
        [sys.executable, "-m", "lakewright.cli.app", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 1 and shown.stdout == ""
    assert "kept by a savepoint" in shown.stderr and "hint: Delete the savepoint" in shown.stderr


@pytest.mark.parametrize("noun", ["clean", "savepoint", "archive", "rollback", "restore"])
def test_every_service_command_teaches(noun: str) -> None:
    assert "Commands" in run(noun, "--help")
    for verb in ("create", "delete", "list") if noun == "savepoint" else ("plan", "run"):
        text = run(noun, verb, "--help")
        assert "Usage" in text and len(text) > 200


def test_progress_is_told_on_stderr_once_something_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell(Event("clean.delete", 1, 3, "files"))
    tell(Event("clean.delete", 3, 3, "files", instant="7"))
    tell(Event("rollback.unpublished", 1))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["clean.delete 3/3 files (7)", "rollback.unpublished 1"]
