"""Tables for the proof with killed services: what they hold, and how every process opens them.

Batches are told by their number alone: updates of a few keys, one update that comes too late and
must lose, a new key; every fourth batch deletes two keys for good. So what a table must hold is
known from the numbers of the batches that its timeline tells of, whatever was compacted when.

Signs of life are quick here, so that a process that stands still is given up after two seconds and
not after ten minutes; everything else is as users have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lakewright as lw
from interop.keyed_batches import BATCH_ID, SCHEMA, Batch
from interop.kill_trials import Kind
from interop.written_rows import Row
from lakewright.engine.write_options import WriteOptions
from lakewright.format.own_files import storage_of_table
from lakewright.storage.resolve import open_storage
from lakewright.txn.access import Access
from lakewright.txn.heartbeat import HeartbeatOptions
from lakewright.txn.locks.file_system import FileSystemLock

REGIONS = ("p0", "p1", "p2")
KEYS = 240
"""Rows of the first batch."""
UPDATED = 180
"""Keys below are updated, keys from here on are deleted."""
FIRST = 0
DELETES_EVERY = 4
LOCK_WAIT_S = 1.0
PATIENCE_S = 20.0
LOCK_EXPIRES_S = 2.0


@dataclass(frozen=True, slots=True)
class QuickHeartbeat(HeartbeatOptions):
    """Signs of life that are quicker than is safe between machines."""

    interval_ms: int = 200

    def __post_init__(self) -> None:
        """Any interval will do."""


QUICK = QuickHeartbeat()
TOLERANCE_S = QUICK.tolerance_of_others_ms / 1000


class QuickTable(lw.Table):
    """A table whose processes beat quickly, and wait for the lock only briefly."""

    lock_wait_s = LOCK_WAIT_S

    def _access(self, options: WriteOptions, how: Any) -> Access:
        return replace(super()._access(options, how), heartbeat=QUICK, lock_wait_s=self.lock_wait_s)


class PatientTable(QuickTable):
    """A table whose process must not miss its turn."""

    lock_wait_s = PATIENCE_S


def open_table(path: str | Path, *, expiring: bool = False, patient: bool = False) -> lw.Table:
    """The table, under its own lock or under one that is lost by standing still."""
    kind = PatientTable if patient else QuickTable
    if not expiring:
        return kind.open(path)
    storage = open_storage(path, storage_of_table(None))
    return kind.open(path, lock=FileSystemLock(storage, expire_s=LOCK_EXPIRES_S))


def create_table(path: Path, kind: Kind, *, expiring: bool) -> lw.Table:
    """A table with the first batch."""
    lw.Table.create(
        path,
        schema=SCHEMA,
        name="serviced",
        type=kind.type,  # type: ignore[arg-type]
        version=kind.version,
        key=["id"],
        partition=["region"],
        ordering=["ts"],
        merge_mode="EVENT_TIME_ORDERING",
    )
    table = open_table(path, expiring=expiring)
    write_batch(table, FIRST)
    return table


def batch_of(number: int) -> Batch:
    """The batch of a number; always the same."""
    if number == FIRST:
        rows = [_row(i, 1000, number) for i in range(KEYS)]
        return Batch(str(number), "upsert", rows)
    if number % DELETES_EVERY == 0:
        first = UPDATED + 2 * (number // DELETES_EVERY - 1)
        rows = [_row(i, 0, number) for i in range(first, min(first + 2, KEYS))]
        if rows:
            return Batch(str(number), "delete", rows)
    updated = [_row(number * 37 % UPDATED + i * 11, 1000 + number, number) for i in range(4)]
    kept = {row["id"]: row for row in updated if int(row["id"]) < UPDATED}
    late = _row(number * 53 % UPDATED, 1, number)
    new = _row(10_000 + number, 1000, number)
    return Batch(str(number), "upsert", [*{late["id"]: late, **kept}.values(), new])


def write_batch(table: lw.Table, number: int, *, cleans: bool = False) -> None:
    """Write a batch; what it tells stays on the timeline. `cleans`: and clean after it, as writers
    do that are not told otherwise."""
    batch = batch_of(number)
    options = {BATCH_ID: batch.id, "hoodie.archive.automatic": "false"}
    options["hoodie.clean.automatic"] = str(cleans).lower()
    if batch.kind == "upsert":
        table.upsert(batch.arrow(), options=options)
    else:
        table.delete(batch.arrow(), options=options)


def expected_rows(numbers: Iterable[int]) -> list[Row]:
    """What a table holds after these batches, one after the other."""
    held: dict[str, Row] = {}
    for number in numbers:
        batch = batch_of(number)
        for row in batch.rows:
            before = held.get(row["id"])
            if batch.kind == "delete":
                held.pop(row["id"], None)
            elif before is None or row["ts"] >= before["ts"]:
                held[row["id"]] = row
    return list(held.values())


def _row(key: int, ts: int, batch: int) -> Row:
    region = REGIONS[key % len(REGIONS)]
    return {"id": f"{key:05d}", "region": region, "ts": ts, "batch": str(batch), "n": batch}
