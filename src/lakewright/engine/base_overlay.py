"""A base file with changes laid over it: the rows of the next version of a file group.

For every row group the key column alone decides which rows meet a change, and a row group in which
nothing changes is taken over as it is, undecoded. Where versions replace rows whole or let them go,
a few columns decide about all of them; the others pass one after the other, and those in which
nothing changes, as in keys, are taken over too. Where a merger builds rows they stream past in
batches. Rows that the file did not have come at its end. Memory is the changes and some columns of
a row group, or one row group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from lakewright.codec.parquet_rows import SomeRows
from lakewright.engine.base_file import Filled, NewVersion, OpenFile
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.runner import ahead
from lakewright.engine.write_context import FILE_NAME, RECORD_KEY
from lakewright.format.key_spec import KeySpec
from lakewright.format.keys import record_keys
from lakewright.merge.overlay import touched_columns
from lakewright.merge.reduction import Int32s
from lakewright.merge.state import Choice, LogState

__all__ = ["BaseOverlay"]

BATCH_ROWS = 65_536
BUNDLE_BYTES = 8 << 20
"""Columns of so many bytes are read together."""

OnInsert = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Untouched:
    """A row group in which nothing changes."""

    group: int
    keys: pa.Array


@dataclass(frozen=True, slots=True, eq=False)
class _Fewer:
    """What is left of a row group of which rows go and none changes."""

    group: int
    keys: pa.Array
    rows: SomeRows


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """A row group whose columns follow, each in a part of its own."""

    group: int
    keys: pa.Array
    """Of the rows that are left."""


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """A column of a row group that was chosen."""

    name: str
    values: pa.Array | None
    """None if it stays as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows of a row group in which something changes."""

    rows: pa.RecordBatch
    changed: frozenset[str] | None
    """Columns in which something does so far; None if all are written, because rows go."""


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """All rows of a row group were handed on."""

    group: int
    keys: pa.Array


_Part = _Untouched | _Fewer | _Chosen | _Column | _Rows | _End


class _Writing:
    """Rows on their way into the file: they wait as long as columns may be taken over."""

    def __init__(self, out: OpenFile, bytes_max: int) -> None:
        self._out = out
        self._bytes_max = bytes_max
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._changed: frozenset[str] | None = None

    def take(self, part: _Part, following: Iterator[_Part]) -> None:
        """Take what comes next, and what belongs to it of what is `following`."""
        if isinstance(part, _Untouched):
            self._out.take_over(part.group, part.keys)
        elif isinstance(part, _Chosen):
            self._out.take_columns(part.group, part.keys, partial(_next_column, following))
        elif isinstance(part, _Column):
            raise AssertionError(f"nobody asked for the column {part.name}")
        elif isinstance(part, _Fewer):
            self._out.take_rows(part.group, part.keys, part.rows)
        elif isinstance(part, _Rows):
            self._waiting.append(part.rows)
            self._bytes += part.rows.nbytes
            self._changed = part.changed
            if part.changed is None or self._bytes > self._bytes_max:
                self._write()
        elif self._changed is not None and self._rows() == len(part.keys):
            self._out.take_columns_over(part.group, part.keys, self._waiting, self._changed)
            self._bytes = 0
        else:
            self._write()

    def _rows(self) -> int:
        return sum(batch.num_rows for batch in self._waiting)

    def _write(self) -> None:
        for batch in self._waiting:
            self._out.add_copied(batch)
        self._waiting, self._bytes = [], 0


@dataclass(frozen=True, slots=True, eq=False)
class BaseOverlay:
    """Writes the next version of one file group."""

    version: NewVersion
    changes: LogState
    """One version per key; rows have all meta columns."""
    spec: KeySpec
    """How keys are formed, where the table does not store them."""
    every: bool
    """Whether all base rows of one key meet its change, or only the first."""
    on_insert: OnInsert | None = None
    """Told of the rows that the file did not have."""

    def fill(self, sink: Any, older: BaseReader | None) -> Filled:
        """Write the rows of the older version, if there is one, with the changes."""
        out, changes = OpenFile(self.version, sink, older=older), self.changes
        if older is not None:
            writing = _Writing(out, self.version.context.parquet.row_group_bytes)
            parts = ahead(lambda: self._merged(older, out), self.version.spawner)
            for part in parts:
                writing.take(part, parts)
        kept = out.rows
        for rows in changes.remaining(BATCH_ROWS):
            if self.on_insert is not None:
                self.on_insert(rows)
            out.add_copied(self._stored(rows), inserted=True)
        inserts = out.rows - kept
        return Filled(out.close(), inserts, changes.replaced, changes.removed)

    def _merged(self, older: BaseReader, out: OpenFile) -> Iterator[_Part]:
        for group in older.row_groups():
            keys = self._keys(older, group)
            codes = self.changes.locate(keys, every=self.every)
            if out.takes_over(group) and not (codes >= 0).any():
                yield _Untouched(group, keys)
                continue
            start = 0
            changed = frozenset[str]() if out.takes_columns_over(group) else None
            whole = None if changed is None else self._whole(older, out, group, keys, codes)
            if whole is not None:
                yield from whole
                continue
            for batch in older.batches(group, BATCH_ROWS, {RECORD_KEY: keys}):
                stop = start + batch.num_rows
                rows = self.changes.apply(batch, codes[start:stop])
                touched = None if changed is None else touched_columns(batch, rows)
                changed = None if touched is None or changed is None else changed | touched
                yield _Rows(self._stored(rows), changed)
                start = stop
            yield _End(group, keys)

    def _whole(
        self, older: BaseReader, out: OpenFile, group: int, keys: pa.Array, codes: Int32s
    ) -> Iterator[_Part] | None:
        """A row group in which rows are replaced whole or go; None if more may happen to it, or
        too little is left of it."""
        deciding = self.changes.deciding_columns(codes)
        if deciding is None:
            return None
        known = {RECORD_KEY: keys}
        others = [name for name in deciding if name not in known]
        if others:
            found = older.columns(group, others)
            known |= dict(zip(others, found.columns, strict=True))
        arrays = [known[name] for name in deciding]
        choice = self.changes.choose(pa.record_batch(arrays, names=deciding), codes)
        if choice is None or not out.takes_rows(group, choice.placing.rows):
            return None
        self.changes.accept(choice)
        left = choice.placing.kept(keys)
        if self.changes.only_removes(codes) and len(left) < len(keys):
            mask = choice.placing.mask
            assert mask is not None
            return iter([_Fewer(group, left, out.some_rows(group, mask, known))])
        return self._columns(older, _Chosen(group, left), choice, known)

    def _columns(
        self, older: BaseReader, chosen: _Chosen, choice: Choice, known: Mapping[str, pa.Array]
    ) -> Iterator[_Part]:
        """The columns of a row group, in the order of the file."""
        yield chosen
        stored = self.version.context.populate_meta
        for names in older.bundles(chosen.group, BUNDLE_BYTES):
            wanted = [name for name in names if name != FILE_NAME]
            if choice.placing.changes_nothing:
                yield from (_Column(name, None) for name in wanted)
                continue
            read = [name for name in wanted if name not in known]
            found = {**known, **_named(older.columns(chosen.group, read))} if read else known
            for name in wanted:
                old = found[name]
                if name == RECORD_KEY and not stored:
                    old = pa.nulls(len(old), pa.string())
                    new = choice.placing.kept(old)
                else:
                    new = choice.column(name, old)
                yield _Column(name, None if new is old else new)

    def _keys(self, older: BaseReader, group: int) -> pa.Array:
        if self.version.context.populate_meta:
            return older.column(group, RECORD_KEY)
        tops = dict.fromkeys(name.partition(".")[0] for name in self.spec.record_key_fields)
        return record_keys(older.columns(group, list(tops)), self.spec)

    def _stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as files hold them: without keys where the table does not store any."""
        if self.version.context.populate_meta:
            return rows
        at = rows.schema.get_field_index(RECORD_KEY)
        return rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, pa.string()))


def _named(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _next_column(parts: Iterator[_Part], name: str) -> pa.Array | None:
    """The values of a column, which must be the one that comes next."""
    part = next(parts, None)
    assert isinstance(part, _Column) and part.name == name, f"{name} does not come next"
    return part.values
