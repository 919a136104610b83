"""Changes of a table between two moments: changed rows, or what happened to each row.

`rows` are the latest versions inside the range of rows that an instant of the range wrote, as
Hudi's incremental query returns them; deleted rows do not show. `cdc` is one row per change with
the images before and after it, for tables that keep change data. Nothing but metadata is read until
rows are asked for. The order of rows is not defined, except that the changes of one file group come
in the order of their instants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from lakewright.engine.arrow_result import ArrowResult
from lakewright.engine.cdc_plan import plan_cdc
from lakewright.engine.cdc_reader import IMAGES, CdcReader, Images, cdc_schema
from lakewright.engine.change_offset import ChangeOffset, Moment
from lakewright.engine.change_plan import ChangePlan, ChangeTask, plan_rows
from lakewright.engine.change_range import ChangeRange, select_range
from lakewright.engine.options import ReadOptions
from lakewright.engine.runner import ThreadRunner
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import OptionError, UnsupportedTableError
from lakewright.expr import Expr, bind, parse, to_sql_text
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import Event, EventHook, ignore_events

ChangeMode = Literal["rows", "cdc"]
CHANGE_MODES: tuple[ChangeMode, ...] = ("rows", "cdc")
CHANGE_FILES = "change logs, and the files that tell the rest"


@dataclass(frozen=True, slots=True)
class _Work:
    """A plan, and how its tasks are read."""

    plan: ChangePlan
    read: Callable[[Any], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Changes(ArrowResult):
    """Changes of one range, as one pinned snapshot of the table knows them."""

    snapshot: Snapshot
    range: ChangeRange
    mode: ChangeMode
    columns: tuple[str, ...]
    where: Expr | None
    images: Images
    options: ReadOptions
    registry: MergerRegistry
    on_event: EventHook = ignore_events
    _work: list[_Work] = field(default_factory=list, repr=False, compare=False)

    @property
    def begin(self) -> ChangeOffset:
        """Where the range begins; what lies at it or before is not part of it."""
        return self.range.begin

    @property
    def end(self) -> ChangeOffset:
        """Where the range ends: pass it as `since` to go on from here."""
        return self.range.end

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        whole = _schema(self.snapshot, self.mode, self.images)
        return pa.schema([whole.field(name) for name in self.columns])

    def plan(self) -> ChangePlan:
        """What will be read, as a printable value."""
        return self._planned().plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All changes as a stream of batches; memory is bounded by batches in flight."""
        work = self._planned()
        runner = ThreadRunner(self.options.thread_count)
        done = 0
        for batch in runner.stream(work.plan.tasks, work.read):
            done += batch.num_rows
            self.on_event(Event("changes.rows", done=done, total=None, unit="rows", instant=None))
            yield batch

    def _planned(self) -> _Work:
        if not self._work:
            self._work.append(self._rows() if self.mode == "rows" else self._cdc())
        return self._work[0]

    def _rows(self) -> _Work:
        slices = plan_rows(self.snapshot, self.range, self.where)
        reader = SliceReader(
            self.snapshot,
            self.columns,
            slices.where,
            self.options,
            self.registry,
            slices.span,
            self.on_event,
        )
        return _Work(self._plan(slices.source, slices.tasks, slices.warnings), reader.read)

    def _cdc(self) -> _Work:
        groups = plan_cdc(self.snapshot, self.range)
        whole = tuple(self.snapshot.schema.arrow.names)
        slices = SliceReader(
            self.snapshot, whole, None, self.options, self.registry, on_event=self.on_event
        )
        reader = CdcReader(self.snapshot, self.columns, self.where, self.images, slices)
        warnings = tuple(self.snapshot.opened.warnings.told)
        return _Work(self._plan(CHANGE_FILES, groups, warnings), reader.read)

    def _plan(
        self, source: str, tasks: Sequence[ChangeTask], warnings: tuple[str, ...]
    ) -> ChangePlan:
        return ChangePlan(
            table=self.snapshot.properties.name,
            mode=self.mode,
            range=self.range,
            source=source,
            columns=self.columns,
            where=None if self.where is None else to_sql_text(self.where),
            tasks=tuple(tasks),
            warnings=warnings,
        )


def make_changes(
    snapshot: Snapshot,
    *,
    since: Moment | ChangeOffset | None,
    until: Moment | ChangeOffset | None,
    mode: str,
    columns: Sequence[str] | None,
    where: str | Expr | None,
    images: str,
    options: ReadOptions,
    registry: MergerRegistry,
    on_event: EventHook,
) -> Changes:
    """Check a caller's words against the table, and choose the instants of the range."""
    chosen = next((m for m in CHANGE_MODES if m == mode), None)
    form = next((i for i in IMAGES if i == images), None)
    if chosen is None or form is None:
        wrong, known = (mode, CHANGE_MODES) if chosen is None else (images, IMAGES)
        raise OptionError(
            f"Unknown {'mode' if chosen is None else 'form of images'} {wrong!r} of changes.",
            hint=f"Use one of: {', '.join(known)}.",
        )
    if chosen == "rows" and not snapshot.properties.populate_meta_fields:
        raise UnsupportedTableError(
            "The table stores no meta columns, so nothing says which commit wrote a row.",
            hint="Compare two snapshots (scan with as_of), or rewrite the table with "
            "hoodie.populate.meta.fields=true.",
            context={"table": snapshot.properties.name},
        )
    schema = _schema(snapshot, chosen, form)
    expression = parse(where) if isinstance(where, str) else where
    return Changes(
        snapshot=snapshot,
        range=select_range(snapshot, since=since, until=until, on_event=on_event),
        mode=chosen,
        columns=_projected(snapshot, chosen, schema, columns),
        where=None if expression is None else bind(expression, schema),
        images=form,
        options=options,
        registry=registry,
        on_event=on_event,
    )


def _schema(snapshot: Snapshot, mode: ChangeMode, images: Images) -> pa.Schema:
    return snapshot.schema.arrow if mode == "rows" else cdc_schema(snapshot, images)


def _projected(
    snapshot: Snapshot, mode: ChangeMode, schema: pa.Schema, columns: Sequence[str] | None
) -> tuple[str, ...]:
    if mode == "rows":
        return snapshot.schema.project(columns)
    unknown = [name for name in columns or () if name not in schema.names]
    if unknown:
        raise OptionError(
            f"Change data has no column {unknown[0]!r}.",
            hint=f"Its columns are: {', '.join(schema.names)}.",
            context={"column": unknown[0]},
        )
    return tuple(dict.fromkeys(columns)) if columns is not None else tuple(schema.names)
