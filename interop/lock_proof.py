"""Prove that Hudi's file-system lock keeps a JVM writer and lakewright out of each other's way.

    python -m interop.lock_proof --hudi 0.15.0 [--seconds 180]

Two proofs, each for half of the time. *Counting*: a JVM with Hudi's lock provider and two threads
of ours add to a number in a file, each reading, pausing and writing it back under the lock; no
addition may be lost. *Committing*: Hudi appends to one table without pause, with optimistic
concurrency control, while we take the lock again and again, watch the timeline for as long as we
hold it, and leave a witness; while we surely hold the lock no instant may be completed, and in the
end every row of every commit must be there.

A lock that a JVM took from us by one of the races of Hudi's provider is not a failure as long as
`check` tells it before anything is published, nor is an empty lock file that a JVM left behind and
that we take over after a minute; both are counted and printed. Ends with a line `N passed, M
failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import lakewright as lw
from interop.cases import DIALECT_OF_TABLE_VERSION, Traits
from interop.hudi import JARS, ROOT, VERSIONS, Hudi
from interop.options import write_options
from lakewright.errors import LockHeldError, LockLostError
from lakewright.runtime import Event, SystemClock, SystemRandom
from lakewright.storage import LocalStorage
from lakewright.txn.locks import Lease, LockProvider, acquire, lock_from

ROWS = 20
WAIT_S = 90.0
"""Longer than an unfinished lock file of a JVM is respected."""
SCHEMA = "id string, sub int, region string, day string, ts bigint, generation int, filler string"
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
PENDING = (".requested", ".inflight")
TABLE_VERSION = {hudi: version for version, hudi in DIALECT_OF_TABLE_VERSION.items()}


@dataclass
class Proof:
    """What happened, and what should not have."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def attempt(self, lock: LockProvider, who: str, deed: Callable[[Lease], None]) -> None:
        """Take the lock and do something under it; losing it is counted."""
        try:
            lease = acquire(lock, who, wait_s=WAIT_S, clock=SystemClock(), random=SystemRandom())
        except LockHeldError as error:
            self.problems.append(error.message)
            return
        try:
            deed(lease)
            self.counts["locks of ours"] += 1
        except LockLostError:
            self.counts["locks of ours that the JVM removed, noticed in time"] += 1
        finally:
            lease.release()

    def heard(self, event: Event) -> None:
        """Count what the lock tells: locks that nobody owned were taken over."""
        self.counts[f"times {event.kind}"] += 1

    def told(self, title: str) -> bool:
        """Print it; whether all was right."""
        print(title)
        for label, count in sorted(self.counts.items()):
            print(f"  {count} {label}")
        for problem, count in Counter(self.problems).most_common(10):
            print(f"  FAILED {count} times: {problem}")
        return not self.problems


# -- counting -----------------------------------------------------------------------------------


def prove_counting(hudi: str, seconds: float) -> bool:
    """Count together with Hudi's lock provider in a JVM."""
    folder = Path(tempfile.mkdtemp(prefix="lakewright-lock-"))
    (folder / ".hoodie").mkdir()
    counter = folder / "counter"
    counter.write_text("0")
    spark = next((ROOT / ".venv-hudi").glob("lib/python*/site-packages/pyspark/jars"))
    jar = JARS / f"hudi-spark3.5-bundle_2.12-{hudi}.jar"
    arguments = [str(folder), str(counter), str(int(seconds))]
    program = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jar}:{spark}/*"]
    program += [str(Path(__file__).with_name("LockLoop.java")), *arguments]
    with (folder / "log").open("wb") as log:
        jvm = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log)
    stdout = cast("IO[bytes]", jvm.stdout)
    _line_with(stdout, b"ready")
    proof = Proof()
    done = threading.Event()
    counters = [
        threading.Thread(target=_count, args=(folder, counter, proof, done)) for _ in range(2)
    ]
    for thread in counters:
        thread.start()
    theirs = int(_line_with(stdout, b""))
    done.set()
    for thread in counters:
        thread.join()
    jvm.wait()
    ours = proof.counts["locks of ours"]
    proof.counts["locks of the JVM"] = theirs
    found = int(counter.read_text())
    if found != ours + theirs or not ours or not theirs:
        proof.problems.append(f"the file says {found} after {ours} + {theirs} additions")
    shutil.rmtree(folder)
    return proof.told(f"Hudi {hudi}, counting for {seconds:g} s")


def _line_with(lines: IO[bytes], start: bytes) -> bytes:
    """The next line that begins so, or is a number; what the JVM prints besides is passed over."""
    for line in lines:
        if (start and line.startswith(start)) or (not start and line.strip().isdigit()):
            return line
    raise RuntimeError("the JVM ended without an answer")


def _count(folder: Path, counter: Path, proof: Proof, done: threading.Event) -> None:
    lock = _lock(folder, proof)

    def add(lease: Lease) -> None:
        value = int(counter.read_text())
        time.sleep(0.005)
        lease.check()
        counter.write_text(str(value + 1))

    while not done.is_set():
        proof.attempt(lock, "lakewright counting", add)
        time.sleep(0.01)


def _lock(table: Path, proof: Proof) -> LockProvider:
    lock = lock_from(LOCKING, LocalStorage(table), on_event=proof.heard)
    assert lock is not None
    return lock


# -- committing ---------------------------------------------------------------------------------


@dataclass
class Writer:
    """Hudi in a thread of its own, appending."""

    hudi: Hudi
    table: Path
    options: dict[str, str]
    committed: int = 0
    failure: Exception | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Append until told to stop."""
        try:
            while not self.stop.is_set():
                self.write()
        except Exception as error:
            self.failure = error

    def write(self) -> None:
        """Append the next rows."""
        g = self.committed + 1
        rows = [
            {
                "id": f"g{g:05d}-{i}",
                "sub": 0,
                "region": f"r{i % 2}",
                "day": "2024-01-30",
                "ts": g,
                "generation": g,
                "filler": "",
            }
            for i in range(ROWS)
        ]
        step = {
            "do": "write",
            "operation": "insert",
            "schema": SCHEMA,
            "rows": rows,
            "options": self.options,
        }
        self.hudi.steps(self.table, "lock_proof", [step])
        self.committed = g


def completed(table: Path) -> set[str]:
    """The completed instants on the timeline of a table, at either layout."""
    found: set[str] = set()
    for folder in (table / ".hoodie", table / ".hoodie" / "timeline"):
        if folder.is_dir():
            found.update(
                path.name
                for path in folder.iterdir()
                if path.name[:8].isdigit() and path.suffix not in PENDING
            )
    return found


def hold_and_watch(table: Path, number: int, hold_s: float, proof: Proof) -> Callable[..., None]:
    """Our side of the proof: keep the lock, let nobody commit, leave a witness."""

    def deed(lease: Lease) -> None:
        before = completed(table)
        appeared: set[str] = set()
        end = time.monotonic() + hold_s
        while time.monotonic() < end:
            appeared |= completed(table) - before
            time.sleep(0.002)
        appeared |= completed(table) - before
        lease.check()
        if appeared:
            proof.problems.append("an instant was completed while we held the lock")
            print(f"  completed while we held the lock: {sorted(appeared)}")
        LocalStorage(table).create_if_absent(f".hoodie/.lakewright/witness/{number}", b"")

    return deed


def prove_committing(hudi_version: str, seconds: float) -> bool:
    """Hold the lock again and again while Hudi commits."""
    folder = Path(tempfile.mkdtemp(prefix="lakewright-lock-"))
    table = folder / "table"
    traits = Traits(TABLE_VERSION[hudi_version], "cow", "lock_proof", metadata="files")
    options = {**write_options(traits, hudi_version, "lock_proof"), **LOCKING}
    proof = Proof()
    random = SystemRandom()
    with Hudi(hudi_version) as hudi:
        writer = Writer(hudi, table, options)
        writer.write()
        thread = threading.Thread(target=writer.run)
        thread.start()
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end and writer.failure is None:
            hold_s = random.uniform(0.05, 1.5)
            proof.attempt(
                _lock(table, proof),
                f"lakewright witness {number}",
                hold_and_watch(table, number, hold_s, proof),
            )
            number += 1
            time.sleep(random.uniform(0.0, 0.3))
        writer.stop.set()
        thread.join()
    proof.counts["commits of Hudi"] = writer.committed
    _judge(table, writer, proof)
    shutil.rmtree(folder)
    return proof.told(f"Hudi {hudi_version}, committing for {seconds:g} s")


def _judge(table: Path, writer: Writer, proof: Proof) -> None:
    """Whether everybody got through, and everything that was committed is there."""
    if writer.failure is not None:
        proof.problems.append(f"the writer: {writer.failure}")
    witnesses = len(list((table / ".hoodie" / ".lakewright" / "witness").iterdir()))
    if witnesses != proof.counts["locks of ours"] or writer.committed < 2 or witnesses < 2:
        proof.problems.append(f"{witnesses} witnesses beside {writer.committed} commits")
    answer = lw.Table.open(str(table)).scan().to_arrow()
    keys = set(answer["id"].to_pylist())
    if answer.num_rows != len(keys) or len(keys) < writer.committed * ROWS:
        proof.problems.append(
            f"{answer.num_rows} rows, {len(keys)} keys after {writer.committed} commits of {ROWS}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.lock_proof", description=__doc__.splitlines()[0])
    parser.add_argument("--hudi", choices=VERSIONS, default="1.0.2")
    parser.add_argument("--seconds", type=float, default=180)
    options = parser.parse_args(arguments)
    right = [
        prove_counting(options.hudi, options.seconds / 2),
        prove_committing(options.hudi, options.seconds / 2),
    ]
    print(f"{sum(right)} passed, {len(right) - sum(right)} failed")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
