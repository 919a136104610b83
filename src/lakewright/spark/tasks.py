"""Units of work that Spark sends to its Python workers: file slices and how to read them.

A `ReadContext` is a plain value: the storage by reference (credentials are found where it is
opened), the pinned snapshot's facts, projection and filter, and nothing that is open. Each slice
travels as bytes of its own, so that a worker unpickles only the slice it reads; what all slices
share is unpickled once per worker process. Rows come as Arrow batches in the form that Spark takes.

User mergers travel along: by reference where they can be imported, by value otherwise.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark import cloudpickle

from lakewright.engine.listing import OpenedListing, StorageListing
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan import Scan
from lakewright.engine.scan_plan import ScanTask
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

__all__ = ["ReadContext", "packed_context", "packed_task", "read_slice"]

CONTEXTS_KEPT = 8


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What all slices of one read share."""

    storage: StorageRef
    properties: TableProperties
    timeline: Timeline
    schema: TableSchema
    internal_schemas: InternalSchemas | None
    as_of: AsOf | None
    columns: tuple[str, ...]
    where: Expr | None
    options: ReadOptions
    registry: MergerRegistry

    @classmethod
    def of(cls, scan: Scan, storage: StorageRef) -> ReadContext:
        """The parts of a scan that a worker needs."""
        snapshot = scan.snapshot
        return cls(
            storage=storage,
            properties=snapshot.properties,
            timeline=snapshot.timeline,
            schema=snapshot.schema,
            internal_schemas=snapshot.internal_schemas,
            as_of=snapshot.as_of,
            columns=scan.columns,
            where=scan.where,
            options=scan.options,
            registry=scan.registry,
        )

    @property
    def output(self) -> pa.Schema:
        """The columns of the result, as the table has them."""
        return pa.schema([self.schema.arrow.field(name) for name in self.columns])

    def reader(self) -> SliceReader:
        """A reader of slices on freshly opened storage."""
        storage = self.storage.open()
        snapshot = Snapshot(
            storage=storage,
            properties=self.properties,
            timeline=self.timeline,
            schema=self.schema,
            internal_schemas=self.internal_schemas,
            merge=MergeConfig.from_properties(self.properties.version, self.properties.values),
            opened=OpenedListing(StorageListing(storage), None, []),
            as_of=self.as_of,
        )
        return SliceReader(snapshot, self.columns, self.where, self.options, self.registry)


def packed_context(context: ReadContext) -> bytes:
    """What slices share, for its way to the workers."""
    packed: bytes = cloudpickle.dumps(context)  # type: ignore[no-untyped-call]
    return packed


def packed_task(task: ScanTask) -> bytes:
    """One slice, for its way to a worker."""
    return pickle.dumps(task)


def read_slice(context: bytes, slice_: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a packed slice, in Spark's form."""
    reader, wire = _opened(context)
    task: ScanTask = pickle.loads(slice_)  # noqa: S301 - made by this module
    for batch in reader.read(task):
        yield wire.apply(batch)


@lru_cache(maxsize=CONTEXTS_KEPT)
def _opened(context: bytes) -> tuple[SliceReader, Conversion]:
    shared: ReadContext = pickle.loads(context)  # noqa: S301 - made by this module
    return shared.reader(), to_wire(shared.output)
