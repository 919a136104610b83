"""Compare changes with Hudi's: every range between two instants of every table, and change data.

    python -m interop.changes                  ask what is not answered yet, then compare
    python -m interop.changes --reuse          only compare
    python -m interop.changes --only 'v8_*'    some tables, by pattern

Works on the tables that `interop.run` made, and makes those with change data itself. Answers lie
beside each table (`answers/incr_<begin>_<end>.parquet`, `answers/cdc_<begin>_<end>.parquet`, and
`changes.json` with one entry per range; second opinions in `opinion-<hudi>`), so that comparing
needs no Hudi. A run over everything writes `docs/compatibility-changes.md`. Ends with a line
`N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interop.cases import Case
from interop.change_cases import change_cases
from interop.change_matrix import write_matrix
from interop.change_ranges import Asked, Range, archived_writes, asked_table
from interop.compare import CaseResult
from interop.compare_changes import compare_table
from interop.corpus import corpus
from interop.deviations import OF_CHANGES, Deviation, load_deviations
from interop.generate import STORE, run_steps
from interop.hudi import ROOT, Hudi, HudiGoneError, HudiRefusedError

T = TypeVar("T")
MATRIX = ROOT / "docs" / "compatibility-changes.md"
LANES = 3
LABEL = "_range"
RANGES_AT_ONCE = 12
"""Ranges in one statement: planning is most of the work, and plans are made one after the other."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.changes", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of table names")
    parser.add_argument("--reuse", action="store_true", help="compare only, without Hudi")
    parser.add_argument("--store", type=Path, default=STORE, help="where the tables are")
    parser.add_argument("--lanes", type=int, default=LANES, help="Hudis at a time")
    options = parser.parse_args(arguments)

    known = {case.name for case in [*corpus(), *change_cases()]}

    def wanted(name: str) -> bool:
        return name in known and any(fnmatchcase(name, pattern) for pattern in options.only)

    started = time.monotonic()
    deviations = load_deviations(changes=True)
    if not options.reuse:
        ask_all([c for c in change_cases() if wanted(c.name)], wanted, options.store, options.lanes)
    tables = [f for f in stored_folders(options.store) if wanted(f.name)]
    answered = [f for f in tables if (f / "changes.json").exists()]
    if not options.reuse:
        ask_others(answered, deviations)
    results = [compare_table(f, deviations) for f in answered]
    complete = options.only == ["*"]
    absent = len([name for name in known if wanted(name)]) - len(results)
    problems = report(results, deviations, complete=complete) + absent
    if complete and options.store == STORE:
        write_matrix(results, deviations, MATRIX)
    outcomes = Counter(v.outcome for r in results for v in r.verdicts)
    passed = outcomes["equal"] + outcomes["accepted"]
    failed = outcomes["different"] + problems
    print(
        f"{passed} passed, {failed} failed ({outcomes['accepted']} of the passed by deviation, "
        f"{len(results)} tables, {absent} not made) in {time.monotonic() - started:.0f} s"
    )
    return 1 if failed else 0


def report(
    results: Sequence[CaseResult], deviations: Sequence[Deviation], *, complete: bool
) -> int:
    """Print what differs; the number of stale deviations, where all tables were compared."""
    for result in results:
        for verdict in result.verdicts:
            if verdict.outcome == "different":
                print(f"FAILED {result.name} {verdict.query}: {verdict.told}")
    unused = [d for d in deviations if complete and d.of_changes and not d.uses]
    stale = [d.name for d in unused if any(d.covers(r.name, d.query) for r in results)]
    for name in stale:
        print(f"FAILED deviations.toml: {name} explains nothing any more")
    return len(stale)


def stored_folders(store: Path) -> list[Path]:
    """Folders of every stored table that could be made."""
    made = sorted(store.glob("*/*/case.json"))
    return [file.parent for file in made if json.loads(file.read_text())["error"] is None]


def ask_all(
    cases: Sequence[Case], wanted: Callable[[str], bool], store: Path, lanes_at_once: int
) -> None:
    """Make what is missing and ask what is not answered, one lane per judge."""
    makers: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if not (store / case.hudi / case.name / "case.json").exists():
            makers[case.hudi].append(case)
    lanes: dict[str, list[Asked]] = defaultdict(list)
    for folder in stored_folders(store):
        if wanted(folder.name) and not (folder / "changes.json").exists():
            asked = asked_table(folder)
            lanes[asked.judge].append(asked)

    def work(version: str) -> None:
        with Hudi(version) as hudi:
            for case in makers[version]:
                made = twice(partial(make, case, hudi, store))
                if made is not None:
                    lanes[version].append(made)
            for asked in lanes[version]:
                twice(partial(ask, asked, hudi))

    with ThreadPoolExecutor(lanes_at_once) as pool:
        list(pool.map(work, sorted({*makers, *lanes}, key=lambda v: -len(lanes[v]))))


def twice(work: Callable[[], T]) -> T:
    """Do something, once more with a new process if Hudi dies over it."""
    try:
        return work()
    except HudiGoneError:
        return work()


def make(case: Case, hudi: Hudi, store: Path) -> Asked | None:
    """Make a table with change data; None if Hudi cannot."""
    folder = store / case.hudi / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    error = None
    try:
        run_steps(case, folder / "table", lambda _: hudi)
    except HudiRefusedError as refused:
        require_alive(refused)
        error = str(refused)
    hudi.forget(case.name)
    traits = {name: getattr(case.traits, name) for name in case.traits.__dataclass_fields__}
    told: dict[str, Any] = {"name": case.name, "hudi": case.hudi, "traits": traits}
    told |= {"error": error, "answers": []}
    (folder / "case.json").write_text(json.dumps(told, indent=1) + "\n")
    return None if error else asked_table(folder)


# -- asking ---------------------------------------------------------------------------------


def ask(asked: Asked, hudi: Hudi) -> None:
    """Every range of a table, answered by the judge and stored beside it."""
    started = time.monotonic()
    asked = with_archive(asked, hudi)
    entries = ask_ranges(asked, asked.ranges(), hudi, "answers")
    seconds = round(time.monotonic() - started, 1)
    said = {"judge": asked.judge, "seconds": seconds, "ranges": entries}
    (asked.folder / "changes.json").write_text(json.dumps(said, indent=1) + "\n")
    print(f"asked {asked.folder.name} for {len(entries)} ranges in {seconds} s", flush=True)


def ask_others(folders: Sequence[Path], deviations: Sequence[Deviation]) -> None:
    """Ask for the second opinions that deviations name, where there is none yet."""
    questions: dict[str, list[tuple[Asked, list[Range]]]] = defaultdict(list)
    for folder in folders:
        entries = json.loads((folder / "changes.json").read_text())["ranges"]
        for row in (d for d in deviations if d.opinion):
            ranges = [Range(e["mode"], e["begin"], e["end"]) for e in entries if fits(e, row)]
            into = folder / f"opinion-{row.opinion}"
            ranges = [
                r
                for r in ranges
                if row.covers(folder.name, r.kind) and not list(into.glob(f"{r.name}.*"))
            ]
            if ranges:
                asked = asked_table(folder, judge=row.opinion)
                questions[row.opinion or ""].append((asked, ranges))
    for opinion, tables in questions.items():
        with Hudi(opinion) as hudi:
            for asked, ranges in tables:
                twice(partial(ask_ranges, asked, ranges, hudi, f"opinion-{opinion}"))


def fits(entry: Mapping[str, Any], row: Deviation) -> bool:
    """Whether a deviation is about answers like this one."""
    if row.what == "hudi refuses":
        return entry["error"] is not None and row.matches(entry["error"])
    return entry["error"] is None


def with_archive(asked: Asked, hudi: Hudi) -> Asked:
    """The table with the times of its archived writes; Hudi itself reads the first layout."""
    if asked.by_completion or not asked.is_archived():
        return replace(asked, archived=tuple(archived_writes(asked.table)))
    name = f"archived_{asked.folder.name}"
    hudi.register(asked.table, name)
    ever = "start_ts => '20000101000000000', end_ts => '99991231235959999', limit => 1000"
    rows = hudi.query(f"call show_archived_commits(table => '{name}', {ever})")
    hudi.forget(name)
    return replace(asked, archived=tuple(sorted(row["commit_time"] for row in rows)))


def ask_ranges(
    asked: Asked, ranges: Sequence[Range], hudi: Hudi, into: str
) -> list[dict[str, Any]]:
    """Ranges of a table, answered into a folder beside it; one entry each."""
    (asked.folder / into).mkdir(exist_ok=True)
    # Hudi leaves rows of other instants out of base files by a filter that it gives to the Parquet
    # reader. The vectorized reader of Spark ignores it, and what was read before decides whether
    # that reader is on; so the answers would hang on the order of questions.
    hudi.query("set spark.sql.parquet.enableVectorizedReader=false")
    entries = []
    for kind in OF_CHANGES:
        alike = [r for r in ranges if r.kind == kind]
        for first in range(0, len(alike), RANGES_AT_ONCE):
            entries += ask_some(asked, alike[first : first + RANGES_AT_ONCE], hudi, into)
    return entries


def ask_some(asked: Asked, ranges: Sequence[Range], hudi: Hudi, into: str) -> list[dict[str, Any]]:
    """A few ranges in one statement, or one after the other if it fails."""
    try:
        together = answer(asked, ranges, hudi)
    except HudiRefusedError as refused:
        require_alive(refused)
        if len(ranges) > 1:
            return [entry for r in ranges for entry in ask_some(asked, [r], hudi, into)]
        (asked.folder / into / f"{ranges[0].name}.trace.txt").write_text(refused.trace)
        return [described(ranges[0], None, str(refused))]
    entries = []
    for number, range_ in enumerate(ranges):
        rows = together.filter(pc.equal(together[LABEL], number)).drop_columns([LABEL])
        file = f"{into}/{range_.name}.parquet"
        pq.write_table(rows, asked.folder / file)
        entries.append(described(range_, file, None))
    return entries


def require_alive(refused: HudiRefusedError) -> None:
    """End the lane where Spark has stopped; what is stored so far is used by the next run."""
    if any(sign in str(refused) for sign in ("SparkContext", "Connection refused")):
        raise HudiGoneError(f"Spark has stopped: {refused}") from refused


def described(range_: Range, file: str | None, error: str | None) -> dict[str, Any]:
    """The entry of a range."""
    return {**vars(range_), "query": range_.name, "file": file, "error": error}


def answer(asked: Asked, ranges: Sequence[Range], hudi: Hudi) -> pa.Table:
    """Hudi's rows of all ranges, labelled by the number of their range."""
    parts = []
    for number, range_ in enumerate(ranges):
        given = ", ".join(f"`{k}` '{v}'" for k, v in asked.options(range_).items())
        hudi.query(f"create or replace temporary view range_{number} using hudi options ({given})")
        parts.append(f"select {number} as {LABEL}, * from range_{number}")
    into = asked.folder / "ranges.parquet"
    hudi.query(" union all ".join(parts), into)
    try:
        return pq.read_table(into)
    finally:
        into.unlink()
        (into.parent / f".{into.name}.crc").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
