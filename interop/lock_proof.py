"""Prove that Hudi's file-system lock keeps a JVM writer and lakewright out of each other's way.

    python -m interop.lock_proof --hudi 0.15.0 [--seconds 180]

Two proofs. *Counting*, for a third of that time: a JVM with Hudi's lock provider and two threads of
ours add to a number in a file, each reading, pausing and writing it back under the lock; no
addition may be lost. *Committing*, for the whole of it: Hudi and lakewright write one table (see
`interop.lock_commits`); neither may commit inside the other's critical section, and in the end
every row of every commit must be there.

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
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

from interop.hudi import JARS, ROOT, VERSIONS
from interop.lock_commits import LOCKING, prove_committing
from interop.lock_watch import Findings
from lakewright.errors import LockHeldError, LockLostError
from lakewright.runtime import SystemClock, SystemRandom
from lakewright.storage import LocalStorage
from lakewright.txn.locks import LockProvider, acquire, lock_from

WAIT_S = 90.0
"""Longer than an unfinished lock file of a JVM is respected."""


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
    findings = Findings()
    done = threading.Event()
    counters = [
        threading.Thread(target=_count, args=(folder, counter, findings, done)) for _ in range(2)
    ]
    for thread in counters:
        thread.start()
    theirs = int(_line_with(stdout, b""))
    done.set()
    for thread in counters:
        thread.join()
    jvm.wait()
    ours = findings.counts["locks of ours"]
    findings.counts["locks of the JVM"] = theirs
    found = int(counter.read_text())
    if found != ours + theirs or not ours or not theirs:
        findings.problems.append(f"the file says {found} after {ours} + {theirs} additions")
    shutil.rmtree(folder)
    return findings.told(f"Hudi {hudi}, counting for {seconds:g} s")


def _line_with(lines: IO[bytes], start: bytes) -> bytes:
    """The next line that begins so, or is a number; what the JVM prints besides is passed over."""
    for line in lines:
        if (start and line.startswith(start)) or (not start and line.strip().isdigit()):
            return line
    raise RuntimeError("the JVM ended without an answer")


def _count(folder: Path, counter: Path, findings: Findings, done: threading.Event) -> None:
    lock = lock_from(LOCKING, LocalStorage(folder), on_event=findings.heard)
    assert lock is not None
    while not done.is_set():
        _add(lock, counter, findings)
        time.sleep(0.01)


def _add(lock: LockProvider, counter: Path, findings: Findings) -> None:
    """Add one under the lock; losing it is counted."""
    clock, random = SystemClock(), SystemRandom()
    try:
        lease = acquire(lock, "lakewright counting", wait_s=WAIT_S, clock=clock, random=random)
    except LockHeldError as error:
        findings.problems.append(error.message)
        return
    try:
        value = int(counter.read_text())
        time.sleep(0.005)
        lease.check()
        counter.write_text(str(value + 1))
        findings.counts["locks of ours"] += 1
    except LockLostError:
        findings.counts["locks of ours that the JVM removed, noticed in time"] += 1
    finally:
        lease.release()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.lock_proof", description=__doc__.splitlines()[0])
    parser.add_argument("--hudi", choices=VERSIONS, default="1.0.2")
    parser.add_argument("--seconds", type=float, default=180)
    options = parser.parse_args(arguments)
    right = [
        prove_counting(options.hudi, options.seconds / 3),
        prove_committing(options.hudi, options.seconds),
    ]
    print(f"{sum(right)} passed, {len(right) - sum(right)} failed")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
