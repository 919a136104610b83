"""Tables and processes for the tests of transactions: a folder in memory, writers that step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakewright.engine.new_table import NewTable
from lakewright.engine.table_creation import create_table
from lakewright.format.file_names import BaseFileName
from lakewright.format.partitions import (
    format_partition_metadata,
    list_table,
    partition_depth,
)
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.format.view_inputs import load_view
from lakewright.runtime import ManualClock, SeededRandom, ThreadSpawner
from lakewright.runtime.process import ProcessIdentity
from lakewright.runtime.spawn import Task
from lakewright.storage.base import Storage
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.access import Access
from lakewright.txn.locks.in_process import InProcessLock
from lakewright.txn.markers import Marker, MarkerType, create_marker
from lakewright.txn.transaction import Prepared, Transaction, begin

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("day", pa.string())])
START_MS = 1_760_000_000_000
THIS_PROCESS = ProcessIdentity("here", "boot", 1, "0")


class NeverRuns:
    """Background work does not run: heartbeats beat once. What somebody waits for does."""

    def spawn(self, fn: Any, name: str) -> Task[Any]:
        """Take it and do nothing, unless it is a lane of shared work."""
        if name.startswith("lane-"):
            return ThreadSpawner().spawn(fn, name)
        return None  # type: ignore[return-value]


@dataclass
class KnownProcesses:
    """Processes of which the test says who is dead."""

    own: ProcessIdentity = field(default=THIS_PROCESS)
    dead: set[ProcessIdentity] = field(default_factory=set)

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """Whether the test said so."""
        return identity in self.dead


def new_storage(
    version: int = 8, type_: str = "cow", storage: Storage | None = None, **more: Any
) -> Storage:
    """A storage with an empty table."""
    storage = storage or MemoryStorage()
    spec = NewTable(
        name="t",
        schema=SCHEMA,
        type=type_,  # type: ignore[arg-type]
        version=version,
        key_fields=("id",),
        partition_fields=("day",),
        timeline_timezone="UTC",
        **more,
    )
    create_table(storage, spec, clock=ManualClock(START_MS), random=SeededRandom(1))
    return storage


def new_access(storage: Storage, clock: ManualClock | None = None, **more: Any) -> Access:
    """Means to change the table, on a clock that stands still."""
    clock = clock or ManualClock(START_MS)
    chosen = {
        "lock": InProcessLock("t", clock=clock),
        "alone": True,
        "clock": clock,
        "random": SeededRandom(7),
        "spawner": NeverRuns(),
        "processes": KnownProcesses(),
        "lock_wait_s": 5.0,
        **more,
    }
    return Access(storage=storage, **chosen)


def write_file(
    storage: Storage, transaction: Transaction, partition: str, file_id: str, token: str = "0-0-0"
) -> WriteStat:
    """What a task does, with a file that holds its own name."""
    name = BaseFileName(file_id, token, transaction.instant).text
    path = f"{partition}/{name}" if partition else name
    transaction.fence.check(storage)
    mark = format_partition_metadata(transaction.instant, partition_depth(partition), now_ms=0)
    storage.replace(f"{partition}/.hoodie_partition_metadata".lstrip("/"), mark)
    create_marker(storage, transaction.instant, Marker(partition, name, MarkerType.CREATE))
    transaction.fence.check(storage)
    storage.create_if_absent(path, name.encode())
    return WriteStat(
        file_id=file_id, path=path, prev_commit="null", partition_path=partition, num_inserts=1
    )


def prepared(
    access: Access, *stats: WriteStat, replaced: dict[str, list[str]] | None = None, **more: Any
) -> Prepared:
    """A write ready to be committed, based on the timeline as it is now."""
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    metadata = CommitMetadata(
        partition_to_write_stats=by_partition,
        operation_type="INSERT",
        partition_to_replace_file_ids=replaced,
    )
    return Prepared(metadata, access.timeline(access.properties()), **more)


def write(access: Access, file_id: str, partition: str = "a", action: str = "commit") -> str:
    """One whole write of one file."""
    transaction = begin(access, action=action)
    transaction.start()
    stat = write_file(access.storage, transaction, partition, file_id)
    transaction.commit(prepared(access, stat))
    return transaction.instant


def visible(access: Access) -> set[str]:
    """Data files that readers see."""
    properties = access.properties()
    timeline = access.timeline(properties)
    view = load_view(access.storage, properties, timeline, listing=list_table(access.storage))
    return {base.path for base in view.latest_base_files(None)}


def on_disk(storage: Storage) -> set[str]:
    """Every object that is not the table's creation, locks left out."""
    return {i.path for i in storage.walk() if "hoodie.properties" not in i.path}


def moved(access: Access, **more: Any) -> Access:
    """The same table in other hands."""
    return replace(access, **more)
