"""Finding record keys in the logs of file slices, for slices whose base files do not tell all, and
in whole slices, where logs may have deleted what base files have.

The logs are reduced as a reader would, so that a key counts only if its last version lives. Memory
is that of the logs, up to a budget above which they wait in scratch files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.lookup import Hits
from lakewright.engine.options import ReadOptions
from lakewright.engine.slice_keys import slice_rows
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.write_context import RECORD_KEY
from lakewright.format.file_slices import FileSlice
from lakewright.merge.columns import Int64s
from lakewright.merge.key_index import KeyIndex
from lakewright.merge.registry import MergerRegistry

__all__ = ["LogLookup", "LogQuestion"]

NOWHERE = -1
"""The row of a base file that a key has which only a log knows."""


@dataclass(frozen=True, slots=True, eq=False)
class LogQuestion:
    """Keys of a write, by their numbers, that a slice's logs may have."""

    number: int
    """Of the file group."""
    codes: Int64s
    slice_: FileSlice
    whole: bool = False
    """Whether the slice's rows are asked for, not those of its logs alone."""

    def hits(self, found: Int64s) -> Hits:
        """The places of those of the keys that were found."""
        return Hits(
            self.codes[found].astype(np.int32),
            np.full(len(found), self.number, np.int32),
            np.full(len(found), NOWHERE, np.int64),
        )


@dataclass(frozen=True, slots=True)
class LogLookup:
    """Looks for keys in logs; travels to tasks with its snapshot."""

    snapshot: Snapshot
    registry: MergerRegistry

    def living(self, keys: pa.Array, slice_: FileSlice) -> Int64s:
        """Which of the distinct keys have a living version in the logs of a slice."""
        found = np.zeros(len(keys), dtype=np.bool_)
        wanted = KeyIndex(keys)
        stored = (RECORD_KEY,) if self.snapshot.properties.populate_meta_fields else ()
        options = ReadOptions()
        reader = SliceReader(self.snapshot, stored, None, options, self.registry)
        with reader.log_state(slice_) as state:
            for rows in state.remaining(options.batch_rows):
                codes = wanted.locate(rows.column(RECORD_KEY))
                found[codes[codes >= 0]] = True
        return np.flatnonzero(found)

    def living_in_slice(self, keys: pa.Array, slice_: FileSlice) -> Int64s:
        """Which of the distinct keys have a living row in a slice."""
        found = np.zeros(len(keys), dtype=np.bool_)
        wanted = KeyIndex(keys)
        for rows in slice_rows(self.snapshot, ReadOptions(), self.registry, slices=[slice_]):
            codes = wanted.locate(rows.keys)
            found[codes[codes >= 0]] = True
        return np.flatnonzero(found)

    def answer(self, keys: pa.Array, slice_: FileSlice, *, whole: bool) -> Int64s:
        """Which of the keys a question finds."""
        return self.living_in_slice(keys, slice_) if whole else self.living(keys, slice_)
