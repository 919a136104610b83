"""Inspection: every on-disk structure of a table as an Arrow table or a plain value.

Nothing here decides or changes anything; each method reads what it names from storage when it is
called. Columns are named after the fields on disk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import pyarrow as pa

from lakewright.codec.hfile import HFile
from lakewright.codec.parquet import ParquetFooter
from lakewright.engine.log_rows import stored_rows
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.errors import InstantNotFoundError
from lakewright.format.archived_timeline import archived_times
from lakewright.format.file_slices import FileSlice
from lakewright.format.instant import Instant
from lakewright.format.log_block import BlockType, LogBlock, read_blocks
from lakewright.format.log_content import delete_rows, parquet_content, record_counts
from lakewright.format.properties import load_properties
from lakewright.format.records import load_commit_metadata, load_plan, load_record
from lakewright.format.timeline import load_timeline
from lakewright.metadata.table import MetadataTable
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Storage

_TEXT = pa.string()
_LONG = pa.int64()


def _table(columns: Mapping[str, pa.DataType], rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(columns.items())))


def _plain(value: Any) -> Any:
    """A record as plain values: dictionaries, lists, text and numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.name != "json_fields"]
        return {n: _plain(getattr(value, n)) for n in names}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.name if isinstance(value, Enum) else value


class Inspector:
    """Looks into a table."""

    def __init__(self, storage: Storage, *, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def _snapshot(self, as_of: str | datetime | None = None) -> Snapshot:
        return load_snapshot(self._storage, clock=self._clock, as_of=as_of)

    def summary(self) -> dict[str, object]:
        """What the table is, in a few lines."""
        snapshot = self._snapshot()
        properties, timeline, merge = snapshot.properties, snapshot.timeline, snapshot.merge
        slices = self._slices(snapshot)
        last = timeline.last_completed_commit()
        bases = [s.base for s in slices if s.base is not None]
        logs = [log for s in slices for log in s.logs]
        return {
            "table": properties.name,
            "uri": self._storage.uri,
            "type": properties.table_type,
            "version": str(properties.version),
            "key fields": list(properties.record_key_fields),
            "key generator": properties.key_generator.name,
            "partition fields": list(properties.partition_fields),
            "merge mode": merge.mode.value,
            "payload class": merge.payload_class,
            "ordering fields": list(merge.ordering_fields),
            "meta columns": properties.populate_meta_fields,
            "columns": len(snapshot.schema.arrow.names),
            "last commit": last.requested_time if last else None,
            "instants": len(timeline.instants),
            "pending": [f"{i.requested_time}.{i.action}" for i in timeline.pending()],
            "partitions": len(snapshot.opened.listing.partitions()),
            "file slices": len(slices),
            "base files": len(bases),
            "base bytes": sum(b.size for b in bases),
            "log files": len(logs),
            "log bytes": sum(log.size for log in logs),
            "metadata table": list(properties.metadata_partitions),
            "listed by": snapshot.opened.listing.source,
            "warnings": list(snapshot.opened.warnings.told),
        }

    def properties(self) -> pa.Table:
        """The stored properties, sorted by key."""
        values = load_properties(self._storage, clock=self._clock).values
        rows = [{"key": k, "value": v} for k, v in sorted(values.items())]
        return _table({"key": _TEXT, "value": _TEXT}, rows)

    def timeline(self) -> pa.Table:
        """Active instants in the order of their requested times."""
        timeline = load_timeline(self._storage, load_properties(self._storage, clock=self._clock))
        columns = dict.fromkeys(
            ("requested_time", "completion_time", "action", "state", "file_name"), _TEXT
        )
        return _table(
            columns,
            [
                {
                    "requested_time": i.requested_time,
                    "completion_time": i.completion_time,
                    "action": i.action,
                    "state": i.state.name,
                    "file_name": i.file_name,
                }
                for i in timeline
            ],
        )

    def archived(self) -> pa.Table:
        """Archived instants: requested time, completion time, action."""
        properties = load_properties(self._storage, clock=self._clock)
        return archived_times(self._storage, properties)

    def commits(self) -> pa.Table:
        """Completed writes with what each wrote."""
        properties = load_properties(self._storage, clock=self._clock)
        timeline = load_timeline(self._storage, properties)
        return _table(
            {
                "requested_time": _TEXT,
                "completion_time": _TEXT,
                "action": _TEXT,
                "operation": _TEXT,
                **dict.fromkeys(
                    ("partitions", "files", "inserts", "updates", "deletes", "bytes"), _LONG
                ),
            },
            [self._commit_row(i) for i in timeline.commits().completed()],
        )

    def _commit_row(self, instant: Instant) -> dict[str, object]:
        properties = load_properties(self._storage, clock=self._clock)
        metadata = load_commit_metadata(self._storage, properties, instant)
        stats = list(metadata.write_stats)
        return {
            "requested_time": instant.requested_time,
            "completion_time": instant.completion_time,
            "action": instant.action,
            "operation": metadata.operation_type,
            "partitions": len(metadata.partition_to_write_stats),
            "files": len(stats),
            "inserts": sum(s.num_inserts or 0 for s in stats),
            "updates": sum(s.num_update_writes or 0 for s in stats),
            "deletes": sum(s.num_deletes or 0 for s in stats),
            "bytes": sum(s.total_write_bytes or 0 for s in stats),
        }

    def instant(self, requested_time: str, *, action: str | None = None) -> dict[str, object]:
        """One instant with its plan and its result, decoded."""
        properties = load_properties(self._storage, clock=self._clock)
        timeline = load_timeline(self._storage, properties)
        found = timeline.get(requested_time, action)
        if found is None:
            raise InstantNotFoundError(
                f"There is no active instant {requested_time}"
                + (f" with action {action}." if action else "."),
                hint="List the instants with `timeline show`; archived ones with --archived.",
                context={"table": self._storage.uri},
            )
        return {
            "requested_time": found.requested_time,
            "completion_time": found.completion_time,
            "action": found.action,
            "state": found.state.name,
            "plan": _plain(load_plan(self._storage, properties, found)),
            "metadata": _plain(load_record(self._storage, properties, found)),
        }

    def _slices(self, snapshot: Snapshot) -> list[FileSlice]:
        listing = snapshot.opened.listing
        view = snapshot.view(listing.files(listing.partitions()))
        return sorted(
            view.latest_merged_slices(snapshot.bound),
            key=lambda s: (s.group.partition, s.group.file_id),
        )

    def files(self, *, as_of: str | datetime | None = None) -> pa.Table:
        """Files of the latest slices, in the order in which they are merged."""
        rows = []
        for slice_ in self._slices(self._snapshot(as_of)):
            for kind, file in [("base", slice_.base), *[("log", log) for log in slice_.logs]]:
                if file is not None:
                    rows.append(
                        {
                            "partition": slice_.group.partition,
                            "file_id": slice_.group.file_id,
                            "base_instant": slice_.base_instant,
                            "kind": kind,
                            "name": file.name,
                            "size": file.size,
                        }
                    )
        columns = dict.fromkeys(("partition", "file_id", "base_instant", "kind", "name"), _TEXT)
        return _table({**columns, "size": _LONG}, rows)

    def all_files(self) -> pa.Table:
        """Every data file on storage with its state: live, old, or why it does not count."""
        snapshot = self._snapshot()
        listing = snapshot.opened.listing
        files = listing.files(listing.partitions())
        view = snapshot.view(files)
        live = {
            (s.group.partition, f.name)
            for s in view.latest_merged_slices(None)
            for f in (s.base, *s.logs)
            if f is not None
        }
        reasons = {(o.partition, o.name): o.reason.value for o in view.orphans()}
        rows = [
            {
                "partition": partition,
                "name": file.name,
                "size": file.size,
                "state": "live"
                if (partition, file.name) in live
                else reasons.get((partition, file.name), "old"),
            }
            for partition in sorted(files)
            for file in sorted(files[partition], key=lambda f: f.name)
        ]
        return _table({"partition": _TEXT, "name": _TEXT, "size": _LONG, "state": _TEXT}, rows)

    def partitions(self) -> pa.Table:
        """Partitions with their live slices, files and bytes."""
        snapshot = self._snapshot()
        rows: dict[str, dict[str, Any]] = {
            p: {"partition": p, "slices": 0, "base_files": 0, "log_files": 0, "bytes": 0}
            for p in snapshot.opened.listing.partitions()
        }
        for slice_ in self._slices(snapshot):
            row = rows[slice_.group.partition]
            row["slices"] += 1
            row["base_files"] += slice_.base is not None
            row["log_files"] += len(slice_.logs)
            row["bytes"] += sum(f.size for f in (slice_.base, *slice_.logs) if f is not None)
        counts = dict.fromkeys(("slices", "base_files", "log_files", "bytes"), _LONG)
        return _table({"partition": _TEXT, **counts}, rows.values())

    def log_blocks(self, path: str) -> pa.Table:
        """The blocks of one log file; damaged regions are blocks of type CORRUPT."""
        blocks = read_blocks(self._storage.read(path), path=path)
        return _table(
            {
                "offset": _LONG,
                "length": _LONG,
                "type": _TEXT,
                "instant": _TEXT,
                "records": _LONG,
                "headers": pa.map_(_TEXT, _TEXT),
            },
            [_block_row(b) for b in blocks],
        )

    def log_records(self, path: str) -> pa.Table:
        """Rows and deletes of one log file as stored; `_block` numbers their block."""
        return stored_rows(read_blocks(self._storage.read(path), path=path))

    def hfile(self, path: str, *, prefix: str = "") -> pa.Table:
        """Keys of an HFile with the size of each value."""
        file = HFile(self._storage.read(path), path=path)
        keys, values = file.prefix(prefix.encode()) if prefix else file.cells()
        sizes = pa.compute.binary_length(values).cast(_LONG)
        return pa.table({"key": keys.cast(_TEXT), "value_bytes": sizes})

    def metadata_files(self) -> pa.Table:
        """The listing that the metadata table holds; empty without one."""
        properties = load_properties(self._storage, clock=self._clock)
        timeline = load_timeline(self._storage, properties)
        metadata = MetadataTable.open(self._storage, properties, timeline)
        rows = (
            []
            if metadata is None
            else [
                {"partition": partition, "name": file.name, "size": file.size}
                for partition, files in metadata.files(metadata.partitions()).items()
                for file in files
            ]
        )
        return _table({"partition": _TEXT, "name": _TEXT, "size": _LONG}, rows)


def _block_row(block: LogBlock) -> dict[str, object]:
    return {
        "offset": block.offset,
        "length": block.length,
        "type": block.type.name,
        "instant": block.instant,
        "records": _record_count(block),
        "headers": [(k.name, v) for k, v in block.headers.items()],
    }


def _record_count(block: LogBlock) -> int | None:
    if block.type in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
        return int(record_counts([block])[0])
    if block.type is BlockType.PARQUET_DATA:
        return int(ParquetFooter.read(parquet_content(block), block.path).num_rows)
    if block.type is BlockType.HFILE_DATA:
        return HFile(block.content, path=block.path).entry_count
    return len(delete_rows(block)) if block.type is BlockType.DELETE else None
