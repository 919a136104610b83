"""What pre-commit validators get to see: the files of a write that nobody else sees yet.

A validator is any callable; raising keeps the write from being committed, and rolls it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakewright.codec.parquet import iter_row_groups, open_parquet
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.records.commit import CommitMetadata
from lakewright.storage.base import Storage

__all__ = ["Proposal", "Validator"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A write that is about to be committed."""

    storage: Storage
    instant: str
    metadata: CommitMetadata
    schema: pa.Schema
    """Columns of the files, meta columns included."""

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of its base files; those that a small file had before are among them."""
        for stat in self.metadata.write_stats:
            name = parse_data_file((stat.path or "").rpartition("/")[2])
            if isinstance(name, BaseFileName):
                yield from self._file_rows(stat.path or "", columns)

    def _file_rows(self, path: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        wanted = list(columns or self.schema.names)
        with self.storage.open_input(path) as source:
            file = open_parquet(source, path=path)
            for _, batches in iter_row_groups(file, path=path, columns=wanted):
                yield from batches


Validator = Callable[[Proposal], None]
