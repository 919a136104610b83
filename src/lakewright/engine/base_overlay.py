"""A base file with changes laid over it: the rows of the next version of a file group.

For every row group the key column alone decides which rows meet a change; payload columns stream
past, and a row group in which nothing changes is taken over as it is, undecoded. Where rows only
change, columns in which nothing does, as in keys, are taken over too; where rows only go, the
others are written without being merged. Rows that the file did not have come at its end. Memory is
the changes and one row group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakewright.codec.parquet_rows import SomeRows
from lakewright.engine.base_file import Filled, NewVersion, OpenFile
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.runner import ahead
from lakewright.engine.write_context import RECORD_KEY
from lakewright.format.key_spec import KeySpec
from lakewright.format.keys import record_keys
from lakewright.merge.overlay import touched_columns
from lakewright.merge.reduction import Int32s
from lakewright.merge.state import LogState

__all__ = ["BaseOverlay"]

BATCH_ROWS = 65_536

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


_Part = _Untouched | _Fewer | _Rows | _End


class _Writing:
    """Rows on their way into the file: they wait as long as columns may be taken over."""

    def __init__(self, out: OpenFile, bytes_max: int) -> None:
        self._out = out
        self._bytes_max = bytes_max
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._changed: frozenset[str] | None = None

    def take(self, part: _Part) -> None:
        """Take what comes next."""
        if isinstance(part, _Untouched):
            self._out.take_over(part.group, part.keys)
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
            for part in ahead(lambda: self._merged(older, out), self.version.spawner):
                writing.take(part)
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
            fewer = None if changed is None else self._fewer(older, out, group, keys, codes)
            if fewer is not None:
                yield fewer
                continue
            for batch in older.batches(group, BATCH_ROWS, {RECORD_KEY: keys}):
                stop = start + batch.num_rows
                rows = self.changes.apply(batch, codes[start:stop])
                touched = None if changed is None else touched_columns(batch, rows)
                changed = None if touched is None or changed is None else changed | touched
                yield _Rows(self._stored(rows), changed)
                start = stop
            yield _End(group, keys)

    def _fewer(
        self, older: BaseReader, out: OpenFile, group: int, keys: pa.Array, codes: Int32s
    ) -> _Fewer | None:
        """The rows of a row group that stay, if that is all that happens to it."""
        deciding = self.changes.deciding_columns(codes)
        if deciding is None or not out.takes_rows(group, len(keys) - int((codes >= 0).sum())):
            return None
        known = {RECORD_KEY: keys}
        others = [name for name in deciding if name not in known]
        if others:
            found = older.columns(group, others)
            known |= dict(zip(others, found.columns, strict=True))
        arrays = [known[name] for name in deciding]
        keep = self.changes.without_removed(pa.record_batch(arrays, names=deciding), codes)
        if keep is None:
            return None
        mask = pa.array(keep)
        return _Fewer(group, keys.filter(mask), out.some_rows(group, mask, known))

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
