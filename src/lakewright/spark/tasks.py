"""Units of work that Spark sends to its Python workers: what to read, and how.

A `ReadContext` is a plain value: the storage by reference (credentials are found where it is
opened), the pinned snapshot's facts, projection and filter, and nothing that is open. Each task
travels as bytes of its own, so that a worker unpickles only the one it reads; what all tasks share
is unpickled once per worker process. Rows come as Arrow batches in the form that Spark takes.

User mergers travel along: by reference where they can be imported, by value otherwise.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from lakewright.engine.cdc_plan import plan_cdc
from lakewright.engine.cdc_reader import CdcReader, Images
from lakewright.engine.change_plan import LATEST_SNAPSHOT, ChangeTask, plan_rows
from lakewright.engine.changes import Changes
from lakewright.engine.listing import OpenedListing, StorageListing, Warnings
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan import Scan
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.time_travel import AsOf
from lakewright.expr import Expr
from lakewright.format.evolution import Conversion
from lakewright.format.internal_schema import InternalSchemas
from lakewright.format.properties import TableProperties
from lakewright.format.table_schema import TableSchema
from lakewright.format.timeline import Timeline
from lakewright.merge.config import MergeConfig
from lakewright.merge.registry import MergerRegistry
from lakewright.spark.schema import to_wire
from lakewright.storage.resolve import StorageRef

__all__ = ["ReadContext", "change_work", "pack", "read_packed", "scan_context"]

CONTEXTS_KEPT = 8


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """The facts of a snapshot that reading needs, apart from its open storage."""

    storage: StorageRef
    properties: TableProperties
    timeline: Timeline
    schema: TableSchema
    internal_schemas: InternalSchemas | None
    as_of: AsOf | None

    @classmethod
    def of(cls, snapshot: Snapshot, storage: StorageRef) -> PinnedSnapshot:
        """Close a snapshot."""
        return cls(
            storage=storage,
            properties=snapshot.properties,
            timeline=snapshot.timeline,
            schema=snapshot.schema,
            internal_schemas=snapshot.internal_schemas,
            as_of=snapshot.as_of,
        )

    def open(self) -> Snapshot:
        """The snapshot again, on storage opened here."""
        storage = self.storage.open()
        return Snapshot(
            storage=storage,
            properties=self.properties,
            timeline=self.timeline,
            schema=self.schema,
            internal_schemas=self.internal_schemas,
            merge=MergeConfig.from_properties(self.properties.version, self.properties.values),
            opened=OpenedListing(
                StorageListing(storage, self.properties, self.timeline), None, Warnings(storage.uri)
            ),
            as_of=self.as_of,
        )


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What all tasks of one read share."""

    snapshot: PinnedSnapshot
    schema: pa.Schema
    """The columns of the result."""
    where: Expr | None
    options: ReadOptions
    registry: MergerRegistry
    span: frozenset[str] | None = None
    """Instants whose versions of rows meet each other; None is all."""
    from_latest: bool = False
    """Whether changes come from the latest snapshot, because their own files are gone."""
    images: Images | None = None
    """The form of images in change data; None where rows are read."""

    def reader(self) -> Callable[[Any], Iterable[pa.RecordBatch]]:
        """What reads one task, on freshly opened storage."""
        snapshot, columns = self.snapshot.open(), tuple(self.schema.names)
        options, registry = self.options, self.registry
        if self.images is None:
            return SliceReader(snapshot, columns, self.where, options, registry, self.span).read
        whole = tuple(snapshot.schema.arrow.names)
        slices = SliceReader(snapshot, whole, None, options, registry)
        return CdcReader(snapshot, columns, self.where, self.images, slices).read


def scan_context(scan: Scan, storage: StorageRef) -> ReadContext:
    """How the slices of a scan are read."""
    pinned = PinnedSnapshot.of(scan.snapshot, storage)
    return ReadContext(pinned, scan.schema, scan.where, scan.options, scan.registry)


def change_work(changes: Changes, storage: StorageRef) -> tuple[ReadContext, Sequence[ChangeTask]]:
    """The tasks of a read of changes, and how they are read."""
    pinned = PinnedSnapshot.of(changes.snapshot, storage)
    options, registry = changes.options, changes.registry
    if changes.mode == "cdc":
        context = ReadContext(
            pinned, changes.schema, changes.where, options, registry, images=changes.images
        )
        return context, plan_cdc(changes.snapshot, changes.range)
    slices = plan_rows(changes.snapshot, changes.range, changes.where)
    context = ReadContext(
        pinned,
        changes.schema,
        slices.where,
        options,
        registry,
        span=slices.span,
        from_latest=slices.source == LATEST_SNAPSHOT,
    )
    return context, slices.tasks


def pack(value: object) -> bytes:
    """A context or a task as bytes, for its way to a worker."""
    packed: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return packed


def read_packed(context: bytes, task: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a packed task, in Spark's form."""
    read, wire = _opened(context)
    for batch in read(pickle.loads(task)):  # noqa: S301 - made by `pack`
        yield wire.apply(batch)


@lru_cache(maxsize=CONTEXTS_KEPT)
def _opened(context: bytes) -> tuple[Callable[[Any], Iterable[pa.RecordBatch]], Conversion]:
    shared: ReadContext = pickle.loads(context)  # noqa: S301 - made by `pack`
    return shared.reader(), to_wire(shared.schema)
