"""Mergers made of functions.

    @merger(strategy="6f3c...", columns=["qty"])
    def keep_max(older, newer, ctx):
        return Merged(pc.if_else(pc.greater(older["qty"], newer["qty"]), 0, 1).cast("uint8"))

A function on columns is the normal form: it sees all pairs of a batch at once. `record_merger`
takes a function on two dicts instead; it is about a hundred times slower and meant for trying
things out. Either way the result is a `RecordMerger` to be registered; nothing registers itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakewright.errors import ConfigError, MergeError
from lakewright.merge.columns import as_bools
from lakewright.merge.event_time import EventTimeMerger
from lakewright.merge.protocol import (
    ALL,
    All,
    MergeContext,
    Merged,
    RecordMerger,
    RecordType,
    Take,
)

MergeFunction = Callable[[pa.RecordBatch, pa.RecordBatch, MergeContext], Merged]
RecordFunction = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class FunctionMerger:
    """A function as a merger."""

    function: MergeFunction
    strategy: UUID
    record_type: RecordType = RecordType.ARROW
    reads: frozenset[str] | All = ALL
    builds: bool = True
    """Whether it can answer BUILT; if not, it is shown only the columns it reads."""
    partial: MergeFunction | None = None
    path: str = ""
    """Where the decorated function lives, as `module:name`; it may not be importable."""

    def columns(self, ctx: MergeContext) -> frozenset[str] | All:
        """The columns named when the merger was made."""
        reads = self.reads
        return reads if isinstance(reads, All) else reads.intersection(ctx.schema.names)

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
        """Call the function."""
        return self.function(older, newer, ctx)

    def merge_partial(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext
    ) -> Merged:
        """Call the function for partial rows; `MergeError` if there is none."""
        if self.partial is None:
            raise MergeError(
                f"Merger {self.path or self.strategy} cannot merge rows of partial updates.",
                hint="Give `partial=` to the decorator, or write full rows to this table.",
                context={"strategy": str(self.strategy)},
            )
        return self.partial(older, newer, ctx)

    def spark(self, ctx: MergeContext) -> None:
        """None: not expressed in Spark columns."""


def merger(
    *,
    strategy: str | UUID,
    record_type: str | RecordType = RecordType.ARROW,
    columns: Iterable[str] | None = None,
    builds: bool = True,
    partial: MergeFunction | None = None,
) -> Callable[[MergeFunction], FunctionMerger]:
    """Make a merger of a function `(older, newer, ctx) -> Merged` on aligned batches.

    `columns` are those it must see besides key and ordering (None: all), so that projections stay
    cheap. With `builds=False` it promises never to answer BUILT and is shown no other columns.
    """
    identity, kind = _strategy(strategy), _record_type(record_type)
    reads: frozenset[str] | All = ALL if columns is None else frozenset(columns)

    def decorate(function: MergeFunction) -> FunctionMerger:
        return FunctionMerger(function, identity, kind, reads, builds, partial, _path(function))

    return decorate


def record_merger(
    *, strategy: str | UUID, record_type: str | RecordType = RecordType.AVRO
) -> Callable[[RecordFunction], FunctionMerger]:
    """Make a merger of a function `(older, newer) -> row` on dicts. Slow: one call per pair.

    The function answers with one of its arguments, with a new row (missing columns become null), or
    with None to delete. It sees only pairs of rows: deletes are settled by event time before.
    """

    identity, kind = _strategy(strategy), _record_type(record_type)

    def decorate(function: RecordFunction) -> FunctionMerger:
        return FunctionMerger(_PerRecord(function), identity, kind, path=_path(function))

    return decorate


@dataclass(frozen=True, slots=True)
class _PerRecord:
    function: RecordFunction

    def __call__(self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
        size = newer.num_rows
        deleted = as_bools(ctx.older_deleted, size) | as_bools(ctx.newer_deleted, size)
        take = EventTimeMerger().merge(older, newer, ctx).take.to_numpy().copy()
        pairs = np.flatnonzero(~deleted)
        index = pa.array(pairs)
        built = []
        rows = zip(older.take(index).to_pylist(), newer.take(index).to_pylist(), strict=True)
        # One Python call per pair of this batch: the documented price of functions on dicts.
        for place, (left, right) in zip(pairs.tolist(), rows, strict=True):
            row = self.function(left, right)
            if row is left or row is right:
                take[place] = Take.OLDER if row is left else Take.NEWER
            elif row is None:
                take[place] = Take.DELETE
            else:
                take[place] = Take.BUILT
                built.append(dict(row))
        return Merged(
            pa.array(take), pa.RecordBatch.from_pylist(built, ctx.schema) if built else None
        )


@dataclass(frozen=True, slots=True)
class MergerRef:
    """How another process gets a merger: by an importable path, else by value.

    A reference by value travels only as far as a pickler that can send functions, which Spark's
    own can and the processes of table services cannot.
    """

    path: str | None = None
    """`module:attribute`."""
    value: RecordMerger | None = None

    @classmethod
    def of(cls, merger: RecordMerger, path: str | None = None) -> MergerRef:
        """Refer to a merger by path if it can be imported from there, else by value."""
        if path is None:
            own = getattr(merger, "path", None)
            path = own if isinstance(own, str) else None
        if path is not None and not path.startswith("__main__:"):
            try:
                if cls(path=path).load() == merger:
                    return cls(path=path)
            except ConfigError:
                pass
        return cls(value=merger)

    @property
    def importable(self) -> bool:
        """Whether any process that has the module can load it."""
        return self.path is not None

    def load(self) -> RecordMerger:
        """The merger; `ConfigError` if the path does not lead to one."""
        if self.value is not None:
            return self.value
        module, _, attribute = (self.path or "").partition(":")
        found: Any = None
        try:
            found = importlib.import_module(module)
            for name in attribute.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError, ValueError) as cause:
            raise _not_a_merger(self.path, str(cause)) from cause
        if not callable(getattr(found, "merge", None)):
            raise _not_a_merger(self.path, f"it is a {type(found).__name__}")
        merger: RecordMerger = found
        return merger


def _not_a_merger(path: str | None, why: str) -> ConfigError:
    return ConfigError(
        f"{path!r} does not lead to a merger: {why}.",
        hint="Name it as module:attribute, in a module that is installed where it runs.",
        context={"path": path},
    )


def _path(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{getattr(function, '__qualname__', '')}"


def _strategy(text: str | UUID) -> UUID:
    try:
        return text if isinstance(text, UUID) else UUID(text)
    except ValueError as cause:
        raise ConfigError(
            f"{text!r} is not a strategy id.",
            hint="A merge strategy id is a UUID; make one once and keep it with the merger.",
        ) from cause


def _record_type(text: str | RecordType) -> RecordType:
    if isinstance(text, RecordType):
        return text
    try:
        return RecordType(text.lower())
    except ValueError as cause:
        raise ConfigError(
            f"{text!r} is not a record type.",
            hint=f"Use one of {', '.join(kind.value for kind in RecordType)}.",
        ) from cause
