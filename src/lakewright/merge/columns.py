"""Columns by dotted path, and batches made of rows of two aligned batches.

Everything here is by column: no Python object per row. A path that a schema does not hold reads as
null, because a missing column and a null mean the same to every merge rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.format.table_schema import META_COLUMNS as STORED_META_COLUMNS
from lakewright.format.table_schema import OPERATION_COLUMN

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

META_COLUMNS = (*STORED_META_COLUMNS, OPERATION_COLUMN)


def top_level(path: str, schema: pa.Schema) -> str:
    """The top-level column that holds `path`, which may have dots of its own."""
    return path if schema.get_field_index(path) >= 0 else path.split(".", 1)[0]


def path_type(schema: pa.Schema, path: str) -> pa.DataType:
    """The type of the column at a dotted path; the null type if there is none."""
    index = schema.get_field_index(path)
    if index >= 0:
        return schema.field(index).type
    name, _, rest = path.partition(".")
    index = schema.get_field_index(name)
    if index < 0 or not rest or not pa.types.is_struct(schema.field(index).type):
        return pa.null()
    return path_type(pa.schema(list(schema.field(index).type)), rest)


def column_at(rows: pa.RecordBatch, path: str) -> pa.Array:
    """The column at a dotted path, null under a null struct; all null if there is none."""
    index = rows.schema.get_field_index(path)
    if index >= 0:
        return rows.column(index)
    column: pa.Array | None = None
    for name in path.split("."):
        if column is None:
            index = rows.schema.get_field_index(name)
            column = rows.column(index) if index >= 0 else None
        elif pa.types.is_struct(column.type) and column.type.get_field_index(name) >= 0:
            column = pc.struct_field(column, name)
        else:
            column = None
        if column is None:
            return pa.nulls(rows.num_rows)
    return column


def nested_column(field: pa.Field, path: str, values: pa.Array) -> pa.Array:
    """A column of `field` that is null except for `values` at the dotted path below it."""
    if not path:
        return values.cast(field.type)
    name, _, rest = path.partition(".")
    members = [
        nested_column(member, rest, values)
        if member.name == name
        else pa.nulls(len(values), member.type)
        for member in field.type
    ]
    return pa.StructArray.from_arrays(members, fields=list(field.type))


def as_bools(mask: pa.Array | None, size: int) -> Bools:
    """A mask of the merge context as a vector; no mask and null are false."""
    if mask is None:
        return np.zeros(size, dtype=np.bool_)
    if mask.null_count:
        mask = mask.fill_null(False)
    vector: Bools = mask.to_numpy(zero_copy_only=False)
    return vector


def as_mask(vector: Bools) -> pa.Array | None:
    """A vector as a mask of the merge context; None if nothing is set."""
    return pa.array(vector) if vector.any() else None


def valid(column: pa.Array) -> Bools:
    """Which values are not null."""
    if not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    vector: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return vector


def blend(
    older: pa.RecordBatch,
    newer: pa.RecordBatch,
    rows: Int64s,
    from_newer: Sequence[Bools | bool],
) -> pa.RecordBatch:
    """The pairs `rows`, each column from the newer row where its entry of `from_newer` says so."""
    index = pa.array(rows)
    columns = []
    for k, choice in enumerate(from_newer):
        if isinstance(choice, bool):
            columns.append((newer if choice else older).column(k).take(index))
            continue
        both = pa.concat_arrays([older.column(k), newer.column(k)])
        columns.append(both.take(pa.array(np.where(choice[rows], rows + len(older), rows))))
    return pa.RecordBatch.from_arrays(columns, schema=newer.schema)
