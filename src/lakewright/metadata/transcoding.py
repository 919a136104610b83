"""Records of any generation in the schema that is written now.

Bytes of records that have this schema already stay, without the meta columns in front (a base file
stores its own name there). Others are decoded, brought to the new shape by the names of fields and
union branches, and encoded. Statistics of index version 2 cannot be told in the older shape and are
an `UnsupportedTableError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.arrow_types import arrow_type
from lakewright.codec.avro.types import AvroType, Record, Union
from lakewright.codec.hashing import ByteRows
from lakewright.codec.hfile.cells import gather
from lakewright.errors import SchemaError, UnsupportedTableError
from lakewright.metadata.encoding import MetadataRecords, encoded_parts, no_records
from lakewright.metadata.record_schema import META_FIELDS, RecordKind, part_type
from lakewright.metadata.records import Part, broken, decoded, parsed_record

__all__ = ["rewritten"]

Int64s = npt.NDArray[np.int64]

_BRANCH_SET: Final = 2
_VALUE_TYPE: Final = "valueType"


def rewritten(
    parts: Sequence[Part], kind: RecordKind, part: str, record: Record
) -> MetadataRecords:
    """The records of the parts, which are all of one kind, in the schema `record`; in order."""
    out = [no_records()]
    for schema, alike in groupby(parts, key=lambda p: p.schema):
        run = list(alike)
        keys = pa.concat_arrays([p.keys for p in run])
        if parsed_record(schema or "", ("type", part), run[0].path) == record:
            values = pa.concat_arrays([_bare(p, kind) for p in run])
        else:
            values = _transcoded(run, kind, part, record)
        out.append(MetadataRecords(keys, values))
    return MetadataRecords.joined(out)


def _bare(part: Part, kind: RecordKind) -> pa.BinaryArray:
    """The values with nulls for all meta columns."""
    rows = ByteRows.of(part.values)
    ends = rows.starts + rows.lengths
    after_meta = rows.starts.copy()
    for _ in META_FIELDS:
        named = np.flatnonzero(_bytes_at(rows, after_meta) == _BRANCH_SET)
        after_meta += 1
        after_meta[named] += _text_bytes(rows, after_meta[named])
    kinds = after_meta + _text_bytes(rows, after_meta)  # behind the key, which is empty
    if ((kinds >= ends) | (_bytes_at(rows, kinds) != kind << 1)).any():
        raise broken(f"a record is not of type {kind.value}", part.path)
    if (after_meta - rows.starts == len(META_FIELDS)).all():
        return part.values
    bodies = gather(rows.data, after_meta, ends)
    return pc.binary_join_element_wise(bytes(len(META_FIELDS)), bodies, b"")


def _bytes_at(rows: ByteRows, at: Int64s) -> Int64s:
    """The bytes at these places; those of damaged values may lie anywhere."""
    return rows.data[np.minimum(at, len(rows.data) - 1)].astype(np.int64)


def _text_bytes(rows: ByteRows, at: Int64s) -> Int64s:
    """Bytes of the texts that begin there, with their lengths, which have three bytes at most."""
    first, second, third = (_bytes_at(rows, at + i) for i in range(3))
    longer = first >= 0x80
    longest = longer & (second >= 0x80)
    size = first & 0x7F
    size += longer * ((second & 0x7F) << 7) + longest * ((third & 0x7F) << 14)
    return (size >> 1) + 1 + longer + longest


def _transcoded(run: Sequence[Part], kind: RecordKind, part: str, record: Record) -> pa.BinaryArray:
    (found,) = decoded(run, ("type", part))
    if pc.unique(found.rows.column("type")).to_pylist() not in ([], [int(kind)]):
        raise broken(f"a record is not of type {kind.value}", found.path)
    column = found.rows.column(part)
    source, target = part_type(found.schema, part), part_type(record, part)
    if not isinstance(source, Record) or not isinstance(target, Record) or column.null_count:
        raise broken(f"a record has no {part}", found.path)
    if column.type.get_field_index(_VALUE_TYPE) >= 0:
        _refuse_newer(pc.struct_field(column, _VALUE_TYPE), found.path)
    fields = _conformed_fields(column, source, target)
    try:
        return encoded_parts(kind, part, pa.RecordBatch.from_pydict(fields), record)
    except SchemaError as error:
        raise broken(f"they are of another schema ({error.message})", found.path) from error


def _refuse_newer(value_types: pa.Array, path: str) -> None:
    if value_types.null_count != len(value_types):
        raise UnsupportedTableError(
            "The metadata table has statistics of index version 2.",
            hint="Drop the statistics and let them be built again, or write the table with Hudi.",
            context={"path": path},
        )


def _conformed_fields(column: pa.Array, source: Record, target: Record) -> dict[str, pa.Array]:
    found = {f.name: (f.type, column.field(i)) for i, f in enumerate(source.fields)}
    out = {}
    for field in target.fields:
        if field.name in found:
            out[field.name] = _conformed(found[field.name][1], found[field.name][0], field.type)
        else:
            kind = arrow_type(field.type)
            missing = pa.scalar(field.default, kind)
            out[field.name] = pa.repeat(missing, len(column))
    return out


def _conformed(column: pa.Array, source: AvroType, target: AvroType) -> pa.Array:
    """The column in the target's shape; only unions of wrappers differ between generations."""
    if source == target or not isinstance(source, Union) or not isinstance(target, Union):
        return column
    kind = arrow_type(target)
    branches = [b.name for b in source.branches if isinstance(b, Record)]
    wanted = [b.name for b in target.branches if isinstance(b, Record)]
    if len(wanted) < 2 or kind.num_fields != len(wanted):
        return column
    members = [
        column.field(branches.index(name)) if name in branches else pa.nulls(len(column), f.type)
        for name, f in zip(wanted, kind, strict=True)
    ]
    mask = np.logical_and.reduce([np.asarray(m.is_null()) for m in members])
    names = [f.name for f in kind]
    return pa.StructArray.from_arrays(members, names=names, mask=pa.array(mask))
