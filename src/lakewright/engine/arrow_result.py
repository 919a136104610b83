"""Results as Arrow: everything that follows from a schema and a stream of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakewright.errors import MissingDependencyError


class ArrowResult:
    """A result that is read as a stream; pandas, Polars and DuckDB understand it."""

    __slots__ = ()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        raise NotImplementedError

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows as a stream of batches; memory is bounded by batches in flight."""
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        return pa.Table.from_batches(list(self.to_batches()), schema=self.schema)

    def to_pandas(self) -> Any:
        """All rows as a pandas data frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as a Polars data frame."""
        try:
            import polars as pl
        except ImportError as error:
            raise MissingDependencyError(
                "Polars is not installed.", hint="pip install polars"
            ) from error
        return pl.from_arrow(self.to_arrow())

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader over the stream of batches; DuckDB queries it by its variable name."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """The number of rows."""
        return sum(b.num_rows for b in self.to_batches())
