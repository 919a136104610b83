"""Writing Parquet so that every reader of Hudi tables understands it: policy and row groups.

Files are what parquet-mr 1.10 and later read: format version 1.0, data pages v1, three-level lists,
decimals of fixed length, timestamps as 64-bit integers, no Arrow schema in the footer. Everything
is decided here and nothing is left to defaults: the codec by the policy, row groups by rows and
bytes, dictionaries where a sample says that they pay.

`ParquetSink` collects batches until a row group is full. Memory is bounded by one row group of
Arrow rows and its encoded columns. Key/value pairs of the footer are given at close, because bloom
filters and key bounds are known only then. What can go wrong: an unknown codec is an `OptionError`
before anything is written; rows that the format cannot hold are a `SchemaError`; a failing sink
raises whatever the storage raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakewright.errors import OptionError, SchemaError

__all__ = [
    "CODECS",
    "ParquetPolicy",
    "ParquetSink",
    "dictionary_columns",
    "parquet_writer",
    "rows_refused",
]

CODECS: Final = {
    "uncompressed": "none",
    "none": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "brotli": "brotli",
}
"""Codec names of Hudi, in lower case, and Arrow's names for them. Readers before parquet-mr 1.13 do
not know the lz4 of this format."""

LEVELS: Final = {"zstd": 1, "gzip": 6, "brotli": 4}
"""Levels used where the policy leaves them open."""

SAMPLE_ROWS: Final = 32_768
SAMPLE_PIECES: Final = 256
FEW_ROWS: Final = 4096
UNSAMPLED_ROWS: Final = 512
"""So few rows get dictionaries for everything: looking costs more than a wrong choice."""
DISTINCT_FEW_MAX: Final = 0.95
DISTINCT_SHARE_MAX: Final = 0.5
"""A dictionary pays if fewer than this share of sampled values are distinct."""


@dataclass(frozen=True, slots=True)
class ParquetPolicy:
    """How files are encoded."""

    codec: str = "zstd"
    """One of `CODECS`, in any case."""
    level: int | None = None
    """Compression level, of codecs that have levels; None is the codec's own in `LEVELS`."""
    row_group_rows: int = 250_000
    row_group_bytes: int = 120 << 20
    """Arrow bytes of a row group, before encoding."""
    page_bytes: int = 1 << 20
    dictionary: Literal["auto"] | tuple[str, ...] = "auto"
    """Leaf columns (dotted paths) to encode by dictionary; `auto` samples the first row group."""

    def __post_init__(self) -> None:
        if self.codec.lower() not in CODECS:
            raise OptionError(
                f"Parquet files cannot be compressed with {self.codec!r}.",
                hint=f"Choose one of {', '.join(CODECS)}.",
                context={"codec": self.codec},
            )
        if min(self.row_group_rows, self.row_group_bytes, self.page_bytes) < 1:
            raise OptionError(
                "Row groups and pages need at least one row and one byte.",
                hint="Leave the sizes out to get the defaults.",
                context={"row_group_rows": self.row_group_rows, "page_bytes": self.page_bytes},
            )

    @property
    def compression(self) -> tuple[str, int | None]:
        """Arrow's name of the codec, and the level."""
        codec = CODECS[self.codec.lower()]
        if codec not in LEVELS:
            return codec, None
        return codec, LEVELS[codec] if self.level is None else self.level


class ParquetSink:
    """One file being written to an open binary sink; `close` finishes it, not the sink."""

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        policy: ParquetPolicy,
        *,
        unique: Sequence[str] = (),
        repeated: Sequence[str] = (),
    ) -> None:
        """`unique` columns never get a dictionary, `repeated` ones always do."""
        self._sink = sink
        self._schema = schema
        self._policy = policy
        self._unique, self._repeated = frozenset(unique), tuple(repeated)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._group_rows = policy.row_group_rows
        self.rows_written = 0
        """Rows in finished row groups."""

    @property
    def bytes_written(self) -> int:
        """Encoded bytes of finished row groups."""
        return int(self._sink.tell())

    @property
    def waiting_bytes(self) -> int:
        """Arrow bytes of the row group that is being collected."""
        return self._waiting_bytes

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self.rows_written + self._waiting_rows

    def limit_row_group(self, rows: int) -> None:
        """Let the next row group have at most so many rows."""
        self._group_rows = max(1, min(rows, self._policy.row_group_rows))

    def room(self, batch: pa.RecordBatch) -> int:
        """How many of these rows fit into the current row group: at least one, if there is one."""
        rows = self._group_rows - self._waiting_rows
        size, spare = batch.nbytes, self._policy.row_group_bytes - self._waiting_bytes
        if size > spare:
            rows = min(rows, spare * batch.num_rows // size)
        return int(min(batch.num_rows, max(1, rows)))

    def write(self, batch: pa.RecordBatch) -> bool:
        """Take rows that fit (see `room`); whether they ended a row group.

        Columns may be dictionary-encoded in all batches, whatever the schema says.
        """
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        is_full = self._waiting_bytes >= self._policy.row_group_bytes
        if is_full or self._waiting_rows >= self._group_rows:
            self.flush()
            return True
        return False

    def flush(self) -> None:
        """End the current row group, if it has rows."""
        if not self._waiting_rows:
            return
        schema = self._waiting[0].schema
        table = pa.Table.from_batches(self._waiting, schema=schema).unify_dictionaries()
        with rows_refused():
            self._write_group(table)
        self.rows_written += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def close(self, values: Mapping[str, str]) -> None:
        """Write what is left and the footer with these key/value pairs."""
        self.flush()
        writer = self._open(self._schema.empty_table())
        writer.add_key_value_metadata(dict(values))
        writer.close()

    def _write_group(self, table: pa.Table) -> None:
        self._open(table).write_table(table, row_group_size=table.num_rows)

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = parquet_writer(
                self._sink, first.schema, self._policy, self._dictionary(first)
            )
        return self._writer

    def _dictionary(self, first: pa.Table) -> list[str]:
        """Columns that get a dictionary, by the first rows."""
        if self._policy.dictionary != "auto":
            return list(self._policy.dictionary)
        return dictionary_columns(first, unique=self._unique, repeated=self._repeated)


@contextmanager
def rows_refused() -> Iterator[None]:
    """Rows that Arrow cannot write are the caller's."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"Rows cannot be written as Parquet: {error}.",
            hint="Change the column's type or the value; nothing was published.",
        ) from error


def parquet_writer(
    sink: Any, schema: pa.Schema, policy: ParquetPolicy, dictionary: Sequence[str]
) -> pq.ParquetWriter:
    """A writer of files as all readers of Hudi tables understand them."""
    codec, level = policy.compression
    return pq.ParquetWriter(
        sink,
        schema,
        version="1.0",
        data_page_version="1.0",
        compression=codec,
        compression_level=level,
        use_dictionary=list(dictionary),
        write_statistics=True,
        data_page_size=policy.page_bytes,
        use_deprecated_int96_timestamps=False,
        use_compliant_nested_type=True,
        store_schema=False,
        store_decimal_as_integer=False,
        write_page_index=False,
        write_page_checksum=False,
    )


def dictionary_columns(
    first: pa.Table, *, unique: frozenset[str] = frozenset(), repeated: Sequence[str] = ()
) -> list[str]:
    """Leaf columns that repeat enough in the first row group to pay for a dictionary."""
    chosen = [name for name in repeated if name in first.schema.names]
    sample = first
    if first.num_rows > SAMPLE_ROWS:  # from everywhere, because sorted rows repeat nearby
        rows = SAMPLE_ROWS // SAMPLE_PIECES
        starts = np.linspace(0, first.num_rows - rows, SAMPLE_PIECES).astype(int).tolist()
        sample = pa.concat_tables([first.slice(start, rows) for start in starts])
    for field in first.schema:
        if field.name in unique or field.name in chosen:
            continue
        if first.num_rows <= UNSAMPLED_ROWS and not pt.is_nested(field.type):
            if first.num_rows and not pt.is_boolean(field.type):
                chosen.append(field.name)
            continue
        column = sample[field.name].combine_chunks()
        array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        chosen += (path for path, leaf in _leaves(field.name, array) if _repeats(leaf))
    return chosen


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Leaf columns by the path that they have in the file."""
    kind = array.type
    if pt.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(i).name}", array.field(i))
    elif pt.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", array.keys)
        yield from _leaves(f"{path}.key_value.value", array.items)
    elif pt.is_list(kind):
        yield from _leaves(f"{path}.list.element", array.values)
    else:
        yield path, array


def _repeats(leaf: pa.Array) -> bool:
    if pt.is_dictionary(leaf.type):
        return True
    if pt.is_boolean(leaf.type) or not len(leaf):
        return False
    few = _distinct_share(leaf.slice(0, FEW_ROWS))
    if few > DISTINCT_FEW_MAX:  # nearly all values differ; more of them would not change that
        return False
    return _distinct_share(leaf.slice(0, SAMPLE_ROWS)) <= DISTINCT_SHARE_MAX


def _distinct_share(leaf: pa.Array) -> float:
    found = len(leaf) - leaf.null_count
    return pc.count_distinct(leaf, mode="only_valid").as_py() / found if found else 0.0
