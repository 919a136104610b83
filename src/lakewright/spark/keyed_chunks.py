"""Rows of a keyed write as they travel: chunks of Arrow, and the routes that lead them on.

A chunk is a few ten thousand rows with their keys, compressed. It is known by the task that made it
and its number there; both together are the order of the rows. A `Route` says for the rows of one
chunk to which file groups they go and what is known of them; a row may go to several or to none.
Chunks are split by task and put together again where they are written, in their order.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.engine.keyed.incoming import KEYED
from lakewright.errors import InputError
from lakewright.format.evolution import conversion
from lakewright.format.incoming_types import exact_cast
from lakewright.format.key_spec import KeySpec
from lakewright.format.row_keys import RowKeys
from lakewright.format.write_schema import RowConversion
from lakewright.merge.columns import Bools, Int64s
from lakewright.spark.write_frame import as_sent

__all__ = [
    "CHUNK_BYTES",
    "GONE",
    "INSERTED",
    "Keying",
    "Route",
    "RoutedRows",
    "chunked",
    "decoded",
    "encoded",
    "gathered",
    "mark_of",
    "other_rows",
    "split",
]

CHUNK_ROWS = 65_536
CHUNK_BYTES = 16 << 20
"""Batches are put together until they have so many rows or bytes."""
INSERTED, GONE = 1, 2
_SLOT, _FLAGS, _POSITION = (f"_lakewright_{name}" for name in ("slot", "flags", "position"))
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Keying:
    """How rows get their keys, and which columns decide about them; travels to tasks."""

    rows: RowConversion
    keys: KeySpec
    brief: tuple[str, ...]
    """Columns that decide which version of a key counts, and whether it is a delete."""
    marks: tuple[str, ...] = ()
    """Columns that come along for the driver, and are not the table's."""

    @property
    def brief_schema(self) -> pa.Schema:
        """Keys, and the columns that decide."""
        first = [pa.field(name, pa.string(), nullable=False) for name in KEYED]
        return pa.schema([*first, *(f for f in self.rows.schema if f.name in self.brief)])

    def keyed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they came, in the table's columns, keys in front and marks at the end."""
        made = self.rows.apply(as_sent(batch, self.rows.source))
        keyed = RowKeys(self.keys, instant="").add_to(made)
        for name in self.marks:
            keyed = keyed.append_column(name, batch.column(name))
        return keyed

    def in_brief(self) -> Keying:
        """The same for rows that bring only what their keys are formed from, and what decides."""
        paths = [*self.keys.record_key_fields, *(f.name for f in self.keys.partition_fields)]
        wanted = {*(path.partition(".")[0] for path in paths), *self.brief}
        kept = pa.schema([f for f in self.rows.schema if f.name in wanted])
        named = {name.lower() for name in wanted}
        source = pa.schema([f for f in self.rows.source if f.name.lower() in named])
        made = conversion(source, kept, promote=exact_cast)
        rows = RowConversion(source, kept, made, self.rows.absent)
        return Keying(rows, self.keys, self.brief)


def chunked(
    batches: Iterable[pa.RecordBatch], keying: Keying, *, max_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    """Rows with their keys, in chunks of `CHUNK_ROWS`, or of less if they have too many bytes."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(keying.keyed(batch))
        rows, size = rows + batch.num_rows, size + waiting[-1].nbytes
        if rows >= CHUNK_ROWS or (max_bytes is not None and size >= max_bytes):
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


def encoded(rows: pa.RecordBatch) -> bytes:
    """Rows as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_batch(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def decoded(packed: bytes | pa.Buffer) -> pa.RecordBatch:
    """The rows again."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_next_batch()


def mark_of(packed: bytes) -> int:
    """What tells a chunk from another one in its place."""
    return zlib.crc32(packed)


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Where the rows of one chunk go, in the order of the rows."""

    rows: npt.NDArray[np.int32] | None
    """Which rows; None is every row once."""
    slots: npt.NDArray[np.int32]
    """Numbers of the file groups."""
    flags: npt.NDArray[np.uint8]
    """`INSERTED`, `GONE`."""
    positions: Int64s | None
    """Rows of the base files, -1 where not known; None where nobody asks for them."""

    def packed(self) -> bytes:
        """The route as bytes."""
        return zlib.compress(pickle.dumps(self), 1)

    @classmethod
    def unpacked(cls, packed: bytes) -> Route:
        """The route again."""
        route: Route = pickle.loads(zlib.decompress(packed))  # noqa: S301 - made by `packed`
        return route


def split(
    rows: pa.RecordBatch, route: Route, task_of: Sequence[int] | npt.NDArray[np.integer]
) -> Iterator[tuple[int, bytes]]:
    """What each task gets of a chunk; `task_of` tells the task of every file group."""
    tasks = np.asarray(task_of)[route.slots]
    order = np.argsort(tasks, kind="stable")
    chosen = order if route.rows is None else route.rows[order]
    taken = rows.take(pa.array(chosen))
    taken = taken.append_column(_SLOT, pa.array(route.slots[order]))
    taken = taken.append_column(_FLAGS, pa.array(route.flags[order]))
    if route.positions is not None:
        taken = taken.append_column(_POSITION, pa.array(route.positions[order]))
    tasks = tasks[order]
    for first, end in pairwise([*np.flatnonzero(np.diff(tasks, prepend=-1)), len(tasks)]):
        yield int(tasks[first]), encoded(taken.slice(first, end - first))


@dataclass(frozen=True, slots=True, eq=False)
class RoutedRows:
    """The rows that came to one file group, updates first, each part in the order it came."""

    rows: pa.RecordBatch
    gone: Bools
    inserts: int
    positions: Int64s | None


def gathered(parts: Iterable[tuple[int, int, bytes]], schema: pa.Schema) -> dict[int, RoutedRows]:
    """The rows of one task by file group; parts of chunks come in any order."""
    ordered = [decoded(packed) for _, _, packed in sorted(parts, key=lambda part: part[:2])]
    if not ordered:
        return {}
    every = pa.concat_batches(ordered)
    del ordered
    slots = every.column(_SLOT).to_numpy()
    flags = every.column(_FLAGS).to_numpy()
    has_positions = _POSITION in every.schema.names
    positions = every.column(_POSITION).to_numpy() if has_positions else None
    whole = every.select(schema.names)
    order = np.lexsort((flags & INSERTED, slots))
    found = {}
    for first, end in pairwise([*np.flatnonzero(np.diff(slots[order], prepend=-1)), len(order)]):
        at = order[first:end]
        own = flags[at]
        found[int(slots[at[0]])] = RoutedRows(
            whole.take(pa.array(at)),
            (own & GONE) != 0,
            int((own & INSERTED).sum()),
            None if positions is None else positions[at],
        )
    return found


def other_rows() -> InputError:
    """What is said where rows are not those that were looked at."""
    return InputError(
        "The DataFrame gave other rows when they were written than when their keys were looked up.",
        hint="Its rows change from one look to the next, and what Spark had kept of them was lost: "
        "save them first. Nothing was written.",
    )
