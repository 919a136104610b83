"""The public facade of a table: open it, read it, look at it.

A `Table` is a live handle without state of its own: every scan pins one snapshot of the table as it
is on storage at that moment, and everything the handle answers is read from storage when asked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from lakewright.engine.cdc_reader import Images
from lakewright.engine.change_offset import ChangeOffset, Moment
from lakewright.engine.changes import ChangeMode, Changes, make_changes
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan import Mode, Scan, make_scan
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.expr import Expr
from lakewright.format.properties import TableProperties, load_properties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.inspect import Inspector
from lakewright.merge.protocol import RecordMerger
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.events import EventHook, ignore_events
from lakewright.storage.base import Storage
from lakewright.storage.options import StorageOptions
from lakewright.storage.resolve import open_storage


class Table:
    """A Hudi table on storage."""

    def __init__(
        self,
        storage: Storage,
        *,
        options: ReadOptions | None = None,
        registry: MergerRegistry | None = None,
        clock: Clock | None = None,
        on_event: EventHook | None = None,
    ) -> None:
        self._storage = storage
        self._options = options or ReadOptions()
        self._registry = registry or MergerRegistry()
        self._clock = clock or SystemClock()
        self._on_event = on_event or ignore_events

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage: StorageOptions | None = None,
        options: ReadOptions | None = None,
        mergers: Sequence[RecordMerger] = (),
        on_event: EventHook | None = None,
    ) -> Table:
        """Open the table at `uri` (a path, `file:`, `s3:`, `s3a:`, `gs:` or `abfs:` URI).

        Raises `TableNotFoundError` where there is no table and `UnsupportedTableError`, naming the
        reason, where reading it would mean guessing.

        >>> table = Table.open("demo/trips")                                # doctest: +SKIP
        >>> table.scan(where="city = 'sf'").to_arrow()                      # doctest: +SKIP
        """
        registry = MergerRegistry(mergers)
        table = cls(
            open_storage(uri, storage), options=options, registry=registry, on_event=on_event
        )
        load_properties(table._storage, clock=table._clock)
        return table

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._storage.uri

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as they are now."""
        return load_properties(self._storage, clock=self._clock)

    @property
    def timeline(self) -> Timeline:
        """The active timeline, as it is now."""
        return load_timeline(self._storage, self.properties)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the latest snapshot, meta columns included."""
        return self.snapshot().schema.arrow

    @property
    def inspect(self) -> Inspector:
        """Every on-disk structure as an Arrow table."""
        return Inspector(self._storage, clock=self._clock)

    def snapshot(
        self, as_of: str | datetime | None = None, *, options: ReadOptions | None = None
    ) -> Snapshot:
        """Pin the state now, or as of an instant, a date-time or a savepoint."""
        return load_snapshot(
            self._storage,
            clock=self._clock,
            as_of=as_of,
            use_metadata_table=(options or self._options).use_metadata_table,
        )

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        as_of: str | datetime | None = None,
        mode: Mode = "snapshot",
        meta: bool = True,
        limit: int | None = None,
        options: ReadOptions | None = None,
    ) -> Scan:
        """Pin a snapshot and describe what to read from it.

        `columns` are names in the wanted order (default: all, meta columns first unless `meta` is
        false). `where` is text or a `col` expression. `as_of` is an instant, a date-time or
        `savepoint:<instant>`. `mode="read_optimized"` reads base files only.
        """
        return make_scan(
            self.snapshot(as_of, options=options),
            columns=columns,
            where=where,
            mode=mode,
            meta=meta,
            limit=limit,
            options=options or self._options,
            registry=self._registry,
            on_event=self._on_event,
        )

    def changes(
        self,
        since: Moment | ChangeOffset | None = None,
        until: Moment | ChangeOffset | None = None,
        mode: ChangeMode = "rows",
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        images: Images = "json",
        options: ReadOptions | None = None,
    ) -> Changes:
        """What changed after `since` (default: the beginning) up to `until` (default: now).

        Both are an instant, a date-time, `earliest`, or an offset; `Changes.end` is the offset from
        which to go on. Times are requested times at table version 6 and completion times later.
        `mode="rows"` gives the changed rows, `mode="cdc"` one row per change with its images, as
        JSON text or, with `images="struct"`, as structs.

        >>> changed = table.changes(since="2025-01-31 12:00:00")            # doctest: +SKIP
        >>> changed.to_arrow(), str(changed.end)                            # doctest: +SKIP
        """
        return make_changes(
            self.snapshot(options=options),
            since=since,
            until=until,
            mode=mode,
            columns=columns,
            where=where,
            images=images,
            options=options or self._options,
            registry=self._registry,
            on_event=self._on_event,
        )

    def __repr__(self) -> str:
        return f"Table({self.uri!r})"
