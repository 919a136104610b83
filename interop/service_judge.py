"""What a table must be like after a trial, when every process of it has ended.

First a next process goes on without help: it writes a batch, finishes what is pending and cleans.
Then: what the writer was told is committed is there, whole, and so are all rows, exactly; no plan
was completed twice and nothing is pending; every data file is named by an instant that is
completed; no sign of life, fence, marker, lock or unfinished file is left.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import lakewright as lw
from interop.instants import instants
from interop.keyed_batches import SCHEMA
from interop.keyed_writers import batches_on_timeline, differences
from interop.kill_trials import left_over
from interop.service_process import Work
from interop.service_tables import expected_rows, write_batch
from lakewright.errors import LakewrightError
from lakewright.format.records import (
    file_name,
    load_commit_metadata,
    load_rollback_metadata,
)
from lakewright.storage import LocalStorage

NO_BATCH = "?"
HEARTBEATS_S = 10.0
DATA_ENDINGS = (".parquet", ".log.")


def be_judge(pipe: Connection, work: Work, committed: Sequence[int], begun: Sequence[int]) -> None:
    """Go on, then look."""
    last = max(begun) + 1
    try:
        _go_on(work, last)
    except LakewrightError as error:
        pipe.send(("wrong", [f"the next process fails: {type(error).__name__}: {error}"]))
        return
    _wait_for_heartbeats()
    wrong = [
        *_completed_twice(work.table),
        *left_over(work.table),
        *_unnamed_files(work.table),
        *_wrong_rows(work.table, {*committed, last}, {*begun, last}),
    ]
    pipe.send(("wrong", wrong))


def _go_on(work: Work, batch: int) -> None:
    table = work.opened(patient=True)
    write_batch(table, batch)
    if work.stage.kind.type == "mor":
        table.services.compaction.run()
    table.services.clean.run()


def _wait_for_heartbeats() -> None:
    """A last heartbeat that was on its way when its write ended takes itself away."""
    for thread in threading.enumerate():
        if thread.name.startswith("heartbeat-"):
            thread.join(HEARTBEATS_S)


def _completed_twice(table: Path) -> Iterator[str]:
    done = Counter(s.requested for s in instants(table) if s.state == "completed")
    for instant, times in done.items():
        if times > 1:
            yield f"{instant} was completed {times} times"


def _unnamed_files(table: Path) -> Iterator[str]:
    """Data files that no completed instant tells of."""
    opened, storage = lw.Table.open(table), LocalStorage(table)
    named: set[str | None] = set()
    for instant in opened.timeline.completed().instants:
        if instant.action in ("commit", "deltacommit", "replacecommit"):
            for stat in load_commit_metadata(storage, opened.properties, instant).write_stats:
                named.add(file_name(stat.path))
        elif instant.action == "rollback":
            told = load_rollback_metadata(storage, opened.properties, instant)
            for partition in (told.partition_metadata or {}).values():
                for logs in (partition.rollback_log_files, partition.log_files_from_failed_commit):
                    named.update(map(file_name, logs or {}))
    for file in table.rglob("*"):
        inside = ".hoodie" not in file.relative_to(table).parts
        data = any(ending in file.name for ending in DATA_ENDINGS) and file.is_file()
        if inside and data and file.name not in named:
            yield f"data file that no instant names: {file.relative_to(table)}"


def _wrong_rows(table: Path, committed: set[int], begun: set[int]) -> Iterator[str]:
    order = [int(name) for name in batches_on_timeline(table) if name != NO_BATCH]
    if lost := sorted(committed - {*order}):
        yield f"batches that were committed are not on the timeline: {lost}"
    if strange := sorted({*order} - begun):
        yield f"batches on the timeline that nobody wrote: {strange}"
    if len(order) != len({*order}):
        yield f"batches that were committed twice: {order}"
    rows = (tuple(row[n] for n in SCHEMA.names) for row in expected_rows(order))
    try:
        found = lw.Table.open(table).scan(columns=SCHEMA.names).to_arrow()
    except LakewrightError as error:
        yield f"the reader fails: {error}"
        return
    yield from differences("lakewright", found, Counter(rows))
