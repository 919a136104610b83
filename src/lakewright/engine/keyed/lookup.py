"""Finding record keys in base files: which rows of which files have the keys of a write.

The keys of the write are the hash side and stay in memory; the key columns of the files stream past
them, row group by row group. Every file is opened once. With `filters` a file whose footer says
that it has none of the keys is left unread: by its bounds first, then by its bloom filter. A key
may be found in several places, and then is told several times.

Log files are not looked at: indexes of this kind put new rows into base files only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakewright.codec.bloom import SIMPLE, BloomFilter
from lakewright.codec.parquet import open_parquet, read_row_group
from lakewright.engine.base_footer import BLOOM, BLOOM_TYPE, MAXIMUM, MINIMUM, in_java_order
from lakewright.engine.write_context import RECORD_KEY
from lakewright.errors import FormatError, NotFoundError
from lakewright.format.file_slices import BaseFile
from lakewright.format.key_spec import KeySpec
from lakewright.format.keys import record_keys
from lakewright.merge.columns import Int64s
from lakewright.merge.key_index import KeyIndex
from lakewright.storage.base import Storage

__all__ = ["Hits", "Int32s", "KeyLookup"]

Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Places of keys, one entry per place in every vector."""

    codes: Int32s
    """Which key."""
    files: Int32s
    """In which of the files that were asked."""
    positions: Int64s
    """In which row of the file."""

    def at(self, places: Int64s) -> Hits:
        """Some of the places."""
        return Hits(self.codes[places], self.files[places], self.positions[places])

    @classmethod
    def joined(cls, parts: Sequence[Hits]) -> Hits:
        """All places of several."""
        if not parts:
            return cls(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))
        return cls(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.files for part in parts]),
            np.concatenate([part.positions for part in parts]),
        )


class KeyLookup:
    """Distinct keys, to be looked for in files."""

    def __init__(
        self,
        storage: Storage,
        keys: pa.Array,
        *,
        spec: KeySpec | None = None,
        filters: bool = False,
    ) -> None:
        """`spec` forms the keys of tables that do not store them."""
        self._storage = storage
        self._keys = keys
        self._index = KeyIndex(keys)
        self._spec = spec
        self._filters = filters
        self._ordered = in_java_order(keys) if filters and len(keys) else None

    def __len__(self) -> int:
        return len(self._keys)

    def in_file(self, number: int, base: BaseFile) -> Iterator[Hits]:
        """Places of the keys in one file, which is told by its number."""
        try:
            file = open_parquet(self._storage.open_input(base.path), path=base.path)
        except NotFoundError as error:
            raise NotFoundError(
                "A base file of the snapshot is gone; it was probably cleaned during the write.",
                hint="Nothing was written. Run the write again; if it happens often, let the "
                "cleaner retain more commits.",
                context={"path": base.path},
                retryable=True,
            ) from error
        if self._filters and not self._may_hold(file, base.path):
            return
        first = 0
        for group in range(file.metadata.num_row_groups):
            start = first
            first += file.metadata.row_group(group).num_rows
            for keys in self._key_batches(file, group, base.path):
                codes = self._index.locate(keys)
                at = np.flatnonzero(codes >= 0)
                if len(at):
                    yield Hits(codes[at], np.full(len(at), number, np.int32), at + start)
                start += len(keys)

    def _key_batches(self, file: pq.ParquetFile, group: int, path: str) -> Iterator[pa.Array]:
        rows = file.metadata.row_group(group).num_rows
        if self._spec is None:
            columns = [RECORD_KEY]
        else:
            fields = self._spec.record_key_fields
            columns = list(dict.fromkeys(name.partition(".")[0] for name in fields))
        for batch in read_row_group(file, group, path=path, columns=columns, batch_rows=rows):
            yield batch.column(0) if self._spec is None else record_keys(batch, self._spec)

    def _may_hold(self, file: pq.ParquetFile, path: str) -> bool:
        """Whether the footer leaves it open that one of the keys is in the file."""
        stored = file.metadata.metadata or {}
        low, high, text = (stored.get(name.encode()) for name in (MINIMUM, MAXIMUM, BLOOM))
        keys = self._keys
        if low is not None and high is not None and self._ordered is not None:
            inside = self._ordered.between(low, high)
            if not inside.any():
                return False
            keys = keys.filter(pa.array(inside))
        if text is None:
            return True
        kind = stored.get(BLOOM_TYPE.encode(), SIMPLE.encode()).decode()
        try:
            known = BloomFilter.decode(text, kind, path=path)
        except FormatError:
            return True
        return bool(known.might_contain(keys).any())
