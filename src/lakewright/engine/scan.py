"""A scan: a pinned snapshot, a projection and a filter, ready to be planned or read.

A scan reads nothing but metadata until rows are asked for. Rows come as Arrow: whole
(`to_arrow`), as a stream of batches in bounded memory (`to_batches`), or through the Arrow C stream
protocol, which pandas, Polars and DuckDB understand. The order of rows is not defined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from lakewright.engine.arrow_result import ArrowResult
from lakewright.engine.options import ReadOptions
from lakewright.engine.runner import Runner, ThreadRunner
from lakewright.engine.scan_plan import ScanPlan, plan_scan
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import OptionError
from lakewright.expr import Expr, bind, parse
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import Event, EventHook, ignore_events

Mode = Literal["snapshot", "read_optimized"]
MODES: tuple[Mode, ...] = ("snapshot", "read_optimized")


@dataclass(frozen=True, slots=True)
class Scan(ArrowResult):
    """Rows of one pinned snapshot."""

    snapshot: Snapshot
    columns: tuple[str, ...]
    where: Expr | None
    mode: Mode
    limit: int | None
    options: ReadOptions
    registry: MergerRegistry
    on_event: EventHook = ignore_events
    _plan: list[ScanPlan] = field(default_factory=list, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        table = self.snapshot.schema.arrow
        return pa.schema([table.field(name) for name in self.columns])

    def plan(self) -> ScanPlan:
        """What will be read and what could be skipped, as a printable value."""
        if not self._plan:
            planned = plan_scan(
                self.snapshot,
                mode=self.mode,
                output=self.columns,
                where=self.where,
                keys_are_unique=self.options.keys_are_unique,
            )
            self._plan.append(planned)
        return self._plan[0]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows as a stream of batches; memory is bounded by batches in flight."""
        return self._limited(self._stream())

    def _stream(self) -> Iterator[pa.RecordBatch]:
        reader = SliceReader(
            self.snapshot,
            self.columns,
            self.where,
            self.options,
            self.registry,
            on_event=self.on_event,
        )
        tasks = self.plan().tasks
        done = 0
        for batch in self._runner().stream(tasks, reader.read):
            done += batch.num_rows
            self.on_event(Event("scan.rows", done=done, total=None, unit="rows", instant=None))
            yield batch

    def _runner(self) -> Runner:
        return ThreadRunner(self.options.thread_count)

    def _limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.limit
        if left is None:
            yield from batches
            return
        while left > 0 and (batch := next(batches, None)) is not None:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)


def make_scan(
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None,
    where: str | Expr | None,
    mode: str,
    meta: bool,
    limit: int | None,
    options: ReadOptions,
    registry: MergerRegistry,
    on_event: EventHook,
) -> Scan:
    """Check a caller's words against the snapshot's schema."""
    if mode not in MODES:
        raise OptionError(f"Unknown scan mode {mode!r}.", hint=f"Use one of: {', '.join(MODES)}.")
    if limit is not None and limit < 0:
        raise OptionError("A limit cannot be negative.", hint="Give 0 or more, or no limit.")
    schema = snapshot.schema
    expression = parse(where) if isinstance(where, str) else where
    bound = bind(expression, schema.arrow) if expression is not None else None
    return Scan(
        snapshot=snapshot,
        columns=schema.project(columns, meta=meta),
        where=bound,
        mode="read_optimized" if mode == "read_optimized" else "snapshot",
        limit=limit,
        options=options,
        registry=registry,
        on_event=on_event,
    )
