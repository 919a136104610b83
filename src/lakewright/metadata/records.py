"""Records of one metadata-table file group: base file and log blocks, by key, oldest first.

A `FileGroupReader` answers a selection (everything, some keys, some prefixes) with `Part`s: keys
with their encoded values, or keys that were deleted, in the order they were committed. `living`
drops what later deletes took away and, where newer records simply win, what newer ones replaced.
Values are decoded with the schema that stands beside them, never with a built-in one: a table
regularly holds several generations. Damage is a `CorruptFileError` of the codec that found it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.columns import decode_records
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import Record
from lakewright.codec.hfile import HFile
from lakewright.codec.hfile.cells import starting_with
from lakewright.errors import FormatError, MetadataTableError, SchemaError
from lakewright.format.log_block import BlockType, LogBlock
from lakewright.format.log_content import delete_rows
from lakewright.metadata.shapes import misfit
from lakewright.storage.base import Storage

__all__ = [
    "Decoded",
    "Everything",
    "FileGroupReader",
    "Keys",
    "Part",
    "Prefixes",
    "Selection",
    "broken",
    "decoded",
    "living",
    "parsed_record",
]


@dataclass(frozen=True, slots=True)
class Everything:
    """Every record."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Records with one of these keys."""

    keys: pa.BinaryArray


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Records whose key starts with one of these."""

    prefixes: tuple[bytes, ...]


Selection = Everything | Keys | Prefixes


@dataclass(frozen=True, slots=True)
class Part:
    """Records of one base file or log block; `values` and `schema` are None for deleted keys."""

    keys: pa.BinaryArray
    values: pa.BinaryArray | None
    schema: str | None
    path: str
    offset: int = 0
    """Where the HFile begins in the file at `path`; the cells inside are compressed."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded records that were written with one schema."""

    keys: pa.BinaryArray
    rows: pa.RecordBatch
    schema: Record
    path: str
    """The first file they came from."""


class FileGroupReader:
    """One file group, as it is committed: an HFile, then log blocks. Opened files are kept."""

    def __init__(
        self, storage: Storage, base: tuple[str, int] | None, blocks: Sequence[LogBlock]
    ) -> None:
        """`base` is the path and size of the base file; `blocks` count, oldest first."""
        self._storage = storage
        self._base = base
        self._blocks = blocks
        self._opened: list[tuple[HFile, str]] | None = None

    @property
    def path(self) -> str:
        """The file that the group begins with; empty if it has none."""
        if self._base is not None:
            return self._base[0]
        return self._blocks[0].path if self._blocks else ""

    def read(self, selection: Selection) -> list[Part]:
        """The selected records, oldest first."""
        opened = iter(self._files())
        parts = [self._cells(*next(opened), selection)] if self._base is not None else []
        for block in self._blocks:
            if block.type is BlockType.DELETE:
                keys = _selected(delete_rows(block).keys.cast(pa.binary()), selection)
                parts.append(Part(keys, None, None, block.path))
            else:
                parts.append(self._cells(*next(opened), selection))
        return [part for part in parts if len(part.keys)]

    def first_keys(self) -> list[bytes]:
        """The least key of each file that was opened, to see whether they belong here."""
        keys = [file.first_key for file, _ in self._files()]
        return [key for key in keys if key is not None]

    def count(self, alive: Callable[[Sequence[Part]], int] | None = None) -> int:
        """How many keys have a record that was not deleted since; logs are read, the base is not.

        `alive` counts records of logs without those that say of themselves that they are deleted.
        """
        base = self._files()[0][0] if self._base is not None else None
        stored = 0 if base is None else base.entry_count
        logged = FileGroupReader(self._storage, None, self._blocks).read(Everything())
        if not logged:
            return stored
        left = living(logged, newest_only=True)
        added = sum(len(part.keys) for part in left) if alive is None else alive(left)
        keys = pa.concat_arrays([part.keys for part in logged]).unique()
        known = 0 if base is None else len(keys) - base.lookup(keys).null_count
        return stored - known + added

    def _files(self) -> list[tuple[HFile, str]]:
        if self._opened is None:
            self._opened = list(self._open())
        return self._opened

    def _open(self) -> Iterator[tuple[HFile, str]]:
        if self._base is not None:
            path, size = self._base
            base = HFile.open(self._storage, path, size=size)
            yield base, _stored_schema(base)
        for block in self._blocks:
            if block.type is BlockType.DELETE:
                continue
            if block.type is not BlockType.HFILE_DATA:
                raise MetadataTableError(
                    f"The metadata table has a log block of type {block.type.name}.",
                    hint="Read the table without its metadata table, and rebuild that.",
                    context={"path": block.path, "offset": block.offset},
                )
            file = HFile(block.content, path=block.path, base_offset=block.content_offset)
            yield file, block.schema

    def _cells(self, file: HFile, schema: str, selection: Selection) -> Part:
        match selection:
            case Everything():
                keys, values = file.cells()
            case Prefixes(prefixes):
                keys, values = file.prefixes(prefixes)
            case Keys(wanted):
                found = file.lookup(wanted)
                keys, values = wanted.filter(found.is_valid()), found.drop_null()
        return Part(keys, values, schema, file.path, file.offset)


def living(parts: Sequence[Part], *, newest_only: bool) -> list[Part]:
    """What is left after deletes and, with `newest_only`, one record per key.

    Without `newest_only` several records of a key remain, oldest first, to be combined.
    """
    if not parts:
        return []
    if len(parts) == 1 and parts[0].values is not None:
        return list(parts)
    sizes = [len(p.keys) for p in parts]
    codes = _codes(pa.concat_arrays([p.keys for p in parts]))
    place = np.arange(len(codes))
    deleted = np.repeat([p.values is None for p in parts], sizes)
    horizon = np.full(int(codes.max()) + 1, -1, np.int64)
    np.maximum.at(horizon, codes[deleted], place[deleted])
    keep = place > horizon[codes]
    if newest_only:
        newest = np.zeros_like(horizon)
        newest[codes] = place  # ascending: the last one stays
        keep &= place == newest[codes]
    out = []
    for part, mine in zip(parts, np.split(keep, np.cumsum(sizes)[:-1]), strict=True):
        if part.values is None or not mine.any():
            continue
        if not mine.all():
            mask = pa.array(mine)
            part = replace(part, keys=part.keys.filter(mask), values=part.values.filter(mask))
        out.append(part)
    return out


def decoded(parts: Sequence[Part], columns: Sequence[str]) -> Iterator[Decoded]:
    """Decode the values; neighbours with equal schemas together. `columns` must all be there."""
    for schema, alike in groupby(parts, key=lambda p: p.schema):
        run = list(alike)
        record = parsed_record(schema or "", columns, run[0].path)
        values = pa.concat_arrays([p.values for p in run])
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :].astype(np.int64)
        payload = values.buffers()[2] or pa.py_buffer(b"")
        try:
            rows = decode_records(
                payload,
                offsets[: len(values)],
                offsets[1 : len(values) + 1],
                record,
                columns=columns,
                path=run[0].path,
            )
        except FormatError as error:
            _point_at_record(error, run)
            raise
        for name in columns:
            wrong = misfit(name, rows.column(name).type)
            if wrong is not None:
                raise broken(f"their schema does not fit: {wrong}", run[0].path)
        yield Decoded(pa.concat_arrays([p.keys for p in run]), rows, record, run[0].path)


def _point_at_record(error: FormatError, run: Sequence[Part]) -> None:
    """Name the file and the key of the record at fault, instead of a place in joined values."""
    record = error.context.get("record")
    left = record if isinstance(record, int) else 0
    for part in run:
        if left < len(part.keys):
            error.context |= {"path": part.path, "offset": part.offset}
            if record is not None:
                error.context["key"] = part.keys[left].as_py().decode("utf-8", "replace")
            return
        left -= len(part.keys)


def broken(why: str, path: str) -> MetadataTableError:
    """The error for records that decode and still make no sense."""
    return MetadataTableError(
        f"Records of the metadata table cannot be used: {why}.",
        hint="Read the table without its metadata table, and rebuild that.",
        context={"path": path, "offset": 0},
    )


def parsed_record(schema: str, columns: Sequence[str], path: str) -> Record:
    """The schema beside some records, which must have these columns."""
    try:
        record = parse_schema(schema)
    except SchemaError as error:
        error.context |= {"path": path, "offset": 0}
        raise
    names = {f.name for f in record.fields} if isinstance(record, Record) else set()
    if not isinstance(record, Record) or not names.issuperset(columns):
        raise MetadataTableError(
            f"Records of the metadata table lack {', '.join(columns)}.",
            hint="Read the table without its metadata table, and rebuild that.",
            context={"path": path, "offset": 0},
        )
    return record


def _codes(keys: pa.BinaryArray) -> npt.NDArray[np.int64]:
    return np.asarray(keys.dictionary_encode().indices).astype(np.int64)


def _selected(keys: pa.BinaryArray, selection: Selection) -> pa.BinaryArray:
    match selection:
        case Everything():
            return keys
        case Keys(wanted):
            return keys.filter(pc.is_in(keys, value_set=wanted))
        case Prefixes(prefixes):
            return keys.filter(pa.array(starting_with(keys, prefixes)))


def _stored_schema(file: HFile) -> str:
    text = file.file_info.get("schema")
    if text is None:
        raise MetadataTableError(
            "A base file of the metadata table has no schema.",
            hint="Read the table without its metadata table, and rebuild that.",
            context={"path": file.path, "offset": 0},
        )
    return text.decode("utf-8", "replace")
