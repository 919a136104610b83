"""Compare changes with Hudi's: every range between two instants of every table, and change data.

    python -m interop.changes                  ask what is not answered yet, then compare
    python -m interop.changes --reuse          only compare
    python -m interop.changes --only 'v8_*'    some tables, by pattern

Works on the tables that `interop.run` made, and makes those with change data itself. Answers lie
beside each table (`answers/incr_<begin>_<end>.parquet`, `answers/cdc_<begin>_<end>.parquet`, and
`changes.json` with one entry per range), so that comparing needs no Hudi. Ends with a line
`N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interop.cases import Case
from interop.change_cases import change_cases
from interop.change_ranges import Asked, Range, asked_table
from interop.compare_changes import compare_ranges
from interop.deviations import load_deviations
from interop.generate import STORE, run_steps
from interop.hudi import Hudi, HudiGoneError, HudiRefusedError

LABEL = "_range"
RANGES_AT_ONCE = 12
"""Ranges in one statement: planning is most of the work, and plans are made one after the other."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.changes", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of table names")
    parser.add_argument("--reuse", action="store_true", help="compare only, without Hudi")
    parser.add_argument("--store", type=Path, default=STORE, help="where the tables are")
    options = parser.parse_args(arguments)

    def wanted(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in options.only)

    started = time.monotonic()
    if not options.reuse:
        ask_all([c for c in change_cases() if wanted(c.name)], wanted, options.store)
    deviations = load_deviations()
    outcomes: Counter[str] = Counter()
    tables = [f for f in stored_folders(options.store) if wanted(f.name)]
    tables = [f for f in tables if (f / "changes.json").exists()]
    for folder in tables:
        for verdict in compare_ranges(folder, deviations):
            outcomes[verdict.outcome] += 1
            if verdict.outcome == "different":
                print(f"{folder.name} {verdict.query}: {verdict.told}")
    passed = outcomes["equal"] + outcomes["accepted"]
    print(
        f"{passed} passed, {outcomes['different']} failed ({outcomes['accepted']} of the passed "
        f"by deviation, {len(tables)} tables) in {time.monotonic() - started:.0f} s"
    )
    return 1 if outcomes["different"] else 0


def stored_folders(store: Path) -> list[Path]:
    """Folders of every stored table that could be made."""
    made = sorted(store.glob("*/*/case.json"))
    return [file.parent for file in made if json.loads(file.read_text())["error"] is None]


def ask_all(cases: Sequence[Case], wanted: Callable[[str], bool], store: Path) -> None:
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
                made = make(case, hudi, store)
                if made is not None:
                    lanes[version].append(made)
            for asked in lanes[version]:
                ask(asked, hudi)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, sorted({*makers, *lanes})))


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
    ranges = asked.ranges()
    entries = []
    for mode in ("rows", "cdc"):
        alike = [r for r in ranges if r.mode == mode]
        for first in range(0, len(alike), RANGES_AT_ONCE):
            entries += ask_some(asked, alike[first : first + RANGES_AT_ONCE], hudi)
    seconds = round(time.monotonic() - started, 1)
    said = {"judge": asked.judge, "seconds": seconds, "ranges": entries}
    (asked.folder / "changes.json").write_text(json.dumps(said, indent=1) + "\n")


def ask_some(asked: Asked, ranges: Sequence[Range], hudi: Hudi) -> list[dict[str, Any]]:
    """A few ranges in one statement, or one after the other if it fails."""
    try:
        together = answer(asked, ranges, hudi)
    except HudiRefusedError as refused:
        require_alive(refused)
        if len(ranges) > 1:
            return [entry for r in ranges for entry in ask_some(asked, [r], hudi)]
        return [described(ranges[0], None, str(refused))]
    entries = []
    for number, range_ in enumerate(ranges):
        rows = together.filter(pc.equal(together[LABEL], number)).drop_columns([LABEL])
        file = f"answers/{range_.name}.parquet"
        (asked.folder / "answers").mkdir(exist_ok=True)
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
    into = asked.folder / "answers" / "ranges.parquet"
    hudi.query(" union all ".join(parts), into)
    try:
        return pq.read_table(into)
    finally:
        into.unlink()
        (into.parent / f".{into.name}.crc").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
