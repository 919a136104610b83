"""Read a table while real Hudi is writing it: every read must be one committed snapshot.

    python -m interop.concurrent [--seconds 120] [--versions 6 8]

Hudi upserts all keys of a Merge-on-Read table again and again, each time with the next generation
number, compacting, cleaning and archiving as it goes. So a snapshot is right exactly if it has
every key once and one single generation, no older than the last commit before the read began, no
newer than the write under way, and never older than an earlier read. lakewright reads all the
time: snapshot and read-optimised, through the metadata table and around it. No read may fail.

Ends with a line `N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import lakewright as lw
from interop.cases import DIALECT_OF_TABLE_VERSION, Traits
from interop.hudi import Hudi
from interop.options import write_options

KEYS = 300
PARTITIONS = 3
SCHEMA = "id string, sub int, region string, day string, ts bigint, generation int, filler string"
SERVICES = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "2",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.commits.archival.batch": "1",
    "hoodie.metadata.compact.max.delta.commits": "3",
}


@dataclass
class Writer:
    """Hudi in a thread of its own, writing generation after generation."""

    hudi: Hudi
    table: Path
    options: dict[str, str]
    started: int = 0
    committed: int = 0
    failure: Exception | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Write until told to stop."""
        try:
            while not self.stop.is_set():
                self.write()
        except Exception as error:
            self.failure = error

    def write(self) -> None:
        """Write the next generation of every key."""
        g = self.started = self.started + 1
        rows = [
            {
                "id": f"k{i:04d}",
                "sub": i % 7,
                "region": f"r{i % PARTITIONS}",
                "day": "2024-01-30",
                "ts": g,
                "generation": g,
                "filler": f"{g}-{i}" * 5,
            }
            for i in range(KEYS)
        ]
        step = {
            "do": "write",
            "operation": "upsert",
            "schema": SCHEMA,
            "rows": rows,
            "options": self.options,
        }
        self.hudi.steps(self.table, "concurrent", [step])
        self.committed = g


@dataclass
class Reads:
    """What the reads found."""

    count: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=dict)


def read_once(writer: Writer, reads: Reads, mode: str, *, metadata: bool) -> None:
    """One read and its check."""
    label = f"{mode}, {'with' if metadata else 'without'} metadata table"
    before = writer.committed
    try:
        options = lw.ReadOptions(use_metadata_table=metadata)
        table = lw.Table.open(str(writer.table), options=options)
        answer = table.scan(mode=mode).to_arrow()  # type: ignore[arg-type]
    except Exception as error:
        reads.problems.append(f"{label}: {type(error).__name__}: {error}")
        return
    reads.count[label] += 1
    problem, generation = judge(answer)
    if not problem and generation > writer.started:
        problem = f"generation {generation} while {writer.started} is being written"
    if not problem and mode == "snapshot" and generation < before:
        problem = f"generation {generation} after {before} was committed"
    if not problem and generation < reads.newest.get(label, 0):
        problem = f"generation {generation} after {reads.newest[label]} was seen"
    if problem:
        reads.problems.append(f"{label}: {problem}")
    else:
        reads.newest[label] = generation


def judge(answer: pa.Table) -> tuple[str, int]:
    """What is wrong with an answer, and its generation."""
    generations = set(answer["generation"].to_pylist())
    keys = set(answer["id"].to_pylist())
    if len(generations) != 1:
        return f"generations {sorted(generations)} in one snapshot", 0
    if answer.num_rows != KEYS or len(keys) != KEYS:
        return f"{answer.num_rows} rows, {len(keys)} keys for {KEYS}", 0
    return "", int(generations.pop())


def prove(version: int, seconds: float) -> bool:
    """Read one table for some seconds while it is written; whether all was right."""
    hudi = Hudi(DIALECT_OF_TABLE_VERSION[version])
    folder = Path(tempfile.mkdtemp(prefix="lakewright-concurrent-"))
    traits = Traits(version, "mor", "concurrent", metadata="files")
    options = {**write_options(traits, hudi.version, "concurrent"), **SERVICES}
    reads = Reads()
    with hudi:
        writer = Writer(hudi, folder / "table", options)
        writer.write()
        thread = threading.Thread(target=writer.run)
        thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and writer.failure is None:
            for mode in ("snapshot", "read_optimized"):
                for metadata in (True, False):
                    read_once(writer, reads, mode, metadata=metadata)
        writer.stop.set()
        thread.join()
    shutil.rmtree(folder)
    return told(version, hudi.version, writer, reads)


def told(version: int, hudi: str, writer: Writer, reads: Reads) -> bool:
    """Print what happened; whether all was right."""
    print(f"table version {version}, Hudi {hudi}: {writer.committed} generations committed")
    for label, count in sorted(reads.count.items()):
        print(f"  {count} reads, {label}")
    for problem, count in Counter(reads.problems).most_common(10):
        print(f"  FAILED {count} times: {problem}")
    if writer.failure is not None:
        print(f"  FAILED the writer: {writer.failure}")
    return not reads.problems and writer.failure is None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.concurrent", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--versions", type=int, nargs="+", default=[6, 8], help="table versions")
    options = parser.parse_args(arguments)
    right = [prove(version, options.seconds) for version in options.versions]
    print(f"{sum(right)} passed, {len(right) - sum(right)} failed")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
