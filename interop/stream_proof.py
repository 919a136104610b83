"""Stream a table while real Hudi writes it, and kill the stream again and again.

    python -m interop.stream_proof [--version 6|8|9] [--kills 10] [--seed 1]

Hudi upserts, inserts and deletes rows of a Merge-on-Read table, compacting, cleaning and archiving
as it goes. Two streams read it in a process that is killed with SIGKILL at random moments and
started again from its checkpoints. When Hudi has stopped, they read the rest. The truth is what
was given to Hudi, write by write, and nothing that lakewright says: every batch must have exactly
the last versions of the rows that the instants between its two offsets wrote, the batches must
follow each other without gap or overlap from the first instant to the last, and a batch that was
read again must be what it was before. Hudi's own answer at the end is held against the truth too.

Ends with a line `N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import pyarrow.parquet as pq

from interop.cases import DIALECT_OF_TABLE_VERSION, Traits
from interop.hudi import ROOT, Hudi
from interop.instants import SeenInstant, instants
from interop.options import write_options

PYTHON = ROOT / ".venv" / "bin" / "python"
PROGRAM = "interop.stream_process"
QUERIES = ("each", "merged")
KEYS = 400
PARTITIONS = 3
TOUCHED = 60
SCHEMA = "id string, sub int, region string, day string, ts bigint, generation int, filler string"
LAG_MAX = 5
"""How many writes the slower stream may be behind; Hudi waits then, so that no history is lost."""
WRITES_MIN = 24
START_SECONDS = 240.0
DRAIN_SECONDS = 400.0
LIFE_BATCHES = 5
LIFE_SECONDS = 120.0
LAST_SECONDS = 1.5
"""A life ends after so many new batches at the most, or seconds if none come, and a moment more."""
STARVED = "Python worker failed to connect back"
STARVED_MAX = 5
"""Spark gives a Python process ten seconds to start; a busy machine may not: one more death."""
SERVICES = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "10",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "12",
    "hoodie.keep.max.commits": "14",
    "hoodie.commits.archival.batch": "1",
}

MERGE = {6: "event", 8: "commit", 9: "event"}
"""Release 1.0.2 fails on its own deletes where the event time is a long."""

Row = dict[str, Any]
Version = tuple[str, str, str, int, int, str]
"""Commit time, key, region, event time, generation and filler of one version of a row."""


@dataclass(frozen=True)
class Written:
    """One write as it was given to Hudi, and the instant Hudi made of it."""

    requested: str
    completed: str | None
    rows: tuple[Row, ...]
    deleted: frozenset[str]

    def time(self, scheme: str) -> str:
        """The time by which streams order it."""
        return self.requested if scheme == "requested" else str(self.completed)


@dataclass
class Writer:
    """Hudi in a thread of its own."""

    hudi: Hudi
    table: Path
    options: dict[str, str]
    random: random.Random
    history: list[Written] = field(default_factory=list)
    actions: set[tuple[str, str]] = field(default_factory=set)
    alive: set[int] = field(default_factory=set)
    lag: Any = lambda: 0
    failure: Exception | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Write until told to stop; wait where the streams are too far behind."""
        try:
            while not self.stop.is_set():
                if self.lag() > LAG_MAX:
                    time.sleep(0.1)
                else:
                    self.write()
        except Exception as error:
            self.failure = error

    def write(self) -> None:
        """One write: an insert first, then mostly upserts, some inserts and deletes."""
        g = len(self.history) + 1
        kind = (
            "insert"
            if g == 1
            else self.random.choices(("upsert", "insert", "delete"), (6, 1, 2))[0]
        )
        fresh = [i for i in range(KEYS) if i not in self.alive]
        known = sorted(self.alive)
        if kind == "insert":
            keys = self.random.sample(fresh, min(len(fresh), KEYS // 2 if g == 1 else TOUCHED // 3))
        elif kind == "delete":
            keys = self.random.sample(known, min(len(known), TOUCHED // 4))
        else:
            keys = self.random.sample(known, min(len(known), TOUCHED))
            keys += self.random.sample(fresh, min(len(fresh), TOUCHED // 6))
        if not keys:
            return
        rows = tuple(row(i, g) for i in keys)
        before = set(completed_deltas(self.table))
        step = {"do": "write", "operation": kind, "schema": SCHEMA, "rows": list(rows)}
        self.hudi.steps(self.table, "streamed", [{**step, "options": self.options}])
        self.alive = self.alive - set(keys) if kind == "delete" else self.alive | set(keys)
        (made,) = set(completed_deltas(self.table)) - before
        gone = frozenset(r["id"] for r in rows) if kind == "delete" else frozenset()
        kept = () if kind == "delete" else rows
        self.history.append(Written(made.requested, made.completed, kept, gone))
        self.actions |= {
            (i.requested, i.action) for i in instants(self.table) if i.state == "completed"
        }


def row(i: int, g: int) -> Row:
    """The version of a row in a generation."""
    return {
        "id": f"k{i:04d}",
        "sub": i % 7,
        "region": f"r{i % PARTITIONS}",
        "day": "2024-01-30",
        "ts": g,
        "generation": g,
        "filler": f"{g}-{i}" * 3,
    }


def completed_deltas(table: Path) -> list[SeenInstant]:
    """The completed delta commits that the active timeline has now."""
    if not (table / ".hoodie").exists():
        return []
    return [i for i in instants(table) if i.state == "completed" and i.action == "deltacommit"]


# -- the stream's process ---------------------------------------------------------------------


class Stream:
    """The process of the queries, life after life."""

    def __init__(self, table: Path, work: Path) -> None:
        self.table, self.work, self.life, self.starved = table, work, 0, 0
        work.mkdir(parents=True, exist_ok=True)

    def start(self, what: str) -> subprocess.Popen[bytes]:
        """Start the process; it is up when both queries run."""
        self.life += 1
        with (self.work / f"log-{self.life}").open("wb") as log:
            process = subprocess.Popen(
                [str(PYTHON), "-m", PROGRAM, str(self.table), str(self.work), str(self.life), what],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
            )
        watchdog = threading.Timer(START_SECONDS, process.kill)
        watchdog.start()
        line = cast("IO[bytes]", process.stdout).readline()
        watchdog.cancel()
        if line.strip() != b"started":
            kill(process)
            raise StreamEndedError(self.log())
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process. One that died before must have starved on a busy machine."""
        if process.poll() is not None:
            self.starved += 1
            if STARVED not in self.log() or self.starved > STARVED_MAX:
                raise StreamEndedError(self.log())
        kill(process)

    def begun(self) -> int:
        """How many batches were begun so far."""
        return sum(len(offsets(self.work, query)) for query in QUERIES)

    def log(self) -> str:
        """The end of what the last life said."""
        return (self.work / f"log-{self.life}").read_text(errors="replace")[-4000:]


class StreamEndedError(Exception):
    """A stream ended though nobody killed it."""


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for Python and its JVM, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def offsets(work: Path, query: str, log: str = "offsets") -> dict[int, str]:
    """What the checkpoint has: the end of every batch that was begun, or `commits` of it."""
    folder = work / query / "checkpoint" / log
    if not folder.is_dir():
        return {}
    found = {}
    for file in folder.iterdir():
        if file.name.isdigit():
            text = file.read_text().splitlines()
            found[int(file.name)] = text[-1] if log == "offsets" else ""
    return {n: end_of(text) if log == "offsets" else "" for n, text in sorted(found.items())}


def end_of(line: str) -> str:
    """The offset in a line of Spark's offset log; empty if it was not written whole."""
    try:
        return str(json.loads(line)["offset"])
    except (ValueError, KeyError, TypeError):
        return ""


def lag(writer: Writer, work: Path, scheme: str) -> int:
    """How many writes the slower stream has not finished."""
    behind = []
    for query in QUERIES:
        ends, done = offsets(work, query), offsets(work, query, "commits")
        finished = [ends[n].partition(":")[2] for n in done if n in ends]
        at = max((t for t in finished if t != "earliest"), default="")
        behind.append(sum(w.time(scheme) > at for w in writer.history))
    return max(behind)


# -- the judgement ----------------------------------------------------------------------------


@dataclass
class Verdict:
    """What the batches of one query are worth."""

    query: str
    batches: int = 0
    rows: int = 0
    ranges: Counter[int] = field(default_factory=Counter)
    """Batches by the number of writes in their range."""
    repeated: int = 0
    problems: list[str] = field(default_factory=list)


def expected(history: Sequence[Written], scheme: str, begin: str, end: str) -> set[Version]:
    """The last versions of the rows that the writes of a range made."""
    last: dict[str, Version | None] = {}
    for written in sorted(history, key=lambda w: w.time(scheme)):
        if begin < written.time(scheme) <= end:
            for r in written.rows:
                facts = (r["id"], r["region"], r["ts"], r["generation"], r["filler"])
                last[r["id"]] = (written.requested, *facts)
            last |= dict.fromkeys(written.deleted)
    return {version for version in last.values() if version is not None}


def stored(folder: Path) -> list[Version]:
    """The rows of one complete folder."""
    names = ("_hoodie_commit_time", "id", "region", "ts", "generation", "filler")
    rows: list[Version] = []
    for file in sorted(folder.glob("part-*.parquet")):
        columns = pq.read_table(file, columns=list(names)).to_pydict()
        rows += zip(*(columns[name] for name in names), strict=True)
    return sorted(rows)


def judge(query: str, work: Path, history: Sequence[Written], scheme: str) -> Verdict:
    """Hold the batches of a query against the history."""
    verdict = Verdict(query)
    ends, done = offsets(work, query), offsets(work, query, "commits")
    if list(done) != list(range(len(done))) or list(ends) != list(done):
        verdict.problems.append(f"batches begun {list(ends)}, finished {list(done)}")
    begin = ""
    for number, offset in ends.items():
        named, _, end = offset.partition(":")
        if named != scheme or end < begin:
            verdict.problems.append(f"batch {number} ends at {offset} after {begin}")
        lives = [
            p
            for p in (work / query / "batches" / str(number)).glob("*")
            if (p / "_SUCCESS").exists()
        ]
        versions = [stored(p) for p in sorted(lives, key=lambda p: int(p.name))]
        verdict.repeated += len(versions) > 1
        wanted = sorted(expected(history, scheme, begin, end))
        if not versions or any(rows != wanted for rows in versions):
            got = versions[-1] if versions else []
            verdict.problems.append(
                f"batch {number} ({begin}, {end}]: {len(got)} rows for {len(wanted)}, "
                f"{len(set(wanted) - set(got))} lost, {len(set(got) - set(wanted))} wrong, "
                f"{len(got) - len(set(got))} repeated, {len(versions)} readings"
            )
        verdict.ranges[sum(begin < w.time(scheme) <= end for w in history)] += 1
        verdict.batches += 1
        verdict.rows += len(wanted)
        begin = end
    if history and begin < max(w.time(scheme) for w in history):
        verdict.problems.append(f"ends at {begin}, before the last write")
    if query == "each" and any(n > 1 for n in verdict.ranges):
        verdict.problems.append(f"more than one instant in a batch: {dict(verdict.ranges)}")
    return verdict


def truth_is_hudis(hudi: Hudi, table: Path, work: Path, history: Sequence[Written]) -> list[str]:
    """Whether Hudi's own snapshot is what the writes add up to."""
    into = work / "snapshot.parquet"
    hudi.read(table, into, {})
    names = ("_hoodie_commit_time", "id", "region", "ts", "generation", "filler")
    columns = pq.read_table(into, columns=list(names)).to_pydict()
    rows = set(zip(*(columns[name] for name in names), strict=True))
    wanted = expected(history, "requested", "", "9")
    return [] if rows == wanted else [f"Hudi has {len(rows)} rows, its writes make {len(wanted)}"]


# -- the whole --------------------------------------------------------------------------------


def prove(version: int, kills: int, seed: int) -> bool:
    """Stream one table through `kills` deaths; whether all was right."""
    chance = random.Random(seed)
    hudi = Hudi(DIALECT_OF_TABLE_VERSION[version])
    folder = Path(tempfile.mkdtemp(prefix="lakewright-stream-"))
    scheme = "requested" if version == 6 else "completion"
    traits = Traits(version, "mor", "streamed", metadata="files", merge=MERGE[version])
    options = {**write_options(traits, hudi.version, "streamed"), **SERVICES}
    stream = Stream(folder / "table", folder / "work")
    began = time.monotonic()
    with hudi:
        writer = Writer(hudi, folder / "table", options, chance)
        writer.lag = lambda: lag(writer, stream.work, scheme)
        writer.write()
        thread = threading.Thread(target=writer.run)
        thread.start()
        problems = live_and_die(stream, writer, kills, random.Random(seed + 1))
        writer.stop.set()
        thread.join()
        if writer.failure is not None:
            problems.append(f"the writer: {writer.failure}")
        if not problems:
            problems += drained(stream)
            problems += truth_is_hudis(hudi, folder / "table", stream.work, writer.history)
    verdicts = [judge(q, stream.work, writer.history, scheme) for q in QUERIES]
    seconds = time.monotonic() - began
    right = told(
        f"table version {version}, Hudi {hudi.version}", writer, verdicts, problems, seconds
    )
    if right:
        shutil.rmtree(folder)
    else:
        print(f"  left for a look: {folder}")
    return right


def live_and_die(stream: Stream, writer: Writer, kills: int, chance: random.Random) -> list[str]:
    """Start the streams and kill them, `kills` times, and until Hudi has written enough."""
    try:
        for _ in range(kills):
            target = stream.begun() + chance.randint(0, LIFE_BATCHES)
            process = stream.start("run")
            end = time.monotonic() + LIFE_SECONDS
            while stream.begun() < target and time.monotonic() < end and process.poll() is None:
                time.sleep(0.05)
            if writer.failure is not None:
                kill(process)
                return []
            time.sleep(chance.uniform(0, LAST_SECONDS))
            stream.finish(process)
        process = stream.start("run")
        while len(writer.history) < WRITES_MIN and writer.failure is None:
            time.sleep(0.2)
            if process.poll() is not None:
                stream.finish(process)
                process = stream.start("run")
        stream.finish(process)
    except StreamEndedError as error:
        return [f"a stream ended by itself: {error}"]
    return []


def drained(stream: Stream) -> list[str]:
    """Let the streams read what is left."""
    try:
        while (process := stream.start("drain")).wait(DRAIN_SECONDS):
            stream.finish(process)
    except (StreamEndedError, subprocess.TimeoutExpired) as error:
        return [f"the streams did not drain: {error}"]
    return []


def told(
    title: str, writer: Writer, verdicts: Sequence[Verdict], problems: list[str], seconds: float
) -> bool:
    """Print what happened; whether all was right."""
    actions = Counter(action for _, action in writer.actions)
    done = ", ".join(f"{n} {action}s" for action, n in sorted(actions.items()))
    print(f"{title}: {len(writer.history)} writes in {seconds:.0f} s ({done})")
    if not (actions["commit"] and actions["clean"]):
        problems.append(f"Hudi has not compacted and cleaned: {dict(actions)}")
    for verdict in verdicts:
        print(
            f"  {verdict.query}: {verdict.batches} batches, {verdict.rows} rows, writes per batch "
            f"{dict(sorted(verdict.ranges.items()))}, {verdict.repeated} batches read twice or more"
        )
        problems += [f"{verdict.query}: {problem}" for problem in verdict.problems]
    for problem in problems[:20]:
        print(f"  FAILED {problem}")
    return not problems


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="interop.stream_proof", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--version", type=int, nargs="+", default=[6, 8], help="table versions")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    right = [prove(version, options.kills, options.seed) for version in options.version]
    print(f"{sum(right)} passed, {len(right) - sum(right)} failed")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
