"""Several writers upsert and delete overlapping keys at once: the table is as if one by one.

    python -m interop.keyed_writers [--seconds 180] [--only 'v8_*']

Two to eight processes of ours write one table, alone under their default lock, then beside a real
Hudi under Hudi's lock file, with optimistic concurrency control on both sides; who loses a conflict
writes the same batch again. In the end the batches that the timeline tells of, replayed one by one
as they were completed through `interop.keyed_model`, must give exactly the rows of the table, no
key may be there twice, and every other batch must have lost with a retryable `ConflictError`.
Figures are printed for each writer.

What a commit of Hudi after ours can still duplicate is kept out: Hudi looks for conflicts between
file groups only, never for keys that somebody else has inserted since it looked. So it inserts keys
that none of our writers inserts, and it updates and deletes none of those that we delete: of the
keys that both sides change, the *shared* ones are never deleted, and *theirs* are never inserted by
us. Ours look for new keys under the lock, and need no such care among each other.

Some tables have a metadata table with every index. In the end it must say what the files say, by
Hudi's own procedure and by our verification. Hudi finds rows by the record index there: by another
index it forgets to tell the record index of keys that are written again after a delete.

Ends with a line `N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakewright as lw
from interop.hudi import Hudi, HudiRefusedError
from interop.instants import completed_writes
from interop.keyed_batches import (
    BATCH_ID,
    DDL,
    SCHEMA,
    SHARED,
    THEIRS,
    Batch,
    Batches,
    Writer,
    first_batch,
    write_until_done,
)
from interop.keyed_cases import KeyedCase
from interop.keyed_model import Model
from interop.lock_commits import CONFLICT, LOCKING, PATIENCE
from interop.lock_watch import Findings
from interop.metadata_differences import our_differences, their_differences
from interop.options import EVERY_INDEX
from interop.written import OWN
from lakewright.format.records import load_commit_metadata
from lakewright.storage import LocalStorage

HUDI = "Hudi"
COMPACTED = "hoodie.metadata.compact.max.delta.commits"
WHOLE = {"hoodie.archive.automatic": "false"}
"""The timeline is judged in the end, all of it; Hudi is told the same."""


@dataclass(frozen=True)
class Scenario:
    """One table and its writers."""

    case: KeyedCase
    ours: int
    hudi: bool
    pause_s: float
    """How long a writer of ours rests between two batches, at most."""
    indexed: bool = False
    """Whether there is a metadata table with every index, which all of them keep right."""

    @property
    def name(self) -> str:
        """Short, unique."""
        beside = "_beside_hudi" if self.hudi else ""
        return f"{self.case.name}_{self.ours}{beside}{'_indexed' if self.indexed else ''}"

    @property
    def options(self) -> dict[str, str]:
        """What everybody is told about the metadata table."""
        return {**EVERY_INDEX, COMPACTED: "4"} if self.indexed else {}


def _scenario(
    version: int,
    kind: str,
    index: str,
    merge: str,
    ours: int,
    *,
    hudi: bool = False,
    indexed: bool = False,
) -> Scenario:
    case = KeyedCase(version, kind, "simple", "plain", index, merge, small_files=kind == "cow")  # type: ignore[arg-type]
    return Scenario(case, ours, hudi, 2.0 if hudi else 0.2, indexed)


SCENARIOS = (
    _scenario(6, "cow", "SIMPLE", "commit", 2),
    _scenario(8, "mor", "BUCKET", "commit", 4),
    _scenario(8, "mor", "BLOOM", "event", 8),
    _scenario(6, "mor", "SIMPLE", "event", 3, hudi=True),
    _scenario(8, "cow", "BLOOM", "commit", 3, hudi=True),
    _scenario(8, "cow", "RECORD_INDEX", "commit", 4, indexed=True),
    _scenario(6, "mor", "RECORD_INDEX", "event", 2, hudi=True, indexed=True),
    _scenario(8, "mor", "RECORD_INDEX", "commit", 2, hudi=True, indexed=True),
)


@dataclass
class Told:
    """What the writers say that they did."""

    batches: dict[str, Batch] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    findings: Findings = field(default_factory=Findings)

    def begin(self, batch: Batch) -> None:
        """A batch is going to be written."""
        self.batches[batch.id] = batch

    def commit(self, who: str, batch: str, tries: int) -> None:
        """A batch is committed."""
        self.committed.add(batch)
        self.findings.counts[f"{who}: commits"] += 1
        self.findings.counts[f"{who}: commits after losing"] += tries > 1

    def lose(self, who: str, how: str) -> None:
        """A batch lost against another one."""
        self.findings.counts[f"{who}: {how}"] += 1

    def read(self, writer: Writer) -> None:
        """What a process of ours has told."""
        for line in Path(writer.log).read_text().splitlines():
            what: dict[str, Any] = json.loads(line)
            if "begin" in what:
                self.begin(Batch(**what["begin"]))
            elif "committed" in what:
                self.commit(writer.who, what["batch"], what["tries"])
            elif "lost" in what:
                self.lose(writer.who, what["lost"])
                if not what["retryable"]:
                    self.findings.problems.append(f"{what['lost']}, not retryable: {what['why']}")
            else:
                self.findings.problems.append(f"{writer.who}: {what['failed']}")


@dataclass
class HudiWriter:
    """Hudi in a thread of its own."""

    hudi: Hudi
    table: Path
    options: dict[str, str]
    told: Told
    end: float

    def run(self) -> None:
        """Write batches for a while; a batch that loses is written again until it is committed."""
        batches = Batches(HUDI, upserted=(SHARED, THEIRS), deleted=(THEIRS,))
        try:
            while time.monotonic() < self.end:
                self._write(batches.next())
        except Exception as error:
            self.told.findings.problems.append(f"Hudi: {error}")

    def _write(self, batch: Batch) -> None:
        self.told.begin(batch)
        step = {
            "do": "write",
            "operation": batch.kind,
            "schema": DDL,
            "rows": batch.rows,
            "options": {**self.options, BATCH_ID: batch.id},
        }
        tries = 0
        while tries == 0 or time.monotonic() < self.end:
            tries += 1
            try:
                self.hudi.steps(self.table, "keyed_writers", [step])
            except HudiRefusedError as error:
                if CONFLICT not in error.trace:
                    raise
                self.told.lose(HUDI, CONFLICT)
            else:
                self.told.commit(HUDI, batch.id, tries)
                return


def prove(scenario: Scenario, seconds: float, hudi: Hudi) -> bool:
    """Write with everybody for a while, then judge."""
    folder = Path(tempfile.mkdtemp(prefix="lakewright-writers-"))
    table, case, told = folder / "table", scenario.case, Told()
    lw.Table.create(str(table), schema=SCHEMA, **case.choices)
    first = first_batch()
    options = {**case.our_options, **scenario.options, BATCH_ID: first.id}
    lw.Table.open(table).upsert(first.arrow(), options=options)
    told.begin(first)
    told.committed.add(first.id)
    lock = LOCKING if scenario.hudi else None
    writers = [
        Writer(
            f"writer {n}",
            str(table),
            lock,
            {**case.our_options, **scenario.options, **(lock or {}), **PATIENCE, **WHOLE},
            seconds,
            scenario.pause_s,
            str(folder / f"{n}.log"),
        )
        for n in range(1, scenario.ours + 1)
    ]
    spawning = multiprocessing.get_context("spawn")
    processes = [spawning.Process(target=write_until_done, args=(w,)) for w in writers]
    their_options = {**case.hudi_options(hudi.version), **scenario.options, **LOCKING}
    theirs = HudiWriter(hudi, table, their_options, told, time.monotonic() + seconds)
    thread = threading.Thread(target=theirs.run if scenario.hudi else lambda: None)
    for started in (*processes, thread):
        started.start()
    for started in (*processes, thread):
        started.join()
    for writer, process in zip(writers, processes, strict=True):
        told.read(writer)
        if process.exitcode:
            told.findings.problems.append(f"{writer.who} ended with status {process.exitcode}")
    judge(scenario, table, told, hudi)
    if told.findings.problems:
        print(f"  what is left of it: {folder}")
    else:
        shutil.rmtree(folder)
    return told.findings.told(f"{scenario.name}, {seconds:g} s")


def judge(scenario: Scenario, table: Path, told: Told, hudi: Hudi) -> None:
    """Compare the table with the committed batches, one after the other."""
    problems = told.findings.problems
    order = batches_on_timeline(table)
    if Counter(order) != Counter(told.committed):
        more, less = Counter(order) - Counter(told.committed), told.committed - set(order)
        problems.append(f"on the timeline, not told or told once: {more}; told only: {less}")
        return
    model = Model(scenario.case)
    for name in order:
        batch = told.batches[name]
        (model.upsert if batch.kind == "upsert" else model.delete)(batch.rows)
    expected = Counter(tuple(r[n] for n in SCHEMA.names) for r in model.rows())
    answers = {"lakewright": lw.Table.open(table).scan(columns=SCHEMA.names).to_arrow()}
    if scenario.hudi:
        answer = table.parent / "answer.parquet"
        if scenario.case.version == 6:
            # Hudi 0.x stops at the log of a loser that is newer than all commits.
            nothing = {**scenario.case.our_options, "hoodie.allow.empty.commit": "true"}
            lw.Table.open(table, lock=LOCKING).upsert(SCHEMA.empty_table(), options=nothing)
        hudi.read(table, answer, {})
        answers[f"Hudi {hudi.version}"] = pq.read_table(answer, columns=SCHEMA.names)
    for reader, found in answers.items():
        problems += differences(reader, found, expected)
    if scenario.indexed:
        problems += metadata_problems(table, hudi)
    counts = told.findings.counts
    counts["all: commits"] = len(order) - 1
    counts["all: conflicts"] = sum(n for label, n in counts.items() if "commits" not in label)
    counts["all: rows in the end"] = expected.total()
    if not counts["all: conflicts"]:
        problems.append("nobody ever lost: the writers have not met")
    names = [w.split(":")[0] for w in counts if w.endswith(": commits")]
    if len(set(names)) < scenario.ours + scenario.hudi + 1:
        problems.append(f"only {sorted(set(names))} got anything committed")


def metadata_problems(table: Path, hudi: Hudi) -> list[str]:
    """What is wrong with the metadata table in the end, by both verifications."""
    ours = our_differences(lw.Table.open(table), lambda _: False)
    theirs = their_differences(hudi, table, "keyed_writers")
    found = {"lakewright": ours, f"Hudi {hudi.version}": theirs}
    return [f"metadata table, by {who}: {what}" for who, what in found.items() if what]


def differences(reader: str, found: pa.Table, expected: Counter[tuple[Any, ...]]) -> list[str]:
    """What a reader sees otherwise than it must be."""
    rows = Counter(tuple(row[name] for name in SCHEMA.names) for row in found.to_pylist())
    keys = Counter(found["id"].to_pylist())
    told = [f"{reader}: key {key} is there {n} times" for key, n in keys.items() if n > 1]
    if rows != expected:
        missing, extra = list(expected - rows), list(rows - expected)
        told.append(f"{reader}: missing {missing[:3]}, too many {extra[:3]}")
    return told


def batches_on_timeline(table: Path) -> list[str]:
    """Ids of committed batches in the order in which they were completed.

    That is the order in which they are as if one by one: of two writes that do not meet in a file
    group, the one that was requested first may be completed last, and what it inserted comes after
    a delete of the same key that found nothing. Version 6 does not tell when a write was completed,
    but all of them write the file that completes them under one lock.
    """
    opened, storage = lw.Table.open(table), LocalStorage(table)
    order = {
        s.requested: (s.completed or "", s.file.stat().st_mtime_ns) for s in completed_writes(table)
    }
    found = []
    for instant in opened.timeline.completed().instants:
        if instant.requested_time in order:
            metadata = load_commit_metadata(storage, opened.properties, instant)
            name = (metadata.extra_metadata or {}).get(BATCH_ID, "?")
            found.append((order[instant.requested_time], name))
    return [name for _, name in sorted(found)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="interop.keyed_writers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of names")
    options = parser.parse_args(arguments)
    chosen = [s for s in SCENARIOS if any(fnmatchcase(s.name, p) for p in options.only)]
    right = []
    for scenario in chosen:
        with Hudi(OWN[scenario.case.version]) as hudi:
            right.append(prove(scenario, options.seconds, hudi))
    print(f"{sum(right)} passed, {len(right) - sum(right)} failed")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
