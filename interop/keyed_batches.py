"""Batches of several writers on overlapping keys, and the process of one of our writers.

A batch is an upsert or a delete of a few keys in one or two partitions; its id is in its rows and
in the metadata of its commit. Keys are of three kinds: *shared* ones are there from the beginning,
everybody updates them and nobody deletes them; *ours* are inserted, updated and deleted by all of
our writers; *theirs* are inserted, updated and deleted by Hudi, and deleted by us.
"""

from __future__ import annotations

import json
import random
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakewright as lw
from interop.written_rows import Row
from lakewright.errors import ConflictError

SHARED, OURS, THEIRS = "shared", "ours", "theirs"
KINDS = (SHARED, OURS, THEIRS)
KEYS = 60
"""Of each kind."""
PARTITIONS = 6
BATCH_ID = "_batch"
DDL = "id string, region string, ts bigint, batch string, n int"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("batch", pa.string()),
        ("n", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Batch:
    """One write."""

    id: str
    kind: str  # upsert or delete
    rows: list[Row]

    def arrow(self) -> pa.Table:
        """Its rows; those of a delete are keys."""
        rows = pa.Table.from_pylist(self.rows, schema=SCHEMA)
        return rows if self.kind == "upsert" else rows.select(["id", "region"])


def row(kind: str, number: int, ts: int, batch: str, n: int) -> Row:
    """The row of a key."""
    region = f"p{number % PARTITIONS}"
    return {"id": f"{kind}-{number:03d}", "region": region, "ts": ts, "batch": batch, "n": n}


def first_batch() -> Batch:
    """All shared keys."""
    return Batch("first", "upsert", [row(SHARED, i, 0, "first", i) for i in range(KEYS)])


class Batches:
    """The batches of one writer, one after the other."""

    def __init__(self, who: str, *, upserted: Sequence[str], deleted: Sequence[str]) -> None:
        self._who = who
        self._upserted = upserted
        self._deleted = deleted
        self._random = random.Random(who)
        self._count = 0

    def next(self) -> Batch:
        """Three upserts for each delete; ordering values of different writers cross."""
        self._count += 1
        name = f"{self._who}-{self._count}"
        kind = "delete" if self._random.random() < 0.25 else "upsert"
        partitions = self._random.sample(range(PARTITIONS), self._random.choice((1, 1, 2)))
        numbers = [i for i in range(KEYS) if i % PARTITIONS in partitions]
        chosen = self._random.sample(numbers, min(len(numbers), 8))
        kinds = self._deleted if kind == "delete" else self._upserted
        now = int(time.time() * 10)
        rows = [
            row(self._random.choice(kinds), i, now + self._random.randrange(-40, 1), name, n)
            for n, i in enumerate(chosen)
        ]
        return Batch(name, kind, rows)


@dataclass(frozen=True)
class Writer:
    """Everything that a process of ours needs."""

    who: str
    table: str
    lock: dict[str, str] | None
    options: dict[str, str]
    seconds: float
    pause_s: float
    log: str
    """Where it tells what it does, one JSON object a line."""


def write_until_done(writer: Writer) -> None:
    """Write batches for a while; a batch that loses is written again until it is committed."""
    batches = Batches(writer.who, upserted=(SHARED, OURS), deleted=(OURS, THEIRS))
    end = time.monotonic() + writer.seconds
    pause = random.Random(writer.who)
    with Path(writer.log).open("w", buffering=1) as log:

        def tell(**what: Any) -> None:
            log.write(json.dumps(what) + "\n")

        while time.monotonic() < end:
            batch = batches.next()
            tell(begin=asdict(batch))
            tries = 0
            while True:
                tries += 1
                try:
                    instant = _write(writer, batch)
                except ConflictError as error:
                    tell(
                        batch=batch.id,
                        lost=type(error).__name__,
                        retryable=error.retryable,
                        why=error.message,
                    )
                    if time.monotonic() > end:
                        break
                    continue
                except Exception:
                    tell(batch=batch.id, failed=traceback.format_exc())
                    return
                tell(batch=batch.id, committed=instant, tries=tries)
                break
            time.sleep(pause.uniform(0.0, writer.pause_s))


def _write(writer: Writer, batch: Batch) -> str | None:
    table = lw.Table.open(writer.table, lock=writer.lock)
    options = {**writer.options, BATCH_ID: batch.id}
    if batch.kind == "upsert":
        done = table.upsert(batch.arrow(), options=options, retries=0)
    else:
        done = table.delete(batch.arrow(), options=options, retries=0)
    return None if done.instant is None else str(done.instant)
