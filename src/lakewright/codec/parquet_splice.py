"""Row groups taken from one Parquet file into another as they are, without decoding a page.

Pages of a column do not say where in a file they lie; only the footer does. So a row group moves by
copying its bytes and writing its place anew; statistics, encodings and codec stay. Whole columns
can be replaced on the way by those of another file, several of them by the same pages. Page indexes
and Parquet's own bloom filters, which lie elsewhere in a file, are left behind.

`Splice.like` answers None where files do not fit together: other columns or types, encryption, a
footer that contradicts itself, statistics whose order is not told. Then rows must be decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from lakewright.codec.parquet import ParquetFile
from lakewright.codec.parquet_footer import MAGIC, TRAILER_BYTES
from lakewright.codec.thrift import CompactReader, Field, Fields, Items, Kind, struct_bytes

__all__ = ["NewColumns", "Splice", "Stored", "Written"]

_VERSION, _SCHEMA, _ROWS, _GROUPS, _VALUES, _CREATED_BY, _ORDERS, _ENCRYPTION = range(1, 9)
_COLUMNS, _BYTES, _GROUP_ROWS, _SORTING, _GROUP_OFFSET, _COMPRESSED, _ORDINAL = range(1, 8)
_FILE_OFFSET, _METADATA = 2, 3
_PATH, _UNCOMPRESSED, _SIZE, _DATA, _INDEX, _DICTIONARY = 3, 6, 7, 9, 10, 11
_CHUNK_KEPT: Final = frozenset({_FILE_OFFSET, _METADATA})
_BLOOM: Final = frozenset({14, 15})
_TOLD: Final = (1, 2, 3, 4, 5, 6, 7, 8)
"""Of a column in the schema: type, length, repetition, name, children, converted type, digits."""
_LOGICAL: Final = 10
KNOWN_WRITERS: Final = (b"parquet-cpp-arrow version ", b"parquet-mr version 1.1")
"""Writers whose statistics mean what they say."""


class Stored(Protocol):
    """A file as far as its pages move: a `ParquetFile`, or one that was just written."""

    @property
    def raw_groups(self) -> list[dict[int, Field]]:
        """Row groups as the footer has them."""

    def read_raw(self, begin: int, size: int, *, path: str) -> bytes:
        """Stored bytes."""


class Written:
    """A file that was just written, in memory; nobody has to check it."""

    def __init__(self, content: pa.Buffer) -> None:
        self._bytes = memoryview(content)
        length = int.from_bytes(self._bytes[-TRAILER_BYTES:][:4], "little")
        footer = bytes(self._bytes[-TRAILER_BYTES - length : -TRAILER_BYTES])
        self.raw_groups: list[dict[int, Field]] = (
            CompactReader(footer).struct()[_GROUPS].value.values
        )
        """Row groups as the footer has them."""

    def read_raw(self, begin: int, size: int, *, path: str) -> bytes:  # noqa: ARG002 - `Stored`
        """Stored bytes."""
        return bytes(self._bytes[begin : begin + size])


class NewColumns(Protocol):
    """Columns of a row group that come from elsewhere."""

    @property
    def rows(self) -> int:
        """How many rows they have."""

    def encoded(self, name: str) -> Stored | None:
        """A file of one row group with this (top) column alone; None if it is not replaced."""


class Splice:
    """A file that is put together; `close` finishes it, not the sink."""

    def __init__(self, sink: Any, model: Fields) -> None:
        self._sink = sink
        self._model = model
        self._groups: list[dict[int, Field]] = []
        self.rows = 0
        """Rows so far."""
        sink.write(MAGIC)

    @classmethod
    def like(cls, sink: Any, model: ParquetFile, made: ParquetFile) -> Splice | None:
        """A file with the schema of `model`; `made` is like all others that it takes rows from."""
        footer, other = _footer(model), _footer(made)
        if footer is None or other is None or not _fits(footer, other):
            return None
        # What is new is made by the writer of `made`, and what is old by one whose files are alike.
        return cls(sink, {**footer, _CREATED_BY: other[_CREATED_BY]})

    def take(
        self,
        source: Stored,
        group: int,
        *,
        path: str = "",
        replaced: NewColumns | None = None,
        twins: Mapping[str, str] | None = None,
    ) -> None:
        """Take a row group, but columns that `replaced` has from there; each is asked for once, in
        the order of the file.

        `twins` are columns that get the pages of another one of `replaced`. If that has fewer rows
        it must have all columns, or their twins. `path` is that of the source, for errors.
        """
        metadata = source.raw_groups[group]
        begin = self._sink.tell()
        same, held = twins or {}, _Held(replaced, frozenset((twins or {}).values()))
        chunks = []
        for name, chunk in _chunks(metadata).items():
            top = name[0].decode()
            top = same.get(top, top)
            file = held.file(top)
            if file is None:
                chunks.append(self._copied(source, chunk, path))
            else:
                found = _chunks(file.raw_groups[0])[(top.encode(), *name[1:])]
                chunks.append(_named(self._copied(file, found, path), name))
        rows = metadata[_GROUP_ROWS].value if replaced is None else replaced.rows
        sizes = [[c[_METADATA].value[n].value for c in chunks] for n in (_UNCOMPRESSED, _SIZE)]
        self._groups.append(
            {
                _COLUMNS: Field(Kind.LIST, Items(Kind.STRUCT, chunks)),
                _BYTES: Field(Kind.I64, sum(sizes[0])),
                _GROUP_ROWS: Field(Kind.I64, rows),
                _GROUP_OFFSET: Field(Kind.I64, begin),
                _COMPRESSED: Field(Kind.I64, sum(sizes[1])),
                _ORDINAL: Field(Kind.I16, len(self._groups)),
            }
        )
        self.rows += rows

    def close(self, values: Mapping[str, str]) -> None:
        """Write the footer with these key/value pairs."""
        pairs = [
            {1: Field(Kind.BINARY, k.encode()), 2: Field(Kind.BINARY, v.encode())}
            for k, v in values.items()
        ]
        footer = struct_bytes(
            {
                **{n: self._model[n] for n in (_VERSION, _SCHEMA, _CREATED_BY, _ORDERS)},
                _ROWS: Field(Kind.I64, self.rows),
                _GROUPS: Field(Kind.LIST, Items(Kind.STRUCT, list(self._groups))),
                _VALUES: Field(Kind.LIST, Items(Kind.STRUCT, pairs)),
            }
        )
        self._sink.write(footer + len(footer).to_bytes(4, "little") + MAGIC)

    def _copied(self, source: Stored, chunk: Fields, path: str) -> dict[int, Field]:
        """Copy the pages of a column; what the new footer says about it."""
        told: Fields = chunk[_METADATA].value
        begin = _begin(told)
        moved = self._sink.tell() - begin
        self._sink.write(source.read_raw(begin, told[_SIZE].value, path=path))
        metadata = {n: field for n, field in told.items() if n not in _BLOOM}
        for place in (_DATA, _INDEX, _DICTIONARY):
            if place in metadata and metadata[place].value > 0:
                metadata[place] = Field(Kind.I64, metadata[place].value + moved)
        return {_FILE_OFFSET: Field(Kind.I64, 0), _METADATA: Field(Kind.STRUCT, metadata)}


class _Held:
    """Encoded columns, for as long as they are needed: those of `kept` longer than the last."""

    def __init__(self, columns: NewColumns | None, kept: frozenset[str]) -> None:
        self._columns = columns
        self._kept = kept
        self._files: dict[str, Stored | None] = {}

    def file(self, name: str) -> Stored | None:
        if self._columns is None:
            return None
        if name not in self._files:
            self._files = {n: file for n, file in self._files.items() if n in self._kept}
            self._files[name] = self._columns.encoded(name)
        return self._files[name]


def _named(chunk: Fields, name: tuple[bytes, ...]) -> dict[int, Field]:
    """The same pages as those of a column of this name."""
    path = Field(Kind.LIST, Items(Kind.BINARY, list(name)))
    return {**chunk, _METADATA: Field(Kind.STRUCT, {**chunk[_METADATA].value, _PATH: path})}


def _chunks(group: Fields) -> dict[tuple[bytes, ...], Fields]:
    """The columns of a row group by their path, in order."""
    chunks: Sequence[Fields] = group[_COLUMNS].value.values
    return {tuple(chunk[_METADATA].value[_PATH].value.values): chunk for chunk in chunks}


def _begin(metadata: Fields) -> int:
    """Where the pages of a column begin."""
    data: int = metadata[_DATA].value
    dictionary = metadata[_DICTIONARY].value if _DICTIONARY in metadata else 0
    return min(dictionary, data) if dictionary > 0 else data


def _footer(file: ParquetFile) -> dict[int, Field] | None:
    """A footer that can be written again; None for one that is not to be trusted."""
    if file.damage is not None:
        return None
    try:
        footer = CompactReader(file.footer).struct()
    except (IndexError, ValueError, struct.error):
        return None
    kinds = {_VERSION: Kind.I32, _SCHEMA: Kind.LIST, _CREATED_BY: Kind.BINARY, _ORDERS: Kind.LIST}
    if _ENCRYPTION in footer or any(
        n not in footer or footer[n].kind is not kind for n, kind in kinds.items()
    ):
        return None
    return footer


def _fits(model: Fields, made: Fields) -> bool:
    """Whether rows of one file can lie in the other."""
    if not model[_CREATED_BY].value.startswith(KNOWN_WRITERS):
        return False
    if model[_ORDERS] != made[_ORDERS]:
        return False
    ours: Sequence[Fields] = made[_SCHEMA].value.values
    theirs: Sequence[Fields] = model[_SCHEMA].value.values
    return len(ours) == len(theirs) and all(
        _same(a, b, root=not n) for n, (a, b) in enumerate(zip(theirs, ours, strict=True))
    )


def _same(one: Fields, other: Fields, *, root: bool) -> bool:
    told = (5,) if root else _TOLD
    if any(one.get(n) != other.get(n) for n in told):
        return False
    return root or (one.get(_LOGICAL) or other.get(_LOGICAL)) == (
        other.get(_LOGICAL) or one.get(_LOGICAL)
    )
