"""Records of the metadata table as keys and Avro bytes, encoded as columns.

Only the part that a record is about is encoded; everything around it - meta columns, the empty key,
nulls for the other parts - is the same for all records of a kind and is put around the columns at
once. `MetadataRecords` is what HFiles and log blocks are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.columns import encode_records
from lakewright.codec.avro.types import AvroType, Field, Record
from lakewright.codec.byte_order import byte_order
from lakewright.errors import FormatError
from lakewright.metadata.record_schema import RecordKind, part_type

__all__ = ["MetadataRecords", "encoded_bodies", "encoded_parts", "enveloped", "no_records"]

_KEY, _TYPE = "key", "type"
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_EMPTY_TEXT: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class MetadataRecords:
    """Keys and encoded values, aligned."""

    keys: pa.BinaryArray
    values: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, at: pa.Array) -> MetadataRecords:
        """The records at these places."""
        return MetadataRecords(self.keys.take(at), self.values.take(at))

    def sorted(self) -> MetadataRecords:
        """By the bytes of the keys."""
        if len(self) < 2 or pc.all(pc.less(self.keys[:-1], self.keys[1:])).as_py():
            return self
        return self.take(pa.array(byte_order(self.keys)))

    @classmethod
    def joined(cls, parts: Sequence[MetadataRecords]) -> MetadataRecords:
        """All records, one part behind the other."""
        if not parts:
            return no_records()
        return cls(
            pa.concat_arrays([p.keys for p in parts]), pa.concat_arrays([p.values for p in parts])
        )


def no_records() -> MetadataRecords:
    """None at all."""
    return MetadataRecords(pa.array([], pa.binary()), pa.array([], pa.binary()))


def encoded_parts(
    kind: RecordKind, part: str, columns: pa.RecordBatch, record: Record
) -> pa.BinaryArray:
    """Values of records of one kind, whose part has these columns."""
    type_ = part_type(record, part)
    if type_ is None:
        raise FormatError(
            f"The metadata table of this table has no records of kind {kind.name}.",
            hint="Tables of version 6 have the indexes of Hudi 0.15; upgrade the table first.",
        )
    return enveloped(kind, part, encoded_bodies(columns, type_), record)


def encoded_bodies(columns: pa.RecordBatch, type_: AvroType) -> pa.BinaryArray:
    """The Avro bytes of a record with these columns, or of the first one for any other type."""
    if not isinstance(type_, Record):
        type_ = _one_field(columns.schema.names[0], type_)
    body, offsets = encode_records(columns, type_)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(body)]
    wide = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return wide.cast(pa.binary())


def enveloped(
    kind: RecordKind, part: str, bodies: pa.BinaryArray, record: Record
) -> pa.BinaryArray:
    """Whole records around the encoded part."""
    before, after = _envelope(kind, part, record)
    return pc.binary_join_element_wise(before, bodies, after, b"")


@lru_cache(maxsize=64)
def _envelope(kind: RecordKind, part: str, record: Record) -> tuple[bytes, bytes]:
    """The bytes before and behind the part; all fields but key, type and it are null."""
    names = [f.name for f in record.fields]
    place = names.index(part)
    before = b""
    for name in names[:place]:
        if name == _TYPE:
            before += bytes([kind << 1])
        elif name == _KEY:
            before += _EMPTY_TEXT
        else:
            before += _NULL
    return before + _PRESENT, _NULL * (len(names) - place - 1)


@lru_cache(maxsize=64)
def _one_field(name: str, type_: AvroType) -> Record:
    return Record("part", (Field(name, type_),))
