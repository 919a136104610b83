"""Make the tables of the corpus with real Hudi and keep Hudi's own answers beside them.

For each case a folder `<store>/<hudi>/<case>/` with `table/`, `answers/*.parquet` and `case.json`
(traits, instants, one entry per query: options, file or the error with which Hudi refused it), so
that comparing needs no Hudi. A case that Hudi cannot make is kept too, with its error.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interop.cases import (
    Call,
    Case,
    Continue,
    Crash,
    Options,
    Restore,
    RollBackLast,
    Savepoint,
    Sql,
    Step,
    Write,
)
from interop.deviations import Deviation
from interop.hudi import ROOT, Hudi, HudiGoneError, HudiRefusedError
from interop.instants import WRITES, completed_writes, instants

STORE = ROOT / ".cache" / "interop"
MOST_TIME_TRAVELS = 5
FAILING_CHECK = {
    "hoodie.precommit.validators": (
        "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"
    ),
    "hoodie.precommit.validators.single.value.sql.queries": (
        "select count(*) from <TABLE_NAME>#-1"
    ),
}
QUERY_TYPE = "hoodie.datasource.query.type"


def make(case: Case, hudi_of: Callable[[str], Hudi], store: Path = STORE) -> dict[str, Any]:
    """Make one table and its answers, once more if Hudi dies over it; what `case.json` says."""
    folder = store / case.hudi / case.name
    started = time.monotonic()
    described: dict[str, Any] = {
        "name": case.name,
        "hudi": case.hudi,
        "traits": dataclasses.asdict(case.traits),
        "note": case.note,
        "error": None,
        "answers": [],
    }
    try:
        try:
            described |= make_once(case, hudi_of, folder)
        except HudiGoneError:
            described |= make_once(case, hudi_of, folder)
    except (HudiRefusedError, HudiGoneError) as error:
        described["error"] = str(error).splitlines()[0]
        (folder / "trace.txt").write_text(getattr(error, "trace", str(error)))
    described["seconds"] = round(time.monotonic() - started, 1)
    (folder / "case.json").write_text(json.dumps(described, indent=1) + "\n")
    return described


def make_once(case: Case, hudi_of: Callable[[str], Hudi], folder: Path) -> dict[str, Any]:
    """Make one table in an empty folder and ask every query; instants and answers."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    table = folder / "table"
    judge = run_steps(case, table, hudi_of)
    answers = ask(case, table, judge, folder)
    judge.forget(case.name)
    return {"instants": [s.file.name for s in instants(table)], "answers": answers}


def run_steps(case: Case, table: Path, hudi_of: Callable[[str], Hudi]) -> Hudi:
    """Run the steps of a case; the Hudi that was the last to write."""
    hudi = hudi_of(case.hudi)
    for step in case.steps:
        if isinstance(step, Continue):
            hudi.forget(case.name)
            hudi = hudi_of(step.hudi)
        elif isinstance(step, Crash):
            crash(case, step, table, hudi)
        else:
            hudi.steps(
                table, case.name, [{"settings": service_settings(case), **resolve(step, table)}]
            )
    return hudi


def service_settings(case: Case) -> Options:
    """What procedures must know, since Hudi would make a metadata table on its own."""
    return {"hoodie.metadata.enable": "false" if case.traits.metadata == "off" else "true"}


def resolve(step: Step, table: Path) -> dict[str, Any]:
    """A step as the Hudi process takes it."""
    match step:
        case Write(operation, schema, rows, options, mode):
            return {
                "do": "write",
                "operation": operation,
                "schema": schema,
                "rows": list(rows),
                "options": dict(options),
                "mode": mode,
            }
        case Sql(text, source, settings, register):
            made: dict[str, Any] = {"do": "sql", "text": text, "register": register}
            if settings:
                made["settings"] = dict(settings)
            if source is not None:
                made["source"] = {"schema": source[0], "rows": list(source[1])}
            return made
        case Call(procedure, arguments, by):
            return call(procedure, by, **arguments)
        case RollBackLast():
            newest = completed_writes(table)[-1].requested
            return call("rollback_to_instant", "table", instant_time=newest)
        case Savepoint():
            newest = completed_writes(table)[-1].requested
            return call("create_savepoint", "table", commit_time=newest)
        case Restore():
            saved = [s for s in instants(table) if s.action == "savepoint"][-1].requested
            return call("rollback_to_savepoint", "table", instant_time=saved)
        case _:
            raise ValueError(step)


def call(procedure: str, by: str, **arguments: Any) -> dict[str, Any]:
    """A procedure call as the Hudi process takes it."""
    return {"do": "call", "procedure": procedure, "by": by, "arguments": arguments}


def crash(case: Case, step: Crash, table: Path, hudi: Hudi) -> None:
    """Let a write fail at its last check before the commit, so that it leaves all its traces."""
    options = {**step.write.options, **FAILING_CHECK}
    try:
        hudi.steps(table, case.name, [resolve(replace(step.write, options=options), table)])
    except HudiRefusedError as refused:
        if "alidat" not in refused.trace:
            raise
    else:
        raise HudiRefusedError("a write that was to fail has completed")
    if step.state == "requested":
        dead = [s for s in instants(table) if s.state == "inflight"][-1]
        for file in table.rglob(f"*{dead.requested}.*"):
            if not file.name.endswith("requested"):
                file.unlink()
        shutil.rmtree(table / ".hoodie" / ".temp" / dead.requested, ignore_errors=True)


def ask(case: Case, table: Path, hudi: Hudi, folder: Path) -> list[dict[str, Any]]:
    """Every query of a case, answered by Hudi."""
    answers = []
    for name, options in queries(case, table):
        entry: dict[str, Any] = {"query": name, "options": dict(options), "error": None}
        file = folder / "answers" / f"{name}.parquet"
        try:
            entry["rows"] = hudi.read(table, file, {**case.read_options, **options})
            entry["file"] = f"answers/{name}.parquet"
        except HudiRefusedError as refused:
            entry["error"] = str(refused)
            (folder / f"{name}.trace.txt").write_text(refused.trace)
        answers.append(entry)
    return answers


def ask_again(folder: Path, hudi_of: Callable[[str], Hudi], known: Sequence[Deviation]) -> None:
    """Ask for the other opinions that deviations name, on this case's queries.

    An opinion is another version of Hudi, or `cleared`: the judge itself, on a copy of the table
    without the files of writes that never completed.
    """
    case = json.loads((folder / "case.json").read_text())
    for asked in case["answers"]:
        kind = query_kind(asked["query"])
        opinions = {d.opinion for d in known if d.opinion and d.covers(case["name"], kind)}
        for opinion in sorted(opinions):
            into = folder / f"opinion-{opinion}"
            into.mkdir(exist_ok=True)
            table = cleared(folder / "table") if opinion == "cleared" else folder / "table"
            hudi = hudi_of(case["hudi"] if opinion == "cleared" else opinion)
            try:
                hudi.read(table, into / f"{asked['query']}.parquet", asked["options"])
            except HudiRefusedError as refused:
                (into / f"{asked['query']}.trace.txt").write_text(refused.trace)


def cleared(table: Path) -> Path:
    """A copy of a table without the files of commits that never completed."""
    copy = table.with_name("table-cleared")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(table, copy)
    seen = instants(copy)
    done = {s.requested for s in seen if s.state == "completed"}
    for dead in {s.requested for s in seen if s.action in WRITES} - done:
        for file in copy.rglob(f"*{dead}.*"):
            file.unlink()
    return copy


def query_kind(name: str) -> str:
    """`as_of_<instant>` is `as_of`; the others are themselves."""
    return "as_of" if name.startswith("as_of") else name


def queries(case: Case, table: Path) -> list[tuple[str, Options]]:
    """Snapshot, read-optimised where there are logs, and time travel to completed writes."""
    asked: list[tuple[str, Options]] = [("snapshot", {})]
    if case.traits.type == "mor":
        asked.append(("read_optimized", {QUERY_TYPE: "read_optimized"}))
    travels = spread(sorted({s.requested for s in completed_writes(table)})[:-1])
    asked += [(f"as_of_{instant}", {"as.of.instant": instant}) for instant in travels]
    return asked


def spread(moments: Sequence[str]) -> list[str]:
    """At most a few of the moments, the first and the last among them."""
    if len(moments) <= MOST_TIME_TRAVELS:
        return list(moments)
    last = len(moments) - 1
    return [moments[round(n * last / (MOST_TIME_TRAVELS - 1))] for n in range(MOST_TIME_TRAVELS)]
