"""Hudi and lakewright commit to one table under Hudi's lock file, for as long as is asked for.

Hudi inserts without pause, with optimistic concurrency control; we append without pause. Most rows
of each go to partitions of its own, some of ours into files that Hudi is filling too, so that one
of both may lose: it is counted and its rows are written again. Neither may commit inside the
other's critical section, as `interop.lock_watch` sees it from outside and from inside, and in the
end lakewright and Hudi must read exactly the rows of all commits.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakewright as lw
from interop.cases import DIALECT_OF_TABLE_VERSION, Traits
from interop.hudi import Hudi, HudiRefusedError
from interop.lock_watch import Findings, WatchedLock, Watcher
from interop.options import write_options
from lakewright.errors import LakewrightError, LockLostError, WriteConflictError
from lakewright.runtime import SystemRandom
from lakewright.storage import LocalStorage
from lakewright.txn.locks import lock_from

ROWS = 20
SHARED_EVERY = 5
"""How often we write into files that Hudi fills."""
LINGER_S = 0.3
"""By how much our critical sections are stretched, at most."""
DDL = "id string, sub int, region string, day string, ts bigint, generation int, filler string"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sub", pa.int32()),
        ("region", pa.string()),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("generation", pa.int32()),
        ("filler", pa.string()),
    ]
)
PROVIDER = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
LOCKING = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.provider": PROVIDER,
    "hoodie.write.lock.client.num_retries": "600",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
    "hoodie.write.lock.num_retries": "3",
    "hoodie.write.lock.wait_time_ms": "2000",
}
# Longer than an unfinished lock file of a JVM is respected.
PATIENCE = {
    "hoodie.write.lock.wait_time_ms": "90000",
    "hoodie.write.lock.client.num_retries": "0",
}
CONFLICT = "HoodieWriteConflictException"
TABLE_VERSION = {hudi: version for version, hudi in DIALECT_OF_TABLE_VERSION.items()}
HUDI, OURS = "hudi", "ours"


def rows(who: str, g: int, regions: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of one write."""
    return [
        {
            "id": f"{who}{g:05d}-{i}",
            "sub": 0,
            "region": regions[i % len(regions)],
            "day": "2024-01-30",
            "ts": g,
            "generation": g,
            "filler": "",
        }
        for i in range(ROWS)
    ]


@dataclass
class HudiWriter:
    """Hudi in a thread of its own, inserting."""

    hudi: Hudi
    table: Path
    options: dict[str, str]
    findings: Findings
    committed: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Insert until told to stop."""
        try:
            while not self.stop.is_set():
                self.write()
        except Exception as error:
            self.findings.problems.append(f"Hudi: {error}")
            self.stop.set()

    def write(self) -> None:
        """Insert the next rows, or those that lost against ours."""
        g = self.committed + 1
        step = {
            "do": "write",
            "operation": "insert",
            "schema": DDL,
            "rows": rows(HUDI, g, ("r0", "r1")),
            "options": self.options,
        }
        try:
            self.hudi.steps(self.table, "lock_proof", [step])
        except HudiRefusedError as error:
            if CONFLICT not in error.trace:
                raise
            self.findings.counts["conflicts that Hudi lost"] += 1
            return
        self.committed = g


@dataclass
class OurWriter:
    """Lakewright, appending."""

    table: Path
    lock: WatchedLock
    findings: Findings
    instants: list[str] = field(default_factory=list)
    attempts: int = 0

    @property
    def committed(self) -> int:
        """How many writes are committed."""
        return len(self.instants)

    def write(self) -> None:
        """Append the next rows, or those that lost against Hudi's."""
        g = self.committed + 1
        self.attempts += 1
        regions = ("l0", "r0") if self.attempts % SHARED_EVERY == 0 else ("l0", "l1")
        new = pa.Table.from_pylist(rows(OURS, g, regions), schema=SCHEMA)
        table = lw.Table.open(self.table, lock=self.lock)
        try:
            done = table.append(new, options=PATIENCE, retries=0)
        except WriteConflictError:
            self.findings.counts["conflicts that we lost"] += 1
        except LockLostError:
            self.findings.counts["writes of ours that ended because the JVM took the lock"] += 1
        else:
            self.instants.append(str(done.instant))


def prove_committing(hudi_version: str, seconds: float) -> bool:
    """Write with both for a while, then judge."""
    folder = Path(tempfile.mkdtemp(prefix="lakewright-lock-"))
    table = folder / "table"
    traits = Traits(TABLE_VERSION[hudi_version], "cow", "lock_proof")
    options = {**write_options(traits, hudi_version, "lock_proof"), **LOCKING}
    findings, random = Findings(), SystemRandom()
    with Hudi(hudi_version) as hudi:
        theirs = HudiWriter(hudi, table, options, findings)
        theirs.write()
        lock = lock_from(LOCKING, LocalStorage(table), on_event=findings.heard)
        assert lock is not None
        watched = WatchedLock(lock, table, lambda: random.uniform(0.0, LINGER_S))
        ours = OurWriter(table, watched, findings)
        watcher, thread = Watcher(table), threading.Thread(target=theirs.run)
        watcher.start()
        thread.start()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end and not theirs.stop.is_set():
                ours.write()
                time.sleep(random.uniform(0.0, LINGER_S))
        except LakewrightError as error:
            findings.problems.append(f"lakewright: {error}")
        finally:
            theirs.stop.set()
            thread.join()
            watcher.stop()
        _judge_sections(watcher, watched, frozenset(ours.instants), findings)
        _judge_rows(hudi, theirs, ours, folder / "answer.parquet")
    findings.counts["commits of Hudi"] = theirs.committed
    findings.counts["commits of lakewright"] = ours.committed
    shutil.rmtree(folder)
    return findings.told(f"Hudi {hudi_version}, committing for {seconds:g} s")


def _judge_sections(
    watcher: Watcher, lock: WatchedLock, ours: frozenset[str], findings: Findings
) -> None:
    """Whether anybody committed inside the other's critical section."""
    for seen in watcher.inside:
        who = "lakewright" if seen.instant in ours else "Hudi"
        holder = "lakewright" if seen.lock_is_ours else "Hudi"
        findings.counts[f"commits of {who} seen inside a lock of {holder}"] += 1
        if who != holder:
            findings.problems.append(f"{who} committed inside a lock of {holder}")
    for held in lock.held:
        if held.lost:
            findings.counts["locks of ours that the JVM removed"] += 1
        if held.lost and held.committed & ours:
            findings.problems.append("we committed under a lock that the JVM had removed")
        if not held.lost and held.committed - ours:
            findings.problems.append("Hudi committed while we held the lock")
    findings.counts["locks of ours"] = len(lock.held)
    findings.counts["looks from outside"] = watcher.looks


def _judge_rows(hudi: Hudi, theirs: HudiWriter, ours: OurWriter, answer: Path) -> None:
    """Whether both sides got through, and both read exactly what was committed."""
    findings = theirs.findings
    if theirs.committed < 2 or ours.committed < 2:
        findings.problems.append(f"{theirs.committed} commits beside {ours.committed} of ours")
    expected = Counter(
        f"{who}{g:05d}-{i}"
        for who, commits in ((HUDI, theirs.committed), (OURS, ours.committed))
        for g in range(1, commits + 1)
        for i in range(ROWS)
    )
    hudi.read(ours.table, answer, {})
    read = {
        "lakewright": lw.Table.open(ours.table).scan(columns=["id"]).to_arrow(),
        "Hudi": pq.read_table(answer, columns=["id"]),
    }
    for reader, found in read.items():
        keys = Counter(found["id"].to_pylist())
        if keys != expected:
            findings.problems.append(
                f"{reader} reads {keys.total()} rows of {expected.total()}: "
                f"{(expected - keys).total()} missing, {(keys - expected).total()} too many"
            )
